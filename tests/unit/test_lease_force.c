/* A forced release: which tokens are inspected, released, and left alone. Masters A, B and C answer as a test says. */
#include "lease_queue_world.h"

#define TOKEN_1 "0123456789abcdef0123456789abcdef01234567"
#define TOKEN_2 "fedcba9876543210fedcba9876543210fedcba98"
#define TOKEN_3 "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbb"
#define LEASE_1 TOKEN_1 ":0:7:holder"

enum { A, B, C, N = FAKE_MASTERS };

static struct asked *force(void)
{
	struct lease_request request = {.operation = LEASE_FORCE, .resource_len = 1, .resource = "r"};
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	ck_assert_ptr_nonnull(one->op);
	return one;
}

/* ---- what the masters say ---- */

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

/* The oldest open command of that kind to that master is answered. */
static void say(int master, enum redlock_script script, struct master_reply reply)
{
	for (size_t i = 0; i < masters.command_count; i++) {
		struct fake_command *command = &masters.commands[i];
		if (!command->open || command->script != script || command->master != master)
			continue;
		command->open = false;
		command->reply(command->arg, &reply);
		return;
	}
	ck_abort_msg("nothing is asked of master %d", master);
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

static size_t looks(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_INSPECT, A, false);
}

static void check_answer(const struct asked *one, enum lease_status status)
{
	ck_assert(one->answered);
	ck_assert_int_eq(one->answer.status, status);
	ck_assert_int_eq(one->answer.token[0], '\0');
	ck_assert_uint_eq(leases_waiting(leases), 0);
	ck_assert_uint_eq(metrics_worker(0)->outcomes[LEASE_FORCE][status], 1);
}

/* Runs the loop until the pause is over and the masters are asked again. */
static void pause_over(void)
{
	ck_assert_uint_eq(looks(), 1);
	ck_assert_uint_eq(releases(), 0);
	while (looks() < 2)
		ck_assert_int_ne(uv_run(&loop, UV_RUN_ONCE), 0);
}

static void set_short_pause(void)
{
	options.master_timeout_ms = 1; /* no timer runs out but the pause's: the loop runs at no other time */
}

/* ---- a lease ---- */

START_TEST(a_lease_is_released_with_its_token)
{
	struct asked *one = force();
	ck_assert_uint_eq(releases(), 0);
	look(holds(TOKEN_1 ":0:7:holder"), holds(TOKEN_1 ":5:9:holder"), gone());
	ck_assert(!one->answered);
	ck_assert_uint_eq(releases_of(TOKEN_1), N); /* also where nothing was seen: it may have come since */
	ck_assert_uint_eq(releases(), N);
	ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_RELEASE, C)->key, "r");
	released(deleted(), deleted(), gone());
	check_answer(one, LEASE_OK);
	ck_assert(one->answer.holder.known);
	ck_assert_uint_eq(one->answer.holder.fence, 9); /* the largest that a master told */
	ck_assert_uint_eq(one->answer.holder.owner_len, 6);
	ck_assert_mem_eq(one->answer.holder.owner, "holder", 6);
}
END_TEST

START_TEST(nobody_holds_it)
{
	struct asked *one = force();
	look(gone(), gone(), gone());
	check_answer(one, LEASE_EXPIRED);
	ck_assert_uint_eq(one->answer.votes.refused, N);
	ck_assert_uint_eq(one->answer.votes.granted, 0);
	ck_assert_uint_eq(releases(), 0);
}
END_TEST

/* Keys that redlockd did not write: another library's string, another type, our token in another format, and one with
 * too long an owner. */
START_TEST(what_is_not_ours_is_left_alone)
{
	static char long_owner[LEASE_TOKEN_LEN + 5 + LEASE_OWNER_MAX + 2] = TOKEN_1 ":0:7:";
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
END_TEST

START_TEST(too_few_say_who_holds_it)
{
	masters.down = 1U << A | 1U << B;
	struct asked *one = force();
	say(C, REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	leases_dispatch(leases);
	check_answer(one, LEASE_NO_QUORUM);
	ck_assert_uint_eq(one->answer.votes.failed, 2);
	ck_assert_uint_eq(releases(), 0);
}
END_TEST

/* ---- between the two steps ---- */

START_TEST(a_newcomer_is_not_harmed)
{
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	released(holds(TOKEN_2 ":0:8:next"), holds(TOKEN_2 ":0:8:next"), deleted());
	check_answer(one, LEASE_NOT_OWNER);
	ck_assert(one->answer.holder.known);
	ck_assert_uint_eq(one->answer.holder.fence, 8);
	ck_assert_mem_eq(one->answer.holder.owner, "next", 4);
	ck_assert_uint_eq(releases_of(TOKEN_2), 0);
}
END_TEST

START_TEST(its_time_was_up)
{
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	released(gone(), gone(), gone());
	check_answer(one, LEASE_EXPIRED);
}
END_TEST

START_TEST(the_masters_go_silent)
{
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	released(deleted(), lost, lost);
	check_answer(one, LEASE_NO_QUORUM);
	ck_assert(one->answer.holder.known); /* it may be released */
	ck_assert_uint_eq(masters.pending_count, 2);
	ck_assert_str_eq(masters.pending[1].token, TOKEN_1);
}
END_TEST

START_TEST(a_release_is_pending_for_a_master_that_is_away)
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
END_TEST

/* ---- what may be a lease ---- */

/* On one master; another one is away and may hold it too. */
START_TEST(what_may_be_a_lease_is_released)
{
	masters.down = 1U << C;
	struct asked *one = force();
	say(A, REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	say(B, REDLOCK_SCRIPT_INSPECT, gone());
	leases_dispatch(leases);
	say(A, REDLOCK_SCRIPT_RELEASE, deleted());
	say(B, REDLOCK_SCRIPT_RELEASE, gone());
	leases_dispatch(leases);
	check_answer(one, LEASE_OK);
}
END_TEST

/* Either of two may be the lease. */
START_TEST(all_that_may_be_a_lease_are_released)
{
	masters.quarantined = 1U << C;
	struct asked *one = force();
	say(A, REDLOCK_SCRIPT_INSPECT, holds(LEASE_1));
	say(B, REDLOCK_SCRIPT_INSPECT, holds(TOKEN_2 ":0:8:other"));
	leases_dispatch(leases);
	ck_assert_uint_eq(releases_of(TOKEN_1), 2);
	ck_assert_uint_eq(releases_of(TOKEN_2), 2);
	say(A, REDLOCK_SCRIPT_RELEASE, deleted());
	say(B, REDLOCK_SCRIPT_RELEASE, holds(TOKEN_2 ":0:8:other"));
	leases_dispatch(leases);
	ck_assert(!one->answered); /* the other one is still to be told */
	say(A, REDLOCK_SCRIPT_RELEASE, gone());
	say(B, REDLOCK_SCRIPT_RELEASE, deleted());
	leases_dispatch(leases);
	check_answer(one, LEASE_OK);
}
END_TEST

/* Each master says one of these, in all combinations. What is released is counted anew here, over all three. */
enum { FREE, ONE, TWO, FOREIGN, AWAY, SAYINGS };

static struct master_reply saying(int what)
{
	return what == FREE ? gone() : holds(what == ONE ? LEASE_1 : what == TWO ? TOKEN_2 ":0:8:other" : "redsync's");
}

static unsigned count(const int says[N], int what)
{
	unsigned masters_with = 0;
	for (int i = 0; i < N; i++)
		masters_with += says[i] == what;
	return masters_with;
}

START_TEST(every_combination_of_holders)
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
	bool left_over = quorum && !one && !two && !foreign && one_may + two_may > 0;
	ck_assert_int_eq(asker->answered, !one && !two && !left_over);
	if (asker->answered)
		ck_assert_int_eq(asker->answer.status, !quorum   ? LEASE_NO_QUORUM
						       : foreign ? LEASE_NOT_OWNER
								 : LEASE_EXPIRED);
	else
		give_up(asker);
}
END_TEST

/* ---- left-overs ---- */

START_TEST(a_left_over_is_released_after_a_second_look)
{
	set_short_pause();
	struct asked *one = force();
	look(gone(), holds(LEASE_1), gone());
	uint64_t began_us = clock_now_us();
	ck_assert(!one->answered);
	pause_over();
	ck_assert_uint_ge(clock_now_us() - began_us, 2 * options.master_timeout_ms * UINT64_C(1000));
	look(gone(), holds(LEASE_1), gone());
	ck_assert_uint_eq(releases_of(TOKEN_1), N);
	released(gone(), deleted(), gone());
	check_answer(one, LEASE_OK); /* there was something, and it is gone: not "nobody holds it" */
	ck_assert_uint_eq(one->answer.holder.fence, 7);
}
END_TEST

/* Three masters, three tokens: nobody can get a majority while they are there. */
START_TEST(left_overs_that_keep_all_out_are_all_released)
{
	set_short_pause();
	struct asked *one = force();
	const struct master_reply a = holds(LEASE_1), b = holds(TOKEN_2 ":0:8:"), c = holds(TOKEN_3 ":0:9:");
	look(a, b, c);
	pause_over();
	look(a, b, c);
	ck_assert_uint_eq(releases(), 9);
	released(deleted(), b, c);
	released(gone(), deleted(), c);
	released(gone(), gone(), deleted());
	check_answer(one, LEASE_OK);
}
END_TEST

/* The first look saw an attempt under way: it became a lease, or others came since. Nobody held it when it was
 * asked. */
START_TEST(attempts_are_left_alone)
{
	set_short_pause();
	struct asked *one = force();
	look(holds(LEASE_1), _i == 0 ? holds(TOKEN_2 ":0:8:") : gone(), gone());
	pause_over();
	if (_i == 0)
		look(holds(LEASE_1), holds(LEASE_1), gone());
	else
		look(holds(TOKEN_2 ":0:8:"), holds(TOKEN_3 ":0:9:"), gone());
	check_answer(one, LEASE_EXPIRED);
	ck_assert_uint_eq(releases(), 0);
}
END_TEST

START_TEST(only_what_both_looks_saw_is_a_left_over)
{
	set_short_pause();
	struct asked *one = force();
	look(gone(), holds(TOKEN_2 ":0:8:"), holds(TOKEN_3 ":0:9:"));
	pause_over();
	look(holds(LEASE_1), gone(), holds(TOKEN_3 ":0:9:"));
	ck_assert_uint_eq(releases_of(TOKEN_3), N);
	ck_assert_uint_eq(releases(), N);
	released(holds(LEASE_1), gone(), deleted());
	check_answer(one, LEASE_OK);
	ck_assert_uint_eq(one->answer.holder.fence, 9);
}
END_TEST

/* ---- given up, draining, ending ---- */

/* The caller gives up during the look, after it, and after the release: there is no answer, and nothing more is
 * sent. */
enum { DURING_LOOK, AFTER_LOOK, AFTER_RELEASE, STEPS };

START_TEST(given_up_at_a_step)
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
	ck_assert_uint_eq(releases(), _i == AFTER_RELEASE ? N : 0);
	ck_assert_uint_eq(leases_waiting(leases), 0);
}
END_TEST

START_TEST(given_up_during_the_pause)
{
	set_short_pause();
	struct asked *one = force();
	look(holds(LEASE_1), gone(), gone());
	give_up(one);
	ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0); /* no timer is left */
	ck_assert_uint_eq(looks(), 1);
	ck_assert_uint_eq(leases_waiting(leases), 0);
}
END_TEST

/* The releases are under way: they are carried out, and become pending where they were lost. */
START_TEST(given_up_during_the_release)
{
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	give_up(one);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_RELEASE, -1, true), N);
	released(deleted(), deleted(), lost);
	ck_assert(!one->answered);
	ck_assert_uint_eq(masters.pending_count, 1);
	ck_assert_uint_eq(leases_waiting(leases), 0);
	struct asked *next = force(); /* what it used is used again */
	look(gone(), gone(), gone());
	check_answer(next, LEASE_EXPIRED);
}
END_TEST

START_TEST(a_drain_lets_it_go_on)
{
	leases_drain(leases);
	struct asked *one = force();
	look(holds(LEASE_1), holds(LEASE_1), holds(LEASE_1));
	released(deleted(), deleted(), deleted());
	check_answer(one, LEASE_OK);
}
END_TEST

/* Two at once: the second one finds that the first one was there. */
START_TEST(two_at_once)
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
END_TEST

static void add_all(TCase *tests)
{
	tcase_add_test(tests, a_lease_is_released_with_its_token);
	tcase_add_test(tests, nobody_holds_it);
	tcase_add_loop_test(tests, what_is_not_ours_is_left_alone, 0, 5);
	tcase_add_test(tests, too_few_say_who_holds_it);
	tcase_add_test(tests, a_newcomer_is_not_harmed);
	tcase_add_test(tests, its_time_was_up);
	tcase_add_test(tests, the_masters_go_silent);
	tcase_add_test(tests, a_release_is_pending_for_a_master_that_is_away);
	tcase_add_test(tests, what_may_be_a_lease_is_released);
	tcase_add_test(tests, all_that_may_be_a_lease_are_released);
	tcase_add_loop_test(tests, every_combination_of_holders, 0, SAYINGS * SAYINGS * SAYINGS);
	tcase_add_test(tests, a_left_over_is_released_after_a_second_look);
	tcase_add_test(tests, left_overs_that_keep_all_out_are_all_released);
	tcase_add_loop_test(tests, attempts_are_left_alone, 0, 2);
	tcase_add_test(tests, only_what_both_looks_saw_is_a_left_over);
	tcase_add_loop_test(tests, given_up_at_a_step, 0, STEPS);
	tcase_add_test(tests, given_up_during_the_pause);
	tcase_add_test(tests, given_up_during_the_release);
	tcase_add_test(tests, a_drain_lets_it_go_on);
	tcase_add_test(tests, two_at_once);
}

int main(void)
{
	return run_suite("lease_force", add_all);
}
