/* SPDX-License-Identifier: MIT */
/* The answer to an operation from the core's result: µs become ms, holders become owners. Pure. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

void lease_answer_fini(struct lease_answer *answer)
{
	lease_holder_fini(&answer->holder);
	lease_several_free(answer->several);
	answer->several = NULL;
}

void lease_answer_set(struct lease_answer *answer, const struct lease_answer *from)
{
	struct lease_answer copy = *from;
	lease_holder_own(&copy.holder);
	copy.several = lease_several_share(from->several);
	lease_answer_fini(answer);
	*answer = copy;
}

static uint32_t ms_up(uint64_t us)
{
	uint64_t ms = us / 1000 + (us % 1000 != 0);
	return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

/* Copies the holder that the core chose from the sight of one of the masters; the sight keeps its memory. */
static void find_holder(const struct lease_op *op, uint64_t id, struct lease_answer *answer)
{
	for (unsigned i = 0; i < op->core.params.masters; i++)
		if (op->seen[i].id == id) {
			answer->holder = op->seen[i].holder;
			answer->blocking_index = op->seen[i].blocking_index;
			return;
		}
}

static void fill_lease(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
		       struct lease_answer *answer)
{
	assert(result->validity_us > 0 && op->core.params.drift_us >= LEASE_ROUNDING_US);
	memcpy(answer->token, op->attempt.token, sizeof answer->token);
	answer->ttl_ms = (uint32_t)(result->ttl_us / 1000);
	answer->validity_ms = (uint32_t)((result->validity_us + LEASE_ROUNDING_US) / 1000);
	answer->until_us = now_us + answer->validity_ms * UINT64_C(1000);
	answer->drift_ms = ms_up(op->core.params.drift_us - LEASE_ROUNDING_US);
	answer->fence = result->fence;
	answer->mode = op->request.mode;
	answer->slot = op->slot.index;
	if (op->request.operation != LEASE_EXTEND)
		return;
	find_holder(op, lease_value_token_id(op->attempt.token), answer);
	answer->mode = answer->holder.mode;
	answer->slot = answer->holder.slot;
}

void lease_answer_make(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
		       struct lease_answer *ret_answer)
{
	const struct redlock_votes *votes = &result->votes;
	assert(now_us >= op->began_us && votes->granted <= votes->masters);
	memset(ret_answer, 0, sizeof *ret_answer);
	ret_answer->status = (enum lease_status)result->outcome;
	ret_answer->votes = *votes;
	ret_answer->too_late = result->outcome == REDLOCK_NO_QUORUM && votes->granted >= votes->needed;
	ret_answer->waited_ms = (uint32_t)((now_us - op->began_us) / 1000);
	ret_answer->retry_after_ms = ms_up(result->retry_after_us);
	if (result->outcome == REDLOCK_OK &&
	    (op->request.operation == LEASE_ACQUIRE || op->request.operation == LEASE_EXTEND))
		fill_lease(op, result, now_us, ret_answer);
	if (op->request.operation == LEASE_RELEASE && op->leases->options->log_leases && result->outcome == REDLOCK_OK)
		find_holder(op, lease_value_token_id(op->attempt.token), ret_answer);
	ret_answer->blocking_index = op->replies.blocking_index;
	if (result->has_holder) {
		find_holder(op, result->holder, ret_answer);
		ret_answer->holder_id = result->holder;
		if (result->holder != LEASE_SEVERAL_ID)
			ret_answer->holder.fence = result->holder_fence;
	}
	if (op->request.operation == LEASE_FORCE || (op->request.operation == LEASE_INSPECT && result->held))
		ret_answer->several = lease_several_merge(op);
	if (ret_answer->status == LEASE_LOCKED && op->request.wait_ms > 0 && op->core.params.wait_us == 0)
		ret_answer->status = LEASE_TOO_MANY; /* it would have waited, but too many do */
	ret_answer->place_kept_ms = ret_answer->status == LEASE_LOCKED ? op->wait.place_kept_ms : 0;
	ret_answer->waiters = result->waiters;
	ret_answer->held = result->held;
	ret_answer->expires = result->held && result->remaining_us != REDLOCK_NEVER;
	ret_answer->remaining_ms = ret_answer->expires ? result->remaining_us / 1000 : 0;
}

/* ---- the tag of a state, for watchers ---- */

/* True if the holder has no majority, and cannot have one even with the masters that did not answer. No lease is valid
 * then, but the resource cannot be acquired either. */
static bool is_split(const struct lease_answer *answer)
{
	const struct redlock_votes *votes = &answer->votes;
	if (answer->several && answer->several->listed == 0)
		return true;
	return answer->held && votes->granted + votes->failed + votes->quarantined < votes->needed;
}

void lease_tag_write(const struct lease_answer *answer, char ret_tag[LEASE_TAG_MAX])
{
	assert(answer->status == LEASE_OK || answer->status == LEASE_NO_QUORUM);
	if (answer->status != LEASE_OK)
		strcpy(ret_tag, "unknown");
	else if (!answer->held)
		strcpy(ret_tag, "free");
	else if (is_split(answer))
		strcpy(ret_tag, "split");
	else if (answer->several)
		snprintf(ret_tag, LEASE_TAG_MAX, "s%" PRIu32 ".%" PRIx64, answer->several->count,
			 answer->several->digest);
	else if (answer->holder.known)
		snprintf(ret_tag, LEASE_TAG_MAX, "%" PRIu64 "%s", answer->holder.fence, answer->holder.kept ? "k" : "");
	else /* half of the hash, because the value may be a secret of the other program */
		snprintf(ret_tag, LEASE_TAG_MAX, "x%08" PRIx32,
			 (uint32_t)(answer->holder_id ^ answer->holder_id >> 32));
}
