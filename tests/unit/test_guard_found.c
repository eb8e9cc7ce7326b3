/* SPDX-License-Identifier: MIT */
/* Hazards that the restart guard finds: dropped keys, an older image of the machine, masters of another cluster. See
 * test_guard.c. */
#include "guard_cases.h"

/* ---- a server that was replaced, and is back ---- */

#define NEW_SERVER UINT64_C(0x7777)

static void replaces(struct cases *cases, unsigned i, uint64_t run_id)
{
	loses(cases, i);
	cases->beats[i] = 0;
	connects(cases, i, run_id);
	ANSWERS(cases, i, .epoch = CERT(i) + 0x100, .epoch_run_id = run_id, .cluster = CLUSTER, .digest = DIGEST);
	is(cases, i, GUARD_VOTING, 0);
}

/* It has served its quarantine, and its connection may break as any other. */
TEST(test_once_is_enough)
{
	struct cases cases = cases_new(1, false);
	votes(&cases, 0);
	replaces(&cases, 0, NEW_SERVER);
	loses(&cases, 0);
	READS(&cases, 0, FITS(0));
	struct guard_action action = wants(&cases, 0, GUARD_QUARANTINE);
	TELL(&cases, 0, .kind = GUARD_QUARANTINED, .done = true, .marker = action.marker, .ttl_us = TTL);
	cases.answers[0] = (struct guard_event){QUARANTINED_BY(action.marker, 0)};
	is(&cases, 0, GUARD_WAITING, GUARD_ROLLED_BACK);
	pass(&cases, QUARANTINE + 3 * SECOND);
	action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	gets_epoch(&cases, 0);
	for (unsigned i = 0; i < 2; i++) {
		is(&cases, 0, GUARD_VOTING, 0);
		loses(&cases, 0);
		READS(&cases, 0, .epoch = action.marker, .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST);
	}
	is(&cases, 0, GUARD_VOTING, 0);
}

/* One that is rejected never votes, here or elsewhere, so nothing is missed. */
TEST(test_the_other_one_was_rejected)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	votes(&cases, 1);
	votes(&cases, 2);
	loses(&cases, 0);
	cases.beats[0] = 0;
	connects(&cases, 0, NEW_SERVER);
	ANSWERS(&cases, 0, .epoch = 5, .epoch_run_id = NEW_SERVER, .cluster = CLUSTER + 1, .digest = DIGEST);
	is(&cases, 0, GUARD_REJECTED, GUARD_OTHER_CLUSTER);
	loses(&cases, 0);
	READS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_VOTING, 0);
}

/* Those of before are forgotten in turn, not those that were replaced last. */
TEST(test_many_restarts)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	for (uint64_t i = 0; i < 3 * GUARD_FORMER_MAX; i++)
		replaces(&cases, 0, NEW_SERVER + i);
	loses(&cases, 0);
	cases.beats[0] = 0;
	connects(&cases, 0, NEW_SERVER + 2 * GUARD_FORMER_MAX);
	ANSWERS(&cases, 0, .epoch = CERT(0), .epoch_run_id = NEW_SERVER + 2 * GUARD_FORMER_MAX, .cluster = CLUSTER,
		.digest = DIGEST);
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
}

/* ---- an older image of the machine ---- */

TEST(test_rolled_back_by_client_id)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	loses(&cases, 0);
	/* as before: not newer */
	TELL(&cases, 0, .kind = GUARD_CONNECTED, .run_id = RUN(0), .client_id = cases.client_id);
	ANSWERS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
	struct guard_action action = wants(&cases, 0, GUARD_QUARANTINE);
	ck_assert(!action.kept);
	ck_assert_uint_eq(action.epoch, CERT(0));
	loses(&cases, 0); /* before the answer: it is remembered */
	READS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
}

TEST_EACH(test_rolled_back_by_beat, 0, 5)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	pass(&cases, 10 * SECOND);
	is(&cases, 0, GUARD_VOTING, 0);
	cases.beats[0] -= 1 + (unsigned)_i; /* the same again, or less */
	ANSWERS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
	ck_assert(!wants(&cases, 0, GUARD_QUARANTINE).kept);
}

/* Its hash was lost with the count of heartbeats; on the next connection an image from before the loss is back. */
TEST(test_epoch_that_was_gone_comes_back)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	pass(&cases, 10 * SECOND);
	cases.beats[0] = 0;
	ANSWERS(&cases, 0, NOTHING_AT_ALL);
	is(&cases, 0, GUARD_MARKING, GUARD_BAD_EPOCH);
	loses(&cases, 0);
	cases.beats[0] = 7;
	READS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
}

TEST(test_rolled_back_while_write_epoch_is_under_way)
{
	struct cases cases = cases_new(1, false);
	READS(&cases, 0, QUARANTINED_BY(MARKER(0), 0));
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_WRITE_EPOCH);
	cases.beats[0] -= 5;
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0));
	TELL(&cases, 0, .kind = GUARD_EPOCH_WRITTEN, .done = true);
	ANSWERS(&cases, 0, .epoch = MARKER(0), .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST);
	is(&cases, 0, GUARD_MARKING, GUARD_ROLLED_BACK);
}

/* Another redlockd found that buckets are lost, and its marker says so. */
TEST(test_what_another_found_is_taken_over)
{
	struct cases cases = cases_new(3, false);
	READS(&cases, 0, QUARANTINED_BY(MARKER(0), 0), .kept = true);
	pass(&cases, 20 * SECOND);
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0), .kept = false);
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	/* the same quarantine */
	left(&cases, 0, QUARANTINE - 20 * SECOND);
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0), .kept = true);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_NOTHING); /* others must tell */
}

/* ---- other settings, another cluster ---- */

static void votes_in(struct cases *cases, unsigned i, uint64_t cluster)
{
	connects(cases, i, RUN(i));
	ANSWERS(cases, i, .epoch = CERT(i), .epoch_run_id = RUN(i), .cluster = cluster, .digest = DIGEST,
		.ttl_us = TTL);
}

/* The majority decides which cluster is the other one, at once, in every order of reading. */
TEST_EACH(test_another_cluster, 0, 6)
{
	static const unsigned orders[][3] = {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}};
	struct cases cases = cases_new(3, false);
	for (unsigned k = 0; k < 3; k++) {
		unsigned i = orders[_i / 2][k];
		votes_in(&cases, i, i != 0 ? CLUSTER : _i % 2 == 0 ? CLUSTER + 1 : CLUSTER - 1);
	}
	for (unsigned i = 0; i < 3; i++) /* the master that was rejected first is asked again */
		if (next(&cases, i).kind == GUARD_READ)
			answers(&cases, i, cases.answers[i]);
	is(&cases, 0, GUARD_REJECTED, GUARD_OTHER_CLUSTER);
	is(&cases, 1, GUARD_VOTING, 0);
	is(&cases, 2, GUARD_VOTING, 0);
	for (unsigned i = 0; i < 100; i++) {
		pass(&cases, 2 * SECOND);
		wants(&cases, 0, GUARD_NOTHING);
	}
	ANSWERS(&cases, 0, FITS(0)); /* its address leads to the right one again */
	is(&cases, 0, GUARD_VOTING, 0);
}

/* All memory was lost, and two redlockd that saw different masters made two ids: the minority is quarantined again
 * instead of rejected. */
TEST_EACH(test_two_ids_of_one_cluster, 0, 2)
{
	uint64_t clocked_us = 5 * START; /* by the masters' clocks, which are 4 * START ahead of ours */
	struct cases cases = cases_new(3, false);
	for (unsigned i = 0; i < 3; i++) {
		bool first = i == 0, old = first && _i == 1;
		connects(&cases, i, RUN(i));
		guard_time(&cases.guard, i, cases.now_us, cases.now_us + 100, 4 * START + cases.now_us);
		cases.now_us += 1000;
		ANSWERS(&cases, i, .epoch = CERT(i), .epoch_run_id = RUN(i), .cluster = first ? CLUSTER + 1 : CLUSTER,
			.digest = DIGEST, .ttl_us = TTL,
			.clocked_us = clocked_us - (first ? 2 * SECOND : 0) - (old ? 21 * QUARANTINE : 0));
	}
	ANSWERS(&cases, 0, .epoch = CERT(0), .epoch_run_id = RUN(0), .cluster = CLUSTER + 1, .digest = DIGEST,
		.clocked_us = clocked_us - 2 * SECOND - (_i == 1 ? 21 * QUARANTINE : 0));
	if (_i == 1) {
		is(&cases, 0, GUARD_REJECTED, GUARD_OTHER_CLUSTER);
		wants(&cases, 0, GUARD_NOTHING);
		return;
	}
	is(&cases, 0, GUARD_MARKING, GUARD_OTHER_CLUSTER);
	struct guard_action action = wants(&cases, 0, GUARD_QUARANTINE);
	ck_assert_uint_eq(action.epoch, CERT(0));
	ck_assert(!action.kept);
	is(&cases, 1, GUARD_VOTING, 0);
	is(&cases, 2, GUARD_VOTING, 0);
}
