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

#include "server/masters/master_internal.h"
#include "server/masters/master_tls.h"

enum { LARGE = 4 << 20, PATIENCE_MS = 10000, PIECE = 5000 };

/* ---- a server ---- */

static struct server {
	SSL_CTX *tls;
	int listener;
	uint16_t port;
	size_t wants; /* bytes to read before it answers */
	bool large;   /* … and then it answers much at once */
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
	SSL *ssl = SSL_new(server.tls);
	SSL_set_fd(ssl, fd);
	ck_assert_int_eq(SSL_accept(ssl), 1);
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
static redisAsyncContext *context;
static size_t answered; /* bytes of the answer */

static void on_answer(redisAsyncContext *from, void *raw, void *arg)
{
	const redisReply *reply = raw;
	(void)from;
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

static void connect_client(void)
{
	static struct options options;
	char message[300] = "", why[STATUS_REASON_MAX] = "";
	memset(&options, 0, sizeof options);
	options.master_count = 1;
	options.masters[0] = (struct master_address){.tls = true, .host = "127.0.0.1", .port = server.port};
	strcpy(options.masters_ca, server.path);
	ck_assert_msg(master_tls_load(&options, message, sizeof message), "%s", message);
	uv_loop_init(&loop);
	uv_timer_init(&loop, &patience);
	uv_timer_start(&patience, on_patience, PATIENCE_MS, 0);
	answered = 0;
	context = redisAsyncConnect("127.0.0.1", server.port);
	ck_assert(context && !context->err);
	int small = 4096;
	setsockopt(context->c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	ck_assert_msg(master_io_attach(&loop, context, &options.masters[0], why) != NULL, "%s", why);
}

static void end_client(void)
{
	redisAsyncFree(context);
	uv_close((uv_handle_t *)&patience, NULL);
	while (uv_run(&loop, UV_RUN_DEFAULT) != 0)
		; /* until all handles are closed */
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	master_tls_unload();
}

static void exchange(size_t sent, bool large)
{
	char *value = calloc(1, sent + 1);
	memset(value, 'v', sent);
	start_server();
	server.wants = sent;
	server.large = large;
	connect_client();
	ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
	/* in pieces, so that there is always something behind the one under way */
	for (size_t at = 0; at < sent; at += PIECE)
		ck_assert_int_eq(redisAsyncCommand(context, at == 0 ? on_answer : NULL, NULL, "SET k %b", value + at,
						   sent - at < PIECE ? sent - at : PIECE),
				 REDIS_OK);
	uv_run(&loop, UV_RUN_DEFAULT);
	size_t got = answered;
	end_client();
	pthread_join(server.thread, NULL);
	end_server();
	free(value);
	ck_assert_uint_eq(got, large ? LARGE : 2);
}

START_TEST(more_than_the_socket_takes_goes_out_though_the_other_side_says_nothing)
{
	exchange(LARGE, false);
}
END_TEST

START_TEST(records_are_read_to_the_last)
{
	exchange(10, true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("master_tls");
	TCase *tests = tcase_create("records");
	tcase_add_test(tests, more_than_the_socket_takes_goes_out_though_the_other_side_says_nothing);
	tcase_add_test(tests, records_are_read_to_the_last);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
