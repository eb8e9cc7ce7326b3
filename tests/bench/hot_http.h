/* SPDX-License-Identifier: MIT */
/* One keep-alive connection that speaks as much HTTP/1.1 as the benchmark needs: one request at a time, answers with
 * Content-Length, in chunks or without a body. An error of the connection itself ends the program: a
 * benchmark with a lost connection measured nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { HTTP_ANSWER_MAX = 8192 };

struct http;

/* The whole answer came at `now_ns` (uv_hrtime()). The body is only there during the call. */
typedef void http_answer_cb(struct http *http, uint64_t now_ns, int status, const char *body, size_t len);

struct http {
	uv_tcp_t tcp;
	http_answer_cb *on_answer;
	size_t len;
	char bytes[HTTP_ANSWER_MAX + 1];
};

/* Connects to "host:port" (an address, no name); it waits for that. */
void http_open(struct http *http, uv_loop_t *loop, const char *address, http_answer_cb *on_answer);

/* Sends a request; returns when the kernel has all of it. `body` NULL: none. */
void http_send(struct http *http, const char *method, const char *path, const char *body);

void http_close(struct http *http);

/* Writes the message to stderr and ends the program. */
_Noreturn void http_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
