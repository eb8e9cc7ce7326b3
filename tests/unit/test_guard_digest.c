/* SPDX-License-Identifier: MIT */
/* Masters whose hash another version of redlockd wrote, or one with another number of masters: left alone, and taken
 * over with --bootstrap alone. */
#include "guard_cases.h"

#define OTHER (DIGEST + 1)
#define STILL (3 * SECOND) /* nobody has counted a heartbeat there for so long */
#define FOREIGN(i) .epoch = CERT(i), .epoch_run_id = RUN(i), .cluster = CLUSTER, .digest = OTHER, .ttl_us = TTL

/* The answer of a hash of another version: only its own redlockd count heartbeats there. */
static void shows(struct cases *cases, unsigned i, struct guard_event event)
{
	event.kind = GUARD_EPOCH;
	tell(cases, i, event);
}

#define SHOWS(cases, i, ...) shows(cases, i, (struct guard_event){__VA_ARGS__})

/* It is read each second; nobody counts there. */
static void stands_still(struct cases *cases, unsigned i, uint64_t us)
{
	for (uint64_t end_us = cases->now_us + us; cases->now_us < end_us;) {
		cases->now_us += end_us - cases->now_us < SECOND ? end_us - cases->now_us : SECOND;
		SHOWS(cases, i, FOREIGN(i), .beat = 7);
	}
}

static void finds_foreign(struct cases *cases, unsigned i)
{
	connects(cases, i, RUN(i));
	wants(cases, i, GUARD_READ);
	SHOWS(cases, i, FOREIGN(i), .beat = 7);
	is(cases, i, GUARD_REJECTED, GUARD_OTHER_DIGEST);
}

/* ---- left alone ---- */

/* Whatever a hash of another version holds, and whatever its fields are called. */
TEST_EACH(test_compared_before_epoch_and_markers, 0, 8)
{
	const struct guard_event others[] = {
		{FOREIGN(0)},
		{.epoch = CERT(0), .epoch_run_id = 0x9999, .cluster = CLUSTER, .digest = OTHER},
		{.marker = MARKER(0), .marker_run_id = RUN(0), .cluster = CLUSTER, .digest = OTHER, .ttl_us = TTL},
		{.marker = MARKER(0), .marker_run_id = 0x9999, .digest = OTHER},
		{.epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = OTHER, .ttl_us = TTL},
		{.digest = OTHER},
		/* of a version that wrote no digest beside a marker */
		{.marker = MARKER(0), .marker_run_id = RUN(0), .ttl_us = TTL},
		{.epoch = CERT(0), .epoch_run_id = RUN(0)},
	};
	struct cases cases = cases_new(3, false);
	others_vote(&cases, 0);
	connects(&cases, 0, RUN(0));
	wants(&cases, 0, GUARD_READ);
	ck_assert_uint_eq(sizeof others / sizeof *others, 8);
	answers(&cases, 0, others[_i]);
	is(&cases, 0, GUARD_REJECTED, GUARD_OTHER_DIGEST);
	for (unsigned i = 0; i < 100; i++) {
		pass(&cases, 2 * SECOND);
		wants(&cases, 0, GUARD_NOTHING);
	}
	is(&cases, 0, GUARD_REJECTED, GUARD_OTHER_DIGEST);
	left(&cases, 0, 0);
	ck_assert(!guard_in_motion(&cases.guard, 0));
	ANSWERS(&cases, 0, FITS(0)); /* its address leads to the right one again */
	is(&cases, 0, GUARD_VOTING, 0);
}

/* ---- --bootstrap ---- */

TEST(test_bootstrap_takes_over)
{
	struct cases cases = cases_new(3, true);
	finds_foreign(&cases, 0);
	ck_assert(guard_in_motion(&cases.guard, 0));
	stands_still(&cases, 0, STILL - 1);
	wants(&cases, 0, GUARD_NOTHING);
	ck_assert(guard_in_motion(&cases.guard, 0));
	stands_still(&cases, 0, 1);
	struct guard_action action = wants(&cases, 0, GUARD_QUARANTINE);
	ck_assert(action.takes_over);
	ck_assert_uint_eq(action.digest, OTHER);
	ck_assert_uint_eq(action.epoch, CERT(0));
	ck_assert(action.marker != 0);
	ck_assert(!action.kept);
	is(&cases, 0, GUARD_MARKING, GUARD_OTHER_DIGEST);
}

/* Also if it runs only now and then. */
TEST(test_bootstrap_leaves_alone_what_is_in_use)
{
	struct cases cases = cases_new(3, true);
	finds_foreign(&cases, 0);
	for (unsigned k = 0; k < 100; k++) {
		cases.now_us += STILL - 1;
		SHOWS(&cases, 0, FOREIGN(0), .beat = 8 + k);
		wants(&cases, 0, GUARD_NOTHING);
		is(&cases, 0, GUARD_REJECTED, GUARD_OTHER_DIGEST);
		ck_assert(guard_other_runs(&cases.guard, 0));
		ck_assert(!guard_in_motion(&cases.guard, 0));
	}
	cases.now_us += STILL;
	SHOWS(&cases, 0, FOREIGN(0), .beat = 107);
	wants(&cases, 0, GUARD_QUARANTINE);
	ck_assert(!guard_other_runs(&cases.guard, 0));
}

/* Another hash than before has stood still for no time yet. */
TEST(test_bootstrap_watches_each_hash_anew)
{
	struct cases cases = cases_new(3, true);
	finds_foreign(&cases, 0);
	stands_still(&cases, 0, STILL - 1);
	SHOWS(&cases, 0, .epoch = CERT(0), .epoch_run_id = RUN(0), .digest = OTHER + 1, .beat = 7);
	stands_still(&cases, 0, STILL - 1);
	wants(&cases, 0, GUARD_NOTHING);
	connects(&cases, 0, RUN(0));
	wants(&cases, 0, GUARD_READ);
	SHOWS(&cases, 0, FOREIGN(0), .beat = 7);
	stands_still(&cases, 0, STILL - 1);
	wants(&cases, 0, GUARD_NOTHING);
	stands_still(&cases, 0, 1);
	wants(&cases, 0, GUARD_QUARANTINE);
}

/* A second redlockd with --bootstrap finds what the first has taken over: a cluster that is not new. */
TEST(test_a_second_bootstrap_waits_too)
{
	struct cases cases = cases_new(3, true);
	for (unsigned i = 0; i < 3; i++) {
		READS(&cases, i, QUARANTINED_BY(MARKER(i), i));
		is(&cases, i, GUARD_WAITING, GUARD_NO_EPOCH);
	}
	for (unsigned i = 0; i < 3; i++) {
		left(&cases, i, QUARANTINE);
		wants(&cases, i, GUARD_NOTHING);
	}
}

/* --bootstrap is about the start: where a master of ours has an epoch, the cluster is there already. */
TEST_EACH(test_bootstrap_takes_nothing_over_beside_a_master_of_ours, 0, 2)
{
	struct cases cases = cases_new(3, true);
	bool before = _i == 0;
	if (before)
		votes(&cases, 1);
	finds_foreign(&cases, 0);
	if (!before)
		votes(&cases, 1);
	ck_assert(!guard_in_motion(&cases.guard, 0));
	stands_still(&cases, 0, 20 * STILL);
	wants(&cases, 0, GUARD_NOTHING);
	is(&cases, 0, GUARD_REJECTED, GUARD_OTHER_DIGEST);
}
