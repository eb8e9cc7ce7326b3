/* SPDX-License-Identifier: MIT */
/* Acquires a lease: carries out the steps of wait.c. See client.h.
 *
 * The validity of a lease counts from a safe time: the time when the request was sent, since the answer was written
 * later. The time when the answer was read is not safe: this process may have been stopped, the machine asleep or the
 * network slow while the lease ran. After a long wait the safe time is useless: a lease of thirty seconds would be over
 * before it began. So a lease that may be older than a quarter of its validity is extended once before it is used. PUT
 * is answered at once, so the time before it was sent is both safe and near. (waited_ms of the answer would save this
 * request, but would rely on two clocks that agree over minutes.)
 *
 * All requests of an acquisition have one Idempotency-Key, so that the next one finds a lease whose answer was lost. A
 * grant to a request that is given up is found by asking once more. A lease with too little validity left is
 * released. */
#include <assert.h>
#include <string.h>

#include "cli/base/cli_base.h"
#include "client.h"
#include "server/base/base.h"
#include "wait.h"

enum { STATE_AFTER_US = 200000, SILENT_US = 500000, CUT_OFF_US = 5000000, RELEASE_US = 500000, RELEASE_TRIES = 3 };

/* ---- reports of a wait: at once if each step is reported, after a second on a terminal, else only if no server can be
 * used for seconds ---- */

static void acquire_report(const struct acquire *acquire, const struct answer *answer)
{
	const struct arguments *arguments = acquire->client->arguments;
	char text[CLIENT_TEXT_MAX], until[DURATION_TEXT_MAX + 8] = "";
	if (arguments->wait_ms > 0)
		snprintf(until, sizeof until, " up to %s", DURATION_TEXT(arguments->wait_ms));
	report_event(arguments, REPORT_NOTE, "waiting", json_pack("{s:s}", "code", answer->code), "waiting%s: %s",
		     until, client_explain(acquire->client, answer, text));
}

static void acquire_report_wait(struct acquire *acquire, const struct answer *answer)
{
	if (acquire->report_us != UINT64_MAX)
		acquire_report(acquire, answer);
	acquire->report_us = acquire->silent_us = UINT64_MAX;
}

/* Neither the request nor the one for the state of the lock is answered: reports which server is asked. */
static void acquire_report_silence(struct acquire *acquire, uint64_t now_us)
{
	struct answer answer = {.outcome = OUTCOME_UNAVAILABLE};
	if (now_us < acquire->silent_us)
		return;
	acquire->silent_us = UINT64_MAX;
	answer_set(&answer, OUTCOME_UNAVAILABLE, "unreachable", "no answer yet");
	client_record(acquire->client, &answer);
	acquire_report(acquire, &answer);
}

static void acquire_pause(struct acquire *acquire, const struct answer *answer, uint64_t next_us)
{
	struct client *client = acquire->client;
	if (answer->outcome == OUTCOME_UNAVAILABLE && clock_now_us() >= acquire->cut_off_us) {
		acquire_report(acquire, answer);
		acquire->cut_off_us = UINT64_MAX;
	}
	if (acquire->report_us < next_us) {
		client_pause(client, acquire->report_us);
		if (client->order == CLIENT_GO_ON)
			acquire_report_wait(acquire, answer);
	}
	client_pause(client, next_us);
}

/* ---- side requests while a server lets the request wait ----
 *
 * A side request finds the holder of the lock, for the report, and shows whether the server still answers. A process
 * that hangs and a machine that is down keep their connections; without side requests they would be noticed only at the
 * end of the wait. The first one reads the state of the lock, if it is wanted; then /healthz follows each --timeout, if
 * there is another server. */

static void acquire_plan_check(struct acquire *acquire, bool wants_state, uint64_t now_us)
{
	const struct arguments *arguments = acquire->client->arguments;
	uint64_t state_us = now_us + STATE_AFTER_US;
	acquire->wants_state = wants_state;
	acquire->check_us = wants_state ? (state_us > acquire->report_us ? state_us : acquire->report_us)
			    : arguments->servers.count > 1 ? now_us + arguments->timeout_ms * 1000
							   : UINT64_MAX;
}

/* After each client_wait(): reads the answer to the side request, begins the next one. True: the server does not
 * answer, and there is another one. */
static bool acquire_check(struct acquire *acquire, uint64_t now_us)
{
	struct client *client = acquire->client;
	struct answer answer;
	if (client->side.state == CLIENT_IDLE && now_us >= acquire->check_us) {
		struct client_request request =
			acquire->wants_state ? client_request_get_state(client->arguments->names.items[acquire->asked])
					     : client_request_get("/healthz");
		client_begin(client, &client->side, &request, client->arguments->timeout_ms * 1000);
	}
	if (client->side.state != CLIENT_FINISHED)
		return false;
	client_read(&client->side, &answer);
	bool is_gone = answer.outcome == OUTCOME_UNAVAILABLE && strcmp(answer.code, "unreachable") == 0;
	bool is_free = json_is_false(json_object_get(answer.json, "held"));
	bool asks_next = acquire->wants_state && is_free && acquire->asked + 1 < client->arguments->names.count;
	if (asks_next) {
		acquire->asked++; /* of a set: who holds the first that is not free; check_us is over */
	} else if (acquire->wants_state && !is_gone) {
		answer_state(&answer);
		acquire_report_wait(acquire, &answer);
	}
	if (!asks_next)
		acquire_plan_check(acquire, false, now_us);
	answer_fini(&answer);
	return is_gone && client->arguments->servers.count > 1;
}

/* ---- one request ---- */

/* True: the request is answered. False: it has to be given up, because of an order, the time limit, or a server that
 * does not answer health checks. */
static bool acquire_await(struct acquire *acquire, uint64_t limit_us)
{
	struct client *client = acquire->client;
	while (client->order == CLIENT_GO_ON) {
		uint64_t now_us = clock_now_us();
		if (acquire_check(acquire, now_us) || now_us >= limit_us)
			return false;
		acquire_report_silence(acquire, now_us);
		uint64_t next_us = client->side.state == CLIENT_BUSY ? UINT64_MAX : acquire->check_us;
		next_us = next_us < acquire->silent_us ? next_us : acquire->silent_us;
		if (client_wait_order(client, next_us < limit_us ? next_us : limit_us))
			return true;
	}
	return false;
}

void acquire_release(struct client *client, const struct lease *lease)
{
	struct client_request request = client_request_release(client->arguments, lease->token, 0);
	assert(strlen(lease->token) == sizeof lease->token - 1);
	struct answer answer = client_ask(client, RELEASE_TRIES, &request, RELEASE_US, false);
	answer_fini(&answer);
}

/* Nobody wants the lock for now, and the answer is lost: releases the lease that may have been granted. */
static void acquire_take_back(struct acquire *acquire)
{
	struct client *client = acquire->client;
	struct client_request request = client_request_acquire(client->arguments, 0, acquire->key);
	struct lease lease;
	struct answer answer = client_ask(client, 1, &request, RELEASE_US, false);
	if (answer.outcome == OUTCOME_DONE && answer_lease(&answer, client->arguments, NULL, &lease))
		acquire_release(client, &lease);
	answer_fini(&answer);
}

/* Gives the request up. Its answer is lost; if there is no order, the next request finds a lease that it grants. */
static void acquire_give_up(struct acquire *acquire, struct answer *ret_answer)
{
	client_cancel(acquire->client, &acquire->client->main);
	if (acquire->client->order != CLIENT_GO_ON)
		acquire_take_back(acquire);
	answer_read(ret_answer, 0, NULL, 0, "it does not answer in time");
	ret_answer->is_lost = true;
}

static void acquire_ask(struct acquire *acquire, uint64_t wait_ms, struct answer *ret_answer)
{
	struct client *client = acquire->client;
	struct client_request request = client_request_acquire(client->arguments, wait_ms, acquire->key);
	uint64_t timeout_us = client->arguments->timeout_ms * 1000;
	client_begin(client, &client->main, &request, timeout_us);
	acquire_plan_check(acquire, acquire->report_us != UINT64_MAX, client->main.sent_us);
	if (wait_ms == 0)
		acquire->check_us = UINT64_MAX;
	if (acquire_await(acquire, client->main.sent_us + timeout_us + wait_ms * 1000))
		client_read(&client->main, ret_answer);
	else
		acquire_give_up(acquire, ret_answer);
	ret_answer->begun_us = acquire->begun_us;
	client_cancel(client, &client->side);
}

/* ---- the lease ---- */

/* For run half of the lease besides --kill-after, so that there is time to extend it. */
static bool acquire_is_enough(const struct acquire *acquire, const struct lease *lease)
{
	const struct arguments *arguments = acquire->client->arguments;
	uint64_t least_us = 0;
	if (arguments->command == COMMAND_RUN)
		least_us = (lease->ttl_ms + arguments_kill_after_ms(arguments, lease->ttl_ms)) * 500;
	return clock_now_us() + least_us < lease->sent_us + lease->validity_ms * 1000;
}

static bool acquire_is_young(const struct lease *lease)
{
	assert(clock_now_us() >= lease->sent_us);
	return (clock_now_us() - lease->sent_us) * 4 <= lease->validity_ms * 1000;
}

/* Extends the lease at one of the servers, so that its validity counts from now. False: it was lost or released, or
 * there was an order. */
static bool acquire_refresh(struct acquire *acquire, struct answer *answer, struct lease *lease)
{
	const struct arguments *arguments = acquire->client->arguments;
	struct client_request request = client_request_extend(arguments, lease->token, lease->ttl_ms);
	struct answer extended = client_ask(acquire->client, arguments->servers.count, &request,
					    arguments->timeout_ms * 1000, true);
	bool done = acquire->client->order == CLIENT_GO_ON && extended.outcome == OUTCOME_DONE &&
		    answer_lease(&extended, arguments, lease, lease);
	if (!done && extended.outcome != OUTCOME_LOST)
		acquire_release(acquire->client, lease);
	if (!done)
		answer_set(answer, OUTCOME_UNAVAILABLE, "late", "the lease could not be extended when it came");
	answer_fini(&extended);
	return done;
}

/* True: the answer is a lease with enough validity left. Otherwise the answer says why not, unless there was an
 * order. */
static bool acquire_evaluate(struct acquire *acquire, struct answer *answer, struct lease *lease)
{
	assert(lease);
	if (answer->outcome != OUTCOME_DONE || !answer_lease(answer, acquire->client->arguments, NULL, lease))
		return false;
	bool good = acquire_is_young(lease) && acquire_is_enough(acquire, lease);
	if (!good && !acquire_refresh(acquire, answer, lease))
		return false;
	if (acquire_is_enough(acquire, lease))
		return true;
	acquire_release(acquire->client, lease);
	answer_set(answer, OUTCOME_UNAVAILABLE, "late", "too little validity was left when the lease came");
	return false;
}

/* ---- until there is a lease ---- */

bool acquire_lease(struct acquire *acquire, struct lease *ret_lease, struct answer *ret_answer)
{
	struct client *client = acquire->client;
	struct wait wait;
	uint64_t now_us = clock_now_us(), next_us = now_us, after_us = report_wait_after_us(client->arguments);
	assert(client->read_order && client->order == CLIENT_GO_ON);
	*ret_answer = (struct answer){.outcome = OUTCOME_UNAVAILABLE};
	acquire->begun_us = now_us;
	random_token(acquire->key);
	acquire->key[TOKEN_LEN] = '\0';
	acquire->report_us = after_us == UINT64_MAX ? UINT64_MAX : now_us + after_us;
	acquire->silent_us = after_us == UINT64_MAX || after_us == 0 ? UINT64_MAX : acquire->report_us + SILENT_US;
	bool is_cut_off_told = after_us == UINT64_MAX && !client->arguments->quiet;
	acquire->cut_off_us = is_cut_off_told ? now_us + CUT_OFF_US : UINT64_MAX;
	wait_init(&wait, client->arguments->servers.count, client->server, client->arguments->wait_ms, now_us);
	while (next_us != 0) {
		if (next_us > now_us)
			acquire_pause(acquire, ret_answer, next_us);
		if (client->order == CLIENT_GO_ON) {
			client->server = wait.server;
			answer_fini(ret_answer);
			acquire_ask(acquire, wait_ask(&wait, clock_now_us()), ret_answer);
		}
		bool granted = client->order == CLIENT_GO_ON && acquire_evaluate(acquire, ret_answer, ret_lease);
		if (!granted)
			client_record(client, ret_answer);
		bool held = client->order == CLIENT_HOLD;
		if (held)
			client_pause(client, UINT64_MAX);
		if (granted || client->order == CLIENT_STOP) {
			answer_fini(ret_answer);
			return granted;
		}
		now_us = clock_now_us();
		next_us = held ? now_us : wait_next_us(&wait, ret_answer, (uint32_t)random_number(), now_us);
	}
	return false;
}
