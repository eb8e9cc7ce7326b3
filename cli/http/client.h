/* HTTP and HTTPS requests over libcurl's multi interface, in a loop that can wait for other descriptors and for a
 * moment of CLOCK_BOOTTIME meanwhile. Connections are kept between requests.
 *
 * One request at a time: the main one. Beside it there may be a second one, the side request, on a connection of its
 * own: it looks what becomes of a main request that the server keeps for long. */
#ifndef CLIENT_H
#define CLIENT_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acquire.h"
#include "answer.h"
#include "cli/base/cli_base.h"
#include "client_request.h"

enum { CLIENT_EXTRA_MAX = 4, CLIENT_SOCKETS_MAX = 16 };

struct client_exchange {
	CURL *easy;
	struct curl_slist *headers;
	bool busy, finished;
	uint64_t sent_us; /* before the request was sent */
	long status;      /* 0: no answer, then `result` and `error` say why */
	CURLcode result;
	uint64_t retry_after_ms;
	char *body;
	size_t len;
	char error[CURL_ERROR_SIZE];
};

struct client {
	CURLM *multi;
	const struct credentials *credentials;
	int timer;                       /* timerfd */
	int sockets[CLIENT_SOCKETS_MAX]; /* that libcurl has open; -1: none */
	struct client_exchange main, side;
};

/* The credentials must live as long as this does. The caller has SIGPIPE ignored or blocked: what libcurl's TLS writes
 * when it closes a connection may meet one that the other side has closed. False: errno or libcurl does not let us. */
bool client_init(struct client *client, const struct credentials *credentials) __attribute__((warn_unused_result));
void client_fini(struct client *client);

/* Begins a request; it must not be busy. The request is not needed any more when this returns, the server is.
 * Connecting may take timeout_us, and so may the whole, besides request->wait_ms. Where the request may be granted
 * something (request->may_grant) the caller has to hang up then; it ends by itself only seconds later. */
void client_begin(struct client *client, const struct server *server, const struct client_request *request,
		  uint64_t timeout_us);

/* Waits until the request has finished, the time is until_us (UINT64_MAX: no such time), the side request has finished
 * or one of the descriptors is ready. May return earlier. True if the request has finished: then client_read() is
 * due. */
bool client_wait(struct client *client, uint64_t until_us, struct curl_waitfd *extra, unsigned count);

/* The answer to the request that has finished. */
void client_read(struct client *client, struct answer *ret_answer);

/* Breaks off: its connection is closed, so that the server notices. Does nothing where none is under way. What the
 * server has answered just then is never seen: not for requests that may be granted something. */
void client_cancel(struct client *client);

/* Ends a request that may be granted something, whatever way the answer has got: says to the server that nothing more
 * comes, waits until it has closed as well or answered (until_us at the latest), and then breaks off. True: it has
 * answered, client_read() is due. */
bool client_hang_up(struct client *client, uint64_t until_us) __attribute__((warn_unused_result));

/* The side request. client_side_read() is false while it is under way. client_end_side() breaks it off if there is
 * one. */
void client_begin_side(struct client *client, const struct server *server, const struct client_request *request,
		       uint64_t timeout_us);
bool client_read_side(struct client *client, struct answer *ret_answer);
void client_end_side(struct client *client);

#endif
