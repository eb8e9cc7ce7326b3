/* SPDX-License-Identifier: MIT */
/* Held leases on a real loop with timers of a few ms, over leases that answer as a test says. */
#include <check.h>
#include <string.h>
#include <uv.h>

#include "fake_lease.h"
#include "server/base/base.h"
#include "server/leases/leases.h"
#include "server/metrics/metrics.h"
#include "suite.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"

/* FAILING_MS: of a lease that a renewal must be tried for before it ends, though this process may stand still. */
enum { TTL_MS = 60, FAILING_MS = 1500, LONG_MS = 60000, PATIENCE_US = 60000000 };

static struct world {
	uv_loop_t loop;
	uv_timer_t ticks; /* so that the loop never waits longer */
	struct leases leases;
	struct holds *holds;
	struct metrics *metrics;
	unsigned renewed, lost, draining, wanted;
	bool dropped; /* by starved() */
	enum lease_status code;
} world;

static void on_tick(uv_timer_t *timer)
{
	(void)timer;
}

static void open_world(void)
{
	static const char *const addresses[] = {"127.0.0.1:6379"};

	memset(&world, 0, sizeof(world));
	fake_leases_init(&world.leases);
	world.leases.answer.ttl_ms = TTL_MS;
	world.leases.answer.validity_ms = TTL_MS;
	world.leases.answer.drift_ms = 0;
	metrics_init(1, 1, addresses);
	world.metrics = metrics_worker(0);
	ck_assert_int_eq(uv_loop_init(&world.loop), 0);
	uv_timer_init(&world.loop, &world.ticks);
	uv_timer_start(&world.ticks, on_tick, 1, 1);
	world.holds = holds_new(&world.loop, &world.leases, world.metrics);
}

static void close_world(void)
{
	ck_assert_uint_eq(world.metrics->holds, 0);
	uv_close((uv_handle_t *)&world.ticks, NULL);
	uv_run(&world.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&world.loop), 0);
	holds_free(world.holds);
}

static void on_event(void *arg, enum hold_event event, enum lease_status code)
{
	ck_assert_ptr_eq(arg, &world);
	ck_assert_int_eq(code == LEASE_OK, event != HOLD_LOST);
	if (event == HOLD_WANTED) {
		world.wanted++;
		return;
	}
	*(event == HOLD_RENEWED ? &world.renewed : event == HOLD_LOST ? &world.lost : &world.draining) += 1;
	world.code = code;
}

/* A lease that was granted `age_ms` ago. */
static struct hold *hold_of_age(uint32_t ttl_ms, uint32_t age_ms)
{
	struct lease_request request = {.operation = LEASE_ACQUIRE,
					.ttl_ms = ttl_ms,
					.resource_len = 3,
					.resource = "a/b",
					.owner_len = 2,
					.owner = "me"};
	struct lease_answer granted = {.status = LEASE_OK,
				       .ttl_ms = ttl_ms,
				       .validity_ms = ttl_ms,
				       .until_us = clock_now_us() + ttl_ms * UINT64_C(1000) - age_ms * UINT64_C(1000)};

	memcpy(granted.token, TOKEN, LEASE_TOKEN_LEN);
	return hold_new(world.holds, &request, &granted, on_event, &world);
}

static struct hold *hold(uint32_t ttl_ms)
{
	return hold_of_age(ttl_ms, 0);
}

#define RUN_UNTIL(condition)                                                                       \
	do {                                                                                       \
		uint64_t end_us = clock_now_us() + PATIENCE_US;                                    \
		while (!(condition)) {                                                             \
			ck_assert_msg(clock_now_us() < end_us, "never came true: %s", #condition); \
			uv_run(&world.loop, UV_RUN_ONCE);                                          \
			fake_leases_dispatch(&world.leases);                                       \
		}                                                                                  \
	} while (0)

static void expect_released(unsigned submitted)
{
	ck_assert_uint_eq(world.leases.submitted, submitted);
	ck_assert_int_eq(world.leases.last.operation, LEASE_RELEASE);
	ck_assert_mem_eq(world.leases.last.resource, "a/b", 3);
	ck_assert_mem_eq(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN);
}

/* True if this process did not run for 40 ms, so that the lease is lost: then `one` is dropped, and the test cannot go
 * on. */
static bool starved(struct hold *one)
{
	if (world.lost == 0)
		return false;
	if (!world.dropped)
		hold_drop(one, true);
	world.dropped = true;
	return true;
}

TEST(renewed_until_dropped)
{
	struct hold *one = hold(TTL_MS);

	ck_assert_uint_eq(world.metrics->holds, 1);
	ck_assert_uint_eq(world.leases.submitted, 0);
	RUN_UNTIL(world.leases.submitted == 1);
	if (!starved(one)) {
		ck_assert_int_eq(world.leases.last.operation, LEASE_EXTEND);
		ck_assert_uint_eq(world.leases.last.ttl_ms, TTL_MS);
		ck_assert_mem_eq(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN);
		RUN_UNTIL(world.renewed == 5 || world.lost > 0);
	}
	if (starved(one))
		return;
	ck_assert_uint_le(hold_validity_ms(one), TTL_MS);
	unsigned submitted = world.leases.submitted;
	hold_drop(one, true);
	expect_released(submitted + 1);
}

/* The process was stopped between the decision and the hold: the stop is part of the lease's time. */
TEST(begun_late)
{
	struct hold *one = hold_of_age(LONG_MS, LONG_MS / 2);

	ck_assert_uint_le(hold_validity_ms(one), LONG_MS / 2);
	RUN_UNTIL(world.renewed == 1); /* a third of it is over: at once */
	ck_assert_uint_eq(world.leases.submitted, 1);
	hold_drop(one, false);
	one = hold_of_age(LONG_MS, LONG_MS + 1);
	ck_assert_uint_eq(hold_validity_ms(one), 0);
	RUN_UNTIL(world.lost == 1);
	ck_assert_int_eq(world.code, LEASE_EXPIRED);
	hold_drop(one, true);
}

TEST(dropped_without_release)
{
	hold_drop(hold(LONG_MS), false);
	ck_assert_uint_eq(world.leases.submitted, 0);
}

TEST(dropped_with_a_renewal_under_way)
{
	struct hold *one = hold(TTL_MS);

	fake_leases_dispatch(&world.leases);
	world.leases.hold = true;
	RUN_UNTIL(world.leases.submitted == 1 || world.lost > 0);
	if (starved(one))
		return;
	hold_drop(one, true);
	ck_assert_uint_eq(world.leases.cancelled, 1);
	expect_released(2);
}

static const enum lease_status ends[] = {LEASE_NOT_OWNER, LEASE_EXPIRED};

/* A lost lease is released on the masters that still have it, and dropping it later does nothing more. */
TEST_EACH(lost, 0, sizeof(ends) / sizeof(ends[0]))
{
	struct hold *one = hold(TTL_MS);

	world.leases.answer.status = ends[_i];
	RUN_UNTIL(world.lost == 1);
	ck_assert_uint_eq(metrics_worker(0)->holds_lost[world.code], 1);
	ck_assert(world.code == ends[_i] || world.leases.submitted == 1); /* or this process did not run for 40 ms */
	ck_assert_uint_eq(world.renewed, 0);
	unsigned submitted = world.leases.submitted;
	expect_released(submitted);
	hold_drop(one, true);
	ck_assert_uint_eq(world.leases.submitted, submitted);
}

TEST(no_quorum_until_the_end)
{
	uint64_t began_us = clock_now_us();
	struct hold *one = hold(FAILING_MS);

	world.leases.answer.status = LEASE_NO_QUORUM;
	RUN_UNTIL(world.lost == 1);
	ck_assert_uint_eq(metrics_worker(0)->holds_lost[LEASE_NO_QUORUM], 1);
	ck_assert_int_eq(world.code, LEASE_NO_QUORUM);
	ck_assert_uint_ge(clock_now_us() - began_us, (FAILING_MS - 2) * UINT64_C(1000));
	ck_assert_uint_gt(world.leases.submitted, 2); /* tried again, and released in the end */
	expect_released(world.leases.submitted);
	hold_drop(one, false);
}

TEST(no_answer_until_the_end)
{
	struct hold *one = hold(FAILING_MS);

	fake_leases_dispatch(&world.leases);
	world.leases.hold = true;
	RUN_UNTIL(world.lost == 1);
	ck_assert_uint_eq(metrics_worker(0)->holds_lost[LEASE_NO_QUORUM], 1);
	ck_assert_int_eq(world.code, LEASE_NO_QUORUM);
	ck_assert_uint_eq(world.leases.cancelled, 1);
	expect_released(2);
	hold_drop(one, true);
}

TEST(drain)
{
	struct hold *one = hold(LONG_MS), *other = hold(LONG_MS);

	holds_drain(world.holds);
	ck_assert_uint_eq(world.draining, 0);
	RUN_UNTIL(world.leases.submitted == 2);
	RUN_UNTIL(world.draining == 2);
	struct hold *late = hold(LONG_MS);    /* granted meanwhile, so it is fresh */
	ck_assert_uint_eq(world.draining, 2); /* not from within the call */
	RUN_UNTIL(world.draining == 3);
	ck_assert_uint_eq(world.leases.submitted, 2);
	hold_drop(one, false);
	hold_drop(late, false);
	ck_assert_uint_eq(world.leases.submitted, 2);
	hold_drop(other, true); /* its client disconnected before the event */
	expect_released(3);
}

TEST(drain_does_not_wait_for_ever)
{
	struct hold *one = hold(LONG_MS);

	fake_leases_dispatch(&world.leases);
	world.leases.hold = true;
	holds_drain(world.holds);
	RUN_UNTIL(world.draining == 1);
	world.leases.hold = false;
	fake_leases_dispatch(&world.leases); /* the late answer causes no event */
	ck_assert_uint_eq(world.draining + world.renewed + world.lost, 1);
	hold_drop(one, false);
}

/* ---- waiters ---- */

/* Before the first renewal, waiters are asked for by an extension that does not lengthen the lease. */
static struct hold *hold_asked(uint32_t waiters)
{
	struct hold *one = hold(LONG_MS);

	world.leases.answer.waiters = waiters;
	RUN_UNTIL(world.leases.submitted == 1);
	ck_assert_int_eq(world.leases.last.operation, LEASE_EXTEND);
	ck_assert(world.leases.last.hold && world.leases.last.unasked);
	ck_assert_uint_lt(world.leases.last.ttl_ms, LONG_MS);
	fake_leases_dispatch(&world.leases);
	ck_assert_uint_eq(world.leases.wanted.listeners, 1);
	ck_assert_uint_eq(world.renewed, 0);
	return one;
}

static void report(unsigned master)
{
	world.leases.wanted.event(world.leases.wanted.arg, master);
}

TEST(asked_once_and_not_renewed_by_it)
{
	struct hold *one = hold_asked(0);

	ck_assert_uint_eq(world.wanted, 0);
	ck_assert(!hold_take_wanted(one));
	ck_assert_uint_le(hold_validity_ms(one), LONG_MS - 500);
	hold_drop(one, true);
	ck_assert_uint_eq(world.leases.wanted.listeners, 0);
}

TEST(granted_while_others_wait)
{
	struct hold *one = hold_asked(3);

	ck_assert_uint_eq(world.wanted, 1);
	ck_assert(hold_take_wanted(one));
	ck_assert(!hold_take_wanted(one));
	ck_assert_uint_eq(hold_waiters(one), 3);
	report(0); /* the queue was empty, and has a waiter again */
	report(1);
	ck_assert_uint_eq(world.wanted, 2);
	hold_drop(one, true);
}

TEST(each_first_waiter_once_whatever_masters_report_it)
{
	struct hold *one = hold_asked(0);

	for (unsigned times = 1; times < 4; times++) {
		for (unsigned master = 0; master < 3; master++)
			report((master + times) % 3);
		ck_assert_uint_eq(world.wanted, times);
		ck_assert(hold_take_wanted(one));
		ck_assert_uint_eq(hold_waiters(one), 1);
	}
	hold_drop(one, true);
}

TEST(renewals_make_up_for_a_lost_message)
{
	struct hold *one = hold(TTL_MS);

	world.leases.answer.waiters = 2;
	RUN_UNTIL(world.renewed == 2 || world.lost > 0);
	if (starved(one))
		return;
	ck_assert(hold_take_wanted(one));
	ck_assert_uint_eq(hold_waiters(one), 2);
	hold_drop(one, true);
}

TEST(dropped_while_it_asks)
{
	struct hold *one = hold(LONG_MS);

	world.leases.hold = true;
	RUN_UNTIL(world.leases.submitted == 1);
	hold_drop(one, false);
	ck_assert_uint_eq(world.leases.wanted.listeners, 0);
}

FIXTURE(open_world, close_world)
