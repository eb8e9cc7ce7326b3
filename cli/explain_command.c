/* SPDX-License-Identifier: MIT */
/* redlockctl explain: why a job does not get its lock. It asks every server whether it is ready, and one of them for
 * the caller's rights, the state of the lock and the masters. It takes nothing and changes nothing. See commands.h. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/cli_base.h"
#include "commands.h"
#include "server/base/base.h"

enum { EXPLAIN_TEXT_MAX = 1024, EXPLAIN_WAITING_SHOWN = 5 };

struct explain {
	struct client *client;
	const char *name;
	json_t *servers;      /* server, ready; code and detail, if not */
	json_t *waiting;      /* server, owner, waited_ms: who waited longest is the first */
	struct answer health; /* of the server that is asked for all else: of /readyz */
	struct answer whoami, state, masters;
	/* the verdict, the exit status for it, and the next step for people */
	const char *verdict;
	int status;
	char next[EXPLAIN_TEXT_MAX];
};

/* ---- asking ---- */

/* True if a redlockd has given the answer to /readyz. */
static bool explain_is_alive(const struct answer *answer)
{
	return answer->outcome == OUTCOME_DONE || json_object_get(answer->json, "quorum") != NULL;
}

/* Asks each server. The first that is ready, or else the first that lives, stays the current one. */
static void explain_ask_servers(struct explain *explain)
{
	struct client *client = explain->client;
	struct client_request request = client_request_get("/readyz");
	size_t best = 0;
	for (size_t i = 0; i < client->arguments->servers.count; i++) {
		client->server = i;
		struct answer answer = client_ask(client, 1, &request, client->arguments->timeout_ms * 1000, false);
		if (answer.outcome == OUTCOME_DONE && strcmp(answer_member(answer.json, "status"), "ready") != 0)
			answer_set(&answer, OUTCOME_STRANGE, "strange", "the answer is not from redlockd");
		bool ready = answer.outcome == OUTCOME_DONE;
		json_t *row = json_pack("{s:s, s:b}", "server", client_server(client)->shown, "ready", ready);
		if (!ready) {
			json_object_set_new(row, "code", json_string(answer.code));
			json_object_set_new(row, "detail", json_string(answer.detail));
		}
		json_array_append_new(explain->servers, row);
		bool better = i == 0 || (ready && explain->health.outcome != OUTCOME_DONE) ||
			      (explain_is_alive(&answer) && !explain_is_alive(&explain->health));
		if (better)
			best = i;
		answer_fini(better ? &explain->health : &answer);
		if (better)
			explain->health = answer;
	}
	client->server = best;
}

static void explain_ask(struct explain *explain, struct client_request request, struct answer *ret_answer)
{
	uint64_t timeout_us = explain->client->arguments->timeout_ms * 1000;
	*ret_answer = client_ask(explain->client, 1, &request, timeout_us, false);
}

static json_int_t explain_number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* The first waiters of a server, as it has them. */
static void explain_add_waiting(struct explain *explain, const json_t *first)
{
	json_t *waiter;
	size_t i;
	json_array_foreach(first, i, waiter)
	{
		size_t at = 0;
		while (at < json_array_size(explain->waiting) &&
		       explain_number(json_array_get(explain->waiting, at), "waited_ms") >=
			       explain_number(waiter, "waited_ms"))
			at++;
		json_array_insert_new(explain->waiting, at,
				      json_pack("{s:s, s:s*, s:I}", "server", client_server(explain->client)->shown,
						"owner", json_string_value(json_object_get(waiter, "owner")),
						"waited_ms", explain_number(waiter, "waited_ms")));
	}
}

/* A server knows the owners of its own waiters. */
static void explain_ask_waiting(struct explain *explain)
{
	struct client *client = explain->client;
	size_t current = client->server, i;
	json_t *server;
	json_array_foreach(explain->servers, i, server)
	{
		struct answer answer;
		json_t *row;
		size_t j;
		bool lives = json_is_true(json_object_get(server, "ready")) ||
			     strcmp(answer_member(server, "code"), "no-quorum") == 0;
		if (!lives)
			continue;
		client->server = i;
		explain_ask(explain, client_request_get("/stats"), &answer);
		json_array_foreach(json_object_get(answer.json, "waiting"), j, row)
		{
			if (strcmp(answer_member(row, "resource"), explain->name) == 0)
				explain_add_waiting(explain, json_object_get(row, "first"));
		}
		answer_fini(&answer);
	}
	client->server = current;
}

static void explain_ask_all(struct explain *explain)
{
	explain_ask_servers(explain);
	if (!explain_is_alive(&explain->health))
		return;
	explain_ask(explain, client_request_get("/whoami"), &explain->whoami);
	explain_ask(explain, client_request_get_state(explain->name), &explain->state);
	explain_ask(explain, client_request_get("/masters"), &explain->masters);
	if (explain_number(explain->state.json, "waiters") > 0)
		explain_ask_waiting(explain);
}

/* ---- the verdict ---- */

static bool explain_has_right(const json_t *whoami, const char *right)
{
	json_t *item;
	size_t i;
	json_array_foreach(json_object_get(whoami, "rights"), i, item)
	{
		if (json_is_string(item) && strcmp(json_string_value(item), right) == 0)
			return true;
	}
	return false;
}

static bool explain_has_prefix(const json_t *whoami, const char *name)
{
	json_t *item;
	size_t i;
	json_array_foreach(json_object_get(whoami, "prefixes"), i, item)
	{
		if (json_is_string(item) && strncmp(name, json_string_value(item), json_string_length(item)) == 0)
			return true;
	}
	return false;
}

static void explain_decide(struct explain *explain, const char *verdict, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void explain_decide(struct explain *explain, const char *verdict, int status, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	vsnprintf(explain->next, sizeof explain->next, format, values);
	va_end(values);
	explain->verdict = verdict;
	explain->status = status;
}

/* The lock is held. */
static void explain_decide_held(struct explain *explain)
{
	const json_t *state = explain->state.json, *votes = json_object_get(state, "votes");
	const char *left = json_object_get(state, "remaining_ms") ? DURATION_TEXT(explain_number(state, "remaining_ms"))
								  : "an unknown time";
	json_int_t fence = explain_number(state, "fence");
	if (json_is_true(json_object_get(state, "kept")))
		explain_decide(explain, "kept", EXIT_STATUS_HELD,
			       "Its last holder ended, and keeps it for a while (--at-least, keep_ms): it is free in "
			       "%s. An operator can end that: "
			       "redlockctl release NAME --force.",
			       left);
	else if (strcmp(answer_member(state, "mode"), "shared") == 0)
		explain_decide(explain, "held", EXIT_STATUS_HELD,
			       "With --shared a job joins them, unless others wait before it; without, it waits for "
			       "all of them.");
	else if (json_object_get(state, "holders"))
		explain_decide(explain, "held", EXIT_STATUS_HELD,
			       "Each of them has a slot: a job gets one if its --slots is larger than their number, or "
			       "when one of them ends.");
	else if (json_object_get(votes, "needed") && explain_number(votes, "granted") < explain_number(votes, "needed"))
		explain_decide(
			explain, "held", EXIT_STATUS_HELD,
			"Too few masters have this holder for a lease: it is an attempt, or what is left of one. "
			"Try again in %s.",
			left);
	else if (fence == 0)
		explain_decide(explain, "held", EXIT_STATUS_HELD,
			       "Another program wrote this key: look for it. It ends in %s.", left);
	else
		explain_decide(explain, "held", EXIT_STATUS_HELD,
			       "Wait for it, as with --wait 5m: it is free in %s unless the holder extends it. If the "
			       "holder is dead: redlockctl release NAME --force --fence %" JSON_INTEGER_FORMAT ".",
			       left, fence);
}

static void explain_decide_state(struct explain *explain)
{
	const struct answer *state = &explain->state;
	if (state->outcome == OUTCOME_FORBIDDEN)
		explain_decide(explain, "unknown", EXIT_STATUS_FORBIDDEN,
			       "The key may take the lock, but not look at it. Try to take it, or ask for the right "
			       "inspect.");
	else if (state->outcome != OUTCOME_DONE)
		explain_decide(explain, state->code, answer_status(state, explain->client->arguments),
			       "The state of the lock is not known. Try again.");
	else if (json_is_true(json_object_get(state->json, "held")))
		explain_decide_held(explain);
	else if (!json_is_false(json_object_get(state->json, "held")))
		explain_decide(explain, "strange", EXIT_STATUS_STRANGE, "The answer is not from redlockd.");
	else if (explain_number(state->json, "waiters") > 0)
		explain_decide(explain, "waiting", EXIT_STATUS_HELD,
			       "It is free, and goes to the first that waits. Wait, too, as with --wait 5m.");
	else
		explain_decide(
			explain, "free", EXIT_STATUS_OK,
			"Nothing is in the way: the next request gets the lock. If the job does not run, look at "
			"redlockctl run --verbose.");
}

/* The first of the reasons that keeps a job from the lock. */
static void explain_decide_all(struct explain *explain)
{
	const struct arguments *arguments = explain->client->arguments;
	const json_t *whoami = explain->whoami.json;
	if (!explain_is_alive(&explain->health))
		explain_decide(explain, explain->health.code, answer_status(&explain->health, arguments),
			       "No server can be used. Start redlockd, or give its address with --server.");
	else if (explain->whoami.outcome == OUTCOME_FORBIDDEN)
		explain_decide(explain, explain->whoami.code, EXIT_STATUS_FORBIDDEN,
			       "Give a key that the server knows, with --key-file or REDLOCKCTL_API_KEY.");
	else if (explain->whoami.outcome == OUTCOME_DONE &&
		 (!explain_has_right(whoami, "acquire") || !explain_has_prefix(whoami, explain->name)))
		explain_decide(explain, "forbidden", EXIT_STATUS_FORBIDDEN,
			       "The key may not take this lock. Ask the operator for the right acquire and a prefix of "
			       "its name.");
	else if (explain->health.outcome != OUTCOME_DONE && strcmp(explain->health.code, "draining") == 0)
		explain_decide(explain, "draining", EXIT_STATUS_UNREACHABLE,
			       "The server is shutting down. Ask another one.");
	else if (explain->health.outcome != OUTCOME_DONE)
		explain_decide(explain, explain->health.code, EXIT_STATUS_UNREACHABLE,
			       "Too few masters may vote, so nobody gets a lock. Start those that are down; a "
			       "quarantined one votes again by itself.");
	else
		explain_decide_state(explain);
}

/* ---- for people ---- */

/* A line of the screen; texts of the server lose what a terminal might act on. */
static void explain_print(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void explain_print(const char *label, const char *format, ...)
{
	char text[EXPLAIN_TEXT_MAX];
	va_list values;
	va_start(values, format);
	vsnprintf(text, sizeof text, format, values);
	va_end(values);
	report_clean(text);
	printf("  %-9s %s\n", label, text);
}

static void explain_print_waiting(const struct explain *explain, json_int_t waiters)
{
	size_t known = json_array_size(explain->waiting);
	explain_print("waiting", "%" JSON_INTEGER_FORMAT " over all servers%s", waiters,
		      known == 0 ? "; those asked do not know their owners" : "");
	for (size_t i = 0; i < known && i < EXPLAIN_WAITING_SHOWN; i++) {
		const json_t *waiter = json_array_get(explain->waiting, i);
		const char *owner = answer_member(waiter, "owner");
		explain_print("", "%.200s for %s at %.200s", *owner != '\0' ? owner : "no owner given",
			      DURATION_TEXT(explain_number(waiter, "waited_ms")), answer_member(waiter, "server"));
	}
}

static void explain_print_state(const struct explain *explain)
{
	const json_t *state = explain->state.json, *votes = json_object_get(state, "votes");
	bool known = explain->state.outcome == OUTCOME_DONE && json_is_boolean(json_object_get(state, "held"));
	json_int_t waiters = explain_number(state, "waiters");
	if (!known) {
		printf("%s: not known\n", explain->name);
		if (explain->state.detail[0] != '\0')
			explain_print("state", "%s", explain->state.detail);
		return;
	}
	print_state(state);
	if (json_is_true(json_object_get(state, "held")) && json_object_get(votes, "masters"))
		explain_print("votes", "at least %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " masters have it",
			      explain_number(votes, "granted"), explain_number(votes, "masters"));
	if (waiters > 0)
		explain_print_waiting(explain, waiters);
}

static void explain_print_masters(const struct explain *explain)
{
	const json_t *quorum = json_object_get(explain->health.json, "quorum");
	json_t *list = json_object_get(explain->masters.json, "masters"), *master;
	size_t i;
	if (!quorum)
		return;
	explain_print(
		"masters",
		"%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " may vote, %" JSON_INTEGER_FORMAT " are needed",
		explain_number(quorum, "voting"), explain_number(quorum, "masters"), explain_number(quorum, "needed"));
	json_array_foreach(list, i, master)
	{
		json_int_t left_ms = explain_number(master, "quarantine_remaining_ms");
		if (strcmp(answer_member(master, "state"), "voting") != 0)
			explain_print("", "%.200s is %.20s%s%s: %.400s", answer_member(master, "address"),
				      answer_member(master, "state"), left_ms > 0 ? " for " : "",
				      left_ms > 0 ? DURATION_TEXT(left_ms) : "", answer_member(master, "reason"));
	}
}

static void explain_join(struct text *text, const json_t *list)
{
	json_t *item;
	size_t i;
	json_array_foreach(list, i, item)
	{
		text_printf(text, "%s%s", i > 0 ? ", " : "", json_is_string(item) ? json_string_value(item) : "");
	}
}

static void explain_print_key(const struct explain *explain)
{
	const json_t *whoami = explain->whoami.json;
	const char *caller = answer_member(whoami, "caller");
	struct text rights, prefixes;
	if (explain->whoami.outcome != OUTCOME_DONE) {
		explain_print("key", "%s", explain->whoami.detail);
		return;
	}
	if (!whoami)
		return; /* no server was asked */
	text_init(&rights);
	text_init(&prefixes);
	explain_join(&rights, json_object_get(whoami, "rights"));
	explain_join(&prefixes, json_object_get(whoami, "prefixes"));
	explain_print("key", "%s may %.200s, for %s%s", *caller != '\0' ? caller : "everybody",
		      rights.len > 0 ? rights.bytes : "nothing",
		      prefixes.len > 0 ? "names that begin with " : "all names",
		      prefixes.len > 0 ? prefixes.bytes : "");
	text_fini(&rights);
	text_fini(&prefixes);
}

static void explain_print_all(const struct explain *explain)
{
	json_t *server;
	size_t i;
	explain_print_state(explain);
	explain_print_masters(explain);
	json_array_foreach(explain->servers, i, server)
	{
		bool ready = json_is_true(json_object_get(server, "ready"));
		bool is_problem = strcmp(answer_member(server, "code"), "no-quorum") == 0; /* the masters say why */
		explain_print("server", "%s: %s", answer_member(server, "server"),
			      ready        ? "ready"
			      : is_problem ? "not ready: no-quorum"
					   : answer_member(server, "detail"));
	}
	explain_print_key(explain);
	explain_print("next", "%s", explain->next);
}

/* ---- the command ---- */

static json_t *explain_body(const struct answer *answer)
{
	return answer->json ? json_incref(answer->json) : json_null();
}

int explain_command(struct client *client)
{
	struct explain explain = {.client = client,
				  .name = client->arguments->names.joined,
				  .servers = json_array(),
				  .waiting = json_array()};
	assert(client->arguments->names.count == 1);
	explain_ask_all(&explain);
	explain_decide_all(&explain);
	if (client->arguments->json)
		print_json(json_pack("{s:s, s:s, s:s, s:O, s:O, s:o, s:o, s:o}", "resource", explain.name, "verdict",
				     explain.verdict, "next", explain.next, "servers", explain.servers, "waiting",
				     explain.waiting, "state", explain_body(&explain.state), "masters",
				     explain_body(&explain.masters), "whoami", explain_body(&explain.whoami)));
	else
		explain_print_all(&explain);
	json_decref(explain.servers);
	json_decref(explain.waiting);
	answer_fini(&explain.health);
	answer_fini(&explain.whoami);
	answer_fini(&explain.state);
	answer_fini(&explain.masters);
	int printed = print_end(false);
	return printed != EXIT_STATUS_OK ? printed : explain.status;
}
