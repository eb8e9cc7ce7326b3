/* One request of a connection, from its first line to the last byte of its answer. A connection has one struct for all
 * of its requests. */
#ifndef REQUEST_H
#define REQUEST_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/auth/auth.h"
#include "api/calls/body.h"
#include "api/calls/path.h"
#include "api/calls/route.h"
#include "headers.h"
#include "http_metrics.h"
#include "reply.h"
#include "server/leases/leases.h"

struct connection;

enum { REQUEST_TARGET_MAX = 2048 };

/*                 first line        headers         whole: no answer yet        answer
 *     NONE ──────► BEGUN ─────────► BODY ─────────► RUNNING (suspended) ───────► ANSWERED ──► NONE
 *                                    └───────────── answer known ──────────────────┘
 * From everywhere to NONE when the connection ends. */
enum request_state { REQUEST_NONE, REQUEST_BEGUN, REQUEST_BODY, REQUEST_RUNNING, REQUEST_ANSWERED };

struct request {
	struct connection *connection;
	enum request_state state;
	uint64_t started_us;
	const struct route *route; /* NULL: none found (yet) */
	enum http_method method;
	bool failed;       /* memory was short: the connection is closed without an answer */
	bool written_raw;  /* the answer went past libmicrohttpd */
	bool has_resource; /* lease.resource is valid */
	/* its client left while it was under way: the connection is closed without an answer */
	bool gone;
	bool granted;      /* lease.token is a grant, whose answer is noted; see request_end() */
	bool admitted;     /* it has passed the door as far as its body is not needed for that */
	bool force;        /* DELETE ?force=true */
	bool counted;      /* among those of its key that wait */
	struct keys *keys; /* a reference, as long as `caller` is needed; NULL: there is none */
	struct access_caller caller;
	const char *origin; /* of the page that calls, one of --allow-origin; NULL: none, or our own */
	char id[HEADERS_REQUEST_ID_MAX + 1];
	struct headers headers;
	struct path_param *params; /* as route->params; NULL: the route has none */
	struct lease_request lease;
	struct lease_op *op;           /* under way, or NULL */
	struct lease_listing *listing; /* the same for GET /locks */
	struct hold_stream *stream;    /* the lease is held by this connection, or NULL */
	struct reply reply;
	size_t target_len; /* may be more than REQUEST_TARGET_MAX: then there is no `target` */
	char *target;      /* terminated; until the headers are read */
	size_t body_len;
	char *body; /* what has come of it, with room for all; until it is read. NULL: nothing has come */
};

/* Makes the struct of a new connection ready for its first request. */
void request_init(struct request *request, struct connection *connection);

/* The first line has come. `target` is its raw target, terminated. */
void request_begin(struct request *request, const char *target);

/* The access handler of libmicrohttpd. */
enum MHD_Result request_step(struct request *request, const char *url, const char *method, const char *version,
			     const char *data, size_t *data_len);

/* An operation under way has answered (the answer is noted): goes on in the next MHD_run(). */
void request_resume(struct request *request);

/* Memory is short: the connection will be closed instead of an answer. */
void request_fail(struct request *request);

/* Takes back what is under way and notes 503 `draining` as the answer; resumes the connection. A stream ends with the
 * line `draining`. */
void request_abort(struct request *request);

/* Keys or authorities have been read again. What its caller may not do any more is taken back: what is under way is
 * answered 401 or 403, a stream ends with the line `lost`, a body that still comes is not acted upon. */
void request_review(struct request *request);

/* Its client has left: takes back what is under way, and lets the library close the connection. */
void request_leave(struct request *request);

/* The answer has been sent, or the connection has ended before. Takes back whatever is still under way, in every state;
 * does nothing if there is no request. A grant whose answer was never queued is released; any other stays, however the
 * connection ended: nothing tells whether the client has read it. */
void request_end(struct request *request, enum MHD_RequestTerminationCode how);

#endif
