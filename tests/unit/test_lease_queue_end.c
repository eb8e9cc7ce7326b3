/* SPDX-License-Identifier: MIT */
/* Requests that wait, within one worker: how each wait ends, and how many may wait. Only the wait that runs out takes
 * time. */
#include "lease_queue_world.h"

/* ---- deadlines ---- */

/* Nothing is set after the attempt is over; a release is never too late. */
TEST(an_acquire_has_its_attempts_own_deadline)
{
	struct asked *one = ask("r", 60000);
	uint64_t until_us = fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0)->until_us;
	ck_assert_uint_eq(until_us, one->op->began_us + one->op->core.params.ttl_us - one->op->core.params.drift_us);
	ck_assert_uint_lt(until_us, one->op->began_us + options.master_timeout_ms * UINT64_C(1000));
	answer_acquires(&held);
	give_up(one);
	ck_assert_uint_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, 0)->until_us, REDLOCK_NEVER);
}

/* ---- ends ---- */

TEST(a_wait_that_runs_out_gives_up_its_entry_everywhere)
{
	struct asked *one = ask("r", 300);
	answer_acquires(&held);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &held);
	size_t before = fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, false);
	while (fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, false) == before)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, true), 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, i)->token, "");
		ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, i)->entry + 33, " 0");
	}
	ck_assert(!one->answered);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &held);
	leases_dispatch(leases);
	ck_assert(one->answered);
	ck_assert_int_eq(one->answer.status, LEASE_LOCKED);
	ck_assert_uint_ge(one->answer.waited_ms, 300);
	ck_assert_mem_eq(one->answer.holder.owner, "holder", 6);
	ck_assert_uint_eq(waits(METRICS_WAIT_TIMEOUT), 1);
	ck_assert_uint_eq(decided_at_once(), 0);
	ck_assert_uint_eq(metrics_waiters(), 0);
}

/* The votes are decided at the moment at which the wait ends: the timer that fired for the votes must fire for the
 * wait, too. */
TEST(a_wait_as_long_as_a_master_may_take_ends_as_well)
{
	options.master_timeout_ms = 300;
	struct asked *one = ask("r", 300);
	(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_ACQUIRE, 0, 1, &granted);
	(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_ACQUIRE, 1, 1, &held);
	while (one->op->core.state != REDLOCK_LEAVING)
		uv_run(&loop, UV_RUN_ONCE);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &held);
	leases_dispatch(leases);
	ck_assert(one->answered);
	ck_assert_int_eq(one->answer.status, LEASE_LOCKED);
}

TEST(who_leaves_gives_up_its_entry_and_the_next_moves_up)
{
	struct asked *first = wait_for("r"), *second = wait_for("r");
	char entry[64];
	snprintf(entry, sizeof entry, FAKE_REPLICA ":%016llu 0", (unsigned long long)arrival_of(first));
	give_up(first);
	for (int i = 0; i < 3; i++)
		ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, i)->entry, entry);
	ck_assert_uint_eq(waits(METRICS_WAIT_CANCELLED), 1);
	ck_assert(!second->op->core.follows);
	leases_dispatch(leases);
	ck_assert(!first->answered);
}

/* A client that disconnects may have a grant under way: it is released, with the token. */
TEST(who_leaves_while_it_votes_releases_what_it_may_get)
{
	struct asked *one = wait_for("r");
	notify(one, "r");
	char token[LEASE_TOKEN_LEN + 1];
	strcpy(token, fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0)->token);
	give_up(one);
	for (int i = 0; i < 3; i++) {
		struct fake_command *release = fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, i);
		ck_assert_str_eq(release->token, token);
		ck_assert_str_eq(release->entry + 33, " 0");
	}
	answer_acquires(&granted);
	ck_assert(!one->answered);
	ck_assert_uint_eq(waits(METRICS_WAIT_CANCELLED), 1);
}

/* An entry on a master that is away is removed when it is back; where there cannot be one, nothing is pending. */
TEST(entries_on_masters_that_are_away_are_pending)
{
	masters.down = 1;
	struct asked *one = ask("r", 60000);
	answer_acquires(&held);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_RELEASE, &held);
	masters.down = 7;
	give_up(one);
	ck_assert_uint_eq(masters.pending_count, 2);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_uint_eq(masters.pending[i].master, i + 1);
		ck_assert_str_eq(masters.pending[i].entry + 33, " 0");
	}
}

/* ---- bounds ---- */

TEST(too_many_for_one_resource_are_told_so)
{
	for (int i = 0; i < 4; i++)
		wait_for("r");
	struct asked *fifth = ask("r", 60000);
	ck_assert_ptr_null(fifth->op->wait.entries);
	ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0)->entry, "");
	answer_acquires(&held);
	ck_assert_int_eq(fifth->answer.status, LEASE_TOO_MANY);
	wait_for("s"); /* another resource has room */
	give_up(&asked[2]);
	wait_for("r"); /* and this one has room again */
	struct asked *at_once = ask("r", 0);
	answer_acquires(&held);
	ck_assert_int_eq(at_once->answer.status, LEASE_LOCKED); /* it would not have waited */
}

TEST(too_many_in_all_are_told_so)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	for (int i = 0; i < 10; i++)
		wait_for(names[i % 4]);
	struct asked *one = ask("e", 60000);
	answer_acquires(&held);
	ck_assert_int_eq(one->answer.status, LEASE_TOO_MANY);
	ck_assert_uint_eq(metrics_waiters(), 10);
	one = ask("e", 60000); /* it is free, so the request does not wait */
	answer_acquires(&granted);
	ck_assert_int_eq(one->answer.status, LEASE_OK);
}

/* ---- the end of the service ---- */

TEST(draining_answers_all_who_wait_and_lets_nobody_in)
{
	struct asked *first = wait_for("r"), *second = wait_for("r"), *other = ask("s", 60000);
	leases_drain(leases);
	ck_assert(!masters.queue_open);
	ck_assert_uint_eq(metrics_waiters(), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_ge(fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, i, true), 3);
	answer_acquires(&granted); /* a late grant of the last one is released by then */
	for (size_t i = 0; i < 3; i++) {
		ck_assert(asked[i].answered);
		ck_assert_int_eq(asked[i].answer.status, LEASE_DRAINING);
		ck_assert_uint_eq(asked[i].answer.retry_after_ms, 1500);
	}
	struct asked *late = ask("t", 60000);
	leases_dispatch(leases);
	ck_assert_int_eq(late->answer.status, LEASE_DRAINING);
	ck_assert(!masters.queue_open);
	ck_assert(first->answered && second->answered && other->answered);
}
