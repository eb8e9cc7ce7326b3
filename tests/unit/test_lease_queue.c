/* SPDX-License-Identifier: MIT */
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

/* ---- notifications ---- */

TEST(who_is_called_by_a_majority_tries_at_once_with_the_same_entry)
{
	struct asked *one = wait_for("r");
	char token[LEASE_TOKEN_LEN + 1], entry[33 + 1];
	struct fake_command *command = fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0);
	strcpy(token, command->token);
	snprintf(entry, sizeof entry, "%.33s", command->entry);
	fake_masters_notify(&masters, 2, true, arrival_of(one), "r");
	fake_masters_notify(&masters, 2, true, arrival_of(one), "r"); /* one master, however often, is no majority */
	ck_assert_uint_eq(acquires(), 3);
	fake_masters_notify(&masters, 0, true, arrival_of(one), "r");
	ck_assert_uint_eq(acquires(), 6);
	command = fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0);
	ck_assert_str_ne(command->token, token);
	ck_assert_int_eq(strncmp(command->entry, entry, 33), 0);
	answer_acquires(&granted);
	ck_assert_int_eq(one->answer.status, LEASE_OK);
	ck_assert_mem_eq(one->answer.token, command->token, LEASE_TOKEN_LEN);
	ck_assert_uint_eq(waits(METRICS_WAIT_GRANTED), 1);
	ck_assert_uint_eq(metrics_worker(0)->handover.buckets[METRICS_BUCKETS], 0);
	struct text page;
	text_init(&page);
	metrics_render(&page);
	ck_assert_ptr_nonnull(strstr(page.bytes, "\nredlockd_handover_seconds_count 1\n"));
	text_fini(&page);
}

TEST(a_call_wakes_the_one_that_it_names_and_nobody_else)
{
	struct asked *first = wait_for("r"), *second = wait_for("r"), *other = wait_for("s");
	notify(second, "r"); /* the masters know the order of arrival */
	ck_assert_uint_eq(acquires(), 12);
	ck_assert_int_eq(second->op->core.state, REDLOCK_VOTING);
	ck_assert_int_eq(first->op->core.state, REDLOCK_WAITING);
	ck_assert_int_eq(other->op->core.state, REDLOCK_WAITING);
	ck_assert_uint_eq(first->op->core.notified, 0);
}

/* No waiter here has that arrival or resource: the entry is removed on the master that sent the notification. */
static const struct {
	const char *resource;
	bool known;
} stale_entries[] = {{"r", false}, {"s", false}, {"never/asked", false}, {"s", true}};

TEST_EACH(an_entry_without_a_waiter_is_given_up, 0, sizeof stale_entries / sizeof *stale_entries)
{
	struct asked *one = wait_for("r");
	wait_for("s");
	uint64_t arrival = stale_entries[_i].known ? arrival_of(one) : 1795215206922001;
	size_t before = masters.command_count;
	fake_masters_notify(&masters, 1, true, arrival, stale_entries[_i].resource);
	ck_assert_uint_eq(masters.command_count, before);
	ck_assert_uint_eq(masters.pending_count, 1); /* sent until it is carried out, also where the script is lost */
	const struct fake_command *leave = &masters.pending[0];
	ck_assert_uint_eq(leave->master, 1);
	char entry[64];
	snprintf(entry, sizeof entry, FAKE_REPLICA ":%016llu 0", (unsigned long long)arrival);
	ck_assert_str_eq(leave->entry, entry);
	ck_assert_str_eq(leave->token, ""); /* it cannot release a lock */
	ck_assert_str_eq(leave->key, stale_entries[_i].resource);
}

/* ---- the first waiter ---- */

/* Only the first watches the holder's time; the others sleep until they are notified or become the first. */
TEST(the_others_sleep_until_they_are_first)
{
	struct asked *first = wait_for("r"), *second = wait_for("r"), *third = wait_for("r");
	uint64_t end_us = clock_now_us() + 60000000;
	ck_assert_uint_le(redlock_deadline_us(&first->op->core), clock_now_us() + 20000000 + 2000);
	ck_assert_uint_gt(redlock_deadline_us(&second->op->core), end_us - 10000000);
	give_up(second); /* from the middle: no other waiter becomes the first */
	ck_assert_uint_gt(redlock_deadline_us(&third->op->core), end_us - 10000000);
	give_up(first);
	ck_assert_uint_le(redlock_deadline_us(&third->op->core), clock_now_us() + 20000000 + 2000);
}

TEST(after_a_grant_the_next_one_looks_when_that_runs_out)
{
	struct asked *first = wait_for("r"), *second = wait_for("r");
	struct master_reply reply = granted;
	notify(first, "r");
	answer_acquires(&reply);
	ck_assert(first->answered && !second->answered);
	uint64_t at_us = redlock_deadline_us(&second->op->core);
	ck_assert_uint_le(at_us, clock_now_us() + 30000000 + 2000);
	ck_assert_uint_gt(at_us, clock_now_us() + 21000000); /* not those 20 s of the holder before */
}

/* A master may have lost entries: the first of each queue tries at once, the others when they become the first. */
TEST(a_missed_notification_makes_the_first_of_each_queue_try)
{
	struct asked *first = wait_for("r"), *second = wait_for("r"), *other = wait_for("s");
	masters.notification_events.missed(masters.notification_events.arg);
	struct asked *later = wait_for("r");
	ck_assert_uint_le(redlock_deadline_us(&first->op->core), clock_now_us());
	ck_assert_uint_le(redlock_deadline_us(&other->op->core), clock_now_us());
	ck_assert_uint_gt(redlock_deadline_us(&second->op->core), clock_now_us() + 30000000);
	give_up(first);
	ck_assert_uint_le(redlock_deadline_us(&second->op->core), clock_now_us());
	give_up(second); /* it has not tried yet, so the next one must */
	ck_assert_uint_le(redlock_deadline_us(&later->op->core), clock_now_us());
	give_up(later);
}

/* A waiter that came after the missed notification has its entry, and need not try. */
TEST(a_missed_notification_is_over_when_the_first_has_tried)
{
	struct asked *first = wait_for("r");
	masters.notification_events.missed(masters.notification_events.arg);
	struct asked *later = wait_for("r");
	while (first->op->core.state == REDLOCK_WAITING)
		uv_run(&loop, UV_RUN_ONCE);
	answer_acquires(&held);
	give_up(first);
	ck_assert_uint_gt(redlock_deadline_us(&later->op->core), clock_now_us() + 10000000);
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
