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

/* TLS cannot be had beside plain HTTP in one daemon, and a timeout that gives idle connections back
 * (connection_park_after_s) not beside connections that cannot be parked. */
enum mhd_daemon_kind { DAEMON_TCP, DAEMON_UNIX, DAEMON_TLS };

TAILQ_HEAD(connection_list, connection);

/* The library goes through all suspended connections of a daemon whenever it resumes one. So that ten thousand waiting
 * requests do not slow down the others, connections are spread over several daemons. */
struct mhd_daemon {
	struct api *api;
	struct MHD_Daemon *daemon;
	enum mhd_daemon_kind kind;
	bool runnable; /* it has something to do that its descriptor need not show */
	size_t connections;
	struct connection_list heads; /* whose first line has come, and not all of their headers */
};

enum { DAEMON_POOL_MAX = 64, MHD_DAEMON_CONNECTIONS = 512 };

struct daemon_pool {
	int epoll_fd; /* readable when one of them has something to do */
	size_t count;
	struct mhd_daemon list[DAEMON_POOL_MAX]; /* full ones come first */
};

/* Starts one daemon for plain HTTP, and one for TLS if `tls`. False with errno if one cannot be started. */
bool daemon_pool_init(struct api *api, bool tls) __attribute__((warn_unused_result));
void daemon_pool_stop(struct api *api);

/* The daemon for a new connection: the first one with room, or a new one, or the one with the fewest connections. */
struct mhd_daemon *daemon_pool_choose(struct api *api, enum mhd_daemon_kind kind);

/* Runs the runnable daemons, each until it has nothing more to do, or twice if 2 ms have passed since `now_us`. Stops
 * those that are not needed any more. */
void daemon_pool_run(struct api *api, uint64_t now_us);

/* When a daemon has something to do that its descriptor does not show, in ms; 0: now; UINT64_MAX: never. */
uint64_t daemon_pool_wait_ms(const struct api *api);

/* ---- accept.c: does a client want an event stream, or JSON? ---- */

/* All values of Accept so far, zeroed before the first; weights in thousandths. */
struct accept {
	bool malformed;
	int stream, json;
	int json_rank; /* how specific the range is that includes JSON; 0: there is none */
};

void accept_read(struct accept *accept, const char *value, size_t len);

/* JSON, unless only the stream is named, or preferred; and if anything is malformed. */
bool accept_wants_stream(const struct accept *accept);

/* ---- first_line.c: the first line of a connection that the library does not have yet ---- */

enum first_line {
	FIRST_LINE_NONE, /* nothing has come */
	FIRST_LINE_PARTIAL,
	FIRST_LINE_GOOD, /* or nothing more comes: the library takes it from here */
	FIRST_LINE_MALFORMED,
	FIRST_LINE_TOO_LONG,
	FIRST_LINE_OTHER_VERSION,
};

/* Evaluates the first bytes of a connection; never NONE. MALFORMED as soon as further bytes cannot correct them. */
enum first_line first_line_parse(const char *bytes, size_t len) __attribute__((warn_unused_result));

/* ---- deferred.c: connections that the library does not have, since they say nothing, or no complete line ---- */

/* A connection on its way to libmicrohttpd: a new one, or one that is parked between two requests. */
struct arrival {
	int fd;
	enum mhd_daemon_kind kind;
	struct peer *peer;    /* the client's address; NULL: none */
	enum first_line line; /* when it is started: not NONE, not PARTIAL */
	uint64_t until_us;    /* when its time in deferred.c ends */
	uint32_t requests;    /* that it has made; 0: it is new */
	uint64_t read;        /* the bytes of them */
	socklen_t address_len;
	struct sockaddr_storage address;
};

/* first_line.c: looks into the socket, and leaves all there. Over TLS, and for later requests: NONE or GOOD. */
enum first_line first_line_look(const struct arrival *arrival) __attribute__((warn_unused_result));

TAILQ_HEAD(deferred_list, deferred);

bool deferred_init(struct api *api) __attribute__((warn_unused_result)); /* false: with errno */
void deferred_end_all(struct api *api);

/* Watches it until a first line, its end, or (TLS, parked) any bytes arrive. False: it cannot be watched; the caller
 * keeps it. */
bool deferred_begin(struct api *api, const struct arrival *arrival) __attribute__((warn_unused_result));

enum { DEFERRED_EVENTS_MAX = 64 /* in one call: the others are ready in the next one, too */ };

struct deferred_events {
	int count, at;
	struct epoll_event list[DEFERRED_EVENTS_MAX];
};

/* Reads the events of deferred connections. */
void deferred_poll(struct api *api, struct deferred_events *ret_events);

/* Takes the next connection that can be started; its socket belongs to the caller. False: there are no more. */
bool deferred_take_ready(struct api *api, struct deferred_events *events, struct arrival *ret_arrival);

/* Ends the connections whose deadline has passed. */
void deferred_end_late(struct api *api, uint64_t now_us);

/* Ends parked connections up to one of which something has arrived, and takes that, as deferred_take_ready() does.
 * False: none is left. */
bool deferred_end_parked(struct api *api, struct arrival *ret_arrival);
uint64_t deferred_next_deadline_us(const struct api *api); /* UINT64_MAX: there is none */

/* ---- suspend.c: suspended connections, and their clients that leave ---- */

/* Suspends the connection; `watch`: reports its end, with `input` also input. If the kernel refuses that, the end is
 * noticed only by the next write. */
void suspend_begin(struct connection *connection, bool watch, bool input);

/* Goes on watching, for the end alone, after an event that was not the end. */
void suspend_watch_end(struct connection *connection);

/* From now on a client from which nothing has come for so long, although it was asked, ends the connection; 0: not any
 * more. suspend_begin() does so with REPLY_VANISHED_MS. Does nothing to a Unix socket. */
void suspend_probe(struct connection *connection, unsigned vanished_ms);

/* Resumes it in the next api_run(): marks its daemon runnable. */
void suspend_end(struct connection *connection);

/* ---- http_metrics.c ---- */

/* When the certificate in use expires, in seconds since 1970. Before the first call there are no metrics of TLS. */
void http_metrics_certificate(int64_t expiry_s);

/* ---- tls_link.c: TLS of one connection, and answers past libmicrohttpd ---- */

/*          first bytes              one side is done              both are
 *     SILENT ─────────► HANDSHAKE ─────────────────► HALF_FINISHED ─────────► UP
 *
 * A side is done when its last message (Finished) has been sent: ours comes first in TLS 1.3 and where a session
 * resumes, else the client's. */
enum tls_link_state { TLS_LINK_SILENT, TLS_LINK_HANDSHAKE, TLS_LINK_HALF_FINISHED, TLS_LINK_UP };

struct tls_link {
	/* libmicrohttpd's; NULL: plain HTTP, or the connection is about to be freed */
	struct gnutls_session_int *session;
	/* a reference: what the connection began with, or a later one with other authorities; NULL: plain HTTP */
	struct tls *tls;
	struct tls_peer *peer; /* NULL: not examined yet, or not asked for */
	enum tls_link_state state;
	const char *refused; /* why its handshake was ended (static); NULL: it was not */
	size_t received;     /* bytes of the client's handshake */
	bool waits;          /* suspended in the handshake, and watched */
};

/* Before the handshake; and after the session is gone: counts a failed handshake. */
void tls_link_init(struct connection *connection);
void tls_link_fini(struct connection *connection);

/* Goes on with a handshake that waits for its client; else does nothing. Not from within a callback of the library. */
void tls_link_wake(struct connection *connection);

void tls_link_identify(struct connection *connection); /* as request_identify() */

/* Writes a complete answer past libmicrohttpd, after which the connection must end; as much of it as fits into the
 * socket: a fresh one has room for it, and the client of another one has not read its earlier answers either. */
void tls_link_answer(struct connection *connection, unsigned status, const char *detail, const char *request_id);

/* The same, unencrypted and for a socket without a request, which is counted as one without a route. */
void tls_link_answer_plain(struct api *api, int fd, unsigned status, const char *detail);

/* Sends close_notify, so that the client can tell an end from a cut. Only after everything else has been sent. */
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
 * To IDLE also when a request ends without an answer; to ENDING and LATE from every phase but WORKING, for good. */
enum connection_phase {
	CONNECTION_RECEIVING, /* accepted, or a request has begun: it must be complete in time */
	CONNECTION_WORKING,   /* suspended; the masters set the pace */
	CONNECTION_ANSWERING, /* the client must take the answer in time */
	CONNECTION_IDLE,      /* between two requests */
	CONNECTION_ENDING,    /* shut down by us; libmicrohttpd is about to notice */
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
	uint32_t requests; /* that have begun; 0: the first bytes may be rubbish */
	uint64_t read;     /* bytes of them */
	struct request request;
	max_align_t call[]; /* the service's state of the request */
};

/* A connection exists from libmicrohttpd's accept until the library is about to close the socket; its request has ended
 * by then. The peer leaves at its end, unless the connection is parked. */
struct connection *connection_new(struct mhd_daemon *mhd_daemon, struct MHD_Connection *mhd,
				  const struct arrival *arrival);
void connection_free(struct connection *connection);

/* When a TCP connection has been idle for longer than this, libmicrohttpd gives it back and frees its memory; it is
 * parked in deferred.c until the client sends again. The time is longer than --request-timeout-ms, so that only an idle
 * connection reaches it. 0: never, because --idle-timeout-ms comes first. */
unsigned connection_park_after_s(const struct api *api);

/* Moves the connection into a phase, whose deadline starts; suspends it, in the phase WORKING. */
void connection_enter(struct connection *connection, enum connection_phase phase);
void connection_suspend(struct connection *connection, bool watch);

static inline bool connection_is_ending(const struct connection *connection)
{
	return connection->phase >= CONNECTION_ENDING;
}

/* Makes the library look at the connection in its next run, even if the socket shows nothing. Without this the library
 * keeps a connection that it ended while it prepared an answer, until that connection is the oldest. Do not call it
 * while the connection is suspended. */
void connection_look_again(struct connection *connection);

/* True if no request may follow the present one (--max-requests-per-connection). */
bool connection_is_spent(const struct connection *connection);

/* True if the client has closed its side, whatever it sent before. Meaningless after we have shut the socket down. */
bool connection_is_disconnected(const struct connection *connection);

/* True if the system has ended the connection because its client acknowledged nothing any more. */
bool connection_has_vanished(const struct connection *connection);

/* Ends the connections whose deadline has passed; the earliest deadline, UINT64_MAX if there is none. */
void connection_check_deadlines(struct api *api, uint64_t now_us);
uint64_t connection_next_deadline_us(const struct api *api);

/* Shuts down the connections that are between two requests. */
void connection_end_idle(struct api *api);

/* Answers 429 on a socket for which there is no room, and closes it; a TLS socket is closed without an answer. */
void connection_reject(struct api *api, int fd, bool tls, enum http_counter why);

/* Answers a first line that is not GOOD, and closes the socket. */
void connection_reject_line(struct api *api, int fd, enum first_line line);

/* Discards what came on answered sockets, unless that was done just before; `all`: closes every one of them. */
void connection_sweep_lingering(struct api *api, uint64_t now_us, bool all);

/* ---- reply.c ---- */

/* Hands the stored answer to libmicrohttpd. False if that does not take it. */
bool reply_queue(struct request *request) __attribute__((warn_unused_result));
void reply_clear(struct reply *reply);

/* ---- request.c ---- */

/* The first line has come. `target` is its raw target, terminated. */
void request_begin(struct request *request, const char *target);

/* The access handler of libmicrohttpd. */
enum MHD_Result request_step(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
			     const char *version, const char *data, size_t *data_len, void **context);

/* The library is about to answer a request of this daemon by itself. If that has come with all of its headers, answers
 * it first, and nothing else can be sent: the 0.9 series would write the head of its own answer twice. Other requests
 * cannot be told apart here. For the library's log. */
void request_forestall(struct mhd_daemon *mhd_daemon);

/* The answer has been sent, or the connection has ended before. Cancels what is under way, in every state; does nothing
 * if there is no request. */
void request_end(struct request *request, enum MHD_RequestTerminationCode how);

/* ---- http.c ---- */

enum { LINGER_MAX = 64 };

/* A duplicate of a socket that got its last answer. What the client still sends is discarded for a moment, because
 * closing with unread bytes would reset the connection under the answer. */
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
	size_t deferred_count;          /* … and others: */
	struct deferred_list silent;    /* new ones, the oldest first */
	struct deferred_list parked;    /* the same of others */
	int deferred_fd;                /* their epoll instance, which that of the daemons watches */
	size_t connections_peak;        /* since memory was given back to the kernel for the last time */
	uint64_t trim_us;               /* when to give memory back; 0: not now */
	const struct arrival *arriving; /* handed over to the library, where it has not begun; NULL: none */
	bool stopping;                  /* the daemons are being stopped, at the end of api_free() */
	int disconnect_fd;              /* suspend.c's epoll instance */
	struct connection_list lists[CONNECTION_PHASE_COUNT];
	size_t lingering_count;
	uint64_t lingering_look_us; /* when to look at them next: not in every round, each costs a system call */
	struct lingering lingering[LINGER_MAX];
};

static inline void api_count_connections(struct api *api)
{
	metrics_set(&api->config.metrics->http_connections, api->connections + api->deferred_count);
}

#endif
