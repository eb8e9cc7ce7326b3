/* SPDX-License-Identifier: MIT */
/* Requests at a fixed rate, as wrk2 makes them: a share of them each millisecond, whether the ones before are answered
 * or not. A time counts from the moment at which the request was to be sent, so that one that had to wait for a free
 * connection, as the service was slow, shows it. Each acquires a name of its own and leaves the lock to its end.
 *
 * The result has the figures of the whole run, of each second of it, and of the segments between --cuts S[,S…]. A
 * request belongs to the second at which it was to be sent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "hot_lock.h"

enum { TICK_NS = 1000000, SECOND_NS = 1000000000, BACKLOG_MAX = 1 << 16 };

struct rate_second {
	struct figures took;
	uint64_t late_ns; /* the most by which the generator itself woke too late: a pause of the machine, mostly */
	unsigned long long refused, dropped;
};

static struct {
	uint64_t began_ns, from_ns, to_ns; /* counted are those that are due from from_ns on */
	uint64_t due;                      /* so many since began_ns */
	unsigned long long names;
	struct client *idle[BENCH_CLIENTS_MAX];
	unsigned idle_count;
	uint64_t backlog[BACKLOG_MAX]; /* when they were to be sent; a ring */
	size_t first, count;
	struct rate_second *seconds;
	size_t second_count;
	int timer;
	uv_poll_t tick;
} rate;

/* NULL in the warm-up. */
static struct rate_second *rate_second_at(uint64_t due_ns)
{
	return due_ns < rate.from_ns ? NULL : &rate.seconds[(due_ns - rate.from_ns) / SECOND_NS];
}

static void rate_drop(uint64_t due_ns)
{
	struct rate_second *second = rate_second_at(due_ns);

	if (second != NULL)
		second->dropped++;
}

static void rate_send(struct client *client, uint64_t due_ns)
{
	struct bench *bench = client->owner;
	char resource[64];

	snprintf(resource, sizeof(resource), "%s-rate-%llu", bench->resource, rate.names++);
	client->release_sent_ns = due_ns;
	client_acquire(client, resource);
}

static void rate_pump(void)
{
	while (rate.count > 0 && rate.idle_count > 0) {
		uint64_t due_ns = rate.backlog[rate.first];
		rate.first = (rate.first + 1) % BACKLOG_MAX;
		rate.count--;
		rate_send(rate.idle[--rate.idle_count], due_ns);
	}
}

static void rate_end(struct bench *bench)
{
	if (uv_hrtime() < rate.to_ns)
		return;
	for (; rate.count > 0; rate.count--) { /* the service did not keep up */
		rate_drop(rate.backlog[rate.first]);
		rate.first = (rate.first + 1) % BACKLOG_MAX;
	}
	if (rate.idle_count < bench->client_count)
		return;
	rate.idle_count = 0;
	uv_poll_stop(&rate.tick);
	uv_close((uv_handle_t *)&rate.tick, NULL);
	for (unsigned i = 0; i < bench->client_count; i++)
		client_close(&bench->clients[i]);
}

static void rate_on_tick(uv_poll_t *tick, int status, int events)
{
	struct bench *bench = tick->data;
	uint64_t expired, now_ns = uv_hrtime();

	(void)status;
	(void)events;
	if (read(rate.timer, &expired, sizeof(expired)) != sizeof(expired))
		return;
	for (; now_ns < rate.to_ns; rate.due++) {
		uint64_t due_ns = rate.began_ns +
				  (uint64_t)((double)rate.due * 1e9 / bench->per_second) / TICK_NS * TICK_NS;
		if (due_ns > now_ns)
			break;
		struct rate_second *second = rate_second_at(due_ns);
		if (second != NULL && second->late_ns < now_ns - due_ns)
			second->late_ns = now_ns - due_ns;
		if (rate.count == BACKLOG_MAX) {
			rate_drop(due_ns);
			continue;
		}
		rate.backlog[(rate.first + rate.count++) % BACKLOG_MAX] = due_ns;
	}
	rate_pump();
	rate_end(bench);
}

static void rate_on_event(struct client *client, enum client_event event)
{
	if (event == CLIENT_READY) {
		client->waits = false;
		rate.idle[rate.idle_count++] = client;
		bench_client_ready(client->owner);
		return;
	}
	struct rate_second *second = rate_second_at(client->release_sent_ns);
	if (second != NULL) {
		second->refused += event == CLIENT_REFUSED;
		figures_add(&second->took, (int64_t)(client->answered_ns - client->release_sent_ns));
	}
	rate.idle[rate.idle_count++] = client;
	rate_pump();
}

static void rate_begin(struct bench *bench)
{
	struct itimerspec each = {.it_value.tv_nsec = TICK_NS, .it_interval.tv_nsec = TICK_NS};

	rate.began_ns = uv_hrtime();
	rate.from_ns = rate.began_ns + (uint64_t)(bench->warmup_s * 1e9);
	rate.to_ns = rate.from_ns + (uint64_t)(bench->seconds * 1e9);
	rate.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (rate.timer < 0 || timerfd_settime(rate.timer, 0, &each, NULL) != 0)
		http_die("no timer");
	uv_poll_init(&bench->loop, &rate.tick, rate.timer);
	rate.tick.data = bench;
	uv_poll_start(&rate.tick, UV_READABLE, rate_on_tick);
}

/* The figures of the seconds [from, to) of the run. */
static json_t *rate_json(size_t from, size_t to)
{
	struct figures took = {.ns = NULL};
	unsigned long long refused = 0, dropped = 0;
	uint64_t late_ns = 0;
	json_t *json = json_object();

	for (size_t i = from; i < to; i++) {
		const struct rate_second *second = &rate.seconds[i];
		for (size_t k = 0; k < second->took.count; k++)
			figures_add(&took, second->took.ns[k]);
		refused += second->refused;
		dropped += second->dropped;
		late_ns = second->late_ns > late_ns ? second->late_ns : late_ns;
	}
	json_object_set_new(json, "from_s", json_integer((json_int_t)from));
	json_object_set_new(json, "to_s", json_integer((json_int_t)to));
	json_object_set_new(json, "took_us", figures_json(&took));
	json_object_set_new(json, "answered", json_integer((json_int_t)took.count));
	json_object_set_new(json, "refused", json_integer((json_int_t)refused));
	json_object_set_new(json, "dropped", json_integer((json_int_t)dropped));
	json_object_set_new(json, "late_us", json_real(round((double)late_ns / 100) / 10));
	figures_fini(&took);
	return json;
}

static json_t *rate_segments(const char *cuts)
{
	json_t *segments = json_array();
	size_t from = 0;

	while (*cuts != '\0') {
		char *end;
		size_t to = strtoul(cuts, &end, 10);
		if (to <= from || to >= rate.second_count)
			http_die("no such second: %s", cuts);
		json_array_append_new(segments, rate_json(from, to));
		from = to;
		cuts = end + strspn(end, ",");
	}
	json_array_append_new(segments, rate_json(from, rate.second_count));
	return segments;
}

void hot_rate(struct bench *bench, json_t *result)
{
	json_t *by_second = json_array(), *total;

	rate.second_count = (size_t)ceil(bench->seconds);
	rate.seconds = calloc(rate.second_count, sizeof(*rate.seconds));
	if (rate.seconds == NULL)
		http_die("out of memory");
	bench_run(bench, bench->waiters, rate_on_event, rate_begin);
	close(rate.timer);
	total = rate_json(0, rate.second_count);
	json_object_update(result, total);
	json_decref(total);
	for (size_t i = 0; i < rate.second_count; i++)
		json_array_append_new(by_second, rate_json(i, i + 1));
	json_object_set_new(result, "began_ns", json_integer((json_int_t)rate.from_ns)); /* CLOCK_MONOTONIC */
	json_object_set_new(result, "by_second", by_second);
	json_object_set_new(result, "segments", rate_segments(bench->cuts));
	for (size_t i = 0; i < rate.second_count; i++)
		figures_fini(&rate.seconds[i].took);
	free(rate.seconds);
}
