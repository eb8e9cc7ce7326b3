/* SPDX-License-Identifier: MIT */
/* problem.c: the members of a problem and its list of invalid fields; answers written past the library. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls.h"
#include "api/calls/calls_internal.h"
#include "suite.h"

static void expect_detail(const char *detail, const char *expected)
{
	json_t *problem = problem_new(PROBLEM_SPLIT_VOTE, detail, NULL, NULL);

	ck_assert_str_eq(json_string_value(json_object_get(problem, "detail")), expected);
	json_decref(problem);
}

/* The words of a server or of a library may not be UTF-8: the answer is a problem all the same. */
TEST(test_details)
{
	expect_detail("Several.", "Several.");
	expect_detail("duplicate: \xc3", "Split vote");
	expect_detail(
		NULL,
		"Several callers shared the votes. Try again after Retry-After, or wait in the queue with wait_ms.");
}

/* The statuses and codes of the contract. */
TEST(test_contract)
{
	static const struct {
		enum problem problem;
		unsigned status;
		const char *code;
	} expected[] = {
		{PROBLEM_INVALID_REQUEST, 400, "invalid-request"},
		{PROBLEM_UNAUTHORIZED, 401, "unauthorized"},
		{PROBLEM_FORBIDDEN, 403, "forbidden"},
		{PROBLEM_NOT_FOUND, 404, "not-found"},
		{PROBLEM_METHOD_NOT_ALLOWED, 405, "method-not-allowed"},
		{PROBLEM_LOCKED, 409, "locked"},
		{PROBLEM_NOT_OWNER, 409, "not-owner"},
		{PROBLEM_LEASE_EXPIRED, 410, "lease-expired"},
		{PROBLEM_BODY_TOO_LARGE, 413, "too-large"},
		{PROBLEM_URL_TOO_LONG, 414, "too-large"},
		{PROBLEM_BODY_ENCODED, 415, "invalid-request"},
		{PROBLEM_HEADERS_TOO_LARGE, 431, "too-large"},
		{PROBLEM_OTHER_HTTP_VERSION, 505, "invalid-request"},
		{PROBLEM_TOO_MANY_REQUESTS, 429, "too-many-requests"},
		{PROBLEM_NO_QUORUM, 503, "no-quorum"},
		{PROBLEM_SPLIT_VOTE, 503, "split-vote"},
		{PROBLEM_DRAINING, 503, "draining"},
	};

	ck_assert_uint_eq(sizeof(expected) / sizeof(expected[0]), PROBLEM_COUNT);
	for (size_t i = 0; i < PROBLEM_COUNT; i++) {
		ck_assert_uint_eq(problem_status(expected[i].problem), expected[i].status);
		ck_assert_str_eq(problem_code(expected[i].problem), expected[i].code);
	}
}

TEST(test_errors)
{
	struct field_errors errors = {.count = 0};

	field_errors_add(&errors, "ttl_ms", "must be from %d to %d", 100, 60000);
	field_errors_add_name(&errors, "tll_ms", 6, "is unknown");
	field_errors_add_name(&errors, "<script>", 8, "is unknown");
	field_errors_add_name(&errors, "0123456789abcdef0123456789abcdef01234567", 40, "is unknown");
	field_errors_add_name(&errors, "", 0, "is unknown");
	json_t *problem = problem_new(PROBLEM_INVALID_REQUEST, "Wrong.", NULL, &errors);
	json_t *list = json_object_get(problem, "errors"),
	       *own = problem_new(PROBLEM_INVALID_REQUEST, NULL, NULL, &errors);
	ck_assert_str_eq(
		json_string_value(json_object_get(own, "detail")),
		"ttl_ms: must be from 100 to 60000; tll_ms: is unknown; ?: is unknown; ?: is unknown; ?: is unknown.");
	json_decref(own);
	/* neither markup nor anything as long as a token comes back */
	json_t *expected = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "field", "ttl_ms",
				     "reason", "must be from 100 to 60000", "field", "tll_ms", "reason", "is unknown",
				     "field", "?", "reason", "is unknown", "field", "?", "reason", "is unknown",
				     "field", "?", "reason", "is unknown");
	ck_assert(json_equal(list, expected));
	json_decref(expected);
	json_decref(problem);
}

TEST(test_errors_bound)
{
	struct field_errors errors = {.count = 0};
	char longest[4 * FIELD_REASON_MAX];

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i < FIELD_ERRORS_MAX + 5; i++)
		field_errors_add(&errors, "field", "%s", longest);
	ck_assert_uint_eq(errors.count, FIELD_ERRORS_MAX);
	ck_assert_uint_eq(strlen(errors.items[FIELD_ERRORS_MAX - 1].reason), FIELD_REASON_MAX - 1);
	json_decref(problem_new(PROBLEM_INVALID_REQUEST, NULL, NULL, &errors)); /* all of them fit into the detail */
}

/* The answers that go past the library are the same problems. */
TEST_EACH(test_raw, 0, 5)
{
	static const unsigned statuses[] = {400, 413, 414, 429, 431};
	unsigned status = statuses[_i];
	enum problem problem = problem_of_status(status);
	char text[1024], line[64];
	size_t len = calls_service()->write_raw(status, "Because.", "abc", text, sizeof(text));

	ck_assert_uint_eq(problem_status(problem), status);
	ck_assert_uint_eq(len, strlen(text));
	snprintf(line, sizeof line, "HTTP/1.1 %u %s\r\n", status, MHD_get_reason_phrase_for(status));
	ck_assert_mem_eq(text, line, strlen(line));
	ck_assert_ptr_nonnull(strstr(text, "\r\nX-Request-Id: abc\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "\r\nConnection: close\r\n"));
	ck_assert_int_eq(strstr(text, "\r\nRetry-After: 1\r\n") != NULL, status == 429);
	const char *body = strstr(text, "\r\n\r\n") + 4;
	ck_assert_int_eq(atoi(strstr(text, "Content-Length: ") + 16), (int)strlen(body));
	json_t *raw = json_loads(body, 0, NULL), *made = problem_new(problem, "Because.", NULL, NULL);
	ck_assert_ptr_nonnull(raw);
	ck_assert(json_equal(raw, made));
	ck_assert_int_eq(json_object_get(raw, "errors") != NULL, problem == PROBLEM_INVALID_REQUEST);
	json_decref(raw);
	json_decref(made);
}
