/* SPDX-License-Identifier: MIT */
/* Lease requests over HTTP: what reaches server/leases, and the answer for each outcome. */
#include <stdio.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

TEST(test_acquire)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n",
				  "{\"resource\":\"orders/4 2\",\"ttl_ms\":1000,\"owner\":\"me\"}"),
			 201);
	HAS("Location: /locks/orders/4%202\r\n");
	HAS("Content-Type: application/json\r\n");
	HAS("\"fence\":9007199254740991,");
	assert_json("",
		    "{\"resource\":\"orders/4 2\",\"token\":\"" TOKEN "\",\"fence\":9007199254740991,\"owner\":\"me\","
		    "\"ttl_ms\":30000,\"validity_ms\":29690,\"drift_ms\":302}");
	ck_assert_int_eq(world.leases.last.operation, LEASE_ACQUIRE);
	ck_assert_uint_eq(world.leases.last.ttl_ms, 1000);
	ck_assert_uint_eq(world.leases.last.wait_ms, 0);
	ck_assert_uint_eq(world.leases.abandoned, 0);
	ck_assert_int_eq(ask(client, post_a), 201);
	assert_json("owner", "");
	ck_assert_uint_eq(world.leases.last.ttl_ms, 30000);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.abandoned, 0);
}

TEST(test_wait)
{
	int client = connect_tcp();

	world.leases.answer.waited_ms = 777;
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"wait_ms\":1234}"), 201);
	ck_assert_uint_eq(world.leases.last.wait_ms, 1234);
	assert_json("waited_ms", "777");
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"wait_ms\":60000}"), 201);
	ck_assert_uint_eq(world.leases.last.wait_ms, 60000);
	ck_assert_int_eq(ask(client, post_a), 201); /* the next request of this connection does not wait */
	ck_assert_uint_eq(world.leases.last.wait_ms, 0);
	HAS_NOT("waited_ms"); /* only in the answer to a request that may wait */
	ck_assert_uint_eq(world.leases.submitted, 3);
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"wait_ms\":60001}"), 201);
	ck_assert_uint_eq(world.leases.last.wait_ms, 60000); /* shortened */
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"wait_ms\":-1}"), 400);
	HAS("{\"field\":\"wait_ms\",\"reason\":\"must not be negative\"}");
	ck_assert_int_eq(ask_body(client, "PUT /locks/a HTTP/1.1\r\n", "{\"token\":\"" TOKEN "\",\"wait_ms\":1}"), 400);
	HAS("\"field\":\"wait_ms\"");
	ck_assert_uint_eq(world.leases.submitted, 4);
	close(client);
}

TEST(test_wait_bound)
{
	world.options.max_wait_ms = 0; /* nobody waits */
	reopen_world();
	int client = connect_tcp();
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"wait_ms\":0}"), 201);
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"wait_ms\":1}"), 201);
	ck_assert_uint_eq(world.leases.last.wait_ms, 0);
	close(client);
}

TEST(test_extend)
{
	int client = connect_tcp();

	world.leases.answer.holder = (struct lease_holder){.known = true, .owner_len = 2, .owner = "me"};
	ck_assert_int_eq(
		ask_body(client, "PUT /locks/orders/4%202 HTTP/1.1\r\n", "{\"token\":\"" TOKEN "\",\"ttl_ms\":1000}"),
		200);
	HAS_NOT("Location");
	assert_json("resource", "\"orders/4 2\"");
	assert_json("owner", "\"me\"");
	assert_json("fence", "9007199254740991");
	ck_assert_int_eq(world.leases.last.operation, LEASE_EXTEND);
	ck_assert_mem_eq(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN);
	ck_assert_int_eq(ask(client, "PUT /locks/a HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\r\n\r\n"), 200);
	ck_assert_uint_eq(world.leases.last.ttl_ms, 30000);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.abandoned, 0);
}

TEST(test_release)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, "DELETE /locks/a/b HTTP/1.1\r\n", "{\"token\":\"" TOKEN "\"}"), 204);
	ck_assert_str_eq(strstr(answer.text, "\r\n\r\n"), "\r\n\r\n");
	ck_assert_int_eq(world.leases.last.operation, LEASE_RELEASE);
	ck_assert_uint_eq(world.leases.last.resource_len, 3);
	ck_assert_int_eq(ask(client, "DELETE /locks/a HTTP/1.1\r\n" HOST "lock-token:" TOKEN "\r\n\r\n"), 204);
	ck_assert_mem_eq(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN);
	ck_assert_int_eq(ask(client, get_healthz), 200);
	close(client);
}

TEST(test_inspect)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, "GET /locks/%F0%9F%94%92 HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_json("resource", "\"\xf0\x9f\x94\x92\"");
	assert_json("held", "false");
	assert_json("waiters", "0"); /* there in every case */
	assert_json("fence", "");
	world.leases.answer.held = world.leases.answer.expires = true;
	world.leases.answer.remaining_ms = 4321;
	world.leases.answer.waiters = UINT32_MAX;
	world.leases.answer.holder = (struct lease_holder){.known = true, .fence = 7, .owner_len = 2, .owner = "me"};
	ck_assert_int_eq(ask(client, "GET /locks/a HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_json("held", "true");
	assert_json("owner", "\"me\"");
	assert_json("fence", "7");
	assert_json("remaining_ms", "4321");
	HAS("\"held_ms\":");
	assert_json("waiters", "4294967295");
	assert_json("votes/needed", "2");
	HAS_NOT(TOKEN);
	/* its fence is ahead of the clock: it is not known since when it is held */
	world.leases.answer.holder.fence = REDLOCK_FENCE_LIMIT - 1;
	ck_assert_int_eq(ask(client, "GET /locks/a HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("\"remaining_ms\"");
	HAS_NOT("held_ms");
	/* held by another program's key, which is not UTF-8 */
	world.leases.answer.holder = (struct lease_holder){.known = true, .owner_len = 2, .owner = "\xff\xfe"};
	ck_assert_int_eq(ask(client, "GET /locks/a HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS_NOT("owner");
	HAS_NOT("fence"); /* not known */
	close(client);
}

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
	{LEASE_TOO_MANY, "POST", 429, "too-many-requests", "1"},
	{LEASE_NOT_OWNER, "PUT", 409, "not-owner", NULL},
	{LEASE_EXPIRED, "PUT", 410, "lease-expired", NULL},
	{LEASE_NO_QUORUM, "PUT", 503, "no-quorum", "2"},
	{LEASE_NOT_OWNER, "DELETE", 409, "not-owner", NULL},
	{LEASE_EXPIRED, "DELETE", 410, "lease-expired", NULL},
	{LEASE_NO_QUORUM, "DELETE", 503, "no-quorum", "2"},
	{LEASE_NO_QUORUM, "GET", 503, "no-quorum", "2"},
};

TEST_EACH(test_outcomes, 0, COUNT(outcomes))
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
	snprintf(line, sizeof(line), "Retry-After: %s\r\n",
		 outcomes[_i].retry_after != NULL ? outcomes[_i].retry_after : "");
	ck_assert_int_eq(strstr(answer.text, outcomes[_i].retry_after != NULL ? line : "Retry-After") != NULL,
			 outcomes[_i].retry_after != NULL);
	if (outcomes[_i].outcome != LEASE_DRAINING && outcomes[_i].outcome != LEASE_TOO_MANY)
		HAS("\"votes\":{\"needed\":2,");
	HAS_NOT(TOKEN);
	close(client);
}

TEST(test_locked_members)
{
	int client = connect_tcp();

	world.leases.answer.status = LEASE_LOCKED;
	world.leases.answer.retry_after_ms = 0;
	world.leases.answer.waited_ms = 7;
	world.leases.answer.holder = (struct lease_holder){
		.known = true, .fence = FAKE_FENCE, .owner_len = 2, .owner = "me"};
	ck_assert_int_eq(ask(client, post_a), 409);
	HAS("Retry-After: 1\r\n");
	HAS("\"holder\":{\"owner\":\"me\",\"fence\":9007199254740991}");
	HAS("\"waited_ms\":7");
	HAS("\"retry_after_ms\":0");
	world.leases.answer.holder.owner_len = 0;
	world.leases.answer.holder.fence = 0; /* not known */
	ck_assert_int_eq(ask(client, post_a), 409);
	HAS("\"holder\":{}");
	world.leases.answer.holder.known = false;
	ck_assert_int_eq(ask(client, post_a), 409);
	HAS_NOT("holder\":");
	close(client);
}

TEST(test_errors_name_fields)
{
	int client = connect_tcp();

	ck_assert_int_eq(
		ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"ttl_ms\":1,\"wait_ms\":\"5\"}"),
		400);
	assert_code("invalid-request");
	HAS("{\"field\":\"ttl_ms\",\"reason\":\"must be from 100 to 60000\"}");
	HAS("{\"field\":\"wait_ms\",\"reason\":\"must be an integer\"}");
	ck_assert_int_eq(ask(client, "GET /locks?limit=x&cursor=y HTTP/1.1\r\n" HOST "\r\n"), 400);
	HAS("\"field\":\"limit\"");
	HAS("\"field\":\"cursor\"");
	ck_assert_int_eq(ask(client, "DELETE /locks/a?force=true HTTP/1.1\r\n" HOST "Lock-Token: no token\r\n\r\n"),
			 400);
	HAS("\"errors\":[{\"field\":\"Lock-Token\",\"reason\":\"must not be there with force\"}]"); /* once */
	ck_assert_uint_eq(world.leases.submitted, 0);
	close(client);
}

TEST(test_origin)
{
	int client = connect_tcp();
	static const char *const good[] = {
		"Origin: http://localhost\r\nContent-Type: application/json\r\n",
		"Origin: http://localhost\r\nContent-Type: Application/JSON; charset=utf-8\r\n",
		"Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"};
	char head[256];

	for (size_t i = 0; i < COUNT(good); i++) {
		snprintf(head, sizeof(head), "POST /locks HTTP/1.1\r\n%s", good[i]);
		ck_assert_int_eq(ask_body(client, head, "{\"resource\":\"a\"}"), 201);
	}
	ck_assert_int_eq(ask(client, "GET /healthz HTTP/1.1\r\n" HOST "Origin: http://localhost\r\n\r\n"), 200);
	HAS_NOT("Access-Control");
	ck_assert_int_eq(ask(client, "GET /healthz HTTP/1.1\r\n" HOST "Origin: http://x\r\n\r\n"), 403);
	assert_code("forbidden");
	HAS_NOT("Access-Control");
	ck_assert_int_eq(ask(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 403);
	close(client);
}

TEST(test_list)
{
	static struct fake_lock states[3];
	int client = connect_tcp();

	states[0] = (struct fake_lock){.resource_len = 3, .resource = "a/b"};
	states[0].answer.held = states[0].answer.expires = true;
	states[0].answer.remaining_ms = 5;
	states[0].answer.waiters = 12;
	states[0].answer.holder = (struct lease_holder){.known = true, .fence = 77};
	states[1] = (struct fake_lock){.resource_len = 2, .resource = "\xff\xfe"}; /* somebody else's key */
	states[2] = (struct fake_lock){.resource_len = 1, .resource = "c"};
	states[2].answer.held = true;
	world.leases.locks = states;
	world.leases.list = (struct lease_list_answer){.status = LEASE_OK, .count = 3, .next = "page-2"};
	ck_assert_int_eq(ask(client, "GET /locks?prefix=a%2F&limit=1000&cursor=page-1 HTTP/1.1\r\n" HOST "\r\n"), 200);
	assert_json("locks/0/fence", "77");
	assert_json("locks/0/waiters", "12");
	assert_json("locks/1/waiters", "0");
	assert_json("locks/2", "");
	assert_json("cursor", "\"page-2\"");
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

/* Go's json.Marshal(nil) writes null for no body. */
TEST(test_null_is_no_body)
{
	static const char release[] = "DELETE /locks/a HTTP/1.1\r\nLock-Token: " TOKEN "\r\n",
			  force[] = "DELETE /locks/a?force=true HTTP/1.1\r\n";
	int client = connect_tcp();

	ck_assert_int_eq(ask_body(client, release, "null"), 204);
	ck_assert_int_eq(ask_body(client, release, " null\n"), 204);
	ck_assert_int_eq(memcmp(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN), 0);
	ck_assert_int_eq(ask_body(client, force, "null"), 204);
	ck_assert_int_eq(world.leases.last.operation, LEASE_FORCE);
	ck_assert_uint_eq(world.leases.submitted, 3);
	ck_assert_int_eq(ask_body(client, force, "{}"), 400);
	HAS("\"field\":\"body\"");
	ck_assert_int_eq(ask_body(client, "DELETE /locks/a HTTP/1.1\r\n", "null"), 400);
	HAS("\"field\":\"token\"");
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "null"), 400);
	ck_assert_uint_eq(world.leases.submitted, 3);
	close(client);
}

/* The fence of the holder that is to be released by force. */
TEST(test_force_with_fence)
{
	static const char *const bad[] = TEXTS("?force=true&fence=", "?force=true&fence=0",
					       "?force=true&fence=9007199254740992", "?force=true&fence=-1",
					       "?force=true&fence=+1", "?force=true&fence=00000000000000001",
					       "?force=true&fence=0x1", "?force=true&fence=1.", "?force=true&fence",
					       "?fence=1&force=true&fence=1", "?fence=1", "?fence=0");
	char head[128];
	int client = connect_tcp();

	for (size_t i = 0; i < COUNT(bad); i++) {
		snprintf(head, sizeof head, "DELETE /locks/a%s HTTP/1.1\r\n" HOST "\r\n", bad[i]);
		ck_assert_int_eq(ask(client, head), 400);
		HAS("\"errors\":[{\"field\":\"fence\"");
	}
	ck_assert_int_eq(ask(client, "DELETE /locks/a?fence=1 HTTP/1.1\r\n" HOST "Lock-Token: " TOKEN "\r\n\r\n"), 400);
	HAS("\"reason\":\"must not be there without force=true\"");
	ck_assert_uint_eq(world.leases.submitted, 0);
	ck_assert_int_eq(ask(client, "DELETE /locks/a?fence=9007199254740991&force=true HTTP/1.1\r\n" HOST "\r\n"),
			 204);
	ck_assert_int_eq(world.leases.last.operation, LEASE_FORCE);
	ck_assert_uint_eq(world.leases.last.fence, 9007199254740991);
	ck_assert_int_eq(ask(client, "DELETE /locks/a?force=true HTTP/1.1\r\n" HOST "\r\n"), 204);
	ck_assert_uint_eq(world.leases.last.fence, 0);
	world.leases.answer.status = LEASE_NOT_OWNER;
	world.leases.answer.holder.known = true;
	ck_assert_int_eq(ask(client, "DELETE /locks/a?force=true&fence=1 HTTP/1.1\r\n" HOST "\r\n"), 409);
	assert_code("not-owner");
	HAS("held with another fence");
	close(client);
}

TEST(test_list_of_an_owner)
{
	static const char longest[] = "GET /locks?owner=";
	char head[sizeof longest + LEASE_OWNER_MAX + 1 + 64];
	int client = connect_tcp();

	world.leases.list = (struct lease_list_answer){.status = LEASE_OK};
	ck_assert_int_eq(ask(client, "GET /locks?owner=a+b%3A%C3%A9&prefix=x HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert(world.leases.last_list.by_owner);
	ck_assert_uint_eq(world.leases.last_list.owner_len, 6);
	ck_assert_mem_eq(world.leases.last_list.owner, "a b:\xc3\xa9", 6);
	ck_assert_uint_eq(world.leases.last_list.prefix_len, 1);
	ck_assert_int_eq(ask(client, "GET /locks?owner= HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert(world.leases.last_list.by_owner && world.leases.last_list.owner_len == 0);
	ck_assert_int_eq(ask(client, "GET /locks HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert(!world.leases.last_list.by_owner);
	for (int more = 0; more < 2; more++) {
		memcpy(head, longest, sizeof longest - 1);
		memset(head + sizeof longest - 1, 'o', LEASE_OWNER_MAX + 1);
		strcpy(head + sizeof longest - 1 + LEASE_OWNER_MAX + more, " HTTP/1.1\r\n" HOST "\r\n");
		ck_assert_int_eq(ask(client, head), more ? 400 : 200);
	}
	HAS("\"errors\":[{\"field\":\"owner\",\"reason\":\"must be at most 128 bytes\"}]");
	ck_assert_uint_eq(world.leases.last_list.owner_len, LEASE_OWNER_MAX);
	ck_assert_int_eq(ask(client, "GET /locks?owner=%0a HTTP/1.1\r\n" HOST "\r\n"), 400);
	HAS("\"field\":\"owner\"");
	ck_assert_int_eq(ask(client, "GET /locks/a?owner=a HTTP/1.1\r\n" HOST "\r\n"), 400);
	close(client);
}

TEST(test_whole_numbers_of_any_form)
{
	int client = connect_tcp();

	ck_assert_int_eq(
		ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"ttl_ms\":6331.0,\"wait_ms\":2e3}"),
		201);
	ck_assert_uint_eq(world.leases.last.ttl_ms, 6331);
	ck_assert_uint_eq(world.leases.last.wait_ms, 2000);
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"resource\":\"a\",\"ttl_ms\":6331.5}"), 400);
	close(client);
}

FIXTURE(open_world, close_world)
