/* The commands that ask and end. See commands.h.
 *
 * Each request goes to the servers in their order until one answers; the one that did is asked first the next time. */
#include "commands.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/http/acquire.h"
#include "cli/http/client.h"
#include "cli/http/client_request.h"
#include "exit_status.h"
#include "interrupt.h"
#include "print.h"
#include "report.h"
#include "secret.h"
#include "server/base/base.h"

enum { PAGE_MAX = 1000 };

struct session {
	const struct options *options;
	struct http http;
	size_t server;
	size_t unanswered; /* servers that may have got the last request and did not say so */
	char token[OPTIONS_TOKEN_LEN + 1];
};

/* ---- asking ---- */

static const struct server *session_server(const struct session *session)
{
	return &session->options->servers.items[session->server];
}

/* Asks each server once at most. */
static void session_ask(struct session *session, const struct request *request, struct answer *ret_answer)
{
	size_t count = session->options->servers.count;

	session->unanswered = 0;
	for (size_t tries = 1;; tries++) {
		http_begin(&session->http, session_server(session), request, session->options->timeout_ms * 1000);
		while (!http_wait(&session->http, UINT64_MAX, NULL, 0))
			continue;
		http_read(&session->http, ret_answer);
		if (!answer_is_of_one(ret_answer) || tries == count)
			return;
		session->unanswered += ret_answer->outcome == OUTCOME_UNAVAILABLE;
		answer_fini(ret_answer);
		session->server = (session->server + 1) % count;
	}
}

static void session_ask_and_drop(struct session *session, struct request *request, struct answer *ret_answer)
{
	session_ask(session, request, ret_answer);
	request_fini(request);
}

/* ---- ending ---- */

/* Says what went wrong, and returns the exit status for it. */
static int session_fail(struct session *session, struct answer *answer)
{
	const struct options *options = session->options;
	const char *name = options->name == NULL ? "" : options->name, *separator = options->name == NULL ? "" : ": ";
	int status = acquire_status(options, answer);

	if (answer_is_of_one(answer) || answer->outcome == OUTCOME_STRANGE || answer->outcome == OUTCOME_FORBIDDEN)
		report_complain("%s%s%s: %s%s", name, separator, session_server(session)->text, answer->detail,
				credentials_hint(&options->credentials, answer));
	else
		report_complain("%s%s%s", name, separator, answer->detail);
	if (!print_problem(answer, options->json))
		report_complain("stdout: %s", strerror(errno));
	answer_fini(answer);
	return status;
}

/* Whoever has closed the other end of a pipe wants no more, and knows it. */
static int session_end(bool printed, struct answer *answer)
{
	answer_fini(answer);
	if (printed)
		return STATUS_OK;
	if (errno != EPIPE)
		report_complain("stdout: %s", strerror(errno));
	return STATUS_SYSTEM;
}

/* An answer that is done, but is not what it should be. */
static int session_strange(struct session *session, struct answer *answer)
{
	answer_set(answer, OUTCOME_STRANGE, "strange", "the answer is not one of redlockd's");
	return session_fail(session, answer);
}

/* ---- leases ---- */

static int session_print_lease(struct session *session, const struct lease *lease, uint64_t sent_us, const char *owner,
			       bool without_token)
{
	uint64_t end_us = sent_us + lease->validity_ms * 1000, now_us = clock_now_us();
	struct answer none = {.outcome = OUTCOME_DONE};
	struct print_lease what = {
		.name = session->options->name,
		.owner = owner,
		.server = session_server(session)->text,
		.lease = lease,
		.left_ms = end_us > now_us ? (end_us - now_us) / 1000 : 0,
		.without_token = without_token,
	};

	return session_end(print_lease(&what, session->options->json), &none);
}

/* Gives back a lease whose token cannot be handed to the user. */
static int session_give_up(struct session *session, const struct lease *lease, const char *what)
{
	struct request request;
	struct answer answer;

	report_complain("%s: %s", what, strerror(errno));
	request_release(&request, session->options->name, lease->token);
	session_ask_and_drop(session, &request, &answer);
	answer_fini(&answer);
	return STATUS_SYSTEM;
}

/* The lease, or the exit status for why there is none. Signals meanwhile end us, but not with a place in the line or a
 * lease that nobody knows of: either it is given back, or it is printed and the exit status says so. */
static bool session_wait_for_lease(struct session *session, struct lease *lease, uint64_t *sent_us, int *ret_status)
{
	struct interrupt interrupt;
	struct answer answer;

	if (!interrupt_begin(&interrupt)) {
		report_complain("signalfd: %s", strerror(errno));
		*ret_status = STATUS_SYSTEM;
		return false;
	}
	struct acquire acquire = {.http = &session->http,
				  .options = session->options,
				  .extra = &interrupt.file,
				  .told = interrupt_told,
				  .context = &interrupt};
	enum acquire_result result = acquire_lease(&acquire, lease, sent_us, &answer);
	session->server = acquire.server;
	if (result == ACQUIRE_GRANTED && interrupt_came(&interrupt)) {
		acquire_give_back(&acquire, lease);
		result = ACQUIRE_STOPPED;
	}
	if (result != ACQUIRE_GRANTED)
		interrupt_end(&interrupt); /* otherwise we end in a moment, and with 0: then the caller has the lease */
	if (result == ACQUIRE_REFUSED)
		*ret_status = session_fail(session, &answer);
	if (result == ACQUIRE_STOPPED)
		*ret_status = STATUS_SIGNALLED + interrupt.number;
	return result == ACQUIRE_GRANTED;
}

static int session_acquire(struct session *session, int token_file)
{
	struct lease lease;
	uint64_t sent_us;
	int status = STATUS_SYSTEM;

	if (!session_wait_for_lease(session, &lease, &sent_us, &status)) {
		if (token_file >= 0)
			close(token_file);
		return status;
	}
	if (token_file >= 0 && !secret_write(token_file, lease.token))
		return session_give_up(session, &lease, "--token-file");
	status = session_print_lease(session, &lease, sent_us, session->options->owner, token_file >= 0);
	return status == STATUS_OK ? status : session_give_up(session, &lease, "stdout");
}

static int command_acquire(struct session *session)
{
	const char *path = session->options->token_file;

	if (path == NULL)
		return session_acquire(session, -1);
	int file = secret_open(path);
	if (file < 0) {
		report_complain("--token-file '%s': %s", path, strerror(errno));
		return STATUS_USAGE;
	}
	return session_acquire(session, file);
}

static int command_extend(struct session *session)
{
	struct request request;
	struct answer answer;
	struct lease lease;

	request_extend(&request, session->options->name, session->token, session->options->ttl_ms);
	session_ask_and_drop(session, &request, &answer);
	uint64_t sent_us = session->http.main.sent_us;
	if (answer.outcome != OUTCOME_DONE || !answer_lease(&answer, session->options->name, session->token, &lease))
		return session_fail(session, &answer);
	char owner[OPTIONS_OWNER_MAX + 1] = "";
	const char *its_owner = json_string_value(json_object_get(answer.json, "owner"));
	if (its_owner != NULL && strlen(its_owner) < sizeof(owner))
		strcpy(owner, its_owner);
	answer_fini(&answer);
	return session_print_lease(session, &lease, sent_us, *owner == '\0' ? NULL : owner, true);
}

/* From whoever holds it. That nobody does is what was wanted. */
static int command_force(struct session *session)
{
	const struct options *options = session->options;
	struct request request;
	struct answer answer;

	request_force(&request, options->name);
	session_ask_and_drop(session, &request, &answer);
	bool free = answer.outcome == OUTCOME_LOST && strcmp(answer.code, "lease-expired") == 0;
	if (answer.outcome != OUTCOME_DONE && !free)
		return session_fail(session, &answer);
	if (options->json)
		puts(free ? "{\"released\":false}" : "{\"released\":true}");
	else
		printf("%s: %s\n", options->name, free ? "nobody held it" : "taken from its holder, and free");
	return session_end(fflush(stdout) == 0, &answer);
}

/* "It has run out" after a server that did not answer may well be the work of that server: nobody holds it, which is
 * what was wanted. */
static int command_release(struct session *session)
{
	struct request request;
	struct answer answer;

	if (session->options->force)
		return command_force(session);
	request_release(&request, session->options->name, session->token);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome == OUTCOME_LOST && session->unanswered > 0 && strcmp(answer.code, "lease-expired") == 0)
		answer.outcome = OUTCOME_DONE;
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	if (session->options->json)
		puts("{\"released\":true}");
	return session_end(fflush(stdout) == 0, &answer);
}

/* ---- looking ---- */

static int command_status(struct session *session)
{
	struct request request;
	struct answer answer;

	request_status(&request, session->options->name);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	if (!json_is_boolean(json_object_get(answer.json, "held")))
		return session_strange(session, &answer);
	return session_end(print_state(answer.json, session->options->json), &answer);
}

/* How many locks the next page may hold. */
static uint64_t page_limit(const struct session *session, const json_t *all)
{
	uint64_t limit = session->options->limit;

	if (limit == 0)
		return PAGE_MAX;
	uint64_t left = limit - json_array_size(all);
	return left < PAGE_MAX ? left : PAGE_MAX;
}

/* Adds one page to `all`; *cursor is where it goes on, or NULL. */
static bool list_page(struct session *session, json_t *all, json_t **cursor, struct answer *answer)
{
	struct request request;

	request_list(&request, session->options->prefix, page_limit(session, all), json_string_value(*cursor));
	session_ask_and_drop(session, &request, answer);
	json_decref(*cursor);
	*cursor = NULL;
	if (answer->outcome != OUTCOME_DONE)
		return false;
	json_t *next = json_object_get(answer->json, "cursor");
	if (json_array_extend(all, json_object_get(answer->json, "locks")) != 0 ||
	    (json_is_string(next) && json_string_length(next) > 63)) {
		answer_set(answer, OUTCOME_STRANGE, "strange", "the answer is not one of redlockd's");
		return false;
	}
	*cursor = json_is_string(next) ? json_incref(next) : NULL;
	return true;
}

static int command_list(struct session *session)
{
	json_t *result = json_pack("{s:[]}", "locks"), *all = json_object_get(result, "locks"), *cursor = NULL;
	uint64_t limit = session->options->limit;
	struct answer answer;
	int status;

	for (;;) {
		if (!list_page(session, all, &cursor, &answer)) {
			status = session_fail(session, &answer);
			break;
		}
		if (cursor == NULL || (limit > 0 && json_array_size(all) >= limit)) {
			status = session_end(print_locks(result, session->options->json), &answer);
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
	struct request request;
	struct answer answer;

	request_masters(&request);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	json_t *quorum = json_object_get(answer.json, "quorum");
	json_t *needed = json_object_get(quorum, "needed"), *voting = json_object_get(quorum, "voting");
	if (!json_is_integer(needed) || !json_is_integer(voting))
		return session_strange(session, &answer);
	bool quorate = json_integer_value(voting) >= json_integer_value(needed);
	int status = session_end(print_masters(answer.json, session->options->json), &answer);
	return status != STATUS_OK ? status : quorate ? STATUS_OK : STATUS_UNREACHABLE;
}

/* Silent where all is well, as whoever watches over a service wants it. A "status" must be there: a 200 may come from
 * anybody. */
static int command_health(struct session *session)
{
	struct request request;
	struct answer answer;

	if (session->options->ready)
		request_ready(&request);
	else
		request_health(&request);
	session_ask_and_drop(session, &request, &answer);
	if (answer.outcome != OUTCOME_DONE)
		return session_fail(session, &answer);
	const char *status = json_string_value(json_object_get(answer.json, "status"));
	if (status == NULL || strcmp(status, session->options->ready ? "ready" : "ok") != 0)
		return session_strange(session, &answer);
	return session_end(print_health(answer.json, session->options->json), &answer);
}

/* ---- */

/* The token, before anything is sent. */
static bool session_find_token(struct session *session)
{
	const struct options *options = session->options;
	const char *reason = NULL;

	if (options->token != NULL)
		strcpy(session->token, options->token);
	else
		reason = secret_read(options->token_file, session->token);
	if (reason != NULL)
		report_complain("--token-file '%s': %s", options->token_file, reason);
	return reason == NULL;
}

static int (*const commands[COMMAND_COUNT])(struct session *) = {
	[COMMAND_ACQUIRE] = command_acquire, [COMMAND_EXTEND] = command_extend, [COMMAND_RELEASE] = command_release,
	[COMMAND_STATUS] = command_status,   [COMMAND_LIST] = command_list,     [COMMAND_MASTERS] = command_masters,
	[COMMAND_HEALTH] = command_health,
};

int commands_run(const struct options *options)
{
	struct session session = {.options = options};

	bool needs_token = options->command == COMMAND_EXTEND ||
			   (options->command == COMMAND_RELEASE && !options->force);

	assert(commands[options->command] != NULL);
	if (needs_token && !session_find_token(&session))
		return STATUS_USAGE;
	signal(SIGPIPE, SIG_IGN); /* see http_init(); and a lease that cannot be printed is given back */
	if (!http_init(&session.http, &options->credentials)) {
		report_complain("libcurl: cannot be set up: %s", strerror(errno));
		return STATUS_SYSTEM;
	}
	int status = commands[options->command](&session);
	http_fini(&session.http);
	explicit_bzero(session.token, sizeof(session.token));
	return status;
}
