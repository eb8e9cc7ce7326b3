/* SPDX-License-Identifier: MIT */
/* A forced release: which tokens are inspected, released, and left alone. Masters A, B and C answer as a test says. */
#include "lease_queue_world.h"

#define TOKEN_1 "0123456789abcdef0123456789abcdef01234567"
#define TOKEN_2 "fedcba9876543210fedcba9876543210fedcba98"
#define TOKEN_3 "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbb"
#define LEASE_1 TOKEN_1 ":0:7::holder"

enum { A, B, C, N = FAKE_MASTERS };

/* fence 0: of any holder */
static struct asked *force_fence(uint64_t fence)
{
	struct lease_request request = {.operation = LEASE_FORCE, .resource_len = 1, .resource = "r", .fence = fence};
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	return one;
}

static struct asked *force(void)
{
	return force_fence(0);
}

/* ---- answers of the masters ---- */

static struct master_reply holds(const char *value)
{
	return (struct master_reply){.vote = REDLOCK_VOTE_HELD,
				     .time_us = 1,
				     .remaining_us = 20000000,
				     .value = value,
				     .value_len = value ? strlen(value) : 0};
}

static struct master_reply deleted(void)
{
	return (struct master_reply){
		.vote = REDLOCK_VOTE_GRANTED, .time_us = 1, .value = LEASE_1, .value_len = sizeof LEASE_1 - 1};
}

static struct master_reply gone(void)
{
	return (struct master_reply){.vote = REDLOCK_VOTE_GONE, .time_us = 1};
}

/* Answers the oldest open command of that kind to that master. */
static void say(int master, enum redlock_script script, struct master_reply reply)
{
	ck_assert_uint_eq(fake_masters_answer_some(&masters, script, master, 1, &reply), 1);
}

static void say_all(enum redlock_script script, struct master_reply reply)
{
	for (int i = 0; i < N; i++)
		say(i, script, reply);
}

static void look(struct master_reply a, struct master_reply b, struct master_reply c)
{
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_INSPECT, -1, true), N);
	say(A, REDLOCK_SCRIPT_INSPECT, a);
	say(B, REDLOCK_SCRIPT_INSPECT, b);
	say(C, REDLOCK_SCRIPT_INSPECT, c);
	leases_dispatch(leases);
}

static void released(struct master_reply a, struct master_reply b, struct master_reply c)
{
	say(A, REDLOCK_SCRIPT_RELEASE, a);
	say(B, REDLOCK_SCRIPT_RELEASE, b);
	say(C, REDLOCK_SCRIPT_RELEASE, c);
	leases_dispatch(leases);
}

/* Releases that were sent with that token. */
static size_t releases_of(const char *token)
{
	size_t count = 0;
	for (size_t i = 0; i < masters.command_count; i++)
		count += masters.commands[i].script == REDLOCK_SCRIPT_RELEASE &&
			 strcmp(masters.commands[i].token, token) == 0;
	return count;
}

static size_t releases(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, false);
}

static void check_answer(const struct asked *one, enum lease_status status)
{
	ck_assert(one->answered);
	ck_assert_int_eq(one->answer.status, status);
	ck_assert_int_eq(one->answer.token[0], '\0');
	ck_assert_uint_eq(leases_waiting(leases), 0);
	ck_assert_uint_eq(metrics_worker(0)->outcomes[LEASE_FORCE][status], 1);
}

/* ---- a lease ---- */

TEST(a_lease_is_released_with_its_token)
{
	struct asked *one = force();
	ck_assert_uint_eq(releases(), 0);
	look(holds(TOKEN_1 ":0:7::holder"), holds(TOKEN_1 ":5:9::holder"), gone());
	ck_assert(!one->answered);
	ck_assert_uint_eq(releases_of(TOKEN_1), N); /* also to C, which may have it by now */
	ck_assert_uint_eq(releases(), N);
	ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, C)->key, "r");
	released(deleted(), deleted(), gone());
	check_answer(one, LEASE_OK);
	ck_assert(one->answer.holder.known);
	ck_assert_uint_eq(one->answer.holder.fence, 9); /* the largest of all masters */
	ck_assert_uint_eq(one->answer.holder.owner_len, 6);
	ck_assert_mem_eq(one->answer.holder.owner, "holder", 6);
}

TEST(nobody_holds_it)
{
	struct asked *one = force();
	look(gone(), gone(), gone());
	check_answer(one, LEASE_EXPIRED);
	ck_assert_uint_eq(one->answer.votes.refused, N);
	ck_assert_uint_eq(one->answer.votes.granted, 0);
	ck_assert_uint_eq(releases(), 0);
}

/* Keys that redlockd did not write: another library's string, another type, our token in another format, and one with
 * too long an owner. */
TEST_EACH(what_is_not_ours_is_left_alone, 0, 5)
{
	static char long_owner[LEASE_TOKEN_LEN + 6 + LEASE_OWNER_MAX + 2] = TOKEN_1 ":0:7::";
	memset(long_owner + LEASE_TOKEN_LEN + 5, 'o', LEASE_OWNER_MAX + 1);
	const char *const values[] = {"redsync's", NULL, TOKEN_1, TOKEN_1 "::", long_owner};
	struct asked *one = force();
	look(holds(values[_i]), holds(values[_i]), gone());
	check_answer(one, LEASE_NOT_OWNER);
	ck_assert(!one->answer.holder.known);
	ck_assert_uint_eq(one->answer.votes.granted, 0);
	ck_assert_uint_eq(one->answer.votes.refused, N);
	ck_assert_uint_eq(releases(), 0);
}

/* ---- between the two steps ---- */

TEST(a_newcomer_is_not_harmed)
{
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	released(holds(TOKEN_2 ":0:8::next"), holds(TOKEN_2 ":0:8::next"), deleted());
	check_answer(one, LEASE_NOT_OWNER);
	ck_assert(one->answer.holder.known);
	ck_assert_uint_eq(one->answer.holder.fence, 8);
	ck_assert_mem_eq(one->answer.holder.owner, "next", 4);
	ck_assert_uint_eq(releases_of(TOKEN_2), 0);
}

TEST(the_masters_go_silent)
{
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	released(deleted(), lost, lost);
	check_answer(one, LEASE_NO_QUORUM);
	ck_assert(one->answer.holder.known); /* it may be released */
	ck_assert_uint_eq(masters.pending_count, 2);
	ck_assert_str_eq(masters.pending[1].token, TOKEN_1);
}

TEST(a_release_is_pending_for_a_master_that_is_away)
{
	masters.down = 1U << C;
	struct asked *one = force();
	say(A, REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	say(B, REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	leases_dispatch(leases);
	say(A, REDLOCK_SCRIPT_RELEASE, deleted());
	say(B, REDLOCK_SCRIPT_RELEASE, deleted());
	leases_dispatch(leases);
	check_answer(one, LEASE_OK);
	ck_assert_uint_eq(masters.pending_count, 1);
	ck_assert_uint_eq(masters.pending[0].master, C);
	ck_assert_str_eq(masters.pending[0].token, TOKEN_1);
}

/* ---- what may be a lease ---- */

/* Each master gives one of these answers, in all combinations. The test counts by itself what may be a lease. */
enum { FREE, ONE, TWO, FOREIGN, AWAY, SAYINGS };

static struct master_reply saying(int what)
{
	return what == FREE ? gone() : holds(what == ONE ? LEASE_1 : what == TWO ? TOKEN_2 ":0:8::other" : "redsync's");
}

static unsigned count(const int says[N], int what)
{
	unsigned masters_with = 0;
	for (int i = 0; i < N; i++)
		masters_with += says[i] == what;
	return masters_with;
}

TEST_EACH(every_combination_of_holders, 0, SAYINGS *SAYINGS *SAYINGS)
{
	const int says[N] = {_i % SAYINGS, _i / SAYINGS % SAYINGS, _i / SAYINGS / SAYINGS};
	unsigned away = count(says, AWAY), one_may = count(says, ONE), two_may = count(says, TWO),
		 foreign_may = count(says, FOREIGN);
	for (int i = 0; i < N; i++)
		masters.down |= says[i] == AWAY ? 1U << i : 0;
	struct asked *asker = force();
	for (int i = 0; i < N; i++)
		if (says[i] != AWAY)
			say(i, REDLOCK_SCRIPT_INSPECT, saying(says[i]));
	leases_dispatch(leases);
	bool quorum = away <= 1, one = quorum && one_may > 0 && one_may + away >= 2,
	     two = quorum && two_may > 0 && two_may + away >= 2;
	bool foreign = !one && !two && foreign_may > 0 && foreign_may + away >= 2;
	ck_assert_uint_eq(releases_of(TOKEN_1), one ? N - away : 0);
	ck_assert_uint_eq(releases_of(TOKEN_2), two ? N - away : 0);
	ck_assert_uint_eq(releases(), releases_of(TOKEN_1) + releases_of(TOKEN_2));
	ck_assert_int_eq(asker->answered, !one && !two);
	if (asker->answered)
		ck_assert_int_eq(asker->answer.status, !quorum   ? LEASE_NO_QUORUM
						       : foreign ? LEASE_NOT_OWNER
								 : LEASE_EXPIRED);
	else
		give_up(asker);
}

/* ---- a fence is given ---- */

/* Its largest number counts: a RAISE may not have reached all masters. */
TEST(the_holder_with_that_fence_is_released)
{
	struct asked *one = force_fence(9);
	look(holds(LEASE_1), holds(TOKEN_1 ":0:9::holder"), gone());
	ck_assert_uint_eq(releases_of(TOKEN_1), N);
	released(deleted(), deleted(), gone());
	check_answer(one, LEASE_OK);
	ck_assert_uint_eq(one->answer.holder.fence, 9);
}

/* Either of two may be the lease: only the one that is meant is released. */
TEST(of_two_that_may_be_a_lease_the_other_stays)
{
	masters.down = 1U << C;
	struct asked *one = force_fence(8);
	say(A, REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	say(B, REDLOCK_SCRIPT_INSPECT, holds(TOKEN_2 ":0:8::other"));
	leases_dispatch(leases);
	ck_assert_uint_eq(releases_of(TOKEN_2), 2);
	ck_assert_uint_eq(releases(), 2);
	give_up(one);
}

/* ---- given up, draining, ending ---- */

/* The caller gives up during the inspection, after it, and after the release: there is no answer. Releases that were
 * sent are carried out, and nothing more is sent. */
enum { DURING_LOOK, AFTER_LOOK, AFTER_RELEASE, STEPS };

TEST_EACH(given_up_at_a_step, 0, STEPS)
{
	struct asked *one = force();
	if (_i == AFTER_RELEASE)
		look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	if (_i == AFTER_LOOK)
		say_all(REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	if (_i == AFTER_RELEASE)
		say_all(REDLOCK_SCRIPT_RELEASE, deleted());
	give_up(one);
	if (_i == DURING_LOOK)
		say_all(REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	leases_dispatch(leases);
	ck_assert(!one->answered);
	ck_assert_uint_eq(releases(), _i == DURING_LOOK ? 0 : N);
	ck_assert_uint_eq(leases_waiting(leases), _i == AFTER_LOOK);
}

TEST(a_drain_lets_it_go_on)
{
	leases_drain(leases);
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	released(deleted(), deleted(), deleted());
	check_answer(one, LEASE_OK);
}

/* Two at once: the second one finds that the lease is gone. */
TEST(two_at_once)
{
	struct asked *one = force(), *two = force();
	say_all(REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	say_all(REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	leases_dispatch(leases);
	ck_assert_uint_eq(releases_of(TOKEN_1), 2 * N);
	released(deleted(), deleted(), deleted());
	released(gone(), gone(), gone());
	check_answer(one, LEASE_OK);
	check_answer(two, LEASE_EXPIRED);
}
