/* Private to this folder: a call (a request with what the stages of the pipeline made of it), the route table, and the
 * functions that the files share. All on the worker's thread.
 *
 *     read (api/http) -> route -> authorize -> decode -> handle -> reply
 *
 * Each stage takes the struct call of the one before. It rejects through call_reject(), or passes the call on. */
#ifndef CALLS_INTERNAL_H
#define CALLS_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "api/auth/auth.h"
#include "api/http/http.h"
#include "body.h"
#include "path.h"
#include "problem.h"
#include "server/leases/leases.h"

struct call;

/* ---- route.c: the first stage ---- */

/* Carries out a call: answers it now, or starts an operation whose answer resumes the request. */
typedef void route_handler(struct call *call);

/* One answer that a route can give; code NULL: not an error. */
struct route_answer {
	uint16_t status;
	const char *code;
};

enum { ROUTE_ANSWERS_MAX = 8, ROUTE_COUNT = 14, ROUTE_ALLOW_MAX = 64, CALL_NONCE_LEN = 32 };

struct route {
	const char *name;               /* in the log and in metrics */
	const char *method;             /* a route for GET takes HEAD, too */
	const char *pattern;            /* a `{resource}` at its end stands for one or more segments */
	const char *selector;           /* the route is taken if the query has this parameter; NULL: with any query */
	enum access_need need;          /* the right that the caller must have */
	enum lease_operation operation; /* of those on /locks */
	route_handler *handle;
	bool takes_body;
	const char *const *params;                      /* of the query; NULL at the end */
	struct route_answer answers[ROUTE_ANSWERS_MAX]; /* besides those that any call can give; status 0 ends them */
};

/* SERVER: the target is "*". */
enum route_match { ROUTE_FOUND, ROUTE_NO_PATH, ROUTE_NO_METHOD, ROUTE_SERVER };

/* Route i of ROUTE_COUNT. Static. */
const struct route *route_get(size_t i);

/* The name of route i, NULL for ROUTE_COUNT. */
const char *route_name(size_t i);

/* The index by which requests of a route are counted: that of its name. HTTP_ROUTE_NONE for NULL. */
size_t route_index(const struct route *route);

/* Finds the route for a method, a raw path and a raw query (NULL: none). FOUND: sets *ret_route, and *ret_rest to where
 * a `{resource}` begins in the path (NULL: the pattern has none). NO_METHOD: writes the methods that the path takes, as
 * for the header Allow. */
enum route_match route_find(const char *method, const char *path, const char *query, const struct route **ret_route,
			    const char **ret_rest, char *ret_allow, size_t allow_size)
	__attribute__((warn_unused_result));

/* True if the table says that this route (NULL: before a route was found) can answer so. */
bool route_may_answer(const struct route *route, unsigned status, const char *code);

/* ---- the call ---- */

/* The query of a call that takes parameters. */
struct call_query {
	struct path_param params[PATH_PARAMS_MAX]; /* as route->params */
	struct lease_list_request list;            /* decoded from them, for a listing */
};

struct call {
	struct request *request;

	/* route */
	enum route_match match;
	const struct route *found;   /* of ROUTE_FOUND */
	const char *rest;            /* where the resource begins in the raw path, or NULL; only for the head */
	char allow[ROUTE_ALLOW_MAX]; /* of ROUTE_NO_METHOD and ROUTE_SERVER: for the header Allow */

	/* authorize */
	const struct route *route; /* found, and open to this page and address; NULL: none (yet) */
	bool shows_allow;          /* the answer has the header Allow */
	const char *origin;        /* of the page that calls, one of --allow-origin; NULL: none, or our own */
	bool preflight;            /* the answer says what a page of that origin may send */
	struct keys *keys;         /* a reference, as long as `caller` is needed; NULL: there is none */
	struct access_caller caller;
	struct body_limits limits; /* of the caller's requests */
	bool counted;              /* among the waiting requests of its key */

	/* decode */
	struct call_query *query; /* NULL: the route takes no parameters */
	struct lease_request lease;
	bool has_resource; /* lease.resource is valid */

	/* handle */
	struct lease_op *op;           /* under way, or NULL */
	struct lease_listing *listing; /* the same for GET /locks */
	struct hold_stream *stream;    /* the lease is held by this connection, or NULL */

	/* reply */
	bool granted;                   /* lease.token is a grant, whose answer is noted */
	bool location;                  /* the answer has the header Location, of the resource */
	struct redlock_votes votes;     /* of an answer that lacks a quorum, for the log; needed 0: it does not */
	char nonce[CALL_NONCE_LEN + 1]; /* of the styles and scripts of a page; "": none may run */
};

/* ---- call.c: replies ---- */

/* The one way to reject a call, in any stage: notes a problem as its reply. `members` (taken over) and `errors` as for
 * problem_new(). Returns false, the result of a stage that rejects. */
bool call_reject(struct call *call, enum problem problem, const char *detail, json_t *members,
		 const struct field_errors *errors);

/* Rejects with 503 draining. */
bool call_reject_draining(struct call *call);

/* Notes a reply in JSON; takes over the reference. */
void call_reply_json(struct call *call, unsigned status, json_t *json);

/* Adds the headers of a reply that belong to the call. False if memory is short. */
bool call_add_headers(const struct call *call, struct MHD_Response *response);

/* ---- authorize.c: the second stage ---- */

/* Checks, in this order: the page that calls (Host, Origin), the rate of its address, the route, the caller, its right,
 * and the rate of its key. Answers a preflight. False if a reply is noted: 403, 429, 404, 405, 401 or 204. */
bool authorize_call(struct call *call, const char *method) __attribute__((warn_unused_result));

/* The part of authorization that needs decoded parameters: may the caller do this to the resource, or list what begins
 * with the prefix (403)? May one more request of its key wait (429)? */
bool authorize_operation(struct call *call) __attribute__((warn_unused_result));

/* Keys or authorities have been read again: finds out anew who calls, and returns what that caller may do. Unless that
 * is ALLOWED, the call keeps its former caller. */
enum access_verdict authorize_again(struct call *call) __attribute__((warn_unused_result));

/* True for ALLOWED; else rejects with 401 or 403. */
bool authorize_accept(struct call *call, enum access_verdict verdict);

/* The problem of a verdict that is not ALLOWED. */
enum problem authorize_problem(enum access_verdict verdict);

/* The request does not wait any more; does nothing if it never did. */
void authorize_wait_end(struct call *call);

/* Forgets the caller: the request is over. */
void authorize_end(struct call *call);

/* ---- decode.c: the third stage ---- */

/* Decodes the path and the query, and checks that the headers fit the route. */
bool decode_target(struct call *call, const char *query) __attribute__((warn_unused_result));

/* Decodes the body, or the parameters of a listing. */
bool decode_body(struct call *call) __attribute__((warn_unused_result));

/* ---- lock_calls.c, info_calls.c, stats_calls.c: the fourth stage, a handler for each route ---- */

void lock_call_acquire(struct call *call);
void lock_call_extend(struct call *call);
void lock_call_release(struct call *call);
void lock_call_force(struct call *call);
void lock_call_inspect(struct call *call);
void lock_call_list(struct call *call);

/* Cancels what is under way. The log names the caller of a forced release, because it may have been carried out. */
void lock_call_cancel(struct call *call);

void info_call_healthz(struct call *call);
void info_call_readyz(struct call *call);
void info_call_metrics(struct call *call);
void info_call_masters(struct call *call);
void info_call_openapi(struct call *call);
void info_call_version(struct call *call);
void info_call_page(struct call *call);
void stats_call(struct call *call);

/* ---- hold_stream.c: locks held by a connection (`hold: true`) ---- */

struct hold_stream;

#define HOLD_CONTENT_TYPE "application/x-ndjson"

/* The lock is granted: begins to hold it, and notes the reply, whose first line is the lease. If memory is short the
 * lease is released and the request fails. */
void hold_stream_open(struct call *call, const struct lease_answer *answer);

/* The client has left, while the connection was suspended. */
void hold_stream_leave(struct call *call);

/* The service ends: the last line is `draining`, without another renewal. */
void hold_stream_abort(struct call *call);

/* The caller may not hold the lock any more: the lease is released, and the last line is `lost` with this code. Does
 * nothing to a stream that ends already. */
void hold_stream_revoke(struct call *call, enum problem code);

/* The request is over: adds to its line in the log how the stream ended. */
void hold_stream_log(const struct call *call, enum MHD_RequestTerminationCode how);

/* The same: releases the lease, unless it is lost or was left to the client's care. Frees all. */
void hold_stream_close(struct call *call, enum MHD_RequestTerminationCode how);

/* ---- request_log.c ---- */

/* Writes the line of a request that is over; arguments as for http_service.end. */
void request_log(const struct call *call, unsigned status, const char *ended, enum MHD_RequestTerminationCode how);

/* Adds the client's address to the line of the log that is being written. */
void request_log_address(const struct call *call);

/* ---- lease_text.c: a lease as JSON text, without a tree of values in between ---- */

/* The longest: a resource and an owner, each of whose bytes may be escaped by five others, and the members around
 * them. */
enum { LEASE_TEXT_MAX = 6 * (LEASE_RESOURCE_MAX + LEASE_OWNER_MAX) + LEASE_TOKEN_LEN + 320 };

/* Writes the lease that `answer` gives to `lease` (an acquisition or an extension), not terminated; returns its length.
 * `event` stands before its members unless it is NULL. The owner of an extended lease, which another program may have
 * written into Redis, is null if it is not UTF-8. */
size_t lease_text_write(const struct lease_request *lease, const struct lease_answer *answer, const char *event,
			char ret_text[LEASE_TEXT_MAX]);

/* ---- accept.c: which format of the metrics a client wants, by the header Accept (RFC 9110, 12.5.1) ---- */

/* The client's preference for what we have, in thousandths; ACCEPT_UNNAMED: it did not say. Begin with
 * ACCEPT_NOTHING. */
struct accept {
	int openmetrics; /* application/openmetrics-text, of version 1.0.0 if it names one */
	int text;        /* text/plain, of version 0.0.4 if it names one */
	int any_text;    /* text, any of it */
	int any;         /* anything */
};
enum { ACCEPT_UNNAMED = -1 };
#define ACCEPT_NOTHING ((struct accept){ACCEPT_UNNAMED, ACCEPT_UNNAMED, ACCEPT_UNNAMED, ACCEPT_UNNAMED})

/* Adds the value of one header Accept; there may be several. Malformed or unknown parts are skipped. */
void accept_read(struct accept *accept, const char *value, size_t len);

/* True if the client names OpenMetrics and prefers it, or does not prefer plain text. A client that accepts anything
 * gets plain text. */
bool accept_prefers_openmetrics(const struct accept *accept);

#endif
