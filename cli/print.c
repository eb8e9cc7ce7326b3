/* SPDX-License-Identifier: MIT */
/* See commands.h. JSON is one object on one line. Texts of a server are cleaned for people: a label or an address could
 * have control sequences for a terminal. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "commands.h"
#include "server/base/base.h"

enum { CELL_MAX = 320, COLUMNS = 6 };

/* ---- colours, on a terminal (https://no-color.org) ---- */

#define COLOR_END "\033[0m"
#define COLOR_BOLD "\033[1m"
#define COLOR_RED "\033[31m"
#define COLOR_GREEN "\033[32m"
#define COLOR_YELLOW "\033[33m"

static const char *print_color(const char *color)
{
	const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
	bool colored = (!none || *none == '\0') && terminal && strcmp(terminal, "dumb") != 0 && isatty(STDOUT_FILENO);
	assert(color);
	return colored ? color : "";
}

/* ---- values ---- */

int print_end(bool reports_pipe)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_STATUS_OK;
	if (reports_pipe || errno != EPIPE)
		report_error("stdout: %s", strerror(errno));
	return EXIT_STATUS_SYSTEM;
}

void print_json(json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);
	assert(text);
	puts(text);
	explicit_bzero(text, strlen(text));
	free(text);
	json_decref(object);
}

/* A value as text for people; "-" if there is none. */
static const char *print_cell(const json_t *value, char ret_cell[CELL_MAX])
{
	if (json_is_integer(value))
		snprintf(ret_cell, CELL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else
		snprintf(ret_cell, CELL_MAX, "%s", json_string_length(value) > 0 ? json_string_value(value) : "-");
	report_clean(ret_cell);
	return ret_cell;
}

/* A member as text, in memory that lasts as long as the block around it. */
#define CELL(object, name) print_cell(json_object_get(object, name), (char[CELL_MAX]){0})

static const char *print_duration(const json_t *ms, char ret_cell[CELL_MAX])
{
	return json_is_integer(ms) && json_integer_value(ms) >= 0
		       ? duration_format((uint64_t)json_integer_value(ms), ret_cell)
		       : "-";
}

#define DURATION_CELL(object, name) print_duration(json_object_get(object, name), (char[CELL_MAX]){0})

void print_lease(const struct client *client, const struct lease *lease, const char *owner, bool with_token)
{
	const struct arguments *arguments = client->arguments;
	uint64_t end_us = lease->sent_us + lease->validity_ms * 1000, now_us = clock_now_us(),
		 left_ms = end_us > now_us ? (end_us - now_us) / 1000 : 0;
	const char *token = with_token ? lease->token : NULL;
	assert(arguments->names.joined);
	if (arguments->json) {
		print_json(json_pack("{s:o, s:I, s:o*, s:s*, s:I, s:I, s:s, s:s*, s:s*}",
				     names_member(&arguments->names), names_json(&arguments->names), "fence",
				     (json_int_t)lease->fence, "slot",
				     arguments->slots > 0 ? json_integer((json_int_t)lease->slot) : NULL, "mode",
				     arguments->shared ? "shared" : NULL, "ttl_ms", (json_int_t)lease->ttl_ms,
				     "validity_ms", (json_int_t)left_ms, "server", client_server(client)->shown,
				     "token", token, "owner", owner && *owner != '\0' ? owner : NULL));
		return;
	}
	printf("%-9s %s\n", names_member(&arguments->names), arguments->names.joined);
	if (token)
		printf("token     %s\n", token);
	printf("fence     %" PRIu64 "\n", lease->fence);
	if (arguments->slots > 0)
		printf("slot      %" PRIu64 "\n", lease->slot);
	printf("valid for %s from now\n", DURATION_TEXT(left_ms));
}

static void print_items(const json_t *items)
{
	for (size_t i = 0; i < json_array_size(items); i++)
		printf("%s%s", i > 0 ? ", " : "", print_cell(json_array_get(items, i), (char[CELL_MAX]){0}));
	putchar('\n');
}

static void print_names(const json_t *names)
{
	printf("  lease on  ");
	print_items(names);
}

/* "3 holders" */
static const char *print_count(const json_t *state, char ret_cell[CELL_MAX])
{
	json_int_t count = json_integer_value(json_object_get(state, "holder_count"));
	snprintf(ret_cell, CELL_MAX, "%" JSON_INTEGER_FORMAT " holder%s", count, count == 1 ? "" : "s");
	return ret_cell;
}

static void print_holders(const json_t *holders, json_int_t count)
{
	size_t i;
	json_t *holder;
	json_array_foreach(holders, i, holder)
	{
		bool has_slot = json_object_get(holder, "slot") != NULL;
		bool is_kept = json_is_true(json_object_get(holder, "kept"));
		printf("  %s%s by %s, fence %s, %s left%s\n", has_slot ? "slot " : "shared",
		       has_slot ? CELL(holder, "slot") : "", CELL(holder, "owner"), CELL(holder, "fence"),
		       DURATION_CELL(holder, "remaining_ms"), is_kept ? ", kept after its release" : "");
		if (json_object_get(holder, "resources")) {
			printf("  ");
			print_names(json_object_get(holder, "resources"));
		}
	}
	if (count > (json_int_t)json_array_size(holders))
		printf("  and %" JSON_INTEGER_FORMAT " more\n", count - (json_int_t)json_array_size(holders));
}

void print_state(const json_t *state)
{
	bool held = json_is_true(json_object_get(state, "held"));
	bool is_kept = json_is_true(json_object_get(state, "kept"));
	assert(json_is_object(state));
	printf("%s: %s%s%s", CELL(state, "resource"), print_color(held ? COLOR_YELLOW : COLOR_GREEN),
	       is_kept ? "kept"
	       : held  ? "held"
		       : "free",
	       print_color(COLOR_END));
	json_t *holders = json_object_get(state, "holders");
	if (holders)
		printf(" by %s, %s left", print_count(state, (char[CELL_MAX]){0}),
		       DURATION_CELL(state, "remaining_ms"));
	else if (held)
		printf(" by %s%s%s, fence %s, %s left", CELL(state, "owner"),
		       json_object_get(state, "held_ms") ? " for " : "",
		       json_object_get(state, "held_ms") ? DURATION_CELL(state, "held_ms") : "", CELL(state, "fence"),
		       DURATION_CELL(state, "remaining_ms"));
	if (json_integer_value(json_object_get(state, "waiters")) > 0)
		printf(", %s waiting", CELL(state, "waiters"));
	putchar('\n');
	print_holders(holders, json_integer_value(json_object_get(state, "holder_count")));
	if (json_object_get(state, "resources"))
		print_names(json_object_get(state, "resources"));
	if (json_object_get(state, "caller"))
		printf("  caller    %s\n", CELL(state, "caller"));
	char *metadata = json_dumps(json_object_get(state, "metadata"), JSON_COMPACT);
	if (metadata) {
		report_clean(metadata);
		printf("  metadata  %s\n", metadata);
	}
	free(metadata);
}

/* ---- tables ---- */

struct column {
	const char *heading, *member;
	enum { AS_TEXT, AS_DURATION, AS_ROUND_TRIP, AS_VOTES } how;
};

static const char *print_column(const struct column *column, const json_t *row, char ret_cell[CELL_MAX])
{
	const json_t *value = json_object_get(row, column->member);
	assert(column->member);
	if (json_object_get(row, "holders") && strcmp(column->member, "owner") == 0)
		return print_count(row, ret_cell);
	if (column->how == AS_DURATION)
		return print_duration(value, ret_cell);
	if (column->how == AS_VOTES) {
		snprintf(ret_cell, CELL_MAX, "%s of %s", CELL(value, "granted"), CELL(value, "masters"));
		return ret_cell;
	}
	if (column->how == AS_TEXT || !json_is_integer(value))
		return print_cell(value, ret_cell);
	snprintf(ret_cell, CELL_MAX, "%.1f ms", (double)json_integer_value(value) / 1000);
	return ret_cell;
}

/* The number of characters of a UTF-8 text. */
static size_t print_width(const char *text)
{
	size_t width = 0;
	for (; *text != '\0'; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

/* The last column gets no padding. */
static void print_table_cell(const char *text, bool is_last, size_t width, const char *color)
{
	size_t fill = is_last ? 0 : width - print_width(text) + 2;
	printf("%s%s%s%*s", color, text, *color != '\0' ? COLOR_END : "", (int)fill, "");
}

static void print_table(const struct column columns[COLUMNS], const json_t *rows)
{
	char cell[CELL_MAX];
	size_t widths[COLUMNS], i, j;
	json_t *row, *warning;
	for (size_t at = 0; at < COLUMNS; at++) {
		widths[at] = strlen(columns[at].heading);
		json_array_foreach(rows, i, row)
		{
			size_t width = print_width(print_column(&columns[at], row, cell));
			widths[at] = width > widths[at] ? width : widths[at];
		}
	}
	for (size_t at = 0; at < COLUMNS; at++)
		print_table_cell(columns[at].heading, at + 1 == COLUMNS, widths[at], print_color(COLOR_BOLD));
	json_array_foreach(rows, i, row)
	{
		bool votes = strcmp(answer_member(row, "state"), "voting") == 0;
		putchar('\n');
		for (size_t at = 0; at < COLUMNS; at++) {
			bool is_state = strcmp(columns[at].member, "state") == 0;
			print_table_cell(print_column(&columns[at], row, cell), at + 1 == COLUMNS, widths[at],
					 is_state ? print_color(votes ? COLOR_GREEN : COLOR_RED) : "");
		}
		json_array_foreach(json_object_get(row, "warnings"), j, warning)
			printf("\n    warning: %s", print_cell(warning, cell));
	}
	putchar('\n');
}

#define LOCK_COLUMNS                                                                                 \
	{"RESOURCE", "resource", AS_TEXT}, {"OWNER", "owner", AS_TEXT}, {"FENCE", "fence", AS_TEXT}, \
		{"HELD", "held_ms", AS_DURATION},                                                    \
	{                                                                                            \
		"LEFT", "remaining_ms", AS_DURATION                                                  \
	}

static void print_lock_table(const struct column columns[COLUMNS], const json_t *locks)
{
	const json_t *rows = json_object_get(locks, "locks");
	size_t count = json_array_size(rows);
	if (count > 0)
		print_table(columns, rows);
	printf("%zu lock%s%s\n", count, count == 1 ? "" : "s",
	       json_is_true(json_object_get(locks, "more")) ? ", and there are more" : "");
}

void print_locks(const json_t *locks)
{
	static const struct column columns[COLUMNS] = {LOCK_COLUMNS, {"WAITING", "waiters", AS_TEXT}};
	print_lock_table(columns, locks);
}

void print_votes(const json_t *locks)
{
	static const struct column columns[COLUMNS] = {LOCK_COLUMNS, {"VOTES", "votes", AS_VOTES}};
	print_lock_table(columns, locks);
}

void print_masters(const json_t *masters)
{
	static const struct column columns[COLUMNS] = {
		{"ADDRESS", "address", AS_TEXT},         {"STATE", "state", AS_TEXT},
		{"FOR", "state_ms", AS_DURATION},        {"VERSION", "version", AS_TEXT},
		{"ROUND TRIP", "rtt_us", AS_ROUND_TRIP}, {"REASON", "reason", AS_TEXT}};
	const json_t *quorum = json_object_get(masters, "quorum");
	assert(json_is_object(masters));
	print_table(columns, json_object_get(masters, "masters"));
	printf("%s of %s may vote, %s are needed\n", CELL(quorum, "voting"), CELL(quorum, "masters"),
	       CELL(quorum, "needed"));
}

void print_whoami(const json_t *whoami)
{
	const json_t *rights = json_object_get(whoami, "rights"), *prefixes = json_object_get(whoami, "prefixes"),
		     *item;
	bool all = false; /* the empty text is the beginning of every name */
	size_t i;
	assert(json_is_array(rights) && json_is_array(prefixes));
	json_array_foreach(prefixes, i, item) all = all || (json_is_string(item) && json_string_length(item) == 0);
	printf("caller    %s\nrights    ", CELL(whoami, "caller"));
	print_items(rights);
	printf("prefixes  ");
	if (all)
		puts("(all names)");
	else
		print_items(prefixes);
}

int print_failure(struct client *client, struct answer *answer)
{
	const struct arguments *arguments = client->arguments;
	char text[CLIENT_TEXT_MAX];
	int status = answer_status(answer, arguments);
	assert(answer->outcome != OUTCOME_DONE);
	report_event(arguments, REPORT_NOTE, "failed", NULL, "%s", client_explain(client, answer, text));
	if (arguments->json)
		print_json(json_object_get(answer->json, "code")
				   ? json_incref(answer->json)
				   : json_pack("{s:s, s:s}", "code", answer->code, "detail", answer->detail));
	answer_fini(answer);
	print_end(true);
	return status;
}
