/* See print.h. JSON is one object on one line. Texts of a server are cleaned for people: a label or an address could
 * hold control sequences for a terminal. */
#include "print.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/cli_base.h"

enum { CELL_MAX = 320 };

static bool print_flush(void)
{
	return fflush(stdout) == 0 && !ferror(stdout);
}

static bool print_json(const json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);

	assert(object);
	if (!text)
		return false;
	puts(text);
	explicit_bzero(text, strlen(text));
	free(text);
	return print_flush();
}

/* A member as text for people; "-" if there is none. */
static const char *cell(const json_t *object, const char *name, char ret_cell[CELL_MAX])
{
	const json_t *value = json_object_get(object, name);

	assert(name);
	if (json_is_integer(value))
		snprintf(ret_cell, CELL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else
		snprintf(ret_cell, CELL_MAX, "%s",
			 json_is_string(value) && json_string_length(value) > 0 ? json_string_value(value) : "-");
	report_clean(ret_cell);
	return ret_cell;
}

static const char *cell_duration(const json_t *object, const char *name, char ret_cell[DURATION_TEXT_MAX])
{
	json_int_t ms = json_integer_value(json_object_get(object, name));

	if (json_is_integer(json_object_get(object, name)) && ms >= 0)
		duration_format((uint64_t)ms, ret_cell);
	else
		strcpy(ret_cell, "-");
	return ret_cell;
}

static bool print_lease_json(const struct print_lease *what)
{
	json_t *object = json_pack("{s:s, s:I, s:I, s:I, s:s}", "resource", what->name, "fence",
				   (json_int_t)what->lease->fence, "ttl_ms", (json_int_t)what->lease->ttl_ms,
				   "validity_ms", (json_int_t)what->left_ms, "server", what->server);

	if (!what->without_token)
		json_object_set_new(object, "token", json_string(what->lease->token));
	if (what->owner)
		json_object_set_new(object, "owner", json_string(what->owner));
	bool done = print_json(object);
	json_decref(object);
	return done;
}

bool print_lease(const struct print_lease *what, bool json)
{
	char left[DURATION_TEXT_MAX];

	assert(what->lease && what->name);
	if (json)
		return print_lease_json(what);
	duration_format(what->left_ms, left);
	printf("resource  %s\n", what->name);
	if (!what->without_token)
		printf("token     %s\n", what->lease->token);
	printf("fence     %" PRIu64 "\n", what->lease->fence);
	printf("valid for %s from now\n", left);
	return print_flush();
}

bool print_state(const json_t *state, bool json)
{
	char name[CELL_MAX], owner[CELL_MAX], fence[CELL_MAX], left[DURATION_TEXT_MAX], waiting[CELL_MAX];

	assert(json_is_object(state));
	if (json)
		return print_json(state);
	cell(state, "resource", name);
	if (json_is_true(json_object_get(state, "held")))
		printf("%s: held by %s, fence %s, %s left", name, cell(state, "owner", owner),
		       cell(state, "fence", fence), cell_duration(state, "remaining_ms", left));
	else
		printf("%s: free", name);
	if (json_integer_value(json_object_get(state, "waiters")) > 0)
		printf(", %s waiting", cell(state, "waiters", waiting));
	putchar('\n');
	return print_flush();
}

bool print_locks(const json_t *locks, bool json)
{
	char name[CELL_MAX], owner[CELL_MAX], fence[CELL_MAX], left[DURATION_TEXT_MAX], waiting[CELL_MAX];
	json_t *state;
	size_t i;

	if (json)
		return print_json(locks);
	json_array_foreach(json_object_get(locks, "locks"), i, state)
		printf("%-32s %-24s %16s %12s %6s\n", cell(state, "resource", name), cell(state, "owner", owner),
		       cell(state, "fence", fence), cell_duration(state, "remaining_ms", left),
		       cell(state, "waiters", waiting));
	return print_flush();
}

bool print_health(const json_t *health, bool json)
{
	return !json || print_json(health);
}

static void print_warnings(const json_t *master)
{
	json_t *warning;
	size_t i;

	json_array_foreach(json_object_get(master, "warnings"), i, warning)
	{
		char text[CELL_MAX];
		snprintf(text, sizeof text, "%s", json_string_value(warning) ? json_string_value(warning) : "");
		report_clean(text);
		printf("    warning: %s\n", text);
	}
}

bool print_masters(const json_t *masters, bool json)
{
	char address[CELL_MAX], state[CELL_MAX], version[CELL_MAX], rtt[CELL_MAX], reason[CELL_MAX];
	const json_t *quorum = json_object_get(masters, "quorum");
	json_t *master;
	size_t i;

	assert(json_is_object(masters));
	if (json)
		return print_json(masters);
	json_array_foreach(json_object_get(masters, "masters"), i, master)
	{
		printf("%-40s %-11s %-8s %8s us  %s\n", cell(master, "address", address), cell(master, "state", state),
		       cell(master, "version", version), cell(master, "rtt_us", rtt), cell(master, "reason", reason));
		print_warnings(master);
	}
	printf("%s of %s may vote, %s are needed\n", cell(quorum, "voting", state), cell(quorum, "masters", address),
	       cell(quorum, "needed", version));
	return print_flush();
}

static bool print_key_json(const char *key, const char *hash, json_t *entry)
{
	json_t *object = json_object();

	if (key)
		json_object_set_new(object, "key", json_string(key));
	json_object_set_new(object, "sha256", json_string(hash));
	if (entry)
		json_object_set(object, "entry", entry);
	bool done = print_json(object);
	json_decref(object);
	return done;
}

bool print_key(const char *key, const char *hash, json_t *entry, bool json)
{
	assert(hash && (!key || entry));
	if (json)
		return print_key_json(key, hash, entry);
	if (!entry) {
		puts(hash);
		return print_flush();
	}
	if (key)
		printf("key     %s\n", key);
	printf("sha256  %s\nentry   ", hash);
	return print_json(entry);
}

bool print_problem(const struct answer *answer, bool json)
{
	assert(answer->outcome != OUTCOME_DONE);
	if (!json)
		return true;
	if (json_object_get(answer->json, "code"))
		return print_json(answer->json);
	json_t *object = json_pack("{s:s, s:s}", "code", answer->code, "detail", answer->detail);
	bool done = object && print_json(object);
	json_decref(object);
	return done;
}
