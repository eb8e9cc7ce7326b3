/* SPDX-License-Identifier: MIT */
/* TLS to masters (rediss://), by OpenSSL. TLS 1.2 and newer. The name or the IP address of --masters must be in the
 * certificate (the CN counts if it names no other host). A name is also sent (SNI).
 *
 * The process has one set of authorities and one certificate. transport_tls_load() replaces both together; each
 * connection keeps those with which it began, and belongs to one worker. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/base/base.h"
#include "transport_internal.h"

enum { TRANSPORT_TLS_FILE_MAX = 1 << 20 };

static pthread_mutex_t tls_lock = PTHREAD_MUTEX_INITIALIZER;
static SSL_CTX *tls_context; /* under tls_lock; NULL: no master is rediss:// */

/* The files that are read together. */
struct tls_files {
	SSL_CTX *context;
	struct transport_tls_dates own, authority;
};

static struct transport_tls_dates tls_own, tls_authority; /* of the files that were read last; for the main thread */

/* ---- files ---- */

static const char *first_error(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());
	return reason ? reason : "out of memory";
}

/* The passphrase, so that nobody is asked for it at the terminal. A key with another one cannot be read. */
static char no_passphrase[] = "";

enum pem_kind { PEM_AUTHORITIES, PEM_OWN, PEM_KEY };

static int64_t seconds_of(const ASN1_TIME *time)
{
	struct tm date;
	return ASN1_TIME_to_tm(time, &date) == 1 ? (int64_t)timegm(&date) : 1; /* an unknown date counts as past */
}

/* Keeps the dates of the certificate that expires first. */
static void keep_earliest_dates(const X509 *certificate, struct transport_tls_dates *dates)
{
	int64_t expiry_s = seconds_of(X509_get0_notAfter(certificate));
	if (dates->expiry_s != 0 && expiry_s >= dates->expiry_s)
		return;
	dates->activation_s = seconds_of(X509_get0_notBefore(certificate));
	dates->expiry_s = expiry_s > 0 ? expiry_s : 1;
}

/* Adds all certificates of a PEM text. With `kind` of our own, the first is ours, and the others lead from it to the
 * authority. Returns NULL, or the reason. */
static const char *read_certificates(struct tls_files *files, BIO *pem, enum pem_kind kind)
{
	X509 *certificate;
	SSL_CTX *context = files->context;
	size_t count = 0;
	bool added = true;
	while (added && (certificate = PEM_read_bio_X509(pem, NULL, NULL, no_passphrase)) != NULL) {
		added = kind == PEM_AUTHORITIES ? X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) == 1
			: count == 0            ? SSL_CTX_use_certificate(context, certificate) == 1
						: SSL_CTX_add1_chain_cert(context, certificate) == 1;
		/* reads its extensions now, or else concurrent handshakes would */
		X509_check_purpose(certificate, -1, 0);
		if (kind == PEM_AUTHORITIES || count == 0)
			keep_earliest_dates(certificate, kind == PEM_AUTHORITIES ? &files->authority : &files->own);
		X509_free(certificate);
		count++;
	}
	if (!added || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return first_error(); /* a broken certificate, not the end */
	return count > 0 ? NULL : "there is no certificate in it";
}

/* Call it after the certificate was read: it checks that both belong together. */
static const char *read_key(SSL_CTX *context, BIO *pem)
{
	EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, NULL, no_passphrase);
	if (!key)
		return "there is no key in it that can be read without a passphrase";
	bool fits = SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1;
	EVP_PKEY_free(key);
	return fits ? NULL : "it is not the key of --masters-cert";
}

static bool read_tls_file(struct tls_files *files, const char *option, const char *path, enum pem_kind kind,
			  char *message, size_t message_size)
{
	char refused[512];
	const char *reason = NULL;
	struct text text;
	text_init(&text);
	bool is_read = secret_file_read(path, kind == PEM_KEY ? SECRET_FILE_SECRET : SECRET_FILE_TRUSTED,
					TRANSPORT_TLS_FILE_MAX, &text, refused, sizeof refused);
	if (is_read) {
		BIO *pem = BIO_new_mem_buf(text.bytes ? text.bytes : "", (int)text.len);
		if (!pem)
			memory_exhausted("certificates");
		ERR_clear_error();
		reason = kind == PEM_KEY ? read_key(files->context, pem) : read_certificates(files, pem, kind);
		BIO_free(pem);
	}
	if (!is_read)
		snprintf(message, message_size, "%s: %s", option, refused);
	else if (reason)
		snprintf(message, message_size, "%s: %s: %s", option, path, reason);
	secret_file_wipe(&text);
	text_fini(&text);
	ERR_clear_error();
	return is_read && !reason;
}

static bool read_files(struct tls_files *files, const struct options *options, char *message, size_t size)
{
	if (!options->masters_ca[0] && SSL_CTX_set_default_verify_paths(files->context) != 1) {
		snprintf(message, size, "--masters: the system's certificate authorities cannot be read: %s",
			 first_error());
		return false;
	}
	return (!options->masters_ca[0] ||
		read_tls_file(files, "--masters-ca", options->masters_ca, PEM_AUTHORITIES, message, size)) &&
	       (!options->masters_cert[0] ||
		(read_tls_file(files, "--masters-cert", options->masters_cert, PEM_OWN, message, size) &&
		 read_tls_file(files, "--masters-key", options->masters_key, PEM_KEY, message, size)));
}

/* The defaults without finite fields: they cost 0.1 s of the loop, and a server may request one before it has shown a
 * certificate. A list that names an unknown group is refused. */
static bool set_groups(SSL_CTX *context)
{
	static const char *const lists[] = {
		"*X25519MLKEM768/*X25519:P-256:X448:P-384:P-521",     /* OpenSSL 3.5 */
		"X25519:P-256:X448:P-384:P-521", "P-256:P-384:P-521", /* FIPS */
	};
	bool set = false;
	for (size_t i = 0; i < sizeof lists / sizeof *lists && !set; i++)
		set = SSL_CTX_set1_groups_list(context, lists[i]) == 1;
	if (set)
		ERR_clear_error();
	return set;
}

bool transport_tls_is_used(const struct options *options)
{
	bool used = false;
	for (size_t i = 0; i < options->master_count; i++)
		used = used || options->masters[i].tls;
	return used;
}

static void replace_context(SSL_CTX *context)
{
	pthread_mutex_lock(&tls_lock);
	SSL_CTX *before = tls_context;
	tls_context = context;
	pthread_mutex_unlock(&tls_lock);
	SSL_CTX_free(before);
}

bool transport_tls_load(const struct options *options, char *message, size_t message_size)
{
	if (!transport_tls_is_used(options)) {
		const char *useless = options->masters_ca[0]     ? "--masters-ca"
				      : options->masters_cert[0] ? "--masters-cert"
								 : NULL;
		if (useless)
			snprintf(message, message_size, "%s: no master is rediss://", useless);
		return !useless;
	}
	struct tls_files files = {.context = SSL_CTX_new(TLS_client_method())};
	SSL_CTX *context = files.context;
	if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 || !set_groups(context)) {
		snprintf(message, message_size, "--masters: TLS cannot be set up: %s", first_error());
		SSL_CTX_free(context);
		return false;
	}
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	if (!read_files(&files, options, message, message_size)) {
		SSL_CTX_free(context);
		return false;
	}
	replace_context(context);
	tls_own = files.own;
	tls_authority = files.authority;
	return true;
}

void transport_tls_dates(struct transport_tls_dates *ret_authority, struct transport_tls_dates *ret_own)
{
	*ret_authority = tls_authority;
	*ret_own = tls_own;
}

void transport_tls_unload(void)
{
	replace_context(NULL);
}

/* ---- one connection ---- */

/* Sets the name that the certificate must have. */
static bool expect_host(SSL *ssl, const char *given)
{
	X509_VERIFY_PARAM *expected = SSL_get0_param(ssl);
	char host[sizeof((struct address *)0)->host];
	size_t len = strlen(given);
	assert(len > 0 && len < sizeof host);
	if (X509_VERIFY_PARAM_set1_ip_asc(expected, given) == 1)
		return true;
	memcpy(host, given, len + 1);
	if (host[len - 1] == '.')
		host[len - 1] = '\0'; /* the root's dot is in no certificate */
	X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return host[0] && X509_VERIFY_PARAM_set1_host(expected, host, 0) == 1 &&
	       SSL_set_tlsext_host_name(ssl, host) == 1;
}

struct ssl_st *transport_tls_begin(int fd, const struct address *address, char *ret_reason, size_t size)
{
	assert(address->tls && address->host[0]);
	ERR_clear_error();
	pthread_mutex_lock(&tls_lock);
	assert(tls_context);
	SSL *ssl = SSL_new(tls_context);
	pthread_mutex_unlock(&tls_lock);
	if (!ssl || !expect_host(ssl, address->host) || SSL_set_fd(ssl, fd) != 1) {
		snprintf(ret_reason, size, "tls: %s", first_error());
		SSL_free(ssl);
		return NULL;
	}
	SSL_set_connect_state(ssl);
	return ssl;
}

/* Converts a result of OpenSSL to one of read() or write(). */
static ssize_t outcome(const SSL *ssl, int done)
{
	int error = SSL_get_error(ssl, done);
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		errno = EAGAIN;
	else if (error == SSL_ERROR_SSL)
		errno = EPROTO;
	return done > 0 ? done : error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

/* Clears the error list of the thread first: an error of another connection would count as one of this. */
ssize_t transport_tls_read(struct ssl_st *ssl, char *bytes, size_t size)
{
	assert(size >= SSL3_RT_MAX_PLAIN_LENGTH); /* a complete record: no data are left that poll() would not report */
	ERR_clear_error();
	return outcome(ssl, SSL_read(ssl, bytes, (int)size));
}

ssize_t transport_tls_write(struct ssl_st *ssl, const char *bytes, size_t len)
{
	assert(len > 0);
	ERR_clear_error();
	return outcome(ssl, SSL_write(ssl, bytes, len < INT_MAX ? (int)len : INT_MAX));
}

void transport_tls_explain(const struct ssl_st *ssl, const char *otherwise, char *ret_reason, size_t size)
{
	assert(ssl && size > 0);
	long verified = SSL_get_verify_result(ssl);
	unsigned long error = ERR_peek_error();
	int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
	if (verified != X509_V_OK)
		snprintf(ret_reason, size, "tls: certificate verify failed: %.100s",
			 X509_verify_cert_error_string(verified));
	else if (reason == SSL_R_WRONG_VERSION_NUMBER)
		snprintf(ret_reason, size,
			 "tls: what it answers is not TLS; without TLS on that port the address begins with redis://");
	else if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		snprintf(ret_reason, size,
			 !SSL_is_init_finished(ssl) ? "tls: closed during the handshake" : "connection: closed");
	else if (reason)
		snprintf(ret_reason, size, "tls: %.120s", ERR_reason_error_string(error));
	else
		snprintf(ret_reason, size, "connection: %.120s", otherwise);
}
