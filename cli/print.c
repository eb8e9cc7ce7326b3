/* See commands.h. JSON is one object on one line. Texts of a server are cleaned for people: a label or an address could
 * hold control sequences for a terminal. */
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

enum { CELL_MAX = 320, COLUMNS_MAX = 5 };

/* ---- colours, on a terminal (https://no-color.org) ---- */

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

static const char *print_color_end(void)
{
	return print_color("\033[0m");
}

/* ---- values ---- */

int print_end(bool reports_pipe)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_STATUS_OK;
	if (reports_pipe || errno != EPIPE)
		report_complain("stdout: %s", strerror(errno));
	return EXIT_STATUS_SYSTEM;
}

void print_json(const json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);

	assert(text);
	puts(text);
	explicit_bzero(text, strlen(text));
	free(text);
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

static const char *print_left(const json_t *state, char ret_cell[DURATION_TEXT_MAX])
{
	const json_t *ms = json_object_get(state, "remaining_ms");

	return json_is_integer(ms) && json_integer_value(ms) >= 0
		       ? duration_format((uint64_t)json_integer_value(ms), ret_cell)
		       : "-";
}

/* Takes ownership of the object. */
static void print_json_once(json_t *object)
{
	print_json(object);
	json_decref(object);
}

void print_lease(const struct client *client, const struct lease *lease, const char *owner, bool with_token)
{
	const struct arguments *arguments = client->arguments;
	uint64_t end_us = lease->sent_us + lease->validity_ms * 1000, now_us = clock_now_us(),
		 left_ms = end_us > now_us ? (end_us - now_us) / 1000 : 0;
	const char *token = with_token ? lease->token : NULL;

	assert(arguments->name);
	if (arguments->json) {
		print_json_once(json_pack("{s:s, s:I, s:I, s:I, s:s, s:s*, s:s*}", "resource", arguments->name, "fence",
					  (json_int_t)lease->fence, "ttl_ms", (json_int_t)lease->ttl_ms, "validity_ms",
					  (json_int_t)left_ms, "server", client_server(client)->text, "token", token,
					  "owner", owner && *owner != '\0' ? owner : NULL));
		return;
	}
	printf("resource  %s\n", arguments->name);
	if (token)
		printf("token     %s\n", token);
	printf("fence     %" PRIu64 "\n", lease->fence);
	printf("valid for %s from now\n", DURATION_TEXT(left_ms));
}

/* ---- tables ---- */

struct table {
	const char *headings[COLUMNS_MAX];
	/* The text of a cell. Returns it, or `ret_cell` with it. */
	const char *(*cell)(const json_t *row, size_t column, char ret_cell[CELL_MAX]);
	const char *(*color)(const json_t *row); /* of the second column; NULL: none */
	void (*end_row)(const json_t *row);      /* what follows the row; NULL: nothing */
};

/* Characters of UTF-8. */
static size_t print_width(const char *text)
{
	size_t width = 0;

	for (; *text != '\0'; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

/* The last column is not filled up. */
static void print_table_cell(const char *text, size_t column, size_t width, const char *color)
{
	size_t fill = column + 1 < COLUMNS_MAX ? width - print_width(text) + 2 : 0;

	printf("%s%s%s%*s", color, text, *color != '\0' ? print_color_end() : "", (int)fill, "");
}

static void print_table(const struct table *table, const json_t *rows)
{
	char cell[CELL_MAX];
	size_t widths[COLUMNS_MAX], i;
	json_t *row;

	for (size_t column = 0; column < COLUMNS_MAX; column++) {
		widths[column] = strlen(table->headings[column]);
		json_array_foreach(rows, i, row)
		{
			size_t width = print_width(table->cell(row, column, cell));
			widths[column] = width > widths[column] ? width : widths[column];
		}
	}
	for (size_t column = 0; column < COLUMNS_MAX; column++)
		print_table_cell(table->headings[column], column, widths[column], print_color(COLOR_BOLD));
	putchar('\n');
	json_array_foreach(rows, i, row)
	{
		for (size_t column = 0; column < COLUMNS_MAX; column++)
			print_table_cell(table->cell(row, column, cell), column, widths[column],
					 column == 1 && table->color ? table->color(row) : "");
		putchar('\n');
		if (table->end_row)
			table->end_row(row);
	}
}

void print_state(const json_t *state)
{
	char left[DURATION_TEXT_MAX];

	assert(json_is_object(state));
	if (json_is_true(json_object_get(state, "held")))
		printf("%s: %sheld%s by %s, fence %s, %s left", CELL(state, "resource"), print_color(COLOR_YELLOW),
		       print_color_end(), CELL(state, "owner"), CELL(state, "fence"), print_left(state, left));
	else
		printf("%s: %sfree%s", CELL(state, "resource"), print_color(COLOR_GREEN), print_color_end());
	if (json_integer_value(json_object_get(state, "waiters")) > 0)
		printf(", %s waiting", CELL(state, "waiters"));
	putchar('\n');
}

static const char *print_lock_cell(const json_t *state, size_t column, char ret_cell[CELL_MAX])
{
	static const char *const names[COLUMNS_MAX] = {"resource", "owner", "fence", NULL, "waiters"};

	return names[column] ? print_cell(json_object_get(state, names[column]), ret_cell)
			     : print_left(state, ret_cell);
}

void print_locks(const json_t *locks)
{
	static const struct table table = {.headings = {"RESOURCE", "OWNER", "FENCE", "LEFT", "WAITING"},
					   .cell = print_lock_cell};
	const json_t *rows = json_object_get(locks, "locks");
	size_t count = json_array_size(rows);

	if (count > 0)
		print_table(&table, rows);
	printf("%zu lock%s%s\n", count, count == 1 ? "" : "s",
	       json_is_true(json_object_get(locks, "more")) ? ", and there are more" : "");
}

static const char *print_master_cell(const json_t *master, size_t column, char ret_cell[CELL_MAX])
{
	static const char *const names[COLUMNS_MAX] = {"address", "state", "version", "rtt_us", "reason"};
	const json_t *value = json_object_get(master, names[column]);

	if (column != 3 || !json_is_integer(value))
		return print_cell(value, ret_cell);
	snprintf(ret_cell, CELL_MAX, "%.1f ms", (double)json_integer_value(value) / 1000);
	return ret_cell;
}

static const char *print_master_color(const json_t *master)
{
	return print_color(strcmp(json_string_value(json_object_get(master, "state")) ?: "", "voting") == 0
				   ? COLOR_GREEN
				   : COLOR_RED);
}

static void print_master_warnings(const json_t *master)
{
	json_t *warning;
	size_t i;

	json_array_foreach(json_object_get(master, "warnings"), i, warning)
		printf("    warning: %s\n", print_cell(warning, (char[CELL_MAX]){0}));
}

void print_masters(const json_t *masters)
{
	static const struct table table = {.headings = {"ADDRESS", "STATE", "VERSION", "ROUND TRIP", "REASON"},
					   .cell = print_master_cell,
					   .color = print_master_color,
					   .end_row = print_master_warnings};
	const json_t *quorum = json_object_get(masters, "quorum");

	assert(json_is_object(masters));
	print_table(&table, json_object_get(masters, "masters"));
	printf("%s of %s may vote, %s are needed\n", CELL(quorum, "voting"), CELL(quorum, "masters"),
	       CELL(quorum, "needed"));
}

void print_key(const char *key, const char *hash, json_t *entry, bool json)
{
	assert(hash && (!key || entry));
	if (json) {
		print_json_once(json_pack("{s:s*, s:s, s:O*}", "key", key, "sha256", hash, "entry", entry));
	} else if (entry) {
		if (key)
			printf("key     %s\n", key);
		printf("sha256  %s\nentry   ", hash);
		print_json(entry);
	} else {
		puts(hash);
	}
}

void print_problem(const struct answer *answer)
{
	assert(answer->outcome != OUTCOME_DONE);
	if (json_object_get(answer->json, "code"))
		print_json(answer->json);
	else
		print_json_once(json_pack("{s:s, s:s}", "code", answer->code, "detail", answer->detail));
}
