/* SPDX-License-Identifier: MIT */
/* The answers of the masters to an operation, apart from the votes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

void lease_sight_fini(struct lease_sight *sight)
{
	lease_holder_fini(&sight->holder);
	lease_several_free(sight->several);
	free(sight->buckets);
	sight->several = NULL;
	sight->buckets = NULL;
	sight->id = 0; /* the next operation must not find it */
}

static void store_buckets(struct lease_sight *sight, const struct master_reply *reply)
{
	assert(!sight->buckets);
	sight->buckets = memory_copy(reply->buckets, reply->buckets_len);
	sight->buckets_len = (uint16_t)reply->buckets_len;
}

/* The lease that was released, for the trail. */
static void store_released(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply)
{
	struct lease_sight *sight = &op->seen[ref->master];
	lease_holder_fini(&sight->holder);
	sight->id = lease_value_read_holder(reply->value, reply->value_len, &sight->holder);
}

void lease_sight_store(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply,
		       struct redlock_event *event)
{
	struct lease_sight *sight = &op->seen[ref->master];
	if (reply->vote == REDLOCK_VOTE_HELD || reply->vote == REDLOCK_VOTE_QUEUED)
		op->replies.blocking_index = sight->blocking_index = reply->blocking_index;
	if (reply->vote == REDLOCK_VOTE_GONE && ref->command.script == REDLOCK_SCRIPT_EXTEND)
		store_buckets(sight, reply);
	if (reply->vote == REDLOCK_VOTE_GRANTED && reply->value && op->request.operation == LEASE_RELEASE &&
	    op->leases->options->log_leases && redlock_wants(&op->core, ref->attempt, ref->round))
		store_released(op, ref, reply);
	bool has_value = reply->vote == REDLOCK_VOTE_HELD ||
			 (reply->vote == REDLOCK_VOTE_GRANTED && ref->command.script == REDLOCK_SCRIPT_EXTEND);
	uint16_t round = ref->command.script == REDLOCK_SCRIPT_RAISE ? 0 : ref->round;
	if (!has_value ||
	    !(redlock_wants(&op->core, ref->attempt, round) || lease_op_stores_late(op, ref, reply->vote)))
		return;
	lease_holder_fini(&sight->holder);
	sight->id = lease_value_read_holder(reply->value, reply->value_len, &sight->holder);
	sight->time_ms = reply->time_us / 1000;
	if (sight->holder.known) {
		assert(reply->value);
		memcpy(sight->token, reply->value, sizeof sight->token);
	}
	if (reply->vote == REDLOCK_VOTE_HELD && sight->holder.mode != LEASE_EXCLUSIVE)
		sight->id = LEASE_SEVERAL_ID;
	lease_several_free(sight->several);
	sight->several = lease_several_read(reply);
	uint32_t list_max = op->request.few ? LEASE_HOLDERS_FEW : LEASE_HOLDERS_MAX;
	event->wait_for_all = op->request.operation == LEASE_INSPECT && sight->several &&
			      sight->several->count > list_max;
	event->elsewhere = op->slot.taken && lease_mode_count_taken(op, reply->taken, reply->taken_len);
	event->holder = sight->id;
	event->fence = sight->holder.fence;
	event->other_library = !sight->holder.known;
}

void lease_sight_observe_hold_time(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply)
{
	uint64_t bound_ms = op->leases->options->max_hold_ms, now_ms = reply->time_us / 1000;
	if (op->request.operation != LEASE_RELEASE || ref->command.script != REDLOCK_SCRIPT_RELEASE ||
	    reply->vote != REDLOCK_VOTE_GRANTED || op->replies.hold_time_observed || lease_place_is_asked_for(op))
		return;
	uint64_t until_ms = lease_value_hold_until_ms(reply->value, reply->value_len);
	if (until_ms < bound_ms || bound_ms == 0 || now_ms < until_ms - bound_ms)
		return;
	op->replies.hold_time_observed = true;
	histogram_observe(&op->leases->metrics->held, (now_ms - (until_ms - bound_ms)) * 1000);
}
