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

static const struct lease_op *waiting(void)
{
	const struct lease_op *op = TAILQ_FIRST(&leases->queues.by_age);
	ck_assert(op);
	return op;
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

TEST_EACH(a_late_refusal_shows_the_own_lease, 0, sizeof refusals / sizeof *refusals)
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

TEST(a_refusal_of_an_earlier_attempt_shows_nothing)
{
	struct asked *one = ask_with_key();
	refuse(0, REDLOCK_VOTE_QUEUED, FAKE_REPLICA ":0000000000000001");
	refuse(1, REDLOCK_VOTE_HELD, OTHER_KEY);
	refuse(2, REDLOCK_VOTE_HELD, OWN);
	const struct lease_op *acquisition = waiting();
	for (uint8_t i = 0; i < FAKE_MASTERS; i++)
		fake_masters_notify(&masters, i, true, acquisition->core.arrival, "r");
	refuse(0, REDLOCK_VOTE_QUEUED, FAKE_REPLICA ":0000000000000001");
	refuse(1, REDLOCK_VOTE_HELD, OWN);
	ck_assert_int_eq(acquisition->core.state, REDLOCK_WAITING);
	ck_assert_uint_eq(acquisition->attempt.number, 2);
	ck_assert_uint_eq(extensions(), 0);
	give_up(one);
}

/* The oldest release at that master, which asks for the place, gets one with that arrival; 0: there is none. */
static void give_place(int master, uint64_t arrival)
{
	const struct master_reply reply = {
		.vote = arrival > 0 ? REDLOCK_VOTE_GRANTED : REDLOCK_VOTE_GONE, .time_us = 1, .fence = arrival};
	const struct fake_command *asks = fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, master);
	ck_assert_str_eq(asks->token, "");
	ck_assert_uint_eq(asks->place, 0xab);
	ck_assert_uint_eq(fake_masters_answer_some(&masters, REDLOCK_SCRIPT_RELEASE, master, 1, &reply), 1);
}

static const struct {
	uint64_t first, second; /* of two masters of three */
	bool is_taken;
} places[] = {{7, 7, true}, {7, 0, false}, {7, 8, false}, {0, 0, false}};

TEST_EACH(a_place_is_taken_that_a_majority_gives, 0, sizeof places / sizeof *places)
{
	struct asked *one = ask_with_key();
	refuse(0, REDLOCK_VOTE_HELD, OTHER_KEY);
	refuse(1, REDLOCK_VOTE_HELD, OTHER_KEY);
	uint64_t own = waiting()->core.arrival;
	size_t before = fake_masters_count(&masters, REDLOCK_SCRIPT_ACQUIRE, -1, false);
	give_place(0, places[_i].first);
	give_place(1, places[_i].second);
	leases_dispatch(leases);
	ck_assert_uint_eq(waiting()->core.arrival, places[_i].is_taken ? 7 : own);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_ACQUIRE, -1, false) > before,
			  places[_i].is_taken);
	give_up(one);
}
