/* SPDX-License-Identifier: MIT */
/* The commands that send requests and end. See commands.h.
 *
 * Each request goes to the servers in their order until one answers; the next request begins with that server. */
#include "commands.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "cli/http/client.h"
#include "cli/run/run.h"
#include "server/base/base.h"

enum { TOKEN_FILE_MAX = 256 };

/* ---- requests ---- */

/* Asks each server at most once. */
static struct answer commands_ask(struct client *client, struct client_request request)
{
	const struct arguments *arguments = client->arguments;
	return client_ask(client, arguments->servers.count, &request, arguments->timeout_ms * 1000, false);
}

/* ---- results ---- */

static int commands_end(struct answer *answer)
{
	answer_fini(answer);
	return print_end(false);
}

static void commands_set_strange(struct answer *answer)
{
	assert(answer->outcome == OUTCOME_DONE);
	answer_set(answer, OUTCOME_STRANGE, "strange", "the answer is not from redlockd");
}

/* Prints an answer, for people by `print` (NULL: nothing). `valid` false: a 2xx answer that is not of redlockd. */
static int commands_show(struct client *client, struct answer *answer, bool valid, void (*print)(const json_t *))
{
	if (answer->outcome == OUTCOME_DONE && !valid)
		commands_set_strange(answer);
	if (answer->outcome != OUTCOME_DONE)
		return print_failure(client, answer);
	if (client->arguments->json)
		print_json(json_incref(answer->json));
	else if (print)
		print(answer->json);
	return commands_end(answer);
}

/* ---- tokens in files. no message has a part of a token ---- */

/* Reads the token from --token-file ("-": stdin); white space around it is allowed. */
static bool token_file_read(const char *path, char ret_token[TOKEN_LEN + 1])
{
	char bytes[TOKEN_FILE_MAX];
	const char *reason = NULL;
	size_t len;
	int file = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0 || !file_read(file, bytes, sizeof bytes, &len)) {
		reason = strerror(errno);
	} else {
		const char *start = api_key_trim(bytes, &len);
		snprintf(ret_token, TOKEN_LEN + 1, "%.*s", (int)len, start);
		if (len != TOKEN_LEN || !token_is_valid(ret_token))
			reason = "it holds no token, or more than one: 40 digits, 0 to 9 and a to f";
		explicit_bzero(bytes, sizeof bytes);
	}
	if (reason)
		report_error("--token-file '%s': %s", path, reason);
	if (file > STDERR_FILENO)
		close(file);
	return !reason;
}

/* Opens the file before a lease is acquired, so that no lease is granted whose token cannot be stored. Only its owner
 * may read it; its content stays until the token is written. -1: errno. */
static int token_file_open(const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (file >= 0 && fchmod(file, 0600) != 0 && errno != EPERM) {
		close(file);
		return -1;
	}
	return file;
}

/* Replaces the content of the file. False: errno. */
static bool token_file_write(int file, const char *token)
{
	char line[TOKEN_LEN + 2];
	assert(file >= 0 && strlen(token) == TOKEN_LEN);
	snprintf(line, sizeof line, "%s\n", token);
	bool done = (ftruncate(file, 0) == 0 || errno == EINVAL) && write(file, line, TOKEN_LEN + 1) == TOKEN_LEN + 1;
	explicit_bzero(line, sizeof line);
	return done;
}

/* ---- leases ---- */

/* The lease, or the exit status if there is none. A signal ends the program meanwhile, but leaves no queue entry and no
 * unknown lease: a lease is either released, or printed with exit status 0. */
static bool commands_wait_for_lease(struct client *client, struct lease *lease, int *ret_status)
{
	struct interrupt interrupt;
	struct answer answer;
	if (!interrupt_begin(&interrupt, client)) {
		*ret_status = EXIT_STATUS_SYSTEM;
		return false;
	}
	struct acquire acquire = {.client = client};
	bool granted = acquire_lease(&acquire, lease, &answer);
	if (granted && interrupt_read_order(&interrupt) == CLIENT_GO_ON)
		return true; /* the program ends soon, with 0 and the lease */
	if (granted)
		acquire_release(client, lease);
	interrupt_end(&interrupt);
	*ret_status = interrupt.number != 0 ? EXIT_STATUS_SIGNALLED + interrupt.number : print_failure(client, &answer);
	return false;
}

static int command_acquire(struct client *client)
{
	const char *path = client->arguments->token_file;
	int file = path ? token_file_open(path) : -1, status = EXIT_STATUS_SYSTEM;
	struct lease lease;
	if (path && file < 0) {
		report_error("--token-file '%s': %s", path, strerror(errno));
		return EXIT_STATUS_USAGE;
	}
	if (!commands_wait_for_lease(client, &lease, &status))
		return status;
	bool stored = !path || token_file_write(file, lease.token);
	if (stored)
		print_lease(client, &lease, client->arguments->owner, !path);
	else
		report_error("--token-file: %s", strerror(errno));
	if (stored && print_end(true) == EXIT_STATUS_OK)
		return EXIT_STATUS_OK;
	acquire_release(client, &lease); /* nobody else has its token */
	return EXIT_STATUS_SYSTEM;
}

static int command_extend(struct client *client)
{
	const struct arguments *arguments = client->arguments;
	struct lease lease = {.ttl_ms = arguments->ttl_ms};
	assert(arguments->token[0] != '\0');
	strcpy(lease.token, arguments->token);
	struct client_request request = client_request_extend(arguments, lease.token, lease.ttl_ms);
	struct answer answer;
	bool extended = false;
	for (size_t left = arguments->servers.count; !extended; left--) {
		answer = client_ask(client, 1, &request, arguments->timeout_ms * 1000, false);
		extended = answer.outcome == OUTCOME_DONE && answer_lease(&answer, arguments, &lease, &lease);
		client_record(client, &answer);
		if (!extended && (left == 1 || answer.outcome == OUTCOME_LOST))
			return print_failure(client, &answer);
		if (!extended) {
			answer_fini(&answer);
			client_next_server(client);
		}
	}
	print_lease(client, &lease, answer_member(answer.json, "owner"), false);
	return commands_end(&answer);
}

/* With --force a lock that is free is a success. Otherwise lease-expired is one only after a server that did not
 * answer: most likely that server has released it. */
static int command_release(struct client *client)
{
	const struct arguments *arguments = client->arguments;
	struct answer answer = commands_ask(
		client, arguments->force ? client_request_force(arguments->names.joined, arguments->fence)
					 : client_request_release(arguments, arguments->token, arguments->keep_ms));
	bool expired = answer_is_expired(&answer), was_free = arguments->force && expired;
	if (answer.outcome != OUTCOME_DONE && !was_free && !(expired && client->unanswered > 0))
		return print_failure(client, &answer);
	if (arguments->json)
		puts(was_free ? "{\"released\":false}" : "{\"released\":true}");
	else if (arguments->force)
		printf("%s: %s\n", arguments->names.joined,
		       was_free ? "nobody held it"
				: "released; its holder is not told, and may work on until it renews");
	return commands_end(&answer);
}

/* ---- inspecting ---- */

static int command_status(struct client *client)
{
	struct answer answer = commands_ask(client, client_request_get_state(client->arguments->names.joined));
	bool is_free = json_is_false(json_object_get(answer.json, "held"));
	int status = commands_show(client, &answer, json_is_boolean(json_object_get(answer.json, "held")), print_state);
	return status == EXIT_STATUS_OK && is_free && client->arguments->exit_code ? EXIT_STATUS_FREE : status;
}

static int commands_compare_locks(const void *a, const void *b)
{
	return strcmp(answer_member(*(json_t *const *)a, "resource"), answer_member(*(json_t *const *)b, "resource"));
}

/* Sorts the locks by name, for people and programs. */
static json_t *commands_sort_locks(const json_t *locks)
{
	size_t count = json_array_size(locks);
	json_t **order = memory_alloc((count + 1) * sizeof *order), *sorted = json_array();
	for (size_t i = 0; i < count; i++)
		order[i] = json_array_get(locks, i);
	qsort(order, count, sizeof *order, commands_compare_locks);
	for (size_t i = 0; i < count; i++)
		json_array_append(sorted, order[i]);
	free(order);
	return sorted;
}

static int command_list(struct client *client)
{
	json_t *all = json_array();
	bool more;
	struct answer answer;
	if (list_locks(client, all, &more, &answer)) {
		answer_fini(&answer);
		answer.json = json_pack("{s:o, s:b}", "locks", commands_sort_locks(all), "more", more);
	}
	json_decref(all);
	bool below = client->arguments->below > 0 || client->arguments->below_full;
	return commands_show(client, &answer, true, below ? print_votes : print_locks);
}

/* The exit status says whether there is a quorum. */
static int command_masters(struct client *client)
{
	struct answer answer = commands_ask(client, client_request_get("/masters"));
	json_t *quorum = json_object_get(answer.json, "quorum");
	json_t *needed = json_object_get(quorum, "needed"), *voting = json_object_get(quorum, "voting");
	bool valid = json_is_integer(needed) && json_is_integer(voting);
	bool quorate = json_integer_value(voting) >= json_integer_value(needed);
	int status = commands_show(client, &answer, valid, print_masters);
	return status == EXIT_STATUS_OK && !quorate ? EXIT_STATUS_UNREACHABLE : status;
}

/* Prints nothing if all is well. The member "status" is required, since another program may answer 200. */
static int command_health(struct client *client)
{
	bool ready = client->arguments->ready;
	if (client->arguments->restart_safe)
		return restart_command(client);
	struct answer answer = commands_ask(client, client_request_get(ready ? "/readyz" : "/healthz"));
	bool valid = strcmp(answer_member(answer.json, "status"), ready ? "ready" : "ok") == 0;
	return commands_show(client, &answer, valid, NULL);
}

static int command_whoami(struct client *client)
{
	struct answer answer = commands_ask(client, client_request_get("/whoami"));
	bool valid = json_is_array(json_object_get(answer.json, "rights")) &&
		     json_is_array(json_object_get(answer.json, "prefixes"));
	return commands_show(client, &answer, valid, print_whoami);
}

/* ---- running a command ---- */

static int (*const commands[COMMAND_COUNT])(struct client *) = {
	[COMMAND_ACQUIRE] = command_acquire, [COMMAND_EXTEND] = command_extend, [COMMAND_RELEASE] = command_release,
	[COMMAND_STATUS] = command_status,   [COMMAND_LIST] = command_list,     [COMMAND_MASTERS] = command_masters,
	[COMMAND_HEALTH] = command_health,   [COMMAND_WATCH] = watch_command,   [COMMAND_EXPLAIN] = explain_command,
	[COMMAND_DRILL] = drill_command,     [COMMAND_WHOAMI] = command_whoami,
};

/* A handler, since the command of watch would inherit SIG_IGN. */
static void commands_on_pipe(int number)
{
	(void)number;
}

int commands_run(struct arguments *arguments)
{
	char token[TOKEN_LEN + 1] = "";
	struct client client;
	bool reads_token = arguments->token_file && arguments->command != COMMAND_ACQUIRE;
	assert(commands[arguments->command]);
	if (reads_token && !token_file_read(arguments->token_file, token))
		return EXIT_STATUS_USAGE;
	if (reads_token)
		arguments->token = token;
	signal(SIGPIPE, commands_on_pipe);    /* see client_init(); and a lease that cannot be printed is released */
	descriptors_walk(DESCRIPTORS_RECORD); /* the job of drill inherits none of those that follow */
	if (!client_init(&client, arguments)) {
		report_error("libcurl: cannot be set up: %s", strerror(errno));
		return EXIT_STATUS_SYSTEM;
	}
	int status = commands[arguments->command](&client);
	client_fini(&client);
	explicit_bzero(token, sizeof token);
	return status;
}
