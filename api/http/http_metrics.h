/* Counters of the HTTP side. Each worker writes its own with relaxed atomics; rendering adds them up, from any
 * thread. */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H

#include <stddef.h>
#include <stdint.h>

struct exposition; /* server/metrics/metrics_counters.h */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OTHER, HTTP_METHOD_COUNT };

/* GET for "GET" and so on; HTTP_OTHER for what the service does not know. */
enum http_method http_method_parse(const char *text);
const char *http_method_name(enum http_method method);

/* Why a connection was ended by us. */
enum http_timeout { HTTP_TIMEOUT_REQUEST, HTTP_TIMEOUT_ANSWER, HTTP_TIMEOUT_IDLE, HTTP_TIMEOUT_COUNT };

/* Why a connection was not taken: too many in all, too many of its address, or no memory. */
enum http_refusal { HTTP_REFUSED_ALL, HTTP_REFUSED_ADDRESS, HTTP_REFUSED_ERROR, HTTP_REFUSAL_COUNT };

/* Which bound a request was answered 429 for; not: the queue of a lock is full. */
enum http_limit { HTTP_LIMIT_ADDRESS_RATE, HTTP_LIMIT_KEY_RATE, HTTP_LIMIT_KEY_WAITING, HTTP_LIMIT_COUNT };

struct http_metrics;

/* The routes that requests are counted by: at most so many, and one slot for "none found". */
enum { HTTP_ROUTES_MAX = 15, HTTP_ROUTE_NONE = HTTP_ROUTES_MAX };

/* The name of a route by its index; NULL for the index behind the last. */
typedef const char *http_route_name_fn(size_t route);

/* Makes the counters of `workers` workers; once per process. They live until it ends. */
void http_metrics_setup(size_t workers, http_route_name_fn *route_name);
struct http_metrics *http_metrics_worker(size_t worker);

/* `route` is an index of the route table or HTTP_ROUTE_NONE; status 0: the connection ended before an answer was
 * there. */
void http_metrics_request(struct http_metrics *metrics, size_t route, enum http_method method, unsigned status);
void http_metrics_connections(struct http_metrics *metrics, size_t connections);
/* Open connections of all workers. Any thread. */
uint64_t http_metrics_open(void);
/* How many connections may be open at a time. */
void http_metrics_limit(struct http_metrics *metrics, size_t connections);
void http_metrics_refused(struct http_metrics *metrics, enum http_refusal why);
void http_metrics_limited(struct http_metrics *metrics, enum http_limit limit);
void http_metrics_timeout(struct http_metrics *metrics, enum http_timeout timeout);
void http_metrics_handshake_failed(struct http_metrics *metrics);

/* When the certificate in use expires, in seconds since 1970; for all workers. Before the first call there is no TLS,
 * and no metric of it. */
void http_metrics_certificate(int64_t expiry_s);

/* Appends all of it. */
void http_metrics_render(struct exposition *page);

#endif
