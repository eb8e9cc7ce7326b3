/* SPDX-License-Identifier: MIT */
/* A TLS client with an absurd chain of certificates (tests/unit/absurd_certificate.h), one connection after the other:
 *
 *     absurd_client PORT VERSION COUNT WORDS [AUTHORITY KEY]
 *
 * VERSION is 1.2 or 1.3; AUTHORITY and KEY are PEM files. For each connection a line: "alert NAME", "closed", "reset",
 * or the status of the answer to a request. Environment:
 *
 *     COMPRESSED=FILE  the body of a CompressedCertificate, sent in place of the Certificate; it must be shorter
 *     LATE=N           after the handshake (TLS 1.3) a message of N bytes; nothing is read any more */
#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absurd_certificate.h"

static void must(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "failed: %s\n", what);
	exit(1);
}

static void load(const char *path, gnutls_datum_t *ret_bytes)
{
	must(gnutls_load_file(path, ret_bytes) >= 0, path);
}

static int connect_to(const char *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((in_port_t)atoi(port))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
	return fd;
}

/* ---- messages that GnuTLS would not send ---- */

/* gnutls_handshake_hook_func: GnuTLS shows the body of the message that it is about to send; its head, of four bytes,
 * lies before it. */
static int compress(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
		    const gnutls_datum_t *message)
{
	gnutls_datum_t body;
	(void)session, (void)type, (void)when;
	if (incoming)
		return 0;
	load(getenv("COMPRESSED"), &body);
	must(message->size >= body.size, "room for the compressed certificate");
	*(message->data - 4) = GNUTLS_HANDSHAKE_COMPRESSED_CERTIFICATE_PKT;
	memcpy(message->data, body.data, body.size);
	gnutls_free(body.data);
	return 0;
}

static gnutls_datum_t secret; /* of what the client sends after its handshake */

/* gnutls_keylog_func */
static int keep_secret(gnutls_session_t session, const char *label, const gnutls_datum_t *bytes)
{
	(void)session;
	if (strcmp(label, "CLIENT_TRAFFIC_SECRET_0") == 0) {
		secret = (gnutls_datum_t){malloc(bytes->size), bytes->size};
		memcpy(secret.data, bytes->data, bytes->size);
	}
	return 0;
}

/* HKDF-Expand-Label of RFC 8446, 7.1. */
static gnutls_datum_t expand(const char *label, unsigned len)
{
	unsigned char info[64];
	int info_len = snprintf((char *)info, sizeof info, "%c%c%ctls13 %s%c", 0, (int)len, (int)(6 + strlen(label)),
				label, 0);
	gnutls_datum_t bytes = {malloc(len), len}, labelled = {info, (unsigned)info_len};
	must(gnutls_hkdf_expand(GNUTLS_MAC_SHA384, &secret, &labelled, bytes.data, len) >= 0, "hkdf");
	return bytes;
}

static void send_record(int fd, unsigned number, const unsigned char *bytes, size_t len)
{
	static unsigned char plain[16385], record[5 + sizeof plain + 16];
	gnutls_datum_t key = expand("key", 32), nonce = expand("iv", 12);
	gnutls_aead_cipher_hd_t cipher;
	size_t sealed = sizeof record - 5;
	memcpy(plain, bytes, len);
	plain[len] = 22; /* a message of the handshake */
	nonce.data[11] ^= (unsigned char)number;
	memcpy(record, (unsigned char[]){23, 3, 3, (unsigned char)((len + 17) >> 8), (unsigned char)(len + 17)}, 5);
	must(gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_256_GCM, &key) >= 0, "cipher");
	must(gnutls_aead_cipher_encrypt(cipher, nonce.data, nonce.size, record, 5, 16, plain, len + 1, record + 5,
					&sealed) >= 0,
	     "encrypt");
	gnutls_aead_cipher_deinit(cipher);
	(void)!send(fd, record, 5 + sealed, MSG_NOSIGNAL);
	free(key.data);
	free(nonce.data);
}

/* A KeyUpdate of that size, in as many records as it needs. */
static void send_late(int fd, unsigned len)
{
	unsigned char *message = calloc(1, 4 + len);
	memcpy(message,
	       (unsigned char[]){GNUTLS_HANDSHAKE_KEY_UPDATE, (unsigned char)(len >> 16), (unsigned char)(len >> 8),
				 (unsigned char)len},
	       4);
	for (unsigned at = 0, number = 0; at < 4 + len; at += 16384, number++)
		send_record(fd, number, message + at, 4 + len - at < 16384 ? 4 + len - at : 16384);
	free(message);
}

/* ---- a connection ---- */

static void report(gnutls_session_t session, int result, const char *answer)
{
	if (result == GNUTLS_E_FATAL_ALERT_RECEIVED)
		printf("alert %s\n", gnutls_alert_get_name(gnutls_alert_get(session)));
	else if (result > 12)
		printf("%.3s\n", answer + 9);
	else
		printf("%s\n", result == GNUTLS_E_PULL_ERROR || result == GNUTLS_E_PUSH_ERROR ? "reset" : "closed");
	fflush(stdout);
}

/* With TLS 1.3 the client's handshake is over before the server has looked at the certificate. */
static void talk(gnutls_session_t session, int fd)
{
	static const char request[] = "GET /whoami HTTP/1.1\r\nHost: localhost\r\n\r\n";
	const char *late = getenv("LATE");
	char answer[4096] = "";
	ssize_t result;
	do
		result = gnutls_handshake(session);
	while (result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED);
	if (result >= 0 && late) {
		send_late(fd, (unsigned)atoi(late));
	} else if (result >= 0) {
		(void)!gnutls_record_send(session, request, sizeof request - 1);
		do
			result = gnutls_record_recv(session, answer, sizeof answer);
		while (result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED);
	}
	report(session, (int)result, answer);
}

static gnutls_session_t begin(int fd, const char *version, gnutls_certificate_credentials_t credentials)
{
	char priorities[128];
	gnutls_session_t session;
	snprintf(priorities, sizeof priorities, "NORMAL:-VERS-ALL:+VERS-TLS%s:-CIPHER-ALL:+AES-256-GCM", version);
	must(gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT | GNUTLS_NO_SIGNAL) >= 0 &&
		     gnutls_priority_set_direct(session, priorities, NULL) >= 0 &&
		     gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) >= 0,
	     "session");
	gnutls_transport_set_int(session, fd);
	gnutls_handshake_set_timeout(session, 600000);
	gnutls_session_set_keylog_function(session, keep_secret);
	if (getenv("COMPRESSED"))
		gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_CERTIFICATE_PKT, GNUTLS_HOOK_PRE,
						   compress);
	return session;
}

static void make_chain(struct absurd_chain *chain, const char *words, char **authority)
{
	gnutls_datum_t cert_pem, key_pem;
	gnutls_x509_crt_t cert;
	gnutls_privkey_t key;
	if (!authority[0]) {
		absurd_chain_init(chain, words, NULL, NULL);
		return;
	}
	load(authority[0], &cert_pem);
	load(authority[1], &key_pem);
	must(gnutls_x509_crt_init(&cert) >= 0 && gnutls_x509_crt_import(cert, &cert_pem, GNUTLS_X509_FMT_PEM) >= 0 &&
		     gnutls_privkey_init(&key) >= 0 &&
		     gnutls_privkey_import_x509_raw(key, &key_pem, GNUTLS_X509_FMT_PEM, NULL, 0) >= 0,
	     "authority");
	absurd_chain_init(chain, words, cert, key);
}

int main(int argc, char **argv)
{
	struct absurd_chain chain;
	must(argc == 5 || argc == 7, "arguments");
	make_chain(&chain, argv[4], argv + 5);
	gnutls_certificate_credentials_t credentials = absurd_credentials_new(&chain);
	for (int i = 0; i < atoi(argv[3]); i++) {
		int fd = connect_to(argv[1]);
		gnutls_session_t session = begin(fd, argv[2], credentials);
		talk(session, fd);
		gnutls_deinit(session);
		close(fd);
	}
	return 0;
}
