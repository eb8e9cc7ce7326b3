/* SPDX-License-Identifier: MIT */
/* redlockctl health --restart-safe: checks that the next master may be restarted. It loses its keys then, so every
 * master must vote, and no lasting lease may lack a vote. See commands.h.
 *
 * Each server knows the leases that it extended itself. A listing shows those of all servers, but may also show a lock
 * with fewer votes while it is acquired or released. So only a lock in a second listing counts. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/cli_base.h"
#include "commands.h"
#include "server/base/base.h"

enum { LOOK_AGAIN_US = 1000000, NAMED_MAX = 3, TEXT_MAX = 1024 };

static int restart_refuse(struct client *client, struct answer *answer, const char *why)
{
	answer_fini(answer);
	*answer = (struct answer){.outcome = OUTCOME_DONE};
	answer_set(answer, OUTCOME_REFUSED, "not-restart-safe", why);
	return print_failure(client, answer);
}

/* An answer without the figures must not count as "safe". */
static bool restart_is_understood(const json_t *masters)
{
	const json_t *below = json_object_get(masters, "leases_below_full");
	size_t count = json_array_size(json_object_get(masters, "masters"));
	const json_t *all = json_object_get(json_object_get(masters, "quorum"), "masters");
	return count > 0 && json_integer_value(all) == (json_int_t)count && json_is_integer(below) &&
	       json_integer_value(below) >= 0;
}

/* True if no master may be restarted by the current server's answer; writes the reason. */
static bool restart_is_unsafe(const json_t *masters, char ret_why[TEXT_MAX])
{
	json_t *list = json_object_get(masters, "masters"), *master;
	json_int_t below = json_integer_value(json_object_get(masters, "leases_below_full"));
	size_t i;
	json_array_foreach(list, i, master)
	{
		const char *state = answer_member(master, "state"), *reason = answer_member(master, "reason");
		if (strcmp(state, "voting") == 0)
			continue;
		snprintf(ret_why, TEXT_MAX, "%s is %s%s%s", answer_member(master, "address"), state,
			 *reason != '\0' ? ": " : "", reason);
		return true;
	}
	if (below > 0)
		snprintf(ret_why, TEXT_MAX, "%" JSON_INTEGER_FORMAT " leases lack a vote until they are extended again",
			 below);
	return below > 0;
}

/* True: every server sees all masters vote, and extends no lease with fewer votes. */
static bool restart_masters_vote(struct client *client, int *ret_status)
{
	struct client_request request = client_request_get("/masters");
	char why[TEXT_MAX];
	for (size_t i = 0; i < client->arguments->servers.count; i++) {
		struct answer answer = client_ask(client, 1, &request, client->arguments->timeout_ms * 1000, false);
		if (answer.outcome == OUTCOME_DONE && !restart_is_understood(answer.json))
			answer_set(&answer, OUTCOME_STRANGE, "strange", "it does not tell leases_below_full");
		if (answer.outcome != OUTCOME_DONE)
			*ret_status = print_failure(client, &answer);
		else if (restart_is_unsafe(answer.json, why))
			*ret_status = restart_refuse(client, &answer, why);
		else
			*ret_status = EXIT_STATUS_OK;
		answer_fini(&answer);
		if (*ret_status != EXIT_STATUS_OK)
			return false;
		client_next_server(client);
	}
	return true;
}

/* The fences of the locks by their names: a holder that goes on keeps its fence. */
static json_t *restart_fences(const json_t *locks)
{
	json_t *fences = json_object(), *lock;
	size_t i;
	json_array_foreach(locks, i, lock)
	{
		json_t *fence = json_object_get(lock, "fence");
		json_object_set_new(fences, answer_member(lock, "resource"), fence ? json_incref(fence) : json_null());
	}
	return fences;
}

/* The locks of `after` that `before` has, too. */
static size_t restart_describe(const json_t *before, const json_t *after, char ret_why[TEXT_MAX])
{
	json_t *fences = restart_fences(before), *again = restart_fences(after), *fence;
	struct text names;
	size_t count = 0;
	const char *name;
	text_init(&names);
	json_object_foreach(again, name, fence)
	{
		if (json_equal(json_object_get(fences, name), fence) && ++count <= NAMED_MAX)
			text_printf(&names, "%s%s", count > 1 ? ", " : "", name);
	}
	snprintf(ret_why, TEXT_MAX, "%zu lock%s a vote: %s%s", count, count == 1 ? " lacks" : "s lack",
		 count > 0 ? names.bytes : "", count > NAMED_MAX ? ", …" : "");
	text_fini(&names);
	json_decref(fences);
	json_decref(again);
	return count;
}

/* The locks that lack a vote. False: they cannot be listed, and that was reported. */
static bool restart_list(struct client *client, json_t *ret_locks, int *ret_status)
{
	struct answer answer;
	bool more, done = list_locks(client, ret_locks, &more, &answer);
	if (!done)
		*ret_status = print_failure(client, &answer);
	else
		answer_fini(&answer);
	return done;
}

int restart_command(struct client *client)
{
	int status = EXIT_STATUS_OK;
	char why[TEXT_MAX];
	json_t *before = json_array(), *after = json_array();
	struct answer answer = {.outcome = OUTCOME_DONE};
	assert(client->arguments->restart_safe);
	if (restart_masters_vote(client, &status) && restart_list(client, before, &status) &&
	    json_array_size(before) > 0) {
		client_pause(client, clock_now_us() + LOOK_AGAIN_US);
		if (restart_list(client, after, &status) && restart_describe(before, after, why) > 0)
			status = restart_refuse(client, &answer, why);
	}
	json_decref(before);
	json_decref(after);
	return status;
}
