/* SPDX-License-Identifier: MIT */
/* Certificates. See http.h.
 *
 * The credentials of GnuTLS may be shared by any number of sessions and threads because they never change here.
 *
 * The handshake asks for a client's certificate but takes any, also none: an expired one is answered 401 with the
 * reason, which a client with a failed handshake would never get. That the client has the private key is proved in the
 * handshake itself. Clients that are not asked resume their sessions by tickets (TLS 1.2 and 1.3), without early data,
 * which could be replayed. */
#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http_internal.h"

enum { DAY_S = 24 * 60 * 60, HASH_LEN = 32 };

struct tls {
	atomic_uint references;
	gnutls_certificate_credentials_t credentials;
	bool asks;
	unsigned char authorities[HASH_LEN]; /* SHA-256 of their file, if it asks */
	time_t activation, expiry;           /* of the certificate itself */
	char *cert;                          /* its file */
	gnutls_datum_t ticket_key;           /* of all workers; a reload makes its tickets invalid */
};

/* ---- loading ---- */

/* "--tls-cert /path: reason"; returns false. */
static bool write_reason(const char *option, const char *path, const char *reason, char *message, size_t size)
{
	snprintf(message, size, "%s %s: %s", option, path, reason);
	return false;
}

/* Reads a file; false and a message. `text` must be wiped in any case. */
static bool read_pem_file(const char *option, const char *path, enum secret_file_kind kind, struct text *text,
			  char *message, size_t size)
{
	char reason[512];
	text_init(text);
	if (secret_file_read(path, kind, TLS_FILE_MAX, text, reason, sizeof reason))
		return true;
	snprintf(message, size, "%s: %s", option, reason);
	return false;
}

static gnutls_datum_t datum_of(const struct text *text)
{
	return (gnutls_datum_t){.data = (unsigned char *)text->bytes, .size = (unsigned)text->len};
}

/* Keeps the dates of the certificate itself, the first of the file. */
static bool parse_cert(struct tls *tls, const char *path, const gnutls_datum_t *pem, char *message, size_t size)
{
	gnutls_x509_crt_t *chain = NULL;
	unsigned count = 0;
	int error = gnutls_x509_crt_list_import2(&chain, &count, pem, GNUTLS_X509_FMT_PEM, 0);
	if (error >= 0 && count > 0) {
		tls->activation = gnutls_x509_crt_get_activation_time(chain[0]);
		tls->expiry = gnutls_x509_crt_get_expiration_time(chain[0]);
	}
	for (unsigned i = 0; i < count; i++)
		gnutls_x509_crt_deinit(chain[i]);
	gnutls_free(chain);
	if (error < 0 && error != GNUTLS_E_NO_CERTIFICATE_FOUND)
		return write_reason("--tls-cert", path, gnutls_strerror(error), message, size);
	return count > 0 || write_reason("--tls-cert", path, "holds no certificate in PEM", message, size);
}

static bool parse_pair(struct tls *tls, const char *cert_path, const struct text *cert, const char *key_path,
		       const struct text *key, char *message, size_t size)
{
	gnutls_datum_t cert_pem = datum_of(cert), key_pem = datum_of(key);
	if (!parse_cert(tls, cert_path, &cert_pem, message, size))
		return false;
	switch (gnutls_certificate_set_x509_key_mem(tls->credentials, &cert_pem, &key_pem, GNUTLS_X509_FMT_PEM)) {
	case GNUTLS_E_SUCCESS: return true;
	case GNUTLS_E_CERTIFICATE_KEY_MISMATCH:
		snprintf(message, size, "--tls-key %s: does not belong to the certificate of --tls-cert %s", key_path,
			 cert_path);
		return false;
	case GNUTLS_E_DECRYPTION_FAILED:
		return write_reason("--tls-key", key_path, "is protected by a password; it must not be", message, size);
	default: return write_reason("--tls-key", key_path, "holds no private key in PEM", message, size);
	}
}

static bool load_pair(struct tls *tls, const char *cert, const char *key, char *message, size_t size)
{
	struct text cert_text, key_text;
	text_init(&key_text);
	bool loaded = read_pem_file("--tls-cert", cert, SECRET_FILE_TRUSTED, &cert_text, message, size) &&
		      read_pem_file("--tls-key", key, SECRET_FILE_SECRET, &key_text, message, size) &&
		      parse_pair(tls, cert, &cert_text, key, &key_text, message, size);
	secret_file_wipe(&key_text);
	text_fini(&key_text);
	text_fini(&cert_text);
	return loaded;
}

static bool load_authorities(struct tls *tls, const char *path, char *message, size_t size)
{
	struct text text;
	int count = 0;
	if (path[0] == '\0')
		return true;
	if (read_pem_file("--tls-client-ca", path, SECRET_FILE_TRUSTED, &text, message, size)) {
		gnutls_datum_t pem = datum_of(&text);
		count = gnutls_certificate_set_x509_trust_mem(tls->credentials, &pem, GNUTLS_X509_FMT_PEM);
		if (count > 0 && gnutls_hash_fast(GNUTLS_DIG_SHA256, text.bytes, text.len, tls->authorities) < 0)
			count = GNUTLS_E_HASH_FAILED;
		if (count <= 0)
			write_reason("--tls-client-ca", path,
				     count == 0 || count == GNUTLS_E_NO_CERTIFICATE_FOUND
					     ? "holds no certificate in PEM"
					     : gnutls_strerror(count),
				     message, size);
	}
	text_fini(&text);
	tls->asks = count > 0;
	return tls->asks;
}

struct tls *tls_load(const char *cert, const char *key, const char *client_ca, char *message, size_t size)
{
	assert(cert[0] != '\0' && key[0] != '\0' && size > 0);
	struct tls *tls = memory_zeroed(1, sizeof *tls);
	atomic_init(&tls->references, 1);
	tls->cert = memory_copy(cert, strlen(cert));
	if (gnutls_certificate_allocate_credentials(&tls->credentials) < 0 ||
	    gnutls_session_ticket_key_generate(&tls->ticket_key) < 0)
		memory_exhausted("tls");
	if (!load_pair(tls, cert, key, message, size) || !load_authorities(tls, client_ca, message, size)) {
		tls_unref(tls);
		return NULL;
	}
	return tls;
}

struct tls *tls_ref(struct tls *tls)
{
	unsigned before = atomic_fetch_add_explicit(&tls->references, 1, memory_order_relaxed);
	assert(before > 0);
	return tls;
}

void tls_unref(struct tls *tls)
{
	if (!tls || atomic_fetch_sub_explicit(&tls->references, 1, memory_order_acq_rel) > 1)
		return;
	assert(atomic_load(&tls->references) == 0);
	gnutls_certificate_free_credentials(tls->credentials);
	gnutls_memset(tls->ticket_key.data, 0, tls->ticket_key.size);
	gnutls_free(tls->ticket_key.data);
	free(tls->cert);
	free(tls);
}

bool tls_asks(const struct tls *tls)
{
	return tls->asks;
}

bool tls_same_authorities(const struct tls *tls, const struct tls *other)
{
	return tls->asks == other->asks && memcmp(tls->authorities, other->authorities, HASH_LEN) == 0;
}

bool tls_is_for(const struct tls *tls, const char *host)
{
	gnutls_datum_t der;
	gnutls_x509_crt_t cert;
	assert(tls->credentials);
	if (gnutls_x509_crt_init(&cert) < 0)
		memory_exhausted("tls");
	bool is_for = gnutls_certificate_get_crt_raw(tls->credentials, 0, 0, &der) >= 0 &&
		      gnutls_x509_crt_import(cert, &der, GNUTLS_X509_FMT_DER) >= 0 &&
		      gnutls_x509_crt_check_hostname(cert, host);
	gnutls_x509_crt_deinit(cert);
	return is_for;
}

/* Certificates use calendar dates, so this uses the time of day. */
void tls_announce(const struct tls *tls)
{
	time_t now = time(NULL);
	const char *event = NULL;
	assert(tls->cert);
	http_metrics_certificate(tls->expiry);
	if (tls->expiry <= now)
		event = "tls-certificate-expired";
	else if (tls->expiry - now < TLS_WARN_DAYS * DAY_S)
		event = "tls-certificate-expires-soon";
	else if (tls->activation > now)
		event = "tls-certificate-not-valid-yet";
	if (!event)
		return;
	log_begin(LOG_WARN, event);
	log_text("certificate", tls->cert);
	log_num("hours_left", (int64_t)(tls->expiry - now) / 3600);
	log_end();
}

void tls_attach(const struct tls *tls, gnutls_session_t session)
{
	assert(session && tls->credentials);
	if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0)
		memory_exhausted("tls");
	/* A ticket would carry the client's certificate. GnuTLS takes that over from a ticket even if it then resumes
	 * nothing, so a client could present the ticket of another one, which it saw on the wire. */
	if (tls->asks)
		gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
	else if (gnutls_session_ticket_enable_server(session, &tls->ticket_key) < 0)
		memory_exhausted("tls");
}

/* ---- the client's certificate ---- */

/* Adds a name, unless there is no room or it has a byte that a name should not have, above all a NUL, where other
 * programs would stop reading. */
static void add_name(struct tls_peer *peer, size_t *used, const char *name, size_t len)
{
	assert(peer->count <= TLS_PEER_NAMES_MAX && *used <= sizeof peer->bytes);
	if (peer->count == TLS_PEER_NAMES_MAX || len == 0 || len >= sizeof peer->bytes - *used)
		return;
	for (size_t i = 0; i < len; i++)
		if (name[i] < '!' || name[i] > '~')
			return;
	char *copy = peer->bytes + *used;
	memcpy(copy, name, len);
	copy[len] = '\0';
	*used += len + 1;
	peer->names[peer->count++] = copy;
}

/* True if it has any alternative name at all. */
static bool read_alternative_names(gnutls_x509_crt_t cert, struct tls_peer *peer, size_t *used)
{
	for (unsigned i = 0;; i++) {
		char name[1024];
		size_t len = sizeof name;
		unsigned type = 0;
		int got = gnutls_x509_crt_get_subject_alt_name2(cert, i, name, &len, &type, NULL);
		if (got == GNUTLS_E_SHORT_MEMORY_BUFFER)
			continue; /* longer than any name in a keys file */
		if (got < 0)      /* the end, or an unreadable name, which counts as one */
			return i > 0 || got != GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE;
		if (got == GNUTLS_SAN_DNSNAME || got == GNUTLS_SAN_URI)
			add_name(peer, used, name, len);
	}
}

/* Only if there is just one: of two, another program might use the other. */
static void read_common_name(gnutls_x509_crt_t cert, struct tls_peer *peer, size_t *used)
{
	char name[256], second[256];
	size_t len = sizeof name, second_len = sizeof second;
	if (gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 1, 0, second, &second_len) !=
	    GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
		return;
	if (gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &len) >= 0)
		add_name(peer, used, name, len);
}

bool tls_peer_read_names(const void *der, size_t len, struct tls_peer *peer)
{
	gnutls_datum_t raw = {.data = (unsigned char *)(uintptr_t)der, .size = (unsigned)len};
	gnutls_x509_crt_t cert;
	size_t used = 0;
	assert(der || len == 0);
	peer->count = 0;
	if (gnutls_x509_crt_init(&cert) < 0)
		memory_exhausted("tls");
	bool read = gnutls_x509_crt_import(cert, &raw, GNUTLS_X509_FMT_DER) >= 0;
	if (read && !read_alternative_names(cert, peer, &used))
		read_common_name(cert, peer, &used);
	gnutls_x509_crt_deinit(cert);
	return read;
}

/* Why a certificate with this status cannot be trusted; the first reason is the most important. */
static const char *reason_of(unsigned status)
{
	assert(status != 0);
	static const struct {
		unsigned bit;
		const char *reason;
	} reasons[] = {
		{GNUTLS_CERT_SIGNER_NOT_FOUND,
		 "The client certificate is not signed by an authority of --tls-client-ca. Use one that is."},
		{GNUTLS_CERT_SIGNER_NOT_CA, "The client certificate is not signed by an authority."},
		{GNUTLS_CERT_SIGNATURE_FAILURE, "The signature of the client certificate is wrong."},
		{GNUTLS_CERT_INSECURE_ALGORITHM,
		 "The client certificate is signed with an algorithm that is not secure. Use another one."},
		{GNUTLS_CERT_REVOKED, "The client certificate has been revoked. Use another one."},
		{GNUTLS_CERT_EXPIRED, "The client certificate has expired. Renew it."},
		{GNUTLS_CERT_NOT_ACTIVATED, "The client certificate is not valid yet. Check its dates and the clocks."},
		{GNUTLS_CERT_PURPOSE_MISMATCH,
		 "The client certificate is not meant for clients. Its extended key usage must have clientAuth."},
	};
	for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
		if ((status & reasons[i].bit) != 0)
			return reasons[i].reason;
	return "The client certificate cannot be trusted.";
}

void tls_peer_examine(gnutls_session_t session, struct tls_peer *peer)
{
	gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
					 .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
	unsigned count = 0, status = 0;
	const gnutls_datum_t *certs = gnutls_certificate_get_peers(session, &count);
	peer->state = certs && count > 0 ? TLS_PEER_BAD : TLS_PEER_NONE;
	if (peer->state == TLS_PEER_NONE)
		return;
	if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) < 0)
		peer->reason = "The client certificate could not be checked.";
	else if (status != 0)
		peer->reason = reason_of(status);
	else if (!tls_peer_read_names(certs[0].data, certs[0].size, peer))
		peer->reason = "The client certificate cannot be read.";
	else
		peer->state = TLS_PEER_KNOWN;
}
