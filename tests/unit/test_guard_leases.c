/* SPDX-License-Identifier: MIT */
/* A quarantine as short as the leases that others remember: when they are asked, who counts, what ends the wait. See
 * test_guard.c. */
#include "guard_cases.h"

#define TIMEOUT (50 * MS)
#define ASKED (TIMEOUT + 100 + 500 * MS) /* with the drift of a timeout */
#define WITH_DRIFT(us) ((us) + (us) / 100)

/* An answer of master i whose clock is `ahead_us` ahead of ours; it took a millisecond. */
static void shows_time(struct cases *cases, unsigned i, uint64_t ahead_us)
{
	(void)guard_time(&cases->guard, i, cases->now_us - MS, cases->now_us, cases->now_us + ahead_us);
}

/* Master 0 waits, all others vote, and their clocks are known. */
static struct cases leases_cases(unsigned masters)
{
	struct cases cases = cases_new(masters, false);
	cases.guard.params.timeout_us = TIMEOUT;
	others_vote(&cases, 0);
	waits(&cases, 0);
	for (unsigned i = 1; i < masters; i++)
		shows_time(&cases, i, 5 * SECOND);
	return cases;
}

static void tells_leases(struct cases *cases, unsigned i, uint64_t leases_us)
{
	wants(cases, i, GUARD_SURVEY);
	TELL(cases, i, .kind = GUARD_FENCES, .done = true, .ttl_us = TTL, .leases_us = leases_us,
	     .timeout_us = TIMEOUT);
}

/* Another redlockd has a longer timeout, of which the answer tells: it came too early. */
TEST(test_the_longest_timeout_of_anybody)
{
	struct cases cases = leases_cases(3);
	pass(&cases, ASKED);
	wants(&cases, 1, GUARD_SURVEY);
	TELL(&cases, 1, .kind = GUARD_FENCES, .done = true, .ttl_us = TTL, .timeout_us = 10 * SECOND);
	wants(&cases, 1, GUARD_NOTHING);
	tells_leases(&cases, 2, 0);
	pass(&cases, 10 * SECOND + 20 * MS - TIMEOUT - 100 - 1);
	wants(&cases, 1, GUARD_NOTHING);
	pass(&cases, 1);
	tells_leases(&cases, 1, 0);
	left(&cases, 0, 0);
}

/* A clock that jumped, or is known to more than 200 ms. */
TEST(test_clocks_of_witnesses)
{
	struct cases cases = leases_cases(3);
	pass(&cases, ASKED);
	tells_leases(&cases, 1, 0);
	tells_leases(&cases, 2, 5 * SECOND);
	shows_time(&cases, 1, 4 * SECOND); /* back */
	is(&cases, 1, GUARD_VOTING, GUARD_NO_REASON);
	pass(&cases, 30 * SECOND);
	shows_time(&cases, 1, 4 * SECOND);
	shows_time(&cases, 2, 5 * SECOND);
	wants(&cases, 1, GUARD_NOTHING);
	wants(&cases, 0, GUARD_NOTHING);
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	left(&cases, 0, QUARANTINE - ASKED - 30 * SECOND);
	struct cases wide = leases_cases(3);
	wide.guard.masters[1].ahead_max_us += 200 * (int64_t)MS;
	pass(&wide, ASKED);
	wants(&wide, 1, GUARD_NOTHING);
	left(&wide, 0, QUARANTINE - ASKED);
}

/* Other libraries give leases, an older version left the marker, leases far in the future: the whole wait. */
TEST_EACH(test_the_whole_wait, 0, 3)
{
	struct cases cases = leases_cases(3);
	cases.guard.params.waits_longest = _i == 0;
	cases.guard.masters[0].ttl_unknown = _i == 1;
	pass(&cases, ASKED);
	if (_i == 2) {
		tells_leases(&cases, 1, 1000 * TTL);
		tells_leases(&cases, 2, 1000 * TTL);
	}
	wants(&cases, 1, GUARD_NOTHING);
	uint64_t ttl_us = _i == 1 ? GUARD_TTL_MAX_US : TTL;
	left(&cases, 0, WITH_DRIFT(ttl_us) + MARGIN - ASKED);
}

/* A silence of more than 5 s: the wait begins again, and others are asked again. */
TEST(test_a_gap_asks_anew)
{
	struct cases cases = leases_cases(3);
	pass(&cases, ASKED);
	tells_leases(&cases, 1, SECOND);
	tells_leases(&cases, 2, SECOND);
	cases.now_us += 6 * SECOND;
	answers(&cases, 0, cases.answers[0]);
	left(&cases, 0, ASKED);
	wants(&cases, 1, GUARD_NOTHING);
}
