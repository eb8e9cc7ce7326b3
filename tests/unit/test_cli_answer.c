/* SPDX-License-Identifier: MIT */
/* The meaning of answers: of redlockd, of a proxy in between, and of a missing answer. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "cli/http/answer.h"
#include "suite.h"

#define TOKEN "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"

static struct answer read_text(long status, const char *body)
{
	struct answer answer;
	answer_read(&answer, status, body, strlen(body), "no answer");
	return answer;
}

#define INVALID(field, reason)                                                                                     \
	"{\"code\":\"invalid-request\",\"detail\":\"x\",\"errors\":[{\"field\":\"" field "\",\"reason\":\"" reason \
	"\"}]}"

static const struct {
	long status;
	const char *body;
	enum outcome outcome;
	const char *code, *detail;
} cases[] = {
	{0, "", OUTCOME_UNAVAILABLE, "unreachable", "no answer"},
	{204, "", OUTCOME_DONE, "", ""},
	{200, "{}", OUTCOME_DONE, "", ""},
	{200, "<html>", OUTCOME_UNAVAILABLE, "strange", "the answer is not JSON"},
	{200, "[]", OUTCOME_UNAVAILABLE, "strange", "the answer is not JSON"},
	{200, "{\"a\":1,\"a\":2}", OUTCOME_UNAVAILABLE, "strange", "the answer is not JSON"},
	{200, "", OUTCOME_UNAVAILABLE, "strange", "the answer is not JSON"},
	{302, "", OUTCOME_STRANGE, "strange", "HTTP status 302, and the answer is not from redlockd"},
	{502, "<html>", OUTCOME_UNAVAILABLE, "strange", "HTTP status 502, and the answer is not from redlockd"},
	{409, "<html>", OUTCOME_STRANGE, "strange", "HTTP status 409, and the answer is not from redlockd"},
	{410, "{\"code\":7}", OUTCOME_STRANGE, "strange", "HTTP status 410, and the answer is not from redlockd"},
	{409, "{\"code\":\"locked\",\"detail\":\"x\"}", OUTCOME_HELD, "locked", "held by somebody else"},
	{409, "{\"code\":\"locked\",\"retry_after_ms\":12345,\"holder\":{\"owner\":\"w\",\"fence\":7}}", OUTCOME_HELD,
	 "locked", "held by w (fence 7), lease ends in 12.3 s unless it is extended"},
	{409, "{\"code\":\"locked\",\"holder\":{\"owner\":\"w\",\"held_ms\":65000}}", OUTCOME_HELD, "locked",
	 "held by w for 1 min 5 s"},
	{409, "{\"code\":\"locked\",\"holder\":{\"owner\":\"a\\u001b[2Jb\\u009bc\"}}", OUTCOME_HELD, "locked",
	 "held by a?[2Jb??c"},
	{409, "{\"code\":\"not-owner\",\"detail\":\"x\"}", OUTCOME_LOST, "not-owner", "x"},
	{410, "{\"code\":\"lease-expired\",\"detail\":\"x\"}", OUTCOME_LOST, "lease-expired", "x"},
	{503, "{\"code\":\"not-owner\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "not-owner", "x"},
	{409, "{\"code\":\"lease-expired\",\"detail\":\"x\"}", OUTCOME_STRANGE, "lease-expired", "x"},
	{503, "{\"code\":\"no-quorum\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "no-quorum", "x"},
	{503, "{\"code\":\"split-vote\",\"detail\":\"x\"}", OUTCOME_SPLIT, "split-vote", "x"},
	{503, "{\"code\":\"draining\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "draining", "x"},
	{429, "{\"code\":\"too-many-requests\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "too-many-requests", "x"},
	{401, "{\"code\":\"unauthorized\",\"detail\":\"x\"}", OUTCOME_FORBIDDEN, "unauthorized", "x"},
	{403, "{\"code\":\"forbidden\",\"detail\":\"x\"}", OUTCOME_FORBIDDEN, "forbidden", "x"},
	{403, "RBAC: access denied", OUTCOME_FORBIDDEN, "strange",
	 "HTTP status 403, and the answer is not from redlockd"},
	{503, "{\"code\":\"of-the-future\",\"detail\":\"x\"}", OUTCOME_UNAVAILABLE, "of-the-future", "x"},
	{400, INVALID("ttl_ms", "from 1 to 5"), OUTCOME_INVALID, "invalid-request", "--ttl: from 1 to 5"},
	{400, INVALID("resources[3]", "is required"), OUTCOME_INVALID, "invalid-request", "resources[3]: is required"},
	{404, "{\"code\":\"not-found\",\"detail\":\"x\"}", OUTCOME_STRANGE, "not-found", "x"},
};

/* Texts of the server, and what redlockctl makes of them. */
static const struct {
	const char *detail, *shown;
} texts[] = {
	{"Several callers shared the votes. Try again after Retry-After, or wait in the queue with wait_ms.",
	 "Several callers shared the votes. Try again later, or wait in the queue with --wait"},
	{"Too few masters may vote. Try again after Retry-After; GET /readyz says why and for how long.",
	 "Too few masters may vote. Try again later; redlockctl health --ready shows why"},
	{"Too few masters answered in time. If the lock was granted, the same Idempotency-Key gets it.",
	 "Too few masters answered in time"},
	{"The service is shutting down. Ask another redlockd, or this one after Retry-After.",
	 "The service is shutting down. Ask another redlockd, or this one later"},
	{"wait_ms and ttl_ms and wait_ms", "--wait and --ttl and --wait"},
	{"Nobody holds the lock.", "Nobody holds the lock"},
};

TEST_EACH(words_of_the_server, 0, sizeof(texts) / sizeof(*texts))
{
	char body[500];
	snprintf(body, sizeof(body), "{\"code\":\"no-quorum\",\"detail\":\"%s\"}", texts[_i].detail);
	struct answer answer = read_text(503, body);
	ck_assert_str_eq(answer.detail, texts[_i].shown);
	answer_fini(&answer);
}

/* A text is cut off where it no longer fits. */
TEST(a_long_text_of_the_server)
{
	char detail[ANSWER_DETAIL_MAX] = "", before[ANSWER_DETAIL_MAX];
	memset(detail, 'x', sizeof(detail) - 1);
	memcpy(detail + sizeof(detail) - 12, "wait_ms", 7);
	strcpy(before, detail);
	answer_translate(detail);
	ck_assert_uint_eq(strlen(detail), strlen(before) - 1);
	memcpy(detail + sizeof(detail) - 14, "ttl_ms", 6);
	answer_translate(detail);
	ck_assert_ptr_nonnull(strstr(detail, "--ttl"));
}

TEST_EACH(outcomes, 0, sizeof(cases) / sizeof(*cases))
{
	struct answer answer = read_text(cases[_i].status, cases[_i].body);
	ck_assert_int_eq(answer.outcome, cases[_i].outcome);
	ck_assert_str_eq(answer.code, cases[_i].code);
	ck_assert_str_eq(answer.detail, cases[_i].detail);
	answer_fini(&answer);
}

/* When the next request may be sent, and how long the server lets it wait. */
static const struct {
	long status;
	const char *body;
	bool is_busy;
	uint64_t retry_after_ms;
	uint64_t place_kept_ms;
} waits[] = {
	{409, "{\"code\":\"locked\",\"retry_after_ms\":1500}", false, 1500, 0},
	{409, "{\"code\":\"locked\",\"retry_after_ms\":-5}", false, 0, 0},
	{409, "{\"code\":\"locked\",\"retry_after_ms\":60000,\"place_kept_ms\":2000}", false, 60000, 2000},
	{409, "{\"code\":\"locked\",\"place_kept_ms\":\"2000\"}", false, 0, 0},
	{409, "{\"code\":\"locked\",\"place_kept_ms\":-1}", false, 0, 0},
	{429, "{\"code\":\"too-many-requests\",\"detail\":\"x\"}", true, 0, 0},
	{429, "<html>", true, 0, 0},
	{503, "{\"code\":\"draining\",\"detail\":\"x\",\"place_kept_ms\":2000}", false, 0, 2000},
	{400, INVALID("ttl_ms", "from 1 to 5"), false, 0, 0},
	{400, INVALID("wait_ms", "must not be negative"), false, 0, 0},
};

TEST_EACH(pauses_of_waits, 0, sizeof(waits) / sizeof(*waits))
{
	struct answer answer = read_text(waits[_i].status, waits[_i].body);
	ck_assert_int_eq(answer.is_busy, waits[_i].is_busy);
	ck_assert_uint_eq(answer.retry_after_ms, waits[_i].retry_after_ms);
	ck_assert_uint_eq(answer.place_kept_ms, waits[_i].place_kept_ms);
	answer_fini(&answer);
}

static const struct {
	long status;
	const char *body, *detail;
} states[] = {
	{200, "{\"held\":true,\"owner\":\"w\",\"fence\":7,\"remaining_ms\":12345}",
	 "held by w (fence 7), lease ends in 12.3 s unless it is extended"},
	{200, "{\"held\":true}", "held by somebody else"},
	{200, "{\"held\":false,\"waiters\":3}", "other requests are ahead in the queue"},
	{200, "{}", "other requests are ahead in the queue"},
	{503, "{\"code\":\"no-quorum\",\"held\":true}", "other requests are ahead in the queue"},
};

TEST_EACH(a_state_as_a_refusal, 0, sizeof(states) / sizeof(*states))
{
	struct answer answer = read_text(states[_i].status, states[_i].body);
	answer_state(&answer);
	ck_assert_int_eq(answer.outcome, OUTCOME_HELD);
	ck_assert_str_eq(answer.code, "locked");
	ck_assert_str_eq(answer.detail, states[_i].detail);
	answer_fini(&answer);
}

/* From a library, or cut within a character. JSON cannot hold such bytes. */
TEST(a_failure_that_is_no_utf8)
{
	struct answer answer;
	answer_read(&answer, 0, NULL, 0, "caf\xe9: \xc3\xbc");
	ck_assert_str_eq(answer.detail, "caf?: ??");
	answer_fini(&answer);
}

static const struct arguments of_a = {.names = {.items = {"a"}, .count = 1, .joined = "a"}};

#define LEASE(resource, token, rest) "{\"resource\":\"" resource "\",\"token\":\"" token "\"" rest "}"
#define TIMES ",\"ttl_ms\":30000,\"validity_ms\":29697"

TEST(a_lease)
{
	struct answer answer = read_text(
		201, "{\"resource\":\"a\",\"token\":\"" TOKEN
		     "\",\"fence\":9007199254740991,\"ttl_ms\":30000,\"validity_ms\":29697,\"new\":[1]}");
	struct lease lease, other = {.token = "0000000000000000000000000000000000000000", .ttl_ms = 30000};
	struct lease ours = {.token = TOKEN, .ttl_ms = 30000}, shorter = {.token = TOKEN, .ttl_ms = 29999};
	ck_assert(answer_lease(&answer, &of_a, NULL, &lease));
	ck_assert(answer_lease(&answer, &of_a, &ours, &lease));
	ck_assert_str_eq(lease.token, TOKEN);
	ck_assert_uint_eq(lease.fence, UINT64_C(9007199254740991));
	ck_assert_uint_eq(lease.validity_ms, 29697);
	ck_assert(!answer_lease(&answer, &of_a, &other, &lease));
	answer_fini(&answer);
	answer = read_text(200, LEASE("a", TOKEN, ",\"fence\":1" TIMES));
	ck_assert(!answer_lease(&answer, &of_a, &shorter, &lease));
	answer_fini(&answer);
}

static const char *const no_leases[] = {
	"{}",
	LEASE("b", TOKEN, ",\"fence\":1" TIMES),
	LEASE("a", "short", ",\"fence\":1" TIMES),
	LEASE("a", TOKEN, ",\"fence\":0" TIMES),
	LEASE("a", TOKEN, ",\"fence\":1.5" TIMES),
	LEASE("a", TOKEN, ",\"fence\":9007199254740992" TIMES),
	LEASE("a", TOKEN, ",\"fence\":1,\"ttl_ms\":30000"),
	LEASE("a", TOKEN, ",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":\"29697\""),
	LEASE("a", TOKEN, ",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":-1"),
	LEASE("a", TOKEN, ",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":30001"),
	LEASE("a", TOKEN, ",\"fence\":1,\"waited_ms\":-1" TIMES),
	LEASE("a", TOKEN, ",\"fence\":1,\"waited_ms\":1.5" TIMES),
	LEASE("a", TOKEN, ",\"fence\":1,\"ttl_ms\":30000,\"validity_ms\":9223372036854775807")};

TEST_EACH(no_lease, 0, sizeof(no_leases) / sizeof(*no_leases))
{
	struct answer answer = read_text(201, no_leases[_i]);
	struct lease lease = {.token = "as it was"};
	ck_assert_int_eq(answer.outcome, OUTCOME_DONE);
	ck_assert(!answer_lease(&answer, &of_a, NULL, &lease));
	ck_assert_int_eq(answer.outcome, OUTCOME_UNAVAILABLE);
	ck_assert(answer.is_lost);
	ck_assert_str_eq(lease.token, "as it was");
	answer_fini(&answer);
}

TEST(exit_statuses)
{
	static const int statuses[] = {0, 42, 42, 79, 69, 76, 77, 64, 69, 76}; /* in the order of enum outcome */
	struct arguments arguments = {.held_status = 42};

	for (int outcome = OUTCOME_DONE; outcome <= OUTCOME_STRANGE; outcome++)
		ck_assert_int_eq(answer_status(&(struct answer){.outcome = (enum outcome)outcome}, &arguments),
				 statuses[outcome]);
}

TEST(explained)
{
	static struct arguments arguments;
	struct answer answer = {.outcome = OUTCOME_DONE};
	char text[ANSWER_TEXT_MAX];
	answer_set(&answer, OUTCOME_FORBIDDEN, "unauthorized", "x");
	ck_assert_ptr_nonnull(strstr(answer_explain(&answer, &arguments, "http://a:1", text), "http://a:1: x ("));
	ck_assert_ptr_nonnull(strstr(text, "--key-file"));
	strcpy(arguments.credentials.api_key, "0123456789abcdef");
	ck_assert_str_eq(answer_explain(&answer, &arguments, "http://a:1", text), "http://a:1: x");
	arguments.credentials.api_key[0] = '\0';
	answer_set(&answer, OUTCOME_FORBIDDEN, "forbidden", "x");
	ck_assert_str_eq(answer_explain(&answer, &arguments, "http://a:1", text), "http://a:1: x");
	answer_set(&answer, OUTCOME_HELD, "locked", "x");
	ck_assert_str_eq(answer_explain(&answer, &arguments, "http://a:1", text), "x");
}

/* About the option as it was given, and not about the member of the request. */
TEST(explained_ttl)
{
	static struct arguments arguments = {.command = COMMAND_RUN, .ttl_ms = 600000, .ttl_text = "10m"};
	struct answer answer = read_text(400, INVALID("ttl_ms", "must be from 1500 to 60000"));
	char text[ANSWER_TEXT_MAX];

	ck_assert_str_eq(answer_explain(&answer, &arguments, "x", text),
			 "--ttl 10m is over the longest lease of the server: use at most 60s; run renews it anyway");
	arguments.command = COMMAND_ACQUIRE;
	arguments.ttl_ms = 61001;
	arguments.ttl_text = "61001";
	ck_assert_str_eq(answer_explain(&answer, &arguments, "x", text),
			 "--ttl 61001 is over the longest lease of the server: use at most 60s, and extend the lease");
	arguments.ttl_ms = 1000;
	arguments.ttl_text = "1s";
	ck_assert_str_eq(answer_explain(&answer, &arguments, "x", text),
			 "--ttl 1s is below the shortest lease of the server: use at least 1500ms");
	answer_fini(&answer);
	answer = read_text(400, INVALID("ttl_ms", "is not a number"));
	ck_assert_str_eq(answer_explain(&answer, &arguments, "x", text), "--ttl: is not a number");
	answer_fini(&answer);
}
