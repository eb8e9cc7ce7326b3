/* What the files of this folder share; nobody else includes it. */
#ifndef TRANSPORT_INTERNAL_H
#define TRANSPORT_INTERNAL_H

#include <sys/types.h>

#include "transport.h"

/* ---- transport_protocol.c ---- */

/* Rejects lists that are too long (REDIS_ERR_OOM). Freed with redisReaderFree(), before `bounded`, which it fills. */
redisReader *transport_reader_new(redisReplyObjectFunctions *bounded);

/* Commands in the Redis protocol, one behind the other. */
struct transport_output {
	char *bytes; /* from the heap */
	size_t len, size;
};

void transport_output_append(struct transport_output *output, size_t count, const struct transport_word words[]);

/* ---- transport_tls.c ---- */

struct ssl_st;

/* TLS on a socket, which may still be connecting: whatever is written leaves only after the other side has shown a
 * certificate that is good for `address`. NULL: ret_reason says why not. */
struct ssl_st *transport_tls_begin(int fd, const struct address *address, char *ret_reason, size_t size);
/* As read() and write() of a socket that does not block; what is written again, at any address, must begin with the
 * same bytes. */
ssize_t transport_tls_read(struct ssl_st *ssl, char *bytes, size_t size);
ssize_t transport_tls_write(struct ssl_st *ssl, const char *bytes, size_t len);
/* When a read or write has failed, and before anything else is done: why, in words. `otherwise`: for a failure that is
 * not one of TLS. */
void transport_tls_explain(const struct ssl_st *ssl, const char *otherwise, char *ret_reason, size_t size);

#endif
