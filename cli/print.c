/* See commands.h. JSON is one object on one line. Texts of a server are cleaned for people: a label or an address could
 * hold control sequences for a terminal. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/cli_base.h"
#include "commands.h"
#include "server/base/base.h"

enum { CELL_MAX = 320 };

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

void print_state(const json_t *state)
{
	char left[DURATION_TEXT_MAX];

	assert(json_is_object(state));
	if (json_is_true(json_object_get(state, "held")))
		printf("%s: held by %s, fence %s, %s left", CELL(state, "resource"), CELL(state, "owner"),
		       CELL(state, "fence"), print_left(state, left));
	else
		printf("%s: free", CELL(state, "resource"));
	if (json_integer_value(json_object_get(state, "waiters")) > 0)
		printf(", %s waiting", CELL(state, "waiters"));
	putchar('\n');
}

void print_locks(const json_t *locks)
{
	char left[DURATION_TEXT_MAX];
	json_t *state;
	size_t i;

	json_array_foreach(json_object_get(locks, "locks"), i, state)
		printf("%-32s %-24s %16s %12s %6s\n", CELL(state, "resource"), CELL(state, "owner"),
		       CELL(state, "fence"), print_left(state, left), CELL(state, "waiters"));
}

void print_masters(const json_t *masters)
{
	const json_t *quorum = json_object_get(masters, "quorum");
	json_t *master, *warning;
	size_t i, j;

	assert(json_is_object(masters));
	json_array_foreach(json_object_get(masters, "masters"), i, master)
	{
		printf("%-40s %-11s %-8s %8s us  %s\n", CELL(master, "address"), CELL(master, "state"),
		       CELL(master, "version"), CELL(master, "rtt_us"), CELL(master, "reason"));
		json_array_foreach(json_object_get(master, "warnings"), j, warning)
			printf("    warning: %s\n", print_cell(warning, (char[CELL_MAX]){0}));
	}
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
