/* SPDX-License-Identifier: MIT */
/* The HTTP side as a whole: connections, requests, and the calls about the service itself. The lease calls are in
 * test_api_calls.c, hostile requests in test_api_rubbish.c, ends of all kinds in test_api_end.c. */
#include <stdio.h>
#include <unistd.h>

#include "api/calls/calls_internal.h"
#include "api_world.h"
#include "suite.h"

/* ---- connections and requests ---- */

TEST(test_healthz)
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

/* The client leaves before we do. */
TEST(test_the_time_that_a_connection_may_be_idle)
{
	static const struct {
		uint32_t idle_timeout_ms;
		const char *header; /* NULL: none */
	} rows[] = {{60000, "Keep-Alive: timeout=54\r\n"},
		    {86400000, "Keep-Alive: timeout=77760\r\n"},
		    {3000, "Keep-Alive: timeout=2\r\n"},
		    {2000, "Keep-Alive: timeout=1\r\n"},
		    {1999, NULL},
		    {100, NULL}};
	static const char *const last[] = {"GET /healthz HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n",
					   "GET /healthz HTTP/1.1\r\n" HOST "Connection: upgrade ,, Close\t\r\n\r\n",
					   "GET /healthz HTTP/1.0\r\n\r\n"};
	int client;

	for (size_t i = 0; i < COUNT(rows); i++) {
		world.options.idle_timeout_ms = rows[i].idle_timeout_ms;
		client = connect_tcp();
		ck_assert_int_eq(ask(client, get_healthz), 200);
		if (rows[i].header) {
			HAS(rows[i].header);
			HAS("Connection: Keep-Alive\r\n");
		} else {
			HAS_NOT("Keep-Alive");
		}
		close(client);
	}
	world.options.idle_timeout_ms = 60000;
	for (size_t i = 0; i < COUNT(last); i++) {
		client = connect_tcp();
		ck_assert_int_eq(ask(client, last[i]), 200);
		HAS_NOT("Keep-Alive");
		close(client);
	}
	client = connect_tcp();
	ck_assert_int_eq(ask(client, "GET /locks/a HTTP/1.1\r\n" HOST "Connection: closed\r\n\r\n"), 200);
	HAS("Keep-Alive: timeout=54\r\n");
	world.options.max_requests_per_connection = 2;
	ck_assert_int_eq(ask(client, get_healthz), 200);
	HAS("Connection: close\r\n");
	HAS_NOT("Keep-Alive");
	close(client);
}

TEST(test_keep_alive)
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

TEST(test_pipelining)
{
	static const char requests[] = "POST /locks HTTP/1.1\r\n" HOST
				       "Content-Length: 16\r\nX-Request-Id: one\r\n\r\n{\"resource\":\"a\"}"
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

TEST(test_head)
{
	int client = connect_tcp();
	static const char head[] = "HEAD /healthz HTTP/1.1\r\n" HOST "\r\n";

	forget();
	put(client, head, sizeof(head) - 1);
	await(client, 1, true);
	ck_assert_int_eq(strncmp(answer.text, "HTTP/1.1 200 ", 13), 0);
	HAS("Content-Length: 15\r\n");
	ck_assert_str_eq(strstr(answer.text, "\r\n\r\n"), "\r\n\r\n");
	ck_assert_int_eq(ask(client, get_healthz), 200); /* the next answer belongs to the next request */
	close(client);
}

/* One api_run() after a resume sends the answer, without another wake-up. */
TEST(test_answered_in_one_run)
{
	int client = connect_tcp();

	for (int i = 0; i < 3; i++) {
		forget();
		put(client, post_a, post_a_len);
		api_run(world.api);
		ck_assert_uint_eq(fake_leases_dispatch(&world.leases), 1);
		api_run(world.api);
		receive(client);
		ck_assert_uint_eq(count_answers(false), 1);
	}
	close(client);
}

TEST(test_one_byte_at_a_time)
{
	int client = connect_unix();

	forget();
	for (size_t i = 0; i < post_a_len; i++) {
		put(client, post_a + i, 1);
		turn(-1, 0);
	}
	await(client, 1, false);
	HAS("HTTP/1.1 201 ");
	close(client);
}

TEST(test_http_1_0)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /healthz HTTP/1.0\r\n\r\n"), 200);
	RUN_UNTIL((receive(client), answer.closed));
	close(client);
}

#define ID_64 "0123456789012345678901234567890123456789012345678901234567890123"

TEST(test_request_id)
{
	static const struct {
		const char *given;
		bool kept;
	} ids[] = {{"abc", true},       {"A.b_c-9", true},       {"a b", false},      {"\"", false},
		   {"'", false},        {"a\\b", false},         {"a=b/c:d~!", true}, {"\xc3\xa4", false},
		   {ID_64 ID_64, true}, {ID_64 ID_64 "x", false}};
	int client = connect_tcp();
	char request[256], line[192];

	for (size_t i = 0; i < COUNT(ids); i++) {
		snprintf(request, sizeof(request), "GET /healthz HTTP/1.1\r\n" HOST "X-Request-Id: %s\r\n\r\n",
			 ids[i].given);
		ck_assert_int_eq(ask(client, request), 200);
		snprintf(line, sizeof(line), "X-Request-Id: %s\r\n", ids[i].given);
		ck_assert_int_eq(strstr(answer.text, line) != NULL, ids[i].kept);
		HAS("X-Request-Id: ");
	}
	close(client);
}

TEST(test_method_not_allowed)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "PATCH /locks HTTP/1.1\r\n" HOST "\r\n"), 405);
	HAS("Allow: POST, PUT, DELETE, GET, HEAD\r\n");
	assert_code("method-not-allowed");
	ck_assert_int_eq(ask(client, "POST /locks/a HTTP/1.1\r\n" HOST "\r\n"), 405);
	HAS("Allow: PUT, DELETE, GET, HEAD\r\n");
	ck_assert_int_eq(ask(client, "OPTIONS /healthz HTTP/1.1\r\n" HOST "\r\n"), 204);
	HAS("Allow: GET, HEAD, OPTIONS\r\n");
	ck_assert_int_eq(ask(client, "OPTIONS /locks/a?force=true HTTP/1.1\r\n" HOST "\r\n"), 204);
	HAS("Allow: PUT, DELETE, GET, HEAD, OPTIONS\r\n");
	ck_assert_int_eq(ask(client, "OPTIONS /nope HTTP/1.1\r\n" HOST "\r\n"), 404);
	ck_assert_int_eq(ask(client, "BREW / HTTP/1.1\r\n" HOST "\r\n"), 405);
	ck_assert_int_eq(ask(client, "GET /nope HTTP/1.1\r\n" HOST "\r\n"), 404);
	assert_code("not-found");
	close(client);
}

TEST(test_chunked)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
				     "8\r\n{\"resour\r\n8\r\nce\":\"a\"}\r\n0\r\nX-Trailer: 1\r\n\r\n"),
			 201);
	ck_assert_uint_eq(world.leases.last.resource_len, 1);
	HAS("Connection: close\r\n");
	close(client);
}

TEST(test_expect_continue)
{
	int client = connect_tcp();
	static const char head[] = "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\nExpect: 100-continue\r\n\r\n";

	exchange(client, head, sizeof(head) - 1, 1);
	HAS("HTTP/1.1 100 ");
	ck_assert_int_eq(ask(client, "{\"resource\":\"a\"}"), 201);
	close(client);
}

/* ---- what the service says about itself ---- */

TEST(test_readyz)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /readyz HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("{\"status\":\"ready\",\"quorum\":{\"needed\":2,\"voting\":3,\"masters\":3}}");
	world.masters.quorum.voting = 1;
	ck_assert_int_eq(ask(client, "GET /readyz HTTP/1.1\r\n" HOST "\r\n"), 503);
	assert_code("no-quorum");
	HAS("\"quorum\":{\"needed\":2,\"voting\":1,\"masters\":3}");
	HAS("Retry-After: 1\r\n");
	HAS_NOT("retry_after_ms"); /* waiting alone does not help */
	close(client);
}

static void quarantine_two_masters(void)
{
	world.masters.quorum = (struct quorum_status){.needed = 2, .voting = 1, .masters = 3, .wait_ms = 41301};
	world.masters.status[1].state = MASTER_QUARANTINED;
	strcpy(world.masters.status[1].reason, "restarted: another server");
	world.masters.status[1].quarantine_remaining_ms = 41301;
	world.masters.status[2].state = MASTER_DOWN;
	strcpy(world.masters.status[2].reason, "connection: refused");
}

TEST(test_readyz_says_why_and_how_long)
{
	int client = connect_tcp();

	quarantine_two_masters();
	ck_assert_int_eq(ask(client, "GET /readyz HTTP/1.1\r\n" HOST "\r\n"), 503);
	assert_code("no-quorum");
	HAS("Retry-After: 42\r\n");
	assert_json("detail",
		    "\"1 of 3 masters may vote, 2 are needed. In 41.3 s enough will. 127.0.0.1:6380 is quarantined: "
		    "restarted: another server. 127.0.0.1:6381 is down: connection: refused.\"");
	assert_json("retry_after_ms", "41301");
	world.masters.quorum.wait_ms = 1000;
	ck_assert_int_eq(ask(client, "GET /readyz HTTP/1.1\r\n" HOST "\r\n"), 503);
	HAS("Retry-After: 1\r\n");
	HAS("\"retry_after_ms\":1000");
	close(client);
}

TEST(test_masters)
{
	int client = connect_tcp();

	world.masters.status[1].state = MASTER_DOWN;
	strcpy(world.masters.status[1].reason, "refused");
	world.masters.status[2].rtt_us = 99;
	world.masters.status[2].warning_count = 1;
	strcpy(world.masters.status[2].warnings[0], "evicts keys");
	ck_assert_int_eq(ask(client, "GET /masters HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_json("masters/0/reason", "null");
	assert_json("masters/0/rtt_us", "null");
	assert_json("masters/1/state", "\"down\"");
	assert_json("masters/1/state_ms", "0");
	assert_json("masters/1/reason", "\"refused\"");
	assert_json("masters/2/rtt_us", "99");
	assert_json("masters/2/warnings", "[\"evicts keys\"]");
	assert_json("masters/3", "");
	for (unsigned i = 0; i < 3; i++) { /* there in every case */
		char path[64];
		snprintf(path, sizeof path, "masters/%u/quarantine_remaining_ms", i);
		assert_json(path, "null");
	}
	close(client);
}

TEST(test_quarantined_masters)
{
	int client = connect_tcp();

	quarantine_two_masters();
	ck_assert_int_eq(ask(client, "GET /masters HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_json("masters/1/state", "\"quarantined\"");
	assert_json("masters/1/reason", "\"restarted: another server\"");
	assert_json("masters/1/quarantine_remaining_ms", "41301");
	assert_json("masters/2/quarantine_remaining_ms", "null");
	world.masters.status[1].quarantine_remaining_ms = 0; /* waiting does not end it */
	ck_assert_int_eq(ask(client, "GET /masters HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS_NOT("41301");
	close(client);
}

TEST(test_metrics)
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

TEST(test_page)
{
	char nonces[2][CALL_NONCE_LEN + 1], script[128];

	for (int i = 0; i < 2; i++) {
		int client = connect_tcp();
		ck_assert_int_eq(ask(client, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
		HAS("Content-Security-Policy: default-src 'none'; ");
		memcpy(nonces[i], strstr(answer.text, "script-src 'nonce-") + 18, CALL_NONCE_LEN);
		nonces[i][CALL_NONCE_LEN] = '\0';
		snprintf(script, sizeof(script), "<script nonce=\"%s\">", nonces[i]);
		HAS(script);
		HAS_NOT("@NONCE@");
		HAS_NOT("style=\"");
		HAS_NOT("onclick");
		close(client);
	}
	ck_assert_str_ne(nonces[0], nonces[1]);
}

TEST(test_version_and_contract)
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

TEST(test_library_note)
{
	const char *note = api_library_defects();

	if (strncmp(MHD_get_version(), "0.", 2) == 0)
		ck_assert_ptr_nonnull(strstr(note, "framing"));
}

FIXTURE(open_world, close_world)
