/* SPDX-License-Identifier: MIT */
/* Repair: if a majority extends a lease that is gone on other masters, the acquire script sets its key there again.
 * Otherwise a lease that is renewed for days loses a vote with each master that restarts. docs/explanation/proofs.md
 * says why that is safe. Pure. */
#include <assert.h>

#include "lease_internal.h"

enum { BUCKET_LEN_MAX = 17 }; /* the digits of a fence, and a comma */

/* The lease as reported by a master that extended it; NULL: redlockd did not write its value. */
static const struct lease_sight *find_extended(const struct lease_op *op)
{
	for (unsigned i = 0; i < op->core.params.masters; i++) {
		const struct lease_sight *sight = &op->seen[i];
		if (lease_op_voted(op, i, REDLOCK_VOTE_GRANTED) && sight->holder.known &&
		    sight->id == lease_value_token_id(op->attempt.token))
			return sight;
	}
	return NULL;
}

bool lease_repair_write(struct lease_op *op, const struct redlock_output *out, uint8_t master,
			struct master_script *command)
{
	static const enum master_kind kinds[] = {MASTER_EXCLUSIVE, MASTER_SHARED, MASTER_SLOT};
	const struct lease_sight *lease = find_extended(op), *gone = &op->seen[master];
	assert(out->repair && op->request.operation == LEASE_EXTEND);
	size_t names = op->request.set_count > 0 ? op->request.set_count : 1;
	if (!lease || !gone->buckets || gone->buckets_len > names * BUCKET_LEN_MAX || out->fence == 0)
		return false; /* a server that is not Redis may answer anything */
	const struct lease_holder *holder = &lease->holder;
	if (holder->hold_until_ms != 0 && holder->hold_until_ms <= lease->time_ms)
		return false;
	if (op->label.len == 0) /* else an earlier command, not yet written, has it */
		lease_value_write_label_again(holder, &op->label);
	command->label = op->label.bytes;
	command->label_len = op->label.len;
	command->kind = kinds[holder->mode];
	command->capacity = holder->mode == LEASE_SLOT ? LEASE_SLOTS_MAX : op->leases->options->max_shared;
	command->slot = holder->slot;
	command->ttl_ms = (uint32_t)(out->repair_ttl_us / 1000);
	command->fence = out->fence;
	command->repair = true;
	command->buckets = gone->buckets;
	command->buckets_len = gone->buckets_len;
	command->hold_ms = holder->hold_until_ms != 0 ? holder->hold_until_ms - lease->time_ms : 0;
	return true;
}
