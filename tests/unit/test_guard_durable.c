/* SPDX-License-Identifier: MIT */
/* Durable masters that restart: which of them keep their epoch and vote at once. See test_guard.c. */
#include "guard_cases.h"

#define NEW UINT64_C(0x7777) /* the run_id of master 0 after its restart */
#define OLD_EPOCH .epoch = CERT(0), .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST, .ttl_us = TTL

static struct cases durable_new(void)
{
	struct cases cases = cases_new(3, false);
	cases.guard.params.durable = true;
	return cases;
}

/* Under the epoch of another server the heartbeat is not counted. */
static void reads(struct cases *cases, uint64_t beat, bool kept)
{
	struct guard_event event = {OLD_EPOCH};
	event.epoch_run_id = kept ? NEW : RUN(0);
	cases->beats[0] = beat - 1;
	answers(cases, 0, event);
}

static struct cases restarted(void)
{
	struct cases cases = durable_new();
	votes(&cases, 0);
	pass(&cases, 10 * SECOND);
	loses(&cases, 0);
	connects(&cases, 0, NEW);
	wants(&cases, 0, GUARD_READ);
	return cases;
}

static void keeps(struct cases *cases)
{
	is(cases, 0, GUARD_ASKING, 0);
	ck_assert_uint_eq(wants(cases, 0, GUARD_READ).epoch, CERT(0));
	reads(cases, cases->beats[0] + 1, true);
	is(cases, 0, GUARD_VOTING, 0);
}

TEST(test_keeps_its_epoch)
{
	struct cases cases = restarted();
	reads(&cases, cases.beats[0], false);
	keeps(&cases);
	wants(&cases, 0, GUARD_NOTHING);
}

TEST(test_an_older_heartbeat)
{
	struct cases cases = restarted();
	reads(&cases, cases.beats[0] - 1, false);
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
	ck_assert(!wants(&cases, 0, GUARD_QUARANTINE).kept);
}

/* Another redlockd has let it keep its epoch, and had seen less. */
TEST(test_an_older_heartbeat_after_another_redlockd)
{
	struct cases cases = restarted();
	reads(&cases, cases.beats[0], true);
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
}

/* Other redlockd went on without this one: it does not know what the master was when it went down. */
TEST_EACH(test_cut_off_before_the_restart, 0, 2)
{
	struct cases cases = restarted();
	reads(&cases, cases.beats[0] + (_i == 0 ? 6 : 7), false);
	if (_i == 0) {
		keeps(&cases);
		return;
	}
	is(&cases, 0, GUARD_ASKING, 0);
	wants(&cases, 0, GUARD_NOTHING);
	cases.now_us += 3 * SECOND;
	reads(&cases, cases.beats[0], false);
	is(&cases, 0, GUARD_MARKING, GUARD_RESTARTED);
}

TEST(test_without_the_option)
{
	struct cases cases = restarted();
	cases.guard.params.durable = false;
	reads(&cases, cases.beats[0], false);
	is(&cases, 0, GUARD_MARKING, GUARD_RESTARTED);
}

TEST(test_weak_settings_while_it_votes)
{
	struct cases cases = durable_new();
	votes(&cases, 0);
	TELL(&cases, 0, .kind = GUARD_WEAKENED);
	is(&cases, 0, GUARD_MARKING, GUARD_NOT_DURABLE);
	ck_assert_uint_eq(wants(&cases, 0, GUARD_QUARANTINE).epoch, CERT(0));
}

/* ---- its clock ---- */

static void clock_shows(struct cases *cases, uint64_t ahead_us)
{
	guard_time(&cases->guard, 0, cases->now_us - 100, cases->now_us, cases->now_us + ahead_us);
}

static struct cases restarted_with_a_clock(uint64_t jump_us)
{
	struct cases cases = durable_new();
	votes(&cases, 0);
	clock_shows(&cases, 10 * SECOND);
	loses(&cases, 0);
	cases.now_us += 2 * SECOND;
	connects(&cases, 0, NEW);
	wants(&cases, 0, GUARD_READ);
	clock_shows(&cases, 10 * SECOND + jump_us);
	reads(&cases, cases.beats[0], false);
	return cases;
}

TEST(test_its_clock_jumped_forward)
{
	struct cases cases = restarted_with_a_clock(20 * MS);
	is(&cases, 0, GUARD_MARKING, GUARD_RESTARTED);
}

TEST(test_its_clock_did_not_jump)
{
	struct cases cases = restarted_with_a_clock(0);
	keeps(&cases);
}
