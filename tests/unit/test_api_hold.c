/* SPDX-License-Identifier: MIT */
/* Locks held by a connection: the stream of lines, its end from either side, and clients that do not read. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

#define BODY(text) "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 28\r\n\r\n" text

static const char hold_a[] = BODY("{\"resource\":\"a\",\"hold\":true}");
static const char first_line[] = "{\"event\":\"acquired\",\"resource\":\"a\",\"token\":\"" TOKEN
				 "\",\"fence\":9007199254740991,\"ttl_ms\":30000,"
				 "\"validity_ms\":29690,\"drift_ms\":302}\n";

/* Runs the worker until `text` has come. */
static void await_text(int client, const char *text)
{
	uint64_t end_ms = now_ms() + PATIENCE_MS;

	for (receive(client); strstr(answer.text, text) == NULL; receive(client)) {
		ck_assert_msg(now_ms() < end_ms && !answer.closed, "no %s; so far: %s", text, answer.text);
		turn(client, 50);
	}
}

static void await_end(int client)
{
	RUN_UNTIL((receive(client), answer.closed));
	ck_assert(!answer.reset);
}

static int hold(int client)
{
	forget();
	put(client, S(hold_a));
	await_text(client, first_line);
	RUN_UNTIL(in_phase(CONNECTION_WORKING) == fake_holds_count(&world.holds)); /* all are suspended */
	return client;
}

static void expect_ended(unsigned released, unsigned left)
{
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.holds.released, released);
	ck_assert_uint_eq(world.holds.left, left);
	ck_assert_uint_eq(world.leases.abandoned, 0);
	ck_assert_uint_eq(fake_holds_count(&world.holds), 0);
}

static void leave(int client, unsigned released, unsigned left)
{
	close(client);
	expect_ended(released, left);
}

/* Granted, but the first line is not written yet. */
static int grant(void)
{
	int client = connect_tcp();

	world.leases.hold = true;
	forget();
	put(client, S(hold_a));
	RUN_UNTIL(world.leases.submitted == 1);
	world.leases.hold = false;
	ck_assert_uint_eq(fake_leases_dispatch(&world.leases), 1);
	return client;
}

static void tell(enum hold_event event, enum lease_status code)
{
	fake_holds_tell(&world.holds, event, code);
}

TEST(head_and_first_line)
{
	int client = hold(connect_tcp());

	HAS("HTTP/1.1 201 Created\r\n");
	HAS("\r\nLocation: /locks/a\r\n");
	HAS("\r\nContent-Type: application/x-ndjson\r\n");
	HAS("\r\nCache-Control: no-store\r\n");
	HAS("\r\nTransfer-Encoding: chunked\r\n");
	HAS("\r\nConnection: close\r\n");
	HAS_NOT("Content-Length");
	ck_assert_uint_eq(world.holds.made, 1);
	ck_assert_mem_eq(world.holds.items[0].answer.token, TOKEN, LEASE_TOKEN_LEN);
	ck_assert(TAILQ_FIRST(&world.api->lists[CONNECTION_WORKING])->watched);
	ck_assert_uint_eq(api_busy(world.api), 1);       /* a drain waits for the stream */
	ck_assert_int_eq(api_timeout_ms(world.api), -1); /* no deadline while there is nothing to read */
	leave(client, 1, 0);
}

TEST(lines_in_order)
{
	int client = hold(connect_unix());

	tell(HOLD_RENEWED, LEASE_OK);
	await_text(client, "{\"event\":\"renewed\",\"validity_ms\":29690,\"waiters\":0}\n");
	world.holds.validity_ms = 1234;
	world.holds.waiters = 2;
	world.holds.is_wanted = true;
	forget();
	tell(HOLD_RENEWED, LEASE_OK);
	await_text(client, "{\"event\":\"renewed\",\"validity_ms\":1234,\"waiters\":2}\n");
	await_text(client, "{\"event\":\"wanted\",\"waiters\":2}\n");
	forget();
	world.holds.is_wanted = true;
	tell(HOLD_WANTED, LEASE_OK);
	await_text(client, "{\"event\":\"wanted\",\"waiters\":2}\n");
	forget();
	tell(HOLD_LOST, LEASE_NOT_OWNER);
	await_end(client);
	HAS("\r\n{\"event\":\"lost\",\"code\":\"not-owner\"}\n\r\n0\r\n\r\n");
	leave(client, 0, 1);
}

static const struct {
	enum hold_event event;
	enum lease_status code;
	const char *line;
} ends[] = {
	{HOLD_LOST, LEASE_EXPIRED, "{\"event\":\"lost\",\"code\":\"lease-expired\"}\n"},
	{HOLD_LOST, LEASE_NOT_OWNER, "{\"event\":\"lost\",\"code\":\"not-owner\"}\n"},
	{HOLD_LOST, LEASE_NO_QUORUM, "{\"event\":\"lost\",\"code\":\"no-quorum\"}\n"},
	{HOLD_DRAINING, LEASE_OK, "{\"event\":\"draining\",\"validity_ms\":29690}\n"},
};

TEST_EACH(last_lines, 0, COUNT(ends))
{
	int client = hold(connect_tcp());

	tell(HOLD_RENEWED, LEASE_OK); /* not sent yet when the end comes: the last line replaces it */
	tell(ends[_i].event, ends[_i].code);
	await_end(client);
	HAS(ends[_i].line);
	HAS_NOT("renewed");
	HAS("\r\n0\r\n\r\n");
	leave(client, 0, 1);
}

TEST(http_1_0)
{
	static const char request[] =
		"POST /locks HTTP/1.0\r\nContent-Length: 28\r\n\r\n{\"resource\":\"a\",\"hold\":true}";
	int client = connect_tcp();

	forget();
	put(client, S(request));
	await_text(client, "\r\n\r\n");
	await_text(client, first_line);
	RUN_UNTIL(in_phase(CONNECTION_WORKING) == 1);
	tell(HOLD_RENEWED, LEASE_OK);
	await_text(client, "\n{\"event\":\"renewed\",\"validity_ms\":29690,\"waiters\":0}\n");
	RUN_UNTIL(in_phase(CONNECTION_WORKING) == 1);
	tell(HOLD_LOST, LEASE_EXPIRED);
	await_end(client);
	HAS("\n{\"event\":\"lost\",\"code\":\"lease-expired\"}\n");
	HAS_NOT("chunked");
	leave(client, 0, 1);
}

TEST(not_granted)
{
	int client = connect_tcp();

	world.leases.answer.status = LEASE_LOCKED;
	exchange(client, S(hold_a), 1);
	HAS("HTTP/1.1 409");
	assert_code("locked");
	ck_assert_uint_eq(world.holds.made, 0);
	world.leases.answer.status = LEASE_OK;
	hold(client); /* on the same connection */
	leave(client, 1, 0);
}

TEST(false_is_no_stream)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"hold\":false}"), 201);
	HAS("Content-Type: application/json\r\n");
	ck_assert_uint_eq(world.holds.made, 0);
	close(client);
}

TEST(longest_names)
{
	char resource[2 * LEASE_RESOURCE_MAX + 1] = "", owner[2 * LEASE_OWNER_MAX + 1] = "", body[1024], line[2048];
	int client = connect_tcp();

	for (size_t i = 0; i < LEASE_RESOURCE_MAX; i++)
		strcat(resource, "\\\"");
	for (size_t i = 0; i < LEASE_OWNER_MAX; i++)
		strcat(owner, "\\\\");
	snprintf(body, sizeof(body), "{\"resource\":\"%s\",\"owner\":\"%s\",\"hold\":true}", resource, owner);
	snprintf(line, sizeof(line), "POST /locks HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s", strlen(body),
		 body);
	forget();
	put(client, line, strlen(line));
	snprintf(line, sizeof(line),
		 "{\"event\":\"acquired\",\"resource\":\"%s\",\"token\":\"" TOKEN
		 "\",\"fence\":9007199254740991,\"owner\":\"%s\",",
		 resource, owner);
	await_text(client, line);
	await_text(client, "\"drift_ms\":302}\n");
	leave(client, 1, 0);
}

TEST(client_leaves_before_its_answer)
{
	int client = connect_tcp();

	world.leases.hold = true;
	put(client, S(hold_a));
	RUN_UNTIL(world.leases.submitted == 1);
	close(client);
	world.leases.hold = false;
	expect_ended(1, 0);
}

TEST(lost_before_the_first_line)
{
	int client = grant();

	tell(HOLD_LOST, LEASE_NO_QUORUM);
	await_end(client);
	HAS(first_line);
	HAS("{\"event\":\"lost\",\"code\":\"no-quorum\"}\n");
	leave(client, 0, 1);
}

TEST(half_closed_client)
{
	int client = hold(connect_tcp());

	shutdown(client, SHUT_WR);
	expect_ended(1, 0);
	await_end(client);
	HAS_NOT("\r\n0\r\n\r\n"); /* the stream is cut and does not end */
	close(client);
}

TEST(client_leaves_as_it_is_lost)
{
	int client = hold(connect_tcp());

	tell(HOLD_LOST, LEASE_EXPIRED);
	close(client);
	api_check_disconnects(world.api);
	expect_ended(0, 1);
}

/* A client that disconnects before it reads of the drain does not keep its lease. */
TEST(client_leaves_before_the_drain_is_told)
{
	int client = hold(connect_tcp());

	close(client);
	api_check_disconnects(world.api);
	tell(HOLD_DRAINING, LEASE_OK);
	expect_ended(1, 0);
}

static void narrow(int client)
{
	int size = 1;

	ck_assert_int_eq(setsockopt(world.served, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	ck_assert_int_eq(setsockopt(client, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
}

/* Renewals until the client's socket takes no more. */
static unsigned stuff(void)
{
	unsigned lines = 0;

	for (; in_phase(CONNECTION_ANSWERING) == 0; lines++) {
		tell(HOLD_RENEWED, LEASE_OK);
		for (int i = 0; i < 3; i++)
			turn(-1, 0);
		ck_assert_uint_lt(lines, 100000);
	}
	return lines;
}

/* A connection that does not accept a line in time is closed, which releases the lock. */
TEST(client_that_does_not_read)
{
	world.options.request_timeout_ms = 500; /* in which the request is read, too */
	reopen_world();
	int client = connect_unix();

	narrow(client);
	hold(client);
	stuff();
	for (int i = 0; i < 1000; i++) /* nothing piles up */
		tell(HOLD_RENEWED, LEASE_OK);
	expect_ended(1, 0);
	close(client);
}

/* A client that reads again in time gets the current validity, once. */
TEST(client_that_reads_late)
{
	int client = connect_unix();
	unsigned lines, seen = 0;

	narrow(client);
	hold(client);
	lines = stuff();
	for (int i = 0; i < 1000; i++)
		tell(HOLD_RENEWED, LEASE_OK);
	world.holds.validity_ms = 777;
	forget();
	await_text(client, "{\"event\":\"renewed\",\"validity_ms\":777,\"waiters\":0}\n");
	for (const char *at = answer.text; (at = strstr(at, "renewed")) != NULL; at++)
		seen++;
	ck_assert_uint_le(seen, lines + 1);
	RUN_UNTIL(in_phase(CONNECTION_WORKING) == 1);
	tell(HOLD_LOST, LEASE_EXPIRED);
	await_end(client);
	HAS("{\"event\":\"lost\",\"code\":\"lease-expired\"}\n");
	leave(client, 0, 1);
}

/* A client that has not read the last line of a drain keeps its lease: it may still be there. */
TEST(drain_and_a_client_that_does_not_read)
{
	world.options.request_timeout_ms = 500; /* in which the request is read, too */
	reopen_world();
	int client = connect_unix();

	narrow(client);
	hold(client);
	stuff();
	tell(HOLD_DRAINING, LEASE_OK);
	expect_ended(0, 1);
	close(client);
}

TEST(end_of_the_service)
{
	int client = hold(connect_tcp()), other = connect_unix();

	hold(other);
	forget();
	reopen_world();
	await_end(client);
	HAS("{\"event\":\"draining\",\"validity_ms\":29690}\n");
	HAS("\r\n0\r\n\r\n");
	forget();
	await_end(other);
	HAS("{\"event\":\"draining\",\"validity_ms\":29690}\n");
	close(client);
	close(other);
	expect_ended(0, 2);
}

TEST(end_of_the_service_with_a_client_that_does_not_read)
{
	int client = connect_unix();

	narrow(client);
	hold(client);
	stuff();
	reopen_world();
	expect_ended(0, 1);
	close(client);
}

TEST(end_of_the_service_with_a_new_grant)
{
	int client = grant();

	reopen_world();
	await_end(client);
	HAS(first_line);
	HAS("draining");
	leave(client, 0, 1);
}

/* Bytes that the client sent meanwhile are discarded, so that a reset does not lose the last line. */
TEST(client_that_talks_on)
{
	int client = hold(connect_tcp());

	put(client, get_healthz, get_healthz_len);
	tell(HOLD_LOST, LEASE_EXPIRED);
	await_end(client);
	HAS("{\"event\":\"lost\",\"code\":\"lease-expired\"}\n");
	HAS_NOT("200 OK");
	leave(client, 0, 1);
}

/* Not longer than a short lease; a long one is not released then (test_vanished.py). */
TEST(vanished_hosts)
{
	static const struct {
		const char *body;
		unsigned timeout_ms;
	} rows[] = {{"{\"resource\":\"a\",\"hold\":true}", 5000},
		    {"{\"resource\":\"a\",\"hold\":true,\"ttl_ms\":2000}", 2000},
		    {"{\"resource\":\"a\",\"hold\":true,\"ttl_ms\":100}", 1000}};

	for (unsigned i = 0; i < COUNT(rows); i++) {
		unsigned timeout_ms = 0;
		socklen_t len = sizeof timeout_ms;
		char request[200];
		int client = connect_tcp();
		snprintf(request, sizeof request, "POST /locks HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s",
			 strlen(rows[i].body), rows[i].body);
		forget();
		put(client, request, strlen(request));
		await_text(client, "acquired");
		RUN_UNTIL(in_phase(CONNECTION_WORKING) == 1);
		ck_assert_int_eq(getsockopt(world.served, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &len), 0);
		ck_assert_uint_eq(timeout_ms, rows[i].timeout_ms);
		leave(client, i + 1, 0);
	}
}

FIXTURE(open_world, close_world)
