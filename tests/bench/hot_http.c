/* SPDX-License-Identifier: MIT */
/* See hot_http.h. Sending never queues: a request is far smaller than the socket's buffer, so uv_try_write() takes it
 * whole, and the caller's timestamp is that of the system call. */
#include "hot_http.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HTTP_REQUEST_MAX = 2048 };

_Noreturn void http_die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("hot_lock: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

/* ---- reading ---- */

/* The value of a header, or NULL. `head` ends with a NUL. */
static const char *http_header(const char *head, const char *name)
{
	const char *line = strcasestr(head, name);

	return line == NULL ? NULL : line + strlen(name) + strspn(line + strlen(name), " ");
}

/* A body in chunks: joins them where they are. Returns false if the last one is not there yet. Trailers are passed
 * over. */
static bool http_join_chunks(char *body, size_t *len)
{
	char *from = body, *to = body;

	for (;;) {
		char *line_end = strstr(from, "\r\n");
		size_t size = strtoul(from, NULL, 16);

		if (line_end == NULL || strlen(line_end) < size + 4)
			return false;
		if (size == 0)
			break;
		memmove(to, line_end + 2, size);
		to += size;
		from = line_end + 2 + size + 2;
	}
	if (strstr(from, "\r\n\r\n") == NULL)
		return false;
	*len = (size_t)(to - body);
	return true;
}

/* Looks whether an answer is there as a whole, and hands it on. */
static void http_take_answer(struct http *http, uint64_t now_ns)
{
	char *head = http->bytes, *head_end = strstr(head, "\r\n\r\n");

	if (head_end == NULL)
		return;
	*head_end = '\0';
	char *body = head_end + 4;
	size_t there = http->len - (size_t)(body - head), len = 0;
	const char *length = http_header(head, "\r\ncontent-length:"),
		   *coding = http_header(head, "\r\ntransfer-encoding:");
	int status = atoi(head + strlen("HTTP/1.1 "));

	if (coding != NULL ? !http_join_chunks(body, &len)
			   : length != NULL && there < (len = strtoul(length, NULL, 10))) {
		*head_end = '\r';
		return;
	}
	if (coding == NULL && there > len)
		http_die("more than one answer to one request");
	http->len = 0;
	body[len] = '\0';
	http->on_answer(http, now_ns, status, body, len);
}

static void http_on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buf)
{
	struct http *http = handle->data;

	(void)wanted;
	*ret_buf = uv_buf_init(http->bytes + http->len, (unsigned)(HTTP_ANSWER_MAX - http->len));
}

static void http_on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
	struct http *http = stream->data;
	uint64_t now_ns = uv_hrtime();

	(void)buf;
	if (count == 0)
		return;
	if (count < 0)
		http_die("connection lost: %s", uv_strerror((int)count));
	http->len += (size_t)count;
	http->bytes[http->len] = '\0';
	http_take_answer(http, now_ns);
}

/* ---- opening, sending ---- */

void http_open(struct http *http, uv_loop_t *loop, const char *address, http_answer_cb *on_answer)
{
	char host[64];
	struct sockaddr_in to;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	const char *colon = strrchr(address, ':');

	if (colon == NULL ||
	    snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address) >= (int)sizeof(host) ||
	    uv_ip4_addr(host, atoi(colon + 1), &to) != 0)
		http_die("not an address: %s", address);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		http_die("cannot connect to %s", address);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	http->on_answer = on_answer;
	http->len = 0;
	if (uv_tcp_init(loop, &http->tcp) != 0 || uv_tcp_open(&http->tcp, fd) != 0)
		http_die("cannot watch a socket");
	http->tcp.data = http;
	uv_read_start((uv_stream_t *)&http->tcp, http_on_room, http_on_read);
}

void http_send(struct http *http, const char *method, const char *path, const char *body)
{
	char request[HTTP_REQUEST_MAX];
	int len;

	assert(http->len == 0);
	if (body == NULL)
		len = snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path);
	else
		len = snprintf(request, sizeof(request),
			       "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
			       "%zu\r\n\r\n%s",
			       method, path, strlen(body), body);
	assert(len > 0 && len < (int)sizeof(request));
	uv_buf_t buf = uv_buf_init(request, (unsigned)len);
	if (uv_try_write((uv_stream_t *)&http->tcp, &buf, 1) != len)
		http_die("a request could not be sent");
}

void http_close(struct http *http)
{
	uv_close((uv_handle_t *)&http->tcp, NULL);
}
