/* The meaning of answers: of redlockd, of a proxy in between, and of a missing answer. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/http/answer.h"

#define TOKEN "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"

static struct answer read_text(long status, const char *body)
{
	struct answer answer;
	answer_read(&answer, status, body, strlen(body), "no answer");
	return answer;
}

static const struct {
	long status;
	const char *body;
	enum outcome outcome;
	const char *code, *detail;
} cases[] = {
	{0, "", OUTCOME_UNAVAILABLE, "unreachable", "no answer"},
	{204, "", OUTCOME_DONE, "", ""},
	{200, "{}", OUTCOME_DONE, "", ""},
	{200, "<html>", OUTCOME_STRANGE, "strange", "the answer is not JSON"},
	{200, "[]", OUTCOME_STRANGE, "strange", "the answer is not JSON"},
	{200, "{\"a\":1,\"a\":2}", OUTCOME_STRANGE, "strange", "the answer is not JSON"},
	{200, "", OUTCOME_STRANGE, "strange", "the answer is not JSON"},
	{302, "", OUTCOME_STRANGE, "strange", "HTTP status 302, and the answer is not from redlockd"},
	{502, "<html>", OUTCOME_UNAVAILABLE, "strange", "HTTP status 502, and the answer is not from redlockd"},
	{409, "<html>", OUTCOME_STRANGE, "strange", "HTTP status 409, and the answer is not from redlockd"},
	{410, "{\"code\":7}", OUTCOME_STRANGE, "strange", "HTTP status 410, and the answer is not from redlockd"},
	{409, "{\"code\":\"locked\",\"detail\":\"x\"}", OUTCOME_HELD, "locked", "held by somebody else"},
	{409, "{\"code\":\"locked\",\"retry_after_ms\":12345,\"holder\":{\"owner\":\"w\",\"fence\":7}}", OUTCOME_HELD,
	 "locked", "held by w (fence 7), at most 12.3 s more"},
	{409, "{\"code\":\"locked\",\"holder\":{\"owner\":\"a\\u001b[2Jb\\u009bc\"}}", OUTCOME_HELD, "locked",
	 "held by a?[2Jb??c"},
	{409, "{\"code\":\"not-owner\",\"detail\":\"x\"}", OUTCOME_LOST, "not-owner", "x"},
	{410, "{\"code\":\"lease-expired\",\"detail\":\"x\"}", OUTCOME_LOST, "lease-expired", "x"},
	{503, "{\"code\":\"no-quorum\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "no-quorum", "x"},
	{503, "{\"code\":\"split-vote\",\"detail\":\"x\"}", OUTCOME_SPLIT, "split-vote", "x"},
	{503, "{\"code\":\"draining\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "draining", "x"},
	{429, "{\"code\":\"too-many-requests\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "too-many-requests", "x"},
	{401, "{\"code\":\"unauthorized\",\"detail\":\"x\"}", OUTCOME_FORBIDDEN, "unauthorized", "x"},
	{403, "{\"code\":\"forbidden\",\"detail\":\"x\"}", OUTCOME_FORBIDDEN, "forbidden", "x"},
	{403, "RBAC: access denied", OUTCOME_FORBIDDEN, "strange",
	 "HTTP status 403, and the answer is not from redlockd"},
	{503, "{\"code\":\"of-the-future\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "of-the-future", "x"},
	{400,
	 "{\"code\":\"invalid-request\",\"detail\":\"x\",\"errors\":[{\"field\":\"ttl_ms\",\"reason\":\"too long\"}]}",
	 OUTCOME_INVALID, "invalid-request", "ttl_ms: too long"},
	{404, "{\"code\":\"not-found\",\"detail\":\"x\"}", OUTCOME_STRANGE, "not-found", "x"},
};

START_TEST(outcomes)
{
	struct answer answer = read_text(cases[_i].status, cases[_i].body);
	ck_assert_int_eq(answer.outcome, cases[_i].outcome);
	ck_assert_str_eq(answer.code, cases[_i].code);
	ck_assert_str_eq(answer.detail, cases[_i].detail);
	answer_fini(&answer);
}
END_TEST

START_TEST(retry_after)
{
	struct answer answer = read_text(409, "{\"code\":\"locked\",\"retry_after_ms\":1500}");
	ck_assert_uint_eq(answer.retry_after_ms, 1500);
	answer_fini(&answer);
	answer = read_text(409, "{\"code\":\"locked\",\"retry_after_ms\":-5}");
	ck_assert_uint_eq(answer.retry_after_ms, 0);
	answer_fini(&answer);
}
END_TEST

static const struct {
	const char *reason;
	uint64_t max_ms;
} bounds[] = {
	{"must be from 0 to 60000", 60000},
	{"must be at most 5000 (--max-wait-ms)", 5000},
	{"not yet supported", 0},
	{"", 0},
	{"from 0 to 99999999999999999999999", 0},
	{"0", 0},
};

START_TEST(how_long_a_server_waits)
{
	char body[256];

	snprintf(body, sizeof(body),
		 "{\"code\":\"invalid-request\",\"errors\":[{\"field\":\"wait_ms\",\"reason\":\"%s\"}]}",
		 bounds[_i].reason);
	struct answer answer = read_text(400, body);
	ck_assert_int_eq(answer.outcome, OUTCOME_INVALID);
	ck_assert(answer.bounds_wait);
	ck_assert_uint_eq(answer.wait_max_ms, bounds[_i].max_ms);
	answer_fini(&answer);
}
END_TEST

START_TEST(a_400_for_something_else)
{
	struct answer answer = read_text(
		400, "{\"code\":\"invalid-request\",\"errors\":[{\"field\":\"ttl_ms\",\"reason\":\"from 1 to 5\"}]}");
	ck_assert(!answer.bounds_wait);
	answer_fini(&answer);
}
END_TEST

START_TEST(busy)
{
	struct answer answer = read_text(429, "{\"code\":\"too-many-requests\",\"detail\":\"x\"}");
	ck_assert(answer.is_busy);
	answer_fini(&answer);
	answer = read_text(429, "<html>");
	ck_assert(answer.is_busy);
	answer_fini(&answer);
	answer = read_text(503, "{\"code\":\"draining\",\"detail\":\"x\"}");
	ck_assert(!answer.is_busy);
	answer_fini(&answer);
}
END_TEST

static const struct {
	long status;
	const char *body, *detail;
} states[] = {
	{200, "{\"held\":true,\"owner\":\"w\",\"fence\":7,\"remaining_ms\":12345}",
	 "held by w (fence 7), at most 12.3 s more"},
	{200, "{\"held\":true}", "held by somebody else"},
	{200, "{\"held\":false,\"waiters\":3}", "other requests are ahead in the queue"},
	{200, "{}", NULL},
	{503, "{\"code\":\"no-quorum\",\"held\":true}", NULL},
};

START_TEST(a_state_as_a_refusal)
{
	struct answer answer = read_text(states[_i].status, states[_i].body);
	ck_assert_int_eq(answer_state(&answer), states[_i].detail != NULL);
	if (states[_i].detail != NULL) {
		ck_assert_int_eq(answer.outcome, OUTCOME_HELD);
		ck_assert_str_eq(answer.code, "locked");
		ck_assert_str_eq(answer.detail, states[_i].detail);
	}
	answer_fini(&answer);
}
END_TEST

START_TEST(a_lease)
{
	struct answer answer = read_text(
		201, "{\"resource\":\"a\",\"token\":\"" TOKEN
		     "\",\"fence\":9007199254740991,\"ttl_ms\":30000,\"validity_ms\":29697,\"new\":[1]}");
	struct lease lease;
	ck_assert(answer_lease(&answer, "a", NULL, &lease));
	ck_assert(answer_lease(&answer, "a", TOKEN, &lease));
	ck_assert_str_eq(lease.token, TOKEN);
	ck_assert_uint_eq(lease.fence, UINT64_C(9007199254740991));
	ck_assert_uint_eq(lease.validity_ms, 29697);
	ck_assert(!answer_lease(&answer, "a", "0000000000000000000000000000000000000000", &lease));
	answer_fini(&answer);
}
END_TEST

static const char *const no_leases[] = {
	"{}",
	"{\"resource\":\"b\",\"token\":\"" TOKEN "\",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":29697}",
	"{\"resource\":\"a\",\"token\":\"short\",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":29697}",
	"{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"fence\":0,\"ttl_ms\":30000,\"validity_ms\":29697}",
	"{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"fence\":1.5,\"ttl_ms\":30000,\"validity_ms\":29697}",
	"{\"resource\":\"a\",\"token\":\"" TOKEN
	"\",\"fence\":9007199254740992,\"ttl_ms\":30000,\"validity_ms\":29697}",
	"{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"fence\":1,\"ttl_ms\":30000}",
	"{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":\"29697\"}",
	"{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":-1}",
	"{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":9223372036854775807}",
};

START_TEST(no_lease)
{
	struct answer answer = read_text(201, no_leases[_i]);
	struct lease lease = {.token = "as it was"};
	ck_assert_int_eq(answer.outcome, OUTCOME_DONE);
	ck_assert(!answer_lease(&answer, "a", NULL, &lease));
	ck_assert_int_eq(answer.outcome, OUTCOME_STRANGE);
	ck_assert_str_eq(lease.token, "as it was");
	answer_fini(&answer);
}
END_TEST

START_TEST(hint)
{
	struct credentials credentials = {0};
	struct answer answer;
	answer_set(&answer, OUTCOME_FORBIDDEN, "unauthorized", "x");
	ck_assert_ptr_nonnull(strstr(answer_hint(&answer, &credentials), "--key-file"));
	strcpy(credentials.api_key, "0123456789abcdef");
	ck_assert_str_eq(answer_hint(&answer, &credentials), "");
	credentials.api_key[0] = '\0';
	answer_set(&answer, OUTCOME_FORBIDDEN, "forbidden", "x");
	ck_assert_str_eq(answer_hint(&answer, &credentials), "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_answer");
	TCase *tests = tcase_create("cli_answer");
	tcase_add_loop_test(tests, outcomes, 0, sizeof(cases) / sizeof(*cases));
	tcase_add_test(tests, retry_after);
	tcase_add_loop_test(tests, how_long_a_server_waits, 0, sizeof(bounds) / sizeof(*bounds));
	tcase_add_test(tests, a_400_for_something_else);
	tcase_add_test(tests, busy);
	tcase_add_loop_test(tests, a_state_as_a_refusal, 0, sizeof(states) / sizeof(*states));
	tcase_add_test(tests, a_lease);
	tcase_add_loop_test(tests, no_lease, 0, sizeof(no_leases) / sizeof(*no_leases));
	tcase_add_test(tests, hint);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
