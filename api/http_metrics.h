/* Counters of the HTTP side. Each worker writes its own with relaxed atomics; rendering adds them up, from any thread. */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "../server/text.h"

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OTHER, HTTP_METHOD_COUNT };

/* GET for "GET" and so on; HTTP_OTHER for what the service does not know. */
enum http_method http_method_parse(const char *text);
const char *http_method_name(enum http_method method);

/* Why a connection was ended by us. */
enum http_timeout { HTTP_TIMEOUT_REQUEST, HTTP_TIMEOUT_ANSWER, HTTP_TIMEOUT_IDLE, HTTP_TIMEOUT_COUNT };

struct http_metrics;

/* Makes the counters of `workers` workers; once per process. They live until it ends. */
void http_metrics_setup(size_t workers);
struct http_metrics *http_metrics_worker(size_t worker);

/* `route` is an index of the route table or ROUTE_NONE; status 0: the connection ended before an answer was there. */
void http_metrics_request(struct http_metrics *metrics, size_t route, enum http_method method, unsigned status);
void http_metrics_connections(struct http_metrics *metrics, size_t connections);
void http_metrics_refused(struct http_metrics *metrics);
void http_metrics_timeout(struct http_metrics *metrics, enum http_timeout timeout);

/* Appends all of it as Prometheus text. */
void http_metrics_render(struct text *text);

#endif
