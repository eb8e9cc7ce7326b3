/* SPDX-License-Identifier: MIT */
/* Is the order of grants the order of arrival? A closed loop cannot prove it: requests that leave microseconds apart
 * may well be read in another order. So here the arrivals are apart beyond doubt:
 *
 *   client 0 takes the lock; client 1 asks, and is asked for until the service says that 1 waits; client 2 asks, until
 *   2 wait; …
 *   then client 0 releases, and each who is granted releases at once. The grants must come as 1, 2, 3, …
 *   without exception.
 *
 * A mistake is a grant to somebody with a smaller number than one who was granted before. The last client is the one
 * that counts. */
#include <stdio.h>

#include "hot_lock.h"

static const uint64_t ORDER_STUCK_NS = 20000000000U;

static struct {
	unsigned repeat, asked, granted, highest, mistakes, grants, refused;
	uint64_t asked_ns;
	struct figures join;
	char resource[64];
} order;

static struct client *order_counter(struct bench *bench)
{
	return &bench->clients[bench->waiters + 1];
}

static void order_ask(struct bench *bench)
{
	order.asked_ns = uv_hrtime();
	client_acquire(&bench->clients[order.asked], order.resource);
}

static void order_repeat(struct bench *bench)
{
	if (order.repeat == bench->repeats) {
		for (unsigned i = 0; i < bench->client_count; i++)
			client_close(&bench->clients[i]);
		return;
	}
	snprintf(order.resource, sizeof(order.resource), "%s-order-%u", bench->resource, order.repeat++);
	order.asked = order.granted = order.highest = 0;
	order_ask(bench);
}

/* Somebody joined, or not yet. */
static void order_on_count(struct bench *bench, struct client *counter)
{
	if (counter->waiters < order.asked) {
		if (uv_hrtime() - order.asked_ns > ORDER_STUCK_NS)
			http_die("%u wait, and %u should", counter->waiters, order.asked);
		client_count(counter, order.resource);
		return;
	}
	figures_add(&order.join, (int64_t)(uv_hrtime() - order.asked_ns));
	if (order.asked == bench->waiters) {
		client_release(&bench->clients[0]);
		return;
	}
	order.asked++;
	order_ask(bench);
	client_count(counter, order.resource);
}

static void order_on_grant(struct bench *bench, struct client *client)
{
	if (client->number == 0) {
		order.asked = 1;
		order_ask(bench);
		client_count(order_counter(bench), order.resource);
		return;
	}
	order.grants++;
	order.mistakes += client->number < order.highest;
	order.highest = client->number > order.highest ? client->number : order.highest;
	client_release(client);
}

static void order_on_event(struct client *client, enum client_event event)
{
	struct bench *bench = client->owner;

	switch (event) {
	case CLIENT_READY: bench_client_ready(bench); break;
	case CLIENT_GRANTED: order_on_grant(bench, client); break;
	case CLIENT_COUNTED: order_on_count(bench, client); break;
	case CLIENT_REFUSED: http_die("%s: refused with %d", client->resource, client->status);
	case CLIENT_RELEASED:
		if (++order.granted == bench->waiters + 1)
			order_repeat(bench);
	}
}

void hot_order(struct bench *bench, json_t *result)
{
	bench_run(bench, bench->waiters + 2, order_on_event, order_repeat);
	json_object_set_new(result, "grants", json_integer(order.grants));
	json_object_set_new(result, "mistakes", json_integer(order.mistakes));
	json_object_set_new(result, "join_us", figures_json(&order.join));
	figures_fini(&order.join);
}
