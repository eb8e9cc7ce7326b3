/* SPDX-License-Identifier: MIT */
/* How connections end: deadlines, clients that disconnect, too many connections, draining and the end of the api. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api_world.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"
#include "suite.h"

/* ---- deadlines ---- */

/* Of a deadline that a test lets pass, after steps of its own that take less, also on a busy machine. */
enum { SHORT_MS = 400 };

static void set_timeouts(uint32_t request_ms, uint32_t idle_ms)
{
	world.options.request_timeout_ms = request_ms;
	world.options.idle_timeout_ms = idle_ms;
	reopen_world();
}

static uint64_t timeouts(const char *phase)
{
	char line[96];
	struct text page;
	uint64_t value;

	text_init(&page);
	metrics_render(&page);
	snprintf(line, sizeof(line), "redlockd_http_timeouts_total{phase=\"%s\"} ", phase);
	value = strtoull(strstr(page.bytes, line) + strlen(line), NULL, 10);
	text_fini(&page);
	return value;
}

/* A client that is silent, or sends one byte every few milliseconds, is cut off at the deadline. Only api_timeout_ms()
 * wakes the worker. */
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
	/* An idle connection's time began with its answer, before this. */
	ck_assert_uint_ge(now_ms() - start_ms, SHORT_MS / 2);
	ck_assert_uint_lt(now_ms() - start_ms, PATIENCE_MS / 2);
	ck_assert_uint_eq(answer.len, 0);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
}

TEST(test_request_deadline)
{
	static const char *const kinds[] = {"", "GET /healthz HTTP/1.1\r\nHost: xxxxxxxxxxxxxxxx",
					    "GET /healthzzzzzzzzz",
					    "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\n    "};

	set_timeouts(SHORT_MS, 60000);
	for (unsigned i = 0; i < 4; i++) {
		dribble(connect_tcp(), kinds[i]);
		dribble(connect_unix(), kinds[i]);
		ck_assert_uint_eq(timeouts("request"), 2 * i + 2);
	}
}

TEST(test_idle_deadline)
{
	set_timeouts(60000, SHORT_MS);
	int client = connect_tcp();
	ck_assert_int_eq(ask(client, get_healthz), 200);
	dribble(client, "");
	ck_assert_uint_eq(timeouts("idle"), 1);
}

/* No deadline runs while the masters are asked. */
TEST(test_no_deadline_while_working)
{
	set_timeouts(SHORT_MS, SHORT_MS);
	int client = connect_tcp();
	world.leases.hold = true;
	forget();
	put(client, post_a, post_a_len);
	uint64_t end_ms = now_ms() + 3 * SHORT_MS;
	while (now_ms() < end_ms)
		turn(client, 10);
	ck_assert_uint_eq(api_busy(world.api), 1);
	world.leases.hold = false;
	await(client, 1, false);
	HAS("HTTP/1.1 201 ");
	close(client);
}

/* Fills the buffers of the socket, so that no answer fits into them. */
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

/* If the client does not take the answer, the connection ends at the deadline. A lease in it stays, because it is not
 * known how much of the answer arrives. */
TEST(test_answer_deadline)
{
	set_timeouts(SHORT_MS, 60000);
	int client = connect_unix();
	stuff(world.served);
	put(client, post_a, post_a_len);
	RUN_UNTIL(world.leases.submitted == 1);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(timeouts("answer"), 1);
	ck_assert_uint_eq(world.leases.abandoned, 0);
	close(client);
}

/* ---- clients that disconnect ---- */

static void leave_before_grant(int client, bool half)
{
	world.leases.hold = true;
	put(client, post_a, post_a_len);
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

TEST(test_disconnect_before_grant)
{
	leave_before_grant(connect_tcp(), false);
	ck_assert_uint_eq(world.leases.abandoned, 1);
	ck_assert_str_eq(world.leases.last_resource, "a");
	ck_assert_str_eq(world.leases.last_token, TOKEN);
	leave_before_grant(connect_tcp(), true);
	ck_assert_uint_eq(world.leases.abandoned, 2);
	leave_before_grant(connect_unix(), false);
	ck_assert_uint_eq(world.leases.abandoned, 3);
}

/* Nothing was granted, so nothing is released. */
TEST(test_disconnect_before_refusal)
{
	world.leases.answer.status = LEASE_LOCKED;
	leave_before_grant(connect_tcp(), false);
	ck_assert_uint_eq(world.leases.abandoned, 0);
}

/* The client disconnects while its answer is half-way: the lease stays. */
TEST(test_disconnect_before_answer_was_sent)
{
	int client = connect_unix();

	stuff(world.served);
	put(client, post_a, post_a_len);
	RUN_UNTIL(api_busy(world.api) == 1 && world.leases.submitted == 1);
	turn(-1, 0);
	ck_assert_uint_eq(world.leases.abandoned, 0);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.abandoned, 0);
}

/* An unread next request does not hide that the client has disconnected. It is not read while one is under way. */
TEST(test_disconnect_behind_a_next_request)
{
	for (int i = 0; i < 2; i++) {
		int client = i == 0 ? connect_tcp() : connect_unix();
		world.leases.hold = true;
		put(client, post_a, post_a_len);
		RUN_UNTIL(world.leases.submitted == (unsigned)i + 1);
		put(client, get_healthz, get_healthz_len);
		close(client);
		turn(-1, 0);
		world.leases.hold = false;
		RUN_UNTIL(world.api->connections == 0);
		ck_assert_uint_eq(world.leases.abandoned, (unsigned)i + 1);
	}
}

/* ---- a lease outlives the connection on which it was granted ---- */

enum ending { CLIENT_CLOSES, CLIENT_RESETS, CLIENT_HALF_CLOSES, IDLE_DEADLINE, SPENT, DRAIN, API_FREE, ENDINGS };

static void end_connection(int client, enum ending ending)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};

	if (ending == CLIENT_RESETS)
		setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	if (ending == CLIENT_CLOSES || ending == CLIENT_RESETS)
		close(client);
	else if (ending == CLIENT_HALF_CLOSES)
		shutdown(client, SHUT_WR);
	else if (ending == DRAIN)
		api_drain(world.api);
	else if (ending == API_FREE)
		reopen_world();
	RUN_UNTIL(world.api->connections == 0 && world.api->lingering_count == 0);
	if (ending != CLIENT_CLOSES && ending != CLIENT_RESETS)
		close(client);
}

/* `_i` encodes how the connection ends, whether another request came before, over which socket, and whether the client
 * has read the answer. */
TEST_EACH(test_a_written_grant_stays, 0, 8 * ENDINGS)
{
	enum ending ending = (enum ending)(_i % ENDINGS);
	bool later = _i / ENDINGS % 2, local = _i / ENDINGS / 2 % 2, reads = _i / ENDINGS / 4;

	world.options.idle_timeout_ms = ending == IDLE_DEADLINE ? SHORT_MS : 60000;
	world.options.max_requests_per_connection = ending != SPENT ? 0 : later ? 2 : 1;
	reopen_world();
	int client = local ? connect_unix() : connect_tcp();
	if (later)
		ck_assert_int_eq(ask(client, get_healthz), 200);
	forget();
	put(client, post_a, post_a_len);
	RUN_UNTIL(world.leases.submitted == 1 && api_busy(world.api) == 0);
	if (reads) {
		await(client, 1, false);
		HAS("HTTP/1.1 201 ");
	}
	end_connection(client, ending);
	ck_assert_uint_eq(world.leases.abandoned, 0);
	ck_assert_uint_eq(world.leases.cancelled, 0);
}

/* ---- bounds and the end ---- */

TEST(test_too_many_connections)
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

/* Refused sockets stay open in a bounded number, for a bounded time. */
TEST(test_lingering_bound)
{
	int clients[3 * LINGER_MAX]; /* each lingers for a second: enough of them also on a busy machine */
	size_t most = 0;

	world.config.max_connections = 1;
	reopen_world();
	int first = connect_unix();
	for (size_t i = 0; i < 3 * LINGER_MAX; i++) {
		clients[i] = connect_unix();
		most = MAX(most, world.api->lingering_count);
	}
	ck_assert_uint_eq(most, LINGER_MAX);
	RUN_UNTIL(world.api->lingering_count == 0);
	for (size_t i = 0; i < 3 * LINGER_MAX; i++)
		close(clients[i]);
	close(first);
}

/* A socket does not linger once its client has closed. */
TEST(test_lingering_ends_with_its_client)
{
	world.config.max_connections = 1;
	reopen_world();
	int first = connect_unix(), refused = connect_unix();

	ck_assert_uint_eq(world.api->lingering_count, 1);
	forget();
	receive(refused); /* what is left unread would be a reset */
	close(refused);
	errno = EAGAIN; /* of an earlier call */
	connection_sweep_lingering(world.api, world.api->lingering_look_us, false);
	ck_assert_uint_eq(world.api->lingering_count, 0);
	close(first);
}

TEST(test_drain)
{
	int idle = connect_tcp(), busy = connect_tcp(), fresh = connect_tcp();

	ck_assert_int_eq(ask(idle, get_healthz), 200);
	world.leases.hold = true;
	put(busy, post_a, post_a_len);
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

/* An idle connection whose next request is already there is still answered. */
TEST(test_drain_spares_what_has_arrived)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, get_healthz), 200);
	RUN_UNTIL(in_phase(CONNECTION_IDLE) == 1);
	put(client, get_healthz, get_healthz_len);
	api_drain(world.api);
	forget();
	await(client, 1, false);
	HAS("HTTP/1.1 200 ");
	HAS("Connection: close\r\n");
	close(client);
}

TEST(test_end_answers_the_suspended)
{
	int clients[3];

	world.leases.hold = true;
	for (int i = 0; i < 3; i++) {
		clients[i] = i == 2 ? connect_unix() : connect_tcp();
		put(clients[i], post_a, post_a_len);
	}
	int listing = connect_tcp();
	put(listing, S("GET /locks HTTP/1.1\r\n" HOST "\r\n"));
	RUN_UNTIL(world.leases.submitted == 3 && world.leases.listed == 1);
	fake_leases_dispatch(&world.leases); /* held: the fake only learns which requests there are */
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

TEST(test_end_in_every_phase)
{
	int fresh = connect_tcp(), idle = connect_tcp(), half = connect_tcp(), stuck = connect_unix();

	ck_assert_int_eq(ask(idle, get_healthz), 200);
	put(half, post_a, post_a_len - 4);
	stuff(world.served);
	put(stuck, post_a, post_a_len);
	RUN_UNTIL(world.leases.submitted == 1);
	turn(-1, 0);
	reopen_world();
	ck_assert_uint_eq(world.leases.abandoned, 0); /* part of the stuck answer was sent */
	close(fresh);
	close(idle);
	close(half);
	close(stuck);
}

/* No token in a body, a header or a URL is logged, not even at the lowest level. */
TEST(test_log_has_no_tokens)
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

FIXTURE(open_world, close_world)
