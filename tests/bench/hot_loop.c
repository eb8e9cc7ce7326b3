/* SPDX-License-Identifier: MIT */
/* Many want one lock, each again and again: acquire, release at once, acquire. With N waiters there are N + 1 clients,
 * since one of them has it.
 *
 *   holder   ──DELETE──►                     ◄──204──
 *                 |                             :
 *                 | hand-over                   : the same from the answer (may be negative: the answer may come later)
 *   next     ◄──201──                           :
 *
 * A hand-over counts where the next holder had sent its request before the DELETE left: only then did it wait. The
 * clients drain at the end (nobody asks again), so that each request is seen to be answered.
 *
 * `overtaken` compares when requests were sent with when they were granted: sent later, granted earlier, at the same
 * server or any. As the sockets are read by the server when it likes, overtaking by some microseconds is no proof of
 * anything; `overtaken_max_us` says how far it went. hot_order.c is the proof. */
#include <stdio.h>

#include "hot_lock.h"

enum { LOOP_ERRORS = 8, LOOP_PAUSE_MS = 10, LOOP_DRAIN_MS = 60000 };

/* Of the clients granted so far: the latest time at which one of them asked. */
struct overtaking {
	uint64_t latest_ns, worst_ns;
	unsigned count;
};

static struct {
	uint64_t from_ns, to_ns;
	uint64_t grants, grants_total, in_line, fence;
	unsigned fence_mistakes, idle;
	struct client *releaser; /* whose DELETE the next grant follows */
	struct overtaking of_server[BENCH_SERVERS_MAX], of_all;
	struct figures wait, handover, from_answer, between; /* between: hand-overs from one server to another */
	struct {
		int status;
		unsigned count;
	} errors[LOOP_ERRORS];
	uv_timer_t drain;
} loop;

static bool loop_counts(uint64_t at_ns)
{
	return at_ns >= loop.from_ns && at_ns < loop.to_ns;
}

static void loop_look_for_overtaking(struct overtaking *overtaking, uint64_t sent_ns)
{
	if (sent_ns < loop.from_ns)
		return; /* at the very beginning all ask at once */
	if (sent_ns >= overtaking->latest_ns) {
		overtaking->latest_ns = sent_ns;
		return;
	}
	overtaking->count++;
	if (overtaking->latest_ns - sent_ns > overtaking->worst_ns)
		overtaking->worst_ns = overtaking->latest_ns - sent_ns;
}

/* The time from the DELETE's answer to the next grant is known when both were seen, in whichever order. */
static void loop_add_from_answer(struct client *releaser)
{
	if (releaser->next_grant_ns != 0 && releaser->release_answered_ns != 0 && loop_counts(releaser->next_grant_ns))
		figures_add(&loop.from_answer, (int64_t)(releaser->next_grant_ns - releaser->release_answered_ns));
}

static void loop_note_handover(struct client *client)
{
	struct client *releaser = loop.releaser;

	if (releaser == NULL || client->sent_ns >= releaser->release_sent_ns)
		return;
	releaser->next_grant_ns = client->answered_ns;
	loop_add_from_answer(releaser);
	if (!loop_counts(client->answered_ns))
		return;
	loop.in_line++;
	figures_add(&loop.handover, (int64_t)(client->answered_ns - releaser->release_sent_ns));
	if (releaser->server != client->server)
		figures_add(&loop.between, (int64_t)(client->answered_ns - releaser->release_sent_ns));
}

static void loop_on_grant(struct client *client)
{
	loop.grants_total++;
	loop_look_for_overtaking(&loop.of_server[client->server], client->sent_ns);
	loop_look_for_overtaking(&loop.of_all, client->sent_ns);
	if (client->fence != 0 && client->fence <= loop.fence)
		loop.fence_mistakes++;
	loop.fence = client->fence;
	loop_note_handover(client);
	if (loop_counts(client->answered_ns)) {
		loop.grants++;
		figures_add(&loop.wait, (int64_t)(client->answered_ns - client->sent_ns));
	}
	client->next_grant_ns = client->release_answered_ns = 0;
	client_release(client);
	client->release_sent_ns = client->sent_ns;
	loop.releaser = client;
}

static void loop_end(struct bench *bench)
{
	uv_close((uv_handle_t *)&loop.drain, NULL);
	for (unsigned i = 0; i < bench->client_count; i++)
		client_close(&bench->clients[i]);
}

static void loop_ask(struct client *client)
{
	struct bench *bench = client->owner;

	if (uv_hrtime() < loop.to_ns)
		client_acquire(client, bench->resource);
	else if (++loop.idle == bench->client_count)
		loop_end(bench);
}

static void loop_on_pause(uv_timer_t *timer)
{
	loop_ask(timer->data);
}

static void loop_on_refusal(struct client *client)
{
	unsigned i = 0;

	while (i < LOOP_ERRORS - 1 && loop.errors[i].status != 0 && loop.errors[i].status != client->status)
		i++;
	loop.errors[i].status = client->status;
	loop.errors[i].count++;
	uv_timer_start(&client->pause, loop_on_pause, LOOP_PAUSE_MS, 0);
}

static void loop_on_event(struct client *client, enum client_event event)
{
	if (event == CLIENT_READY) {
		bench_client_ready(client->owner);
	} else if (event == CLIENT_GRANTED) {
		loop_on_grant(client);
	} else if (event == CLIENT_RELEASED) {
		client->release_answered_ns = client->answered_ns;
		loop_add_from_answer(client);
		loop_ask(client);
	} else {
		loop_on_refusal(client);
	}
}

static void loop_on_stuck(uv_timer_t *timer)
{
	struct bench *bench = timer->data;

	http_die("%u of %u clients have no answer %d s after the end", bench->client_count - loop.idle,
		 bench->client_count, LOOP_DRAIN_MS / 1000);
}

static void loop_begin(struct bench *bench)
{
	loop.from_ns = uv_hrtime() + (uint64_t)(bench->warmup_s * 1e9);
	loop.to_ns = loop.from_ns + (uint64_t)(bench->seconds * 1e9);
	uv_timer_init(&bench->loop, &loop.drain);
	loop.drain.data = bench;
	uv_timer_start(&loop.drain, loop_on_stuck,
		       (uint64_t)((bench->warmup_s + bench->seconds) * 1000) + LOOP_DRAIN_MS, 0);
	for (unsigned i = 0; i < bench->client_count; i++)
		loop_ask(&bench->clients[i]);
}

static void loop_overtaking_json(json_t *result, unsigned servers)
{
	struct overtaking of_one = {.count = 0};

	for (unsigned i = 0; i < servers; i++) {
		of_one.count += loop.of_server[i].count;
		of_one.worst_ns = loop.of_server[i].worst_ns > of_one.worst_ns ? loop.of_server[i].worst_ns
									       : of_one.worst_ns;
	}
	json_object_set_new(result, "overtaken_at_one_server", json_integer(of_one.count));
	json_object_set_new(result, "overtaken_at_one_server_max_us", json_integer((json_int_t)of_one.worst_ns / 1000));
	json_object_set_new(result, "overtaken", json_integer(loop.of_all.count));
	json_object_set_new(result, "overtaken_max_us", json_integer((json_int_t)loop.of_all.worst_ns / 1000));
}

static void loop_times_json(json_t *result)
{
	json_object_set_new(result, "handover_us", figures_json(&loop.handover));
	json_object_set_new(result, "handover_from_answer_us", figures_json(&loop.from_answer));
	json_object_set_new(result, "handover_between_servers_us", figures_json(&loop.between));
	json_object_set_new(result, "wait_us", figures_json(&loop.wait));
	figures_fini(&loop.handover);
	figures_fini(&loop.from_answer);
	figures_fini(&loop.between);
	figures_fini(&loop.wait);
}

void hot_loop(struct bench *bench, json_t *result)
{
	json_t *errors = json_object();
	char status[16];

	bench_run(bench, bench->waiters + 1, loop_on_event, loop_begin);
	json_object_set_new(result, "grants", json_integer((json_int_t)loop.grants));
	json_object_set_new(result, "grants_total", json_integer((json_int_t)loop.grants_total));
	json_object_set_new(result, "grants_per_s", json_real((double)loop.grants / bench->seconds));
	json_object_set_new(result, "in_line", json_integer((json_int_t)loop.in_line));
	json_object_set_new(result, "fence_mistakes", json_integer(loop.fence_mistakes));
	loop_overtaking_json(result, bench->server_count);
	loop_times_json(result);
	for (unsigned i = 0; i < LOOP_ERRORS && loop.errors[i].count > 0; i++) {
		snprintf(status, sizeof(status), "%d", loop.errors[i].status);
		json_object_set_new(errors, status, json_integer(loop.errors[i].count));
	}
	json_object_set_new(result, "errors", errors);
}
