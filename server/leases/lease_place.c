/* SPDX-License-Identifier: MIT */
/* Places in the queue, kept for waits that another request continues at any redlockd of the cluster. Writes them into
 * the commands of an operation (server/scripts/lib/queue.lua). lease_keyed.c asks for them.
 *
 * A place only decides which request may try. The votes alone decide which one gets the lock. */
#include <assert.h>
#include <string.h>
#include <sys/param.h>

#include "lease_internal.h"
#include "server/base/base.h"

/* True if the wait ends, and not because the client has left. */
static bool is_over(const struct lease_op *op, const struct redlock_output *out)
{
	return op->request.operation == LEASE_ACQUIRE && op->request.key != 0 && out->entry == REDLOCK_ENTRY_LEAVE &&
	       (op->core.state == REDLOCK_LEAVING || op->wait.drained);
}

/* True if the first entry of a queue is a place: its replica is made of its arrival (lib/queue.lua). */
static bool is_place(const char *entry, size_t len)
{
	enum { REPLICA_END = 16, ARRIVAL_END = 33, DIGITS = 8 };
	return len >= ARRIVAL_END && memcmp(entry + REPLICA_END - DIGITS, entry + ARRIVAL_END - DIGITS, DIGITS) == 0;
}

void lease_place_read(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply)
{
	bool is_turn = reply->vote == REDLOCK_VOTE_QUEUED;
	if (ref->command.script != REDLOCK_SCRIPT_ACQUIRE || !(is_turn || reply->vote == REDLOCK_VOTE_HELD))
		return;
	bool is_held_up = is_turn && reply->value && is_place(reply->value, reply->value_len);
	op->wait.held_up_until_us = is_held_up ? clock_now_us() + reply->remaining_us : 0;
}

/* As queue_place_ms() of lib/queue.lua has it. */
static uint16_t kept_ms(const struct lease_op *op)
{
	uint64_t now_us = clock_now_us(), until_us = op->wait.held_up_until_us;
	uint64_t left_ms = until_us > now_us ? (until_us - now_us) / 1000 : 0;
	return (uint16_t)(until_us == 0 ? LEASE_PLACE_KEPT_MS : MIN(left_ms, LEASE_PLACE_KEPT_MS));
}

void lease_place_write(struct lease_op *op, const struct redlock_output *out, struct master_script *command)
{
	const struct lease_request *request = &op->request;
	assert(command->entry.place == 0);
	if (is_over(op, out)) {
		command->entry.place = request->key;
		op->wait.place_kept_ms = kept_ms(op);
	}
	if (!lease_place_is_asked_for(op))
		return;
	command->token = NULL;
	command->entry = (struct master_entry){
		.wait_ms = request->wait_ms, .of_set = request->set_count > 0, .place = request->key};
}

uint64_t lease_place_arrival(const struct lease_op *taker)
{
	const struct redlock *core = &taker->core;
	assert(lease_place_is_asked_for(taker));
	for (unsigned i = 0; i < core->params.masters; i++) {
		unsigned votes = 0;
		for (unsigned j = 0; lease_op_voted(taker, i, REDLOCK_VOTE_GRANTED) && j < core->params.masters; j++)
			votes += lease_op_voted(taker, j, REDLOCK_VOTE_GRANTED) &&
				 core->ballots[j].fence == core->ballots[i].fence;
		if (votes >= redlock_majority(core->params.masters))
			return core->ballots[i].fence;
	}
	return 0;
}
