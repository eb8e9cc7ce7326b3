/* SPDX-License-Identifier: MIT */
/* redlockctl drill without processes: verdicts, the reports, the last line of an output, moments of stops. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/drill.h"
#include "suite.h"

static const struct drill_round held = {.stopped_after_ms = 500,
					.took_ms = 2100,
					.first = {.fence = 7, .took_ms = 2000, .status = 1},
					.successor = {.fence = 9, .took_ms = 1000},
					.check = {.said = "all right"}};
static const struct drill_round early = {.is_early = true, .first = {.fence = 7, .took_ms = 30, .status = 3}};

static struct drill_round changed(int check, int successor, bool killed)
{
	struct drill_round round = held;
	round.check.status = check;
	round.successor.status = successor;
	round.successor.killed = killed;
	return round;
}

/* The text that a function prints; free() it. */
#define PRINTED(call)                                     \
	__extension__({                                   \
		char *text_ = NULL;                       \
		size_t len_;                              \
		FILE *to = open_memstream(&text_, &len_); \
		call;                                     \
		ck_assert_int_eq(fclose(to), 0);          \
		text_;                                    \
	})

TEST(verdict_of_a_round)
{
	struct drill_round unsafe = changed(1, 0, false), failed = changed(0, 2, false), stuck = changed(0, 0, true);
	struct drill_round both = changed(1, 2, false);
	ck_assert_int_eq(drill_report_judge(&held), DRILL_HELD);
	ck_assert_int_eq(drill_report_judge(&unsafe), DRILL_UNSAFE);
	ck_assert_int_eq(drill_report_judge(&both), DRILL_UNSAFE);
	ck_assert_int_eq(drill_report_judge(&failed), DRILL_SUCCESSOR);
	ck_assert_int_eq(drill_report_judge(&stuck), DRILL_SUCCESSOR);
	ck_assert_int_eq(drill_report_judge(&early), DRILL_EARLY);
}

TEST(safe_only_if_every_round_held)
{
	struct drill_round rounds[2] = {held, held};
	struct drill_report report = {.name = "a", .seed = 5, .rounds = rounds, .count = 2, .planned = 2};
	ck_assert(drill_report_is_safe(&report));
	rounds[1] = early;
	ck_assert(!drill_report_is_safe(&report));
	rounds[1] = changed(1, 0, false);
	ck_assert(!drill_report_is_safe(&report));
	report.count = 1;
	ck_assert(!drill_report_is_safe(&report));
	report = (struct drill_report){.rounds = rounds, .count = 1, .planned = 1};
	ck_assert(drill_report_is_safe(&report));
	report.status = 69;
	ck_assert(!drill_report_is_safe(&report));
	report = (struct drill_report){.rounds = rounds, .planned = 1, .trial = {.status = 3}};
	ck_assert(!drill_report_is_ready(&report) && !drill_report_is_safe(&report));
}

TEST(lines_for_people)
{
	const struct {
		struct drill_round round;
		const char *line;
	} rows[] = {
		{held,
		 "round 2: held: stopped after 500 ms; fences 7 and 9; first ended with 1, successor ended with 0; "
		 "check passed: all right\n"},
		{early, "round 2: early: the job ended with 3 after 30 ms, before it was stopped\n"},
		{{.first = {.killed = true}, .successor = {.killed = true}, .check = {.status = 4}},
		 "round 2: unsafe: stopped after 0 ms; fences 0 and 0; first was killed, since it did not end, "
		 "successor was "
		 "killed, since it did not end; check ended with 4\n"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *line = PRINTED(drill_report_print_round(&rows[i].round, 2, to));
		ck_assert_str_eq(line, rows[i].line);
		free(line);
	}
	struct drill_round rounds[2] = {held, early};
	struct drill_report report = {.seed = 5, .rounds = rounds, .count = 2, .planned = 2, .trial.took_ms = 1500};
	char *trial = PRINTED(drill_report_print_trial(&report, to)),
	     *end = PRINTED(drill_report_print_end(&report, to));
	ck_assert_str_eq(trial, "trial: the job ended with 0 after 1.5 s; check passed\n");
	ck_assert(strncmp(end, "1 of 2 rounds held, seed 5\nnot seen: ", 36) == 0);
	free(trial);
	free(end);
	report.check.status = 1;
	end = PRINTED(drill_report_print_end(&report, to));
	ck_assert(strncmp(end, "no round was run", 16) == 0);
	free(end);
}

TEST(json)
{
	struct drill_round rounds[2] = {held, early};
	struct drill_report report = {.name = "a/b", .seed = 5, .rounds = rounds, .count = 2, .planned = 3};
	json_t *object = drill_report_json(&report);
	json_object_del(object, "not_seen");
	json_t *wanted = json_loads(
		"{\"resource\":\"a/"
		"b\",\"safe\":false,\"held\":1,\"planned\":3,\"seed\":5,\"trial\":{\"run\":{\"fence\":0,"
		"\"took_ms\":0,\"status\":0,\"killed\":false},\"check\":{\"status\":0,\"said\":\"\"}},\"rounds\":["
		"{\"result\":\"held\",\"took_ms\":2100,\"stopped_after_ms\":500,"
		"\"first\":{\"fence\":7,\"took_ms\":2000,\"status\":1,\"killed\":false},"
		"\"successor\":{\"fence\":9,\"took_ms\":1000,\"status\":0,\"killed\":false},"
		"\"check\":{\"status\":0,\"said\":\"all right\"}},"
		"{\"result\":\"early\",\"took_ms\":0,\"first\":{\"fence\":7,\"took_ms\":30,\"status\":3,\"killed\":"
		"false}}]}",
		0, NULL);
	ck_assert_ptr_nonnull(wanted);
	ck_assert(json_equal(object, wanted));
	json_decref(object);
	json_decref(wanted);
}

TEST(junit)
{
	struct drill_round rounds[2] = {held, changed(1, 0, false)};
	strcpy(rounds[1].check.said, "<a> & \"b\" \xef\xbf\xbf");
	struct drill_report report = {
		.name = "a&b", .seed = 5, .is_tried = true, .rounds = rounds, .count = 2, .planned = 3, .status = 69};
	char *xml = PRINTED(drill_report_write_junit(&report, to));
	static const char *const parts[] = {
		"<testsuite name=\"redlockctl drill a&#38;b\" tests=\"4\" failures=\"1\" errors=\"1\">\n",
		"<property name=\"seed\" value=\"5\"/>",
		"name=\"trial\" time=\"0.000\"><system-out>",
		"name=\"round 1\" time=\"2.100\"><system-out>stopped after 500 ms; fences 7 and 9; ",
		"name=\"round 2\" time=\"2.100\"><failure message=\"stopped ",
		"check ended with 1: &#60;a&#62; &#38; &#34;b&#34; ?\"/></testcase>\n",
		"name=\"drill\" time=\"0.000\"><error message=\"the drill was cut short, with status 69\"/>",
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		ck_assert_msg(strstr(xml, parts[i]), "%s not in %s", parts[i], xml);
	free(xml);
}

TEST(junit_of_a_drill_that_had_no_trial)
{
	struct drill_report report = {.name = "a", .seed = 5, .planned = 3, .status = 75};
	char *xml = PRINTED(drill_report_write_junit(&report, to));
	ck_assert(strstr(xml, " tests=\"1\" failures=\"0\" errors=\"1\">") && !strstr(xml, "\"trial\""));
	free(xml);
}

TEST(last_line)
{
	static const struct {
		const char *output, *said;
	} rows[] = {{"", ""}, {"\n \n", ""}, {"one", "one"}, {"one\ntwo\n\n", "two"}, {"a\x1b[1m\xff\r\n", "a?[1m?"}};
	char said[DRILL_SAID_MAX], is_long[1000];
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		drill_check_last_line(rows[i].output, strlen(rows[i].output), said);
		ck_assert_str_eq(said, rows[i].said);
	}
	drill_check_last_line("a\0b", 3, said);
	ck_assert_str_eq(said, "a?b");
	memset(is_long, 'x', sizeof is_long);
	drill_check_last_line(is_long, sizeof is_long, said);
	ck_assert_uint_eq(strlen(said), DRILL_SAID_MAX - 1);
}

TEST(moments_follow_from_the_seed_and_spread_over_the_run)
{
	uint64_t one = 1, same = 1, other = 2;
	size_t equal = 0, parts[4] = {0};
	for (size_t i = 0; i < 1000; i++) {
		uint64_t moment_us = drill_command_moment_us(&one, 4000000);
		ck_assert_uint_lt(moment_us, 4000000);
		ck_assert_uint_eq(moment_us, drill_command_moment_us(&same, 4000000));
		equal += moment_us == drill_command_moment_us(&other, 4000000);
		parts[moment_us / 1000000]++;
	}
	ck_assert_uint_lt(equal, 10);
	for (size_t i = 0; i < 4; i++)
		ck_assert_uint_gt(parts[i], 150);
	ck_assert_uint_eq(drill_command_moment_us(&one, 0), 0);
}
