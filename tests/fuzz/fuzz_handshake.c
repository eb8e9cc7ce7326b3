/* SPDX-License-Identifier: MIT */
/* Fuzz target: TLS handshakes with the HTTP side, the real libmicrohttpd and the real GnuTLS, over a socket.
 *
 * The first byte of the input says who the client is, and the first line what it has:
 *
 *     0…          nobody: the rest of the input is sent as it is
 *     2WORDS LF   GnuTLS with TLS 1.2 and the chain that the words describe (tests/unit/absurd_certificate.h)
 *     3WORDS LF   the same with TLS 1.3
 *
 * The rest of 2 and 3 changes bytes of the certificates: two bytes for the place, one for the byte. No round of the
 * loop may take long, whatever it is; a client with a certificate beyond the bounds gets no answer; nothing is left.
 * Keys and randomness are those of GnuTLS: here alone not everything follows from the input. */
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "absurd_certificate.h"
#include "api/calls/calls.h"
#include "api/http/http.h"
#include "api/http/http_internal.h"
#include "fuzz.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"

enum {
	ROUND_MS_MAX = 100, /* of the processor: 20 ms, and as much again four times for sanitizers */
	ROUNDS_MAX = 60,
	WORDS_MAX = 128
};

static struct api *api;
static struct api_config config;
static struct options options;
static struct feed *edits; /* of the certificates of the present input */
static bool is_beyond;     /* one of those that were presented is refused by itself */

/* ---- the time ---- */

static uint64_t time_us = UINT64_C(1000000000);

int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

/* The linker puts it in the place of clock_gettime() in all of ours (--wrap). */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	if (clock != CLOCK_BOOTTIME)
		return __real_clock_gettime(clock, ret_time);
	*ret_time = (struct timespec){.tv_sec = (time_t)(time_us / 1000000),
				      .tv_nsec = (long)(time_us % 1000000) * 1000};
	return 0;
}

static uint64_t processor_us(void)
{
	struct timespec now;
	__real_clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- the mutation, in the copy that must fail ---- */

#ifdef FUZZ_MUTATED
const char *__wrap_tls_bounds_examine_peer(struct gnutls_session_int *session);

/* Certificates have no bounds. */
const char *__wrap_tls_bounds_examine_peer(struct gnutls_session_int *session)
{
	(void)session;
	return NULL;
}
#endif

/* ---- the server ---- */

static void turn(void)
{
	uint64_t before_us = processor_us();
	api_check_disconnects(api);
	api_run(api);
	uint64_t spent_us = processor_us() - before_us;
	MUST(spent_us < ROUND_MS_MAX * 1000, "a round took %llu µs", (unsigned long long)spent_us);
}

static void settle(void)
{
	for (int i = 0; i < ROUNDS_MAX; i++) {
		turn();
		if (api_timeout_ms(api) != 0)
			return;
	}
}

static int open_client(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int pair[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0, "no sockets: %s", strerror(errno));
	api_accept(api, pair[1], (struct sockaddr *)&address, sizeof address.sun_family, true);
	return pair[0];
}

/* The deadlines of what is still there pass. */
static void finish(void)
{
	settle();
	for (int i = 0; i < ROUNDS_MAX && (api->connections > 0 || api->deferred_count > 0 || api->lingering_count > 0);
	     i++) {
		time_us += (uint64_t)(options.idle_timeout_ms + options.request_timeout_ms) * 1000;
		settle();
	}
	MUST(api->connections == 0 && api->deferred_count == 0 && api->lingering_count == 0, "%zu connections are left",
	     api->connections + api->deferred_count + api->lingering_count);
}

/* ---- clients ---- */

static void send_raw(struct feed *feed)
{
	int fd = open_client();
	while (feed->left > 0) {
		ssize_t sent = send(fd, feed->at, feed->left, MSG_NOSIGNAL);
		if (sent <= 0)
			break;
		feed->at += sent;
		feed->left -= (size_t)sent;
		settle();
	}
	settle();
	close(fd);
}

static void edit(gnutls_datum_t *der)
{
	while (edits->left >= 3 && feed_u8(edits) % 2 == 1) { /* even: the next certificate */
		size_t place = feed_u16(edits) % der->size;
		der->data[place] = feed_u8(edits);
	}
	is_beyond = is_beyond || tls_bounds_examine(der->data, der->size) != NULL;
}

static gnutls_session_t begin_session(int fd, bool tls13, gnutls_certificate_credentials_t credentials)
{
	gnutls_session_t session;
	MUST(gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT | GNUTLS_NO_SIGNAL | GNUTLS_NONBLOCK) >=
			     0 &&
		     gnutls_priority_set_direct(
			     session, tls13 ? "NORMAL:-VERS-ALL:+VERS-TLS1.3" : "NORMAL:-VERS-ALL:+VERS-TLS1.2",
			     NULL) >= 0 &&
		     gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) >= 0,
	     "no session");
	gnutls_handshake_set_timeout(session, GNUTLS_INDEFINITE_TIMEOUT);
	gnutls_transport_set_int(session, fd);
	return session;
}

/* Returns true if an answer came. */
static bool talk(gnutls_session_t session)
{
	static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
	char answer[1024];
	int done = GNUTLS_E_AGAIN;
	for (int i = 0; i < ROUNDS_MAX && done == GNUTLS_E_AGAIN; i++) {
		done = gnutls_handshake(session);
		settle();
	}
	if (done < 0 || gnutls_record_send(session, request, sizeof request - 1) < 0)
		return false;
	ssize_t got = GNUTLS_E_AGAIN;
	for (int i = 0; i < ROUNDS_MAX && got == GNUTLS_E_AGAIN; i++) {
		settle();
		got = gnutls_record_recv(session, answer, sizeof answer);
	}
	return got > 12 && memcmp(answer, "HTTP/1.1 ", 9) == 0;
}

static void shake_hands(struct feed *feed, bool tls13)
{
	char words[WORDS_MAX] = "";
	struct absurd_chain chain;
	size_t len = 0;
	for (uint8_t byte = feed_u8(feed); byte != '\n' && feed->left > 0; byte = feed_u8(feed))
		if (len < sizeof words - 1 && byte != '\0')
			words[len++] = (char)byte;
	absurd_chain_init(&chain, words, NULL, NULL);
	edits = feed;
	is_beyond = false;
	chain.edit = edit;
	gnutls_certificate_credentials_t credentials = absurd_credentials_new(&chain);
	int fd = open_client();
	gnutls_session_t session = begin_session(fd, tls13, credentials);
	bool answered = talk(session);
	/* GnuTLS presents none with whose key it cannot sign. */
	MUST(!answered || !is_beyond || !gnutls_certificate_get_ours(session),
	     "answered, though a certificate is beyond the bounds");
	gnutls_deinit(session);
	absurd_credentials_free(credentials);
	absurd_chain_fini(&chain);
	close(fd);
}

/* ---- the target ---- */

static void write_file(const char *path, const gnutls_datum_t *bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	MUST(fd >= 0 && write(fd, bytes->data, bytes->size) == (ssize_t)bytes->size && close(fd) == 0, "%s", path);
}

/* A certificate that signs itself, for the server; its authority is that of clients as well. */
static struct tls *make_tls(void)
{
	char folder[] = "/tmp/fuzz-handshake-XXXXXX", cert_path[64], key_path[64], message[512];
	gnutls_x509_privkey_t key;
	gnutls_x509_crt_t cert;
	gnutls_datum_t cert_pem, key_pem;
	MUST(mkdtemp(folder) && gnutls_x509_privkey_init(&key) >= 0 && gnutls_x509_crt_init(&cert) >= 0, "no folder");
	gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
	gnutls_x509_crt_set_version(cert, 3);
	gnutls_x509_crt_set_serial(cert, "\x01", 1);
	gnutls_x509_crt_set_activation_time(cert, time(NULL) - 60);
	gnutls_x509_crt_set_expiration_time(cert, time(NULL) + 24 * 3600);
	gnutls_x509_crt_set_key(cert, key);
	MUST(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0) >= 0 &&
		     gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &cert_pem) >= 0 &&
		     gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &key_pem) >= 0,
	     "no certificate");
	snprintf(cert_path, sizeof cert_path, "%s/cert", folder);
	snprintf(key_path, sizeof key_path, "%s/key", folder);
	write_file(cert_path, &cert_pem);
	write_file(key_path, &key_pem);
	struct tls *tls = tls_load(cert_path, key_path, cert_path, message, sizeof message);
	MUST(tls, "%s", message);
	unlink(cert_path);
	unlink(key_path);
	rmdir(folder);
	gnutls_free(cert_pem.data);
	gnutls_free(key_pem.data);
	gnutls_x509_crt_deinit(cert);
	gnutls_x509_privkey_deinit(key);
	return tls;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const addresses[] = {"127.0.0.1:6379"};
	(void)argc, (void)argv;
	options = (struct options){.request_timeout_ms = 10000, .idle_timeout_ms = 60000};
	log_setup(LOG_ERROR, LOG_LOGFMT);
	metrics_init(1, 1, addresses);
	stats_init(0);
	config = (struct api_config){.service = calls_service(),
				     .options = &options,
				     .max_connections = 4,
				     .metrics = metrics_worker(0),
				     .tls = make_tls()};
	api = api_new(&config);
	MUST(api != NULL, "no api: %s", strerror(errno));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct feed feed = {data, size};
	uint8_t who = feed_u8(&feed);
	if (who == '2' || who == '3')
		shake_hands(&feed, who == '3');
	else
		send_raw(&feed);
	finish();
	return 0;
}
