/* SPDX-License-Identifier: MIT */
/* Malformed, contradictory and oversized requests: bytes sent, status expected, and nothing reaches the leases. */
#include <glob.h>
#include <stdio.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

/* ---- rubbish, limits, smuggling ---- */

/* A body that would be granted a lease if it were read as chunked. */
#define CHUNKED "10\r\n{\"resource\":\"a\"}\r\n0\r\n\r\n"

/* ---- the rows of tests/e2e/malformed/, whose notation is explained in tests/e2e/test_malformed.py ---- */

struct row {
	char name[80], marks[8], text[2000], bytes[2 << 20];
	int status;
	size_t len;
};

/* The bytes that `text` stands for, up to `end`. */
static void decode(const char *text, const char *end, struct row *row)
{
	for (; text < end; text++) {
		const char *brace = text[0] == '\\' && text[1] == '{' ? strchr(text, '}') : NULL, *plain;
		if (brace) {
			char *part;
			for (unsigned long times = strtoul(text + 2, &part, 10); times > 0; times--)
				decode(part + 1, brace, row);
			text = brace;
		} else if (text[0] != '\\') {
			row->bytes[row->len++] = *text;
		} else if (text[1] == 'x') {
			row->bytes[row->len++] = (char)strtoul((char[]){text[2], text[3], '\0'}, NULL, 16);
			text += 3;
		} else {
			plain = strchr("r\rn\nt\t\\\\", *++text);
			row->bytes[row->len++] = *text == '0' ? '\0' : plain[1];
		}
	}
}

/* $L is the length of the body. */
static void decode_row(struct row *row)
{
	char *length = strstr(row->text, "$L");
	row->len = 0;
	if (length) {
		const char *body = strstr(row->text, "\\r\\n\\r\\n") + 8;
		char digits[20], rest[sizeof row->text];
		decode(body, body + strlen(body), row);
		snprintf(digits, sizeof digits, "%zu", row->len);
		snprintf(rest, sizeof rest, "%s", length + 2);
		snprintf(length, sizeof row->text - (size_t)(length - row->text), "%s%s", digits, rest);
		row->len = 0;
	}
	decode(row->text, row->text + strlen(row->text), row);
}

/* Sends it and looks at the answer. Without one the connection has ended: if the row allows that, or `may_end`. */
static void try_row(int client, const struct row *row, bool may_end)
{
	exchange(client, row->bytes, row->len, 1);
	int status = answer.len > 12 ? atoi(answer.text + 9) : 0;
	bool large = status == 413 && strchr(row->marks, '@');
	bool ended = answer.len == 0 && answer.closed && (may_end || strchr(row->marks, '!'));
	ck_assert_msg(status == row->status || large || ended, "%s: %s", row->name, answer.text);
	ck_assert_ptr_null(strstr(answer.text, "0123456789")); /* so begin the tokens */
	ck_assert_msg(world.leases.submitted == 0 && world.leases.listed == 0, "%s", row->name);
	close(client);
}

/* A good request before it changes nothing: only a line without a blank, or with one at its start, may then end the
 * connection without an answer. What is longer than the buffers of a socket is for the e2e tests. */
static unsigned try_file(const char *path)
{
	static struct row row;
	char line[2100];
	unsigned count = 0;
	FILE *file = fopen(path, "re");
	ck_assert_msg(file != NULL, "%s", path);
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%79[^ #\n] %3d%7[*!@ ]%1999[^\n]", row.name, &row.status, row.marks, row.text) != 4)
			continue;
		decode_row(&row);
		if (row.len > 110000)
			continue;
		try_row(connect_tcp(), &row, false);
		if (row.status != 403) /* a Unix socket has no name */
			try_row(connect_unix(), &row, false);
		int client = connect_tcp();
		ck_assert_int_eq(ask(client, get_healthz), 200);
		if (row.bytes[1] == '\0') /* the library waits for the end of a line of NULs */
			close(client);
		else
			try_row(client, &row, true);
		RUN_UNTIL(world.api->connections == 0 && world.api->lingering_count == 0);
		count++;
	}
	fclose(file);
	return count;
}

TEST(test_malformed)
{
	glob_t files;
	unsigned count = 0;
	ck_assert_int_eq(glob(MALFORMED "/*.txt", 0, NULL, &files), 0);
	for (size_t i = 0; i < files.gl_pathc; i++)
		count += try_file(files.gl_pathv[i]);
	globfree(&files);
	ck_assert_uint_gt(count, 500);
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
	static const char *const heads[] = {"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
					    "Content-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKED,
					    "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" CHUNKED,
					    "Transfer-Encoding: chunked, identity\r\n\r\n",
					    "Transfer-Encoding: identity\r\n\r\n",
					    "Name: x\0 y\r\n\r\n",
					    "Content-Leng: 0\r\n th\r\n\r\n"};
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

/* The largest that is allowed, and one byte more; far larger ones are rows of tests/e2e/malformed/. */
static const struct {
	int status;
	const char *text;
} limits[] = {
	{404, "GET /\\{2047*x} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"},
	{414, "GET /\\{2048*x} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"},
	{200, "GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\{63*A: b\\r\\n}\\r\\n"},
	{431, "GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\{64*A: b\\r\\n}\\r\\n"},
	{200, "GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nA: \\{8170*x}\\r\\n\\r\\n"},
	{431, "GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nA: \\{8171*x}\\r\\n\\r\\n"},
	{201, "POST /locks HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: "
	      "$L\\r\\n\\r\\n{\"resource\":\"a\"}\\{16368* }"},
	{413, "POST /locks HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: "
	      "$L\\r\\n\\r\\n{\"resource\":\"a\"}\\{16369* }"},
	{201, "POST /locks HTTP/1.1\\r\\nHost: localhost\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
	      "4000\\r\\n{\"resource\":\"a\"}\\{16368* }\\r\\n0\\r\\n\\r\\n"},
	{413, "POST /locks HTTP/1.1\\r\\nHost: localhost\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
	      "4001\\r\\n{\"resource\":\"a\"}\\{16369* }\\r\\n0\\r\\n\\r\\n"},
};

TEST_EACH(test_limits, 0, COUNT(limits))
{
	static struct row row;
	int client = connect_unix(), status = limits[_i].status;

	snprintf(row.text, sizeof row.text, "%s", limits[_i].text);
	decode_row(&row);
	exchange(client, row.bytes, row.len, 1);
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
