/* SPDX-License-Identifier: MIT */
/* Epoch, deadline and the end of leases in the commands to a master: what each master gets. */
#include "master_words.h"

/* Where they are in the command for one resource. */
enum { EPOCH = 5, DEADLINE, MODE, BOUNDS };

static void assert_stamp(uint64_t epoch, const char *shown, const char *deadline)
{
	masters.guard.masters[0].epoch = epoch;
	for (enum redlock_script kind = REDLOCK_SCRIPT_ACQUIRE; kind <= REDLOCK_SCRIPT_INSPECT; kind++) {
		struct master_script script = script_of(kind);
		struct master_command command = {.script = &script};
		const struct words *got = words_of(1, &script);
		ck_assert_str_eq(got->element[EPOCH], shown);
		ck_assert_str_eq(got->element[DEADLINE], deadline);
		master_script_stamp(master, until_us, &command);
		ck_assert_uint_eq(command.epoch, shown[0] == '-' ? 0 : epoch);
	}
}

static uint64_t deadline_us(void)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_ACQUIRE);
	const char *got = words_of(1, &script)->element[DEADLINE];
	ck_assert_uint_eq(strlen(got), 16);
	return strtoull(got, NULL, 10);
}

TEST(epoch_and_deadline_are_written_into_every_script)
{
	/* its clock is not known yet */
	options.restart_guard = OPTIONS_GUARD_ON;
	assert_stamp(UINT64_C(0xfedcba9876543210), "fedcba9876543210", "9999999999999999");
	assert_stamp(UINT64_C(0xab), "00000000000000ab", "9999999999999999");
	options.restart_guard = OPTIONS_GUARD_OFF;
	assert_stamp(UINT64_C(0xab), "----------------", "9999999999999999");
}

/* The second by which a lease is over that is granted at the deadline, until the master is known to remember it. */
TEST(a_master_is_told_until_when_to_remember)
{
	static const enum redlock_script grant[] = {REDLOCK_SCRIPT_ACQUIRE, REDLOCK_SCRIPT_EXTEND};
	static const enum redlock_script others[] = {REDLOCK_SCRIPT_RAISE, REDLOCK_SCRIPT_RELEASE,
						     REDLOCK_SCRIPT_INSPECT};
	for (size_t i = 0; i < 2; i++) {
		struct master_script script = script_of(grant[i]);
		const char *hold = i == 0 ? " 86400000" : " 0", *none = i == 0 ? "0 86400000" : "";
		char expected[32];
		masters.guard.masters[0].remembers_s = 0;
		know(UINT64_C(1795215206922001)); /* its deadline is 50 ms away */
		snprintf(expected, sizeof expected, "1795215237%s", hold);
		ck_assert_str_eq(words_of(1, &script)->element[BOUNDS], expected);
		masters.guard.masters[0].remembers_s = 1795215237;
		ck_assert_str_eq(words_of(1, &script)->element[BOUNDS], none);
		script.ttl_ms += 1000;
		snprintf(expected, sizeof expected, "1795215238%s", hold);
		ck_assert_str_eq(words_of(1, &script)->element[BOUNDS], expected);
		masters.guard.masters[0].epoch = 0;
		ck_assert_str_eq(words_of(1, &script)->element[BOUNDS], none);
		options.restart_guard = OPTIONS_GUARD_OFF;
		ck_assert_str_eq(words_of(1, &script)->element[BOUNDS], none);
	}
	know(UINT64_C(1795215206922001));
	masters.guard.masters[0].remembers_s = 0;
	for (size_t i = 0; i < 3; i++) {
		struct master_script script = script_of(others[i]);
		ck_assert_str_eq(words_of(1, &script)->element[BOUNDS], "");
	}
	struct master_script several[3] = {script_of(REDLOCK_SCRIPT_ACQUIRE), script_of(REDLOCK_SCRIPT_ACQUIRE),
					   script_of(REDLOCK_SCRIPT_ACQUIRE)};
	several[1].ttl_ms = 60000; /* the longest counts */
	ck_assert_str_eq(words_of(3, several)->element[BOUNDS + 2], "1795215267 86400000");
}

/* A release is carried out however late, and so is an inspection. */
TEST(what_is_not_urgent_has_no_deadline)
{
	know(UINT64_C(1795215206922001));
	for (enum redlock_script kind = REDLOCK_SCRIPT_ACQUIRE; kind <= REDLOCK_SCRIPT_INSPECT; kind++) {
		struct master_script script = script_of(kind);
		bool has_none = strcmp(words_of(1, &script)->element[DEADLINE], "9999999999999999") == 0;
		ck_assert_int_eq(has_none, kind >= REDLOCK_SCRIPT_RELEASE);
	}
}

/* In the master's own time, whatever that is: --master-timeout-ms from now, and never too early. */
TEST(the_deadline_is_in_the_masters_own_time)
{
	uint64_t now_us = clock_now_us(), its_us = UINT64_C(1795215206922001);
	guard_time(&masters.guard, 0, now_us - 3000, now_us, its_us);
	uint64_t got_us = deadline_us(), later_us = clock_now_us() - now_us;
	ck_assert_uint_eq(got_us % 1000, 0); /* those of one moment are the same */
	ck_assert_uint_gt(got_us, its_us + 49000);
	ck_assert_uint_le(got_us, its_us + 50000 + 3000 + 2 * later_us + 1100);
}

/* A ttl shorter than --master-timeout-ms: nothing is set after its attempt is over. */
TEST(the_deadline_is_no_later_than_its_use)
{
	uint64_t now_us = clock_now_us(), its_us = UINT64_C(1795215206922001);
	guard_time(&masters.guard, 0, now_us, now_us, its_us);
	until_us = now_us + 20000;
	uint64_t got_us = deadline_us();
	ck_assert_uint_gt(got_us, its_us + 19000);
	ck_assert_uint_le(got_us, its_us + 20000 + 1100);
}

/* Sixteen digits hold every time until the year 2286; a clock beyond gets no deadline, and none that is cut off. */
TEST(a_deadline_never_has_more_than_sixteen_digits)
{
	uint64_t now_us = clock_now_us();
	options.restart_guard = OPTIONS_GUARD_ON;
	guard_time(&masters.guard, 0, now_us, now_us, UINT64_C(9999999999999999));
	assert_stamp(1, "0000000000000001", "9999999999999999");
}
