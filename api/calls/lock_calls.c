/* The lease operations: POST, PUT, DELETE and GET on /locks. See calls_internal.h.
 *
 * Each handler hands a decoded struct to server/leases and returns. The answer comes later, from the worker's loop, and
 * becomes a reply here; what Redlock does in between is not known here. Tokens go out in a lease and nowhere else. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"

static json_t *votes_new(const struct redlock_votes *votes)
{
	assert(votes->needed <= votes->masters);
	return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "needed", (int)votes->needed, "granted", (int)votes->granted,
			 "refused", (int)votes->refused, "failed", (int)votes->failed, "quarantined",
			 (int)votes->quarantined, "masters", (int)votes->masters);
}

/* A name that another program may have written: null if it is not text. */
static json_t *text_new(const char *bytes, size_t len)
{
	json_t *text = len > 0 ? json_stringn(bytes, len) : NULL;

	return text ? text : json_null();
}

static uint32_t whole_seconds(uint32_t ms)
{
	uint32_t seconds = ms / 1000 + (ms % 1000 > 0);

	return seconds > 0 ? seconds : 1;
}

/* 200 and 201: the lease. */
static void answer_lease(struct call *call, const struct lease_answer *answer)
{
	bool acquired = call->lease.operation == LEASE_ACQUIRE;
	char text[LEASE_TEXT_MAX];

	assert(!call->granted && answer->status == LEASE_OK);
	if (acquired && call->lease.hold) {
		hold_stream_open(call, answer);
		return;
	}
	reply_copy(call->request, acquired ? 201 : 200, "application/json", text,
		   lease_text_write(&call->lease, answer, NULL, text));
	if (!acquired)
		return;
	call->location = true;
	memcpy(call->lease.token, answer->token, LEASE_TOKEN_LEN);
	call->granted = call->request->reply.grants = true;
}

/* 200: what an inspection or a listing says of one lock. */
static json_t *state_new(const char *resource, size_t resource_len, const struct lease_answer *answer)
{
	json_t *state = json_object();

	assert(resource_len <= LEASE_RESOURCE_MAX);
	json_object_set_new(state, "resource", json_stringn(resource, resource_len));
	json_object_set_new(state, "held", json_boolean(answer->held));
	if (answer->held && answer->holder.known && answer->holder.owner_len > 0)
		json_object_set_new(state, "owner", text_new(answer->holder.owner, answer->holder.owner_len));
	if (answer->held && answer->holder.fence > 0)
		json_object_set_new(state, "fence", json_integer((json_int_t)answer->holder.fence));
	if (answer->held && answer->expires)
		json_object_set_new(state, "remaining_ms", json_integer((json_int_t)answer->remaining_ms));
	json_object_set_new(state, "waiters", json_integer((json_int_t)answer->waiters));
	json_object_set_new(state, "votes", votes_new(&answer->votes));
	return state;
}

static json_t *holder_new(const struct lease_holder *holder)
{
	json_t *members = json_object();

	assert(holder->known && holder->owner_len <= LEASE_OWNER_MAX);
	json_object_set_new(members, "owner", text_new(holder->owner, holder->owner_len));
	if (holder->fence > 0)
		json_object_set_new(members, "fence", json_integer((json_int_t)holder->fence));
	return members;
}

static void answer_ok(struct call *call, const struct lease_answer *answer)
{
	switch (call->lease.operation) {
	case LEASE_ACQUIRE:
	case LEASE_EXTEND: answer_lease(call, answer); break;
	case LEASE_RELEASE:
	case LEASE_FORCE: reply_empty(call->request, 204); break;
	case LEASE_INSPECT:
		call_reply_json(call, 200, state_new(call->lease.resource, call->lease.resource_len, answer));
		break;
	}
}

/* ---- problems ---- */

static const char *detail_not_owner(const struct call *call, const struct lease_answer *answer)
{
	if (call->lease.operation != LEASE_FORCE)
		return "Another holder has the lock now.";
	return answer->holder.known ? "The holder has left, and another one came meanwhile. It keeps the lock."
				    : "The lock is held by a key that redlockd did not write. That is not deleted.";
}

/* Quarantined masters were not asked, and only time ends a quarantine. */
static const char *detail_no_quorum(const struct call *call, const struct lease_answer *answer)
{
	const struct redlock_votes *votes = &answer->votes;

	if (answer->too_late)
		return "A majority granted the lock, but no lease could be made of it in time. It has been released.";
	if (votes->quarantined > votes->masters - votes->needed)
		return "Too few masters may vote. /readyz says which are missing, and for how long.";
	if (call->lease.operation == LEASE_ACQUIRE)
		return "Too few masters answered in time. What was granted has been released.";
	return "Too few masters answered in time to tell.";
}

static const char *detail_new(const struct call *call, const struct lease_answer *answer)
{
	switch (answer->status) {
	case LEASE_LOCKED: return "Another holder has the lock, or may have it.";
	case LEASE_NOT_OWNER: return detail_not_owner(call, answer);
	case LEASE_EXPIRED:
		return call->lease.operation == LEASE_FORCE ? "Nobody holds the lock."
							    : "Nobody holds the lock with this token any more.";
	case LEASE_NO_QUORUM: return detail_no_quorum(call, answer);
	case LEASE_SPLIT_VOTE: return "Several callers shared the votes, and the tries are used up.";
	case LEASE_DRAINING: return "The service is shutting down.";
	case LEASE_TOO_MANY: return "The lock is held, and too many requests wait already.";
	default: assert(false); return NULL;
	}
}

static json_t *members_new(const struct lease_answer *answer)
{
	if (answer->status == LEASE_DRAINING || answer->status == LEASE_TOO_MANY)
		return NULL;
	if (answer->status != LEASE_LOCKED)
		return json_pack("{s:o}", "votes", votes_new(&answer->votes));
	json_t *members = json_pack("{s:I, s:I, s:o}", "retry_after_ms", (json_int_t)answer->retry_after_ms,
				    "waited_ms", (json_int_t)answer->waited_ms, "votes", votes_new(&answer->votes));
	if (answer->holder.known)
		json_object_set_new(members, "holder", holder_new(&answer->holder));
	return members;
}

static uint32_t retry_after_s(const struct lease_answer *answer)
{
	switch (answer->status) {
	case LEASE_LOCKED:
	case LEASE_NO_QUORUM:
	case LEASE_SPLIT_VOTE: return whole_seconds(answer->retry_after_ms);
	case LEASE_DRAINING:
	case LEASE_TOO_MANY: return 1; /* the queue may have room at any time, however long the holder stays */
	default: return 0;
	}
}

static void reject_lease(struct call *call, const struct lease_answer *answer)
{
	assert(answer->status != LEASE_OK && answer->status < LEASE_STATUS_COUNT);
	call_reject(call, problem_of_lease(answer->status), detail_new(call, answer), members_new(answer), NULL);
	call->request->reply.retry_after_s = retry_after_s(answer);
	if (answer->status == LEASE_NO_QUORUM)
		call->votes = answer->votes;
}

/* ---- operations ---- */

/* One line for each forced release, whatever its outcome: whose lease it was, and who forced it. `answer` NULL: the
 * operation was cancelled. */
static void log_forced(const struct call *call, const struct lease_answer *answer)
{
	const char *outcome = "given-up";

	assert(call->lease.operation == LEASE_FORCE && call->has_resource);
	if (answer)
		outcome = answer->status == LEASE_OK ? "released" : call->request->reply.code;
	log_begin(LOG_WARN, "forced-release");
	log_text("id", call->request->id);
	log_text("caller", call->caller.known ? call->caller.name : NULL);
	request_log_address(call);
	log_str("resource", call->lease.resource, call->lease.resource_len);
	if (answer && answer->status != LEASE_NOT_OWNER && answer->holder.known) {
		if (answer->holder.owner_len > 0)
			log_str("owner", answer->holder.owner, answer->holder.owner_len);
		log_num("fence", (int64_t)answer->holder.fence);
	}
	log_text("outcome", outcome);
	log_end();
}

/* lease_done_fn: the worker has the answer. */
static void lock_call_done(void *arg, const struct lease_answer *answer)
{
	struct call *call = arg;

	assert(call->op && !request_is_answered(call->request));
	call->op = NULL;
	if (call->counted)
		authorize_wait_end(call);
	stats_note_answer(stats_worker(call->request->context->config->worker), call->lease.operation, answer->status,
			  call->lease.resource, call->lease.resource_len);
	if (answer->status == LEASE_OK)
		answer_ok(call, answer);
	else
		reject_lease(call, answer);
	if (call->lease.operation == LEASE_FORCE)
		log_forced(call, answer);
	request_resume(call->request);
}

static void lock_call_submit(struct call *call)
{
	assert(!call->op && call->has_resource);
	if (call->request->context->ending) {
		call_reject_draining(call);
		return;
	}
	call->op = lease_submit(call->request->context->config->leases, &call->lease, lock_call_done, call);
	if (!call->op)
		reply_fail(call->request);
}

void lock_call_cancel(struct call *call)
{
	if (call->op && call->lease.operation == LEASE_FORCE)
		log_forced(call, NULL);
	if (call->op)
		lease_cancel(call->op);
	if (call->listing)
		lease_list_cancel(call->listing);
	call->op = NULL;
	call->listing = NULL;
}

void lock_call_acquire(struct call *call)
{
	assert(call->lease.operation == LEASE_ACQUIRE && call->lease.ttl_ms > 0);
	if (call->request->context->draining)
		call_reject_draining(call);
	else
		lock_call_submit(call);
}

void lock_call_extend(struct call *call)
{
	assert(call->lease.operation == LEASE_EXTEND);
	lock_call_submit(call);
}

void lock_call_release(struct call *call)
{
	assert(call->lease.operation == LEASE_RELEASE);
	lock_call_submit(call);
}

/* DELETE ?force=true: releases without a token, whoever holds the lock. */
void lock_call_force(struct call *call)
{
	assert(call->lease.operation == LEASE_FORCE);
	lock_call_submit(call);
}

void lock_call_inspect(struct call *call)
{
	assert(call->lease.operation == LEASE_INSPECT);
	lock_call_submit(call);
}

/* ---- listing ---- */

static json_t *locks_new(const struct lease_list_answer *answer)
{
	json_t *locks = json_array();

	assert(answer->count == 0 || answer->states);
	for (size_t i = 0; i < answer->count; i++) {
		const struct lease_state *state = &answer->states[i];
		/* Keys of other programs may have names that could never be asked for here. */
		if (!path_check_resource(state->resource, state->resource_len))
			json_array_append_new(locks, state_new(state->resource, state->resource_len, &state->answer));
	}
	return locks;
}

/* lease_list_done_fn: the states are valid only while this runs. */
static void lock_call_list_done(void *arg, const struct lease_list_answer *answer)
{
	struct call *call = arg;

	assert(call->listing && (answer->status == LEASE_OK || answer->status == LEASE_NO_QUORUM));
	call->listing = NULL;
	if (answer->status == LEASE_OK)
		call_reply_json(call, 200,
				json_pack("{s:o, s:s?}", "locks", locks_new(answer), "cursor",
					  answer->next[0] != '\0' ? answer->next : NULL));
	else
		reject_lease(call, &(struct lease_answer){.status = answer->status,
							  .votes = answer->votes,
							  .retry_after_ms = answer->retry_after_ms});
	request_resume(call->request);
}

void lock_call_list(struct call *call)
{
	assert(!call->listing && call->query->list.limit > 0);
	if (call->request->context->ending) {
		call_reject_draining(call);
		return;
	}
	call->listing = lease_list(call->request->context->config->leases, &call->query->list, lock_call_list_done,
				   call);
	if (!call->listing)
		reply_fail(call->request);
}
