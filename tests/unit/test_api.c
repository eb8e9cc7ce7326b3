/* The HTTP side as a whole: real sockets into a real api with fake leases, driven by poll as the worker drives it.
 *
 * A `struct world` is one worker; exchange() sends bytes and runs the worker until so many answers have come
 * or the connection has ended. No test waits for time to pass but those of deadlines, which are set to some 50 ms. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api.h"
#include "fake_lease.h"
#include "internal.h"
#include "log.h"
#include "metrics.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define HOST "Host: test\r\n"

enum { PATIENCE_MS = 5000 };

struct world {
	struct api *api;
	struct leases leases;
	struct masters masters;
	struct api_config config;
	int served; /* the worker's end of the connection made last */
};

/* What came back on a connection. */
struct answer {
	char text[64 * 1024];
	size_t len;
	bool closed;
};

static struct world world;
static struct answer answer;

static void open_world(void)
{
	static const char *const addresses[] = {"127.0.0.1:6379", "127.0.0.1:6380", "127.0.0.1:6381"};

	fake_leases_init(&world.leases);
	fake_masters_init(&world.masters);
	world.config = (struct api_config){.leases = &world.leases,
					   .masters = &world.masters,
					   .default_ttl_ms = 30000,
					   .min_ttl_ms = 100,
					   .max_ttl_ms = 60000,
					   .max_connections = 100,
					   .request_timeout_ms = 10000,
					   .idle_timeout_ms = 60000};
	log_setup(LOG_ERROR, LOG_LOGFMT);
	metrics_init(1, 3, addresses);
	api_setup(1);
	world.api = api_new(&world.config);
	ck_assert_ptr_nonnull(world.api);
}

static void reopen_world(void)
{
	api_free(world.api);
	world.api = api_new(&world.config);
	ck_assert_ptr_nonnull(world.api);
}

static void close_world(void)
{
	api_free(world.api);
	log_fini();
}

static void set_nonblocking(int fd)
{
	ck_assert_int_eq(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

static int connect_unix(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	set_nonblocking(pair[0]);
	set_nonblocking(pair[1]);
	world.served = pair[1];
	api_accept(world.api, pair[1], (struct sockaddr *)&address, sizeof(address.sun_family));
	return pair[0];
}

static int connect_tcp(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	ck_assert_int_eq(connect(client, (struct sockaddr *)&address, len), 0);
	world.served = accept(listener, NULL, NULL);
	ck_assert_int_ge(world.served, 0);
	close(listener);
	set_nonblocking(client);
	set_nonblocking(world.served);
	api_accept(world.api, world.served, (struct sockaddr *)&address, len);
	return client;
}

/* One round of the worker's loop: waits for the api or `client`, at most so long. */
static void turn(int client, int at_most_ms)
{
	struct pollfd fds[2] = {{.fd = api_fd(world.api), .events = POLLIN}, {.fd = client, .events = POLLIN}};
	int timeout_ms = api_timeout_ms(world.api);

	if (timeout_ms < 0 || timeout_ms > at_most_ms)
		timeout_ms = at_most_ms;
	poll(fds, client >= 0 ? 2 : 1, timeout_ms);
	api_run(world.api);
	if (fake_leases_pump(&world.leases) > 0)
		api_run(world.api);
}

static uint64_t now_ms(void)
{
	return api_now_us() / 1000;
}

/* Runs the worker until `condition` holds; fails if it never does. */
#define RUN_UNTIL(condition) \
	do { \
		uint64_t end_ms = now_ms() + PATIENCE_MS; \
		while (!(condition)) { \
			ck_assert_msg(now_ms() < end_ms, "never came true: %s", #condition); \
			turn(-1, 20); \
		} \
	} while (0)

/* How many whole answers are in the text; HEAD and 204 have no body. */
static unsigned count_answers(bool bodiless)
{
	const char *at = answer.text, *end;
	unsigned count = 0;

	while ((end = strstr(at, "\r\n\r\n")) != NULL) {
		const char *length = strstr(at, "Content-Length: ");
		size_t len = !bodiless && length != NULL && length < end ? (size_t)atoi(length + 16) : 0;
		if (end + 4 + len > answer.text + answer.len)
			break;
		at = end + 4 + len;
		count++;
	}
	return count;
}

static void receive(int client)
{
	ssize_t got;

	while (answer.len < sizeof(answer.text) - 1 &&
	       (got = recv(client, answer.text + answer.len, sizeof(answer.text) - 1 - answer.len, MSG_DONTWAIT)) > 0)
		answer.len += (size_t)got;
	answer.text[answer.len] = '\0';
	if (answer.len < sizeof(answer.text) - 1 && (got == 0 || (got < 0 && errno != EAGAIN)))
		answer.closed = true;
}

static void await(int client, unsigned answers, bool bodiless)
{
	uint64_t end_ms = now_ms() + PATIENCE_MS;

	while (count_answers(bodiless) < answers && !answer.closed) {
		ck_assert_msg(now_ms() < end_ms, "no answer; so far: %s", answer.text);
		turn(client, 50);
		receive(client);
	}
}

static void forget(void)
{
	answer.len = 0;
	answer.text[0] = '\0';
	answer.closed = false;
}

static void put(int client, const char *bytes, size_t len)
{
	ck_assert_int_eq(send(client, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void exchange(int client, const char *bytes, size_t len, unsigned answers)
{
	forget();
	put(client, bytes, len);
	await(client, answers, false);
}

/* One request, one answer; returns the status. */
static int ask(int client, const char *request)
{
	exchange(client, request, strlen(request), 1);
	return answer.len > 12 ? atoi(answer.text + 9) : 0;
}

/* The same with a body, whose Content-Length is filled in. `head` is the first line and headers without the last empty line. */
static int ask_body(int client, const char *head, const char *body)
{
	static char request[32 * 1024];

	snprintf(request, sizeof(request), "%s" HOST "Content-Length: %zu\r\n\r\n%s", head, strlen(body), body);
	return ask(client, request);
}

static json_t *answer_json(void)
{
	const char *body = strstr(answer.text, "\r\n\r\n");

	ck_assert_ptr_nonnull(body);
	json_t *json = json_loads(body + 4, 0, NULL);
	ck_assert_msg(json != NULL, "no JSON: %s", answer.text);
	return json;
}

#define HAS(part) ck_assert_msg(strstr(answer.text, part) != NULL, "no %s in: %s", part, answer.text)
#define HAS_NOT(part) ck_assert_msg(strstr(answer.text, part) == NULL, "there is %s in: %s", part, answer.text)

static void assert_code(const char *code)
{
	json_t *json = answer_json();

	HAS("Content-Type: application/problem+json\r\n");
	ck_assert_str_eq(json_string_value(json_object_get(json, "code")), code);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "status")), atoi(answer.text + 9));
	json_decref(json);
}

static const char get_healthz[] = "GET /healthz HTTP/1.1\r\n" HOST "\r\n";
static const char post_a[] = "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\n\r\n{\"resource\":\"a\"}";

/* ---- connections and requests ---- */

START_TEST(test_healthz)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, get_healthz), 200);
	HAS("{\"status\":\"ok\"}");
	HAS("Content-Type: application/json\r\n");
	HAS("Cache-Control: no-store\r\n");
	HAS("X-Content-Type-Options: nosniff\r\n");
	HAS("X-Request-Id: ");
	HAS_NOT("Connection: close");
	close(client);
	RUN_UNTIL(world.api->connections == 0);
}
END_TEST

START_TEST(test_keep_alive)
{
	int client = connect_tcp();

	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(ask(client, get_healthz), 200);
		ck_assert_int_eq(ask(client, post_a), 201);
		ck_assert_int_eq(ask(client, "GET /nothing HTTP/1.1\r\n" HOST "\r\n"), 404);
		ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":1}"), 400);
		ck_assert_int_eq(ask_body(client, "POST /nothing HTTP/1.1\r\n", "{\"resource\":1}"), 404);
	}
	ck_assert(!answer.closed);
	ck_assert_uint_eq(world.api->connections, 1);
	close(client);
}
END_TEST

START_TEST(test_pipelining)
{
	static const char requests[] = "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\nX-Request-Id: one\r\n\r\n{\"resource\":\"a\"}"
				       "GET /healthz HTTP/1.1\r\n" HOST "X-Request-Id: two\r\n\r\n"
				       "GET /locks/a HTTP/1.1\r\n" HOST "X-Request-Id: three\r\n\r\n";
	int client = connect_tcp();

	exchange(client, requests, sizeof(requests) - 1, 3);
	const char *one = strstr(answer.text, "X-Request-Id: one"), *two = strstr(answer.text, "X-Request-Id: two");
	const char *three = strstr(answer.text, "X-Request-Id: three");
	ck_assert(one != NULL && two != NULL && three != NULL && one < two && two < three);
	ck_assert(!answer.closed);
	close(client);
}
END_TEST

START_TEST(test_head)
{
	int client = connect_tcp();
	static const char head[] = "HEAD /healthz HTTP/1.1\r\n" HOST "\r\n";

	forget();
	put(client, head, sizeof(head) - 1);
	await(client, 1, true);
	ck_assert_int_eq(strncmp(answer.text, "HTTP/1.1 200 ", 13), 0);
	HAS("Content-Length: 15\r\n");
	ck_assert_str_eq(strstr(answer.text, "\r\n\r\n"), "\r\n\r\n");
	ck_assert_int_eq(ask(client, get_healthz), 200); /* the connection is in step */
	close(client);
}
END_TEST

/* Resumed once and run once, the answer is out: nothing waits for another wake-up. */
START_TEST(test_answered_in_one_run)
{
	int client = connect_tcp();

	for (int i = 0; i < 3; i++) {
		forget();
		put(client, post_a, sizeof(post_a) - 1);
		api_run(world.api);
		ck_assert_uint_eq(fake_leases_pump(&world.leases), 1);
		api_run(world.api);
		receive(client);
		ck_assert_uint_eq(count_answers(false), 1);
	}
	close(client);
}
END_TEST

START_TEST(test_one_byte_at_a_time)
{
	int client = connect_unix();

	forget();
	for (size_t i = 0; i + 1 < sizeof(post_a); i++) {
		put(client, post_a + i, 1);
		turn(-1, 0);
	}
	await(client, 1, false);
	HAS("HTTP/1.1 201 ");
	close(client);
}
END_TEST

START_TEST(test_http_1_0)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /healthz HTTP/1.0\r\n\r\n"), 200);
	RUN_UNTIL((receive(client), answer.closed));
	close(client);
}
END_TEST

START_TEST(test_request_id)
{
	static const struct {
		const char *given;
		bool kept;
	} ids[] = {{"abc", true}, {"A.b_c-9", true}, {"a b", false}, {"\"", false}, {"a=b", false},
		   {"0123456789012345678901234567890123456789012345678901234567890123", true},
		   {"01234567890123456789012345678901234567890123456789012345678901234", false}};
	int client = connect_tcp();
	char request[256], line[128];

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		snprintf(request, sizeof(request), "GET /healthz HTTP/1.1\r\n" HOST "X-Request-Id: %s\r\n\r\n", ids[i].given);
		ck_assert_int_eq(ask(client, request), 200);
		snprintf(line, sizeof(line), "X-Request-Id: %s\r\n", ids[i].given);
		ck_assert_int_eq(strstr(answer.text, line) != NULL, ids[i].kept);
		HAS("X-Request-Id: ");
	}
	close(client);
}
END_TEST

START_TEST(test_method_not_allowed)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "PUT /locks HTTP/1.1\r\n" HOST "\r\n"), 405);
	HAS("Allow: POST, GET, HEAD\r\n");
	assert_code("method-not-allowed");
	ck_assert_int_eq(ask(client, "POST /locks/a HTTP/1.1\r\n" HOST "\r\n"), 405);
	HAS("Allow: PUT, DELETE, GET, HEAD\r\n");
	ck_assert_int_eq(ask(client, "OPTIONS /healthz HTTP/1.1\r\n" HOST "\r\n"), 405);
	ck_assert_int_eq(ask(client, "BREW / HTTP/1.1\r\n" HOST "\r\n"), 405);
	ck_assert_int_eq(ask(client, "GET /nope HTTP/1.1\r\n" HOST "\r\n"), 404);
	assert_code("not-found");
	close(client);
}
END_TEST

START_TEST(test_chunked)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
				     "8\r\n{\"resour\r\n8\r\nce\":\"a\"}\r\n0\r\nX-Trailer: 1\r\n\r\n"), 201);
	ck_assert_uint_eq(world.leases.last.resource_len, 1);
	ck_assert_int_eq(ask(client, get_healthz), 200);
	close(client);
}
END_TEST

START_TEST(test_expect_continue)
{
	int client = connect_tcp();
	static const char head[] = "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\nExpect: 100-continue\r\n\r\n";

	exchange(client, head, sizeof(head) - 1, 1);
	HAS("HTTP/1.1 100 ");
	ck_assert_int_eq(ask(client, "{\"resource\":\"a\"}"), 201);
	close(client);
}
END_TEST

/* ---- rubbish, limits, smuggling ---- */

/* A body that would be granted a lease if it were read as chunked. */
#define CHUNKED "10\r\n{\"resource\":\"a\"}\r\n0\r\n\r\n"
#define REPEAT8(x) x x x x x x x x
#define S(literal) literal, sizeof(literal) - 1

static const struct {
	const char *bytes;
	size_t len;
	int status;
} rubbish[] = {
	/* first lines */
	{S("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"), 400},
	{S("GARBAGE\r\n\r\n"), 400},
	{S(" GET /healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET\r\n\r\n"), 400},
	{S("GET \r\n\r\n"), 400},
	{S("GET /healthz\r\n\r\n"), 400},
	{S("GET  /healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /healthz  HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /healthz HTTP/1.1 \r\n" HOST "\r\n"), 400},
	{S("GET\t/healthz\tHTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("G\tET /healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("G\"ET /healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("G\0ET /healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("\0GET /healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("G\xc3\xa9T /healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /health z HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /healthz\0 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /healthz\0x HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /\0healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET \0/healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a\x01 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a\x1f HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a\x7f HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a\t HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a\r HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/\x80 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/\xff HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a?\0 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?prefix=a\0b HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?prefix=\xff HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a#b HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET http://test/healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("CONNECT test:80 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /healthz HTTP/1.1\n" HOST "\r\n"), 400},
	{S("GET /healthz HTTP/1.1\n\n"), 400},
	{S("GET /healthz HTTP/1\r\n" HOST "\r\n"), 400},
	{S("GET /healthz http/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /healthz HTTP/1.1x\r\n" HOST "\r\n"), 400},
	{S("GET /healthz HTTP/2.0\r\n" HOST "\r\n"), 505},
	{S("GET /healthz HTTP/0.9\r\n" HOST "\r\n"), 505},
	/* headers */
	{S("GET /healthz HTTP/1.1\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST HOST "\r\n"), 400},
	{S("GET /healthz HTTP/1.0\r\n" HOST HOST "\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "no colon\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST ": no name\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Na me: x\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name : x\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Na\0me: x\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "\0Name: x\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n\0Name: x\r\n" HOST "\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "\0\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\0y\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\0\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\x01\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\ry\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\r\n\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\r\n folded\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "Name: x\r\n\tfolded\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST " folded: x\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n " HOST "\r\n"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Leng: 16\r\n th\r\n\r\n{\"resource\":\"a\"}"), 400},
	/* framing */
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\nContent-Length: 0\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 0\r\ncontent-length: 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16, 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: +16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: -16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 0x10\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16x\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 1 6\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: \r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n{}"), 413},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16385\r\n\r\n{}"), 413},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 26\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\x0b\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\n"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n\r\n"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), 413},
	/* what the routes do not take */
	{S("GET /healthz HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}"), 400},
	{S("GET /locks/a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), 400},
	{S("GET /healthz?x=1 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("DELETE /locks/a?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?limit=0 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?limit=1001 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?limit=-1 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?limit=1x HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?limit= HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?limit=1&limit=1 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?cursor=nonsense HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?cursor=page-" REPEAT8("0123456789") " HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?prefix=%00 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks?prefix=%zz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/ HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/%00 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a%00b HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/a%0Ab HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/%C2%85 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/%FF HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/%C0%AF HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/% HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/%4 HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/redlockd:master HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/%72edlockd:master HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET /locks/" REPEAT8(REPEAT8("abcd")) "x HTTP/1.1\r\n" HOST "\r\n"), 400},
	/* tokens */
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: \r\n\r\n"), 400},
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: x\r\n\r\n"), 400},
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "0\r\n\r\n"), 400},
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: 0123456789ABCDEF0123456789abcdef01234567\r\n\r\n"), 400},
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\r\nLock-Token: " TOKEN "\r\n\r\n"), 400},
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\r\nContent-Length: 52\r\n\r\n"
	   "{\"token\":\"f123456789abcdef0123456789abcdef01234567\"}"), 400},
	/* an Origin without JSON */
	{S("POST /locks HTTP/1.1\r\n" HOST "Origin: http://x\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Origin: null\r\nContent-Type: text/plain\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Origin: x\r\nContent-Type: application/jsonx\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Origin: x\r\nContent-Type: application/json\r\nContent-Type: text/plain\r\n"
	   "Content-Length: 16\r\n\r\n{\"resource\":\"a\"}"), 400},
};

static void try_rubbish(int client, size_t i)
{
	exchange(client, rubbish[i].bytes, rubbish[i].len, 1);
	ck_assert_msg(answer.len > 12 && atoi(answer.text + 9) == rubbish[i].status, "row %zu (%s): %s", i, rubbish[i].bytes, answer.text);
	ck_assert_ptr_null(strstr(answer.text, TOKEN));
	ck_assert_uint_eq(world.leases.submitted, 0);
	ck_assert_uint_eq(world.leases.listed, 0);
	close(client);
}

START_TEST(test_rubbish)
{
	try_rubbish(connect_tcp(), (size_t)_i);
	try_rubbish(connect_unix(), (size_t)_i);
	/* The same behind a request that was fine. Only a line without any blank, or beginning with one, may then end the connection silently. */
	int client = connect_tcp();
	ck_assert_int_eq(ask(client, get_healthz), 200);
	exchange(client, rubbish[_i].bytes, rubbish[_i].len, 1);
	ck_assert(answer.closed || answer.len > 0);
	if (answer.len > 0)
		ck_assert_int_eq(atoi(answer.text + 9), rubbish[_i].status);
	ck_assert_uint_eq(world.leases.submitted, 0);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
}
END_TEST

/* What casts doubt on where a request ends also ends the connection: nothing behind it is taken for a request. */
START_TEST(test_smuggling_ends_connection)
{
	static const char *const heads[] = {
		"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
		"Content-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED,
		"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" CHUNKED,
		"Transfer-Encoding: chunked, identity\r\n\r\n",
		"Transfer-Encoding: identity\r\n\r\n",
		"Name: x\0 y\r\n\r\n",
		"Content-Leng: 0\r\n th\r\n\r\n",
	};
	char request[1024];

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		int client = connect_tcp();
		snprintf(request, sizeof(request), "POST /locks HTTP/1.1\r\n" HOST "%s%s", heads[i], post_a);
		exchange(client, request, strlen(request), 2);
		ck_assert(answer.closed);
		ck_assert_uint_eq(count_answers(false), 1);
		HAS("HTTP/1.1 400 ");
		HAS("Connection: close\r\n");
		ck_assert_uint_eq(world.leases.submitted, 0);
		close(client);
	}
}
END_TEST

static int ask_url(size_t url_len)
{
	static char request[8192];
	int client = connect_tcp(), status;
	size_t len = (size_t)sprintf(request, "GET /");

	memset(request + len, 'x', url_len - 1);
	strcpy(request + len + url_len - 1, " HTTP/1.1\r\n" HOST "\r\n");
	status = ask(client, request);
	close(client);
	return status;
}

START_TEST(test_url_limit)
{
	ck_assert_int_eq(ask_url(2048), 404);
	ck_assert_int_eq(ask_url(2049), 414);
	assert_code("too-large");
	ck_assert_int_eq(ask_url(6000), 414);
}
END_TEST

/* `count` headers, the last of them with a value of so many bytes. */
static int ask_headers(unsigned count, size_t value_len)
{
	static char request[128 * 1024];
	int client = connect_unix(), status;
	size_t len = (size_t)sprintf(request, "GET /healthz HTTP/1.1\r\n" HOST);

	for (unsigned i = 1; i + 1 < count; i++)
		len += (size_t)sprintf(request + len, "A: b\r\n");
	len += (size_t)sprintf(request + len, "A: ");
	memset(request + len, 'x', value_len);
	strcpy(request + len + value_len, "\r\n\r\n");
	status = ask(client, request);
	close(client);
	return status;
}

START_TEST(test_header_limits)
{
	ck_assert_int_eq(ask_headers(64, 1), 200);
	ck_assert_int_eq(ask_headers(65, 1), 431);
	assert_code("too-large");
	ck_assert_int_eq(ask_headers(2, 8192 - 12 - 5), 200);
	ck_assert_int_eq(ask_headers(2, 8192 - 12 - 5 + 1), 431);
	ck_assert_int_eq(ask_headers(2, 20000), 431);
	ck_assert_int_eq(ask_headers(2, 100000), 431); /* more than the library's own bound */
}
END_TEST

/* A body of so many bytes: an object with blanks behind it. */
static int ask_body_len(size_t len, bool chunked)
{
	static char request[96 * 1024];
	int client = connect_unix(), status;
	size_t at = chunked ? (size_t)sprintf(request, "POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n%zx\r\n", len) :
			      (size_t)sprintf(request, "POST /locks HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", len);

	memset(request + at, ' ', len);
	memcpy(request + at, "{\"resource\":\"a\"}", 16);
	strcpy(request + at + len, chunked ? "\r\n0\r\n\r\n" : "");
	status = ask(client, request);
	RUN_UNTIL((receive(client), answer.closed || status == 201));
	close(client);
	return status;
}

START_TEST(test_body_limit)
{
	ck_assert_int_eq(ask_body_len(16384, false), 201);
	ck_assert_int_eq(ask_body_len(16385, false), 413);
	assert_code("too-large");
	HAS("Connection: close\r\n");
	ck_assert_int_eq(ask_body_len(16384, true), 201);
	ck_assert_int_eq(ask_body_len(16385, true), 413);
	assert_code("too-large");
	ck_assert_int_eq(ask_body_len(70000, true), 413);
	ck_assert_uint_eq(world.leases.submitted, 2);
	RUN_UNTIL(world.api->lingering_count == 0);
}
END_TEST

/* At once: the body need not come for it to be refused. */
START_TEST(test_body_limit_early)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n"), 413);
	close(client);
}
END_TEST

/* ---- lease calls ---- */

START_TEST(test_acquire)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"orders/4 2\",\"ttl_ms\":1000,\"owner\":\"me\"}"), 201);
	HAS("Location: /locks/orders/4%202\r\n");
	HAS("Content-Type: application/json\r\n");
	json_t *lease = answer_json();
	json_t *expected = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i}", "resource", "orders/4 2", "token", TOKEN, "owner", "me", "ttl_ms", 30000,
				     "validity_ms", 29690, "drift_ms", 302);
	ck_assert(json_equal(lease, expected));
	json_decref(lease);
	json_decref(expected);
	ck_assert_int_eq(world.leases.last.call, LEASE_ACQUIRE);
	ck_assert_uint_eq(world.leases.last.ttl_ms, 1000);
	ck_assert_uint_eq(world.leases.given_back, 0);
	ck_assert_int_eq(ask(client, post_a), 201);
	lease = answer_json();
	ck_assert_ptr_null(json_object_get(lease, "owner"));
	json_decref(lease);
	ck_assert_uint_eq(world.leases.last.ttl_ms, 30000);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.given_back, 0);
}
END_TEST

START_TEST(test_extend)
{
	int client = connect_tcp();

	world.leases.answer.holder = (struct lease_holder){.known = true, .owner_len = 2, .owner = "me"};
	ck_assert_int_eq(ask_body(client, "PUT /locks/orders/4%202 HTTP/1.1\r\n", "{\"token\":\"" TOKEN "\",\"ttl_ms\":1000}"), 200);
	HAS_NOT("Location");
	json_t *lease = answer_json();
	ck_assert_str_eq(json_string_value(json_object_get(lease, "resource")), "orders/4 2");
	ck_assert_str_eq(json_string_value(json_object_get(lease, "owner")), "me");
	json_decref(lease);
	ck_assert_int_eq(world.leases.last.call, LEASE_EXTEND);
	ck_assert_mem_eq(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN);
	ck_assert_int_eq(ask(client, "PUT /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\r\n\r\n"), 200);
	ck_assert_uint_eq(world.leases.last.ttl_ms, 30000);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.given_back, 0);
}
END_TEST

START_TEST(test_release)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, "DELETE /locks/a/b HTTP/1.1\r\n", "{\"token\":\"" TOKEN "\"}"), 204);
	ck_assert_str_eq(strstr(answer.text, "\r\n\r\n"), "\r\n\r\n");
	ck_assert_int_eq(world.leases.last.call, LEASE_RELEASE);
	ck_assert_uint_eq(world.leases.last.resource_len, 3);
	ck_assert_int_eq(ask(client, "DELETE /locks/a HTTP/1.1\r\n" HOST "lock-token:" TOKEN "\r\n\r\n"), 204);
	ck_assert_mem_eq(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN);
	ck_assert_int_eq(ask(client, get_healthz), 200);
	close(client);
}
END_TEST

START_TEST(test_inspect)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /locks/%F0%9F%94%92 HTTP/1.1\r\n" HOST "\r\n"), 200);
	json_t *state = answer_json();
	ck_assert_str_eq(json_string_value(json_object_get(state, "resource")), "\xf0\x9f\x94\x92");
	ck_assert(json_is_false(json_object_get(state, "held")));
	ck_assert_uint_eq(json_object_size(state), 3);
	json_decref(state);
	world.leases.answer.held = world.leases.answer.expires = true;
	world.leases.answer.remaining_ms = 4321;
	world.leases.answer.holder = (struct lease_holder){.known = true, .owner_len = 2, .owner = "me"};
	ck_assert_int_eq(ask(client, "GET /locks/a HTTP/1.1\r\n" HOST "\r\n"), 200);
	state = answer_json();
	ck_assert(json_is_true(json_object_get(state, "held")));
	ck_assert_str_eq(json_string_value(json_object_get(state, "owner")), "me");
	ck_assert_int_eq(json_integer_value(json_object_get(state, "remaining_ms")), 4321);
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(state, "votes"), "needed")), 2);
	json_decref(state);
	HAS_NOT(TOKEN);
	/* held by another program's key, whose bytes are no text */
	world.leases.answer.holder = (struct lease_holder){.known = true, .owner_len = 2, .owner = "\xff\xfe"};
	ck_assert_int_eq(ask(client, "GET /locks/a HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("\"owner\":null");
	close(client);
}
END_TEST

/* Every outcome of a lease call, as the contract has it. */
static const struct {
	enum lease_status outcome;
	const char *call; /* "POST", "PUT", … */
	int status;
	const char *code;
	const char *retry_after; /* NULL: no such header */
} outcomes[] = {
	{LEASE_LOCKED, "POST", 409, "locked", "2"},
	{LEASE_NO_QUORUM, "POST", 503, "no-quorum", "2"},
	{LEASE_SPLIT_VOTE, "POST", 503, "split-vote", "2"},
	{LEASE_DRAINING, "POST", 503, "draining", "1"},
	{LEASE_NOT_OWNER, "PUT", 409, "not-owner", NULL},
	{LEASE_EXPIRED, "PUT", 410, "lease-expired", NULL},
	{LEASE_NO_QUORUM, "PUT", 503, "no-quorum", "2"},
	{LEASE_NOT_OWNER, "DELETE", 409, "not-owner", NULL},
	{LEASE_EXPIRED, "DELETE", 410, "lease-expired", NULL},
	{LEASE_NO_QUORUM, "DELETE", 503, "no-quorum", "2"},
	{LEASE_NO_QUORUM, "GET", 503, "no-quorum", "2"},
};

START_TEST(test_outcomes)
{
	int client = connect_tcp(), status;
	char head[64], line[64];
	bool post = strcmp(outcomes[_i].call, "POST") == 0, get = strcmp(outcomes[_i].call, "GET") == 0;

	world.leases.answer.status = outcomes[_i].outcome;
	world.leases.answer.retry_after_ms = 1001;
	snprintf(head, sizeof(head), "%s /locks%s HTTP/1.1\r\n", outcomes[_i].call, post ? "" : "/a");
	status = ask_body(client, head, post ? "{\"resource\":\"a\"}" : get ? "" : "{\"token\":\"" TOKEN "\"}");
	ck_assert_int_eq(status, outcomes[_i].status);
	assert_code(outcomes[_i].code);
	snprintf(line, sizeof(line), "Retry-After: %s\r\n", outcomes[_i].retry_after != NULL ? outcomes[_i].retry_after : "");
	ck_assert_int_eq(strstr(answer.text, outcomes[_i].retry_after != NULL ? line : "Retry-After") != NULL, outcomes[_i].retry_after != NULL);
	if (strcmp(outcomes[_i].code, "draining") != 0)
		HAS("\"votes\":{\"needed\":2,");
	HAS_NOT(TOKEN);
	close(client);
}
END_TEST

START_TEST(test_locked_members)
{
	int client = connect_tcp();

	world.leases.answer.status = LEASE_LOCKED;
	world.leases.answer.retry_after_ms = 0;
	world.leases.answer.waited_ms = 7;
	world.leases.answer.holder = (struct lease_holder){.known = true, .owner_len = 2, .owner = "me"};
	ck_assert_int_eq(ask(client, post_a), 409);
	HAS("Retry-After: 1\r\n");
	HAS("\"holder\":{\"owner\":\"me\"}");
	HAS("\"waited_ms\":7");
	HAS("\"retry_after_ms\":0");
	world.leases.answer.holder.owner_len = 0;
	ck_assert_int_eq(ask(client, post_a), 409);
	HAS("\"holder\":{\"owner\":null}");
	world.leases.answer.holder.known = false;
	ck_assert_int_eq(ask(client, post_a), 409);
	HAS_NOT("holder\":");
	close(client);
}
END_TEST

START_TEST(test_errors_name_fields)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"ttl_ms\":1,\"wait_ms\":5}"), 400);
	assert_code("invalid-request");
	HAS("{\"field\":\"ttl_ms\",\"reason\":\"must be from 100 to 60000\"}");
	HAS("{\"field\":\"wait_ms\",\"reason\":\"not yet supported\"}");
	ck_assert_int_eq(ask(client, "GET /locks?limit=x&cursor=y HTTP/1.1\r\n" HOST "\r\n"), 400);
	HAS("\"field\":\"limit\"");
	HAS("\"field\":\"cursor\"");
	close(client);
}
END_TEST

START_TEST(test_origin)
{
	int client = connect_tcp();
	static const char *const good[] = {"Origin: http://x\r\nContent-Type: application/json\r\n",
					   "Origin: http://x\r\nContent-Type: Application/JSON; charset=utf-8\r\n", "Content-Type: text/plain\r\n",
					   "Content-Type: application/x-www-form-urlencoded\r\n"};
	char head[256];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(head, sizeof(head), "POST /locks HTTP/1.1\r\n%s", good[i]);
		ck_assert_int_eq(ask_body(client, head, "{\"resource\":\"a\"}"), 201);
	}
	ck_assert_int_eq(ask(client, "GET /healthz HTTP/1.1\r\n" HOST "Origin: http://x\r\n\r\n"), 200);
	HAS_NOT("Access-Control");
	close(client);
}
END_TEST

START_TEST(test_list)
{
	static struct lease_state states[3];
	int client = connect_tcp();

	states[0] = (struct lease_state){.resource_len = 3, .resource = "a/b"};
	states[0].answer.held = states[0].answer.expires = true;
	states[0].answer.remaining_ms = 5;
	states[1] = (struct lease_state){.resource_len = 2, .resource = "\xff\xfe"}; /* somebody else's key */
	states[2] = (struct lease_state){.resource_len = 1, .resource = "c"};
	states[2].answer.held = true;
	world.leases.list = (struct lease_list_answer){.status = LEASE_OK, .count = 3, .states = states, .next = "page-2"};
	ck_assert_int_eq(ask(client, "GET /locks?prefix=a%2F&limit=1000&cursor=page-1 HTTP/1.1\r\n" HOST "\r\n"), 200);
	json_t *page = answer_json();
	ck_assert_uint_eq(json_array_size(json_object_get(page, "locks")), 2);
	ck_assert_str_eq(json_string_value(json_object_get(page, "cursor")), "page-2");
	json_decref(page);
	ck_assert_uint_eq(world.leases.last_list.limit, 1000);
	ck_assert_uint_eq(world.leases.last_list.prefix_len, 2);
	ck_assert_str_eq(world.leases.last_list.cursor, "page-1");
	world.leases.list = (struct lease_list_answer){.status = LEASE_OK};
	ck_assert_int_eq(ask(client, "GET /locks HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("{\"locks\":[],\"cursor\":null}");
	ck_assert_uint_eq(world.leases.last_list.limit, 100);
	world.leases.list.status = LEASE_NO_QUORUM;
	ck_assert_int_eq(ask(client, "GET /locks HTTP/1.1\r\n" HOST "\r\n"), 503);
	assert_code("no-quorum");
	close(client);
}
END_TEST

START_TEST(test_out_of_memory)
{
	int client = connect_tcp();

	world.leases.short_of_memory = true;
	ck_assert_int_eq(ask(client, post_a), 0);
	ck_assert(answer.closed);
	close(client);
}
END_TEST

/* ---- what the service says about itself ---- */

START_TEST(test_readyz)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /readyz HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("{\"status\":\"ready\",\"quorum\":{\"needed\":2,\"voting\":3,\"masters\":3}}");
	world.masters.quorum.voting = 1;
	ck_assert_int_eq(ask(client, "GET /readyz HTTP/1.1\r\n" HOST "\r\n"), 503);
	assert_code("no-quorum");
	HAS("\"quorum\":{\"needed\":2,\"voting\":1,\"masters\":3}");
	HAS("Retry-After: 1\r\n");
	close(client);
}
END_TEST

START_TEST(test_masters)
{
	int client = connect_tcp();

	world.masters.status[1].state = MASTER_DOWN;
	strcpy(world.masters.status[1].reason, "refused");
	world.masters.status[2].has_rtt = true;
	world.masters.status[2].rtt_us = 99;
	world.masters.status[2].warning_count = 1;
	strcpy(world.masters.status[2].warnings[0], "evicts keys");
	ck_assert_int_eq(ask(client, "GET /masters HTTP/1.1\r\n" HOST "\r\n"), 200);
	json_t *body = answer_json(), *list = json_object_get(body, "masters");
	ck_assert_uint_eq(json_array_size(list), 3);
	ck_assert(json_is_null(json_object_get(json_array_get(list, 0), "reason")));
	ck_assert(json_is_null(json_object_get(json_array_get(list, 0), "rtt_us")));
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 1), "state")), "down");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 1), "reason")), "refused");
	ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(list, 2), "rtt_us")), 99);
	ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(list, 2), "warnings")), 1);
	json_decref(body);
	close(client);
}
END_TEST

START_TEST(test_metrics)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, get_healthz), 200);
	ck_assert_int_eq(ask(client, post_a), 201);
	ck_assert_int_eq(ask(client, "BREW /coffee HTTP/1.1\r\n" HOST "\r\n"), 404);
	ck_assert_int_eq(ask(client, "GET /metrics HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
	HAS("\nredlockd_http_requests_total{route=\"healthz\",method=\"GET\",status=\"200\"} 1\n");
	HAS("\nredlockd_http_requests_total{route=\"acquire\",method=\"POST\",status=\"201\"} 1\n");
	HAS("\nredlockd_http_requests_total{route=\"none\",method=\"other\",status=\"404\"} 1\n");
	HAS("\nredlockd_http_connections 1\n");
	HAS("\nredlockd_http_timeouts_total{phase=\"idle\"} 0\n");
	close(client);
}
END_TEST

START_TEST(test_page)
{
	char nonces[2][33], script[128];

	for (int i = 0; i < 2; i++) {
		int client = connect_tcp();
		ck_assert_int_eq(ask(client, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
		HAS("Content-Security-Policy: default-src 'none'; ");
		memcpy(nonces[i], strstr(answer.text, "script-src 'nonce-") + 18, 32);
		nonces[i][32] = '\0';
		snprintf(script, sizeof(script), "<script nonce=\"%s\">", nonces[i]);
		HAS(script);
		HAS_NOT("@NONCE@");
		HAS_NOT("style=\"");
		HAS_NOT("onclick");
		close(client);
	}
	ck_assert_str_ne(nonces[0], nonces[1]);
}
END_TEST

START_TEST(test_version_and_contract)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /version HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("\"version\":\"");
	HAS("\"libmicrohttpd\":\"");
	forget();
	put(client, S("HEAD /openapi.yaml HTTP/1.1\r\n" HOST "\r\n"));
	await(client, 1, true);
	HAS("HTTP/1.1 200 ");
	HAS("Content-Type: application/yaml\r\n");
	close(client);
}
END_TEST

START_TEST(test_library_note)
{
	const char *note = api_library_note();

	if (strncmp(MHD_get_version(), "0.", 2) == 0)
		ck_assert_ptr_nonnull(strstr(note, "framing"));
}
END_TEST

/* ---- deadlines ---- */

static void set_timeouts(uint32_t request_ms, uint32_t idle_ms)
{
	world.config.request_timeout_ms = request_ms;
	world.config.idle_timeout_ms = idle_ms;
	reopen_world();
}

static uint64_t timeouts(enum http_timeout which)
{
	static const char *const names[] = {"request", "answer", "idle"};
	char line[96];
	struct text text;
	uint64_t value;

	text_init(&text);
	http_metrics_render(&text);
	snprintf(line, sizeof(line), "redlockd_http_timeouts_total{phase=\"%s\"} ", names[which]);
	value = strtoull(strstr(text.bytes, line) + strlen(line), NULL, 10);
	text_fini(&text);
	return value;
}

/* Silent, or one byte every few milliseconds: at the deadline it is over. The worker wakes by api_timeout_ms() alone. */
static void dribble(int client, const char *bytes)
{
	uint64_t start_ms = now_ms();

	set_nonblocking(client);
	forget();
	for (size_t i = 0; !answer.closed; i++) {
		ck_assert_msg(now_ms() < start_ms + PATIENCE_MS, "still open");
		if (bytes[0] != '\0')
			(void)!send(client, &bytes[i < strlen(bytes) ? i : strlen(bytes) - 1], 1, MSG_NOSIGNAL);
		if (bytes[0] != '\0')
			poll(NULL, 0, 5);
		turn(client, bytes[0] != '\0' ? 0 : PATIENCE_MS);
		receive(client);
	}
	ck_assert_uint_ge(now_ms() - start_ms, 49);
	ck_assert_uint_lt(now_ms() - start_ms, 1500);
	ck_assert_uint_eq(answer.len, 0);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
}

START_TEST(test_request_deadline)
{
	static const char *const kinds[] = {"", "GET /healthz HTTP/1.1\r\nHost: xxxxxxxxxxxxxxxx", "GET /healthzzzzzzzzz",
					    "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\n    "};

	set_timeouts(50, 60000);
	for (unsigned i = 0; i < 4; i++) {
		dribble(connect_tcp(), kinds[i]);
		dribble(connect_unix(), kinds[i]);
		ck_assert_uint_eq(timeouts(HTTP_TIMEOUT_REQUEST), 2 * i + 2);
	}
}
END_TEST

START_TEST(test_idle_deadline)
{
	set_timeouts(5000, 50);
	int client = connect_tcp();
	ck_assert_int_eq(ask(client, get_healthz), 200);
	dribble(client, "");
	ck_assert_uint_eq(timeouts(HTTP_TIMEOUT_IDLE), 1);
}
END_TEST

/* The wait for the masters is no fault of the client's. */
START_TEST(test_no_deadline_while_working)
{
	set_timeouts(50, 50);
	int client = connect_tcp();
	world.leases.hold = true;
	forget();
	put(client, post_a, sizeof(post_a) - 1);
	uint64_t end_ms = now_ms() + 150;
	while (now_ms() < end_ms)
		turn(client, 10);
	ck_assert_uint_eq(api_busy(world.api), 1);
	world.leases.hold = false;
	await(client, 1, false);
	HAS("HTTP/1.1 201 ");
	close(client);
}
END_TEST

/* Fills what the kernel keeps for the client, so that no answer fits any more. */
static void stuff(int fd)
{
	static const char waste[4096];
	int size = 4096;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	while (send(fd, waste, sizeof(waste), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	while (send(fd, waste, 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
}

/* An answer that is not taken: the connection ends at the deadline, and a lease in it is given back. */
START_TEST(test_answer_deadline)
{
	set_timeouts(80, 60000);
	int client = connect_unix();
	stuff(world.served);
	put(client, post_a, sizeof(post_a) - 1);
	RUN_UNTIL(world.leases.submitted == 1);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(timeouts(HTTP_TIMEOUT_ANSWER), 1);
	ck_assert_uint_eq(world.leases.given_back, 1);
	ck_assert_str_eq(world.leases.last_resource, "a");
	ck_assert_str_eq(world.leases.last_token, TOKEN);
	close(client);
}
END_TEST

/* ---- clients that go away ---- */

static void leave_before_grant(int client, bool half)
{
	world.leases.hold = true;
	put(client, post_a, sizeof(post_a) - 1);
	unsigned submitted = world.leases.submitted;
	RUN_UNTIL(world.leases.submitted == submitted + 1);
	if (half)
		shutdown(client, SHUT_WR);
	else
		close(client);
	turn(-1, 0);
	world.leases.hold = false;
	RUN_UNTIL(world.api->connections == 0);
	if (half)
		close(client);
}

START_TEST(test_gone_before_grant)
{
	leave_before_grant(connect_tcp(), false);
	ck_assert_uint_eq(world.leases.given_back, 1);
	ck_assert_str_eq(world.leases.last_resource, "a");
	ck_assert_str_eq(world.leases.last_token, TOKEN);
	leave_before_grant(connect_tcp(), true);
	ck_assert_uint_eq(world.leases.given_back, 2);
	leave_before_grant(connect_unix(), false);
	ck_assert_uint_eq(world.leases.given_back, 3);
}
END_TEST

/* Nothing was granted, so there is nothing to give back. */
START_TEST(test_gone_before_refusal)
{
	world.leases.answer.status = LEASE_LOCKED;
	leave_before_grant(connect_tcp(), false);
	ck_assert_uint_eq(world.leases.given_back, 0);
}
END_TEST

/* It left while its answer was stuck half-way. */
START_TEST(test_gone_before_answer_was_sent)
{
	int client = connect_unix();

	stuff(world.served);
	put(client, post_a, sizeof(post_a) - 1);
	RUN_UNTIL(api_busy(world.api) == 1 && world.leases.submitted == 1);
	turn(-1, 0);
	ck_assert_uint_eq(world.leases.given_back, 0);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.given_back, 1);
}
END_TEST

START_TEST(test_gone_in_body)
{
	int client = connect_tcp();

	put(client, post_a, sizeof(post_a) - 5);
	RUN_UNTIL(api_busy(world.api) == 1);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.submitted, 0);
}
END_TEST

/* ---- bounds and the end ---- */

START_TEST(test_too_many_connections)
{
	world.config.max_connections = 2;
	reopen_world();
	int one = connect_tcp(), two = connect_tcp();
	ck_assert_int_eq(ask(one, get_healthz), 200);
	int three = connect_tcp();
	ck_assert_int_eq(ask(three, get_healthz), 429);
	assert_code("too-many-requests");
	HAS("Retry-After: 1\r\n");
	RUN_UNTIL((receive(three), answer.closed));
	close(three);
	RUN_UNTIL(world.api->lingering_count == 0);
	ck_assert_int_eq(ask(two, get_healthz), 200);
	close(one);
	RUN_UNTIL(world.api->connections == 1);
	three = connect_tcp();
	ck_assert_int_eq(ask(three, get_healthz), 200);
	close(two);
	close(three);
}
END_TEST

/* Whoever holds refused sockets open holds a bounded number of them for a bounded time. */
START_TEST(test_lingering_bound)
{
	int clients[LINGER_MAX + 20];

	world.config.max_connections = 1;
	reopen_world();
	int first = connect_unix();
	for (size_t i = 0; i < LINGER_MAX + 20; i++)
		clients[i] = connect_unix();
	ck_assert_uint_eq(world.api->lingering_count, LINGER_MAX);
	RUN_UNTIL(world.api->lingering_count == 0);
	for (size_t i = 0; i < LINGER_MAX + 20; i++)
		close(clients[i]);
	close(first);
}
END_TEST

START_TEST(test_drain)
{
	int idle = connect_tcp(), busy = connect_tcp(), fresh = connect_tcp();

	ck_assert_int_eq(ask(idle, get_healthz), 200);
	world.leases.hold = true;
	put(busy, post_a, sizeof(post_a) - 1);
	RUN_UNTIL(world.leases.submitted == 1);
	ck_assert_uint_eq(api_busy(world.api), 1);
	world.leases.draining = true;
	api_drain(world.api);
	forget();
	RUN_UNTIL((receive(idle), answer.closed));
	ck_assert_int_eq(ask(fresh, "GET /readyz HTTP/1.1\r\n" HOST "\r\n"), 503);
	assert_code("draining");
	HAS("Connection: close\r\n");
	HAS("\"quorum\":");
	int more = connect_tcp();
	ck_assert_int_eq(ask(more, post_a), 503);
	assert_code("draining");
	ck_assert_uint_eq(world.leases.submitted, 1);
	world.leases.hold = false;
	forget();
	await(busy, 1, false);
	HAS("HTTP/1.1 201 ");
	HAS("Connection: close\r\n");
	int release = connect_tcp();
	ck_assert_int_eq(ask(release, "DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\r\n\r\n"), 204);
	ck_assert_uint_eq(api_busy(world.api), 0);
	close(idle);
	close(busy);
	close(fresh);
	close(more);
	close(release);
}
END_TEST

/* An idle connection whose next request is already there is still answered. */
START_TEST(test_drain_spares_what_has_arrived)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, get_healthz), 200);
	RUN_UNTIL(world.api->lists[CONNECTION_IDLE].count == 1);
	put(client, get_healthz, sizeof(get_healthz) - 1);
	api_drain(world.api);
	forget();
	await(client, 1, false);
	HAS("HTTP/1.1 200 ");
	HAS("Connection: close\r\n");
	close(client);
}
END_TEST

START_TEST(test_end_answers_the_suspended)
{
	int clients[3];

	world.leases.hold = true;
	for (int i = 0; i < 3; i++) {
		clients[i] = i == 2 ? connect_unix() : connect_tcp();
		put(clients[i], post_a, sizeof(post_a) - 1);
	}
	int listing = connect_tcp();
	put(listing, S("GET /locks HTTP/1.1\r\n" HOST "\r\n"));
	RUN_UNTIL(world.leases.submitted == 3 && world.leases.listed == 1);
	fake_leases_pump(&world.leases); /* held: only tells the fake who is asking */
	reopen_world();
	ck_assert_uint_eq(world.leases.cancelled, 4);
	for (int i = 0; i < 4; i++) {
		forget();
		receive(i < 3 ? clients[i] : listing);
		HAS("HTTP/1.1 503 ");
		assert_code("draining");
		close(i < 3 ? clients[i] : listing);
	}
}
END_TEST

START_TEST(test_end_in_every_phase)
{
	int fresh = connect_tcp(), idle = connect_tcp(), half = connect_tcp(), stuck = connect_unix();

	ck_assert_int_eq(ask(idle, get_healthz), 200);
	put(half, post_a, sizeof(post_a) - 5);
	stuff(world.served);
	put(stuck, post_a, sizeof(post_a) - 1);
	RUN_UNTIL(world.leases.submitted == 1);
	turn(-1, 0);
	reopen_world();
	ck_assert_uint_eq(world.leases.given_back, 1);
	close(fresh);
	close(idle);
	close(half);
	close(stuck);
}
END_TEST

/* Many connections that are suspended, answered and idle by turns: none is passed over. */
START_TEST(test_no_stall)
{
	enum { CLIENTS = 60, ROUNDS = 30 };
	int clients[CLIENTS];

	for (int i = 0; i < CLIENTS; i++)
		clients[i] = i % 2 ? connect_tcp() : connect_unix();
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < CLIENTS; i++) {
			bool lease = (i + round) % 3 != 0;
			put(clients[i], lease ? post_a : get_healthz, (lease ? sizeof(post_a) : sizeof(get_healthz)) - 1);
			if (i % 7 == 0)
				turn(-1, 0);
		}
		turn(-1, 0);
		turn(-1, 0);
		for (int i = 0; i < CLIENTS; i++) {
			forget();
			receive(clients[i]);
			ck_assert_msg(count_answers(false) == 1, "client %d in round %d: %s", i, round, answer.text);
		}
	}
	for (int i = 0; i < CLIENTS; i++)
		close(clients[i]);
}
END_TEST

/* At the lowest level of the log, with tokens in bodies, headers and URLs: none is in it. */
START_TEST(test_log_has_no_tokens)
{
	static char text[256 * 1024];
	char path[] = "/tmp/redlockd-test-log-XXXXXX";
	int file = mkstemp(path), saved = dup(2);
	ssize_t len;

	unlink(path);
	log_setup(LOG_DEBUG, LOG_LOGFMT);
	dup2(file, 2);
	int client = connect_tcp();
	ask(client, post_a);
	ask_body(client, "PUT /locks/a HTTP/1.1\r\n", "{\"token\":\"" TOKEN "\"}");
	ask_body(client, "PUT /locks/a HTTP/1.1\r\n", "{\"" TOKEN "\":\"" TOKEN "\"}");
	ask(client, "DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\r\n\r\n");
	ask(client, "GET /locks/a?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n");
	ask(client, "GET /locks/a?" TOKEN "=1 HTTP/1.1\r\n" HOST "\r\n");
	ask(client, "GET /" TOKEN " HTTP/1.1\r\n" HOST "\r\n");
	ask(client, TOKEN " / HTTP/1.1\r\n" HOST "\r\n");
	exchange(client, S("DELETE /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\0\r\n\r\n"), 1);
	close(client);
	leave_before_grant(connect_tcp(), false);
	log_flush();
	dup2(saved, 2);
	len = pread(file, text, sizeof(text) - 1, 0);
	ck_assert_int_gt(len, 0);
	text[len] = '\0';
	ck_assert_ptr_nonnull(strstr(text, "request"));
	ck_assert_ptr_nonnull(strstr(text, "acquire"));
	ck_assert_msg(strstr(text, "0123456789abcdef") == NULL, "%s", text);
	close(file);
	close(saved);
}
END_TEST

static void add_all(TCase *tests)
{
	tcase_add_test(tests, test_healthz);
	tcase_add_test(tests, test_keep_alive);
	tcase_add_test(tests, test_pipelining);
	tcase_add_test(tests, test_head);
	tcase_add_test(tests, test_answered_in_one_run);
	tcase_add_test(tests, test_one_byte_at_a_time);
	tcase_add_test(tests, test_http_1_0);
	tcase_add_test(tests, test_request_id);
	tcase_add_test(tests, test_method_not_allowed);
	tcase_add_test(tests, test_chunked);
	tcase_add_test(tests, test_expect_continue);
	tcase_add_loop_test(tests, test_rubbish, 0, sizeof(rubbish) / sizeof(rubbish[0]));
	tcase_add_test(tests, test_smuggling_ends_connection);
	tcase_add_test(tests, test_url_limit);
	tcase_add_test(tests, test_header_limits);
	tcase_add_test(tests, test_body_limit);
	tcase_add_test(tests, test_body_limit_early);
	tcase_add_test(tests, test_acquire);
	tcase_add_test(tests, test_extend);
	tcase_add_test(tests, test_release);
	tcase_add_test(tests, test_inspect);
	tcase_add_loop_test(tests, test_outcomes, 0, sizeof(outcomes) / sizeof(outcomes[0]));
	tcase_add_test(tests, test_locked_members);
	tcase_add_test(tests, test_errors_name_fields);
	tcase_add_test(tests, test_origin);
	tcase_add_test(tests, test_list);
	tcase_add_test(tests, test_out_of_memory);
	tcase_add_test(tests, test_readyz);
	tcase_add_test(tests, test_masters);
	tcase_add_test(tests, test_metrics);
	tcase_add_test(tests, test_page);
	tcase_add_test(tests, test_version_and_contract);
	tcase_add_test(tests, test_library_note);
	tcase_add_test(tests, test_request_deadline);
	tcase_add_test(tests, test_idle_deadline);
	tcase_add_test(tests, test_no_deadline_while_working);
	tcase_add_test(tests, test_answer_deadline);
	tcase_add_test(tests, test_gone_before_grant);
	tcase_add_test(tests, test_gone_before_refusal);
	tcase_add_test(tests, test_gone_before_answer_was_sent);
	tcase_add_test(tests, test_gone_in_body);
	tcase_add_test(tests, test_too_many_connections);
	tcase_add_test(tests, test_lingering_bound);
	tcase_add_test(tests, test_drain);
	tcase_add_test(tests, test_drain_spares_what_has_arrived);
	tcase_add_test(tests, test_end_answers_the_suspended);
	tcase_add_test(tests, test_end_in_every_phase);
	tcase_add_test(tests, test_no_stall);
	tcase_add_test(tests, test_log_has_no_tokens);
}

int main(void)
{
	Suite *suite = suite_create("api");
	TCase *tests = tcase_create("api");
	SRunner *runner = srunner_create(suite);

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, open_world, close_world);
	tcase_set_timeout(tests, 30);
	add_all(tests);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
