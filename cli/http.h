/* One HTTP request at a time over libcurl's multi interface, in a loop that can wait for other descriptors and for a moment of
 * CLOCK_BOOTTIME meanwhile. Connections are kept between requests. */
#ifndef CLI_HTTP_H
#define CLI_HTTP_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answer.h"
#include "request.h"
#include "server.h"

enum { HTTP_EXTRA_MAX = 4 };

struct http {
	CURLM *multi;
	CURL *easy;
	struct curl_slist *headers;
	int timer; /* timerfd */
	bool busy, finished;
	uint64_t sent_us; /* before the request was sent */
	long status;      /* 0: no answer, then `error` says why */
	char *body;
	size_t len;
	char error[CURL_ERROR_SIZE];
};

/* False: errno or libcurl does not let us. */
bool http_init(struct http *http) __attribute__((warn_unused_result));
void http_fini(struct http *http);

/* Begins a request; it must not be busy. The request is not needed any more when this returns, the server is. */
void http_begin(struct http *http, const struct server *server, const struct request *request, uint64_t timeout_us);

/* Waits until the request has finished, the time is until_us (UINT64_MAX: no such time), or one of the descriptors is ready. May
 * return earlier. True if the request has finished: then http_read() is due. */
bool http_wait(struct http *http, uint64_t until_us, struct curl_waitfd *extra, unsigned count);

/* The answer to the request that has finished. */
void http_read(struct http *http, struct answer *ret_answer);

/* Breaks off: its connection is closed, so that the server notices. Does nothing where none is under way. */
void http_cancel(struct http *http);

#endif
