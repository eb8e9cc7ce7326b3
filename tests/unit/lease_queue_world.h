/* SPDX-License-Identifier: MIT */
/* For the tests of requests that wait: the real leases and the real core of one worker, over masters that answer as a
 * test says. Each suite that includes this has its own copy and this fixture. */
#ifndef LEASE_QUEUE_WORLD_H
#define LEASE_QUEUE_WORLD_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fake_masters.h"
#include "server/base/base.h"
#include "server/leases/lease_internal.h"
#include "server/metrics/metrics.h"
#include "suite.h"

#define HOLDER "0123456789abcdef0123456789abcdef01234567:0:7::holder"

enum { ASKED_MAX = 16 };

static uv_loop_t loop;
static struct options options;
static struct masters masters;
static struct leases *leases;

/* One request and its answer. */
struct asked {
	struct lease_op *op;
	bool answered;
	struct lease_answer answer;
};

static struct asked asked[ASKED_MAX];
static size_t asked_count;

static const struct master_reply held = {
	.vote = REDLOCK_VOTE_HELD,
	.remaining_us = 20000000,
	.value = HOLDER,
	.value_len = sizeof HOLDER - 1,
	.time_us = 1,
};
static const struct master_reply granted = {.vote = REDLOCK_VOTE_GRANTED, .time_us = 1};
static const struct master_reply lost = {.vote = REDLOCK_VOTE_FAILED, .error = MASTER_ERROR_LOST, .lost = true};

static inline void set_up(void)
{
	static const char *const addresses[] = {"a", "b", "c"};
	options = (struct options){
		.max_hold_ms = 86400000,
		.max_waiters = 10,
		.max_waiters_per_resource = 4,
		.max_shared = 10,
		.master_timeout_ms = 60000,
		.retry_min_ms = 1,
		.retry_max_ms = 1,
		.retry_count = 3,
		.drift_ms = 2,
		.drain_ms = 1500,
	};
	memset(&masters, 0, sizeof masters);
	asked_count = 0;
	metrics_init(1, 3, addresses);
	stats_init(0);
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	leases = leases_new(&loop, &options, &masters, metrics_worker(0));
}

static inline void tear_down(void)
{
	masters.down = 7;
	fake_masters_answer(&masters, REDLOCK_SCRIPT_NONE, &lost); /* as masters_close() */
	leases_close(leases);
	uv_run(&loop, UV_RUN_DEFAULT);
	leases_free(leases);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	while (asked_count > 0)
		lease_answer_fini(&asked[--asked_count].answer);
}

static inline void on_done(void *arg, const struct lease_answer *answer)
{
	struct asked *one = arg;
	ck_assert(!one->answered);
	one->answered = true;
	lease_answer_set(&one->answer, answer);
}

static inline struct asked *ask(const char *resource, uint32_t wait_ms)
{
	struct lease_request request = {.operation = LEASE_ACQUIRE,
					.ttl_ms = 30000,
					.wait_ms = wait_ms,
					.resource_len = (uint16_t)strlen(resource),
					.resource = resource};
	ck_assert_uint_lt(asked_count, ASKED_MAX);
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	return one;
}

static inline void answer_acquires(const struct master_reply *reply)
{
	fake_masters_answer(&masters, REDLOCK_SCRIPT_ACQUIRE, reply);
	leases_dispatch(leases);
}

/* A request that all masters refuse, and that waits. */
static inline struct asked *wait_for(const char *resource)
{
	struct asked *one = ask(resource, 60000);
	answer_acquires(&held);
	ck_assert(!one->answered);
	ck_assert_int_eq(one->op->core.state, REDLOCK_WAITING);
	return one;
}

static inline uint64_t arrival_of(const struct asked *one)
{
	return one->op->core.arrival;
}

/* A majority of the masters notifies it. */
static inline void notify(const struct asked *one, const char *resource)
{
	uint64_t arrival = arrival_of(one);
	for (uint8_t i = 0; i < 2; i++)
		fake_masters_notify(&masters, i, true, arrival, resource);
}

static inline void give_up(struct asked *one)
{
	lease_cancel(one->op);
	one->op = NULL;
}

static inline uint64_t observed(const struct histogram *histogram)
{
	uint64_t count = 0;
	for (size_t i = 0; i <= METRICS_BUCKETS; i++)
		count += histogram->buckets[i];
	return count;
}

static inline uint64_t waits(enum metrics_wait how)
{
	return observed(&metrics_worker(0)->wait[how]);
}

/* Acquisitions that were decided at once, in the histogram of their time. */
static inline uint64_t decided_at_once(void)
{
	return observed(&metrics_worker(0)->latency[LEASE_ACQUIRE]);
}

static inline size_t acquires(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_ACQUIRE, -1, false);
}

FIXTURE(set_up, tear_down)

#endif
