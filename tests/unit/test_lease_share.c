/* Inspections of one resource that share what they ask the masters. */
#include "lease_queue_world.h"

static struct asked *inspect(const char *resource)
{
	const struct lease_request request = {
		.operation = LEASE_INSPECT, .resource_len = (uint16_t)strlen(resource), .resource = resource};
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	return one;
}

static size_t asked_for(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_INSPECT, 0, false);
}

static size_t open_now(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_INSPECT, 0, true);
}

/* One answer of each master. */
static void answer(const struct master_reply *reply)
{
	for (int master = 0; master < FAKE_MASTERS; master++)
		ck_assert_uint_eq(fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, master, 1, reply), 1);
	leases_dispatch(leases);
}

static const struct master_reply gone = {.vote = REDLOCK_VOTE_GONE, .time_us = 1};

TEST(the_others_share_the_next_one)
{
	const struct asked *first = inspect("r");
	const struct asked *others[] = {inspect("r"), inspect("r"), inspect("r")};
	ck_assert_uint_eq(asked_for(), 1);
	ck_assert_uint_eq(leases_waiting(leases), 4); /* the requests alone */
	answer(&held);
	ck_assert(first->answered && first->answer.held);
	ck_assert_mem_eq(first->answer.holder.owner, "holder", 6);
	ck_assert_uint_eq(asked_for(), 2);
	for (size_t i = 0; i < 3; i++)
		ck_assert(!others[i]->answered);
	answer(&gone);
	for (size_t i = 0; i < 3; i++)
		ck_assert(others[i]->answered && !others[i]->answer.held);
	ck_assert_uint_eq(asked_for(), 2);
	ck_assert_uint_eq(metrics_load(&leases->metrics->outcomes[LEASE_INSPECT][LEASE_OK]), 4);
	ck_assert_uint_eq(observed(&leases->metrics->latency[LEASE_INSPECT]), 4);
	ck_assert_uint_eq(leases_waiting(leases), 0);
}

/* One that comes after the answers of a majority, and before they are handed out, begins anew all the same. */
TEST(one_that_comes_with_the_answer_does_not_get_it)
{
	const struct asked *first = inspect("r");
	for (int master = 0; master < 2; master++)
		(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, master, 1, &held);
	const struct asked *second = inspect("r");
	leases_dispatch(leases);
	ck_assert(first->answered && !second->answered);
	(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, 2, 1, &held);
	answer(&gone);
	ck_assert(second->answered && !second->answer.held);
}

TEST(resources_share_nothing)
{
	(void)inspect("r");
	(void)inspect("rr");
	(void)inspect("q");
	ck_assert_uint_eq(open_now(), 3);
	answer(&held);
	answer(&held);
	answer(&held);
	ck_assert(asked[0].answered && asked[1].answered && asked[2].answered);
}

/* Bit i: request i is cancelled while the first one is under way. */
TEST_EACH(those_that_leave_end_nobody_elses, 0, 16)
{
	for (unsigned i = 0; i < 4; i++)
		(void)inspect("r");
	for (unsigned i = 0; i < 4; i++)
		if (_i & 1 << i)
			give_up(&asked[i]);
	bool others = (_i & 14) != 14;
	answer(&held);
	ck_assert_uint_eq(open_now(), others ? 1 : 0);
	if (others)
		answer(&held);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(asked[i].answered, !(_i & 1 << i));
	ck_assert_uint_eq(leases_waiting(leases), 0);
	(void)inspect("r"); /* nothing is left of them */
	ck_assert_uint_eq(open_now(), 1);
	answer(&held);
	ck_assert(asked[4].answered);
}

/* After its answer is made, and before it is handed out. */
TEST(one_that_leaves_late)
{
	(void)inspect("r");
	(void)inspect("r");
	for (int master = 0; master < FAKE_MASTERS; master++)
		(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, master, 1, &held);
	give_up(&asked[0]);
	leases_dispatch(leases);
	ck_assert(!asked[0].answered);
	answer(&held);
	ck_assert(asked[1].answered);
}

TEST(too_few_masters)
{
	(void)inspect("r");
	(void)inspect("r");
	(void)inspect("r");
	masters.down = 7;
	answer(&lost);
	for (size_t i = 0; i < 3; i++) {
		ck_assert(asked[i].answered);
		ck_assert_int_eq(asked[i].answer.status, LEASE_NO_QUORUM);
	}
	masters.down = 0;
	(void)inspect("r");
	answer(&held);
	ck_assert(asked[3].answered && asked[3].answer.held);
}

/* Neither looks of a watch, which register it, nor those of a listing, which reads their votes. */
TEST(others_ask_for_themselves)
{
	(void)inspect("r");
	struct lease_request request = {.operation = LEASE_INSPECT, .resource_len = 1, .resource = "r"};
	for (unsigned i = 0; i < 3; i++) {
		request.ttl_ms = i == 0 ? 15000 : 0;
		request.wait_for_all = i == 1;
		request.few = i == 2;
		asked[asked_count].answered = false;
		(void)lease_submit(leases, &request, on_done, &asked[asked_count]);
		asked_count++;
	}
	ck_assert_uint_eq(open_now(), 4);
	for (unsigned i = 0; i < 4; i++)
		answer(&held);
	ck_assert(asked[0].answered && asked[1].answered && asked[2].answered && asked[3].answered);
}
