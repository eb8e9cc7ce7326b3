/* SPDX-License-Identifier: MIT */
/* Counters of requests. See http.h.
 *
 * The labels come from closed lists, so that no client can create a time series. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "http_internal.h"

/* Statuses with a counter of their own; then the slot of requests without an answer, and that of all others. */
static const uint16_t statuses[] = {200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 413, 414, 429, 431, 503, 505};
enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0], STATUS_ABORTED = STATUS_COUNT, STATUS_OTHER };

static const char *const method_names[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "other"};

static _Atomic uint64_t certificate_expiry_s; /* 0: there is no TLS */

_Static_assert(STATUS_OTHER == METRICS_HTTP_STATUSES - 1, "a counter for each status");
_Static_assert((int)HTTP_METHOD_COUNT == (int)METRICS_HTTP_METHODS, "a counter for each method");

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

static size_t status_slot(unsigned status)
{
	if (status == 0)
		return STATUS_ABORTED;
	for (size_t i = 0; i < STATUS_COUNT; i++)
		if (statuses[i] == status)
			return i;
	return STATUS_OTHER;
}

void http_metrics_request(struct metrics *metrics, size_t route, enum http_method method, unsigned status)
{
	assert(route <= HTTP_ROUTE_NONE && method < HTTP_METHOD_COUNT);
	metrics_add(&metrics->http_requests[route][method][status_slot(status)], 1);
}

void http_metrics_certificate(int64_t expiry_s)
{
	/* A date before 1970, or one that GnuTLS cannot read, counts as past, too. */
	metrics_set(&certificate_expiry_s, expiry_s > 0 ? (uint64_t)expiry_s : 1);
}

static void render_status(struct text *page, const char *route, enum http_method method, size_t slot, uint64_t count)
{
	assert(slot < METRICS_HTTP_STATUSES);
	text_printf(page, "redlockd_http_requests_total{route=\"%s\",method=\"%s\",status=\"", route,
		    http_method_name(method));
	if (slot < STATUS_COUNT)
		text_printf(page, "%u", (unsigned)statuses[slot]);
	else
		text_printf(page, "%s", slot == STATUS_ABORTED ? "aborted" : "other");
	text_printf(page, "\"} %" PRIu64 "\n", count);
}

void http_metrics_render(struct text *page, http_route_name_fn *route_name)
{
	const size_t slots = METRICS_HTTP_METHODS * METRICS_HTTP_STATUSES;
	uint64_t expiry_s = metrics_load(&certificate_expiry_s);
	exposition_head(page, "redlockd_http_requests_total", "counter",
			"Requests by route, method and status of the answer.");
	for (size_t i = 0; i < METRICS_HTTP_ROUTES * slots; i++) {
		size_t route = i / slots;
		uint64_t count = metrics_figure(offsetof(struct metrics, http_requests) + i * sizeof count,
						METRICS_SUM);
		if (count > 0)
			render_status(page, route < HTTP_ROUTES_MAX ? route_name(route) : "none",
				      i % slots / METRICS_HTTP_STATUSES, i % METRICS_HTTP_STATUSES, count);
	}
	if (expiry_s == 0)
		return;
	exposition_number(page, "redlockd_tls_certificate_expiry_timestamp_seconds", "gauge",
			  "When the certificate of --tls-cert expires, in seconds since 1970.", expiry_s);
	exposition_number(page, "redlockd_tls_handshakes_failed_total", "counter",
			  "TLS handshakes that clients began and that did not succeed.",
			  metrics_figure(offsetof(struct metrics, tls_handshakes_failed), METRICS_SUM));
}
