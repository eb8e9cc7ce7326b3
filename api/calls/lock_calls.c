/* SPDX-License-Identifier: MIT */
/* The lease operations: POST, PUT, DELETE and GET on /locks. See calls_internal.h.
 *
 * Each handler hands a decoded struct to server/leases and returns. The answer comes later, from the worker's loop, and
 * becomes a reply here. Only a lease has a token. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"

static void answer_lease(struct call *call, const struct lease_answer *answer)
{
	bool acquired = call->lease.operation == LEASE_ACQUIRE;
	char alone[LEASE_TEXT_MAX], *text = alone;
	assert(answer->status == LEASE_OK);
	call->fence = answer->fence;
	if (acquired && call->lease.hold) {
		hold_stream_open(call, answer);
		return;
	}
	if (call->lease.set_count > 0)
		text = memory_alloc(lease_text_max(&call->lease));
	reply_copy(call->request, acquired && !answer->again ? 201 : 200, "application/json", text,
		   lease_text_write(&call->lease, answer, text));
	if (text != alone)
		free(text);
	if (!acquired || answer->confirmed)
		return;
	memcpy(call->lease.token, answer->token, LEASE_TOKEN_LEN); /* to release it if the answer cannot go out */
	call->request->reply.grants = true;
}

bool lock_call_is_seen(const char *list, const char *tag)
{
	char quoted[LEASE_TAG_MAX + 2];
	snprintf(quoted, sizeof quoted, "\"%s\"", tag);
	return strcmp(list, "*") == 0 || strstr(list, quoted) != NULL;
}

/* Up to 100 holders are written once for all requests that share an inspection, but not for a watch, whose times
 * differ. */
static void answer_state(struct call *call, const struct lease_answer *answer)
{
	struct lease_holders *several = call->watch ? NULL : answer->several;
	struct text state;
	text_init(&state);
	if (!several || !several->text)
		state_text_write(&state, call->lease.resource, call->lease.resource_len, answer);
	if (several && !several->text && several->shares > 0) {
		several->text = state.bytes;
		several->text_len = state.len;
	}
	if (several && several->text)
		reply_copy(call->request, 200, "application/json", several->text, several->text_len);
	else
		reply_owned(call->request, 200, "application/json", state.bytes, state.len);
}

static void answer_ok(struct call *call, const struct lease_answer *answer)
{
	switch (call->lease.operation) {
	case LEASE_ACQUIRE:
	case LEASE_EXTEND: answer_lease(call, answer); break;
	case LEASE_RELEASE:
	case LEASE_FORCE: reply_empty(call->request, 204); break;
	case LEASE_INSPECT:
		lease_tag_write(answer, call->tag);
		if (lock_call_is_seen(call->query->seen, call->tag))
			reply_empty(call->request, 304);
		else
			answer_state(call, answer);
		break;
	}
}

/* ---- problems ---- */

/* Quarantined masters were not asked, and only time ends a quarantine. */
static const char *detail_no_quorum(const struct lease_request *lease, const struct lease_answer *answer)
{
	const struct redlock_votes *votes = &answer->votes;
	if (votes->quarantined > votes->masters - votes->needed)
		return "Too few masters may vote. Try again after Retry-After; GET /readyz says why and for how long.";
	if (lease->key != 0)
		return "Too few masters answered in time. If the lock was granted, the same Idempotency-Key gets it.";
	if (answer->too_late)
		return "A majority granted the lock, but too late for a lease. It has been released; try again.";
	switch (lease->operation) {
	case LEASE_ACQUIRE:
		return "Too few masters answered in time. What was granted has been released; try again later.";
	case LEASE_EXTEND:
		return "Too few masters answered in time. The old end of the lease holds; extend it again soon.";
	case LEASE_RELEASE: return "Too few masters answered in time. If the lease is not released, it ends by itself.";
	default: return "Too few masters answered in time to tell. Try again after Retry-After.";
	}
}

const char *lock_call_explain(const struct lease_request *lease, const struct lease_answer *answer)
{
	static const char other_program[] =
		"The lock is held by a key that redlockd did not write. It stays; look for the program that wrote it.";
	static const char other_holder[] = "The holder has left, and another one came meanwhile. It stays; look again "
					   "before you release that one.";
	static const char other_fence[] =
		"The lock is held with another fence than the one given. It stays; look again before you release it.";
	static const char no_grant[] = "The lock could not be granted within wait_ms. Try again, or wait longer.";
	static const char goes_on[] =
		"The lock could not be granted within wait_ms. Within place_kept_ms the same request "
		"goes on in its place.";
	static const char no_lease[] =
		"Nobody holds the lock with this token any more. There is nothing left to release.";
	bool force = lease->operation == LEASE_FORCE;
	switch (answer->status) {
	case LEASE_LOCKED: return answer->place_kept_ms > 0 ? goes_on : lease->wait_ms > 0 ? no_grant : NULL;
	case LEASE_NOT_OWNER:
		if (force && answer->holder.known)
			return lease->fence > 0 ? other_fence : other_holder;
		return force ? other_program : NULL;
	case LEASE_EXPIRED:
		if (force)
			return "Nobody holds the lock. There is nothing to release.";
		return lease->operation == LEASE_RELEASE ? no_lease : NULL;
	case LEASE_NO_QUORUM: return detail_no_quorum(lease, answer);
	case LEASE_TOO_MANY:
		return "The lock is held, and too many requests wait already. Try again after Retry-After.";
	default: return NULL;
	}
}

/* The resource for the reply: of a set the one that blocks it. */
static const char *find_name(const struct lease_request *lease, const struct lease_answer *answer, size_t *ret_len)
{
	const char *at = lease->resource, *end = at + lease->resource_len, *name = at;
	*ret_len = lease->resource_len;
	assert(*ret_len > 0);
	for (unsigned i = 0; i <= answer->blocking_index && text_line(&at, end, &name, ret_len); i++)
		;
	return name;
}

/* 409 for an acquisition: the most frequent answer of a contended lock, so it is written without a tree. */
static void reject_locked(struct call *call, const struct lease_answer *answer)
{
	size_t metadata_len = 0, name_len = 0;
	const char *metadata = answer->holder.known ? state_metadata(&answer->holder, &metadata_len) : NULL;
	const char *name = call->lease.set_count > 0 ? find_name(&call->lease, answer, &name_len) : NULL;
	char *text = memory_alloc(LEASE_REFUSAL_MAX + metadata_len), *at;
	assert(answer->status == LEASE_LOCKED);
	at = problem_write(PROBLEM_LOCKED, lock_call_explain(&call->lease, answer), text);
	at += lease_refusal_write(answer, name, name_len, metadata, metadata_len, at);
	assert(at <= text + LEASE_REFUSAL_MAX + metadata_len);
	reply_copy(call->request, problem_status(PROBLEM_LOCKED), PROBLEM_CONTENT_TYPE, text, (size_t)(at - text));
	call->request->reply.code = problem_code(PROBLEM_LOCKED);
	free(text);
}

static const char kept_place[] =
	"The service is shutting down. Ask another one: within place_kept_ms the same request goes "
	"on in its place.";

static void reject_lease(struct call *call, const struct lease_answer *answer)
{
	enum lease_status status = answer->status;
	/* not an answer of the masters: the queue may have room at any time, however long the holder stays */
	bool at_once = status == LEASE_DRAINING || status == LEASE_TOO_MANY;
	assert(status != LEASE_OK && status < LEASE_STATUS_COUNT);
	if (status == LEASE_LOCKED)
		reject_locked(call, answer);
	else if (answer->place_kept_ms > 0)
		call_reject_with(call, problem_of_lease(status), kept_place,
				 json_pack("{s:i}", "place_kept_ms", answer->place_kept_ms), NULL);
	else
		call_reject_with(call, problem_of_lease(status), lock_call_explain(&call->lease, answer),
				 at_once ? NULL : json_pack("{s:o}", "votes", call_votes_new(&answer->votes)), NULL);
	if (status != LEASE_NOT_OWNER && status != LEASE_EXPIRED)
		call_retry_after(call, at_once ? 0 : answer->retry_after_ms);
	if (status == LEASE_NO_QUORUM)
		call->votes = answer->votes;
}

/* ---- operations ---- */

/* One line for each forced release, whatever its outcome: whose lease it was, and who forced it. `answer` NULL: the
 * operation was cancelled. */
static void log_forced(const struct call *call, const struct lease_answer *answer)
{
	const char *outcome = CALL_GIVEN_UP;
	assert(call->lease.operation == LEASE_FORCE && call_has_resource(call));
	if (answer)
		outcome = answer->status == LEASE_OK ? CALL_RELEASED : call->request->reply.code;
	log_begin(LOG_WARN, "forced-release");
	call_log_id(call);
	log_text("caller", call->caller.known ? call->caller.name : NULL);
	call_log_address(call);
	call_log_names(call->lease.resource, call->lease.resource_len, call->lease.set_count);
	if (answer && answer->status != LEASE_NOT_OWNER && answer->holder.known) {
		if (answer->holder.owner_len > 0)
			log_str("owner", answer->holder.owner, answer->holder.owner_len);
		log_num("fence", (int64_t)answer->holder.fence);
	}
	log_text("outcome", outcome);
	log_end();
}

/* A stranger with a token that holds nothing must not learn whether somebody else holds the lock. In both cases the
 * answer is that its lease has ended, with only as many votes as decide. */
const struct lease_answer *lock_call_disclose(const struct call *call, const struct lease_answer *answer,
					      struct lease_answer *room)
{
	if (!call->stranger || (answer->status != LEASE_NOT_OWNER && answer->status != LEASE_EXPIRED))
		return answer;
	*room = *answer;
	room->status = LEASE_EXPIRED;
	room->votes = (struct redlock_votes){
		.needed = answer->votes.needed, .refused = answer->votes.needed, .masters = answer->votes.masters};
	return room;
}

void lock_call_answer(struct call *call, const struct lease_answer *answer)
{
	struct lease_answer room;
	const struct lease_answer *shown = lock_call_disclose(call, answer, &room);
	if (shown->status == LEASE_OK)
		answer_ok(call, shown);
	else
		reject_lease(call, shown);
}

void lock_call_count(const struct call *call, const struct lease_request *lease, const struct lease_answer *answer)
{
	size_t len;
	const char *name = find_name(lease, answer, &len);
	stats_count_answer(call->request->context->config->metrics, lease->operation, answer->status, name, len);
}

/* lease_done_fn: the worker has the answer. */
static void lock_call_done(void *arg, const struct lease_answer *answer)
{
	struct call *call = arg;
	assert(call->op && !request_is_answered(call->request));
	call->op = NULL;
	authorize_wait_end(call);
	authorize_offer(call, &call->lease, answer);
	lock_call_count(call, &call->lease, answer);
	if (trail_is_on(call))
		trail_answer(call, &call->lease, answer);
	lock_call_answer(call, answer);
	if (call->lease.operation == LEASE_FORCE)
		log_forced(call, answer);
	request_resume(call->request);
}

void lock_call_submit(struct call *call)
{
	const struct request_context *context = call->request->context;
	assert(!call->op && call_has_resource(call));
	assert(call->lease.operation != LEASE_ACQUIRE || call->lease.ttl_ms > 0);
	if (context->ending || (context->draining && call->lease.operation == LEASE_ACQUIRE)) {
		call_reject(call, PROBLEM_DRAINING, NULL);
		return;
	}
	if (call->caller.known) {
		call->lease.caller = call->caller.name;
		call->lease.caller_len = (uint16_t)strnlen(call->caller.name, LEASE_CALLER_MAX);
	}
	call->op = lease_submit(context->config->leases, &call->lease, lock_call_done, call);
}

bool lock_call_cancel(struct call *call)
{
	bool under_way = call->op || call->listing;
	if (call->op && call->lease.operation == LEASE_FORCE)
		log_forced(call, NULL);
	if (call->op)
		lease_cancel(call->op);
	if (call->listing)
		lease_list_cancel(call->listing);
	call->op = NULL;
	call->listing = NULL;
	return under_way;
}

/* ---- listing ---- */

/* lease_list_found_fn: writes the lock at once, so that no round of the loop writes a whole page. */
static void lock_call_list_found(void *arg, const char *resource, size_t len, const struct lease_answer *answer)
{
	struct call *call = arg;
	struct text *locks = &call->query->locks;
	if (path_check_resource(resource, len))
		return; /* a key of another program with a name that no request can have */
	text_append(locks, locks->len > 0 ? "," : "{\"locks\":[", locks->len > 0 ? 1 : 10);
	state_text_write(locks, resource, len, answer);
}

static void answer_page(struct call *call, const struct lease_list_answer *answer)
{
	struct text *locks = &call->query->locks, page = *locks;
	const char *quote = answer->next[0] != '\0' ? "\"" : "";
	text_init(locks);
	text_printf(&page, "%s],\"cursor\":%s%s%s}", page.len > 0 ? "" : "{\"locks\":[", quote,
		    answer->next[0] != '\0' ? answer->next : "null", quote);
	reply_owned(call->request, 200, "application/json", page.bytes, page.len);
}

static void lock_call_list_done(void *arg, const struct lease_list_answer *answer)
{
	struct call *call = arg;
	assert(call->listing && (answer->status == LEASE_OK || answer->status == LEASE_NO_QUORUM));
	call->listing = NULL;
	if (answer->status == LEASE_OK)
		answer_page(call, answer);
	else
		reject_lease(call, &(struct lease_answer){.status = answer->status,
							  .votes = answer->votes,
							  .retry_after_ms = answer->retry_after_ms});
	request_resume(call->request);
}

void lock_call_list(struct call *call)
{
	assert(!call->listing && call->query->list.limit > 0);
	if (call->request->context->ending)
		call_reject(call, PROBLEM_DRAINING, NULL);
	else
		call->listing = lease_list(call->request->context->config->leases, &call->query->list,
					   lock_call_list_found, lock_call_list_done, call);
}
