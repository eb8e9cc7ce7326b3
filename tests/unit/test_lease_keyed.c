/* A waiter whose lock is held by a lease of its own Idempotency-Key: which answers of the masters show it. */
#include "lease_queue_world.h"

#define TOKEN_1 "0123456789abcdef0123456789abcdef01234567"
#define TOKEN_2 "fedcba9876543210fedcba9876543210fedcba98"
#define OWN TOKEN_1 ":0:7:00000000000000ab:"
#define OWN_NOT_NOTED TOKEN_1 ":0:7:?00000000000000ab:"
#define OWN_OF_ANOTHER_TOKEN TOKEN_2 ":0:7:00000000000000ab:"
#define OTHER_KEY TOKEN_1 ":0:7:00000000000000ac:"

static struct asked *ask_with_key(void)
{
	struct lease_request request = {.operation = LEASE_ACQUIRE,
					.ttl_ms = 30000,
					.wait_ms = 60000,
					.key = 0xab,
					.resource_len = 1,
					.resource = "r"};
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	return one;
}

/* The oldest acquisition at that master. */
static void refuse(int master, enum redlock_vote vote, const char *value)
{
	const struct master_reply reply = {
		.vote = vote, .time_us = 1, .remaining_us = 20000000, .value = value, .value_len = strlen(value)};
	ck_assert_uint_eq(fake_masters_answer_some(&masters, REDLOCK_SCRIPT_ACQUIRE, master, 1, &reply), 1);
}

static size_t extensions(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_EXTEND, -1, false);
}

/* One master lacks the lease, so the attempt is lost at the second answer. `late` is the third. */
static const struct {
	const char *second, *late;
	size_t extensions;
} refusals[] = {
	{OWN, OWN, FAKE_MASTERS},           {OWN_NOT_NOTED, OWN, FAKE_MASTERS},
	{OWN, OWN_NOT_NOTED, FAKE_MASTERS}, {OWN_NOT_NOTED, OWN_NOT_NOTED, 0}, /* it may not be granted yet */
	{OWN, OWN_OF_ANOTHER_TOKEN, 0},     {OWN, OTHER_KEY, 0},
	{OTHER_KEY, OTHER_KEY, 0},
};

START_TEST(a_late_refusal_shows_the_own_lease)
{
	struct asked *one = ask_with_key();
	refuse(0, REDLOCK_VOTE_QUEUED, FAKE_REPLICA ":0000000000000001");
	refuse(1, REDLOCK_VOTE_HELD, refusals[_i].second);
	ck_assert_uint_eq(extensions(), 0);
	refuse(2, REDLOCK_VOTE_HELD, refusals[_i].late);
	ck_assert_uint_eq(extensions(), refusals[_i].extensions);
	if (extensions() > 0)
		ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_EXTEND, 0)->token, TOKEN_1);
	give_up(one);
}
END_TEST

START_TEST(a_refusal_of_an_earlier_attempt_shows_nothing)
{
	struct asked *one = ask_with_key();
	refuse(0, REDLOCK_VOTE_QUEUED, FAKE_REPLICA ":0000000000000001");
	refuse(1, REDLOCK_VOTE_HELD, OTHER_KEY);
	refuse(2, REDLOCK_VOTE_HELD, OWN);
	struct lease_op *acquisition = TAILQ_LAST(&leases->ops[LEASE_OP_RUNNING], lease_ops);
	for (uint8_t i = 0; i < FAKE_MASTERS; i++)
		fake_masters_notify(&masters, i, true, acquisition->core.arrival, "r");
	refuse(0, REDLOCK_VOTE_QUEUED, FAKE_REPLICA ":0000000000000001");
	refuse(1, REDLOCK_VOTE_HELD, OWN);
	ck_assert_int_eq(acquisition->core.state, REDLOCK_WAITING);
	ck_assert_uint_eq(acquisition->attempt, 2);
	ck_assert_uint_eq(extensions(), 0);
	give_up(one);
}
END_TEST

static void add_all(TCase *tests)
{
	tcase_add_loop_test(tests, a_late_refusal_shows_the_own_lease, 0, sizeof refusals / sizeof *refusals);
	suite_add(tests, a_refusal_of_an_earlier_attempt_shows_nothing);
}

int main(void)
{
	return run_suite("lease_keyed", add_all);
}
