/* The restart guard, state by state: server/redlock/guard/guard.h is what is tested here, guard.c is not looked at.
 *
 * How long a master is barred is in test_guard_bar.c, the hazards that are found by themselves in test_guard_found.c, what a barred
 * master must know before it votes again in test_guard_resync.c, how a new cluster begins in test_guard_new.c, the clocks in
 * test_guard_clock.c, several redlockd beside each other in test_guard_replicas.c. */
#include "guard_cases.h"

/* ---- every state, every event ---- */

enum from { ABSENT, ASKING, VOTING, CONDEMNED, BARRING, WAITING, RESYNCING, CERTIFYING, FOREIGN };
enum what {
	RECONNECTED,
	READS_FITS,      /* its own certificate */
	READS_NEW,       /* another one that fits: another redlockd has certified it */
	READS_NONE,
	READS_OTHERS,    /* a certificate of another server */
	READS_MARKER,    /* the marker that it had, or one of another redlockd */
	READS_NEW_MARKER,
	READS_OLD_MARKER, /* of another server */
	READS_DIGEST,
	FAILS,
	MISMATCHES,
	MISMATCHES_OLD,  /* the answer to a command that carried an older certificate */
	DROPS,
	LOSES
};

static const struct row {
	enum from from;
	enum what what;
	enum guard_state to;
	enum guard_reason reason;
} rows[] = {
	{ ABSENT, RECONNECTED, GUARD_ASKING, 0 },
	{ ABSENT, READS_FITS, GUARD_ABSENT, 0 }, /* of a connection that is gone */
	{ ABSENT, MISMATCHES, GUARD_ABSENT, 0 },
	{ ABSENT, DROPS, GUARD_ABSENT, 0 },
	{ ABSENT, LOSES, GUARD_ABSENT, 0 },

	{ ASKING, RECONNECTED, GUARD_ASKING, 0 },
	{ ASKING, READS_FITS, GUARD_VOTING, 0 },
	{ ASKING, READS_NONE, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ ASKING, READS_OTHERS, GUARD_CONDEMNED, GUARD_RESTARTED },
	{ ASKING, READS_MARKER, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ ASKING, READS_OLD_MARKER, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ ASKING, READS_DIGEST, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ ASKING, FAILS, GUARD_ASKING, 0 },
	{ ASKING, MISMATCHES, GUARD_ASKING, 0 },
	{ ASKING, DROPS, GUARD_ASKING, 0 },
	{ ASKING, LOSES, GUARD_ABSENT, 0 },

	{ VOTING, RECONNECTED, GUARD_ASKING, 0 },
	{ VOTING, READS_FITS, GUARD_VOTING, 0 },
	{ VOTING, READS_NEW, GUARD_VOTING, 0 },
	{ VOTING, READS_NONE, GUARD_CONDEMNED, GUARD_BAD_CERTIFICATE },
	{ VOTING, READS_OTHERS, GUARD_CONDEMNED, GUARD_BAD_CERTIFICATE },
	{ VOTING, READS_MARKER, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ VOTING, READS_OLD_MARKER, GUARD_CONDEMNED, GUARD_BAD_CERTIFICATE },
	{ VOTING, READS_DIGEST, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ VOTING, MISMATCHES, GUARD_ASKING, 0 },
	{ VOTING, MISMATCHES_OLD, GUARD_VOTING, 0 },
	{ VOTING, DROPS, GUARD_CONDEMNED, GUARD_EVICTED },
	{ VOTING, LOSES, GUARD_ABSENT, 0 },

	{ CONDEMNED, RECONNECTED, GUARD_ASKING, 0 },
	{ CONDEMNED, READS_NEW, GUARD_VOTING, 0 }, /* another redlockd waited, this one never began to */
	{ CONDEMNED, READS_NONE, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ CONDEMNED, READS_MARKER, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ CONDEMNED, READS_DIGEST, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ CONDEMNED, MISMATCHES_OLD, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ CONDEMNED, DROPS, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ CONDEMNED, LOSES, GUARD_ABSENT, 0 },

	/* BAR is under way: what was read before it says less than its answer */
	{ BARRING, READS_NEW, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ BARRING, READS_NONE, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ BARRING, READS_MARKER, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ BARRING, FAILS, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ BARRING, DROPS, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ BARRING, LOSES, GUARD_ABSENT, 0 },

	{ WAITING, RECONNECTED, GUARD_ASKING, 0 },
	{ WAITING, READS_NEW, GUARD_VOTING, 0 },
	{ WAITING, READS_NONE, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ WAITING, READS_OTHERS, GUARD_CONDEMNED, GUARD_RESTARTED },
	{ WAITING, READS_MARKER, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ WAITING, READS_NEW_MARKER, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ WAITING, READS_OLD_MARKER, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ WAITING, READS_DIGEST, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ WAITING, MISMATCHES_OLD, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ WAITING, DROPS, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ WAITING, LOSES, GUARD_ABSENT, 0 },

	{ RESYNCING, RECONNECTED, GUARD_ASKING, 0 },
	{ RESYNCING, READS_NEW, GUARD_VOTING, 0 },
	{ RESYNCING, READS_NONE, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ RESYNCING, READS_MARKER, GUARD_RESYNCING, GUARD_NO_CERTIFICATE },
	{ RESYNCING, READS_NEW_MARKER, GUARD_WAITING, GUARD_NO_CERTIFICATE },
	{ RESYNCING, READS_DIGEST, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ RESYNCING, DROPS, GUARD_RESYNCING, GUARD_NO_CERTIFICATE },
	{ RESYNCING, LOSES, GUARD_ABSENT, 0 },

	{ CERTIFYING, RECONNECTED, GUARD_ASKING, 0 },
	{ CERTIFYING, READS_NEW, GUARD_CERTIFYING, GUARD_NO_CERTIFICATE }, /* as BARRING */
	{ CERTIFYING, READS_NONE, GUARD_CERTIFYING, GUARD_NO_CERTIFICATE },
	{ CERTIFYING, READS_MARKER, GUARD_CERTIFYING, GUARD_NO_CERTIFICATE },
	{ CERTIFYING, FAILS, GUARD_RESYNCING, GUARD_NO_CERTIFICATE },
	{ CERTIFYING, LOSES, GUARD_ABSENT, 0 },

	{ FOREIGN, RECONNECTED, GUARD_ASKING, 0 },
	{ FOREIGN, READS_FITS, GUARD_VOTING, 0 },
	{ FOREIGN, READS_NONE, GUARD_CONDEMNED, GUARD_NO_CERTIFICATE },
	{ FOREIGN, READS_DIGEST, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ FOREIGN, MISMATCHES, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ FOREIGN, DROPS, GUARD_FOREIGN, GUARD_OTHER_DIGEST },
	{ FOREIGN, LOSES, GUARD_ABSENT, 0 },
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
	case CONDEMNED: condemned(cases, 0); break;
	case BARRING:
		condemned(cases, 0);
		wants(cases, 0, GUARD_BAR);
		break;
	case WAITING: waits(cases, 0); break;
	case RESYNCING: resyncs(cases, 0); break;
	case CERTIFYING:
		resyncs(cases, 0);
		tells_fence(cases, 1, 7);
		tells_fence(cases, 2, 8);
		wants(cases, 0, GUARD_CERTIFY);
		break;
	case FOREIGN:
		connects(cases, 0, RUN(0));
		ANSWERS(cases, 0, .certificate = CERT(0), .certificate_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST + 1);
		break;
	}
}

static void happens(struct cases *cases, enum what what)
{
	switch (what) {
	case RECONNECTED: connects(cases, 0, RUN(0)); break;
	case READS_FITS: ANSWERS(cases, 0, FITS(0)); break;
	case READS_NEW: ANSWERS(cases, 0, .certificate = 77, .certificate_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST); break;
	case READS_NONE: ANSWERS(cases, 0, NOTHING_AT_ALL); break;
	case READS_OTHERS: ANSWERS(cases, 0, OF_ANOTHER_SERVER(0)); break;
	case READS_MARKER: ANSWERS(cases, 0, BARRED_BY(MARKER(0), 0)); break;
	case READS_NEW_MARKER: ANSWERS(cases, 0, BARRED_BY(MARKER(9), 0)); break;
	case READS_OLD_MARKER: ANSWERS(cases, 0, .marker = MARKER(0), .marker_run_id = 0x9999); break;
	case READS_DIGEST: ANSWERS(cases, 0, .certificate = 5, .certificate_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST + 1); break;
	case FAILS: TELL(cases, 0, .kind = GUARD_FAILED, .action = cases->guard.masters[0].busy); break;
	case MISMATCHES: TELL(cases, 0, .kind = GUARD_MISMATCH, .certificate = CERT(0)); break;
	case MISMATCHES_OLD: TELL(cases, 0, .kind = GUARD_MISMATCH, .certificate = CERT(0) + 100); break;
	case DROPS: TELL(cases, 0, .kind = GUARD_DROPPED_KEYS); break;
	case LOSES: loses(cases, 0); break;
	}
}

START_TEST(test_every_state_and_event)
{
	const struct row *row = &rows[_i];
	struct cases cases;
	cases_init(&cases, 3, false);
	go_to(&cases, row->from);
	happens(&cases, row->what);
	is(&cases, 0, row->to, row->reason);
	is(&cases, 1, GUARD_VOTING, 0);
	is(&cases, 2, GUARD_VOTING, 0);
}
END_TEST

/* What is asked for next follows from the state alone; a second time nothing, as long as it is under way. */
START_TEST(test_what_each_state_wants)
{
	static const enum guard_action_kind wanted[] = {
		[ABSENT] = GUARD_NOTHING,   [ASKING] = GUARD_NOTHING,     [VOTING] = GUARD_NOTHING,
		[CONDEMNED] = GUARD_BAR,    [BARRING] = GUARD_NOTHING,    [WAITING] = GUARD_NOTHING,
		[RESYNCING] = GUARD_NOTHING, [CERTIFYING] = GUARD_NOTHING, [FOREIGN] = GUARD_NOTHING,
	};
	struct cases cases;
	cases_init(&cases, 3, false);
	go_to(&cases, (enum from)_i);
	wants(&cases, 0, wanted[_i]);
	wants(&cases, 0, GUARD_NOTHING);
}
END_TEST

START_TEST(test_what_failed_is_tried_again_at_the_next_heartbeat)
{
	struct cases cases;
	cases_init(&cases, 3, false);
	go_to(&cases, BARRING);
	TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_READ); /* a heartbeat: not this one */
	wants(&cases, 0, GUARD_NOTHING);
	ck_assert(guard_in_motion(&cases.guard, 0));
	TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_BAR);
	wants(&cases, 0, GUARD_NOTHING);
	ck_assert(!guard_in_motion(&cases.guard, 0));
	ANSWERS(&cases, 0, NOTHING_AT_ALL);
	ck_assert(guard_in_motion(&cases.guard, 0));
	wants(&cases, 0, GUARD_BAR);

	cases_init(&cases, 3, false);
	go_to(&cases, CERTIFYING);
	TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_CERTIFY);
	wants(&cases, 0, GUARD_NOTHING);
	ANSWERS(&cases, 0, BARRED_BY(MARKER(0), 0));
	wants(&cases, 0, GUARD_CERTIFY); /* what the others told still holds */
}
END_TEST

/* A heartbeat that is refused (out of memory, say) says nothing of what is under way besides. */
START_TEST(test_a_failed_heartbeat_is_no_failed_action)
{
	static const enum from states[] = { BARRING, CERTIFYING, VOTING, WAITING, RESYNCING };
	struct cases cases;
	cases_init(&cases, 3, false);
	go_to(&cases, states[_i]);
	struct guard_master before = cases.guard.masters[0];
	TELL(&cases, 0, .kind = GUARD_FAILED, .action = GUARD_READ);
	ck_assert_int_eq(memcmp(&before, &cases.guard.masters[0], sizeof before), 0);
}
END_TEST

/* ---- what is sent ---- */

START_TEST(test_bar_takes_away_what_was_read)
{
	struct cases cases;
	struct guard_action first, second;
	cases_init(&cases, 3, false);
	connects(&cases, 0, RUN(0));
	ANSWERS(&cases, 0, OF_ANOTHER_SERVER(0));
	first = wants(&cases, 0, GUARD_BAR);
	ck_assert_uint_eq(first.certificate, CERT(0));
	ck_assert(first.marker != 0 && !first.kept);
	connects(&cases, 1, RUN(1));
	ANSWERS(&cases, 1, NOTHING_AT_ALL);
	second = wants(&cases, 1, GUARD_BAR);
	ck_assert_uint_eq(second.certificate, 0);
	ck_assert(second.marker != 0 && second.marker != first.marker);
}
END_TEST

START_TEST(test_scripts_carry_what_was_read)
{
	struct cases cases;
	cases_init(&cases, 3, false);
	votes(&cases, 0);
	ck_assert_uint_eq(cases.guard.masters[0].certificate, CERT(0));
	happens(&cases, READS_NEW);
	ck_assert_uint_eq(cases.guard.masters[0].certificate, 77);
	TELL(&cases, 0, .kind = GUARD_MISMATCH, .certificate = CERT(0)); /* sent before that */
	is(&cases, 0, GUARD_VOTING, 0);
	TELL(&cases, 0, .kind = GUARD_MISMATCH, .certificate = 77);
	is(&cases, 0, GUARD_ASKING, 0);
	wants(&cases, 0, GUARD_READ);
}
END_TEST

/* ---- a script found another certificate ---- */

START_TEST(test_a_mismatch_is_read_before_it_is_barred)
{
	static const struct {
		struct guard_event answer;
		enum guard_state to;
		enum guard_reason reason;
	} table[] = {
		{ { NOTHING_AT_ALL }, GUARD_CONDEMNED, GUARD_BAD_CERTIFICATE },                  /* flushed */
		{ { OF_ANOTHER_SERVER(0) }, GUARD_CONDEMNED, GUARD_BAD_CERTIFICATE },            /* somebody put a backup back */
		{ { BARRED_BY(MARKER(0), 0) }, GUARD_WAITING, GUARD_BAD_CERTIFICATE },           /* another redlockd was faster */
		{ { .certificate = 77, .certificate_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST }, GUARD_VOTING, 0 }, /* and waited */
		{ { FITS(0) }, GUARD_CONDEMNED, GUARD_ROLLED_BACK },                             /* it was away and came back */
	};
	struct cases cases;
	cases_init(&cases, 3, false);
	others_vote(&cases, 0);
	votes(&cases, 0);
	TELL(&cases, 0, .kind = GUARD_MISMATCH, .certificate = CERT(0));
	ck_assert(guard_in_motion(&cases.guard, 0));
	wants(&cases, 0, GUARD_READ);
	answers(&cases, 0, table[_i].answer);
	is(&cases, 0, table[_i].to, table[_i].reason);
	if (table[_i].to == GUARD_CONDEMNED)
		ck_assert(!wants(&cases, 0, GUARD_BAR).kept);
}
END_TEST

/* ---- names ---- */

START_TEST(test_reason_names)
{
	static const char *const names[] = { "", "no-certificate", "restarted", "bad-certificate", "clock-forward", "evicted", "rolled-back",
					     "digest", "cluster" };
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		ck_assert_str_eq(guard_reason_name((enum guard_reason)i), names[i]);
}
END_TEST

static void add(TCase *tcase)
{
	tcase_add_loop_test(tcase, test_every_state_and_event, 0, ROWS);
	tcase_add_loop_test(tcase, test_what_each_state_wants, ABSENT, FOREIGN + 1);
	tcase_add_test(tcase, test_what_failed_is_tried_again_at_the_next_heartbeat);
	tcase_add_loop_test(tcase, test_a_failed_heartbeat_is_no_failed_action, 0, 5);
	tcase_add_test(tcase, test_bar_takes_away_what_was_read);
	tcase_add_test(tcase, test_scripts_carry_what_was_read);
	tcase_add_loop_test(tcase, test_a_mismatch_is_read_before_it_is_barred, 0, 5);
	tcase_add_test(tcase, test_reason_names);
}

int main(void)
{
	return guard_run("guard", add);
}
