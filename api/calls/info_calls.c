/* SPDX-License-Identifier: MIT */
/* The service's own state, answered at once from what this worker knows: health, metrics, masters, the caller's rights,
 * the description of the interface, version, the status page, the page of errors, stats. Worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/page/embedded.h"
#include "calls_internal.h"
#include "server/masters/masters.h"

#define SUM(member) (json_int_t) metrics_figure(offsetof(struct metrics, member), METRICS_SUM)

static json_t *quorum_new(const struct quorum_status *quorum)
{
	return json_pack("{s:i, s:i, s:i}", "needed", (int)quorum->needed, "voting", (int)quorum->voting, "masters",
			 (int)quorum->masters);
}

void info_call_healthz(struct call *call)
{
	static const char ok[] = "{\"status\":\"ok\"}";
	reply_static(call->request, 200, "application/json", ok, sizeof ok - 1);
}

/* True if callers need not authenticate, and so may see the addresses of the masters. */
static bool shows_masters(const struct call *call)
{
	return !call->request->context->keys && !call->request->tls_peer;
}

/* Rejects with the number of missing masters, the reason of each, and for how long if time alone ends that. */
static void readyz_no_quorum(struct call *call, const struct quorum_status *quorum)
{
	const struct masters *masters = call->request->context->config->masters;
	struct text detail;
	struct master_status status;
	assert(quorum->voting < quorum->needed);
	text_init(&detail);
	text_printf(&detail, "%u of %u masters may vote, %u are needed.", (unsigned)quorum->voting,
		    (unsigned)quorum->masters, (unsigned)quorum->needed);
	if (quorum->wait_ms > 0)
		text_printf(&detail, " In %.1f s enough will.", (double)quorum->wait_ms / 1000);
	for (size_t i = 0; shows_masters(call) && i < masters_count(masters); i++) {
		masters_status(masters, i, &status);
		if (status.state != MASTER_VOTING)
			text_printf(&detail, " %s is %s: %s.", status.address, master_state_name(status.state),
				    status.reason);
	}
	if (!shows_masters(call))
		text_printf(&detail, " GET /masters says why.");
	call_reject_with(call, PROBLEM_NO_QUORUM, detail.bytes,
			 json_pack("{s:o, s:o*}", "quorum", quorum_new(quorum), "retry_after_ms",
				   quorum->wait_ms > 0 ? json_integer((json_int_t)quorum->wait_ms) : NULL),
			 NULL);
	if (quorum->wait_ms > 0)
		call_retry_after(call, quorum->wait_ms);
	text_fini(&detail);
}

void info_call_readyz(struct call *call)
{
	struct quorum_status quorum;
	masters_quorum(call->request->context->config->masters, &quorum);
	if (call->request->context->draining) {
		call_reject_with(call, PROBLEM_DRAINING, NULL, json_pack("{s:o}", "quorum", quorum_new(&quorum)), NULL);
	} else if (quorum.voting < quorum.needed) {
		readyz_no_quorum(call, &quorum);
	} else {
		call_reply_json(call, 200, json_pack("{s:s, s:o}", "status", "ready", "quorum", quorum_new(&quorum)));
	}
}

void info_call_metrics(struct call *call)
{
	struct text page;
	text_init(&page);
	metrics_render(&page);
	http_metrics_render(&page, call->request->context->config->service->route_name);
	reply_owned(call->request, 200, "text/plain; version=0.0.4; charset=utf-8", page.bytes, page.len);
}

/* null: not known */
static json_t *known_text(const char *text)
{
	return call_text_new(text, strlen(text));
}

static json_t *master_new(const struct master_status *status)
{
	json_t *warnings = json_array();
	assert(status->warning_count <= STATUS_WARNINGS_MAX);
	for (size_t i = 0; i < status->warning_count; i++)
		json_array_append_new(warnings, known_text(status->warnings[i]));
	return json_pack("{s:o, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "address", known_text(status->address),
			 "state", master_state_name(status->state), "state_ms", (json_int_t)status->state_ms, "reason",
			 known_text(status->reason), "quarantine_remaining_ms",
			 status->quarantine_remaining_ms > 0 ? json_integer((json_int_t)status->quarantine_remaining_ms)
							     : json_null(),
			 "rtt_us", status->rtt_us > 0 ? json_integer((json_int_t)status->rtt_us) : json_null(),
			 "version", known_text(status->version), "run_id", known_text(status->run_id), "warnings",
			 warnings);
}

void info_call_masters(struct call *call)
{
	const struct masters *masters = call->request->context->config->masters;
	json_t *list = json_array();
	struct quorum_status quorum;
	struct master_status status;
	masters_quorum(masters, &quorum);
	for (size_t i = 0; i < masters_count(masters); i++) {
		masters_status(masters, i, &status);
		json_array_append_new(list, master_new(&status));
	}
	call_reply_json(call, 200,
			json_pack("{s:o, s:o, s:I}", "masters", list, "quorum", quorum_new(&quorum),
				  "leases_below_full", SUM(leases_below_full)));
}

/* Without authentication: no name, every right, all resources. The status page shows only what its caller may do. */
void info_call_whoami(struct call *call)
{
	const struct access_caller *caller = &call->caller;
	json_t *rights = json_array(), *prefixes = json_array();
	for (enum access_need need = ACCESS_ACQUIRE; need < ACCESS_NEED_COUNT; need++)
		if (access_rights(caller) & ACCESS_RIGHT(need))
			json_array_append_new(rights, json_string(access_right_name(need)));
	for (size_t i = 0; caller->key && i < caller->key->prefix_count; i++)
		json_array_append_new(prefixes,
				      json_stringn(caller->key->prefixes[i].bytes, caller->key->prefixes[i].len));
	if (!caller->key) /* the prefix of every resource */
		json_array_append_new(prefixes, json_string(""));
	call_reply_json(call, 200,
			json_pack("{s:o, s:o, s:o}", "caller", known_text(caller->known ? caller->name : ""), "rights",
				  rights, "prefixes", prefixes));
}

void info_call_openapi(struct call *call)
{
	reply_static(call->request, 200, "application/yaml", embedded_openapi_yaml, embedded_openapi_yaml_len);
}

void info_call_version(struct call *call)
{
	size_t count = 0;
	const struct build_library *libraries = build_libraries(&count);
	json_t *versions = json_object(), *notes = json_array();
	for (size_t i = 0; i < count; i++)
		json_object_set_new(versions, libraries[i].name, json_string(libraries[i].version));
	if (api_library_defects())
		json_array_append_new(notes, json_string(api_library_defects()));
	call_reply_json(call, 200,
			json_pack("{s:s, s:s, s:o, s:o}", "version", build_version, "commit", build_commit, "libraries",
				  versions, "notes", notes));
}

static void page_reply(struct call *call, const char *html, size_t len)
{
	static const char mark[] = "@NONCE@";
	const char *at = html, *end = html + len, *next;
	struct text text;
	random_token(call->nonce); /* used once: only styles and scripts with it may run */
	text_init(&text);
	while ((next = memmem(at, (size_t)(end - at), mark, sizeof mark - 1)) != NULL) {
		text_append(&text, at, (size_t)(next - at));
		text_append(&text, call->nonce, CALL_NONCE_LEN);
		at = next + sizeof mark - 1;
	}
	text_append(&text, at, (size_t)(end - at));
	reply_owned(call->request, 200, "text/html; charset=utf-8", text.bytes, text.len);
}

void info_call_page(struct call *call)
{
	page_reply(call, embedded_page_html, embedded_page_html_len);
}

void info_call_errors(struct call *call)
{
	page_reply(call, embedded_errors_html, embedded_errors_html_len);
}

/* ---- GET /stats: the last ten minutes of this process as numbers ----
 *
 * Any known caller sees the numbers. `hottest` and `waiting` list only resources that the caller could also find with
 * GET /locks, by its right and its prefixes. */

#define COUNT_AT(count) (offsetof(struct stats_point, counts) + (count) * sizeof(uint32_t))
static const struct {
	const char *name;
	size_t at; /* in struct stats_point */
} series[] = {
	{"granted", COUNT_AT(STATS_GRANTED)},
	{"locked", COUNT_AT(STATS_LOCKED)},
	{"split_vote", COUNT_AT(STATS_SPLIT_VOTE)},
	{"no_quorum", COUNT_AT(STATS_NO_QUORUM)},
	{"other", COUNT_AT(STATS_OTHER)},
	{"extended", COUNT_AT(STATS_EXTENDED)},
	{"released", COUNT_AT(STATS_RELEASED)},
	{"lost", COUNT_AT(STATS_LOST)},
	{"p50_us", offsetof(struct stats_point, p50_us)},
	{"p99_us", offsetof(struct stats_point, p99_us)},
	{"waiters", offsetof(struct stats_point, waiters)},
};

_Static_assert(sizeof series / sizeof series[0] == STATS_COUNTS + 3, "every count");

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

static json_t *now_new(void)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "in_flight", SUM(in_flight), "queued", SUM(queued),
			 "waiters", SUM(waiters), "holds", SUM(holds), "connections", SUM(http_connections), "workers",
			 (json_int_t)metrics_workers());
}

/* stats_filter_fn: true for names that the caller could list. */
static bool may_list(void *arg, const char *resource, size_t len)
{
	const struct call *call = arg;
	return access_decide(ACCESS_LIST, &call->caller, resource, len) == ACCESS_ALLOWED;
}

/* The first waiters of a resource, in the order in which they are served. */
static json_t *first_new(const struct stats_resource *resource, uint64_t now_us)
{
	json_t *first = json_array();
	assert(resource->first_count <= STATS_FIRST);
	for (size_t i = 0; i < resource->first_count; i++) {
		const struct stats_waiter *waiter = &resource->first[i];
		uint64_t waited_us = now_us > waiter->began_us ? now_us - waiter->began_us : 0;
		json_array_append_new(
			first, json_pack("{s:o*, s:I}", "owner",
					 waiter->owner_len > 0 ? json_stringn(waiter->owner, waiter->owner_len) : NULL,
					 "waited_ms", (json_int_t)(waited_us / 1000)));
	}
	return first;
}

/* The locks with most waiters, or else those that are acquired most. */
static json_t *resources_new(struct call *call, bool waiting, uint64_t now_us)
{
	struct stats_resource list[STATS_TOP];
	json_t *resources = json_array();
	size_t count = stats_read_top(waiting, may_list, call, list);
	assert(count <= STATS_TOP);
	for (size_t i = 0; i < count; i++) {
		uint64_t age_us = now_us > list[i].oldest_us ? now_us - list[i].oldest_us : 0;
		json_array_append_new(resources, json_pack("{s:o, s:I, s:I, s:o*}", "resource",
							   json_stringn(list[i].name, list[i].len),
							   waiting ? "waiters" : "acquires", (json_int_t)list[i].count,
							   waiting ? "oldest_ms" : "refused",
							   (json_int_t)(waiting ? age_us / 1000 : list[i].refused),
							   "first", waiting ? first_new(&list[i], now_us) : NULL));
	}
	return resources;
}

void info_call_stats(struct call *call)
{
	struct stats_point *points = memory_zeroed(STATS_POINTS, sizeof *points);
	size_t count = stats_read_series(points);
	uint64_t now_us = clock_now_us();
	json_t *object = json_object();
	for (size_t i = 0; i < sizeof series / sizeof series[0]; i++)
		json_object_set_new(object, series[i].name, numbers_new(points, count, series[i].at));
	call_reply_json(
		call, 200,
		json_pack("{s:I, s:i, s:o, s:o, s:o, s:o, s:o}", "uptime_ms", (json_int_t)stats_uptime_ms(now_us),
			  "interval_ms", STATS_INTERVAL_MS, "series", object, "masters",
			  masters_json(call->request->context->config->masters, points, count), "now", now_new(),
			  "hottest", resources_new(call, false, now_us), "waiting", resources_new(call, true, now_us)));
	free(points);
}
