/* SPDX-License-Identifier: MIT */
/* Contradictory and oversized requests: bytes sent, status expected, and nothing reaches the leases. Malformed ones are
 * the rows of tests/e2e/malformed/. */
#include <stdio.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

/* A body that would be granted a lease if it were read as chunked. */
#define CHUNKED "10\r\n{\"resource\":\"a\"}\r\n0\r\n\r\n"

/* Sends it on a new connection: there is one answer, which announces the end of the connection. */
static void expect_one_answer(const char *request)
{
	int client = connect_tcp();

	exchange(client, request, strlen(request), 2);
	ck_assert(answer.closed && !answer.reset);
	ck_assert_uint_eq(count_answers(false), 1);
	HAS("Connection: close\r\n");
	close(client);
}

/* Blanks after "chunked", which RFC 9112 allows: the 0.9 series does not recognise it then, and would wait for a body
 * until the connection ends. Such a request is either rejected, and nothing after it is carried out, or understood. */
TEST(test_blanks_behind_chunked)
{
	static const char *const blanks[] = {" ", "\t", "  ", " \t "};
	char request[1024];

	for (size_t i = 0; i < COUNT(blanks); i++) {
		unsigned before = world.leases.submitted;
		snprintf(request, sizeof request,
			 "POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked%s\r\n\r\n" CHUNKED "%s", blanks[i],
			 post_a);
		expect_one_answer(request);
		bool refused = strncmp(answer.text, "HTTP/1.1 400 ", 13) == 0;
		ck_assert_msg(refused || strncmp(answer.text, "HTTP/1.1 201 ", 13) == 0, "%s", answer.text);
		ck_assert_uint_eq(world.leases.submitted - before, refused ? 0 : 1);
	}
}

/* The 0.9 series accepts a bare LF between chunks, and other programs may not: nothing after a chunked request is
 * read. */
TEST(test_chunked_ends_the_connection)
{
	static const char *const bodies[] = {CHUNKED, "10\n{\"resource\":\"a\"}\n0\n\n",
					     "10;x=\n{\"resource\":\"a\"}\r\n0\r\n\r\n", "0\r\n\r\n"};
	static const char *const lines[] = {"POST /locks", "GET /locks/a", "DELETE /locks/a", "GET /nothing"};
	char request[1024];

	for (size_t i = 0; i < COUNT(bodies) * COUNT(lines); i++) {
		unsigned before = world.leases.submitted;
		snprintf(request, sizeof request, "%s HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n%s%s",
			 lines[i / COUNT(bodies)], bodies[i % COUNT(bodies)], post_a);
		expect_one_answer(request);
		ck_assert_uint_le(world.leases.submitted - before, 1);
	}
	RUN_UNTIL(world.api->connections == 0);
}

/* RFC 9112, 3.2.2 and 3.2.4. */
TEST(test_other_forms_of_a_target)
{
	int client = connect_tcp(), foreign = connect_tcp();

	ck_assert_int_eq(ask(client, "GET http://localhost/healthz HTTP/1.1\r\n" HOST "\r\n"), 200);
	/* the authority counts */
	ck_assert_int_eq(ask(client, "GET HTTPS://127.0.0.1:1/healthz HTTP/1.1\r\nHost: evil.test\r\n\r\n"), 200);
	ck_assert_int_eq(ask(client, "GET http://localhost HTTP/1.1\r\n" HOST "\r\n"), 200);
	HAS("Content-Type: text/html");
	ck_assert_int_eq(ask(client, "GET http://localhost?a=b HTTP/1.1\r\n" HOST "\r\n"), 400);
	ck_assert_int_eq(ask(client, "GET http://[::1]/locks?limit=7&prefix=x HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert_uint_eq(world.leases.last_list.limit, 7);
	ck_assert_int_eq(ask(client, "GET http://localhost/locks/a%2Fb HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert_int_eq(memcmp(world.leases.last.resource, "a/b", 3), 0);
	ck_assert_int_eq(
		ask(client, "GET http://localhost/healthz HTTP/1.1\r\n" HOST "Origin: http://localhost\r\n\r\n"), 200);
	ck_assert_int_eq(
		ask(client, "GET http://127.0.0.1/healthz HTTP/1.1\r\n" HOST "Origin: http://localhost\r\n\r\n"), 403);
	ck_assert_int_eq(ask(foreign, "GET http://evil.test/healthz HTTP/1.1\r\n" HOST "\r\n"), 403);
	assert_code("forbidden");
	exchange(client, S("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), 1);
	HAS("HTTP/1.1 204 ");
	HAS("Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n");
	ck_assert_int_eq(ask(client, "OPTIONS * HTTP/1.1\r\nHost: evil.test\r\n\r\n"), 403);
	close(client);
	close(foreign);
}

#define BODY_OF(length) "POST /locks HTTP/1.1\r\n" HOST "Content-Length: " length "\r\n\r\n{\"resource\":\"a\"}"
#define CHUNK_OF(length) \
	"POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n" length "\r\n{\"resource\":\"a\"}"

/* The largest that is allowed, and one byte more; far larger ones are rows of tests/e2e/malformed/. */
static const struct {
	int status;
	const char *before;
	unsigned count;
	const char *repeated, *after;
} limits[] = {
	{404, "GET /", 2047, "x", " HTTP/1.1\r\n" HOST "\r\n"},
	{414, "GET /", 2048, "x", " HTTP/1.1\r\n" HOST "\r\n"},
	{200, "GET /healthz HTTP/1.1\r\n" HOST, 63, "A: b\r\n", "\r\n"},
	{431, "GET /healthz HTTP/1.1\r\n" HOST, 64, "A: b\r\n", "\r\n"},
	{200, "GET /healthz HTTP/1.1\r\n" HOST "A: ", 8170, "x", "\r\n\r\n"},
	{431, "GET /healthz HTTP/1.1\r\n" HOST "A: ", 8171, "x", "\r\n\r\n"},
	{201, BODY_OF("16384"), 16368, " ", ""},
	{413, BODY_OF("16385"), 16369, " ", ""},
	{201, CHUNK_OF("4000"), 16368, " ", "\r\n0\r\n\r\n"},
	{413, CHUNK_OF("4001"), 16369, " ", "\r\n0\r\n\r\n"},
};

TEST_EACH(test_limits, 0, COUNT(limits))
{
	static char request[20000];
	int client = connect_unix(), status = limits[_i].status;
	size_t len = (size_t)sprintf(request, "%s", limits[_i].before);

	for (unsigned i = 0; i < limits[_i].count; i++)
		len += (size_t)sprintf(request + len, "%s", limits[_i].repeated);
	len += (size_t)sprintf(request + len, "%s", limits[_i].after);
	exchange(client, request, len, 1);
	ck_assert_int_eq(atoi(answer.text + 9), status);
	if (status == 413)
		HAS("Connection: close\r\n");
	if (status > 404)
		assert_code("too-large");
	ck_assert_uint_eq(world.leases.submitted, status == 201);
	close(client);
	RUN_UNTIL(world.api->connections == 0 && world.api->lingering_count == 0);
}

/* The status of a request with the largest target and headers that are allowed, `count` cookies among them, and with
 * the longest head of an answer. */
static int ask_cookies(unsigned count, unsigned lines)
{
	static char request[16 * 1024];
	static const char fixed[] =
		"Origin: http://page.test\r\nContent-Type: application/json\r\nContent-Length: 271\r\n";
	int client = connect_unix(), status;
	size_t len = (size_t)sprintf(request, "POST /locks?"),
	       room = 8192 - sizeof(HOST) - sizeof(fixed) - 20 - lines * 6;

	memset(request + len, '&', lines % 2 == 0 ? 0 : 2000); /* then it is answered 400 */
	len += lines % 2 == 0 ? 0 : 2000;
	len += (size_t)sprintf(request + len, " HTTP/1.1\r\n" HOST "%s", fixed);
	for (unsigned i = 0; i < lines; i++)
		len += (size_t)sprintf(request + len, "Nm: \r\n");
	len += (size_t)sprintf(request + len, "Cookie: a=");
	for (unsigned i = 0; i < count; i++)
		len += (size_t)sprintf(request + len, "%s%0*u", i > 0 ? "; a=" : "", (int)(room / count) - 4, i);
	len += (size_t)sprintf(request + len, "\r\n\r\n{\"resource\":\"");
	memset(request + len, ' ', 256); /* three bytes each in Location */
	strcpy(request + len + 256, "\"}");
	status = ask(client, request);
	close(client);
	return status;
}

/* The library copies each cookie into the pool of the connection, from which the head of our answer is made as well. */
TEST(test_many_cookies)
{
	static const unsigned lines[] = {0, 1, 20, 58, 59};

	world.options.allow_origins = (struct options_names){.count = 1, .items = {"http://page.test"}};
	reopen_world();
	for (unsigned i = 0; i < COUNT(lines); i++)
		for (unsigned count = 1; count <= 320; count++) {
			int status = ask_cookies(count, lines[i]), good = lines[i] % 2 == 0 ? 201 : 400;
			ck_assert_msg(status == (count <= 50 ? good : 431), "%u cookies, %u lines: %d", count, lines[i],
				      status);
		}
}

FIXTURE(open_world, close_world)
