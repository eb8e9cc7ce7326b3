/* SPDX-License-Identifier: MIT */
/* The results of redlockctl drill, for people, as JSON and as JUnit. See drill.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "drill.h"

#define NOT_SEEN                                                                                              \
	"effects that the check does not look at, other moments than these, and processes that others start " \
	"for the job (a service manager, a container engine)"

enum { TEXT_MAX = 1024 };

static const char *const result_names[] = {[DRILL_HELD] = "held",
					   [DRILL_UNSAFE] = "unsafe",
					   [DRILL_SUCCESSOR] = "successor-failed",
					   [DRILL_EARLY] = "early"};

/* ---- the verdict ---- */

enum drill_result drill_report_judge(const struct drill_round *round)
{
	if (round->is_early)
		return DRILL_EARLY;
	if (round->check.status != 0)
		return DRILL_UNSAFE;
	return round->successor.status != 0 || round->successor.killed ? DRILL_SUCCESSOR : DRILL_HELD;
}

bool drill_report_is_ready(const struct drill_report *report)
{
	return report->trial.status == 0 && report->check.status == 0;
}

static size_t drill_report_count_held(const struct drill_report *report)
{
	size_t held = 0;
	for (size_t i = 0; i < report->count; i++)
		held += drill_report_judge(&report->rounds[i]) == DRILL_HELD;
	return held;
}

bool drill_report_is_safe(const struct drill_report *report)
{
	assert(report->count <= report->planned);
	return report->status == 0 && report->planned > 0 && drill_report_count_held(report) == report->planned;
}

/* ---- for people ---- */

static const char *drill_report_end_of(const struct drill_run *run, char ret_text[TEXT_MAX])
{
	if (run->killed)
		return "was killed, since it did not end";
	snprintf(ret_text, TEXT_MAX, "ended with %d", run->status);
	return ret_text;
}

#define END_OF(run) drill_report_end_of(run, (char[TEXT_MAX]){0})

static const char *drill_report_check(const struct drill_check *check, char ret_text[TEXT_MAX])
{
	const char *between = check->said[0] == '\0' ? "" : ": ";
	if (check->status == 0)
		snprintf(ret_text, TEXT_MAX, "check passed%s%s", between, check->said);
	else
		snprintf(ret_text, TEXT_MAX, "check ended with %d%s%s", check->status, between, check->said);
	return ret_text;
}

#define CHECK_OF(check) drill_report_check(check, (char[TEXT_MAX]){0})

/* The whole round in a line. */
static const char *drill_report_round(const struct drill_round *round, char ret_text[TEXT_MAX])
{
	if (round->is_early)
		snprintf(ret_text, TEXT_MAX, "the job %s after %s, before it was stopped", END_OF(&round->first),
			 DURATION_TEXT(round->first.took_ms));
	else
		snprintf(ret_text, TEXT_MAX,
			 "stopped after %s; fences %" PRIu64 " and %" PRIu64 "; first %s, successor %s; %s",
			 DURATION_TEXT(round->stopped_after_ms), round->first.fence, round->successor.fence,
			 END_OF(&round->first), END_OF(&round->successor), CHECK_OF(&round->check));
	return ret_text;
}

void drill_report_print_trial(const struct drill_report *report, FILE *to)
{
	fprintf(to, "trial: the job %s after %s; %s\n", END_OF(&report->trial), DURATION_TEXT(report->trial.took_ms),
		CHECK_OF(&report->check));
}

void drill_report_print_round(const struct drill_round *round, size_t number, FILE *to)
{
	char text[TEXT_MAX];
	fprintf(to, "round %zu: %s: %s\n", number, result_names[drill_report_judge(round)],
		drill_report_round(round, text));
}

void drill_report_print_end(const struct drill_report *report, FILE *to)
{
	if (!drill_report_is_ready(report))
		fputs("no round was run: the job and its check must succeed when nothing is lost\n", to);
	else
		fprintf(to, "%zu of %zu rounds held, seed %" PRIu64 "\nnot seen: %s\n", drill_report_count_held(report),
			report->planned, report->seed, NOT_SEEN);
}

/* ---- JSON ---- */

static json_t *drill_report_run_json(const struct drill_run *run)
{
	return json_pack("{s:I, s:I, s:i, s:b}", "fence", (json_int_t)run->fence, "took_ms", (json_int_t)run->took_ms,
			 "status", run->status, "killed", run->killed);
}

static json_t *drill_report_check_json(const struct drill_check *check)
{
	return json_pack("{s:i, s:s}", "status", check->status, "said", check->said);
}

static json_t *drill_report_round_json(const struct drill_round *round)
{
	json_t *object = json_pack("{s:s, s:I, s:o}", "result", result_names[drill_report_judge(round)], "took_ms",
				   (json_int_t)round->took_ms, "first", drill_report_run_json(&round->first));
	if (round->is_early)
		return object;
	json_object_set_new(object, "stopped_after_ms", json_integer((json_int_t)round->stopped_after_ms));
	json_object_set_new(object, "successor", drill_report_run_json(&round->successor));
	json_object_set_new(object, "check", drill_report_check_json(&round->check));
	return object;
}

json_t *drill_report_json(const struct drill_report *report)
{
	json_t *rounds = json_array();
	for (size_t i = 0; i < report->count; i++)
		json_array_append_new(rounds, drill_report_round_json(&report->rounds[i]));
	return json_pack("{s:s, s:b, s:I, s:I, s:I, s:{s:o, s:o}, s:o, s:s}", "resource", report->name, "safe",
			 drill_report_is_safe(report), "held", (json_int_t)drill_report_count_held(report), "planned",
			 (json_int_t)report->planned, "seed", (json_int_t)report->seed, "trial", "run",
			 drill_report_run_json(&report->trial), "check", drill_report_check_json(&report->check),
			 "rounds", rounds, "not_seen", NOT_SEEN);
}

/* ---- JUnit: a test case for each round ---- */

/* The texts have no control characters. U+FFFE and U+FFFF are not allowed in XML. */
static void drill_report_escape(const char *text, FILE *to)
{
	for (; *text != '\0'; text++)
		if (strchr("&<>\"", *text))
			fprintf(to, "&#%d;", *text);
		else if (strncmp(text, "\xef\xbf\xbe", 3) == 0 || strncmp(text, "\xef\xbf\xbf", 3) == 0)
			fputs("?", to), text += 2;
		else
			fputc(*text, to);
}

/* result: failure or error; NULL: neither. */
static void drill_report_write_case(const char *name, uint64_t took_ms, const char *result, const char *text, FILE *to)
{
	fprintf(to, "  <testcase classname=\"redlockctl.drill\" name=\"%s\" time=\"%" PRIu64 ".%03" PRIu64 "\">", name,
		took_ms / 1000, took_ms % 1000);
	fprintf(to, result ? "<%s message=\"" : "<system-out>", result);
	drill_report_escape(text, to);
	fputs(result ? "\"/>" : "</system-out>", to);
	fputs("</testcase>\n", to);
}

void drill_report_write_junit(const struct drill_report *report, FILE *to)
{
	char name[32], text[TEXT_MAX];
	bool is_ready = drill_report_is_ready(report), is_tried = report->is_tried;
	size_t failed = report->count - drill_report_count_held(report) + (is_tried && !is_ready);
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"redlockctl drill ", to);
	drill_report_escape(report->name, to);
	fprintf(to, "\" tests=\"%zu\" failures=\"%zu\" errors=\"%d\">\n",
		report->count + is_tried + (report->status != 0), failed, report->status != 0);
	fprintf(to, "  <properties><property name=\"seed\" value=\"%" PRIu64 "\"/></properties>\n", report->seed);
	snprintf(text, sizeof text, "the job %s; %s", END_OF(&report->trial), CHECK_OF(&report->check));
	if (is_tried)
		drill_report_write_case("trial", report->trial.took_ms, is_ready ? NULL : "failure", text, to);
	for (size_t i = 0; i < report->count; i++) {
		const struct drill_round *round = &report->rounds[i];
		snprintf(name, sizeof name, "round %zu", i + 1);
		drill_report_write_case(name, round->took_ms,
					drill_report_judge(round) == DRILL_HELD ? NULL : "failure",
					drill_report_round(round, text), to);
	}
	snprintf(text, sizeof text, "the drill was cut short, with status %d", report->status);
	if (report->status != 0)
		drill_report_write_case("drill", 0, "error", text, to);
	fputs("</testsuite>\n", to);
}
