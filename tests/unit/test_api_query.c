/* SPDX-License-Identifier: MIT */
/* Queries that the HTTP library must not split, and connections that it ends without the end of their request. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

static const char wait_a[] = "POST /locks HTTP/1.1\r\n" HOST
			     "Content-Length: 32\r\n\r\n{\"resource\":\"a\",\"wait_ms\":60000}";
static const char hold_a[] = "POST /locks HTTP/1.1\r\n" HOST
			     "Content-Length: 28\r\n\r\n{\"resource\":\"a\",\"hold\":true}";

/* ---- the end of a request that the library swallows ---- */

static unsigned swallow; /* how many ends of requests are not reported from now on */
static unsigned swallowed;

void __real_request_end(struct request *request, enum MHD_RequestTerminationCode how);
void __wrap_request_end(struct request *request, enum MHD_RequestTerminationCode how);

/* The linker puts it in the place of request_end() (--wrap). */
void __wrap_request_end(struct request *request, enum MHD_RequestTerminationCode how)
{
	if (swallow > 0 && request->state != REQUEST_NONE) {
		swallow--;
		swallowed++;
		return;
	}
	__real_request_end(request, how);
}

static void swallow_next_end(void)
{
	swallow = 1;
	swallowed = 0;
}

static void expect_all_released(void)
{
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(swallowed, 1);
	ck_assert_uint_eq(api_busy(world.api), 0);
	for (size_t i = 0; i < FAKE_OPS_MAX; i++)
		ck_assert(!world.leases.ops[i].used && !world.leases.listings[i].used);
	ck_assert_uint_eq(fake_holds_count(&world.holds), 0);
	int client = connect_tcp();
	ck_assert_int_eq(ask(client, get_healthz), 200);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
}

TEST(test_end_while_receiving)
{
	static const char *const parts[] = {
		"GET /healthz?a HTTP/1.1\r\nHo", "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\n\r\n{\"re",
		"POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"re"};

	for (size_t i = 0; i < COUNT(parts); i++) {
		int client = connect_tcp();
		swallow_next_end();
		put(client, parts[i], strlen(parts[i]));
		RUN_UNTIL(in_phase(CONNECTION_RECEIVING) > 0 &&
			  TAILQ_FIRST(&world.api->lists[CONNECTION_RECEIVING])->requests > 0);
		close(client);
		expect_all_released();
	}
}

TEST(test_end_while_waiting)
{
	int client = connect_tcp();

	world.leases.hold = true;
	swallow_next_end();
	put(client, S(wait_a));
	RUN_UNTIL(world.leases.submitted == 1);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.cancelled, 1);
	world.leases.hold = false;
	expect_all_released();
	ck_assert_uint_eq(world.leases.abandoned, 0);
}

/* The lease was granted, and its client disconnected before the answer was written. */
TEST(test_end_with_a_grant_not_written)
{
	int client = connect_tcp();

	world.leases.hold = true;
	swallow_next_end();
	put(client, post_a, post_a_len);
	RUN_UNTIL(world.leases.submitted == 1);
	close(client);
	world.leases.hold = false;
	expect_all_released();
	ck_assert_uint_eq(world.leases.abandoned, 1);
	ck_assert_str_eq(world.leases.last_token, TOKEN);
}

TEST(test_end_of_a_held_connection)
{
	int client = connect_tcp();

	exchange(client, S(hold_a), 1);
	HAS("HTTP/1.1 201 ");
	ck_assert_uint_eq(fake_holds_count(&world.holds), 1);
	swallow_next_end();
	close(client);
	expect_all_released();
	ck_assert_uint_eq(world.holds.released, 1);
}

/* The end is not reported, and the library goes on with the next request of the connection. */
TEST(test_next_request_ends_the_one_before)
{
	int client = connect_tcp();

	swallow_next_end();
	ck_assert_int_eq(ask(client, get_healthz), 200);
	ck_assert_int_eq(ask(client, get_healthz), 200);
	close(client);
	expect_all_released();
}

/* ---- queries ---- */

enum { QUERY_MOST = 2000 };

/* GET /healthz? and so many ampersands. */
static size_t write_query(char *request, const char *before, unsigned count, const char *headers)
{
	size_t len = (size_t)sprintf(request, "GET %s", before);

	memset(request + len, '&', count);
	return len + count + (size_t)sprintf(request + len + count, " HTTP/1.1\r\n%s\r\n", headers);
}

static const unsigned counts[] = {0, 1, 64, 300, 376, 377, 378, 400, 1000, QUERY_MOST};

static void try_query(int client, unsigned count, const char *headers, int status)
{
	char request[QUERY_MOST + 200];

	exchange(client, request, write_query(request, "/healthz?", count, headers), 1);
	ck_assert_msg(answer.len > 12 && atoi(answer.text + 9) == status, "%u: %s", count, answer.text);
	if (status != 200 && strstr(headers, "Host") != NULL) /* the 1.0 series answers by itself where there is none */
		assert_code(status == 400 ? "invalid-request" : "forbidden");
}

/* No byte of the query reaches the library's pool: at each length redlockd answers, while others wait and are
 * answered. */
TEST(test_query_of_many_parts)
{
	int waiter = connect_tcp(), other = connect_tcp();

	world.leases.hold = true;
	put(waiter, S(wait_a));
	RUN_UNTIL(world.leases.submitted == 1);
	for (size_t i = 0; i < COUNT(counts); i++) {
		int tcp = connect_tcp(), local = connect_unix(), hostless = connect_tcp();
		int status = counts[i] == 0 ? 200 : 400;
		try_query(tcp, counts[i], HOST, status);
		/* the next one of the connection */
		try_query(tcp, counts[i], HOST "Origin: http://evil.test\r\n", 403);
		try_query(local, counts[i], HOST, status);
		try_query(hostless, counts[i], "", 400);
		ck_assert_int_eq(ask(other, get_healthz), 200);
		close(tcp);
		close(local);
		close(hostless);
		RUN_UNTIL(world.api->connections == 2);
	}
	ck_assert_uint_eq(world.leases.submitted, 1);
	world.leases.hold = false;
	forget();
	await(waiter, 1, false);
	HAS("HTTP/1.1 201 ");
	close(waiter);
	close(other);
	RUN_UNTIL(world.api->connections == 0);
}

/* The whole query arrives. */
TEST(test_query_is_read_in_full)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /locks?prefix=a%26b&limit=7 HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert_uint_eq(world.leases.last_list.limit, 7);
	ck_assert_uint_eq(world.leases.last_list.prefix_len, 3);
	ck_assert_int_eq(memcmp(world.leases.last_list.prefix, "a&b", 3), 0);
	ck_assert_int_eq(ask(client, "GET /locks? HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert_int_eq(ask(client, "GET /locks?? HTTP/1.1\r\n" HOST "\r\n"), 400);
	close(client);
}

/* A NUL in the target hides the query behind it from redlockd, and not from the library of the 0.9 series: the pool is
 * full, and the connection may end without an answer. */
TEST(test_query_behind_a_nul)
{
	for (size_t i = 0; i < COUNT(counts); i++) {
		char request[QUERY_MOST + 200];
		int client = connect_tcp();
		size_t len = write_query(request, "/-?", counts[i], HOST);
		*strchr(request, '-') = '\0';
		forget();
		put(client, request, len);
		shutdown(client, SHUT_WR);
		RUN_UNTIL((receive(client), answer.closed));
		ck_assert_msg(answer.len == 0 || answer.text[9] == '4', "%s", answer.text);
		close(client);
		RUN_UNTIL(world.api->connections == 0);
	}
	int client = connect_tcp();
	ck_assert_int_eq(ask(client, get_healthz), 200);
	close(client);
}

FIXTURE(open_world, close_world)
