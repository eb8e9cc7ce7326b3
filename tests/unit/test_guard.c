/* SPDX-License-Identifier: MIT */
/* The restart guard, state by state, by its header alone.
 *
 * test_guard_quarantine.c has the length of a quarantine, test_guard_found.c the hazards, test_guard_recovery.c the
 * fence recovery, test_guard_new.c new clusters, test_guard_clock.c the clocks. The simulator (tests/sim/) runs several
 * redlockd beside each other. */
#include "guard_cases.h"

/* ---- every state, every event ---- */

enum from { ABSENT, ASKING, VOTING, MARKING, QUARANTINING, WAITING, RECOVERING, WRITING_EPOCH, REJECTED };
enum what {
	RECONNECTED,
	READS_FITS, /* its own epoch */
	READS_NEW,  /* another one that fits: another redlockd has written its epoch */
	READS_NONE,
	READS_OTHERS, /* an epoch of another server */
	READS_MARKER, /* the marker that it had, or one of another redlockd */
	READS_NEW_MARKER,
	READS_OLD_MARKER, /* of another server */
	READS_DIGEST,
	FAILS,
	MISMATCHES,
	MISMATCHES_OLD, /* the answer to a command that carried an older epoch */
	DROPS,
	LOSES
};

static const struct row {
	enum from from;
	enum what what;
	enum guard_state to;
	enum guard_reason reason;
} rows[] = {
	{ABSENT, RECONNECTED, GUARD_ASKING, 0},
	{ABSENT, READS_FITS, GUARD_ABSENT, 0}, /* of a connection that is gone */
	{ABSENT, MISMATCHES, GUARD_ABSENT, 0},
	{ABSENT, DROPS, GUARD_ABSENT, 0},
	{ABSENT, LOSES, GUARD_ABSENT, 0},

	{ASKING, RECONNECTED, GUARD_ASKING, 0},
	{ASKING, READS_FITS, GUARD_VOTING, 0},
	{ASKING, READS_NONE, GUARD_MARKING, GUARD_NO_EPOCH},
	{ASKING, READS_OTHERS, GUARD_MARKING, GUARD_RESTARTED},
	{ASKING, READS_MARKER, GUARD_WAITING, GUARD_NO_EPOCH},
	{ASKING, READS_OLD_MARKER, GUARD_MARKING, GUARD_NO_EPOCH},
	{ASKING, READS_DIGEST, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{ASKING, FAILS, GUARD_ASKING, 0},
	{ASKING, MISMATCHES, GUARD_ASKING, 0},
	{ASKING, DROPS, GUARD_ASKING, 0},
	{ASKING, LOSES, GUARD_ABSENT, 0},

	{VOTING, RECONNECTED, GUARD_ASKING, 0},
	{VOTING, READS_FITS, GUARD_VOTING, 0},
	{VOTING, READS_NEW, GUARD_VOTING, 0},
	{VOTING, READS_NONE, GUARD_MARKING, GUARD_BAD_EPOCH},
	{VOTING, READS_OTHERS, GUARD_MARKING, GUARD_BAD_EPOCH},
	{VOTING, READS_MARKER, GUARD_WAITING, GUARD_NO_EPOCH},
	{VOTING, READS_OLD_MARKER, GUARD_MARKING, GUARD_BAD_EPOCH},
	{VOTING, READS_DIGEST, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{VOTING, MISMATCHES, GUARD_ASKING, 0},
	{VOTING, MISMATCHES_OLD, GUARD_VOTING, 0},
	{VOTING, DROPS, GUARD_MARKING, GUARD_EVICTED},
	{VOTING, LOSES, GUARD_ABSENT, 0},

	{MARKING, RECONNECTED, GUARD_ASKING, 0},
	{MARKING, READS_NEW, GUARD_VOTING, 0}, /* another redlockd has waited it out */
	{MARKING, READS_NONE, GUARD_MARKING, GUARD_NO_EPOCH},
	{MARKING, READS_MARKER, GUARD_WAITING, GUARD_NO_EPOCH},
	{MARKING, READS_DIGEST, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{MARKING, MISMATCHES_OLD, GUARD_MARKING, GUARD_NO_EPOCH},
	{MARKING, DROPS, GUARD_MARKING, GUARD_NO_EPOCH},
	{MARKING, LOSES, GUARD_ABSENT, 0},

	/* QUARANTINE is under way: its answer is newer than what was read */
	{QUARANTINING, READS_NEW, GUARD_MARKING, GUARD_NO_EPOCH},
	{QUARANTINING, READS_NONE, GUARD_MARKING, GUARD_NO_EPOCH},
	{QUARANTINING, READS_MARKER, GUARD_MARKING, GUARD_NO_EPOCH},
	{QUARANTINING, FAILS, GUARD_MARKING, GUARD_NO_EPOCH},
	{QUARANTINING, DROPS, GUARD_MARKING, GUARD_NO_EPOCH},
	{QUARANTINING, LOSES, GUARD_ABSENT, 0},

	{WAITING, RECONNECTED, GUARD_ASKING, 0},
	{WAITING, READS_NEW, GUARD_VOTING, 0},
	{WAITING, READS_NONE, GUARD_MARKING, GUARD_NO_EPOCH},
	{WAITING, READS_OTHERS, GUARD_MARKING, GUARD_RESTARTED},
	{WAITING, READS_MARKER, GUARD_WAITING, GUARD_NO_EPOCH},
	{WAITING, READS_NEW_MARKER, GUARD_WAITING, GUARD_NO_EPOCH},
	{WAITING, READS_OLD_MARKER, GUARD_MARKING, GUARD_NO_EPOCH},
	{WAITING, READS_DIGEST, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{WAITING, MISMATCHES_OLD, GUARD_WAITING, GUARD_NO_EPOCH},
	{WAITING, DROPS, GUARD_WAITING, GUARD_NO_EPOCH},
	{WAITING, LOSES, GUARD_ABSENT, 0},

	{RECOVERING, RECONNECTED, GUARD_ASKING, 0},
	{RECOVERING, READS_NEW, GUARD_VOTING, 0},
	{RECOVERING, READS_NONE, GUARD_MARKING, GUARD_NO_EPOCH},
	{RECOVERING, READS_MARKER, GUARD_RECOVERING, GUARD_NO_EPOCH},
	{RECOVERING, READS_NEW_MARKER, GUARD_WAITING, GUARD_NO_EPOCH},
	{RECOVERING, READS_DIGEST, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{RECOVERING, DROPS, GUARD_RECOVERING, GUARD_NO_EPOCH},
	{RECOVERING, LOSES, GUARD_ABSENT, 0},

	{WRITING_EPOCH, RECONNECTED, GUARD_ASKING, 0},
	{WRITING_EPOCH, READS_NEW, GUARD_WRITING_EPOCH, GUARD_NO_EPOCH}, /* as QUARANTINING */
	{WRITING_EPOCH, READS_NONE, GUARD_WRITING_EPOCH, GUARD_NO_EPOCH},
	{WRITING_EPOCH, READS_MARKER, GUARD_WRITING_EPOCH, GUARD_NO_EPOCH},
	{WRITING_EPOCH, FAILS, GUARD_RECOVERING, GUARD_NO_EPOCH},
	{WRITING_EPOCH, LOSES, GUARD_ABSENT, 0},

	{REJECTED, RECONNECTED, GUARD_ASKING, 0},
	{REJECTED, READS_FITS, GUARD_VOTING, 0},
	{REJECTED, READS_NONE, GUARD_MARKING, GUARD_NO_EPOCH},
	{REJECTED, READS_MARKER, GUARD_WAITING, GUARD_NO_EPOCH}, /* another redlockd has taken it over */
	{REJECTED, READS_DIGEST, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{REJECTED, MISMATCHES, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{REJECTED, DROPS, GUARD_REJECTED, GUARD_OTHER_DIGEST},
	{REJECTED, LOSES, GUARD_ABSENT, 0},
};

enum { ROWS = sizeof rows / sizeof *rows };

static void go_to(struct cases *cases, enum from from)
{
	others_vote(cases, 0);
	switch (from) {
	case ABSENT: break;
	case ASKING:
		connects(cases, 0, RUN(0));
		wants(cases, 0, GUARD_READ);
		break;
	case VOTING: votes(cases, 0); break;
	case MARKING: quarantined(cases, 0); break;
	case QUARANTINING:
		quarantined(cases, 0);
		wants(cases, 0, GUARD_QUARANTINE);
		break;
	case WAITING: waits(cases, 0); break;
	case RECOVERING: recoveries(cases, 0); break;
	case WRITING_EPOCH:
		recoveries(cases, 0);
		tells_fence(cases, 1, 7);
		tells_fence(cases, 2, 8);
		wants(cases, 0, GUARD_WRITE_EPOCH);
		break;
	case REJECTED:
		connects(cases, 0, RUN(0));
		ANSWERS(cases, 0, .epoch = CERT(0), .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST + 1);
		break;
	}
}

static void happens(struct cases *cases, enum what what)
{
	switch (what) {
	case RECONNECTED: connects(cases, 0, RUN(0)); break;
	case READS_FITS: ANSWERS(cases, 0, FITS(0)); break;
	case READS_NEW:
		ANSWERS(cases, 0, .epoch = 77, .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST);
		break;
	case READS_NONE: ANSWERS(cases, 0, NOTHING_AT_ALL); break;
	case READS_OTHERS: ANSWERS(cases, 0, OF_ANOTHER_SERVER(0)); break;
	case READS_MARKER: ANSWERS(cases, 0, QUARANTINED_BY(MARKER(0), 0)); break;
	case READS_NEW_MARKER: ANSWERS(cases, 0, QUARANTINED_BY(MARKER(9), 0)); break;
	case READS_OLD_MARKER: ANSWERS(cases, 0, .marker = MARKER(0), .marker_run_id = 0x9999, .digest = DIGEST); break;
	case READS_DIGEST:
		ANSWERS(cases, 0, .epoch = 5, .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST + 1);
		break;
	case FAILS: TELL(cases, 0, .kind = GUARD_FAILED, .action = cases->guard.masters[0].busy); break;
	case MISMATCHES: TELL(cases, 0, .kind = GUARD_MISMATCH, .epoch = CERT(0)); break;
	case MISMATCHES_OLD: TELL(cases, 0, .kind = GUARD_MISMATCH, .epoch = CERT(0) + 100); break;
	case DROPS: TELL(cases, 0, .kind = GUARD_DROPPED_KEYS); break;
	case LOSES: loses(cases, 0); break;
	}
}

TEST_EACH(test_every_state_and_event, 0, ROWS)
{
	const struct row *row = &rows[_i];
	struct cases cases = cases_new(3, false);
	go_to(&cases, row->from);
	happens(&cases, row->what);
	is(&cases, 0, row->to, row->reason);
	is(&cases, 1, GUARD_VOTING, 0);
	is(&cases, 2, GUARD_VOTING, 0);
}

/* The next action follows from the state alone; while it is under way there is no other. */
TEST_EACH(test_what_each_state_wants, ABSENT, REJECTED + 1)
{
	static const enum guard_action_kind wanted[] = {
		[ABSENT] = GUARD_NOTHING,     [ASKING] = GUARD_NOTHING,        [VOTING] = GUARD_NOTHING,
		[MARKING] = GUARD_QUARANTINE, [QUARANTINING] = GUARD_NOTHING,  [WAITING] = GUARD_NOTHING,
		[RECOVERING] = GUARD_NOTHING, [WRITING_EPOCH] = GUARD_NOTHING, [REJECTED] = GUARD_NOTHING};
	struct cases cases = cases_new(3, false);
	go_to(&cases, (enum from)_i);
	wants(&cases, 0, wanted[_i]);
	wants(&cases, 0, GUARD_NOTHING);
}

TEST(test_what_failed_is_tried_again_at_the_next_heartbeat)
{
	struct cases cases = cases_new(3, false);
	go_to(&cases, QUARANTINING);
	TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_READ); /* a heartbeat: not this one */
	wants(&cases, 0, GUARD_NOTHING);
	ck_assert(guard_in_motion(&cases.guard, 0));
	TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_QUARANTINE);
	wants(&cases, 0, GUARD_NOTHING);
	ck_assert(!guard_in_motion(&cases.guard, 0));
	ANSWERS(&cases, 0, NOTHING_AT_ALL);
	ck_assert(guard_in_motion(&cases.guard, 0));
	wants(&cases, 0, GUARD_QUARANTINE);

	cases = cases_new(3, false);
	go_to(&cases, WRITING_EPOCH);
	TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_WRITE_EPOCH);
	wants(&cases, 0, GUARD_NOTHING);
	ANSWERS(&cases, 0, QUARANTINED_BY(MARKER(0), 0));
	wants(&cases, 0, GUARD_WRITE_EPOCH); /* the others' fences still count */
}

/* ---- a script found another epoch ---- */

TEST_EACH(test_a_mismatch_is_read_before_it_is_quarantined, 0, 5)
{
	static const struct {
		struct guard_event answer;
		enum guard_state to;
		enum guard_reason reason;
	} table[] = {
		{{NOTHING_AT_ALL}, GUARD_MARKING, GUARD_BAD_EPOCH}, /* flushed */
		/* somebody put a backup back */
		{{OF_ANOTHER_SERVER(0)}, GUARD_MARKING, GUARD_BAD_EPOCH},
		/* another redlockd was faster */
		{{QUARANTINED_BY(MARKER(0), 0)}, GUARD_WAITING, GUARD_BAD_EPOCH},
		/* and waited */
		{{.epoch = 77, .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST}, GUARD_VOTING, 0},
		/* it was away and came back */
		{{FITS(0)}, GUARD_MARKING, GUARD_ROLLED_BACK},
	};
	struct cases cases = cases_new(3, false);
	others_vote(&cases, 0);
	votes(&cases, 0);
	TELL(&cases, 0, .kind = GUARD_MISMATCH, .epoch = CERT(0));
	ck_assert(guard_in_motion(&cases.guard, 0));
	wants(&cases, 0, GUARD_READ);
	answers(&cases, 0, table[_i].answer);
	is(&cases, 0, table[_i].to, table[_i].reason);
	if (table[_i].to == GUARD_MARKING)
		ck_assert(!wants(&cases, 0, GUARD_QUARANTINE).kept);
}
