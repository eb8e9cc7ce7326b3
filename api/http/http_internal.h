/* SPDX-License-Identifier: MIT */
/* Private to this folder: the state of one worker's HTTP side, its MHD daemons, connections and TLS links.
 *
 * The files use each other in this order only, each the ones before it:
 *     suspend, accept, headers, first_line, deferred, tls, tls_bounds, tls_link, connection, reply, request,
 *     daemon_pool, http
 * Everything belongs to the worker's thread. */
#ifndef HTTP_INTERNAL_H
#define HTTP_INTERNAL_H

#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "http.h"

/* ---- daemon_pool.c: the MHD daemons of one worker ---- */

/* One daemon cannot have both TLS and plain HTTP. Nor can it have both a timeout that gives idle connections back
 * (connection_park_after_s) and connections that cannot be parked. */
enum mhd_daemon_kind { DAEMON_TCP, DAEMON_UNIX, DAEMON_TLS };

TAILQ_HEAD(connection_list, connection);

/* The library goes through all suspended connections of a daemon whenever it resumes one. So that ten thousand waiting
 * requests do not slow down the others, connections are spread over several daemons. */
struct mhd_daemon {
	struct api *api;
	struct MHD_Daemon *daemon;
	enum mhd_daemon_kind kind;
	bool runnable; /* it must run, even if its descriptor does not show it */
	size_t connections;
	struct connection_list heads; /* with a first line, but not all headers yet */
};

enum { DAEMON_POOL_MAX = 64, MHD_DAEMON_CONNECTIONS = 512 };

struct daemon_pool {
	int epoll_fd; /* readable when one of them must run */
	size_t count;
	struct mhd_daemon list[DAEMON_POOL_MAX]; /* full ones come first */
};

/* Starts one daemon for plain HTTP, and one for TLS if `tls`. False with errno if one cannot be started. */
bool daemon_pool_init(struct api *api, bool tls) __attribute__((warn_unused_result));
void daemon_pool_stop(struct api *api);

/* The daemon for a new connection: the first one with room, or a new one, or the one with the fewest connections. */
struct mhd_daemon *daemon_pool_choose(struct api *api, enum mhd_daemon_kind kind);

/* Runs the runnable daemons, each until nothing is left to do, or twice if 2 ms have passed since `now_us`. Stops those
 * that are no longer needed. */
void daemon_pool_run(struct api *api, uint64_t now_us);

/* The ms until a daemon must run, even if its descriptor does not show it; 0: now; UINT64_MAX: never. */
uint64_t daemon_pool_wait_ms(const struct api *api);

/* ---- accept.c: whether a client wants an event stream or JSON ---- */

/* All values of Accept so far, zeroed before the first; weights in thousandths. */
struct accept {
	bool malformed;
	int stream, json;
	int json_rank; /* how specific the range is that includes JSON; 0: there is none */
};

void accept_read(struct accept *accept, const char *value, size_t len);

/* True if only the stream is named, or it is preferred, and nothing is malformed. */
bool accept_wants_stream(const struct accept *accept);

/* ---- first_line.c: the first line of a connection that the library does not have yet ---- */

enum first_line {
	FIRST_LINE_NONE, /* nothing has come */
	FIRST_LINE_PARTIAL,
	FIRST_LINE_GOOD, /* or nothing more will arrive: the library continues */
	FIRST_LINE_MALFORMED,
	FIRST_LINE_TOO_LONG,
	FIRST_LINE_OTHER_VERSION,
};

/* Evaluates the first bytes of a connection; never NONE. MALFORMED as soon as no further bytes can make it valid. */
enum first_line first_line_parse(const char *bytes, size_t len) __attribute__((warn_unused_result));

/* ---- deferred.c: connections that the library does not have yet, since no complete line has arrived ---- */

/* A connection on its way to libmicrohttpd: a new one, or one that is parked between two requests. */
struct arrival {
	int fd;
	enum mhd_daemon_kind kind;
	struct peer *peer;    /* the client's address; NULL: none */
	enum first_line line; /* when it starts: not NONE, not PARTIAL */
	uint64_t until_us;    /* when its time in deferred.c ends */
	uint32_t requests;    /* made so far; 0: it is new */
	uint64_t read;        /* bytes of these requests */
	socklen_t address_len;
	struct sockaddr_storage address;
};

/* first_line.c: looks at the input of the socket without removing it. Over TLS, and for later requests: NONE or
 * GOOD. */
enum first_line first_line_look(const struct arrival *arrival) __attribute__((warn_unused_result));

TAILQ_HEAD(deferred_list, deferred);

bool deferred_init(struct api *api) __attribute__((warn_unused_result)); /* false: with errno */
void deferred_end_all(struct api *api);

/* Watches a connection until a first line, its end, or (TLS, parked) any bytes arrive. False: it cannot be watched, and
 * stays the caller's. */
bool deferred_begin(struct api *api, const struct arrival *arrival) __attribute__((warn_unused_result));

enum { DEFERRED_EVENTS_MAX = 64 /* in one call: the others are ready in the next one, too */ };

struct deferred_events {
	int count, at;
	struct epoll_event list[DEFERRED_EVENTS_MAX];
};

void deferred_poll(struct api *api, struct deferred_events *ret_events);

/* Takes the next connection that can be started; its socket belongs to the caller. False: there are no more. */
bool deferred_take_ready(struct api *api, struct deferred_events *events, struct arrival *ret_arrival);

/* Ends the connections whose deadline has passed. */
void deferred_end_late(struct api *api, uint64_t now_us);

/* Ends parked connections up to the first with input, and takes that one like deferred_take_ready(). False: none is
 * left. */
bool deferred_end_parked(struct api *api, struct arrival *ret_arrival);
uint64_t deferred_next_deadline_us(const struct api *api); /* UINT64_MAX: there is none */

/* ---- suspend.c: suspended connections, and their clients that leave ---- */

/* Suspends the connection; `watch`: reports its end, with `input` also input. If the kernel refuses that, only the next
 * write shows the end. */
void suspend_begin(struct connection *connection, bool watch, bool input);

/* Continues to watch, now only for the end, after an event that was not the end. */
void suspend_watch_end(struct connection *connection);

/* From now on the connection ends if its client has not responded to probes for this long; 0: no more probes.
 * suspend_begin() does so with REPLY_VANISHED_MS. Does nothing to a Unix socket. */
void suspend_probe(struct connection *connection, unsigned vanished_ms);

/* Resumes the connection in the next api_run(): marks its daemon runnable. */
void suspend_end(struct connection *connection);

/* ---- http_metrics.c ---- */

/* When the certificate in use expires, in seconds since 1970. Before the first call there are no metrics of TLS. */
void http_metrics_certificate(int64_t expiry_s);

/* ---- tls_link.c: TLS of one connection, and answers without libmicrohttpd ---- */

/*          first bytes              one side is done              both are
 *     SILENT ─────────► HANDSHAKE ─────────────────► HALF_FINISHED ─────────► UP
 *
 * A side is done when its last message (Finished) has been sent: ours comes first in TLS 1.3 and if a session resumes,
 * else the client's. */
enum tls_link_state { TLS_LINK_SILENT, TLS_LINK_HANDSHAKE, TLS_LINK_HALF_FINISHED, TLS_LINK_UP };

struct tls_link {
	/* libmicrohttpd's; NULL: plain HTTP, or the connection is about to be freed */
	struct gnutls_session_int *session;
	/* a reference: that of the begin, or a later one with other authorities; NULL: plain HTTP */
	struct tls *tls;
	struct tls_peer *peer; /* NULL: not examined yet, or not asked for */
	enum tls_link_state state;
	const char *refused; /* why its handshake was refused (static); NULL: it was not */
	size_t received;     /* bytes of the client's handshake */
	bool waits;          /* suspended in the handshake, and watched */
};

/* tls_link_init() is called before the handshake, tls_link_fini() after the session is freed: it counts a failed
 * handshake. */
void tls_link_init(struct connection *connection);
void tls_link_fini(struct connection *connection);

/* Continues a handshake that waits for its client; else does nothing. Do not call it in a callback of the library. */
void tls_link_wake(struct connection *connection);

void tls_link_identify(struct connection *connection); /* see request_identify() */

/* Writes a complete answer without libmicrohttpd; the connection must end afterwards. Only as much as fits into the
 * socket is written: a new one has room for it, and the client of an older one has not read earlier answers either. */
void tls_link_answer(struct connection *connection, unsigned status, const char *detail, const char *request_id);

/* The same, unencrypted and for a socket without a request, which is counted as one without a route. */
void tls_link_answer_plain(struct api *api, int fd, unsigned status, const char *detail);

/* Sends close_notify, so that the client can distinguish an end from a cut. Call it after everything else has been
 * sent. */
void tls_link_bye(struct tls_link *link);

/* True if the unread bytes of the socket begin with the client's close_notify. Some clients then wait for ours before
 * they close. */
bool tls_link_hears_bye(const struct connection *connection);

/* ---- connection.c ---- */

/*         ┌──────────────────────── first line ────────────────────────┐
 *         ▼        complete             reply                sent       │
 *     RECEIVING ──────────► WORKING ───────────► ANSWERING ──────────► IDLE
 *         │                    ▲                  │   ▲
 *         │                    └─ stream waits ───┘   │
 *         └─────────── complete, with a reply ────────┘
 *
 * A request that ends without an answer also leads to IDLE. ENDING and LATE follow every phase but WORKING, and are
 * final. */
enum connection_phase {
	CONNECTION_RECEIVING, /* accepted, or a request has begun: it must be complete in time */
	CONNECTION_WORKING,   /* suspended; the masters set the pace */
	CONNECTION_ANSWERING, /* the client must take the answer in time */
	CONNECTION_IDLE,      /* between two requests */
	CONNECTION_ENDING,    /* shut down by us; libmicrohttpd will notice soon */
	CONNECTION_LATE,      /* the same, because a deadline passed */
	CONNECTION_PHASE_COUNT
};

struct connection {
	struct api *api;
	struct MHD_Connection *mhd;
	struct mhd_daemon *mhd_daemon; /* that serves it */
	int fd;
	enum connection_phase phase;
	uint64_t deadline_us;               /* of the phase; UINT64_MAX: none */
	TAILQ_ENTRY(connection) entry;      /* those of one phase in the order of their deadlines */
	TAILQ_ENTRY(connection) head_entry; /* in the list `heads` of its daemon: request.state is BEGUN */
	bool linger;                        /* bytes of the client may still be unread after the last answer */
	bool watched;                       /* by suspend.c */
	unsigned vanished_ms;               /* suspend_probe() */
	enum http_reach reach;
	struct tls_link link;
	struct peer *peer; /* the client's address; NULL: none */
	uint32_t requests; /* begun so far; 0: the first bytes may be rubbish */
	uint64_t read;     /* bytes of them */
	struct request request;
	max_align_t call[]; /* the service's state of the request */
};

/* A connection exists from libmicrohttpd's accept until the library is about to close the socket; its request has ended
 * by then. The peer leaves at its end, unless the connection is parked. */
struct connection *connection_new(struct mhd_daemon *mhd_daemon, struct MHD_Connection *mhd,
				  const struct arrival *arrival);
void connection_free(struct connection *connection);

/* A TCP connection that is idle for longer than this is given back by libmicrohttpd, which frees its memory. It is
 * parked in deferred.c until the client sends again. The time is longer than --request-timeout-ms, so that only an idle
 * connection reaches it. 0: never, because --idle-timeout-ms comes first. */
unsigned connection_park_after_s(const struct api *api);

/* Moves the connection into a phase and starts its deadline; connection_suspend(): moves it to WORKING, and suspends
 * it. */
void connection_enter(struct connection *connection, enum connection_phase phase);
void connection_suspend(struct connection *connection, bool watch);

static inline bool connection_is_ending(const struct connection *connection)
{
	return connection->phase >= CONNECTION_ENDING;
}

/* Makes the library check the connection in its next run, even without input. Otherwise a connection that the library
 * ended while it prepared an answer stays until it is the oldest. Do not call it while the connection is suspended. */
void connection_look_again(struct connection *connection);

/* True if no request may follow the present one (--max-requests-per-connection). */
bool connection_is_spent(const struct connection *connection);

/* True if the client has closed its side, whatever it sent before. Not valid after we have shut the socket down. */
bool connection_is_disconnected(const struct connection *connection);

/* True if the kernel has ended the connection because its client acknowledged nothing any more. */
bool connection_has_vanished(const struct connection *connection);

/* Ends the connections whose deadline has passed; the earliest deadline, UINT64_MAX if there is none. */
void connection_check_deadlines(struct api *api, uint64_t now_us);
uint64_t connection_next_deadline_us(const struct api *api);

/* Shuts down the connections between two requests. */
void connection_end_idle(struct api *api);

/* Answers 429 on a socket without room, and closes it; a TLS socket is closed without an answer. */
void connection_reject(struct api *api, int fd, bool tls, enum http_counter why);

/* Answers a first line that is not GOOD, and closes the socket. */
void connection_reject_line(struct api *api, int fd, enum first_line line);

/* Discards the input of answered sockets, unless that was done just before; `all`: closes all of them. */
void connection_sweep_lingering(struct api *api, uint64_t now_us, bool all);

/* ---- reply.c ---- */

/* Hands the stored answer to libmicrohttpd. False if the library does not take it. */
bool reply_queue(struct request *request) __attribute__((warn_unused_result));
void reply_clear(struct reply *reply);

/* ---- request.c ---- */

/* The first line has arrived. `target` is its raw target, terminated. */
void request_begin(struct request *request, const char *target);

/* The access handler of libmicrohttpd. */
enum MHD_Result request_step(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
			     const char *version, const char *data, size_t *data_len, void **context);

/* The library is about to answer a request of this daemon by itself, as its log shows. If all headers of the request
 * have arrived, answers it first, so that nothing else can be sent: the 0.9 series would write the head of its own
 * answer twice. Other requests cannot be identified here. */
void request_forestall(struct mhd_daemon *mhd_daemon);

/* The answer has been sent, or the connection has ended before. Cancels what is under way, in every state; does nothing
 * if there is no request. */
void request_end(struct request *request, enum MHD_RequestTerminationCode how);

/* ---- http.c ---- */

enum { LINGER_MAX = 64 };

/* A duplicate of a socket that got its last answer. Further input of the client is discarded for a moment, because
 * closing with unread bytes would reset the connection before the answer is read. */
struct lingering {
	int fd;
	uint64_t until_us;
};

struct api {
	struct api_config config;
	struct request_context context;
	struct daemon_pool daemon_pool;
	struct tls *tls;                /* a reference: for new connections; NULL: there is no TLS */
	size_t connections;             /* open ones, libmicrohttpd's */
	size_t deferred_count;          /* and those in deferred.c: */
	struct deferred_list silent;    /* new ones, the oldest first */
	struct deferred_list parked;    /* the idle ones, likewise */
	int deferred_fd;                /* their epoll instance, which that of the daemons watches */
	size_t connections_peak;        /* since memory was given back to the kernel for the last time */
	uint64_t trim_us;               /* when to give memory back; 0: not now */
	const struct arrival *arriving; /* being handed over to the library; NULL: none */
	uint64_t service_us;            /* when service->run() must be called again */
	bool stopping;                  /* the daemons are being stopped, at the end of api_free() */
	int disconnect_fd;              /* suspend.c's epoll instance */
	struct connection_list lists[CONNECTION_PHASE_COUNT];
	size_t lingering_count;
	uint64_t lingering_look_us; /* when to look at them next, not in every round: each costs a system call */
	struct lingering lingering[LINGER_MAX];
};

static inline void api_count_connections(struct api *api)
{
	metrics_set(&api->config.metrics->http_connections, api->connections + api->deferred_count);
}

#endif
