/* SPDX-License-Identifier: MIT */
/* The length of a quarantine: the longest lease of any redlockd, its drift and 2 s, over one connection and under one
 * marker. See test_guard.c. */
#include "guard_cases.h"

/* ---- the quarantine ---- */

TEST(test_quarantine_to_the_microsecond)
{
	struct cases cases = cases_new(1, false);
	waits(&cases, 0);
	left(&cases, 0, QUARANTINE);
	pass(&cases, QUARANTINE - 1);
	left(&cases, 0, 1);
	wants(&cases, 0, GUARD_NOTHING);
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	pass(&cases, 1);
	left(&cases, 0, 0);
	struct guard_action action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	ck_assert_uint_eq(action.marker, MARKER(0));
	gets_epoch(&cases, 0);
	ck_assert_uint_eq(cases.guard.masters[0].epoch, MARKER(0)); /* the marker is the epoch now */
	wants(&cases, 0, GUARD_NOTHING);
}

/* It counts from the answer to QUARANTINE, not from its sending, or from the first sight of another redlockd's
 * marker. */
TEST(test_quarantine_counts_from_what_was_seen)
{
	struct cases cases = cases_new(3, false);
	quarantined(&cases, 0);
	left(&cases, 0, QUARANTINE);
	wants(&cases, 0, GUARD_QUARANTINE);
	cases.now_us += 3 * SECOND;
	TELL(&cases, 0, .kind = GUARD_QUARANTINED, .done = true, .marker = MARKER(0), .ttl_us = TTL);
	ck_assert_uint_eq(cases.guard.masters[0].since_us, cases.now_us);
	connects(&cases, 1, RUN(1));
	cases.now_us += SECOND;
	ANSWERS(&cases, 1, QUARANTINED_BY(MARKER(1), 1));
	left(&cases, 1, QUARANTINE);
	left(&cases, 0, QUARANTINE - SECOND);
}

#define QUARANTINE_OF(ttl) ((ttl) + (ttl) / 100 + MARGIN)

/* The leases of another cluster's master do not count, also when the master is out of reach again. */
TEST_EACH(test_ttl_of_a_rejected_master, 0, 2)
{
	struct cases cases = cases_new(4, false);
	votes(&cases, 2);
	votes(&cases, 3);
	connects(&cases, 1, RUN(1));
	for (int beats = 0; beats < 2; beats++) {
		ANSWERS(&cases, 1, .epoch = CERT(1), .epoch_run_id = RUN(1), .cluster = _i == 0 ? CLUSTER : CLUSTER + 1,
			.digest = _i == 0 ? DIGEST + 1 : DIGEST, .ttl_us = 50 * TTL);
		ck_assert_int_eq(cases.guard.masters[1].state, GUARD_REJECTED);
		ck_assert_uint_eq(guard_longest_us(&cases.guard), TTL);
	}
	loses(&cases, 1);
	ck_assert_uint_eq(guard_longest_us(&cases.guard), TTL);
}

TEST(test_longer_ttl_heard_when_the_wait_was_over)
{
	struct cases cases = cases_new(3, false);
	others_vote(&cases, 0);
	recoveries(&cases, 0);
	uint64_t began_us = cases.now_us - QUARANTINE;
	tells_fence(&cases, 1, 5);
	wants(&cases, 2, GUARD_SURVEY);
	TELL(&cases, 2, .kind = GUARD_FENCES, .done = true, .fence = 6, .ttl_us = 2 * TTL);
	wants(&cases, 0, GUARD_NOTHING);
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	/* the wait continues */
	ck_assert_uint_eq(cases.now_us + left_us(&cases, 0), began_us + QUARANTINE_OF(2 * TTL));
	pass(&cases, began_us + QUARANTINE_OF(2 * TTL) - cases.now_us);
	wants(&cases, 0, GUARD_NOTHING); /* and the fences are asked for again */
	tells_fence(&cases, 1, 50);
	tells_fence(&cases, 2, 60);
	struct guard_action action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	ck_assert_uint_eq(action.fence, 60);
	ck_assert_uint_eq(action.ttl_us, 2 * TTL);
}

TEST(test_only_one_unbroken_connection_counts)
{
	struct cases cases = cases_new(1, false);
	waits(&cases, 0);
	pass(&cases, QUARANTINE - 10);
	loses(&cases, 0);
	pass(&cases, 10 * SECOND);
	wants(&cases, 0, GUARD_NOTHING);
	connects(&cases, 0, RUN(0));
	wants(&cases, 0, GUARD_READ);
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0));
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	left(&cases, 0, QUARANTINE);
}

/* Heartbeats may be 5 s apart; after a longer gap the wait begins again. */
TEST(test_a_gap_begins_anew)
{
	struct cases cases = cases_new(1, false);
	waits(&cases, 0);
	pass(&cases, 30 * SECOND + 1);
	left(&cases, 0, QUARANTINE - 30 * SECOND - 1);
	cases.now_us += 5 * SECOND - 1;
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0));
	left(&cases, 0, QUARANTINE - 35 * SECOND);
	cases.now_us += 5 * SECOND + 1;
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0));
	left(&cases, 0, QUARANTINE);
}

/* Each quarantine has a wait of its own, also under the same marker. */
TEST(test_a_vote_ends_the_wait)
{
	struct cases cases = cases_new(1, false);
	waits(&cases, 0);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_WRITE_EPOCH);
	gets_epoch(&cases, 0);
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0));
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	left(&cases, 0, QUARANTINE);
}

/* ---- markers ---- */

TEST(test_a_lost_quarantine_is_read_again)
{
	struct cases cases = cases_new(3, false);
	quarantined(&cases, 0);
	wants(&cases, 0, GUARD_QUARANTINE);
	TELL(&cases, 0, .kind = GUARD_QUARANTINED, .done = false);
	is(&cases, 0, GUARD_ASKING, 0);
	wants(&cases, 0, GUARD_READ);
	ANSWERS(&cases, 0, FITS(0)); /* another redlockd had written its epoch */
	is(&cases, 0, GUARD_VOTING, 0);
}

/* Over one connection: nothing is known of the time in which it was not there, and it may be that of an image. */
TEST_EACH(test_a_marker_that_comes_back_begins_anew, 0, 3)
{
	enum { NOT_SENT, REFUSED, FAILED };
	struct cases cases = cases_new(3, false);
	waits(&cases, 0);
	pass(&cases, QUARANTINE / 2);
	ANSWERS(&cases, 0, NOTHING_AT_ALL);
	is(&cases, 0, GUARD_MARKING, GUARD_NO_EPOCH);
	if (_i != NOT_SENT)
		wants(&cases, 0, GUARD_QUARANTINE);
	if (_i == REFUSED)
		TELL(&cases, 0, .kind = GUARD_QUARANTINED, .done = false);
	else if (_i == FAILED)
		TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_QUARANTINE);
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0), .kept = true);
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	left(&cases, 0, QUARANTINE);
	ck_assert_int_eq(cases.guard.masters[0].memory, GUARD_MEMORY_LOST);
}
