/* TLS to masters (rediss://), with OpenSSL and hiredis' TLS part: master_tls.c where they exist at build time, else
 * master_tls_none.c, with which every rediss:// is rejected when the options are read.
 *
 * One set of authorities and one certificate of ours for the process, loaded once before there are threads, and only
 * read from then on. */
#ifndef MASTER_TLS_H
#define MASTER_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "masters.h"

struct redisAsyncContext;
struct ssl_st;

/* Makes a new connection, which may still be connecting, one over TLS: whatever is written to it leaves only after the
 * other side has shown a certificate that is good for `address`. NULL: ret_reason says why not, and nothing but
 * redisAsyncFree() may be done with the context. The caller ends the TLS with master_tls_free(), at any time after
 * hiredis has freed the context. */
struct ssl_st *master_tls_begin(struct redisAsyncContext *context, const struct master_address *address,
				char *ret_reason, size_t size);
void master_tls_free(struct ssl_st *ssl); /* NULL: nothing */

/* ---- around each step of hiredis with a connection over TLS ---- */

/* Before it: OpenSSL keeps errors in a list of the thread, where an error of another connection would count as one of
 * this. */
void master_tls_clear_errors(void);
/* After it: it can go on only when the socket takes bytes. */
bool master_tls_wants_write(const struct ssl_st *ssl);
/* After it: it can go on only when bytes have come. */
bool master_tls_wants_read(const struct ssl_st *ssl);
/* After a read: bytes are left that make the descriptor readable no more. */
bool master_tls_has_more(const struct ssl_st *ssl);
/* The certificate of the other side has not been accepted yet. */
bool master_tls_is_in_handshake(const struct ssl_st *ssl);
/* When it has failed, and before anything else is done: why, in words. `otherwise`: the error of hiredis, for a failure
 * that is not one of TLS. */
void master_tls_explain(const struct ssl_st *ssl, const char *otherwise, char *ret_reason, size_t size);

#endif
