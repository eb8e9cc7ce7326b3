/* SPDX-License-Identifier: MIT */
/* GET /stats over HTTP: the form of the answer before the first point and with a full ring, and its resources. */
#include <unistd.h>

#include "api_world.h"
#include "server/metrics/metrics.h"
#include "suite.h"

enum { MASTERS = 3 };
#define INTERVAL_US (STATS_INTERVAL_MS * UINT64_C(1000))

static json_t *body;

static void get_stats(int client)
{
	json_decref(body);
	ck_assert_int_eq(ask(client, "GET /stats HTTP/1.1\r\n" HOST "\r\n"), 200);
	body = answer_json();
}

static json_t *numbers(const char *name)
{
	return json_object_get(json_object_get(body, "series"), name);
}

static void assert_lengths(size_t length)
{
	const char *name;
	json_t *array;
	size_t m;

	ck_assert_uint_eq(json_object_size(json_object_get(body, "series")), STATS_COUNTS + 3);
	json_object_foreach(json_object_get(body, "series"), name, array)
		ck_assert_uint_eq(json_array_size(array), length);
	ck_assert_uint_eq(json_array_size(json_object_get(body, "masters")), MASTERS);
	json_array_foreach(json_object_get(body, "masters"), m, array)
	{
		ck_assert_uint_eq(json_array_size(json_object_get(array, "rtt_us")), length);
		ck_assert_uint_eq(json_array_size(json_object_get(array, "voting")), length);
	}
}

TEST(before_the_first_point)
{
	int client = connect_tcp();

	get_stats(client);
	assert_lengths(0);
	assert_json("interval_ms", "2000");
	assert_json("now/connections", "1");
	assert_json("now/workers", "1");
	assert_json("hottest", "[]");
	assert_json("waiting", "[]");
	close(client);
}

/* More points than the ring holds, so that the oldest ones are overwritten. */
TEST(a_full_ring)
{
	int client = connect_tcp();
	struct metrics *metrics = metrics_worker(0);

	for (unsigned n = 1; n <= STATS_POINTS + 50; n++) {
		metrics_add(&metrics->outcomes[LEASE_ACQUIRE][LEASE_OK], n);
		if (n % 2 == 0)
			histogram_observe(&metrics->latency[LEASE_ACQUIRE], 700);
		histogram_observe(&metrics->masters[2].rtt, 150);
		metrics_set(&metrics->masters[1].up, n > STATS_POINTS);
		stats_tick(n * INTERVAL_US);
	}
	metrics_set(&metrics->queued, 4);
	metrics_set(&metrics->holds, 5);
	get_stats(client);
	assert_lengths(STATS_POINTS);
	for (size_t i = 0; i < STATS_POINTS; i++) {
		json_t *p50 = json_array_get(numbers("p50_us"), i),
		       *second = json_array_get(json_object_get(body, "masters"), 1);
		ck_assert_int_eq(json_integer_value(json_array_get(numbers("granted"), i)), (json_int_t)i + 51);
		ck_assert(i % 2 == 0 ? json_is_null(p50) : json_integer_value(p50) == 750);
		ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(second, "voting"), i)),
				 i >= STATS_POINTS - 50);
		ck_assert(json_is_null(json_array_get(json_object_get(second, "rtt_us"), i)));
		ck_assert_int_eq(
			json_integer_value(json_array_get(
				json_object_get(json_array_get(json_object_get(body, "masters"), 2), "rtt_us"), i)),
			150);
	}
	assert_json("now/queued", "4");
	assert_json("now/holds", "5");
	close(client);
}

TEST(resources_as_they_are_told)
{
	int client = connect_tcp();
	static const char name[] = "a\"\n"; /* escaped in JSON */
	struct stats_resource queue = {.len = 1, .name = "b", .count = 2, .oldest_us = clock_now_us() - 5000000};
	queue.first_count = 2;
	queue.first[0] = (struct stats_waiter){.began_us = queue.oldest_us, .owner_len = 2, .owner = "me"};
	queue.first[1] = (struct stats_waiter){.began_us = clock_now_us()};

	stats_count_answer(metrics_worker(0), LEASE_ACQUIRE, LEASE_LOCKED, name, sizeof name - 1);
	stats_count_answer(metrics_worker(0), LEASE_ACQUIRE, LEASE_OK, name, sizeof name - 1);
	stats_set_queues(metrics_worker(0), &queue, 1);
	get_stats(client);
	json_t *waiting = json_array_get(json_object_get(body, "waiting"), 0);
	assert_json("hottest", "[{\"resource\":\"a\\\"\\n\",\"acquires\":2,\"refused\":1}]");
	assert_json("waiting/0/resource", "\"b\"");
	assert_json("waiting/0/waiters", "2");
	ck_assert_int_ge(json_integer_value(json_object_get(waiting, "oldest_ms")), 5000);
	ck_assert_int_lt(json_integer_value(json_object_get(waiting, "oldest_ms")), 5000 + PATIENCE_MS);
	json_t *first = json_object_get(waiting, "first");
	ck_assert_uint_eq(json_array_size(first), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(first, 0), "owner")), "me");
	ck_assert(!json_object_get(json_array_get(first, 1), "owner"));
	ck_assert_int_lt(json_integer_value(json_object_get(json_array_get(first, 1), "waited_ms")), PATIENCE_MS);
	close(client);
}

/* The handler counts an acquisition; a rejected one is not counted. */
TEST(acquisitions_are_counted)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\"}"), 201);
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":1}"), 400);
	get_stats(client);
	assert_json("hottest/0/acquires", "1");
	assert_json("hottest/1", "");
	close(client);
}

FIXTURE(open_world, close_world)
