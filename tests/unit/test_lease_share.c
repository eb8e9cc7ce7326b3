/* SPDX-License-Identifier: MIT */
/* Inspections of one resource that share what they ask the masters, and those of locks that many hold, in turns. */
#include <hiredis/hiredis.h>
#include <sys/param.h>

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

static void answer_reads(void);

/* One answer of each master. */
static void answer(const struct master_reply *reply)
{
	for (int master = 0; master < FAKE_MASTERS; master++)
		ck_assert_uint_eq(fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, master, 1, reply), 1);
	answer_reads();
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

/* ---- turns ---- */

enum { MANY = LEASE_HOLDERS_FEW + 1, LOCKS = 4, TURNS = 2 };

static const struct master_reply *by_many(void)
{
	static const redisReply none = {.type = REDIS_REPLY_ARRAY};
	static struct master_reply reply;
	reply = held;
	reply.value = "000000000000000000000000000000000000000a+:0:7::somebody";
	reply.value_len = strlen(reply.value);
	reply.holder_count = MANY;
	reply.holders = &none;
	return &reply;
}

/* Answers what is read of MANY shared leases: the list, of tokens and ends, and the values. */
static void answer_reads(void)
{
	static char texts[MANY][80], end[] = "30000";
	redisReply ends = {.type = REDIS_REPLY_STRING, .str = end, .len = strlen(end)};
	redisReply tokens[MANY], values[MANY], *listed[2 * MANY], *valued[MANY];
	for (size_t i = 0; i < MANY; i++) {
		snprintf(texts[i], sizeof *texts, "%040zx+:0:7::somebody", i);
		values[i] = (redisReply){.type = REDIS_REPLY_STRING, .str = texts[i], .len = strlen(texts[i])};
		tokens[i] = values[i];
		tokens[i].len = LEASE_TOKEN_LEN;
		listed[2 * i] = &tokens[i];
		listed[2 * i + 1] = &ends;
		valued[i] = &values[i];
	}
	const redisReply list = {.type = REDIS_REPLY_ARRAY, .elements = 2 * (size_t)MANY, .element = listed};
	const redisReply all = {.type = REDIS_REPLY_ARRAY, .elements = MANY, .element = valued};
	fake_masters_answer_reads(&masters, &(struct master_scan){.key_count = list.elements, .keys = &list},
				  &(struct master_scan){.key_count = MANY, .keys = &all});
}

static struct asked *inspect_lock(size_t lock)
{
	static const char *const names[LOCKS] = {"a", "b", "c", "d"};
	return inspect(names[lock]);
}

/* Inspects each lock; the answers say that many hold it. Nothing is under way then. */
static void learn_length(void)
{
	for (size_t i = 0; i < LOCKS; i++)
		(void)inspect_lock(i);
	ck_assert_uint_eq(open_now(), LOCKS); /* nothing is known of them */
	for (size_t i = 0; i < LOCKS; i++)
		answer(by_many());
	for (size_t i = 0; i < LOCKS; i++)
		ck_assert(asked[i].answered && asked[i].answer.several->count == MANY);
}

TEST(locks_that_many_hold_take_turns)
{
	struct asked *ones[LOCKS];
	learn_length();
	for (size_t i = 0; i < LOCKS; i++)
		ones[i] = inspect_lock(i);
	struct asked *again = inspect_lock(LOCKS - 1), *other = inspect("other");
	ck_assert_uint_eq(open_now(), TURNS + 1);
	for (size_t i = 0; i < LOCKS; i++) {
		ck_assert(!ones[i]->answered);
		if (i == TURNS) { /* the oldest, by now */
			ck_assert(!other->answered);
			answer(&gone);
			ck_assert(other->answered);
		}
		answer(by_many());
		ck_assert(ones[i]->answered);
		ck_assert_uint_eq(open_now(), (i < TURNS ? 1U : 0U) + MIN((size_t)TURNS, LOCKS - 1 - i));
	}
	ck_assert(again->answered); /* it came before its lock had its turn */
	ck_assert_uint_eq(asked_for(), 2 * LOCKS + 1);
}

TEST(a_lock_that_few_hold_by_now_waits_no_more)
{
	learn_length();
	(void)inspect_lock(0);
	answer(&held);
	for (size_t i = 1; i < LOCKS; i++)
		(void)inspect_lock(i);
	ck_assert_uint_eq(open_now(), TURNS);
	struct asked *one = inspect_lock(0);
	ck_assert_uint_eq(open_now(), TURNS + 1);
	for (size_t i = 0; i < LOCKS; i++)
		answer(&gone);
	ck_assert(one->answered);
}

TEST(those_that_have_left_get_no_turn)
{
	learn_length();
	for (size_t i = 0; i < LOCKS; i++)
		(void)inspect_lock(i);
	give_up(&asked[LOCKS + TURNS]);
	answer(by_many());
	answer(by_many());
	answer(by_many());
	ck_assert(asked[2 * LOCKS - 1].answered && !asked[LOCKS + TURNS].answered);
	ck_assert_uint_eq(open_now(), 0);
	ck_assert_uint_eq(asked_for(), 2 * LOCKS - 1);
	struct asked *next = inspect_lock(TURNS);
	answer(by_many());
	ck_assert(next->answered);
}

/* Also with masters that do not answer, and when redlockd ends, which tear_down() tries. */
TEST_EACH(all_have_an_answer_without_masters, 0, 2)
{
	learn_length();
	for (size_t i = 0; i < LOCKS; i++)
		(void)inspect_lock(i);
	if (_i == 1)
		return;
	masters.down = 7;
	for (size_t i = 0; i < TURNS; i++)
		answer(&lost);
	while (leases_dispatch(leases))
		;
	for (size_t i = LOCKS; i < 2 * LOCKS; i++) {
		ck_assert(asked[i].answered);
		ck_assert_int_eq(asked[i].answer.status, LEASE_NO_QUORUM);
	}
}
