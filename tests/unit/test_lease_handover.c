/* The next waiter tries behind the release of the one before it, in the same round trip. */
#include "lease_queue_world.h"
#include "suite.h"

static const struct master_reply released = {.vote = REDLOCK_VOTE_GRANTED, .time_us = 1};
static const struct master_reply gone = {.vote = REDLOCK_VOTE_GONE, .time_us = 1};
static const struct master_reply queued = {.vote = REDLOCK_VOTE_QUEUED,
					   .remaining_us = 1000000,
					   .time_us = 1,
					   .value = "x",
					   .value_len = 1};

static void release(const char *resource, const char token[LEASE_TOKEN_LEN])
{
	struct lease_request request = {
		.operation = LEASE_RELEASE, .resource_len = (uint16_t)strlen(resource), .resource = resource};
	memcpy(request.token, token, LEASE_TOKEN_LEN);
	(void)lease_submit(leases, &request, NULL, NULL);
}

/* A waiter that has got the lock after it was notified. */
static struct asked *granted_after_waiting(const char *resource)
{
	struct asked *one = wait_for(resource);
	notify(one, resource);
	answer_acquires(&granted);
	ck_assert(one->answered && one->answer.status == LEASE_OK);
	return one;
}

/* One that waits behind asked[0], which has got the lock. */
static struct asked *wait_behind_a_holder(const char *resource)
{
	struct asked *next;
	wait_for(resource);
	next = wait_for(resource);
	notify(&asked[0], resource);
	answer_acquires(&granted);
	return next;
}

TEST(the_next_one_tries_behind_the_release)
{
	struct asked *first = wait_for("r"), *next = wait_for("r");
	notify(first, "r");
	answer_acquires(&granted);
	ck_assert(first->answered && !next->answered);
	size_t before = acquires(), commands = masters.command_count;
	release("r", first->answer.token);
	ck_assert_uint_eq(acquires(), before + 3);
	ck_assert_uint_eq(masters.command_count, commands + 6);
	for (size_t i = 0; i < 6; i++) /* what was released first is at each master before what is asked for */
		ck_assert_int_eq(masters.commands[commands + i].script,
				 i < 3 ? REDLOCK_SCRIPT_RELEASE : REDLOCK_SCRIPT_ACQUIRE);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &released);
	answer_acquires(&granted);
	ck_assert(next->answered);
	ck_assert_int_eq(next->answer.status, LEASE_OK);
	ck_assert_uint_eq(observed(&metrics_worker(0)->handover), 2);
}

/* Nobody can make waiters try with a token that was never granted here. */
TEST(another_token_wakes_nobody)
{
	static const char other[] = "0123456789abcdef0123456789abcdef01234567";
	struct asked *next = wait_behind_a_holder("r");
	size_t before = acquires();
	release("r", other);
	release("s", asked[0].answer.token);
	ck_assert_uint_eq(acquires(), before);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &gone);
	leases_dispatch(leases);
	ck_assert(!next->answered);
	ck_assert_uint_eq(acquires(), before);
}

/* The masters keep the order over all replicas. */
TEST(one_whose_turn_it_is_not_waits_on)
{
	struct asked *next = wait_behind_a_holder("r");
	release("r", asked[0].answer.token);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &released);
	answer_acquires(&queued);
	ck_assert(!next->answered);
	ck_assert_int_eq(next->op->core.state, REDLOCK_WAITING);
	size_t before = acquires();
	notify(next, "r");
	ck_assert_uint_eq(acquires(), before + 3);
	answer_acquires(&granted);
	ck_assert_int_eq(next->answer.status, LEASE_OK);
}

/* Where others wait, too, the next one is often theirs, and a try that is refused delays it. */
TEST(nobody_tries_where_another_redlockd_has_waiters)
{
	struct asked *next = wait_behind_a_holder("r");
	fake_masters_notify(&masters, 0, false, 1, "s");
	fake_masters_notify(&masters, 0, false, 1, "r");
	size_t before = acquires();
	release("r", asked[0].answer.token);
	ck_assert_uint_eq(acquires(), before);
	notify(next, "r");
	ck_assert_uint_eq(acquires(), before + 3);
	answer_acquires(&granted);
	ck_assert_int_eq(next->answer.status, LEASE_OK);
}

/* It has been asked for already, and that is all. */
TEST(one_that_votes_is_not_disturbed)
{
	struct asked *next;
	wait_for("r");
	wait_for("r");
	notify(&asked[0], "r");
	answer_acquires(&granted);
	give_up(&asked[1]);
	next = ask("r", 60000);
	release("r", asked[0].answer.token);
	ck_assert_int_eq(next->op->core.state, REDLOCK_VOTING);
	size_t before = acquires();
	answer_acquires(&granted);
	ck_assert_int_eq(next->answer.status, LEASE_OK);
	ck_assert_uint_eq(acquires(), before);
}

/* Nobody waits behind the last one. */
TEST(a_release_without_waiters_is_a_release)
{
	struct asked *one = granted_after_waiting("r");
	size_t before = acquires();
	release("r", one->answer.token);
	ck_assert_uint_eq(acquires(), before);
}
