/* SPDX-License-Identifier: MIT */
/* The queues that a worker publishes for GET /stats: the longest ones, and not too often. */
#include "lease_queue_world.h"

static struct stats_resource list[STATS_TOP];
static size_t listed;

static bool all_pass(void *arg, const char *resource, size_t len)
{
	(void)arg;
	(void)resource;
	return len > 0;
}

/* Runs the worker until it has published that many queues. */
static void await_lines(size_t count)
{
	uint64_t end_us = clock_now_us() + 60000000;

	do {
		ck_assert_uint_lt(clock_now_us(), end_us);
		uv_update_time(&loop);
		leases_dispatch(leases);
		listed = stats_read_top(true, all_pass, NULL, list);
	} while (listed != count);
}

static void assert_entry(size_t i, const char *name, uint32_t count)
{
	ck_assert_msg(list[i].len == strlen(name) && memcmp(list[i].name, name, list[i].len) == 0, "%.*s",
		      (int)list[i].len, list[i].name);
	ck_assert_uint_eq(list[i].count, count);
}

TEST(queues_by_their_length)
{
	struct asked *a = wait_for("a"), *first = wait_for("b"), *second;

	second = wait_for("b");
	wait_for("c");
	wait_for("b");
	uint64_t first_us = first->op->began_us, second_us = second->op->began_us;
	await_lines(3);
	assert_entry(0, "b", 3);
	assert_entry(1, "a", 1);
	assert_entry(2, "c", 1);
	ck_assert_uint_eq(list[0].oldest_us, first_us);
	give_up(first);
	give_up(a);
	await_lines(2);
	assert_entry(0, "b", 2);
	assert_entry(1, "c", 1);
	ck_assert_uint_eq(list[0].oldest_us, second_us);
}

TEST(the_last_one_goes)
{
	struct asked *only = wait_for("a");

	await_lines(1);
	give_up(only);
	await_lines(0);
}

/* More queues than are published: none of the longest is left out, whenever it was made. */
TEST(only_the_longest)
{
	enum { LINES = 60, LONG = 25 };
	static struct asked waiting[LINES + LONG];
	size_t count = 0;

	options.max_waiters = LINES + LONG;
	for (unsigned n = 0; n < LINES + LONG; n++) {
		char name[16];
		struct lease_request request = {
			.operation = LEASE_ACQUIRE, .ttl_ms = 30000, .wait_ms = 60000, .resource = name};
		request.resource_len = (uint16_t)snprintf(name, sizeof name, "n/%02u", n % LINES);
		ck_assert_ptr_nonnull(lease_submit(leases, &request, on_done, &waiting[count++]));
		answer_acquires(&held);
	}
	uint64_t end_us = clock_now_us() + 60000000;
	do {
		ck_assert_uint_lt(clock_now_us(), end_us);
		await_lines(STATS_TOP);
	} while (list[STATS_TOP - 1].count != 2);
	for (size_t i = 0; i < STATS_TOP; i++)
		ck_assert_uint_eq(list[i].count, 2); /* 25 queues have two: any 20 of these */
}

/* The time of the loop does not advance: a change is not published yet. */
TEST(not_too_often)
{
	wait_for("a");
	uv_update_time(&loop);
	leases_dispatch(leases);
	listed = stats_read_top(true, all_pass, NULL, list);
	ck_assert_uint_eq(listed, 1);
	wait_for("b");
	leases_dispatch(leases);
	listed = stats_read_top(true, all_pass, NULL, list);
	ck_assert_uint_eq(listed, 1);
	await_lines(2);
}
