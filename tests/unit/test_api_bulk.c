/* SPDX-License-Identifier: MIT */
/* PUT and DELETE on /locks with `leases`: which bodies are accepted, which field an error names, what reaches
 * server/leases, and the answer. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

#define PUT "PUT /locks HTTP/1.1\r\n"
#define DELETE "DELETE /locks HTTP/1.1\r\n"
#define A "{\"resource\":\"a\",\"token\":\"" TOKEN "\"}"
#define B "{\"token\":\"" TOKEN "\",\"resources\":[\"c\",\"b\"]}"

static int client;
static char body[80 * 1024], request[sizeof body + 256];

static void set_up(void)
{
	open_world();
	client = connect_unix();
}

static void tear_down(void)
{
	close(client);
	close_world();
}
FIXTURE(set_up, tear_down)

/* A body with so many leases, each with `item`, padded with blanks to `len` bytes. */
static void write_body(size_t count, const char *item, size_t len)
{
	size_t at = (size_t)sprintf(body, "{\"leases\":[");
	for (size_t i = 0; i < count; i++)
		at += (size_t)sprintf(body + at, "%s%s", i > 0 ? "," : "", item);
	at += (size_t)sprintf(body + at, "]}");
	while (at < len)
		body[at++] = ' ';
	body[at] = '\0';
}

/* Sends it in pieces: it is larger than the buffer of the socket. */
static int ask_large(const char *head)
{
	size_t sent = 0, len = (size_t)snprintf(request, sizeof request, "%s" HOST "Content-Length: %zu\r\n\r\n%s",
						head, strlen(body), body);
	uint64_t end_ms = now_ms() + PATIENCE_MS;
	forget();
	while (sent < len && !answer.closed) {
		ssize_t put_now = send(client, request + sent, len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		sent += put_now > 0 ? (size_t)put_now : 0;
		ck_assert_msg(now_ms() < end_ms, "the body is not read");
		turn(client, 10);
		receive(client);
	}
	await(client, 1, false);
	return atoi(answer.text + 9);
}

/* ---- bodies ---- */

static const struct {
	const char *body, *field; /* NULL: it is good */
} bodies[] = {
	{"{\"leases\":[" A "]}", NULL},
	{" { \"leases\" :\r\n[ " A " ,\t" B " ] } ", NULL},
	{"{\"le\\u0061ses\":[" A "," B "]}", NULL},
	{"{\"leases\":[{\"res\\u006furce\":\"}]{\\\"\",\"token\":\"" TOKEN "\"}]}", NULL},
	{"{\"leases\":[{\"resource\":\"a\",\"resources\":[],\"token\":\"" TOKEN "\"}]}", NULL},
	/* some generated clients always send both lists */
	{"{\"resources\":[],\"leases\":[" A "]}", NULL},
	{"{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"leases\":[]}", NULL},
	/* the list */
	{"{\"leases\":[]}", "leases"},
	{"{\"leases\":null}", "leases"},
	{"{\"leases\":{\"token\":\"" TOKEN "\"}}", "leases"},
	{"{\"leases\":[" A "],\"leases\":[" A "]}", "leases"},
	{"{\"leases\":[" A ",]}", "body"},
	{"{\"leases\":[" A "]", "body"},
	{"{\"leases\":[" A "]}x", "body"},
	{"[" A "]", "body"},
	/* beside others */
	{"{\"leases\":[" A "],\"resource\":\"a\"}", "resource"},
	{"{\"resources\":[\"a\",\"b\"],\"leases\":[" A "]}", "resources"},
	{"{\"leases\":[" A "],\"token\":\"" TOKEN "\"}", "token"},
	{"{\"ttl_ms\":1000,\"leases\":[" A "]}", "ttl_ms"},
	{"{\"leases\":[" A "],\"x\":1}", "x"},
	/* an item */
	{"{\"leases\":[" A ",1]}", "leases[1]"},
	{"{\"leases\":[" A ",null]}", "leases[1]"},
	{"{\"leases\":[" A ",[]]}", "leases[1]"},
	{"{\"leases\":[" A ",{]}", "body"},
	{"{\"leases\":[" A ",{\"token\":[}]}", "leases[1]"},
	{"{\"leases\":[" A ",{}]}", "leases[1].resource"},
	{"{\"leases\":[" A "," B ",{\"resource\":\"a\"}]}", "leases[2].token"},
	{"{\"leases\":[{\"token\":\"" TOKEN "\"}]}", "leases[0].resource"},
	{"{\"leases\":[{\"resource\":\"a\",\"resource\":\"a\",\"token\":\"" TOKEN "\"}]}", "leases[0].resource"},
	{"{\"leases\":[{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"token\":\"" TOKEN "\"}]}", "leases[0].token"},
	{"{\"leases\":[{\"resource\":\"a\",\"token\":\"f\"}]}", "leases[0].token"},
	{"{\"leases\":[{\"resource\":\"a/../b\",\"token\":\"" TOKEN "\"}]}", "leases[0].resource"},
	{"{\"leases\":[{\"resources\":[\"a\",1],\"token\":\"" TOKEN "\"}]}", "leases[0].resources[1]"},
	{"{\"leases\":[{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"owner\":\"me\"}]}", "leases[0].owner"},
	{"{\"leases\":[{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"leases\":[]}]}", "leases[0].leases"},
	{"{\"leases\":[{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"\":1}]}", "leases[0].?"},
	{"{\"leases\":[{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"abcdefghijabcdefghijabcdefghijab\":1}]}",
	 "leases[0].abcdefghijabcdefghijabcdefghijab"},
};

TEST_EACH(test_bodies, 0, 2 * sizeof bodies / sizeof *bodies)
{
	const char *field = bodies[_i / 2].field;
	char found[64];
	int status = ask_body(client, _i % 2 ? PUT : DELETE, bodies[_i / 2].body);
	if (!field) {
		ck_assert_msg(status == 200 || status == 204, "%s", answer.text);
		return;
	}
	ck_assert_msg(status == 400, "%s", answer.text);
	snprintf(found, sizeof found, "\"%s\"", field);
	assert_json("errors/0/field", found);
	ck_assert_uint_eq(world.leases.submitted, 0);
}

TEST(test_bounds)
{
	static const char other[] = "{\"leases\":[" A ",{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"ttl_ms\":99}]}";
	for (size_t count = 255; count <= 257; count++) {
		write_body(count, A, 0);
		unsigned before = world.leases.submitted;
		ck_assert_int_eq(ask_large(PUT), count <= 256 ? 200 : 400);
		ck_assert_uint_eq(world.leases.submitted - before, count <= 256 ? count : 0);
	}
	assert_json("errors/0/field", "\"leases\"");
	unsigned before = world.leases.submitted;
	ck_assert_int_eq(ask_body(client, PUT, other), 400);
	assert_json("errors/0/field", "\"leases[1].ttl_ms\"");
	ck_assert_int_eq(ask_body(client, "PUT /locks HTTP/1.1\r\nLock-Token: " TOKEN "\r\n", "{\"leases\":[" A "]}"),
			 400);
	assert_json("errors/0/field", "\"Lock-Token\"");
	ck_assert_int_eq(ask_body(client, "PUT /locks/a HTTP/1.1\r\n", "{\"leases\":[" A "]}"), 400);
	assert_json("errors/0/field", "\"leases\"");
	ck_assert_int_eq(ask_body(client, "DELETE /locks?force=true HTTP/1.1\r\n", "{\"leases\":[" A "]}"), 400);
	assert_json("errors/0/field", "\"leases\"");
	ck_assert_int_eq(ask_body(client, "POST /locks HTTP/1.1\r\n", "{\"leases\":[" A "]}"), 400);
	assert_json("errors/0/field", "\"leases\"");
	ck_assert_uint_eq(world.leases.submitted, before);
}

/* The errors are as many as those of one body. */
TEST(test_many_errors)
{
	write_body(256, "{}", 0);
	ck_assert_int_eq(ask_body(client, PUT, body), 400);
	assert_json("errors/7/field", "\"leases[3].token\"");
	assert_json("errors/8", "");
}

TEST(test_sizes)
{
	write_body(1, A, REQUEST_LARGE_BODY_MAX);
	ck_assert_int_eq(ask_large(PUT), 200);
	ck_assert_int_eq(ask_large(DELETE), 200);
	memcpy(body, "{\"resource\":", 12); /* without leases the bound is lower */
	ck_assert_int_eq(ask_large(PUT), 413);
	assert_code("too-large");
	write_body(1, A, REQUEST_BODY_MAX + 1);
	ck_assert_int_eq(ask_large(PUT), 200);
	ck_assert_int_eq(ask_large("PUT /locks/a HTTP/1.1\r\n"), 413);
	ck_assert(answer.closed || strstr(answer.text, "Connection: close"));
	ck_assert_uint_eq(world.leases.submitted, 3);
}

TEST_EACH(test_too_large, 0, 4)
{
	static const char *const heads[] = {PUT, "POST /locks HTTP/1.1\r\n", "DELETE /locks?force=true HTTP/1.1\r\n",
					    "DELETE /locks HTTP/1.1\r\n"};
	write_body(1, A, _i % 3 == 0 ? REQUEST_LARGE_BODY_MAX + 1 : REQUEST_BODY_MAX + 1);
	ck_assert_int_eq(ask_large(heads[_i]), 413);
	HAS(_i % 3 == 0 ? "larger than 65536 bytes" : "larger than 16384 bytes");
	ck_assert_uint_eq(world.leases.submitted, 0);
}

/* ---- answers ---- */

TEST(test_extend)
{
	world.leases.answer.holder = (struct lease_holder){.known = true, .owner_len = 2, .owner = "me"};
	ck_assert_int_eq(ask_body(client, PUT,
				  "{\"leases\":[{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"ttl_ms\":1000}," B "]}"),
			 200);
	HAS("Content-Type: application/json\r\n");
	assert_json("leases/0",
		    "{\"resource\":\"a\",\"token\":\"" TOKEN "\",\"fence\":9007199254740991,\"owner\":\"me\","
		    "\"ttl_ms\":30000,\"validity_ms\":29690,\"drift_ms\":302,\"waiters\":0}");
	assert_json("leases/1/resources", "[\"c\",\"b\"]");
	assert_json("leases/2", "");
	ck_assert_uint_eq(world.leases.submitted, 2);
	ck_assert_int_eq(world.leases.last.operation, LEASE_EXTEND);
	ck_assert_uint_eq(world.leases.last.ttl_ms, 30000);
	ck_assert_uint_eq(world.leases.last.set_count, 2);
	ck_assert_int_eq(memcmp(world.leases.last.token, TOKEN, LEASE_TOKEN_LEN), 0);
}

TEST(test_release)
{
	ck_assert_int_eq(ask_body(client, DELETE, "{\"leases\":[" A "," B "]}"), 200);
	assert_json("",
		    "{\"leases\":[{\"status\":204,\"resource\":\"a\"},{\"status\":204,\"resources\":[\"c\",\"b\"]}]}");
	ck_assert_int_eq(world.leases.last.operation, LEASE_RELEASE);
}

TEST(test_problems)
{
	static const struct {
		enum lease_status status;
		const char *head, *wanted;
	} cases[] = {
		{LEASE_NOT_OWNER, PUT, "\"status\":409,\"detail\":\"Another holder"},
		{LEASE_EXPIRED, PUT, "\"code\":\"lease-expired\",\"votes\":{\"needed\":2,"},
		{LEASE_EXPIRED, DELETE, "There is nothing left to release."},
		{LEASE_NO_QUORUM, PUT, "\"code\":\"no-quorum\",\"retry_after_ms\":777,\"votes\":{"},
		{LEASE_NO_QUORUM, DELETE, "If the lease is not released, it ends by itself."},
		{LEASE_DRAINING, PUT, "\"code\":\"draining\"}"},
	};
	world.leases.answer.retry_after_ms = 777;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		world.leases.answer.status = cases[i].status;
		ck_assert_int_eq(ask_body(client, cases[i].head, "{\"leases\":[" A "]}"), 200);
		HAS(cases[i].wanted);
		HAS("{\"leases\":[{\"type\":\"/docs/errors#");
		HAS_NOT("Retry-After:");
	}
}

static void send_two(void)
{
	static const char two[] = "{\"leases\":[" A "," B "]}";
	world.leases.hold = true;
	forget();
	put(client, request, (size_t)sprintf(request, PUT HOST "Content-Length: %zu\r\n\r\n%s", sizeof two - 1, two));
	RUN_UNTIL(world.leases.submitted == 2);
}

/* The requests of one call may share commands to the masters. */
TEST(test_more_follow)
{
	send_two();
	ck_assert(world.leases.ops[0].request.more && !world.leases.ops[1].request.more);
	world.leases.hold = false;
	await(client, 1, false);
}

/* The rate counts each lease. More than a burst are taken if it is full. */
TEST(test_rate)
{
	close(client);
	client = connect_tcp();
	world.options.max_rate_per_address = 4;
	ck_assert_int_eq(ask_body(client, PUT, "{\"leases\":[" A "," A "," A "]}"), 200);
	ck_assert_int_eq(ask_body(client, PUT, "{\"leases\":[" A "," A "," A "]}"), 429);
	HAS("Retry-After: 1\r\n");
	HAS("each lease counts as one");
	ck_assert_uint_eq(world.leases.submitted, 3);
}

TEST(test_rate_below_the_leases)
{
	close(client);
	client = connect_tcp();
	world.options.max_rate_per_address = 4;
	ck_assert_int_eq(ask_body(client, PUT, "{\"leases\":[" A "," A "," A "," A "," A "," A "," A "," A "]}"), 200);
	ck_assert_int_eq(ask(client, get_healthz), 429);
	ck_assert_uint_eq(world.leases.submitted, 8);
}

/* ---- the end of a call ---- */

TEST(test_ends_meanwhile)
{
	send_two();
	api_free(world.api); /* cancels both, and answers */
	receive(client);
	HAS(" 503 ");
	HAS("\"code\":\"draining\"");
	for (size_t i = 0; i < 2; i++)
		ck_assert(!world.leases.ops[i].used);
	world.api = api_new(&world.config);
}

TEST(test_client_leaves)
{
	send_two();
	close(client);
	client = connect_unix();
	world.leases.hold = false; /* both are carried out */
	RUN_UNTIL(!world.leases.ops[0].used && !world.leases.ops[1].used);
	ck_assert_uint_eq(world.leases.cancelled, 0);
}
