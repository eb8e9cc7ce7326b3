/* SPDX-License-Identifier: MIT */
/* The HTTP side of one worker: libmicrohttpd without threads, driven by the worker's loop. It has no endpoints: a
 * service (api/calls) handles the requests.
 *
 * The worker accepts connections and hands them over. It calls api_run() when api_fd() is readable, when
 * api_timeout_ms() has passed, and at the end of every round of its loop in which an answer came. All on the worker's
 * thread. The one header of this folder for the others. */
#ifndef HTTP_H
#define HTTP_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "api/auth/auth.h"
#include "server/base/base.h"
#include "server/config/config.h"
#include "server/leases/leases.h"
#include "server/metrics/metrics.h"

struct api;
struct connection;
struct gnutls_session_int; /* gnutls_session_t is a pointer to it */
struct holds;
struct masters;
struct request;
struct tls;

/* ---- tls.c: the certificate for HTTPS, and those of clients. Any thread. ----
 *
 * A loaded `struct tls` never changes: a reload makes another one, and every connection keeps a reference to the one
 * with which it began. */

enum { TLS_FILE_MAX = 1 << 20 /* bytes of each file */, TLS_WARN_DAYS = 14 };

/* Reads --tls-cert (the certificate, and those that sign it), --tls-key and --tls-client-ca ("": clients are asked for
 * no certificate), all PEM. Returns one reference, the caller's; or NULL and a message of one line that names the
 * option, the file and its fault. Blocking: for the start and SIGHUP. */
struct tls *tls_load(const char *cert, const char *key, const char *client_ca, char *message, size_t size)
	__attribute__((warn_unused_result));

/* Adds or removes a reference; removing the last one frees it. tls_unref(NULL) does nothing. */
struct tls *tls_ref(struct tls *tls);
void tls_unref(struct tls *tls);

/* True if clients are asked for a certificate; if both trust the same authorities; if the certificate is for this name
 * or address. */
bool tls_asks(const struct tls *tls);
bool tls_same_authorities(const struct tls *tls, const struct tls *other);
bool tls_is_for(const struct tls *tls, const char *host);

/* Call it when the certificate comes into use: sets the metric of its expiry, and warns in the log if it has expired or
 * soon will. */
void tls_announce(const struct tls *tls);

/* Sets it for a session whose handshake has not begun, or is over; in the latter case only its authorities matter. The
 * session must end before the reference does. A client that is not asked for a certificate may resume a session that
 * began with the same `struct tls`, at any worker. */
void tls_attach(const struct tls *tls, struct gnutls_session_int *session);

/* Examines the certificate of a client by the authorities of the session, after the handshake. A second call leaves the
 * names unchanged and in place. */
void tls_peer_examine(struct gnutls_session_int *session, struct tls_peer *peer);

/* The names in a certificate (DER): its DNS and URI alternative names, or its common name if it has no alternative name
 * of any kind. Names with other bytes than visible ASCII, and those without room, are left out. False if it is no
 * certificate. For tls_peer_examine() and its tests. */
bool tls_peer_read_names(const void *der, size_t len, struct tls_peer *peer) __attribute__((warn_unused_result));

/* ---- tls_bounds.c: certificates of clients that are too expensive to check. Any thread. ---- */

/* NULL if the certificate (DER) is cheap to check; else why it is refused (static). For tls_bounds_examine_peer() and
 * its tests. */
const char *tls_bounds_examine(const void *der, size_t len) __attribute__((warn_unused_result));

/* The same for all certificates that the client has sent, and their number. */
const char *tls_bounds_examine_peer(struct gnutls_session_int *session) __attribute__((warn_unused_result));

/* ---- headers.c: the head of a request: its target, its headers, and whether its framing is beyond doubt ---- */

enum {
	HEADERS_BYTES_MAX = 8192,
	HEADERS_COUNT_MAX = 64,
	HEADERS_COOKIES_MAX = 50,
	HEADERS_REQUEST_ID_MAX = 128,
	HEADERS_TRACE_ID_LEN = 32
};

struct headers {
	const char *broken; /* NULL, or why the request cannot be trusted and the connection must end (static) */
	bool too_large;     /* more than HEADERS_BYTES_MAX or HEADERS_COUNT_MAX */
	/* the library copies each cookie, and may have no room left for an answer */
	bool many_cookies;
	bool has_body;
	bool chunked;
	uint64_t content_length; /* unless chunked */
	bool is_encoded;         /* a Content-Encoding other than identity */
	bool closes;             /* the client ends the connection with this request */
	bool has_json;           /* a Content-Type of application/json */
	bool wants_stream;       /* an Accept that prefers text/event-stream to JSON */
	/* These point into the request, and are valid until its first access handler call ends. NULL: no such
	 * header. */
	const char *host, *origin, *key, *seen_tags, *last_event;
	size_t host_len, origin_len, key_len, seen_tags_len, last_event_len; /* If-None-Match, Last-Event-ID */
	bool keys_twice;   /* more than one key: which counts is not clear */
	bool other_scheme; /* an Authorization that is not Bearer, perhaps meant for a proxy */
	bool preflight;    /* Access-Control-Request-Method */
	/* Idempotency-Key as given; points into the request, too. NULL: none */
	const char *idempotency_key;
	size_t idempotency_key_len;
	bool idempotency_keys_twice;
	/* Lock-Token; BAD: not a token, or given twice */
	enum { HEADERS_TOKEN_NONE, HEADERS_TOKEN_GOOD, HEADERS_TOKEN_BAD } token_state;
	char token[LEASE_TOKEN_LEN];                 /* GOOD */
	char request_id[HEADERS_REQUEST_ID_MAX + 1]; /* "": none, or not usable */
	char trace_id[HEADERS_TRACE_ID_LEN + 1];     /* of traceparent; "": the same */
};

/* Reads the headers of `mhd` in the first call of its access handler; `url`, `method` and `version` as given to it,
 * `target_len` the length of the raw target. */
void headers_read(struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
		  size_t target_len, struct headers *ret_headers);

/* The same for a request that the library rejects before it calls the handler: `broken` is NULL only if the headers are
 * too large for it. */
void headers_read_rejected(struct MHD_Connection *mhd, struct headers *ret_headers);

/* How many bytes at the beginning may be part of a token (RFC 9110, 5.6.2): a method, or the name of a header. */
size_t headers_token_span(const char *text, size_t len);

/* The id of the trace in a traceparent of version 00 (W3C Trace Context). False: malformed, or of another version. */
bool headers_trace_id(const char *bytes, size_t len, char ret_id[HEADERS_TRACE_ID_LEN + 1]);

/* True for 40 lower-case hex digits. */
#define HEADERS_TOKEN_RULE "must be 40 lower-case hexadecimal digits"
bool headers_is_token(const char *bytes, size_t len);

/* True if the raw target is made of visible ASCII, without `#`, and begins with a slash. */
bool target_is_origin(const char *target, size_t len);

/* The rest of a terminated target in absolute form (`http://authority/path?query`, RFC 9112, 3.2.2) after its
 * authority. The rest begins with a slash or a question mark, or is empty. *ret_host: the authority. NULL: the target
 * has another form, or invalid characters. */
const char *target_after_authority(const char *target, size_t len, const char **ret_host, size_t *ret_host_len);

/* Parses any terminated target, in place. Returns its path ("*" only for OPTIONS), or NULL if it is no target.
 * *ret_query: the part after the question mark, or NULL. The authority of a target in absolute form replaces *ret_host;
 * other forms leave that as it is. */
const char *target_parse(char *target, size_t len, bool options, const char **ret_host, size_t *ret_host_len,
			 const char **ret_query);

/* ---- http_metrics.c: requests by route, method and status, in the counters of their worker ---- */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OTHER, HTTP_METHOD_COUNT };

/* HTTP_GET for "GET" and so on; HTTP_OTHER for any other method. */
enum http_method http_method_parse(const char *text);
const char *http_method_name(enum http_method method);

/* Requests are counted by route: at most so many, and one slot for "none found". */
enum { HTTP_ROUTES_MAX = METRICS_HTTP_ROUTES - 1, HTTP_ROUTE_NONE = HTTP_ROUTES_MAX };

/* Counts a request. Status 0: the connection ended before there was an answer. */
void http_metrics_request(struct metrics *metrics, size_t route, enum http_method method, unsigned status);

/* Appends the metrics of requests and of TLS. `route_name` returns the name of a route by its index. */
typedef const char *http_route_name_fn(size_t route);
void http_metrics_render(struct text *page, http_route_name_fn *route_name);

/* ---- reply.c: the one way in which a request is answered: stored, and queued as soon as the library takes it ---- */

/* The next piece of a streamed body: its length, or one of the values below. */
typedef ssize_t reply_read_fn(void *arg, char *bytes, size_t size);
enum {
	REPLY_STREAM_WAIT = 0,  /* nothing now; reply_wake() follows when there is more */
	REPLY_STREAM_END = -1,  /* the body is complete */
	REPLY_STREAM_BREAK = -2 /* close the connection at once */
};

struct reply {
	unsigned status;        /* 0: there is none */
	const char *code;       /* of a problem; NULL: it is none */
	const char *type;       /* Content-Type; NULL: there is no body */
	uint32_t retry_after_s; /* 0: no such header */
	bool close;             /* the connection must end with it, and need not wait for the body of the request */
	bool grants;            /* not queued if the client has left: the service releases the grant */
	char *owned;            /* body on the heap, or NULL */
	const char *bytes;      /* body */
	size_t len;
	reply_read_fn *read; /* of a streamed body, or NULL */
	void *read_arg;
};

/* Stores an answer. Its body is static; from the heap, and taken over; copied; or empty. */
void reply_static(struct request *request, unsigned status, const char *type, const char *bytes, size_t len);
void reply_owned(struct request *request, unsigned status, const char *type, char *bytes, size_t len);
void reply_copy(struct request *request, unsigned status, const char *type, const char *bytes, size_t len);
void reply_empty(struct request *request, unsigned status);

/* A client that does not respond for this long has vanished: its host has lost power or network. This is longer than
 * the loss of a packet or two. */
enum { REPLY_VANISHED_MS = 5000 };

/* An answer whose body is read piece by piece and ends with the connection, also if the client vanishes for
 * `vanished_ms` (TCP only). */
void reply_stream(struct request *request, unsigned status, const char *type, reply_read_fn *read, void *arg,
		  unsigned vanished_ms);

/* Call it when there is another piece of the stream. Does nothing unless the stream waits. */
void reply_wake(struct request *request);

/* Adds a header while the answer is handed to libmicrohttpd. */
void reply_add_header(struct MHD_Response *response, const char *name, const char *value);

/* ---- request.c: one request, as the service sees it. A connection has one struct for all of its requests. ---- */

enum { REQUEST_TARGET_MAX = 2048, REQUEST_BODY_MAX = 16384, REQUEST_LARGE_BODY_MAX = 65536, REQUEST_ADDRESS_MAX = 46 };

/*          first line      headers      complete: no reply yet     reply
 *     NONE ─────────► BEGUN ─────► BODY ─────────► RUNNING ───────────────► ANSWERED ──► NONE
 *                       │           │ │               └─► DROPPED                ▲
 *                       │           │ └──────── complete, with a reply ──────────┘
 *                       └─► WRITTEN ◄┘
 *
 * BODY: the body is kept, or discarded once there is a reply. RUNNING: an operation is under way, and the connection is
 * suspended. ANSWERED: libmicrohttpd has the reply. DROPPED: the client left, and the connection is closed without a
 * reply. WRITTEN: the reply was written without libmicrohttpd, and the connection is closed. From every state to NONE
 * when the connection ends. */
enum request_state {
	REQUEST_NONE,
	REQUEST_BEGUN,
	REQUEST_BODY,
	REQUEST_RUNNING,
	REQUEST_DROPPED,
	REQUEST_ANSWERED,
	REQUEST_WRITTEN
};

/* The hosts that can reach the socket, by its own address. */
enum http_reach { HTTP_REACH_UNIX, HTTP_REACH_LOOPBACK, HTTP_REACH_NETWORK };

/* The part of an api that its requests see. */
struct request_context {
	const struct api_config *config;
	struct keys *keys; /* a reference; NULL: no access control by keys */
	void *state;       /* the service's own of this worker: service->state_size bytes, zeroed by api_new() */
	bool draining;
	bool ending; /* within api_free(): nothing new may start, nothing is suspended */
};

struct request {
	struct connection *connection;
	const struct request_context *context;
	struct peer *peer;               /* the client's address; NULL: none */
	const struct tls_peer *tls_peer; /* the client's certificate; NULL: clients are not asked for one */
	enum http_reach reach;
	void *call; /* the service's own state: service->call_size bytes, zeroed when the request begins */
	enum request_state state;
	enum http_method method;
	size_t route; /* set by the service: index in its route table; HTTP_ROUTE_NONE: none found (yet) */
	uint64_t started_us;
	char id[HEADERS_REQUEST_ID_MAX + 1];
	struct headers headers;
	struct reply reply;
	size_t target_len; /* if larger than REQUEST_TARGET_MAX, there is no `target` */
	char *target;      /* terminated; until the headers are read */
	size_t body_max;   /* REQUEST_BODY_MAX or REQUEST_LARGE_BODY_MAX */
	size_t body_len;
	char *body; /* the part received so far, with room for all; until it is read. NULL: nothing was received */
	bool keeps_input; /* set by the service in head(): it reads target and body later, and then forgets them */
};

/* Frees the target and the body. */
void request_forget_input(struct request *request);

/* The connection goes on in the next api_run(): the operation has answered, so there is a reply; or the client has
 * left, so the connection is closed without an answer. */
void request_resume(struct request *request);
void request_drop(struct request *request);

static inline bool request_is_answered(const struct request *request)
{
	return request->reply.status != 0;
}

bool request_is_late(const struct request *request);      /* a deadline of the connection has passed */
bool request_has_vanished(const struct request *request); /* the connection has ended since its client vanished */

/* After a reload: examines the client's certificate again if the authorities have changed. */
void request_identify(struct request *request);

/* The client's address as text, "unix" for a Unix socket. */
void request_write_address(const struct request *request, char ret_text[REQUEST_ADDRESS_MAX]);

/* ---- http.c: the api ---- */

/* Handlers of the requests. The adapter calls these on the worker's thread, and knows nothing else of the service. */
struct http_service {
	size_t call_size;  /* bytes of request->call */
	size_t state_size; /* bytes of context->state */
	http_route_name_fn *route_name;

	/* How many bytes a body sent there may have: REQUEST_BODY_MAX or REQUEST_LARGE_BODY_MAX. Arguments as for
	 * head(). */
	size_t (*body_max)(const char *method, const char *path, const char *query);
	/* The head of a request has arrived, and its framing is valid. Stores a reply, unless the body is needed, too.
	 * `path` is raw, or "*"; `query` is raw, or NULL. */
	void (*head)(struct request *request, const char *method, const char *path, const char *query);
	/* A request without a reply is complete. Stores a reply, or starts an operation that ends with
	 * request_resume(). Returns true if that may take longer than a few round trips. */
	bool (*complete)(struct request *request);

	/* Reading failed: stores the reply with this status (400, 413, 414 or 431). */
	void (*reject)(struct request *request, unsigned status, const char *detail);
	/* The same (or 429) as a complete answer that closes the connection, for a socket without a request. Returns
	 * its length in bytes; `size` is at least 1024. */
	size_t (*write_raw)(unsigned status, const char *detail, const char *request_id, char *text, size_t size);
	/* Adds the headers that belong to the service's answers. */
	void (*add_headers)(const struct request *request, struct MHD_Response *response);

	/* Does what is due in each api_run(), at most about a ms of it. Returns when to be called again at the latest,
	 * by clock_now_us(); UINT64_MAX: whenever. close(): the worker ends, and no request is left. */
	uint64_t (*run)(const struct request_context *context);
	void (*close)(const struct request_context *context);

	/* The client of a suspended connection has left: cancels the operation, then calls request_drop(). */
	void (*leave)(struct request *request);
	/* The api ends: cancels the operation and stores a reply, then calls request_resume(). */
	void (*abort)(struct request *request);
	/* Keys or authorities have been read again: rejects a request whose caller has lost its right. */
	void (*review)(struct request *request);
	/* The request is over, in any state. Cancels the operation, and logs. `status`: that of the client's answer, 0:
	 * none. `ended`: why it ended without a complete answer (static), or NULL. */
	void (*end)(struct request *request, unsigned status, const char *ended, enum MHD_RequestTerminationCode how);
};

/* All of it outlives the api. */
struct api_config {
	const struct http_service *service;
	const struct options *options;
	uint32_t max_connections; /* of this worker, like the members below */
	struct metrics *metrics;
	struct leases *leases;
	struct holds *holds;
	const struct masters *masters;
	struct tls *tls; /* a reference is taken; NULL: there will be no TLS */
};

/* NULL if it cannot be started (descriptors), with errno. */
struct api *api_new(const struct api_config *config);

/* Replaces the keys, also for requests under way (a reference is taken; NULL: everybody may do all). */
void api_set_keys(struct api *api, struct keys *keys);

/* Sets the certificate of new connections (a reference is taken). Open connections keep theirs, but their clients'
 * certificates are checked by the new authorities, also for requests under way. Call it only if there was one from the
 * start. */
void api_set_tls(struct api *api, struct tls *tls);

/* A descriptor that becomes readable when api_run() has something to do. */
int api_fd(const struct api *api);

/* A descriptor that becomes readable when a client with a waiting request or a held lock leaves, or when a TLS
 * handshake can go on. api_check_disconnects() reacts to that; api_run() must follow. */
int api_disconnect_fd(const struct api *api);
void api_check_disconnects(struct api *api);

/* Takes over an accepted, non-blocking socket, also if it cannot be served (then it is answered 429 and closed).
 * `tls`: it came to a listener of https. */
void api_accept(struct api *api, int fd, const struct sockaddr *address, socklen_t address_len, bool tls);

/* Does all that can be done now. api_timeout_ms(): after how many ms it must be called even if nothing is readable; -1:
 * never. */
void api_run(struct api *api);
int api_timeout_ms(const struct api *api);

/* From now on answers close their connection, idle connections are closed, and the service drains. */
void api_drain(struct api *api);

/* How many connections are in a request or an answer, or wait for a lease. */
size_t api_busy(const struct api *api);

/* Aborts suspended requests, ends all connections, and frees everything. */
void api_free(struct api *api);

/* Known defects of the present libmicrohttpd and the remedies, or NULL. */
const char *api_library_defects(void);

#endif
