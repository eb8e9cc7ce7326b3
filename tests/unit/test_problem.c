/* problem.c: the members of a problem, the list of what is wrong with which field, answers written past the library. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/problem.h"

START_TEST(test_members)
{
	json_t *problem = problem_new(PROBLEM_LOCKED, "Held.", json_pack("{s:i}", "retry_after_ms", 7), NULL);

	ck_assert_str_eq(json_string_value(json_object_get(problem, "type")), "urn:redlockd:problem:locked");
	ck_assert_str_eq(json_string_value(json_object_get(problem, "code")), "locked");
	ck_assert_int_eq(json_integer_value(json_object_get(problem, "status")), 409);
	ck_assert_str_eq(json_string_value(json_object_get(problem, "detail")), "Held.");
	ck_assert_str_ne(json_string_value(json_object_get(problem, "title")), "");
	ck_assert_int_eq(json_integer_value(json_object_get(problem, "retry_after_ms")), 7);
	ck_assert_ptr_null(json_object_get(problem, "errors"));
	json_decref(problem);
}
END_TEST

/* The statuses and codes of the contract, one by one. */
START_TEST(test_contract)
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
		{PROBLEM_TOO_MANY_REQUESTS, 429, "too-many-requests"},
		{PROBLEM_NO_QUORUM, 503, "no-quorum"},
		{PROBLEM_SPLIT_VOTE, 503, "split-vote"},
		{PROBLEM_DRAINING, 503, "draining"},
	};

	ck_assert_uint_eq(sizeof(expected) / sizeof(expected[0]), PROBLEM_COUNT);
	for (size_t i = 0; i < PROBLEM_COUNT; i++) {
		ck_assert_uint_eq(problem_status(expected[i].problem), expected[i].status);
		ck_assert_str_eq(problem_code(expected[i].problem), expected[i].code);
		ck_assert_str_ne(problem_title(expected[i].problem), "");
	}
}
END_TEST

START_TEST(test_errors)
{
	struct field_errors errors = {.count = 0};

	field_errors_add(&errors, "ttl_ms", "must be from %d to %d", 100, 60000);
	field_errors_add_name(&errors, "tll_ms", 6, "is unknown");
	field_errors_add_name(&errors, "<script>", 8, "is unknown");
	field_errors_add_name(&errors, "0123456789abcdef0123456789abcdef01234567", 40, "is unknown");
	field_errors_add_name(&errors, "", 0, "is unknown");
	json_t *problem = problem_new(PROBLEM_INVALID_REQUEST, "Wrong.", NULL, &errors);
	json_t *list = json_object_get(problem, "errors");
	ck_assert_uint_eq(json_array_size(list), 5);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "field")), "ttl_ms");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "reason")),
			 "must be from 100 to 60000");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 1), "field")), "tll_ms");
	for (size_t i = 2; i < 5; i++) /* neither markup nor anything as long as a token comes back */
		ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, i), "field")), "?");
	json_decref(problem);
}
END_TEST

START_TEST(test_errors_bound)
{
	struct field_errors errors = {.count = 0};
	char longest[4 * FIELD_REASON_MAX];

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i < FIELD_ERRORS_MAX + 5; i++)
		field_errors_add(&errors, "field", "%s", longest);
	ck_assert_uint_eq(errors.count, FIELD_ERRORS_MAX);
	ck_assert_uint_eq(strlen(errors.items[FIELD_ERRORS_MAX - 1].reason), FIELD_REASON_MAX - 1);
}
END_TEST

START_TEST(test_raw)
{
	char text[1024];

	for (enum problem problem = 0; problem < PROBLEM_COUNT; problem++) {
		size_t len = problem_write_raw(problem, "Because.", "abc", text, sizeof(text));
		ck_assert_uint_eq(len, strlen(text));
		ck_assert_ptr_nonnull(strstr(text, "\r\nX-Request-Id: abc\r\n"));
		ck_assert_ptr_nonnull(strstr(text, "\r\nConnection: close\r\n"));
		ck_assert_int_eq(strstr(text, "\r\nRetry-After: 1\r\n") != NULL, problem == PROBLEM_TOO_MANY_REQUESTS);
		const char *body = strstr(text, "\r\n\r\n") + 4;
		ck_assert_int_eq(atoi(strstr(text, "Content-Length: ") + 16), (int)strlen(body));
		ck_assert_uint_eq((unsigned)atoi(text + 9), problem_status(problem));
		struct field_errors errors = {.count = 0};
		field_errors_add(&errors, "request", "Because.");
		bool invalid = problem == PROBLEM_INVALID_REQUEST;
		json_t *raw = json_loads(body, 0, NULL),
		       *made = problem_new(problem, "Because.", NULL, invalid ? &errors : NULL);
		ck_assert_ptr_nonnull(raw);
		ck_assert(json_equal(raw, made));
		json_decref(raw);
		json_decref(made);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("problem");
	TCase *tests = tcase_create("problem");
	SRunner *runner = srunner_create(suite);

	suite_add_tcase(suite, tests);
	tcase_add_test(tests, test_members);
	tcase_add_test(tests, test_contract);
	tcase_add_test(tests, test_errors);
	tcase_add_test(tests, test_errors_bound);
	tcase_add_test(tests, test_raw);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
