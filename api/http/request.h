/* One request of a connection, from its first line to the last byte of its answer, as the service sees it. A connection
 * has one struct for all of its requests. Worker's thread. */
#ifndef REQUEST_H
#define REQUEST_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "headers.h"
#include "http_metrics.h"
#include "reply.h"

struct api_config;
struct connection;
struct keys;
struct peer;
struct tls_peer;

enum { REQUEST_TARGET_MAX = 2048, REQUEST_BODY_MAX = 16384, REQUEST_ADDRESS_MAX = 46 };

/*          first line      headers      whole: no reply yet        reply
 *     NONE ─────────► BEGUN ─────► BODY ─────────► RUNNING ───────────────► ANSWERED ──► NONE
 *                       │           │ │               └─► DROPPED                ▲
 *                       │           │ └───────── whole, with a reply ────────────┘
 *                       └─► WRITTEN ◄┘
 *
 * BODY: what comes is kept, or discarded as soon as a reply is noted. RUNNING: an operation is under way, and the
 * connection is suspended. ANSWERED: libmicrohttpd has the reply. DROPPED: the client left, and the connection is
 * closed without a reply. WRITTEN: the reply went past libmicrohttpd, and the connection is closed. From every state to
 * NONE when the connection ends. */
enum request_state {
	REQUEST_NONE,
	REQUEST_BEGUN,
	REQUEST_BODY,
	REQUEST_RUNNING,
	REQUEST_DROPPED,
	REQUEST_ANSWERED,
	REQUEST_WRITTEN
};

/* From where clients can reach the socket, by its own address. */
enum http_reach { HTTP_REACH_UNIX, HTTP_REACH_LOOPBACK, HTTP_REACH_NETWORK };

/* What all requests of one api see of it. */
struct request_context {
	const struct api_config *config;
	struct keys *keys; /* a reference; NULL: no access control by keys */
	bool draining;
	bool ending; /* within api_free(): nothing new may start, nothing is suspended */
};

struct request {
	struct connection *connection;
	const struct request_context *context;
	struct peer *peer;               /* the client's address; NULL: none */
	const struct tls_peer *tls_peer; /* the client's certificate; NULL: clients are asked for none here */
	enum http_reach reach;
	void *call; /* the service's own state: service->call_size bytes, zeroed when the request begins */
	enum request_state state;
	enum http_method method;
	size_t route; /* set by the service: index in its route table; HTTP_ROUTE_NONE: none found (yet) */
	uint64_t started_us;
	char id[HEADERS_REQUEST_ID_MAX + 1];
	struct headers headers;
	struct reply reply;
	size_t target_len; /* may be more than REQUEST_TARGET_MAX: then there is no `target` */
	char *target;      /* terminated; until the headers are read */
	size_t body_len;
	char *body; /* what has come of it, with room for all; until it is read. NULL: nothing has come */
};

/* The operation under way has answered (a reply is noted): the connection goes on in the next api_run(). */
void request_resume(struct request *request);

/* The same for a client that has left: the connection is closed without an answer. */
void request_drop(struct request *request);

/* True if an answer is noted. */
static inline bool request_is_answered(const struct request *request)
{
	return request->reply.status != 0;
}

/* A deadline of the connection has passed. */
bool request_is_late(const struct request *request);

/* After a reload: examines the client's certificate again if the authorities have changed. */
void request_identify(struct request *request);

/* The client's address as text, "unix" for a Unix socket. */
void request_write_address(const struct request *request, char ret_text[REQUEST_ADDRESS_MAX]);

#endif
