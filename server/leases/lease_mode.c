/* SPDX-License-Identifier: MIT */
/* Modes: writes the mode into a command, and chooses the slot that an attempt asks for.
 *
 * Each slot is a lock of its own, and all masters are asked for the same slot. A refusal lists the slots that are taken
 * on that master (server/scripts/acquire.lua). The next attempt asks for a slot that may be free on a majority, or for
 * the slot that a notification names. The votes of the masters alone decide who gets it. */
#include <assert.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

void lease_mode_write(const struct lease_op *op, struct master_script *command)
{
	static const enum master_kind kinds[] = {MASTER_EXCLUSIVE, MASTER_SHARED, MASTER_SLOT};
	const struct lease_request *request = &op->request;
	if (command->script == REDLOCK_SCRIPT_INSPECT)
		command->list_max = request->operation == LEASE_FORCE ? UINT32_MAX
				    : request->few                    ? LEASE_HOLDERS_FEW
								      : 0; /* lease_details.c reads the list */
	if (request->operation != LEASE_ACQUIRE && !lease_place_is_asked_for(op))
		return;
	command->kind = kinds[request->mode];
	command->capacity = request->mode == LEASE_SLOT ? request->slots : op->leases->options->max_shared;
	command->slot = op->slot.index;
}

void lease_mode_choose_slot(struct lease_op *op)
{
	unsigned masters = op->core.params.masters, slots = op->request.slots, candidates = 0;
	unsigned taken_max = masters - redlock_majority((uint8_t)masters);
	assert(slots >= 1 && slots <= LEASE_SLOTS_MAX);
	for (unsigned i = 0; i < slots; i++)
		candidates += op->slot.taken[i] <= taken_max;
	unsigned nth = (unsigned)(random_number() % (candidates > 0 ? candidates : slots));
	for (op->slot.index = 0; op->slot.index < slots; op->slot.index++)
		if ((candidates == 0 || op->slot.taken[op->slot.index] <= taken_max) && nth-- == 0)
			break;
	if (op->slot.has_free)
		op->slot.index = op->slot.free;
	assert(op->slot.index < slots);
	memset(op->slot.taken, 0, slots);
	op->slot.has_free = false;
}

void lease_mode_set_free(struct lease_op *op, const struct masters_notification *notification)
{
	if (!op->slot.taken || !notification->has_free || notification->free >= op->request.slots)
		return;
	op->slot.has_free = true;
	op->slot.free = notification->free;
}

bool lease_mode_count_taken(struct lease_op *op, const char *taken, size_t len)
{
	bool other_is_free = false, are_all = len == 1 && taken[0] == '1';
	if (are_all)
		for (size_t i = 0; i < op->request.slots; i++)
			op->slot.taken[i]++;
	if (are_all || len != op->request.slots)
		return false;
	for (size_t i = 0; i < len; i++) {
		op->slot.taken[i] = (uint8_t)(op->slot.taken[i] + (taken[i] == '1'));
		other_is_free |= taken[i] != '1';
	}
	return other_is_free && taken[op->slot.index] == '1';
}
