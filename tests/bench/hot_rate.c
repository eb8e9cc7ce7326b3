/* Requests at a fixed rate, as wrk2 makes them: a share of them each millisecond, whether the ones before are answered
 * or not. A time counts from the moment at which the request was to be sent, so that one that had to wait for a free
 * connection, as the service was slow, shows it. Each acquires a name of its own and leaves the lock to its end. */
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "hot_lock.h"

enum { TICK_NS = 1000000, BACKLOG_MAX = 1 << 16 };

static struct {
	uint64_t began_ns, from_ns, to_ns; /* counted are those that are due from from_ns on */
	uint64_t due;                      /* so many since began_ns */
	unsigned long long names;
	struct client *idle[BENCH_CLIENTS_MAX];
	unsigned idle_count;
	uint64_t backlog[BACKLOG_MAX]; /* when they were to be sent; a ring */
	size_t first, count;
	struct figures took;
	unsigned long long refused, dropped, answered;
	int timer;
	uv_poll_t tick;
} rate;

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
	rate.dropped += rate.count; /* the service did not keep up */
	rate.count = 0;
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
		if (rate.count == BACKLOG_MAX) {
			rate.dropped++;
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
	rate.refused += event == CLIENT_REFUSED;
	if (client->release_sent_ns >= rate.from_ns) {
		rate.answered++;
		figures_add(&rate.took, (int64_t)(client->answered_ns - client->release_sent_ns));
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

void hot_rate(struct bench *bench, json_t *result)
{
	bench_run(bench, bench->waiters, rate_on_event, rate_begin);
	close(rate.timer);
	json_object_set_new(result, "took_us", figures_json(&rate.took));
	json_object_set_new(result, "answered", json_integer((json_int_t)rate.answered));
	json_object_set_new(result, "refused", json_integer((json_int_t)rate.refused));
	json_object_set_new(result, "dropped", json_integer((json_int_t)rate.dropped));
	figures_fini(&rate.took);
}
