/* SPDX-License-Identifier: MIT */
/* One client, one lock after another, each with a name that no other client wants: acquire, release, acquire the next.
 * Measures the cost of a lock without waiting. */
#include <stdio.h>

#include "hot_lock.h"

static struct {
	uint64_t from_ns, to_ns;
	unsigned long long names;
	struct figures acquire, release;
	unsigned refused;
} alone;

static void alone_next(struct client *client)
{
	struct bench *bench = client->owner;
	char resource[64];

	snprintf(resource, sizeof(resource), "%s-alone-%llu", bench->resource, alone.names++);
	client_acquire(client, resource);
}

static void alone_on_event(struct client *client, enum client_event event)
{
	bool counts = client->sent_ns >= alone.from_ns;
	int64_t took_ns = (int64_t)(client->answered_ns - client->sent_ns);

	if (event == CLIENT_READY) {
		bench_client_ready(client->owner);
	} else if (event == CLIENT_GRANTED) {
		if (counts)
			figures_add(&alone.acquire, took_ns);
		client_release(client);
	} else {
		alone.refused += event == CLIENT_REFUSED;
		if (counts && event == CLIENT_RELEASED)
			figures_add(&alone.release, took_ns);
		if (uv_hrtime() < alone.to_ns)
			alone_next(client);
		else
			client_close(client);
	}
}

static void alone_begin(struct bench *bench)
{
	alone.from_ns = uv_hrtime() + (uint64_t)(bench->warmup_s * 1e9);
	alone.to_ns = alone.from_ns + (uint64_t)(bench->seconds * 1e9);
	alone_next(&bench->clients[0]);
}

void hot_alone(struct bench *bench, json_t *result)
{
	bench_run(bench, 1, alone_on_event, alone_begin);
	json_object_set_new(result, "acquire_us", figures_json(&alone.acquire));
	json_object_set_new(result, "release_us", figures_json(&alone.release));
	json_object_set_new(result, "refused", json_integer(alone.refused));
	json_object_set_new(result, "grants_total", json_integer((json_int_t)alone.names));
	figures_fini(&alone.acquire);
	figures_fini(&alone.release);
}
