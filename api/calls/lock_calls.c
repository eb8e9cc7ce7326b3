/* The lease calls: POST, PUT, DELETE and GET on /locks. See calls.h.
 *
 * Each handler checks its body, hands a plain struct to server/leases/lease.h and returns; the answer comes later, from
 * the worker's loop, and is turned into HTTP here. What Redlock does in between is not known here. Tokens go out in a
 * lease and nowhere else. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "authorize.h"
#include "api/http/http_internal.h"
#include "request_log.h"
#include "calls.h"
#include "hold_stream.h"
#include "lease_text.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"

static json_t *votes_new(const struct redlock_votes *votes)
{
	return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "needed", (int)votes->needed, "granted", (int)votes->granted,
			 "refused", (int)votes->refused, "failed", (int)votes->failed, "quarantined",
			 (int)votes->quarantined, "masters", (int)votes->masters);
}

/* A name that another program may have written: null where it is no text. */
static json_t *text_new(const char *bytes, size_t len)
{
	json_t *text = len > 0 ? json_stringn(bytes, len) : NULL;

	return text != NULL ? text : json_null();
}

static uint32_t whole_seconds(uint32_t ms)
{
	uint32_t seconds = ms / 1000 + (ms % 1000 > 0);

	return seconds > 0 ? seconds : 1;
}

/* 200 and 201: the lease. */
static void answer_lease(struct request *request, const struct lease_answer *answer)
{
	bool acquired = request->lease.operation == LEASE_ACQUIRE;
	char text[LEASE_TEXT_MAX];

	if (acquired && request->lease.hold) {
		hold_stream_open(request, answer);
		return;
	}
	reply_copy(request, acquired ? 201 : 200, "application/json", text,
		   lease_text_write(&request->lease, answer, NULL, text));
	if (!acquired)
		return;
	request->reply.location = true;
	memcpy(request->lease.token, answer->token, LEASE_TOKEN_LEN);
	request->granted = true;
}

/* 200: what an inspection or a listing says of one lock. */
static json_t *state_new(const char *resource, size_t resource_len, const struct lease_answer *answer)
{
	json_t *state = json_object();

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

	json_object_set_new(members, "owner", text_new(holder->owner, holder->owner_len));
	if (holder->fence > 0)
		json_object_set_new(members, "fence", json_integer((json_int_t)holder->fence));
	return members;
}

/* 409 locked. */
static void answer_locked(struct request *request, const struct lease_answer *answer)
{
	json_t *members = json_pack("{s:I, s:I, s:o}", "retry_after_ms", (json_int_t)answer->retry_after_ms,
				    "waited_ms", (json_int_t)answer->waited_ms, "votes", votes_new(&answer->votes));

	if (answer->holder.known)
		json_object_set_new(members, "holder", holder_new(&answer->holder));
	reply_problem(request, PROBLEM_LOCKED, "Another holder has the lock, or may have it.", members);
	request->reply.retry_after_s = whole_seconds(answer->retry_after_ms);
}

/* Masters that are quarantined were not asked, and time alone mends that. */
static const char *detail_no_quorum(const struct request *request, const struct redlock_votes *votes, bool too_late)
{
	if (too_late)
		return "A majority granted the lock, but no lease could be made of it in time. It has been given back.";
	if (votes->quarantined > votes->masters - votes->needed)
		return "Too few masters may vote. /readyz says which are missing, and for how long.";
	if (request->lease.operation == LEASE_ACQUIRE)
		return "Too few masters answered in time. What was granted has been given back.";
	return "Too few masters answered in time to tell.";
}

static void answer_no_quorum(struct request *request, const struct redlock_votes *votes, bool too_late,
			     uint32_t retry_after_ms)
{
	const char *detail = detail_no_quorum(request, votes, too_late);

	reply_problem(request, PROBLEM_NO_QUORUM, detail, json_pack("{s:o}", "votes", votes_new(votes)));
	request->reply.retry_after_s = whole_seconds(retry_after_ms);
	request->reply.votes = *votes;
}

static void answer_ok(struct request *request, const struct lease_answer *answer)
{
	switch (request->lease.operation) {
	case LEASE_ACQUIRE:
	case LEASE_EXTEND: answer_lease(request, answer); break;
	case LEASE_RELEASE:
	case LEASE_FORCE: reply_empty(request, 204); break;
	case LEASE_INSPECT:
		reply_json(request, 200, state_new(request->lease.resource, request->lease.resource_len, answer));
		break;
	}
}

static void answer_with_votes(struct request *request, enum problem problem, const char *detail,
			      const struct lease_answer *answer)
{
	reply_problem(request, problem, detail, json_pack("{s:o}", "votes", votes_new(&answer->votes)));
	if (problem_status(problem) == 503)
		request->reply.retry_after_s = whole_seconds(answer->retry_after_ms);
}

static void answer_draining(struct request *request)
{
	reply_problem(request, PROBLEM_DRAINING, "The service is shutting down.", NULL);
}

static const char *detail_not_owner(const struct request *request, const struct lease_answer *answer)
{
	if (request->lease.operation != LEASE_FORCE)
		return "Another holder has the lock now.";
	return answer->holder.known ? "The holder is gone, and another one came meanwhile. It keeps the lock."
				    : "It is held by a key that redlockd did not write, and that is not deleted.";
}

/* One line for each forced release, whatever came of it: whose lease it was, and who took it. `answer` NULL: it was
 * given up before its end. */
static void log_forced(const struct request *request, const struct lease_answer *answer)
{
	log_begin(LOG_WARN, "forced-release");
	log_text("id", request->id);
	log_text("caller", request->caller.known ? request->caller.name : NULL);
	request_log_address(request);
	log_str("resource", request->lease.resource, request->lease.resource_len);
	if (answer != NULL && answer->status != LEASE_NOT_OWNER && answer->holder.known) {
		if (answer->holder.owner_len > 0)
			log_str("owner", answer->holder.owner, answer->holder.owner_len);
		log_num("fence", (int64_t)answer->holder.fence);
	}
	log_text("outcome", answer == NULL               ? "given-up"
			    : answer->status == LEASE_OK ? "released"
							 : request->reply.code);
	log_end();
}

void lock_call_force_left(const struct request *request)
{
	log_forced(request, NULL);
}

/* lease_done_fn: the worker has the answer. */
static void call_done(void *arg, const struct lease_answer *answer)
{
	struct request *request = arg;
	bool forced = request->lease.operation == LEASE_FORCE;

	request->op = NULL;
	authorize_wait_end(request);
	stats_note_answer(stats_worker(request->connection->api->config.worker), request->lease.operation,
			  answer->status, request->lease.resource, request->lease.resource_len);
	switch (answer->status) {
	case LEASE_OK: answer_ok(request, answer); break;
	case LEASE_LOCKED: answer_locked(request, answer); break;
	case LEASE_NOT_OWNER:
		answer_with_votes(request, PROBLEM_NOT_OWNER, detail_not_owner(request, answer), answer);
		break;
	case LEASE_EXPIRED:
		answer_with_votes(request, PROBLEM_LEASE_EXPIRED,
				  forced ? "Nobody holds the lock." : "Nobody holds the lock with this token any more.",
				  answer);
		break;
	case LEASE_NO_QUORUM:
		answer_no_quorum(request, &answer->votes, answer->too_late, answer->retry_after_ms);
		break;
	case LEASE_SPLIT_VOTE:
		answer_with_votes(request, PROBLEM_SPLIT_VOTE,
				  "Several callers shared the votes, and the tries are used up.", answer);
		break;
	case LEASE_DRAINING: answer_draining(request); break;
	case LEASE_TOO_MANY:
		reply_problem(request, PROBLEM_TOO_MANY_REQUESTS,
			      "The lock is held, and too many requests wait already.", NULL);
		request->reply.retry_after_s = 1; /* a place may come free at any time, however long the holder stays */
		break;
	case LEASE_STATUS_COUNT: assert(false);
	}
	if (forced)
		log_forced(request, answer);
	request_resume(request);
}

static void submit(struct request *request)
{
	if (request->connection->api->ending) {
		answer_draining(request);
		return;
	}
	request->op = lease_submit(request->connection->api->config.leases, &request->lease, call_done, request);
	if (request->op == NULL)
		request_fail(request);
}

bool lock_call_read_body(struct request *request)
{
	const struct api_config *config = &request->connection->api->config;
	struct body_limits limits = {config->default_ttl_ms, config->min_ttl_ms, config->max_ttl_ms,
				     config->max_wait_ms};
	const char *header_token = request->headers.has_token ? request->headers.token : NULL;
	struct field_errors errors = {.count = 0};

	if (request->force && body_is_nothing(request->body, request->body_len))
		return true;
	if (request->force) {
		field_errors_add(&errors, "body", "must not be there");
		reply_invalid(request, "A forced release takes no body.", &errors);
		return false;
	}
	authorize_limit(request, &limits);
	if (body_parse(request->body, request->body_len, header_token, &limits, &request->lease, &errors))
		return true;
	if (errors.count > 0)
		reply_invalid(request, "The body does not fit the call.", &errors);
	else
		request_fail(request);
	return false;
}

void lock_call_acquire(struct request *request)
{
	if (api_is_draining(request->connection->api))
		answer_draining(request);
	else
		submit(request);
}

void lock_call_extend(struct request *request)
{
	submit(request);
}

/* DELETE ?force=true: from whoever holds it, without a token. */
static void lock_call_force(struct request *request)
{
	request->lease.operation = LEASE_FORCE;
	submit(request);
}

void lock_call_release(struct request *request)
{
	if (request->force)
		lock_call_force(request);
	else
		submit(request);
}

void lock_call_inspect(struct request *request)
{
	submit(request);
}

/* lease_list_done_fn: the states are only there during the call. */
static void list_done(void *arg, const struct lease_list_answer *answer)
{
	struct request *request = arg;
	json_t *locks = json_array();

	request->listing = NULL;
	if (answer->status == LEASE_OK) {
		for (size_t i = 0; i < answer->count; i++) {
			const struct lease_state *state = &answer->states[i];
			/* Keys of other programs may have names that could never be asked for here. */
			if (path_check_resource(state->resource, state->resource_len) == NULL)
				json_array_append_new(locks,
						      state_new(state->resource, state->resource_len, &state->answer));
		}
		reply_json(request, 200,
			   json_pack("{s:O, s:s?}", "locks", locks, "cursor",
				     answer->next[0] != '\0' ? answer->next : NULL));
	} else {
		assert(answer->status == LEASE_NO_QUORUM);
		answer_no_quorum(request, &answer->votes, false, answer->retry_after_ms);
	}
	json_decref(locks);
	request_resume(request);
}

/* The number of a `limit`; 0 if it is none. */
static uint16_t parse_limit(const struct path_param *param)
{
	unsigned number = 0;

	if (param->len == 0 || param->len > 4)
		return 0;
	for (size_t i = 0; i < param->len; i++) {
		if (param->value[i] < '0' || param->value[i] > '9')
			return 0;
		number = number * 10 + (unsigned)(param->value[i] - '0');
	}
	return number <= LEASE_LIST_MAX ? (uint16_t)number : 0;
}

void lock_call_list(struct request *request)
{
	enum { PREFIX, LIMIT, CURSOR, LIMIT_DEFAULT = 100 };
	struct leases *leases = request->connection->api->config.leases;
	const struct path_param *params = request->params;
	struct lease_list_request list = {.limit = LIMIT_DEFAULT, .prefix_len = (uint16_t)params[PREFIX].len};
	struct field_errors errors = {.count = 0};

	memcpy(list.prefix, params[PREFIX].value, params[PREFIX].len);
	if (params[LIMIT].given)
		list.limit = parse_limit(&params[LIMIT]);
	if (list.limit == 0)
		field_errors_add(&errors, "limit", "must be from 1 to %d", LEASE_LIST_MAX);
	if (params[CURSOR].len >= sizeof(list.cursor) ||
	    (params[CURSOR].len > 0 && !lease_cursor_valid(leases, params[CURSOR].value)))
		field_errors_add(&errors, "cursor", "must be as the page before gave it");
	else
		memcpy(list.cursor, params[CURSOR].value, params[CURSOR].len + 1);
	if (errors.count > 0) {
		reply_invalid(request, "The query does not fit the call.", &errors);
		return;
	}
	if (request->connection->api->ending) {
		answer_draining(request);
		return;
	}
	request->listing = lease_list(leases, &list, list_done, request);
	if (request->listing == NULL)
		request_fail(request);
}
