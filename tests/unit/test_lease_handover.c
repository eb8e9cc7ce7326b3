/* SPDX-License-Identifier: MIT */
/* The next waiter tries behind the release of the one before it, in the same round trip. */
#include "lease_queue_world.h"
#include "suite.h"

static const struct master_reply released = {.vote = REDLOCK_VOTE_GRANTED, .time_us = 1};
static const struct master_reply gone = {.vote = REDLOCK_VOTE_GONE, .time_us = 1};

static void release(const char *resource, const char token[LEASE_TOKEN_LEN])
{
	struct lease_request request = {
		.operation = LEASE_RELEASE, .resource_len = (uint16_t)strlen(resource), .resource = resource};
	memcpy(request.token, token, LEASE_TOKEN_LEN);
	(void)lease_submit(leases, &request, NULL, NULL);
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
