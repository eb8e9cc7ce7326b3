/* GET /stats: the last ten minutes of this process as numbers, for the status page and other dashboards.
 * See calls_internal.h.
 *
 * Any known caller sees the numbers. Names of resources are another matter: `hottest` and `waiting` hold those alone
 * that the caller could also find with GET /locks, by his right and his prefixes, and the longest lists are made of
 * what is left. Worker's thread. */
#include <assert.h>
#include <stdlib.h>

#include "calls_internal.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"

static const char *const count_names[STATS_COUNTS] = {
	[STATS_GRANTED] = "granted",     [STATS_LOCKED] = "locked", [STATS_SPLIT_VOTE] = "split_vote",
	[STATS_NO_QUORUM] = "no_quorum", [STATS_OTHER] = "other",   [STATS_EXTENDED] = "extended",
	[STATS_RELEASED] = "released",   [STATS_LOST] = "lost"};

/* ---- the series ---- */

/* One number of each point, which lies `offset` bytes into it. */
static json_t *numbers_new(const struct stats_point points[], size_t count, size_t offset)
{
	json_t *numbers = json_array();

	assert(count <= STATS_POINTS && offset + sizeof(uint32_t) <= sizeof *points);
	for (size_t i = 0; i < count; i++) {
		uint32_t number = *(const uint32_t *)(const void *)((const char *)&points[i] + offset);
		json_array_append_new(numbers, number != STATS_NONE ? json_integer(number) : json_null());
	}
	return numbers;
}

static json_t *series_new(const struct stats_point points[], size_t count)
{
	json_t *series = json_object();

	assert(count <= STATS_POINTS);
	for (size_t c = 0; c < STATS_COUNTS; c++)
		json_object_set_new(
			series, count_names[c],
			numbers_new(points, count, offsetof(struct stats_point, counts) + c * sizeof(uint32_t)));
	json_object_set_new(series, "p50_us", numbers_new(points, count, offsetof(struct stats_point, p50_us)));
	json_object_set_new(series, "p99_us", numbers_new(points, count, offsetof(struct stats_point, p99_us)));
	json_object_set_new(series, "waiters", numbers_new(points, count, offsetof(struct stats_point, waiters)));
	return series;
}

static json_t *masters_json(const struct masters *masters, const struct stats_point points[], size_t count)
{
	json_t *list = json_array();
	struct master_status status;

	assert(count <= STATS_POINTS);
	for (size_t m = 0; m < masters_count(masters); m++) {
		json_t *voting = json_array();
		for (size_t i = 0; i < count; i++)
			json_array_append_new(voting, json_integer(points[i].voting[m]));
		masters_status(masters, m, &status);
		json_array_append_new(
			list, json_pack("{s:o?, s:o, s:o}", "address", json_string(status.address), "rtt_us",
					numbers_new(points, count,
						    offsetof(struct stats_point, rtt_us) + m * sizeof(uint32_t)),
					"voting", voting));
	}
	return list;
}

/* ---- now ---- */

static json_t *sum_new(size_t offset)
{
	return json_integer((json_int_t)metrics_sum_at(offset));
}

static json_t *now_new(void)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I}", "in_flight", sum_new(offsetof(struct metrics, in_flight)),
			 "queued", sum_new(offsetof(struct metrics, queued)), "waiters",
			 sum_new(offsetof(struct metrics, waiters)), "holds", sum_new(offsetof(struct metrics, holds)),
			 "connections", (json_int_t)http_metrics_open(), "workers", (json_int_t)metrics_workers());
}

/* ---- resources ---- */

/* stats_filter_fn: the names that the caller could list. */
static bool may_list(void *arg, const char *resource, size_t len)
{
	const struct call *call = arg;

	return access_decide(ACCESS_LIST, &call->caller, resource, len) == ACCESS_ALLOWED;
}

static json_t *hottest_new(struct call *call)
{
	struct stats_resource list[STATS_TOP];
	json_t *hottest = json_array();
	size_t count;

	if (!stats_read_hottest(may_list, call, list, &count)) {
		json_decref(hottest);
		return NULL;
	}
	for (size_t i = 0; i < count; i++)
		json_array_append_new(hottest,
				      json_pack("{s:o, s:I, s:I}", "resource", json_stringn(list[i].name, list[i].len),
						"acquires", (json_int_t)list[i].count, "refused",
						(json_int_t)list[i].refused));
	return hottest;
}

static json_t *waiting_new(struct call *call, uint64_t now_us)
{
	struct stats_resource list[STATS_TOP];
	json_t *waiting = json_array();
	size_t count;

	if (!stats_read_waiting(may_list, call, list, &count)) {
		json_decref(waiting);
		return NULL;
	}
	assert(count <= STATS_TOP);
	for (size_t i = 0; i < count; i++) {
		uint64_t age_us = now_us > list[i].oldest_us ? now_us - list[i].oldest_us : 0;
		json_array_append_new(waiting,
				      json_pack("{s:o, s:I, s:I}", "resource", json_stringn(list[i].name, list[i].len),
						"waiters", (json_int_t)list[i].count, "oldest_ms",
						(json_int_t)(age_us / 1000)));
	}
	return waiting;
}

/* All of it; NULL if memory is short. */
static json_t *stats_new(struct call *call, const struct stats_point points[], size_t count)
{
	uint64_t now_us = clock_now_us();
	json_t *hottest = hottest_new(call), *waiting = waiting_new(call, now_us);

	if (!hottest || !waiting) {
		json_decref(hottest);
		json_decref(waiting);
		return NULL;
	}
	return json_pack("{s:I, s:i, s:o, s:o, s:o, s:o, s:o}", "uptime_ms", (json_int_t)stats_uptime_ms(now_us),
			 "interval_ms", STATS_INTERVAL_MS, "series", series_new(points, count), "masters",
			 masters_json(call->request->context->config->masters, points, count), "now", now_new(),
			 "hottest", hottest, "waiting", waiting);
}

void stats_call(struct call *call)
{
	struct stats_point *points = calloc(STATS_POINTS, sizeof *points);

	assert(call->route && call->route->need == ACCESS_KNOWN);
	if (!points) {
		reply_fail(call->request);
		return;
	}
	call_reply_json(call, 200, stats_new(call, points, stats_read_series(points)));
	free(points);
}
