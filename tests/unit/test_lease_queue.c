/* Requests that wait, within one worker: their order, notifications, and which one is the first. How a wait
 * ends is in test_lease_queue_end.c. */
#include "lease_queue_world.h"
#include "suite.h"

/* ---- entering and leaving ---- */

TEST(a_request_without_wait_is_in_no_queue)
{
	struct asked *one = ask("r", 0);
	ck_assert_ptr_null(one->op->wait.entries);
	ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0)->entry, "");
	answer_acquires(&held);
	ck_assert(one->answered);
	ck_assert_int_eq(one->answer.status, LEASE_LOCKED);
	ck_assert_uint_eq(masters.queue_opened, 0);
	ck_assert_uint_eq(metrics_waiters(), 0);
	ck_assert_uint_eq(waits(METRICS_WAIT_TIMEOUT), 0);
}

TEST(the_first_waiter_opens_the_queue_and_the_last_one_shuts_it)
{
	struct asked *first = ask("r", 60000);
	ck_assert(masters.queue_open);
	struct asked *second = ask("s", 60000);
	ck_assert_uint_eq(metrics_waiters(), 2);
	give_up(first);
	ck_assert(masters.queue_open);
	give_up(second);
	ck_assert(!masters.queue_open);
	ck_assert_uint_eq(metrics_waiters(), 0);
	ask("r", 60000);
	ck_assert(masters.queue_open);
	ck_assert_uint_eq(masters.queue_opened, 2);
	ck_assert_uint_eq(masters.queue_shut, 1);
}

/* Over all resources, and in whatever order waiters leave. */
TEST(who_has_waited_longest_is_known)
{
	const _Atomic uint64_t *since_us = &metrics_worker(0)->waiting_since_us;
	ck_assert_uint_eq(metrics_worker(0)->waiters_limit, options.max_waiters);
	ck_assert_uint_eq(*since_us, 0);
	struct asked *one = ask("r", 60000), *two = ask("s", 60000), *three = ask("r", 60000), *four = ask("t", 60000);
	one->op->began_us -= 4000; /* as if time had gone by */
	two->op->began_us -= 3000;
	three->op->began_us -= 2000;
	give_up(two);
	ck_assert_uint_eq(*since_us, one->op->began_us);
	give_up(one);
	ck_assert_uint_eq(*since_us, three->op->began_us);
	give_up(four);
	ck_assert_uint_eq(*since_us, three->op->began_us);
	struct asked *five = ask("u", 60000);
	ck_assert_uint_eq(*since_us, three->op->began_us);
	give_up(three);
	ck_assert_uint_eq(*since_us, five->op->began_us);
	give_up(five);
	ck_assert_uint_eq(*since_us, 0);
}

TEST(entries_tell_worker_arrival_and_what_is_left_of_the_wait)
{
	uint64_t last = 0;
	for (int i = 0; i < 3; i++) {
		struct asked *one = ask("r", 60000);
		char replica[17];
		unsigned long long arrival, left_ms;
		for (int master = 0; master < 3; master++) { /* the same for all */
			const char *entry = fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, master)->entry;
			ck_assert_int_eq(sscanf(entry, "%16[0-9a-f]:%16llu %llu", replica, &arrival, &left_ms), 3);
			ck_assert_str_eq(replica, FAKE_REPLICA);
			ck_assert_uint_eq(arrival, arrival_of(one));
			ck_assert_uint_ge(left_ms, 50000);
			ck_assert_uint_le(left_ms, 60001);
		}
		ck_assert_uint_gt(arrival, last); /* unique, and growing */
		last = arrival;
	}
}

/* The lock is free, so the request does not count as waiting. acquire.lua removes the entry on the masters that
 * grant it. */
TEST(a_grant_at_once_is_no_wait)
{
	struct asked *one = ask("r", 60000);
	answer_acquires(&granted);
	ck_assert(one->answered);
	ck_assert_int_eq(one->answer.status, LEASE_OK);
	ck_assert_uint_eq(waits(METRICS_WAIT_GRANTED), 0);
	ck_assert_uint_eq(decided_at_once(), 1);
	ck_assert(!masters.queue_open);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, false), 0);
}

/* ---- the first waiter ---- */

TEST(after_a_grant_the_next_one_looks_when_that_runs_out)
{
	struct asked *first = wait_for("r"), *second = wait_for("r");
	struct master_reply reply = granted;
	notify(first, "r");
	answer_acquires(&reply);
	ck_assert(first->answered && !second->answered);
	uint64_t at_us = redlock_deadline_us(&second->op->core);
	ck_assert_uint_le(at_us, clock_now_us() + 30000000 + 2000);
	ck_assert_uint_gt(at_us, clock_now_us() + 29000000);
}

/* Queues are found and removed by their whole names, whichever goes first. */
TEST_EACH(queues_of_similar_names_are_kept_apart, 0, 4)
{
	static const char *const names[] = {"r0", "r1", "r", "r00"};
	enum { NAMES = sizeof names / sizeof *names };
	struct asked *waiting[NAMES];
	for (int i = 0; i < NAMES; i++)
		waiting[i] = wait_for(names[i]);
	give_up(waiting[_i]);
	for (int i = 0; i < NAMES; i++) {
		if (i == _i)
			continue;
		notify(waiting[i], names[i]);
		ck_assert_int_eq(waiting[i]->op->core.state, REDLOCK_VOTING);
	}
	answer_acquires(&granted);
	ck_assert_uint_eq(metrics_waiters(), 0);
}

/* ---- slots ---- */

/* A master on which all are taken says so with one digit. */
TEST_EACH(a_slot_that_one_master_has_free_is_not_free_on_a_majority, 0, 4)
{
	static const char value[] = "0123456789abcdef0123456789abcdef01234567#1:0:7::holder";
	const char *digits[] = {"1", _i % 2 == 0 ? "1101" : "1011"};
	struct lease_request request = {
		.operation = LEASE_ACQUIRE, .ttl_ms = 30000, .mode = LEASE_SLOT, .slots = 4, .resource = "a"};
	struct asked *one = &asked[asked_count++];
	request.resource_len = 1;
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	for (int master = 0; master < 2; master++) {
		const char *taken = digits[master == _i / 2];
		const struct master_reply refusal = {.vote = REDLOCK_VOTE_HELD,
						     .remaining_us = 20000000,
						     .value = value,
						     .value_len = sizeof value - 1,
						     .taken = taken,
						     .taken_len = strlen(taken),
						     .time_us = 1};
		(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_ACQUIRE, master, 1, &refusal);
	}
	for (unsigned slot = 0; slot < 4; slot++)
		ck_assert_uint_eq(one->op->slot.taken[slot], slot == (_i % 2 == 0 ? 2 : 1) ? 1 : 2);
	give_up(one);
}
