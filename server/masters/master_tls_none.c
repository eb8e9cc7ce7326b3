/* No TLS to masters: for a hiredis before 1.0, or without its TLS part. See master_tls.h. No address is ever rediss://
 * then, so only load, unload and free are called. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "master_tls.h"

bool master_tls_load(const struct options *options, char *message, size_t message_size)
{
	const char *useless = options->masters_ca[0]     ? "--masters-ca"
			      : options->masters_cert[0] ? "--masters-cert"
							 : NULL;
	for (size_t i = 0; i < options->master_count; i++)
		assert(!options->masters[i].tls);
	if (useless)
		snprintf(message, message_size, "%s: " OPTIONS_TLS_MISSING, useless);
	return !useless;
}

void master_tls_unload(void)
{
}

struct ssl_st *master_tls_begin(struct redisAsyncContext *context, const struct master_address *address,
				char *ret_reason, size_t size)
{
	(void)context;
	(void)address;
	(void)ret_reason;
	(void)size;
	abort();
}

void master_tls_free(struct ssl_st *ssl)
{
	assert(!ssl);
}

void master_tls_clear_errors(void)
{
	abort();
}

bool master_tls_wants_write(const struct ssl_st *ssl)
{
	(void)ssl;
	abort();
}

bool master_tls_wants_read(const struct ssl_st *ssl)
{
	(void)ssl;
	abort();
}

bool master_tls_has_more(const struct ssl_st *ssl)
{
	(void)ssl;
	abort();
}

bool master_tls_is_in_handshake(const struct ssl_st *ssl)
{
	(void)ssl;
	abort();
}

void master_tls_explain(const struct ssl_st *ssl, const char *otherwise, char *ret_reason, size_t size)
{
	(void)ssl;
	(void)otherwise;
	(void)ret_reason;
	(void)size;
	abort();
}
