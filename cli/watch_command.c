/* SPDX-License-Identifier: MIT */
/* The command watch: prints each change of a lock, or runs a command at each. See commands.h.
 *
 * Each request has the tag of the state that was shown last, and is answered when the lock has another tag. So a
 * lasting change is never missed, on any server. Servers that fail, or do not wait, are asked again after a second. */
#include <assert.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "commands.h"
#include "server/base/base.h"

enum { WAIT_MS = 60000, PAUSE_US = 1000000 };

static void watch_set(const char *name, const char *value)
{
	if ((value && *value != '\0' ? setenv(name, value, 1) : unsetenv(name)) != 0)
		memory_exhausted("environment");
}

/* Sets REDLOCK_RESOURCE, REDLOCK_STATE (held or free), REDLOCK_OWNER, REDLOCK_FENCE, REDLOCK_METADATA, and the whole
 * state as JSON. */
static void watch_set_environment(const json_t *state)
{
	char *all = json_dumps(state, JSON_COMPACT);
	char *metadata = json_dumps(json_object_get(state, "metadata"), JSON_COMPACT);
	char *fence = json_dumps(json_object_get(state, "fence"), JSON_ENCODE_ANY);
	watch_set("REDLOCK_RESOURCE", answer_member(state, "resource"));
	watch_set("REDLOCK_STATE", json_is_true(json_object_get(state, "held")) ? "held" : "free");
	watch_set("REDLOCK_OWNER", answer_member(state, "owner"));
	watch_set("REDLOCK_FENCE", fence);
	watch_set("REDLOCK_METADATA", metadata);
	watch_set("REDLOCK_JSON", all);
	free(all);
	free(metadata);
	free(fence);
}

/* Runs the command and waits for its end, so that it sees one change after the other. False: it cannot be run. */
static bool watch_run(char **argv, const json_t *state, int *ret_status)
{
	pid_t child;
	watch_set_environment(state);
	int failed = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ);
	while (!failed && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (!failed)
		return true;
	report_error("%s: %s", argv[0], strerror(failed));
	*ret_status = failed == ENOENT ? EXIT_STATUS_NOT_FOUND : EXIT_STATUS_CANNOT_RUN;
	return false;
}

/* False: nobody reads stdout, or the command cannot be run. */
static bool watch_show(const struct arguments *arguments, json_t *state, int *ret_status)
{
	if (arguments->argv[0])
		return watch_run(arguments->argv, state, ret_status);
	if (arguments->json)
		print_json(json_incref(state));
	else
		print_state(state);
	*ret_status = print_end(false);
	return *ret_status == EXIT_STATUS_OK;
}

/* True if another request may succeed. */
static bool watch_may_go_on(const struct client *client, const struct answer *answer, bool *failing)
{
	char text[CLIENT_TEXT_MAX];
	if (answer->outcome != OUTCOME_UNAVAILABLE)
		return false;
	if (!*failing)
		report_event(client->arguments, REPORT_NOTE, "failed", NULL, "%s",
			     client_explain(client, answer, text));
	*failing = true;
	return true;
}

int watch_command(struct client *client)
{
	const struct arguments *arguments = client->arguments;
	char tag[ANSWER_TAG_MAX] = "";
	bool failing = false;
	int status = EXIT_STATUS_OK;
	assert(arguments->names.joined && arguments->argv);
	for (;;) {
		struct client_request request = client_request_watch(arguments->names.joined, tag, WAIT_MS);
		uint64_t asked_us = clock_now_us();
		struct answer answer = client_ask(client, arguments->servers.count, &request,
						  arguments->timeout_ms * 1000, false);
		bool is_state = answer.outcome == OUTCOME_DONE && json_is_boolean(json_object_get(answer.json, "held"));
		if (is_state && answer.tag[0] == '\0') { /* a proxy has removed it: no change can be recognized */
			answer.outcome = OUTCOME_STRANGE;
			is_state = false;
		}
		if (is_state && !watch_show(arguments, answer.json, &status)) {
			answer_fini(&answer);
			return status;
		}
		bool is_same = is_state && strcmp(tag, answer.tag) == 0;
		if (is_state)
			strcpy(tag, answer.tag);
		else if (answer.outcome != OUTCOME_DONE && !watch_may_go_on(client, &answer, &failing))
			return print_failure(client, &answer);
		uint64_t pause_us = answer.retry_after_ms * 1000 > PAUSE_US ? answer.retry_after_ms * 1000 : PAUSE_US;
		if (answer.outcome != OUTCOME_DONE)
			client_pause(client, clock_now_us() + pause_us);
		else if (!is_state || is_same) /* a server may wait for less, or not at all (--max-wait-ms) */
			client_pause(client, asked_us + PAUSE_US);
		failing = failing && answer.outcome != OUTCOME_DONE;
		answer_fini(&answer);
	}
}
