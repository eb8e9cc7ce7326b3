/* SPDX-License-Identifier: MIT */
/* Fence recovery: a master votes again with the fences of N−Q+1 others, or with clocks where fewer remember. See
 * test_guard.c. */
#include "guard_cases.h"

static unsigned needed(unsigned masters)
{
	return masters - redlock_majority((uint8_t)masters) + 1U;
}

/* ---- fences of others ---- */

/* N = 3: 2, N = 5: 3, … The first that tell count, and of their fences the largest. */
TEST_EACH(test_the_largest_fence_of_enough_others, 3, REDLOCK_MASTERS_MAX + 1)
{
	unsigned masters = (unsigned)_i;
	struct cases cases = cases_new(masters, false);
	others_vote(&cases, 0);
	waits(&cases, 0);
	for (unsigned i = 1; i < masters; i++)
		wants(&cases, i, GUARD_NOTHING); /* not before the wait is over */
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_NOTHING);
	for (unsigned told = 0; told < needed(masters); told++) {
		is(&cases, 0, GUARD_RECOVERING, GUARD_NO_EPOCH);
		ck_assert_uint_eq(guard_fences_missing(&cases.guard, 0), needed(masters) - told);
		wants(&cases, 0, GUARD_NOTHING);
		tells_fence(&cases, masters - 1 - told, 100 - told);
	}
	ck_assert_uint_eq(guard_fences_missing(&cases.guard, 0), 0);
	struct guard_action action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	is(&cases, 0, GUARD_WRITING_EPOCH, GUARD_NO_EPOCH);
	ck_assert_uint_eq(action.fence, 100);
	ck_assert(!action.clocked);
	ck_assert_uint_eq(action.cluster, CLUSTER);
	ck_assert_uint_eq(action.ttl_us, TTL);
	ck_assert_uint_eq(action.marker, MARKER(0));
}

static void tells_slice(struct cases *cases, unsigned j, unsigned slice, uint64_t fence)
{
	ck_assert_uint_eq(wants(cases, j, GUARD_SURVEY).slice, slice);
	TELL(cases, j, .kind = GUARD_FENCES, .done = true, .fence = fence, .ttl_us = TTL);
}

/* All slices must be read after the wait and under one epoch, or the survey begins again. */
TEST_EACH(test_fences_in_slices, 0, 5)
{
	struct cases cases = cases_new(3, false);
	cases.guard.params.slices = 3;
	others_vote(&cases, 0);
	recoveries(&cases, 0);
	tells_slice(&cases, 1, 0, 5);
	tells_slice(&cases, 1, 1, 70);
	ck_assert_uint_eq(guard_fences_missing(&cases.guard, 0), 2);
	tells_slice(&cases, 1, 2, 6);
	ck_assert_uint_eq(guard_fences_missing(&cases.guard, 0), 1);
	wants(&cases, 1, GUARD_NOTHING);
	tells_slice(&cases, 2, 0, 300);
	if (_i == 1) { /* its memory is gone */
		ck_assert_uint_eq(wants(&cases, 2, GUARD_SURVEY).slice, 1);
		TELL(&cases, 2, .kind = GUARD_FENCES, .done = false);
		ANSWERS(&cases, 2, .epoch = 77, .epoch_run_id = RUN(2), .cluster = CLUSTER, .digest = DIGEST,
			.ttl_us = TTL);
	} else if (_i == 2) { /* the same, found by the heartbeat */
		ANSWERS(&cases, 2, .epoch = 77, .epoch_run_id = RUN(2), .cluster = CLUSTER, .digest = DIGEST,
			.ttl_us = TTL);
	} else if (_i == 3) { /* another connection */
		loses(&cases, 2);
		votes(&cases, 2);
	} else if (_i == 4) { /* an error: it continues with the same slice */
		ck_assert_uint_eq(wants(&cases, 2, GUARD_SURVEY).slice, 1);
		TELL(&cases, 2, .kind = GUARD_FAILED, .action = GUARD_SURVEY);
		pass(&cases, 2 * SECOND);
	}
	bool anew = _i >= 1 && _i <= 3;
	if (anew)
		tells_slice(&cases, 2, 0, 10);
	tells_slice(&cases, 2, 1, 20);
	wants(&cases, 0, GUARD_NOTHING);
	tells_slice(&cases, 2, 2, 30);
	ck_assert_uint_eq(wants(&cases, 0, GUARD_WRITE_EPOCH).fence, anew ? 70 : 300);
}

/* The same, but it comes back empty: too few remember, and the floor is made of clocks. */
TEST(test_a_master_that_came_back_empty_is_not_waited_for)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 1);
	recoveries(&cases, 0);
	tells_fence(&cases, 1, 11);
	wants(&cases, 0, GUARD_NOTHING);
	waits(&cases, 2);
	ck_assert_uint_eq(guard_fences_missing(&cases.guard, 0), 0);
	struct guard_action action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	ck_assert(action.clocked);
	ck_assert_uint_eq(action.fence, WALL + cases.now_us);
	loses(&cases, 2); /* its memory still counts as lost */
	cases = cases_new(3, false);
	votes(&cases, 1);
	waits(&cases, 2);
	loses(&cases, 2);
	recoveries(&cases, 0);
	tells_fence(&cases, 1, 11);
	ck_assert(wants(&cases, 0, GUARD_WRITE_EPOCH).clocked);
}

TEST(test_a_survey_that_fails_or_misses)
{
	struct cases cases = cases_new(3, false);
	others_vote(&cases, 0);
	recoveries(&cases, 0);
	wants(&cases, 1, GUARD_SURVEY);
	/* a heartbeat that met a full memory, while the survey is under way */
	TELL(&cases, 1, .kind = GUARD_FAILED, .action = GUARD_READ);
	wants(&cases, 1, GUARD_NOTHING);
	TELL(&cases, 1, .kind = GUARD_FAILED, .action = GUARD_SURVEY);
	wants(&cases, 1, GUARD_NOTHING);
	ANSWERS(&cases, 1, FITS(1)); /* the heartbeat: tried again */
	tells_fence(&cases, 1, 11);
	wants(&cases, 2, GUARD_SURVEY);
	TELL(&cases, 2, .kind = GUARD_FENCES, .done = false);
	is(&cases, 2, GUARD_ASKING, 0);
	wants(&cases, 2, GUARD_READ);
	ANSWERS(&cases, 2, NOTHING_AT_ALL);
	is(&cases, 2, GUARD_MARKING, GUARD_BAD_EPOCH);
	ck_assert(wants(&cases, 0, GUARD_WRITE_EPOCH).clocked); /* its memory is lost: only one of two remembers */
}

/* ---- masters that kept their numbers ---- */

TEST(test_who_kept_its_numbers_tells_them_while_quarantined)
{
	struct cases cases = cases_new(3, false);
	others_vote(&cases, 0);
	TELL(&cases, 1, .kind = GUARD_DROPPED_KEYS);
	quarantine_done(&cases, 1, true);
	waits(&cases, 0);
	pass(&cases, QUARANTINE - SECOND);
	pass(&cases, SECOND);
	wants(&cases, 0, GUARD_NOTHING);
	is(&cases, 0, GUARD_RECOVERING, GUARD_NO_EPOCH);
	struct guard_action action = wants(&cases, 1, GUARD_SURVEY);
	ck_assert_uint_eq(action.epoch, MARKER(1));
	TELL(&cases, 1, .kind = GUARD_FENCES, .done = true, .fence = 11);
	ck_assert_int_eq(wants(&cases, 1, GUARD_WRITE_EPOCH).clocked, false); /* and asks nobody itself */
	tells_fence(&cases, 2, 9);
	action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	ck_assert_uint_eq(action.fence, 11);
	ck_assert(!action.clocked);
}

/* The marker of another redlockd says whether they were kept. */
TEST_EACH(test_kept_as_the_marker_says, 0, 2)
{
	bool kept = _i == 1;
	struct cases cases = cases_new(3, false);
	READS(&cases, 0, QUARANTINED_BY(MARKER(0), 0), .kept = kept);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, kept ? GUARD_WRITE_EPOCH : GUARD_NOTHING);
	cases = cases_new(3, false);
	votes(&cases, 0);
	TELL(&cases, 0, .kind = GUARD_DROPPED_KEYS);
	ck_assert(wants(&cases, 0, GUARD_QUARANTINE).kept);
	TELL(&cases, 0, .kind = GUARD_QUARANTINED, .done = true, .marker = MARKER(0), .kept = kept, .ttl_us = TTL);
	cases.answers[0] = (struct guard_event){QUARANTINED_BY(MARKER(0), 0), .kept = kept};
	pass(&cases, QUARANTINE);
	wants(&cases, 0, kept ? GUARD_WRITE_EPOCH : GUARD_NOTHING);
}

/* Another redlockd found that buckets are lost: they do not count although the marker is the same. */
TEST(test_a_survey_of_a_marker_that_is_kept_no_more)
{
	struct cases cases = cases_new(3, false);
	waits(&cases, 0);
	pass(&cases, QUARANTINE / 2);
	votes(&cases, 1);
	TELL(&cases, 1, .kind = GUARD_DROPPED_KEYS);
	quarantine_done(&cases, 1, true);
	cases.answers[1].cluster = CLUSTER;
	pass(&cases, QUARANTINE - QUARANTINE / 2);
	wants(&cases, 0, GUARD_NOTHING);
	uint64_t before_us = left_us(&cases, 1);
	wants(&cases, 1, GUARD_SURVEY);
	TELL(&cases, 1, .kind = GUARD_FENCES, .done = false);
	while (next(&cases, 1).kind == GUARD_READ)
		ANSWERS(&cases, 1, QUARANTINED_BY(MARKER(1), 1), .kept = false);
	ANSWERS(&cases, 1, QUARANTINED_BY(MARKER(1), 1), .kept = false);
	is(&cases, 1, GUARD_WAITING, GUARD_EVICTED);
	left(&cases, 1, before_us);
	wants(&cases, 1, GUARD_NOTHING);
}

/* ---- clocks, where fewer remember ---- */

/* The latest of all clocks below the limit of fences: ours, its own, and those of masters that are down. */
TEST_EACH(test_the_latest_clock, 0, 2)
{
	struct cases cases = cases_new(3, false);
	all_wait(&cases);
	uint64_t ahead_us = WALL + 50 * SECOND; /* of our own clock, which is not the time of day */
	uint64_t wrong_us = _i == 1 ? REDLOCK_FENCE_LIMIT + SECOND : WALL - 10 * SECOND;
	guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 10, cases.now_us + wrong_us);
	guard_time(&cases.guard, 1, cases.now_us, cases.now_us + 10, cases.now_us + ahead_us);
	loses(&cases, 1);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_NOTHING); /* see test_a_cluster_id_is_not_made_at_once */
	pass(&cases, 3 * SECOND);
	struct guard_action action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	ck_assert(action.clocked);
	ck_assert_uint_eq(action.fence, guard_master_time_us(&cases.guard, 1, cases.now_us));
	ck_assert_uint_ge(action.fence, cases.now_us + ahead_us);
}

/* … but for two seconds at most if one does not answer. */
TEST(test_patience_with_survivors)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 2);
	waits(&cases, 0);
	waits(&cases, 1);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_NOTHING);
	wants(&cases, 2, GUARD_SURVEY);
	cases.now_us += 2 * SECOND - 1;
	wants(&cases, 0, GUARD_NOTHING);
	cases.now_us += 1;
	ck_assert(wants(&cases, 0, GUARD_WRITE_EPOCH).clocked);
}

/* Two of three lost their memory, the third is down: the first gets a floor of clocks, and does not count as one that
 * remembers after that. Otherwise the second would wait for the third for ever. */
TEST(test_who_has_a_floor_of_clocks_remembers_no_more)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 2);
	loses(&cases, 2);
	waits(&cases, 0);
	waits(&cases, 1);
	pass(&cases, QUARANTINE);
	ck_assert(wants(&cases, 0, GUARD_WRITE_EPOCH).clocked);
	TELL(&cases, 0, .kind = GUARD_EPOCH_WRITTEN, .done = true);
	wants(&cases, 1, GUARD_NOTHING); /* the first is asked nevertheless */
	ck_assert_uint_eq(guard_fences_missing(&cases.guard, 1), 0);
	tells_fence(&cases, 0, 3 * WALL);
	struct guard_action action = wants(&cases, 1, GUARD_WRITE_EPOCH);
	ck_assert(action.clocked);
	ck_assert_uint_eq(action.fence, 3 * WALL);
}

/* The same where another redlockd has written the epoch, as its `clocked_us` says in its own time. A floor from before
 * counts as memory. */
TEST_EACH(test_when_a_floor_was_made_of_clocks, 0, 2)
{
	bool before = _i == 0;
	uint64_t ahead_us = 7 * START;
	struct cases cases = cases_new(3, false);
	waits(&cases, 1);
	uint64_t clocked_us = cases.now_us + ahead_us + 5 * SECOND - (before ? 3600 * SECOND / 4 : 0);
	pass(&cases, 10 * SECOND);
	connects(&cases, 0, RUN(0));
	guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, cases.now_us + ahead_us);
	ANSWERS(&cases, 0, FITS(0), .clocked_us = clocked_us);
	pass(&cases, QUARANTINE);
	wants(&cases, 1, GUARD_NOTHING);
	tells_fence(&cases, 0, 5);
	ck_assert_uint_eq(guard_fences_missing(&cases.guard, 1), before ? 1 : 0);
	ck_assert_int_eq(next(&cases, 1).kind, before ? GUARD_NOTHING : GUARD_WRITE_EPOCH);
}
