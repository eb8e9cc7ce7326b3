/* SPDX-License-Identifier: MIT */
/* Reads answers. See answer.h.
 *
 * Members are checked before they are used, since another program may answer at the configured address: a proxy with
 * its own page, or another version of redlockd. An invalid token or time is not a lease. */
#include "answer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls.h"
#include "cli/base/cli_base.h"

enum { LEASE_MAX_MS = 86400000 };
#define WAITED_MAX_MS INT64_C(9007199254740991)

/* Problems whose code decides the outcome. For others the HTTP status decides. */
static const struct {
	enum problem problem;
	enum outcome outcome;
	long status; /* of redlockd for it; 0: several */
} outcomes[] = {
	{PROBLEM_LOCKED, OUTCOME_HELD, 0},
	{PROBLEM_SPLIT_VOTE, OUTCOME_SPLIT, 0},
	{PROBLEM_NOT_OWNER, OUTCOME_LOST, 409},
	{PROBLEM_LEASE_EXPIRED, OUTCOME_LOST, 410},
	{PROBLEM_INVALID_REQUEST, OUTCOME_INVALID, 0},
	{PROBLEM_BODY_TOO_LARGE, OUTCOME_INVALID, 0}, /* all problems of size have one code */
};

void answer_set(struct answer *answer, enum outcome outcome, const char *code, const char *detail)
{
	assert(answer && code && detail);
	answer->outcome = outcome;
	snprintf(answer->code, sizeof answer->code, "%s", code);
	snprintf(answer->detail, sizeof answer->detail, "%s", detail);
	size_t len = strlen(answer->detail);
	if (len > 0 && answer->detail[len - 1] == '.')
		answer->detail[len - 1] = '\0'; /* the text becomes a part of a message */
	report_clean(answer->code);
	report_clean(answer->detail);
}

/* A 2xx that cannot be used counts as no answer. */
static void answer_set_lost(struct answer *answer, const char *detail)
{
	answer_set(answer, OUTCOME_UNAVAILABLE, "strange", detail);
	answer->is_lost = true;
}

void answer_check_status(struct answer *answer, const char *method, long status)
{
	static const struct {
		const char *method;
		long statuses[2];
	} expected[] = {{"POST", {200, 201}}, {"PUT", {200, 200}}, {"DELETE", {204, 204}}, {"GET", {200, 304}}};
	if (answer->outcome != OUTCOME_DONE)
		return;
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
		if (strcmp(method, expected[i].method) == 0 && status != expected[i].statuses[0] &&
		    status != expected[i].statuses[1])
			answer_set_lost(answer, "the HTTP status of the answer is not one of redlockd's");
}

bool answer_is_of_one(const struct answer *answer)
{
	return answer->outcome == OUTCOME_UNAVAILABLE || answer->outcome == OUTCOME_UNTRUSTED;
}

static bool answer_has(const struct answer *answer, enum problem problem)
{
	return strcmp(answer->code, problem_code(problem)) == 0;
}

bool answer_is_expired(const struct answer *answer)
{
	return answer->outcome == OUTCOME_LOST && answer_has(answer, PROBLEM_LEASE_EXPIRED);
}

static enum outcome answer_outcome(const char *code, long status)
{
	for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++)
		if (strcmp(code, problem_code(outcomes[i].problem)) == 0 &&
		    (outcomes[i].status == 0 || outcomes[i].status == status))
			return outcomes[i].outcome;
	if (status >= 500 || status == 429)
		return OUTCOME_UNAVAILABLE;
	if (status == 401 || status == 403)
		return OUTCOME_FORBIDDEN; /* also from a proxy in between */
	return OUTCOME_STRANGE;
}

const char *answer_member(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text ? text : "";
}

static bool answer_read_number(const json_t *object, const char *name, json_int_t max, uint64_t *ret_number)
{
	const json_t *value = json_object_get(object, name);
	json_int_t number = json_integer_value(value);
	assert(max > 0);
	if (!json_is_integer(value) || number < 1 || number > max)
		return false;
	*ret_number = (uint64_t)number;
	return true;
}

/* The first and the largest number in a text such as "must be from 10 to 60000"; 0: there is none, or one that is too
 * large. */
static void answer_read_bounds(const char *text, uint64_t *ret_first, uint64_t *ret_largest)
{
	bool is_first = true;
	*ret_first = *ret_largest = 0;
	while (*(text += strcspn(text, "0123456789")) != '\0') {
		size_t digits = strspn(text, "0123456789");
		uint64_t number = digits > 15 ? 0 : strtoull(text, NULL, 10);
		if (is_first)
			*ret_first = number;
		if (number > *ret_largest)
			*ret_largest = number;
		is_first = false;
		text += digits;
	}
}

/* For a 400: writes the first invalid member, and reads the bounds of ttl_ms. */
static void answer_describe_invalid(struct answer *answer)
{
	json_t *errors = json_object_get(answer->json, "errors"), *first = json_array_get(errors, 0), *error;
	size_t i;
	assert(answer->outcome == OUTCOME_INVALID);
	if (first && strcmp(answer_member(first, "field"), "request") != 0)
		snprintf(answer->detail, sizeof answer->detail, "%s: %s",
			 answer_option_of(answer_member(first, "field")), answer_member(first, "reason"));
	json_array_foreach(errors, i, error)
	{
		if (strcmp(answer_member(error, "field"), "ttl_ms") == 0)
			answer_read_bounds(answer_member(error, "reason"), &answer->ttl_min_ms, &answer->ttl_max_ms);
	}
}

/* For a 409: who holds it, since when, and when the lease ends if it is not extended. */
static void answer_describe_held(struct answer *answer, const json_t *holder)
{
	const char *owner = answer_member(holder, "owner");
	json_int_t fence = json_integer_value(json_object_get(holder, "fence"));
	char several[40];
	assert(answer->outcome == OUTCOME_HELD);
	if (json_object_get(holder, "holders")) {
		snprintf(several, sizeof several, "%" JSON_INTEGER_FORMAT " holders",
			 json_integer_value(json_object_get(holder, "holder_count")));
		owner = several;
	}
	char fence_text[32] = "", since[DURATION_TEXT_MAX + 8] = "", until[DURATION_TEXT_MAX + 48] = "";
	json_int_t held_ms = json_integer_value(json_object_get(holder, "held_ms"));
	if (fence > 0)
		snprintf(fence_text, sizeof fence_text, " (fence %" JSON_INTEGER_FORMAT ")", fence);
	if (held_ms > 0)
		snprintf(since, sizeof since, " for %s", DURATION_TEXT(held_ms));
	if (answer->retry_after_ms > 0)
		snprintf(until, sizeof until, ", lease ends in %s unless it is extended",
			 DURATION_TEXT(answer->retry_after_ms));
	/* the refusal of a set says which of its resources is held */
	const char *resource = holder != answer->json ? answer_member(answer->json, "resource") : "";
	snprintf(answer->detail, sizeof answer->detail, "%.100s%sheld by %.130s%s%s%s", resource,
		 *resource != '\0' ? ": " : "", *owner != '\0' ? owner : "somebody else", fence_text, since, until);
}

static void answer_read_problem(struct answer *answer, long status)
{
	const char *code = answer_member(answer->json, "code");
	json_int_t retry_after = json_integer_value(json_object_get(answer->json, "retry_after_ms"));
	char strange[80];
	assert(status != 0 && (status < 200 || status > 299));
	if (*code == '\0') {
		snprintf(strange, sizeof strange, "HTTP status %ld, and the answer is not from redlockd", status);
		answer_set(answer, answer_outcome("", status), "strange", strange);
		return;
	}
	answer_set(answer, answer_outcome(code, status), code, answer_member(answer->json, "detail"));
	answer_translate(answer->detail);
	(void)answer_read_number(answer->json, "place_kept_ms", LEASE_MAX_MS, &answer->place_kept_ms);
	answer->retry_after_ms = retry_after > 0 && retry_after <= LEASE_MAX_MS ? (uint64_t)retry_after : 0;
	if (answer->outcome == OUTCOME_INVALID)
		answer_describe_invalid(answer);
	if (answer->outcome == OUTCOME_HELD)
		answer_describe_held(answer, json_object_get(answer->json, "holder"));
	report_clean(answer->detail);
}

void answer_read(struct answer *ret_answer, long status, const char *body, size_t len, const char *failure)
{
	assert(status >= 0 && (status > 0 || failure));
	*ret_answer = (struct answer){.outcome = OUTCOME_DONE, .is_busy = status == 429};
	if (status == 0) {
		answer_set(ret_answer, OUTCOME_UNAVAILABLE, "unreachable", failure);
		return;
	}
	if (status == 304)
		return;
	ret_answer->json = len == 0 ? NULL : json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);
	if (status < 200 || status > 299)
		answer_read_problem(ret_answer, status);
	else if (status != 204 && !json_is_object(ret_answer->json))
		answer_set_lost(ret_answer, "the answer is not JSON");
}

void answer_fini(struct answer *answer)
{
	json_decref(answer->json);
	answer->json = NULL;
}

void answer_state(struct answer *answer)
{
	uint64_t left_ms = 0;
	bool held = answer->outcome == OUTCOME_DONE && json_is_true(json_object_get(answer->json, "held"));
	answer_set(answer, OUTCOME_HELD, problem_code(PROBLEM_LOCKED), "other requests are ahead in the queue");
	if (!held)
		return; /* a new holder is about to get it, or the holder is not known */
	if (answer_read_number(answer->json, "remaining_ms", LEASE_MAX_MS, &left_ms))
		answer->retry_after_ms = left_ms;
	answer_describe_held(answer, answer->json);
	report_clean(answer->detail);
}

static bool answer_read_slot(const json_t *slot, uint64_t slots, struct lease *lease)
{
	lease->slot = (uint64_t)json_integer_value(slot);
	return json_is_integer(slot) && lease->slot < slots;
}

/* A server without this mode refuses it; the lease of one that ignores it must not be used. */
static bool answer_has_mode(const struct answer *answer, const struct arguments *arguments, struct lease *lease)
{
	const json_t *slot = json_object_get(answer->json, "slot");
	bool is_shared = strcmp(answer_member(answer->json, "mode"), "shared") == 0;
	if (arguments->command != COMMAND_ACQUIRE && arguments->command != COMMAND_RUN)
		return true;
	return is_shared == arguments->shared && (slot != NULL) == (arguments->slots > 0) &&
	       (!slot || answer_read_slot(slot, arguments->slots, lease));
}

/* True if waited_ms fits: the wait cannot have begun before the request was sent. */
static bool answer_has_waited(const struct answer *answer, uint64_t begun_us)
{
	const json_t *waited = json_object_get(answer->json, "waited_ms");
	json_int_t waited_ms = json_integer_value(waited);
	if (!waited)
		return true;
	if (!json_is_integer(waited) || waited_ms < 0 || waited_ms > WAITED_MAX_MS)
		return false;
	return begun_us == 0 || (uint64_t)waited_ms * 990 <= clock_now_us() - begun_us + 1000;
}

static bool answer_has_name(const json_t *names, const json_t *name)
{
	size_t i;
	json_t *other;
	json_array_foreach(names, i, other)
	{
		if (json_equal(other, name))
			return true;
	}
	return false;
}

/* The names of a set may come in any order. */
static bool answer_is_for(const struct answer *answer, const struct names *names)
{
	const json_t *its = json_object_get(answer->json, names_member(names));
	json_t *ours = names_json(names), *name;
	bool is_ours = json_equal(its, ours) || (json_is_array(ours) && json_array_size(its) == json_array_size(ours));
	size_t i;
	json_array_foreach(ours, i, name)
	{
		is_ours &= answer_has_name(its, name);
	}
	json_decref(ours);
	return is_ours;
}

/* The fault of a lease; NULL: none. */
static const char *answer_read_lease(const struct answer *answer, const struct arguments *arguments,
				     const struct lease *before, struct lease *lease)
{
	const char *its_token = answer_member(answer->json, "token");
	uint64_t asked_ms = before ? before->ttl_ms : arguments->ttl_ms;
	json_int_t ttl_max_ms = asked_ms > 0 ? (json_int_t)asked_ms : LEASE_MAX_MS;
	if (!answer_is_for(answer, &arguments->names))
		return "the answer is for another resource";
	if (!token_is_valid(its_token))
		return "the answer has no valid token";
	if (before && strcmp(before->token, its_token) != 0)
		return "the answer has another token";
	if (!answer_read_number(answer->json, "fence", INT64_C(9007199254740991), &lease->fence))
		return "the answer has no valid fence";
	if (!answer_read_number(answer->json, "ttl_ms", ttl_max_ms, &lease->ttl_ms))
		return "ttl_ms of the answer is missing, or longer than the one asked for";
	if (!answer_read_number(answer->json, "validity_ms", (json_int_t)lease->ttl_ms, &lease->validity_ms))
		return "validity_ms of the answer is missing, or longer than its ttl_ms";
	if (!answer_has_mode(answer, arguments, lease))
		return "the answer has another mode or slot";
	json_int_t waiters = json_integer_value(json_object_get(answer->json, "waiters"));
	lease->waiters = waiters > 0 ? (uint64_t)waiters : 0;
	strcpy(lease->token, its_token);
	return NULL;
}

bool answer_lease(struct answer *answer, const struct arguments *arguments, const struct lease *before,
		  struct lease *ret_lease)
{
	struct lease lease = {.sent_us = answer->sent_us};
	assert(answer->outcome == OUTCOME_DONE);
	const char *wrong = answer_read_lease(answer, arguments, before, &lease);
	if (!wrong && !answer_has_waited(answer, answer->begun_us))
		wrong = "waited_ms of the answer is longer than the request took";
	if (wrong) {
		answer_set_lost(answer, wrong);
		return false;
	}
	*ret_lease = lease;
	return true;
}

int answer_status(const struct answer *answer, const struct arguments *arguments)
{
	static const int statuses[] = {
		[OUTCOME_DONE] = EXIT_STATUS_OK,
		[OUTCOME_LOST] = EXIT_STATUS_LOST,
		[OUTCOME_UNAVAILABLE] = EXIT_STATUS_UNREACHABLE,
		[OUTCOME_UNTRUSTED] = EXIT_STATUS_STRANGE,
		[OUTCOME_FORBIDDEN] = EXIT_STATUS_FORBIDDEN,
		[OUTCOME_INVALID] = EXIT_STATUS_USAGE,
		[OUTCOME_REFUSED] = EXIT_STATUS_UNREACHABLE,
		[OUTCOME_STRANGE] = EXIT_STATUS_STRANGE,
	};
	assert(answer->outcome <= OUTCOME_STRANGE);
	if (answer->is_lost && strcmp(answer->code, "strange") == 0)
		return EXIT_STATUS_STRANGE;
	return answer->outcome == OUTCOME_HELD || answer->outcome == OUTCOME_SPLIT ? arguments->held_status
										   : statuses[answer->outcome];
}

/* For a --ttl that the server does not allow: names a valid one, as "60s" or "250ms". */
static void answer_explain_ttl(const struct answer *answer, const struct arguments *arguments,
			       char ret_text[ANSWER_TEXT_MAX])
{
	bool is_over = arguments->ttl_ms > answer->ttl_max_ms;
	uint64_t bound_ms = is_over ? answer->ttl_max_ms : answer->ttl_min_ms,
		 unit_ms = bound_ms % 1000 == 0 ? 1000 : 1;
	assert(arguments->ttl_text);
	const char *option = arguments->ttl_text == arguments->at_least_text ? "--at-least" : "--ttl";
	snprintf(ret_text, ANSWER_TEXT_MAX, "%s %s is %s lease of the server: use at %s %" PRIu64 "%s%s", option,
		 arguments->ttl_text, is_over ? "over the longest" : "below the shortest", is_over ? "most" : "least",
		 bound_ms / unit_ms, unit_ms == 1 ? "ms" : "s",
		 !is_over || option[2] == 'a'        ? ""
		 : arguments->command == COMMAND_RUN ? "; run renews it anyway"
						     : ", and extend the lease");
}

const char *answer_explain(const struct answer *answer, const struct arguments *arguments, const char *server,
			   char ret_text[ANSWER_TEXT_MAX])
{
	const struct credentials *credentials = &arguments->credentials;
	bool of_server = answer_is_of_one(answer) || answer->outcome == OUTCOME_STRANGE ||
			 answer->outcome == OUTCOME_FORBIDDEN;
	bool needs_key = answer_has(answer, PROBLEM_UNAUTHORIZED) && credentials->api_key[0] == '\0' &&
			 !credentials->cert_file;
	assert(answer->outcome != OUTCOME_DONE && server);
	if (answer->outcome == OUTCOME_INVALID && answer->ttl_max_ms > 0) {
		answer_explain_ttl(answer, arguments, ret_text);
		return ret_text;
	}
	snprintf(ret_text, ANSWER_TEXT_MAX, "%s%s%s%s", of_server ? server : "", of_server ? ": " : "", answer->detail,
		 needs_key ? " (a key is given with --key-file or REDLOCKCTL_API_KEY, a certificate with --cert)" : "");
	return ret_text;
}
