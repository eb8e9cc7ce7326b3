/* SPDX-License-Identifier: MIT */
/* redlockd_hold_seconds: counted once at the release, by the clock of the master that released the lease. */
#include "lease_queue_world.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"

static uint64_t told(uint64_t *ret_us)
{
	*ret_us = metrics_worker(0)->held.sum_us;
	return observed(&metrics_worker(0)->held);
}

static struct lease_op *release(void)
{
	struct lease_request request = {.operation = LEASE_RELEASE, .resource_len = 1, .resource = "r", .token = ""};
	memcpy(request.token, TOKEN, LEASE_TOKEN_LEN);
	asked[0] = (struct asked){.answered = false};
	return lease_submit(leases, &request, on_done, &asked[0]);
}

static struct master_reply released(const char *value, uint64_t time_us)
{
	return (struct master_reply){
		.vote = REDLOCK_VOTE_GRANTED, .time_us = time_us, .value = value, .value_len = strlen(value)};
}

/* hold_until_ms is --max-hold-ms after the grant: 1795215206922 is 5.5 s after it here. */
static const struct {
	uint64_t max_hold_ms, now_us;
	const char *value;
	uint64_t told_us; /* 0: nothing */
} releases[] = {
	{86400000, UINT64_C(1795215206922000), TOKEN ":1795301601422:7::me", 5500000},
	{1000, UINT64_C(1795215206922000), TOKEN ":1795215206923:7::", 999000},
	{0, UINT64_C(1795215206922000), TOKEN ":0:7::me", 0}, /* no bound, so the time is not known */
	/* given by a redlockd without a bound */
	{86400000, UINT64_C(1795215206922000), TOKEN ":0:7::me", 0},
	{86400000, UINT64_C(1795215206922000), TOKEN ":86399999:7::me", 0},
	/* given after now: its clock went back */
	{86400000, UINT64_C(1795215206922000), TOKEN ":1795301606923:7::me", 0},
	/* another library's value that begins so */
	{86400000, UINT64_C(1795215206922000), TOKEN, 0},
	{86400000, UINT64_C(1795215206922000), TOKEN ":x:7:me", 0},
};

TEST_EACH(the_time_is_that_of_the_master, 0, sizeof releases / sizeof *releases)
{
	struct master_reply reply = released(releases[_i].value, releases[_i].now_us);
	uint64_t us;
	options.max_hold_ms = releases[_i].max_hold_ms;
	release();
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &reply); /* by three masters, counted once */
	leases_dispatch(leases);
	ck_assert_int_eq(asked[0].answer.status, LEASE_OK);
	ck_assert_uint_eq(told(&us), releases[_i].told_us > 0);
	ck_assert_uint_eq(us, releases[_i].told_us);
}

TEST(what_was_not_released_was_not_held)
{
	struct master_reply gone = {.vote = REDLOCK_VOTE_GONE, .time_us = UINT64_C(1795215206922000)};
	uint64_t us;
	release();
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &gone);
	leases_dispatch(leases);
	release();
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &held);
	leases_dispatch(leases);
	ck_assert_uint_eq(told(&us), 0);
}

/* A released attempt was not a lease. */
TEST(a_released_attempt_was_no_lease)
{
	struct master_reply reply = released(TOKEN ":1795301601422:7::me", UINT64_C(1795215206922000));
	uint64_t us;
	struct asked *one = ask("r", 60000);
	answer_acquires(&granted);
	one = ask("s", 60000);
	give_up(one);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &reply);
	ck_assert_uint_eq(told(&us), 0);
}
