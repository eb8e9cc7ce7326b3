/* SPDX-License-Identifier: MIT */
/* Private header of this folder; no other folder includes it. */
#ifndef TRANSPORT_INTERNAL_H
#define TRANSPORT_INTERNAL_H

#include <sys/types.h>

#include "transport.h"

/* ---- transport_protocol.c ---- */

/* Bounds on a reply of any server. The largest valid one has 8 resources inspected by one command, with 100 leases
 * each, and a value of at most 5.5 KiB for each lease. */
enum {
	TRANSPORT_REPLY_MAX = 6 << 20,   /* bytes */
	TRANSPORT_MESSAGE_MAX = 1 << 20, /* the same after transport_subscribe() */
	TRANSPORT_LINE_MAX = 16 << 10,   /* of a line: a status, an error, a number, a length */
	TRANSPORT_ELEMENTS_MAX = 20480,  /* of all its lists together: 10,000 shared leases and their ends */
	TRANSPORT_DEPTH_MAX = 7          /* nested lists */
};

/* Reads replies by hiredis. The struct must not be moved. */
struct transport_reader {
	redisReader *hiredis;
	redisReplyObjectFunctions functions;    /* those of hiredis, except for lists */
	const redisReplyObjectFunctions *plain; /* those of hiredis */
	size_t reply_max;                       /* bytes; may be changed between replies */
	size_t bytes, elements;                 /* of the reply under way, as far as it has arrived */
	char error[TRANSPORT_REASON_MAX];       /* see transport_reader_next() */
};

void transport_reader_init(struct transport_reader *reader);
void transport_reader_fini(struct transport_reader *reader);
void transport_reader_feed(struct transport_reader *reader, const char *bytes, size_t len);
/* The next reply, which the caller frees with freeReplyObject(). NULL: it is not complete; or reader->error is set: it
 * is no reply or too large, and nothing more can be read. */
redisReply *transport_reader_next(struct transport_reader *reader);

/* Commands in the Redis protocol, one after the other. */
struct transport_output {
	char *bytes; /* from the heap */
	size_t len, size;
};

void transport_output_append(struct transport_output *output, size_t count, const struct transport_word arguments[]);

/* ---- transport_tls.c ---- */

struct ssl_st;

/* TLS on a socket, which may still be connecting: data leave only after the peer has shown a valid certificate for
 * `address`. NULL: ret_reason has the reason. */
struct ssl_st *transport_tls_begin(int fd, const struct address *address, char *ret_reason, size_t size);
/* Like read() and write() of a non-blocking socket. A repeated write, from any address, must begin with the same
 * bytes. */
ssize_t transport_tls_read(struct ssl_st *ssl, char *bytes, size_t size);
ssize_t transport_tls_write(struct ssl_st *ssl, const char *bytes, size_t len);
/* Call it right after a failed read or write: writes the reason as text. `otherwise`: for a failure outside TLS. */
void transport_tls_explain(const struct ssl_st *ssl, const char *otherwise, char *ret_reason, size_t size);

#endif
