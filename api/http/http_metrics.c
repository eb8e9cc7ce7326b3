/* Counters of the HTTP side: requests by route, method and status, connections, deadlines. See http_metrics.h.
 *
 * The labels come from closed lists, so that no client can make up a time series. */
#include "http_metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/metrics/metrics.h"

static const uint16_t statuses[] = {200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 413, 414, 429, 431, 503, 505};
enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0], STATUS_ABORTED = STATUS_COUNT, STATUS_OTHER, STATUS_SLOTS };

struct http_metrics {
	_Atomic uint64_t requests[HTTP_ROUTES_MAX + 1][HTTP_METHOD_COUNT][STATUS_SLOTS];
	_Atomic uint64_t connections;
	_Atomic uint64_t connections_limit;
	_Atomic uint64_t refused[HTTP_REFUSAL_COUNT];
	_Atomic uint64_t limited[HTTP_LIMIT_COUNT];
	_Atomic uint64_t handshakes_failed;
	_Atomic uint64_t timeouts[HTTP_TIMEOUT_COUNT];
};

static struct http_metrics *all;
static size_t all_count;
static http_route_name_fn *http_route_name;
static _Atomic int64_t certificate_expiry_s; /* 0: there is no TLS */

static const char *const method_names[HTTP_METHOD_COUNT] = {"GET", "HEAD", "POST", "PUT", "DELETE", "other"};
static const char *const refusal_names[HTTP_REFUSAL_COUNT] = {"all", "address", "error"};
static const char *const limit_names[HTTP_LIMIT_COUNT] = {"address-rate", "key-rate", "key-waiting"};
static const char *const timeout_names[HTTP_TIMEOUT_COUNT] = {"request", "answer", "idle"};

enum http_method http_method_parse(const char *text)
{
	for (enum http_method method = HTTP_GET; method < HTTP_OTHER; method++)
		if (strcmp(method_names[method], text) == 0)
			return method;
	return HTTP_OTHER;
}

const char *http_method_name(enum http_method method)
{
	assert(method < HTTP_METHOD_COUNT);
	return method_names[method];
}

void http_metrics_setup(size_t workers, http_route_name_fn *route_name)
{
	assert(workers > 0 && !all && route_name);
	all = calloc(workers, sizeof *all);
	if (!all)
		abort(); /* at start, before any lease is granted */
	all_count = workers;
	http_route_name = route_name;
}

struct http_metrics *http_metrics_worker(size_t worker)
{
	assert(worker < all_count);
	return &all[worker];
}

static size_t status_slot(unsigned status)
{
	if (status == 0)
		return STATUS_ABORTED;
	for (size_t i = 0; i < STATUS_COUNT; i++)
		if (statuses[i] == status)
			return i;
	return STATUS_OTHER;
}

void http_metrics_request(struct http_metrics *metrics, size_t route, enum http_method method, unsigned status)
{
	assert(route <= HTTP_ROUTE_NONE && method < HTTP_METHOD_COUNT);
	metrics_add(&metrics->requests[route][method][status_slot(status)], 1);
}

void http_metrics_connections(struct http_metrics *metrics, size_t connections)
{
	assert(metrics);
	atomic_store_explicit(&metrics->connections, connections, memory_order_relaxed);
}

void http_metrics_limit(struct http_metrics *metrics, size_t connections)
{
	assert(connections > 0);
	metrics_set(&metrics->connections_limit, connections);
}

void http_metrics_refused(struct http_metrics *metrics, enum http_refusal why)
{
	assert(why < HTTP_REFUSAL_COUNT);
	metrics_add(&metrics->refused[why], 1);
}

void http_metrics_limited(struct http_metrics *metrics, enum http_limit limit)
{
	assert(limit < HTTP_LIMIT_COUNT);
	metrics_add(&metrics->limited[limit], 1);
}

void http_metrics_timeout(struct http_metrics *metrics, enum http_timeout timeout)
{
	assert(timeout < HTTP_TIMEOUT_COUNT);
	metrics_add(&metrics->timeouts[timeout], 1);
}

void http_metrics_handshake_failed(struct http_metrics *metrics)
{
	metrics_add(&metrics->handshakes_failed, 1);
}

void http_metrics_certificate(int64_t expiry_s)
{
	atomic_store_explicit(&certificate_expiry_s, expiry_s, memory_order_relaxed);
}

/* The sum over all workers of the counter that lies `offset` bytes into each one's struct. */
static uint64_t sum_at(size_t offset)
{
	uint64_t sum = 0;

	assert(offset + sizeof(uint64_t) <= sizeof(struct http_metrics));
	for (size_t i = 0; i < all_count; i++)
		sum += atomic_load_explicit((_Atomic uint64_t *)(void *)((char *)&all[i] + offset),
					    memory_order_relaxed);
	return sum;
}

uint64_t http_metrics_open(void)
{
	return sum_at(offsetof(struct http_metrics, connections));
}

static void render_status(struct exposition *page, size_t route, enum http_method method, size_t slot)
{
	size_t index = (route * HTTP_METHOD_COUNT + method) * STATUS_SLOTS + slot;
	uint64_t sum = sum_at(offsetof(struct http_metrics, requests) + index * sizeof(uint64_t));

	assert(slot < STATUS_SLOTS);
	if (sum == 0)
		return;
	text_printf(&page->text, "redlockd_http_requests_total{route=\"%s\",method=\"%s\",status=\"",
		    route < HTTP_ROUTES_MAX ? http_route_name(route) : "none", method_names[method]);
	if (slot < STATUS_COUNT)
		text_printf(&page->text, "%u", (unsigned)statuses[slot]);
	else
		text_printf(&page->text, "%s", slot == STATUS_ABORTED ? "aborted" : "other");
	text_printf(&page->text, "\"} %" PRIu64 "\n", sum);
}

static void render_requests(struct exposition *page)
{
	exposition_head(page, "redlockd_http_requests_total", "counter",
			"Requests by route, method and status of the answer.");
	for (size_t route = 0; route <= HTTP_ROUTES_MAX; route++)
		for (enum http_method method = 0; method < HTTP_METHOD_COUNT; method++)
			for (size_t slot = 0; slot < STATUS_SLOTS; slot++)
				render_status(page, route, method, slot);
}

static void render_tls(struct exposition *page)
{
	int64_t expiry_s = atomic_load_explicit(&certificate_expiry_s, memory_order_relaxed);

	if (expiry_s == 0)
		return;
	exposition_head(page, "redlockd_tls_certificate_expiry_timestamp_seconds", "gauge",
			"When the certificate of --tls-cert expires, in seconds since 1970.");
	text_printf(&page->text, "redlockd_tls_certificate_expiry_timestamp_seconds %" PRId64 "\n", expiry_s);
	exposition_head(page, "redlockd_tls_handshakes_failed_total", "counter",
			"TLS handshakes that clients began and that did not succeed.");
	text_printf(&page->text, "redlockd_tls_handshakes_failed_total %" PRIu64 "\n",
		    sum_at(offsetof(struct http_metrics, handshakes_failed)));
}

/* A counter that has one label. */
static void render_counter(struct exposition *page, const char *name, const char *help, const char *label,
			   const char *const values[], size_t count, size_t offset)
{
	assert(offset + count * sizeof(uint64_t) <= sizeof(struct http_metrics));
	exposition_head(page, name, "counter", help);
	for (size_t i = 0; i < count; i++)
		text_printf(&page->text, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, values[i],
			    sum_at(offset + i * sizeof(uint64_t)));
}

static void render_gauge(struct exposition *page, const char *name, const char *help, size_t offset)
{
	assert(offset + sizeof(uint64_t) <= sizeof(struct http_metrics));
	exposition_head(page, name, "gauge", help);
	text_printf(&page->text, "%s %" PRIu64 "\n", name, sum_at(offset));
}

void http_metrics_render(struct exposition *page)
{
	render_requests(page);
	render_tls(page);
	render_gauge(page, "redlockd_http_connections", "Open HTTP connections.",
		     offsetof(struct http_metrics, connections));
	render_gauge(page, "redlockd_http_connections_limit",
		     "How many HTTP connections may be open at a time (--max-connections, rounded up to a multiple of "
		     "--workers).",
		     offsetof(struct http_metrics, connections_limit));
	render_counter(
		page, "redlockd_http_connections_refused_total",
		"Connections refused because too many were open, in all or from one address, or memory was short.",
		"reason", refusal_names, HTTP_REFUSAL_COUNT, offsetof(struct http_metrics, refused));
	render_counter(page, "redlockd_http_requests_limited_total",
		       "Requests answered 429, by the bound of their address or key that they met.", "limit",
		       limit_names, HTTP_LIMIT_COUNT, offsetof(struct http_metrics, limited));
	render_counter(page, "redlockd_http_timeouts_total",
		       "Connections ended at a deadline, by what they were late with.", "phase", timeout_names,
		       HTTP_TIMEOUT_COUNT, offsetof(struct http_metrics, timeouts));
}
