/* SPDX-License-Identifier: MIT */
/* GET /locks/{resource} that watches: conditions, waits for a change, event streams. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

#define GET(target, headers) "GET " target " HTTP/1.1\r\n" HOST headers "\r\n"
#define STREAM GET("/locks/a", "Accept: text/event-stream\r\n")
#define FREE_STATE "{\"resource\":\"a\",\"held\":false,\"waiters\":0,\"votes\":{"

/* Runs the worker until `text` has come. */
static void await_text(int client, const char *text)
{
	RUN_UNTIL((receive(client), answer.closed || strstr(answer.text, text) != NULL));
	HAS(text);
}

static void begin(int client, const char *request)
{
	forget();
	put(client, request, strlen(request));
	RUN_UNTIL(world.leases.watcher != NULL && in_phase(CONNECTION_WORKING) == 1);
}

/* The state becomes another one: free, or held with this fence. */
static void change(const char *tag, uint64_t fence)
{
	struct lease_watcher *watcher = world.leases.watcher;
	strcpy(watcher->tag, tag);
	watcher->state = world.leases.answer;
	watcher->state.held = fence > 0;
	watcher->state.holder = (struct lease_holder){.known = true, .fence = fence};
	watcher->event(watcher->arg, LEASE_WATCH_CHANGED);
}

static void pass_time(void)
{
	world.leases.watcher->event(world.leases.watcher->arg, LEASE_WATCH_TIME);
}

TEST(condition)
{
	int client = connect_tcp();
	ck_assert_int_eq(ask(client, GET("/locks/a", "")), 200);
	HAS("\r\nETag: \"free\"\r\n");
	ck_assert_int_eq(ask(client, GET("/locks/a", "If-None-Match: \"free\"\r\n")), 304);
	HAS("\r\nETag: \"free\"\r\n");
	HAS_NOT("Content-Type:");
	HAS("\r\nContent-Length: 0\r\n");
	ck_assert_int_eq(ask(client, GET("/locks/a", "If-None-Match: \"7\"\r\n")), 200);
	ck_assert_int_eq(ask(client, GET("/locks/a", "If-None-Match: \"7\", W/\"free\"\r\n")), 304);
	ck_assert_int_eq(ask(client, GET("/locks/a", "If-None-Match: *\r\n")), 304);
	ck_assert_int_eq(ask(client, GET("/locks/a?wait_ms=0", "If-None-Match: \"free\"\r\n")), 304);
	ck_assert_int_eq(ask(client, GET("/locks/a?wait_ms=60000", "")), 200); /* nothing to wait for */
	ck_assert_int_eq(ask(client, GET("/locks/a?wait_ms=-1", "")), 400);
	HAS("must be a whole number");
	ck_assert_uint_eq(world.leases.watched, 0);
	close(client);
}

TEST(a_wait)
{
	int client = connect_tcp();
	begin(client, GET("/locks/a?wait_ms=5000", "If-None-Match: \"7\"\r\n"));
	ck_assert_str_eq(world.leases.watcher->seen, "7");
	ck_assert_str_eq(world.leases.watcher->resource, "a");
	ck_assert_uint_eq(world.leases.watcher->time_ms, 5000);
	change("free", 0);
	ck_assert_ptr_null(world.leases.watcher);
	await_text(client, FREE_STATE);
	HAS("HTTP/1.1 200 OK\r\n");
	HAS("\r\nETag: \"free\"\r\n");
	begin(client, GET("/locks/a?wait_ms=5000", "If-None-Match: \"7\", \"8\"\r\n"));
	change("8", 8); /* one that it knows, too */
	ck_assert_ptr_nonnull(world.leases.watcher);
	pass_time();
	await_text(client, "HTTP/1.1 304");
	HAS("\r\nETag: \"8\"\r\n");
	begin(client, GET("/locks/a?wait_ms=1", "If-None-Match: \"free\"\r\n"));
	pass_time(); /* before the first look */
	RUN_UNTIL((fake_leases_dispatch(&world.leases), receive(client), count_answers(false) == 1));
	HAS("HTTP/1.1 304");
	ck_assert_uint_eq(world.leases.submitted, 1);
	close(client);
}

TEST(no_quorum)
{
	int client = connect_tcp();
	begin(client, GET("/locks/a?wait_ms=5000", "If-None-Match: \"7\"\r\n"));
	world.leases.answer.status = LEASE_NO_QUORUM;
	change("unknown", 0);
	await_text(client, "\"code\":\"no-quorum\"");
	HAS("HTTP/1.1 503");
	close(client);
}

TEST(a_client_that_leaves)
{
	int client = connect_tcp();
	begin(client, GET("/locks/a?wait_ms=5000", "If-None-Match: \"7\"\r\n"));
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_ptr_null(world.leases.watcher);
	client = connect_tcp();
	begin(client, STREAM);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_ptr_null(world.leases.watcher);
}

TEST(a_stream)
{
	int client = connect_tcp();
	begin(client, STREAM);
	ck_assert_str_eq(world.leases.watcher->seen, "");
	ck_assert_uint_eq(world.leases.watcher->time_ms, 15000);
	await_text(client, ":\n\n"); /* the head does not wait for the first event */
	change("free", 0);
	await_text(client, "id: free\ndata: " FREE_STATE);
	HAS("HTTP/1.1 200 OK\r\n");
	HAS("\r\nContent-Type: text/event-stream\r\n");
	HAS("\r\nX-Accel-Buffering: no\r\n");
	HAS_NOT("ETag");
	forget();
	change("8", 8);
	await_text(client, "id: 8\ndata: {\"resource\":\"a\",\"held\":true,\"fence\":8,");
	forget();
	RUN_UNTIL(in_phase(CONNECTION_WORKING) == 1);
	pass_time();
	await_text(client, ":\n\n");
	forget();
	RUN_UNTIL(in_phase(CONNECTION_WORKING) == 1);
	world.leases.answer.status = LEASE_NO_QUORUM;
	change("unknown", 0);
	await_text(client, "id: unknown\nevent: unknown\ndata: {\"resource\":\"a\",\"held\":null,\"votes\":{");
	close(client);
}

/* What came before the client took it is told as one state. */
TEST(states_in_between)
{
	int client = connect_tcp();
	begin(client, STREAM);
	change("7", 7);
	change("free", 0);
	change("8", 8);
	await_text(client, "id: 8\n");
	HAS_NOT("id: 7");
	HAS_NOT("id: free");
	close(client);
}

TEST(the_last_event)
{
	int client = connect_tcp();
	begin(client, GET("/locks/a", "Accept: text/event-stream\r\nLast-Event-ID: 7\r\n"));
	ck_assert_str_eq(world.leases.watcher->seen, "7");
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	client = connect_tcp();
	begin(client, GET("/locks/a", "Accept: text/event-stream\r\nLast-Event-ID: "
				      "0123456789012345678901234567890123456789\r\n"));
	ck_assert_str_eq(world.leases.watcher->seen, "");
	close(client);
}

static int ask_with(const char *name, const char *before, size_t len, const char *after)
{
	char request[1024], filler[256];
	int client = connect_tcp();
	memset(filler, '1', len);
	snprintf(request, sizeof request, GET("/locks/a", "%s: %s%.*s%s\r\n"), name, before, (int)len, filler, after);
	int status = ask(client, request);
	close(client);
	return status;
}

/* Lengths as in openapi.yaml. */
TEST(a_tag_that_is_too_long)
{
	ck_assert_int_eq(ask_with("Last-Event-ID", "", 125, ""), 200);
	ck_assert_int_eq(ask_with("Last-Event-ID", "", 126, ""), 400);
	HAS("{\"field\":\"Last-Event-ID\",\"reason\":\"must be at most 125 bytes\"}");
	ck_assert_int_eq(ask_with("Accept: text/event-stream\r\nLast-Event-ID", "", 126, ""), 400);
	ck_assert_int_eq(ask_with("If-None-Match", "\"free\", \"", 117, "\""), 304);
	ck_assert_int_eq(ask_with("If-None-Match", "\"free\", \"", 118, "\""), 400);
	HAS("{\"field\":\"If-None-Match\",\"reason\":\"must be at most 127 bytes\"}");
}

/* RFC 9110, 12.5.1: a stream only where it is named, and JSON is not wanted as much. */
TEST(negotiation)
{
	static const char *const streams[] = TEXTS(
		"text/event-stream", "Text/Event-Stream", "text/event-stream;charset=utf-8",
		"text/event-stream, application/problem+json", "application/problem+json , text/event-stream ; q=0.5",
		"text/event-stream, */*", "text/event-stream, */*;q=0.1",
		"text/event-stream, text/*;q=0, application/*;q=0", "application/json;q=0.9, text/event-stream",
		"application/json;q=0, text/event-stream;q=0.001",
		"application/json;q=0.5, */*;q=0.9, text/event-stream;q=0.6",
		"application/json;q=0.999\r\nAccept: text/event-stream;Q=1.000",
		"a/b;c=\"x, application/json, \\\", \", text/event-stream");
	static const char *const others[] = TEXTS(
		"", "*/*", "text/*", "text/html, text/*;q=0.9, */*;q=0.8", "application/json",
		"application/json, text/event-stream", "text/event-stream,application/json",
		"text/event-stream, application/*", "application/json, text/event-stream;q=0.5",
		"application/json\r\nAccept: text/event-stream", "text/event-stream;q=0",
		"text/event-stream;q=0.000, application/json;q=0", "text/event-stream;q=0.5, */*",
		"text/event-stream;q=2", "text/event-stream;q=", "text/event-stream;q=0.5555",
		"text/event-stream;q=x, */*", "text/event-streams", "xtext/event-stream", "a/b;c=text/event-stream",
		"a/b;c=\"text/event-stream, text/event-stream\"", "text/event-stream;a=\"", "text/event-stream x",
		"text /event-stream");

	for (size_t i = 0; i < COUNT(streams) + COUNT(others); i++) {
		bool is_stream = i < COUNT(streams);
		const char *accept = is_stream ? streams[i] : others[i - COUNT(streams)];
		char request[512];
		int client = connect_tcp();
		snprintf(request, sizeof request, GET("/locks/a", "Accept: %s\r\n"), accept);
		unsigned watched = world.leases.watched;
		forget();
		put(client, request, strlen(request));
		RUN_UNTIL((fake_leases_dispatch(&world.leases), receive(client),
			   strstr(answer.text, "\r\n\r\n") != NULL));
		HAS("HTTP/1.1 200 OK\r\n");
		ck_assert_msg(world.leases.watched - watched == is_stream, "%s", accept);
		ck_assert_msg((strstr(answer.text, is_stream ? "Content-Type: text/event-stream\r\n"
							     : "Content-Type: application/json\r\n") != NULL),
			      "%s: %s", accept, answer.text);
		close(client);
		RUN_UNTIL(world.api->connections == 0);
	}
}

TEST(ends)
{
	int client = connect_tcp(), other;
	begin(client, STREAM);
	world.leases.watcher->event(world.leases.watcher->arg, LEASE_WATCH_DRAINING);
	RUN_UNTIL((receive(client), answer.closed));
	ck_assert(!answer.reset);
	HAS("\r\n0\r\n");
	other = connect_tcp();
	begin(other, GET("/locks/a?wait_ms=5000", "If-None-Match: \"7\"\r\n"));
	world.leases.watcher->event(world.leases.watcher->arg, LEASE_WATCH_DRAINING);
	await_text(other, "\"code\":\"draining\"");
	world.leases.watch_full = true;
	ck_assert_int_eq(ask(other, STREAM), 429);
	HAS("\r\nRetry-After: 1\r\n");
	close(client);
	close(other);
}

/* The api ends under both. */
TEST(the_end_of_the_api)
{
	int client = connect_tcp();
	begin(client, STREAM);
	reopen_world();
	ck_assert_ptr_null(world.leases.watcher);
	close(client);
	client = connect_tcp();
	begin(client, GET("/locks/a?wait_ms=5000", "If-None-Match: \"7\"\r\n"));
	reopen_world();
	ck_assert_ptr_null(world.leases.watcher);
	close(client);
}

TEST(head_watches_nothing)
{
	int client = connect_tcp();
	exchange(client, S("HEAD /locks/a HTTP/1.1\r\n" HOST "Accept: text/event-stream\r\n\r\n"), 0);
	RUN_UNTIL((fake_leases_dispatch(&world.leases), receive(client), count_answers(true) == 1));
	HAS("HTTP/1.1 200 OK\r\n");
	ck_assert_uint_eq(world.leases.watched, 0);
	close(client);
}

FIXTURE(open_world, close_world)
