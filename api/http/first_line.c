/* SPDX-License-Identifier: MIT */
/* The first line of a new connection, while it still lies in the socket. See http_internal.h.
 *
 * libmicrohttpd answers some malformed first lines by itself, and closes the connection of others without an answer.
 * Afterwards the two cannot be distinguished: a Unix socket does not count the bytes sent through it. So redlockd reads
 * the line before the library gets the socket, and rejects everything but `METHOD target HTTP/1.x`, after one empty
 * line at most. TLS hides the line; the first lines of later requests are in the library's buffer. Pure, except for the
 * look into the socket. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>

#include "http_internal.h"

/* A Unix socket holds only 278 bytes of a line that comes byte by byte, and then the client waits. So the library gets
 * a long line even if it is incomplete. */
enum { LOOK_MAX = 2 * REQUEST_TARGET_MAX, UNIX_PARTIAL_MAX = 200 };

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

/* How many bytes may be part of a target. request.c is stricter, and answers with the id of the request. */
static size_t target_span(const char *bytes, size_t len)
{
	size_t span = 0;
	while (span < len && (unsigned char)bytes[span] > ' ' && bytes[span] != 0x7f)
		span++;
	return span;
}

static enum first_line parse_version(const char *bytes, size_t len)
{
	static const char pattern[] = "HTTP/0.0\r\n"; /* 0: any digit */
	for (size_t i = 0; i < sizeof pattern - 1; i++) {
		if (i == len)
			return FIRST_LINE_PARTIAL;
		if (pattern[i] == '0' ? !is_digit(bytes[i]) : bytes[i] != pattern[i])
			return FIRST_LINE_MALFORMED;
	}
	return bytes[sizeof "HTTP/" - 1] == '1' ? FIRST_LINE_GOOD : FIRST_LINE_OTHER_VERSION;
}

enum first_line first_line_parse(const char *bytes, size_t len)
{
	static const char empty[] = "\r\n";
	assert(bytes);
	if (len < 2 && memcmp(bytes, empty, len) == 0)
		return FIRST_LINE_PARTIAL;
	if (memcmp(bytes, empty, MIN(len, 2)) == 0)
		bytes += 2, len -= 2;
	size_t method_len = headers_token_span(bytes, len);
	if (method_len == len)
		return FIRST_LINE_PARTIAL;
	if (method_len == 0 || bytes[method_len] != ' ')
		return FIRST_LINE_MALFORMED;
	const char *target = bytes + method_len + 1;
	size_t left = len - method_len - 1, target_len = target_span(target, left);
	if (target_len == left)
		return FIRST_LINE_PARTIAL;
	if (target_len == 0 || target[target_len] != ' ')
		return FIRST_LINE_MALFORMED;
	return parse_version(target + target_len + 1, left - target_len - 1);
}

enum first_line first_line_look(const struct arrival *arrival)
{
	char bytes[LOOK_MAX];
	bool hidden = arrival->kind == DAEMON_TLS || arrival->requests > 0;
	size_t len_max = arrival->kind == DAEMON_UNIX ? UNIX_PARTIAL_MAX : LOOK_MAX;
	ssize_t got = recv(arrival->fd, bytes, hidden ? 1 : sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return FIRST_LINE_NONE;
	if (got <= 0 || hidden)
		return FIRST_LINE_GOOD; /* the library handles the end or the rest */
	enum first_line line = first_line_parse(bytes, (size_t)got);
	if (line != FIRST_LINE_PARTIAL || (size_t)got < len_max)
		return line;
	return got < LOOK_MAX ? FIRST_LINE_GOOD : FIRST_LINE_TOO_LONG;
}
