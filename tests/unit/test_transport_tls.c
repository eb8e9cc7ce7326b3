/* SPDX-License-Identifier: MIT */
/* The connection over TLS in the loop, against a server of the test's own that can be silent where a Redis would
 * answer. Built where TLS to masters is. */
#include <check.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "server/transport/transport.h"
#include "suite.h"

enum { LARGE = 5 << 20, PATIENCE_MS = 10000, PIECE = 5000 };

/* ---- a server ---- */

static struct server {
	SSL_CTX *tls;
	int listener;
	uint16_t port;
	size_t wants; /* bytes to read before it answers */
	bool large;   /* … and then it answers much at once */
	bool refuses; /* it ends the TLS before it has heard anything, and keeps the connection */
	bool finite;  /* it takes no group but a finite field */
	char *pem;    /* its certificate, which signs itself */
	char path[64];
	pthread_t thread;
} server;

static void make_certificate(void)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	X509V3_CTX context;
	ck_assert(key && certificate);
	X509_set_version(certificate, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
				   (const unsigned char *)"test", -1, -1, 0);
	X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
	X509_set_pubkey(certificate, key);
	X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
	X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, "IP:127.0.0.1");
	X509_add_ext(certificate, names, -1);
	ck_assert(X509_sign(certificate, key, EVP_sha256()) > 0);
	server.tls = SSL_CTX_new(TLS_server_method());
	ck_assert(SSL_CTX_use_certificate(server.tls, certificate) == 1 &&
		  SSL_CTX_use_PrivateKey(server.tls, key) == 1);
	int fd = mkstemp(strcpy(server.path, "/tmp/redlockd-test-XXXXXX"));
	FILE *file = fdopen(fd, "w");
	ck_assert(file && PEM_write_X509(file, certificate) == 1 && fclose(file) == 0);
	X509_EXTENSION_free(names);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

/* One connection: the handshake, then nothing until `wants` bytes have come; an answer; and the end. */
static void *serve(void *arg)
{
	static char bytes[65536];
	size_t had = 0;
	(void)arg;
	int fd = accept(server.listener, NULL, NULL);
	if (server.refuses) {
		send(fd, "\x15\x03\x03\x00\x02\x01\x00", 7, 0); /* close_notify */
		while (recv(fd, bytes, sizeof bytes, 0) > 0)
			;
		close(fd);
		return NULL;
	}
	SSL *ssl = SSL_new(server.tls);
	SSL_set_fd(ssl, fd);
	if (server.finite)
		SSL_set1_groups_list(ssl, "ffdhe8192");
	ck_assert_int_eq(SSL_accept(ssl), server.finite ? -1 : 1);
	usleep(200000); /* so that the client's socket is full before anything is read */
	while (had < server.wants) {
		int n = SSL_read(ssl, bytes, sizeof bytes);
		if (n <= 0)
			break;
		had += (size_t)n;
	}
	if (had >= server.wants && server.large) {
		char *much = calloc(1, LARGE + 100);
		int head = snprintf(much, 100, "$%d\r\n", LARGE);
		memset(much + head, 'x', LARGE);
		memcpy(much + head + LARGE, "\r\n", 2);
		SSL_write(ssl, much, head + LARGE + 2);
		free(much);
	} else if (had >= server.wants) {
		SSL_write(ssl, "+OK\r\n", 5);
	}
	while (SSL_read(ssl, bytes, sizeof bytes) > 0)
		;
	SSL_free(ssl);
	close(fd);
	return NULL;
}

static void start_server(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof address;
	int small = 4096;
	memset(&server, 0, sizeof server);
	make_certificate();
	server.listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(server.listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	ck_assert_int_eq(bind(server.listener, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(server.listener, 5), 0);
	getsockname(server.listener, (struct sockaddr *)&address, &len);
	server.port = ntohs(address.sin_port);
}

static void end_server(void)
{
	unlink(server.path);
	close(server.listener);
	SSL_CTX_free(server.tls);
}

/* ---- a client ---- */

static uv_loop_t loop;
static uv_timer_t patience;
static struct transport_connection *connection;
static size_t wanted;                    /* bytes that are sent */
static size_t answered;                  /* bytes of the answer */
static char ended[TRANSPORT_REASON_MAX]; /* why; "": it was not to end */

static void on_answer(void *arg, const redisReply *reply)
{
	(void)arg;
	answered = reply && (reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_STRING)
			   ? (size_t)reply->len
			   : 0;
	uv_stop(&loop);
}

static void on_patience(uv_timer_t *timer)
{
	(void)timer;
	uv_stop(&loop);
}

/* In pieces, so that there is always something behind the one under way. */
static void on_connected(void *arg)
{
	static const char piece[PIECE];
	(void)arg;
	while (server.refuses && !transport_has_unread(connection))
		usleep(1000); /* so that the first write finds it */
	for (size_t at = 0; at < wanted; at += PIECE) {
		struct transport_word words[] = {
			{"SET", 3}, {"k", 1}, {piece, wanted - at < PIECE ? wanted - at : PIECE}};
		transport_send(connection, 3, words);
	}
}

static void on_ended(void *arg, const char *reason, enum transport_end how)
{
	(void)arg, (void)how;
	ck_assert_msg(server.refuses || server.finite, "%s", reason);
	snprintf(ended, sizeof ended, "%s", reason);
	connection = NULL;
	uv_stop(&loop);
}

static void on_prepare(uv_prepare_t *prepare)
{
	(void)prepare;
	if (connection)
		transport_flush(connection);
}

static const struct transport_events events = {NULL, on_connected, on_answer, on_ended};
static uv_prepare_t prepare;

static void connect_client(void)
{
	static struct options options;
	char message[300] = "";
	memset(&options, 0, sizeof options);
	options.master_count = 1;
	options.masters[0] = (struct address){.tls = true, .host = "127.0.0.1", .port = server.port};
	strcpy(options.masters_ca, server.path);
	ck_assert_msg(transport_tls_load(&options, message, sizeof message), "%s", message);
	uv_loop_init(&loop);
	uv_timer_init(&loop, &patience);
	uv_timer_start(&patience, on_patience, PATIENCE_MS, 0);
	uv_prepare_init(&loop, &prepare);
	uv_prepare_start(&prepare, on_prepare);
	answered = 0;
	connection = transport_connect(&loop, &options.masters[0], 0, NULL, &events, NULL);
}

static void end_client(void)
{
	if (connection)
		transport_close(connection);
	uv_close((uv_handle_t *)&patience, NULL);
	uv_close((uv_handle_t *)&prepare, NULL);
	while (uv_run(&loop, UV_RUN_DEFAULT) != 0)
		; /* until all handles are closed */
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	transport_tls_unload();
}

static void exchange(size_t sent, bool large)
{
	start_server();
	server.wants = wanted = sent;
	server.large = large;
	connect_client();
	ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	size_t got = answered;
	end_client();
	pthread_join(server.thread, NULL);
	end_server();
	ck_assert_uint_eq(got, large ? LARGE : 2);
}

TEST(more_than_the_socket_takes_goes_out_though_the_other_side_says_nothing)
{
	exchange(LARGE, false);
}

TEST(records_are_read_to_the_last)
{
	exchange(10, true);
}

/* Until the connection has ended. */
static void live_to_the_end(void)
{
	wanted = 10;
	connect_client();
	ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	end_client();
	pthread_join(server.thread, NULL);
	end_server();
}

TEST(a_server_that_ends_the_tls_before_the_first_write_ends_the_connection)
{
	start_server();
	server.refuses = true;
	live_to_the_end();
	ck_assert_str_eq(ended, "connection: Server closed the connection");
}

/* Somebody between redlockd and a master could ask for one before it has shown a certificate: 0.1 s of the loop. */
TEST(a_finite_field_is_refused)
{
	start_server();
	server.finite = true;
	live_to_the_end();
	ck_assert_msg(strncmp(ended, "tls: ", 5) == 0 && strstr(ended, "alert handshake failure"), "%s", ended);
}
