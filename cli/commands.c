/* The commands that send requests and end. See commands.h.
 *
 * Each request goes to the servers in their order until one answers; that one is asked first the next time. */
#include "commands.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "cli/http/client.h"
#include "interrupt.h"
#include "print.h"
#include "server/base/base.h"
#include "token_file.h"

enum { PAGE_MAX = 1000 };

struct session {
	const struct arguments *arguments;
	struct client client;
	size_t server;
	size_t unanswered; /* servers that may have got the last request without an answer */
	char token[ARGUMENTS_TOKEN_LEN + 1];
};

/* ---- asking ---- */

static const struct server *session_server(const struct session *session)
{
	assert(session->server < session->arguments->servers.count);
	return &session->arguments->servers.items[session->server];
}

/* Asks each server at most once. */
static void session_ask(struct session *session, const struct client_request *request, struct answer *ret_answer)
{
	size_t count = session->arguments->servers.count;

	assert(session->arguments->servers.count > 0);
	session->unanswered = 0;
	for (size_t tries = 1;; tries++) {
		client_begin(&session->client, session_server(session), request, session->arguments->timeout_ms * 1000);
		while (!client_wait(&session->client, UINT64_MAX, NULL, 0))
			continue;
		client_read(&session->client, ret_answer);
		if (!answer_is_of_one(ret_answer) || tries == count)
			return;
		session->unanswered += ret_answer->outcome == OUTCOME_UNAVAILABLE;
		answer_fini(ret_answer);
		session->server = (session->server + 1) % count;
	}
}

static void session_ask_and_drop(struct session *session, struct client_request *request, struct answer *ret_answer)
{
	session_ask(session, request, ret_answer);
	client_request_fini(request);
}

/* ---- ending ---- */

/* Reports an answer that is no success, and returns the exit status for it. */
static int session_fail(struct session *session, struct answer *answer)
{
	const struct arguments *arguments = session->arguments;
	const char *name = arguments->name ? arguments->name : "", *separator = arguments->name ? ": " : "";
	int status = acquire_status(arguments, answer);

	assert(answer->outcome != OUTCOME_DONE);
	if (answer_is_of_one(answer) || answer->outcome == OUTCOME_STRANGE || answer->outcome == OUTCOME_FORBIDDEN)
		report_complain("%s%s%s: %s%s", name, separator, session_server(session)->text, answer->detail,
				answer_hint(answer, &arguments->credentials));
	else
		report_complain("%s%s%s", name, separator, answer->detail);
	if (!print_problem(answer, arguments->json))
		report_complain("stdout: %s", strerror(errno));
	answer_fini(answer);
	return status;
}

/* EPIPE is not reported: the reader has closed the pipe. */
static int session_end(bool printed, struct answer *answer)
{
	answer_fini(answer);
	if (printed)
		return EXIT_STATUS_OK;
	if (errno != EPIPE)
		report_complain("stdout: %s", strerror(errno));
	return EXIT_STATUS_SYSTEM;
}

/* A 2xx answer that is not one of redlockd. */
static int session_strange(struct session *session, struct answer *answer)
{
	assert(answer->outcome == OUTCOME_DONE);
	answer_set(answer, OUTCOME_STRANGE, "strange", "the answer is not from redlockd");
	return session_fail(session, answer);
}

/* ---- leases ---- */

static int session_print_lease(struct session *session, const struct lease *lease, uint64_t sent_us, const char *owner,
			       bool without_token)
{
	uint64_t end_us = sent_us + lease->validity_ms * 1000, now_us = clock_now_us();
	struct answer none = {.outcome = OUTCOME_DONE};
	struct print_lease what = {
		.name = session->arguments->name,
		.owner = owner,
		.server = session_server(session)->text,
		.lease = lease,
		.left_ms = end_us > now_us ? (end_us - now_us) / 1000 : 0,
		.without_token = without_token,
	};

	return session_end(print_lease(&what, session->arguments->json), &none);
}

/* Releases a lease whose token cannot be given to the user. */
static int session_give_up(struct session *session, const struct lease *lease, const char *what)
{
	struct client_request request;
	struct answer answer;

	assert(lease->token[0] != '\0');
	report_complain("%s: %s", what, strerror(errno));
	client_request_release(&request, session->arguments->name, lease->token);
	session_ask_and_drop(session, &request, &answer);
	answer_fini(&answer);
	return EXIT_STATUS_SYSTEM;
}

/* The lease, or the exit status if there is none. A signal ends the program meanwhile, but not with a queue entry or an
 * unknown lease: a lease is either released, or printed with exit status 0. */
static bool session_wait_for_lease(struct session *session, struct lease *lease, uint64_t *sent_us, int *ret_status)
{
	struct interrupt interrupt;
	struct answer answer;

	if (!interrupt_begin(&interrupt)) {
		report_complain("signalfd: %s", strerror(errno));
		*ret_status = EXIT_STATUS_SYSTEM;
		return false;
	}
	struct acquire acquire = {.client = &session->client,
				  .arguments = session->arguments,
				  .extra = &interrupt.file,
				  .read_order = interrupt_read_order,
				  .context = &interrupt};
	enum acquire_result result = acquire_lease(&acquire, lease, sent_us, &answer);
	session->server = acquire.server;
	if (result == ACQUIRE_GRANTED && interrupt_came(&interrupt)) {
		acquire_release(&acquire, lease);
		result = ACQUIRE_STOPPED;
	}
	if (result != ACQUIRE_GRANTED)
		interrupt_end(&interrupt); /* otherwise the program ends in a moment, with 0 and the lease */
	if (result == ACQUIRE_REFUSED)
		*ret_status = session_fail(session, &answer);
	if (result == ACQUIRE_STOPPED)
		*ret_status = EXIT_STATUS_SIGNALLED + interrupt.number;
	return result == ACQUIRE_GRANTED;
}

static int session_acquire(struct session *session, int token_file)
{
	struct lease lease;
	uint64_t sent_us;
	int status = EXIT_STATUS_SYSTEM;

	if (!session_wait_for_lease(session, &lease, &sent_us, &status)) {
		if (token_file >= 0)
			close(token_file);
		return status;
	}
	if (token_file >= 0 && !token_file_write(token_file, lease.token))
		return session_give_up(session, &lease, "--token-file");
	status = session_print_lease(session, &lease, sent_us, session->arguments->owner, token_file >= 0);
	return status == EXIT_STATUS_OK ? status : session_give_up(session, &lease, "stdout");
}

static int command_acquire(struct session *session)
{
	const char *path = session->arguments->token_file;

	if (!path)
		return session_acquire(session, -1);
	int file = token_file_open(path);
	if (file < 0) {
		report_complain("--token-file '%s': %s", path, strerror(errno));
		return EXIT_STATUS_USAGE;
	}
	return session_acquire(session, file);
}

static int command_extend(struct session *session)
{
	struct client_request request;
	struct answer answer;
	struct lease lease;

	assert(session->token[0] != '\0');
	client_request_extend(&request, session->arguments->name, session->token, session->arguments->ttl_ms);
	session_ask_and_drop(session, &request, &answer);
	uint64_t sent_us = session->client.main.sent_us;
	if (answer.outcome != OUTCOME_DONE || !answer_lease(&answer, session->arguments->name, session->token, &lease))
		return session_fail(session, &answer);
	char owner[ARGUMENTS_OWNER_MAX + 1] = "";
	const char *its_owner = json_string_value(json_object_get(answer.json, "owner"));
	if (its_owner && strlen(its_owner) < sizeof owner)
		strcpy(owner, its_owner);
	answer_fini(&answer);
	return session_print_lease(session, &lease, sent_us, *owner == '\0' ? NULL : owner, true);
}

/* Releases without the token. A lock that is free is a success. */
static int command_force(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	struct client_request request;
	struct answer answer;

	assert(session->arguments->force);
	client_request_force(&request, arguments->name);
	session_ask_and_drop(session, &request, &answer);
	bool free = answer.outcome == OUTCOME_LOST && strcmp(answer.code, "lease-expired") == 0;
	if (answer.outcome != OUTCOME_DONE && !free)
		return session_fail(session, &answer);
	if (arguments->json)
		puts(free ? "{\"released\":false}" : "{\"released\":true}");
	else
		printf("%s: %s\n", arguments->name, free ? "nobody held it" : "taken from its holder, and free");
	return session_end(fflush(stdout) == 0, &answer);
}

/* lease-expired after a server that did not answer: most likely that server has released it. */
static int command_release(struct session *session)
{
	struct client_request request;
	struct answer answer;

	if (session->arguments->force)
		return command_force(session);
	client_request_release(&request, session->arguments->name, session->token);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome == OUTCOME_LOST && session->unanswered > 0 && strcmp(answer.code, "lease-expired") == 0)
		answer.outcome = OUTCOME_DONE;
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	if (session->arguments->json)
		puts("{\"released\":true}");
	return session_end(fflush(stdout) == 0, &answer);
}

/* ---- inspecting ---- */

static int command_status(struct session *session)
{
	struct client_request request;
	struct answer answer;

	client_request_status(&request, session->arguments->name);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	if (!json_is_boolean(json_object_get(answer.json, "held")))
		return session_strange(session, &answer);
	return session_end(print_state(answer.json, session->arguments->json), &answer);
}

static uint64_t session_page_limit(const struct session *session, const json_t *all)
{
	uint64_t limit = session->arguments->limit;

	assert(session->arguments->limit == 0 || json_array_size(all) < session->arguments->limit);
	if (limit == 0)
		return PAGE_MAX;
	uint64_t left = limit - json_array_size(all);
	return left < PAGE_MAX ? left : PAGE_MAX;
}

/* Adds one page to `all`; *cursor is that of the next page, or NULL. */
static bool session_list_page(struct session *session, json_t *all, json_t **cursor, struct answer *answer)
{
	struct client_request request;

	assert(json_is_array(all));
	client_request_list(&request, session->arguments->prefix, session_page_limit(session, all),
			    json_string_value(*cursor));
	session_ask_and_drop(session, &request, answer);
	json_decref(*cursor);
	*cursor = NULL;
	if (answer->outcome != OUTCOME_DONE)
		return false;
	json_t *next = json_object_get(answer->json, "cursor");
	if (json_array_extend(all, json_object_get(answer->json, "locks")) != 0 ||
	    (json_is_string(next) && json_string_length(next) > 63)) {
		answer_set(answer, OUTCOME_STRANGE, "strange", "the answer is not from redlockd");
		return false;
	}
	*cursor = json_is_string(next) ? json_incref(next) : NULL;
	return true;
}

static int command_list(struct session *session)
{
	json_t *result = json_pack("{s:[]}", "locks"), *all = json_object_get(result, "locks"), *cursor = NULL;
	uint64_t limit = session->arguments->limit;
	struct answer answer;
	int status;

	for (;;) {
		if (!session_list_page(session, all, &cursor, &answer)) {
			status = session_fail(session, &answer);
			break;
		}
		if (!cursor || (limit > 0 && json_array_size(all) >= limit)) {
			status = session_end(print_locks(result, session->arguments->json), &answer);
			break;
		}
		answer_fini(&answer);
	}
	json_decref(cursor);
	json_decref(result);
	return status;
}

/* The exit status says whether there is a quorum. */
static int command_masters(struct session *session)
{
	struct client_request request;
	struct answer answer;

	client_request_masters(&request);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	json_t *quorum = json_object_get(answer.json, "quorum");
	json_t *needed = json_object_get(quorum, "needed"), *voting = json_object_get(quorum, "voting");
	if (!json_is_integer(needed) || !json_is_integer(voting))
		return session_strange(session, &answer);
	bool quorate = json_integer_value(voting) >= json_integer_value(needed);
	int status = session_end(print_masters(answer.json, session->arguments->json), &answer);
	return status != EXIT_STATUS_OK ? status : quorate ? EXIT_STATUS_OK : EXIT_STATUS_UNREACHABLE;
}

/* Prints nothing if all is well. The member "status" is required, since another program may answer 200. */
static int command_health(struct session *session)
{
	struct client_request request;
	struct answer answer;

	if (session->arguments->ready)
		client_request_ready(&request);
	else
		client_request_health(&request);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	const char *status = json_string_value(json_object_get(answer.json, "status"));
	if (!status || strcmp(status, session->arguments->ready ? "ready" : "ok") != 0)
		return session_strange(session, &answer);
	return session_end(print_health(answer.json, session->arguments->json), &answer);
}

/* ---- running a command ---- */

/* The token, before anything is sent. */
static bool session_find_token(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	const char *reason = NULL;

	assert(session->arguments->token || session->arguments->token_file);
	if (arguments->token)
		strcpy(session->token, arguments->token);
	else
		reason = token_file_read(arguments->token_file, session->token);
	if (reason)
		report_complain("--token-file '%s': %s", arguments->token_file, reason);
	return !reason;
}

static int (*const commands[COMMAND_COUNT])(struct session *) = {
	[COMMAND_ACQUIRE] = command_acquire, [COMMAND_EXTEND] = command_extend, [COMMAND_RELEASE] = command_release,
	[COMMAND_STATUS] = command_status,   [COMMAND_LIST] = command_list,     [COMMAND_MASTERS] = command_masters,
	[COMMAND_HEALTH] = command_health,
};

int commands_run(const struct arguments *arguments)
{
	struct session session = {.arguments = arguments};

	bool needs_token = arguments->command == COMMAND_EXTEND ||
			   (arguments->command == COMMAND_RELEASE && !arguments->force);

	assert(commands[arguments->command]);
	if (needs_token && !session_find_token(&session))
		return EXIT_STATUS_USAGE;
	signal(SIGPIPE, SIG_IGN); /* see client_init(); and a lease that cannot be printed is released */
	if (!client_init(&session.client, &arguments->credentials)) {
		report_complain("libcurl: cannot be set up: %s", strerror(errno));
		return EXIT_STATUS_SYSTEM;
	}
	int status = commands[arguments->command](&session);
	client_fini(&session.client);
	explicit_bzero(session.token, sizeof session.token);
	return status;
}
