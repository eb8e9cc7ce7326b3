/* Requests, by route, method and status, in the counters of their worker (server/metrics/metrics.h). */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "server/metrics/metrics.h"

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OTHER, HTTP_METHOD_COUNT };

/* GET for "GET" and so on; HTTP_OTHER for what the service does not know. */
enum http_method http_method_parse(const char *text);
const char *http_method_name(enum http_method method);

/* The routes that requests are counted by: at most so many, and one slot for "none found". */
enum { HTTP_ROUTES_MAX = METRICS_HTTP_ROUTES - 1, HTTP_ROUTE_NONE = HTTP_ROUTES_MAX };

/* `route` is an index of the route table or HTTP_ROUTE_NONE; status 0: the connection ended before an answer was
 * there. */
void http_metrics_request(struct metrics *metrics, size_t route, enum http_method method, unsigned status);

/* When the certificate in use expires, in seconds since 1970; for all workers. Before the first call there is no TLS,
 * and no metric of it. */
void http_metrics_certificate(int64_t expiry_s);

/* Appends the metrics of requests and of TLS. `route_name` returns the name of a route by its index. */
typedef const char *http_route_name_fn(size_t route);
void http_metrics_render(struct text *page, http_route_name_fn *route_name);

#endif
