/* SPDX-License-Identifier: MIT */
/* How a new cluster begins, with and without --bootstrap, and its id. See test_guard.c. */
#include "guard_cases.h"

/* ---- the cluster id ---- */

/* Another redlockd may reach a master that this one cannot reach, and make an id there. */
TEST(test_a_cluster_id_is_not_made_at_once)
{
	struct cases cases = cases_new(3, false);
	waits(&cases, 1);
	waits(&cases, 2);
	waits(&cases, 0);
	loses(&cases, 0);
	pass(&cases, QUARANTINE);
	wants(&cases, 1, GUARD_NOTHING);
	pass(&cases, 3 * SECOND - 1);
	wants(&cases, 1, GUARD_NOTHING);
	pass(&cases, 1);
	wants(&cases, 1, GUARD_WRITE_EPOCH);
	wants(&cases, 2, GUARD_NOTHING); /* still one after the other */
}

/* Another redlockd was faster: its id is used. */
TEST(test_the_cluster_id_of_the_faster_one)
{
	struct cases cases = cases_new(3, false);
	all_wait(&cases);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_WRITE_EPOCH);
	TELL(&cases, 0, .kind = GUARD_EPOCH_WRITTEN, .done = false);
	wants(&cases, 1, GUARD_NOTHING);
	wants(&cases, 0, GUARD_READ);
	ANSWERS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_VOTING, 0);
	while (next(&cases, 0).kind == GUARD_SURVEY)
		TELL(&cases, 0, .kind = GUARD_FENCES, .done = true, .fence = 5);
	ck_assert_uint_eq(wants(&cases, 1, GUARD_WRITE_EPOCH).cluster, CLUSTER);
}

/* ---- a new cluster ---- */

static struct cases new_cluster(unsigned masters)
{
	struct cases cases = cases_new(masters, true);
	all_wait(&cases);
	return cases;
}

TEST_EACH(test_bootstrap, 1, 6)
{
	unsigned masters = (unsigned)_i;
	uint64_t cluster = 0;
	struct cases cases = new_cluster(masters);
	for (unsigned i = 0; i < masters; i++) {
		ck_assert(guard_in_motion(&cases.guard, i));
		left(&cases, i, 0);
	}
	for (unsigned i = 0; i < masters; i++) {
		struct guard_action action = next(&cases, i);
		for (unsigned j = 0; j < i; j++) /* those that vote already are asked, since they are there */
			if (next(&cases, j).kind == GUARD_SURVEY)
				TELL(&cases, j, .kind = GUARD_FENCES, .done = true);
		if (action.kind == GUARD_NOTHING)
			action = wants(&cases, i, GUARD_WRITE_EPOCH);
		ck_assert(!action.clocked);
		ck_assert_uint_eq(action.fence, 0);
		ck_assert(action.cluster != 0 && (cluster == 0 || action.cluster == cluster));
		cluster = action.cluster;
		gets_epoch(&cases, i);
	}
	ck_assert_uint_eq(cases.now_us, START); /* at once */
}

TEST(test_no_bootstrap_unless_told)
{
	struct cases cases = cases_new(3, false);
	all_wait(&cases);
	for (unsigned i = 0; i < 3; i++)
		wants(&cases, i, GUARD_NOTHING);
	left(&cases, 0, START + QUARANTINE - cases.now_us);
}

/* A master that answers but is unusable is not waited for. A majority must be new, over connections that stand. */
TEST_EACH(test_bootstrap_without_one_that_is_unusable, 0, 3)
{
	struct cases cases = cases_new(3, true);
	waits(&cases, 0);
	TELL(&cases, 2, .kind = GUARD_UNUSABLE);
	wants(&cases, 0, GUARD_NOTHING);
	if (_i == 1)
		TELL(&cases, 1, .kind = GUARD_UNUSABLE);
	else
		waits(&cases, 1);
	if (_i == 2) { /* it is usable again, and must be read first */
		cases = cases_new(3, true);
		waits(&cases, 0);
		TELL(&cases, 2, .kind = GUARD_UNUSABLE);
		connects(&cases, 2, RUN(2));
		waits(&cases, 1);
	}
	if (_i > 0) {
		pass(&cases, 10 * SECOND);
		wants(&cases, 0, GUARD_NOTHING);
		is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
		return;
	}
	/* Another redlockd may have the right password and make a cluster id there. */
	wants(&cases, 0, GUARD_NOTHING);
	pass(&cases, 3 * SECOND);
	struct guard_action action = wants(&cases, 0, GUARD_WRITE_EPOCH);
	ck_assert(!action.clocked && action.cluster != 0);
}

/* --bootstrap counts once: a later loss is a loss. */
TEST(test_bootstrap_is_for_once)
{
	struct cases cases = new_cluster(3);
	for (unsigned i = 0; i < 3; i++) {
		loses(&cases, i);
		cases.beats[i] = 0;
		waits(&cases, i); /* restarted at once, before any epoch was written */
	}
	for (unsigned i = 0; i < 3; i++)
		wants(&cases, i, GUARD_NOTHING);
	left(&cases, 0, START + QUARANTINE - cases.now_us);
}

/* One master was down, so the others waited and got their epochs. From then on the cluster is not new. */
TEST(test_no_bootstrap_after_one_of_our_own_epochs)
{
	struct cases cases = cases_new(3, true);
	waits(&cases, 0);
	waits(&cases, 1);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_NOTHING);
	pass(&cases, 3 * SECOND);
	wants(&cases, 0, GUARD_WRITE_EPOCH);
	gets_epoch(&cases, 0);
	for (unsigned i = 0; i < 3; i++) { /* before the next heartbeat: all come up empty */
		loses(&cases, i);
		cases.beats[i] = 0;
		waits(&cases, i);
	}
	for (unsigned i = 0; i < 3; i++)
		wants(&cases, i, GUARD_NOTHING);
	left(&cases, 0, QUARANTINE);
}
