/* One connection: its phase, the absolute deadline of the phase, and its end. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "request.h"
#include "tls_link.h"

struct api;

enum connection_phase {
	CONNECTION_RECEIVING, /* accepted, or a request has begun: it must arrive whole */
	CONNECTION_WORKING,   /* suspended; the masters set the pace */
	CONNECTION_ANSWERING, /* the answer must be taken */
	CONNECTION_IDLE,      /* between two requests */
	CONNECTION_ENDING,    /* shut down by us; libmicrohttpd is about to notice */
	CONNECTION_PHASE_COUNT
};

/* Connections of one phase, in the order in which they came into it: that is also the order of their deadlines, as the
 * time allowed is the same for all. */
struct connection_list {
	struct connection *head, *tail;
	size_t count;
};

/* From where others can come over it, as our own address tells. */
enum connection_reach { CONNECTION_UNIX, CONNECTION_LOOPBACK, CONNECTION_NETWORK };

struct connection {
	struct api *api;
	struct MHD_Connection *mhd;
	struct mhd_daemon *mhd_daemon; /* whose connection it is for libmicrohttpd */
	int fd;
	enum connection_phase phase;
	uint64_t deadline_us; /* of the phase; UINT64_MAX: none */
	struct connection *prev, *next;
	bool had_request; /* at least one request line came: its first bytes were no rubbish */
	bool linger;      /* its last answer may have left bytes of the client's unread */
	bool late;        /* a deadline passed */
	bool watched;     /* gone.c looks whether its client leaves */
	enum connection_reach reach;
	struct tls_link link;
	struct peer *peer; /* the client's address; NULL: none */
	uint32_t requests; /* that have begun */
	struct request request;
};

/* What the client's certificate says; NULL: clients are asked for none on this connection. */
const struct tls_peer *connection_tls_peer(const struct connection *connection);

/* Makes the state of a connection that libmicrohttpd has taken over; connection_free() lets `peer` leave. NULL where
 * memory is short. */
struct connection *connection_new(struct api *api, struct MHD_Connection *mhd, struct peer *peer);

/* libmicrohttpd is about to close it. */
void connection_free(struct connection *connection);

/* Moves it into a phase; the deadline begins anew. */
void connection_enter(struct connection *connection, enum connection_phase phase);

/* It is suspended, and goes on in the next api_run(). */
void connection_resume(struct connection *connection);

/* Shuts it down, whatever it is doing: libmicrohttpd then ends it. Not for suspended ones. */
void connection_end(struct connection *connection);

/* True if it may carry no request after the present one (--max-requests-per-connection). */
bool connection_is_spent(const struct connection *connection);

/* True if the client has closed its side, whatever it sent before. It says nothing once we have shut the socket down
 * ourselves. */
bool connection_is_gone(const struct connection *connection);

/* Writes a whole answer past libmicrohttpd, as far as it fits into the socket; the connection must end after it. */
void connection_write_raw(struct connection *connection, enum problem problem, const char *detail,
			  const char *request_id);

/* Ends those whose deadline has passed. */
void connection_check_deadlines(struct api *api, uint64_t now_us);

/* Shuts down what idles between two requests. */
void connection_end_idle(struct api *api);

/* The earliest deadline, UINT64_MAX if there is none. */
uint64_t connection_next_deadline_us(const struct api *api);

/* Answers 429 to a socket for which there is no room, and closes it; over TLS without a word. */
void connection_refuse(struct api *api, int fd, bool tls, enum http_refusal why);

/* Reads away what came on answered sockets, unless it was done just before; all of them: closes every one. */
void connection_sweep_lingering(struct api *api, uint64_t now_us, bool all);

#endif
