/* SPDX-License-Identifier: MIT */
/* Private to this folder: a call (a request and the results of the stages in pipeline.c), the route table, and the
 * functions that the files share. All on the worker's thread. */
#ifndef CALLS_INTERNAL_H
#define CALLS_INTERNAL_H

#include "api/http/http.h"
#include "calls.h"

struct call;

/* ---- route.c ---- */

/* Answers a call now, or starts an operation whose answer resumes the request. */
typedef void route_handler(struct call *call);

enum { ROUTE_COUNT = 20, ROUTE_ALLOW_MAX = 64, CALL_NONCE_LEN = RANDOM_TOKEN_LEN };

/* The parameters of GET on /locks; the first two also on /locks/{resource}. */
enum { PARAM_WAIT, PARAM_RESOURCE, PARAM_PREFIX, PARAM_OWNER, PARAM_LIMIT, PARAM_CURSOR };

struct route {
	const char *name;      /* in the log and in metrics */
	const char *method;    /* a route for GET takes HEAD, too */
	const char *pattern;   /* a `{resource}` at its end stands for one or more segments */
	enum access_need need; /* the right that the caller must have */
	route_handler *handle;
	uint16_t status; /* of success */
	/* the same if the caller has it already (Idempotency-Key, If-None-Match), or names many leases; 0: never */
	uint16_t again;
	uint32_t problems; /* bits of enum problem, without those that follow from any call, a body or a right */
	enum lease_operation operation; /* of those on /locks */
	bool takes_body;
	bool takes_leases;                       /* the body may be a large one with `leases` */
	bool quiet;                              /* logged only for debugging: it is requested every few seconds */
	const char *params[PATH_PARAMS_MAX + 1]; /* of the query; NULL at the end */
	uint8_t counted_offset;                  /* it is counted as the route this many entries below */
	const char *selector; /* the route is taken if the query has this parameter; NULL: with any query */
};

extern const struct route route_table[ROUTE_COUNT];

/* The name of route i, NULL for ROUTE_COUNT; the index for counting the requests of a route, which is that of its
 * name. */
const char *route_name(size_t i);
size_t route_index(const struct route *route);

/* The route for a method, a raw path and a raw query (NULL: none); *ret_rest: where a `{resource}` begins in the path
 * (NULL: the pattern has none). NULL: there is none; then `ret_allow` has the methods that the path takes, as for the
 * header Allow, "": no such path. */
const struct route *route_find(const char *method, const char *path, const char *query, const char **ret_rest,
			       char ret_allow[ROUTE_ALLOW_MAX]);

/* How large a body may be that is sent there. */
size_t route_body_max(const char *method, const char *path, const char *query);

/* True if this route (NULL: no route was found) may give this answer by the table. */
bool route_may_answer(const struct route *route, unsigned status, const char *code);

/* ---- body.c: the bodies of lease operations, decoded into the plain struct that server/leases takes ---- */

/* The fault of a resource in the body beside the one in the path. */
#define BODY_NAME_TWICE "must not be there: the path names the resource"

/* The bounds of a body, and its defaults. */
struct body_limits {
	uint32_t default_ttl_ms, min_ttl_ms, max_ttl_ms, max_wait_ms;
};

/* Parses the body of an acquisition, extension, release or forced release (by `ret_request->operation`) into
 * *ret_request. If that has a resource already, it is from the path, and the body must name none. `header_token` is the
 * well-formed token of the header Lock-Token or NULL; with it the body of an extension or release may be empty. False:
 * adds the faulty fields to `errors`, and leaves *ret_request unchanged. */
bool body_parse(const char *bytes, size_t len, const char *header_token, const struct body_limits *limits,
		struct lease_request *ret_request, struct field_errors *errors) __attribute__((warn_unused_result));

/* The same for an item of `leases`: *ret_request is the extension or release, without resource and token. */
bool body_parse_item(const char *bytes, size_t len, const struct body_limits *limits, struct lease_request *ret_request,
		     struct field_errors *errors) __attribute__((warn_unused_result));

/* ---- body_flat.c: the usual bodies, read in place: a flat JSON object of plain strings, whole numbers, true, false */

enum body_kind { BODY_STRING, BODY_INTEGER, BODY_BOOLEAN, BODY_OBJECT, BODY_ARRAY, BODY_OTHER };

struct body_value {
	enum body_kind kind;
	const char *bytes; /* of a string; not terminated */
	size_t len;
	int64_t integer;    /* of a boolean: 0 or 1 */
	const json_t *json; /* of an object or an array */
};

/* Takes a member; its name, which is not terminated, and its value lie in the text. False ends the scan. */
typedef bool body_visit_fn(void *arg, const char *name, size_t name_len, const struct body_value *value);

/* Visits the members of `bytes`, in their order. False if the text needs a complete parser: it has something that this
 * function does not read, valid or not, or that `visit` rejects. */
bool body_flat_scan(const char *bytes, size_t len, body_visit_fn *visit, void *arg) __attribute__((warn_unused_result));

enum { BODY_ITEMS_MAX = 256 };

/* The text of an item of `leases`, not terminated. */
struct body_item {
	const char *bytes;
	size_t len;
};

/* Finds the items of a body {"leases":[{…},…]} without reading them, and returns how many there are, perhaps more than
 * BODY_ITEMS_MAX. The body is JSON if each item is. 0: it is another body, has no items, or is not JSON. */
size_t body_find_items(const char *bytes, size_t len, struct body_item ret_items[BODY_ITEMS_MAX]);

/* True if the body has no content: empty, blanks, or null, which some clients send with a DELETE that has no body (Go:
 * json.Marshal(nil)). */
bool body_is_nothing(const char *bytes, size_t len);

/* ---- the call ---- */

enum { WATCH_SEEN_MAX = 128 }; /* bytes of If-None-Match, or of a Last-Event-ID between quotes; and a NUL */

/* The query of a call that takes parameters, and the headers of an inspection. */
struct call_query {
	struct path_param params[PATH_PARAMS_MAX]; /* as route->params */
	struct lease_list_request list;            /* decoded from them, for a listing */
	struct text locks;                         /* of a listing: the JSON of those found so far */
	char seen[WATCH_SEEN_MAX]; /* of an inspection: tags that the caller knows, as in If-None-Match */
};

struct call {
	struct request *request;

	/* authorize, and the route */
	const struct route *route;   /* open to this page and address; NULL: none (yet) */
	const char *rest;            /* where the resource begins in the raw path, or NULL; until it is decoded */
	char allow[ROUTE_ALLOW_MAX]; /* for the header Allow; "": none */
	const char *origin;          /* of the page that calls, one of --allow-origin; NULL: none, or our own */
	bool preflight;              /* the answer says what a page of that origin may send */
	struct keys *keys;           /* a reference, held as long as `caller` is needed; NULL: none */
	struct access_caller caller;
	char *token; /* of a caller that is not verified yet; owned. NULL: there is none */
	size_t token_len;
	const char *raw_query;         /* with `token`: it is decoded when the caller is known */
	TAILQ_ENTRY(call) token_entry; /* of verify.c: `token` waits to be verified, or caller.token is in use */
	enum { VERIFY_NONE, VERIFY_WAITS, VERIFY_IN_USE } token_list;
	struct token *newer;       /* of an extension by a caller with a token: a reference, or NULL */
	bool stranger;             /* ACCESS_TOKEN: authentication is required, and this caller has not passed it */
	struct body_limits limits; /* of the caller's requests */
	bool streams; /* an inspection: of an event stream; else, with wait_ms > 0, it waits for a change */
	bool counted; /* among the waiting requests of its key */

	/* decode */
	struct call_query *query;   /* NULL: the route takes no parameters */
	struct lease_request lease; /* without a resource until that is known; owns its texts, except the caller */

	/* handle */
	struct bulk *bulk;             /* of a call on many leases; NULL: it is on one */
	struct lease_op *op;           /* under way, or NULL */
	struct lease_listing *listing; /* the same for GET /locks */
	struct hold_stream *stream;    /* the lease is held by this connection, or NULL */
	struct watch *watch;           /* the resource is watched, or NULL */
	unsigned events;               /* how many its stream has sent */
	uint64_t fence;                /* of the lease that the answer grants, for the trail; 0: none */

	/* reply */
	struct redlock_votes votes;     /* of an answer without a quorum, for the log; needed 0: not such an answer */
	char tag[LEASE_TAG_MAX];        /* of the state, for the header ETag; "": none */
	char nonce[CALL_NONCE_LEN + 1]; /* of the styles and scripts of a page; "": none may run */
};

static inline bool call_has_resource(const struct call *call)
{
	return call->lease.resource_len > 0;
}

/* ---- call.c: replies, and the line of the log ---- */

/* The one way to reject a call, in any stage: stores a problem as its reply. Arguments as for problem_new(). Both
 * return false, the result of a stage that rejects. */
bool call_reject(struct call *call, enum problem problem, const char *detail);
bool call_reject_with(struct call *call, enum problem problem, const char *detail, json_t *members,
		      const struct field_errors *errors);

/* Sets Retry-After: whole seconds, at least one. */
void call_retry_after(struct call *call, uint64_t ms);

/* The text of `json`, on the heap; stored as a reply. Both take over the reference. */
char *call_dump(json_t *json);
void call_reply_json(struct call *call, unsigned status, json_t *json);

/* A text that another program may have written: null if it is empty, or not UTF-8. */
json_t *call_text_new(const char *bytes, size_t len);
json_t *call_votes_new(const struct redlock_votes *votes);

/* For http_service.add_headers and http_service.end. */
void call_add_headers(const struct call *call, struct MHD_Response *response);
void call_log(const struct call *call, unsigned status, const char *ended, enum MHD_RequestTerminationCode how);

/* Outcomes of a lease for the log, for answers that are no problem. */
#define CALL_RELEASED "released"
#define CALL_GIVEN_UP "given-up"
#define CALL_KEPT "kept"
#define CALL_CLIENT_GONE "client-gone"

/* ---- call_members.c: each adds members to the line of the log that is being written ---- */

/* The request's id and that of its trace; a resource, or of a set the number of resources and the first names (nothing
 * if `len` is 0); the client's address. */
void call_log_id(const struct call *call);
void call_log_names(const char *names, size_t len, uint8_t set_count);
void call_log_address(const struct call *call);

/* ---- authorize.c. A stage returns false if it has stored a reply. ---- */

/* Checks the page that calls (Host, Origin) and the rate of its address. Answers a preflight. 403, 429 or 204. */
bool authorize_page(struct call *call, const char *method) __attribute__((warn_unused_result));

/* Checks the caller, its right, and the rate of its key. 401, 403 or 429. If its token is not verified yet, the call
 * keeps it, and authorize_verify() must follow. */
bool authorize_caller(struct call *call) __attribute__((warn_unused_result));

/* Checks that need decoded parameters: that the caller may do this to the resource, or list the prefix (403), and that
 * one more request of its key may wait (429). */
bool authorize_operation(struct call *call) __attribute__((warn_unused_result));

/* Checks that the rate of the address allows `count` more requests, which this one counts as. 429. */
bool authorize_more(struct call *call, size_t count) __attribute__((warn_unused_result));

/* After a reload of keys or authorities: identifies the caller again, and returns the new verdict. Unless that is
 * ALLOWED, the call keeps its former caller. */
enum access_verdict authorize_again(struct call *call) __attribute__((warn_unused_result));

/* The token of the caller has ended, or does not count any more, but its client has sent a newer one of the same caller
 * for the lease that the connection holds: the call has that caller now. False: there is none that allows it. */
bool authorize_renew(struct call *call) __attribute__((warn_unused_result));

/* An extension has this answer: the token of its caller may be such a newer one. */
void authorize_offer(const struct call *call, const struct lease_request *lease, const struct lease_answer *answer);

/* The caller of call->token waits in the list of verify.c; if too many do, true only for a call that anybody may make,
 * and it has no token any more. 429. */
bool authorize_wait_for_verification(struct call *call) __attribute__((warn_unused_result));

/* Verifies the caller of call->token now, and checks its right and the rate of its key, as authorize_caller() does. */
bool authorize_verify(struct call *call) __attribute__((warn_unused_result));

/* True for ALLOWED; else rejects with authorize_problem() (401 or 403). */
bool authorize_accept(struct call *call, enum access_verdict verdict);
enum problem authorize_problem(enum access_verdict verdict);

/* The request no longer waits; the request is over. Both do nothing if it never waited, or had no caller. */
void authorize_wait_end(struct call *call);
void authorize_end(struct call *call);

/* ---- verify.c: calls whose token is to be verified, and calls under way whose token may end. Each is in one of two
 * lists of its worker, or in none. ---- */

enum {
	VERIFY_MAX = 4096,  /* calls that wait in the list of a worker */
	VERIFY_SHARE = 1024 /* those of one address, in all lists: a thousand pods behind one proxy may start at once */
};

/* The state of a worker. */
struct calls_state {
	struct token_cache *tokens;
	size_t waiting_count;
	TAILQ_HEAD(, call) waiting, in_use;
	uint64_t look_us; /* when to look at those in use again */
};

static inline struct calls_state *calls_state(const struct request_context *context)
{
	return context->state;
}

/* NULL while no token has come. */
struct token_cache *verify_tokens(const struct request_context *context);

/* Puts the call into a list; takes it out of the one in which it is. verify_wait(): false if too many wait,
 * in all or of this address. */
bool verify_wait(struct call *call) __attribute__((warn_unused_result));
void verify_use(struct call *call);
void verify_end(struct call *call);
bool verify_cancel(struct call *call); /* true if it waited */

/* The next call to verify, which is in no list any more; NULL: there is none. */
struct call *verify_next(const struct request_context *context);

/* The next call whose token has ended, likewise. Looks once a second. */
struct call *verify_next_ended(const struct request_context *context, uint64_t now_us);

/* When one of both has something to do; UINT64_MAX: never. */
uint64_t verify_due_us(const struct request_context *context);
void verify_close(const struct request_context *context);

/* ---- decode.c ---- */

/* Decodes the path and the query, and checks that the headers fit the route; decodes the body, or the parameters of a
 * listing. */
bool decode_target(struct call *call, const char *query) __attribute__((warn_unused_result));
bool decode_body(struct call *call) __attribute__((warn_unused_result));

/* ---- lock_calls.c, info_calls.c: a handler for each route ---- */

/* Starts the operation of call->lease. */
void lock_call_submit(struct call *call);
void lock_call_list(struct call *call);

/* Stores the answer to the operation as the reply. */
void lock_call_answer(struct call *call, const struct lease_answer *answer);
/* True if a list of tags, as in If-None-Match, has this one. */
bool lock_call_is_seen(const char *list, const char *tag);

/* Cancels the operation under way; true if there was one. The log names the caller of a forced release, because it may
 * have been carried out. */
bool lock_call_cancel(struct call *call);

/* The explanation of a problem (static); NULL: the text for all problems of this kind. */
const char *lock_call_explain(const struct lease_request *lease, const struct lease_answer *answer);

/* The answer as this caller may learn it: `answer`, or *room. */
const struct lease_answer *lock_call_disclose(const struct call *call, const struct lease_answer *answer,
					      struct lease_answer *room);

/* Counts an answer in the metrics. */
void lock_call_count(const struct call *call, const struct lease_request *lease, const struct lease_answer *answer);

/* ---- bulk.c: extensions and releases of many leases in one call ---- */

struct bulk {
	size_t count;
	size_t under_way; /* operations without an answer */
	size_t problems;
	size_t text_len; /* of all answers */
	struct bulk_item *items;
};

static inline bool bulk_is_under_way(const struct bulk *bulk)
{
	return bulk && bulk->under_way > 0;
}

/* Sets call->bulk if the body has `leases`. False: they are not valid, or too many; the call is rejected. */
bool bulk_decode(struct call *call) __attribute__((warn_unused_result));

/* Starts the operations of all items. */
void bulk_submit(struct call *call);

/* Cancels those under way; true if there were any. */
bool bulk_cancel(struct call *call);

/* NULL: does nothing. */
void bulk_free(struct bulk *bulk);

void info_call_healthz(struct call *call);
void info_call_readyz(struct call *call);
void info_call_metrics(struct call *call);
void info_call_masters(struct call *call);
void info_call_whoami(struct call *call);
void info_call_openapi(struct call *call);
void info_call_version(struct call *call);
void info_call_page(struct call *call);
void info_call_errors(struct call *call);
void info_call_stats(struct call *call);

/* ---- hold_stream.c: locks held by a connection (`hold: true`) ---- */

struct hold_stream;

/* The lock is granted: begins to hold it, and stores the reply, whose first line is the lease. */
void hold_stream_open(struct call *call, const struct lease_answer *answer);

/* Three ways to end it: the client has left while the connection was suspended; the service ends; the caller lost its
 * right, so the lease is released and the last line is `lost` with this code. */
void hold_stream_leave(struct call *call);
void hold_stream_abort(struct call *call);
void hold_stream_revoke(struct call *call, enum problem code);

/* token_newer_copy() for the lease. */
char *hold_stream_newer_token(const struct hold_stream *stream, size_t *ret_len);

/* True if the lease was lost, or taken away. */
bool hold_stream_is_lost(const struct hold_stream *stream);

/* The request is over. hold_stream_log() adds the end of the stream to its line in the log. hold_stream_close()
 * releases the lease, unless it is lost or the client keeps it, and frees all. */
void hold_stream_log(const struct call *call, enum MHD_RequestTerminationCode how);
void hold_stream_close(struct call *call, enum MHD_RequestTerminationCode how);

/* ---- trail.c: the lines of --log-leases. Call these only if trail_is_on(). ---- */

static inline bool trail_is_on(const struct call *call)
{
	return call->request->context->config->options->log_leases != 0;
}

/* An operation of the call has this answer. */
void trail_answer(const struct call *call, const struct lease_request *request, const struct lease_answer *answer);

/* The lease that the connection holds is lost, with the code of a problem; redlockd releases the granted lease, since
 * its client has left; the call was rejected, which has a line only if its caller lacked the right to a lease. */
void trail_lost(const struct call *call, const char *reason);
void trail_left(const struct call *call);
void trail_refused(const struct call *call);

/* ---- watch.c: inspections: at once, with its next change (wait_ms), or as an event stream ---- */

struct watch;

void watch_call(struct call *call);

/* The stream ends: at once because the client has left, or after the event under way. */
void watch_leave(struct call *call);
void watch_finish(struct call *call);

/* Ends the watch, if there is one; watch_cancel(): only that of a call that waits for a change, and then returns
 * true. */
void watch_close(struct call *call);
bool watch_cancel(struct call *call);

/* ---- lease_text.c: a lease, or the refusal of one, as JSON text, without a tree of values in between ---- */

/* The longest: a resource and an owner, each of whose bytes may be escaped by five others, and the members around
 * them. */
enum { LEASE_TEXT_MAX = 6 * (LEASE_RESOURCE_MAX + LEASE_OWNER_MAX) + LEASE_TOKEN_LEN + 320 };

/* The longest text of this lease, which is longer if it is on several resources. */
static inline size_t lease_text_max(const struct lease_request *lease)
{
	return LEASE_TEXT_MAX + (lease->set_count > 0 ? (size_t)6 * lease->resource_len + 4 * LEASE_SET_MAX : 0);
}

/* Writes the lease that `answer` gives to `lease` (an acquisition or an extension), not terminated, at most
 * lease_text_max(); returns its length. If the connection holds the lease, it is the event `acquired`. The owner of an
 * extended lease, which another program may have written into Redis, is null if it is not UTF-8. */
size_t lease_text_write(const struct lease_request *lease, const struct lease_answer *answer, char *ret_text);

/* The same for a lease of many that was released: its status and its names. */
size_t lease_released_write(const struct lease_request *lease, char *ret_text);

enum { LEASE_VOTES_MAX = 160 };
/* Writes the member `votes` with the comma before it, at most LEASE_VOTES_MAX; returns the position after it. */
char *lease_votes_write(char *at, const struct redlock_votes *votes);

/* A complete refusal, without the metadata. */
enum { LEASE_REFUSAL_MAX = PROBLEM_WRITTEN_MAX + 6 * (LEASE_RESOURCE_MAX + LEASE_OWNER_MAX) + 512 };

/* Writes the further members of a refused acquisition (LEASE_LOCKED), after those of every problem, and the brace at
 * the end; returns the length. `name`: of a set, the resource that blocks it; NULL: there is only one. `metadata`: the
 * holder's as JSON, or NULL. */
size_t lease_refusal_write(const struct lease_answer *answer, const char *name, size_t name_len, const char *metadata,
			   size_t metadata_len, char *ret_text);

/* ---- state_text.c ---- */

/* Appends the state of a lock for an inspection, a listing or an event. `held` is null if too few masters answer. */
void state_text_write(struct text *text, const char *resource, size_t len, const struct lease_answer *answer);
/* How long the lease with this fence has been held. False: the fence does not show it. */
bool state_held_ms(uint64_t fence, uint64_t *ret_ms);
/* The holder's metadata, not terminated; NULL: none, or not what redlockd wrote. */
const char *state_metadata(const struct lease_holder *holder, size_t *ret_len);

#endif
