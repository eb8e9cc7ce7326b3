/* Malformed, contradictory and oversized requests: bytes sent, status expected, and nothing reaches the leases. */
#include <stdio.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

/* ---- rubbish, limits, smuggling ---- */

/* A body that would be granted a lease if it were read as chunked. */
#define CHUNKED "10\r\n{\"resource\":\"a\"}\r\n0\r\n\r\n"
#define REPEAT8(x) x x x x x x x x

static const struct {
	const char *bytes;
	size_t len;
	int status;
} rubbish[] = {
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n"), 413}, /* the body need not come */
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
	{S("GET http:///healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET http://me@localhost/healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET ftp://localhost/healthz HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("GET http://localhost/healthz HTTP/1.1\r\n\r\n"), 400}, /* Host is required all the same */
	{S("GET * HTTP/1.1\r\n" HOST "\r\n"), 400},
	{S("OPTIONS *x HTTP/1.1\r\n" HOST "\r\n"), 400},
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
	/* NUL LF, which looks like CR LF with the 0.9 series: the lines that follow are checked as all others. */
	{S("POST /locks HTTP/1.1\r\n" HOST
	   "X: a\0\nContent-Length: 16\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "X: a\0\nContent-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED),
	 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 26\0\nTransfer-Encoding: chunked\0\n\0\n" CHUNKED), 400},
	{S("GET /healthz HTTP/1.1\r\nHost: a\0\nHost: a\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "X: a\0\n folded\r\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "X: a\0\0\n\r\n"), 400},
	{S("GET /healthz HTTP/1.1\r\n" HOST "X: a\0\r\n\r\n"), 400},
	/* framing */
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16\r\nContent-Length: 0\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 0\r\ncontent-length: 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16, 16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: +16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: -16\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 0x10\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16x\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 1 6\r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: \r\n\r\n{\"resource\":\"a\"}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n{}"), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 16385\r\n\r\n{}"), 413},
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 26\r\n\r\n" CHUNKED), 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED),
	 400},
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
	{S("POST /locks HTTP/1.1\r\n" HOST "Content-Encoding: gzip\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 415},
	{S("POST /locks HTTP/1.1\r\n" HOST
	   "Content-Encoding: identity\r\nContent-Encoding: br\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 415},
	{S("DELETE /locks/a HTTP/1.1\r\n" HOST
	   "Content-Encoding: x-gzip\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED),
	 415},
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
	{S("GET /locks?cursor=page-" REPEAT8("0123456789ab") " HTTP/1.1\r\n" HOST "\r\n"), 400},
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
	   "{\"token\":\"f123456789abcdef0123456789abcdef01234567\"}"),
	 400},
	/* an Origin without JSON */
	{S("POST /locks HTTP/1.1\r\n" HOST
	   "Origin: http://localhost\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 400},
	{S("POST /locks HTTP/1.1\r\n" HOST
	   "Origin: http://localhost\r\nContent-Type: text/plain\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 400},
	{S("POST /locks HTTP/1.1\r\n" HOST "Origin: http://localhost\r\nContent-Type: "
	   "application/jsonx\r\nContent-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 400},
	{S("POST /locks HTTP/1.1\r\n" HOST
	   "Origin: http://localhost\r\nContent-Type: application/json\r\nContent-Type: text/plain\r\n"
	   "Content-Length: 16\r\n\r\n{\"resource\":\"a\"}"),
	 400},
};

static void try_rubbish(int client, size_t i)
{
	exchange(client, rubbish[i].bytes, rubbish[i].len, 1);
	ck_assert_msg(answer.len > 12 && atoi(answer.text + 9) == rubbish[i].status, "row %zu (%s): %s", i,
		      rubbish[i].bytes, answer.text);
	ck_assert_ptr_null(strstr(answer.text, TOKEN));
	ck_assert_uint_eq(world.leases.submitted, 0);
	ck_assert_uint_eq(world.leases.listed, 0);
	close(client);
}

TEST_EACH(test_rubbish, 0, COUNT(rubbish))
{
	try_rubbish(connect_tcp(), (size_t)_i);
	try_rubbish(connect_unix(), (size_t)_i);
	/* The same after a good request. Then only a line without a blank, or with one at its start, may end the
	 * connection without an answer. */
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

/* If it is not certain where a request ends, the connection ends: nothing after it is taken for a request. */
TEST(test_smuggling_ends_connection)
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

	for (size_t i = 0; i < COUNT(heads); i++) {
		snprintf(request, sizeof request, "POST /locks HTTP/1.1\r\n" HOST "%s%s", heads[i], post_a);
		expect_one_answer(request);
		HAS("HTTP/1.1 400 ");
		ck_assert_uint_eq(world.leases.submitted, 0);
	}
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

TEST(test_url_limit)
{
	ck_assert_int_eq(ask_url(2048), 404);
	ck_assert_int_eq(ask_url(2049), 414);
	assert_code("too-large");
	ck_assert_int_eq(ask_url(6000), 414);
}

/* `count` headers, the last one with a value of `value_len` bytes. */
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

TEST(test_header_limits)
{
	ck_assert_int_eq(ask_headers(64, 1), 200);
	ck_assert_int_eq(ask_headers(65, 1), 431);
	assert_code("too-large");
	ck_assert_int_eq(ask_headers(2, 8192 - (int)sizeof("Host: localhost") - 1 - 5), 200);
	ck_assert_int_eq(ask_headers(2, 8192 - (int)sizeof("Host: localhost") - 1 - 5 + 1), 431);
	ck_assert_int_eq(ask_headers(2, 20000), 431);
	ck_assert_int_eq(ask_headers(2, 100000), 431); /* more than the library's own bound */
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

/* A body of `len` bytes: an object and blanks. */
static int ask_body_len(size_t len, bool chunked)
{
	static char request[96 * 1024];
	int client = connect_unix(), status;
	size_t at =
		chunked ? (size_t)sprintf(request,
					  "POST /locks HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n%zx\r\n",
					  len)
			: (size_t)sprintf(request, "POST /locks HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", len);

	memset(request + at, ' ', len);
	memcpy(request + at, "{\"resource\":\"a\"}", 16);
	strcpy(request + at + len, chunked ? "\r\n0\r\n\r\n" : "");
	status = ask(client, request);
	RUN_UNTIL((receive(client), answer.closed || status == 201));
	close(client);
	return status;
}

TEST(test_body_limit)
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

/* What the client sends after it was rejected is discarded, so that no reset loses the answer. */
TEST(test_refusal_is_not_reset)
{
	static char request[40 * 1024];
	size_t len = (size_t)sprintf(request, "POST /locks HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\n");
	int client = connect_tcp();

	memset(request + len, ' ', sizeof(request) - len);
	exchange(client, request, sizeof(request), 2);
	HAS("HTTP/1.1 413 ");
	put(client, request, sizeof(request));
	turn(-1, 30);
	put(client, request, sizeof(request));
	forget();
	receive(client);
	ck_assert(answer.closed && !answer.reset);
	close(client);
	RUN_UNTIL(world.api->lingering_count == 0);
}

FIXTURE(open_world, close_world)
