/* HTTP and HTTPS requests by libcurl's multi interface, and the other parts of this folder for the other folders. The
 * loop can wait for other descriptors and for a time of CLOCK_BOOTTIME meanwhile. Connections are kept between
 * requests.
 *
 * There is one main request at a time, and at most one side request on a connection of its own, for health checks while
 * the main request waits. */
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
	uint64_t sent_us; /* a time before the request was sent */
	long status;      /* 0: no answer; `result` and `error` say why */
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

/* The credentials outlive the client. The caller ignores or blocks SIGPIPE: libcurl writes when it closes a connection
 * over TLS, which the server may have closed. False: libcurl failed, or errno. */
bool client_init(struct client *client, const struct credentials *credentials) __attribute__((warn_unused_result));
void client_fini(struct client *client);

/* Begins a request; none may be under way. *request is copied, *server is not. Connecting may take timeout_us, and the
 * whole timeout_us besides request->wait_ms. If the request may be granted a lease (request->may_grant) the caller has
 * to call client_hang_up() then; the request ends by itself only seconds later. */
void client_begin(struct client *client, const struct server *server, const struct client_request *request,
		  uint64_t timeout_us);

/* Waits until the request has finished, the time is until_us (UINT64_MAX: no limit), the side request has finished or
 * one of the descriptors is ready. May return earlier. True if the request has finished: client_read() follows. */
bool client_wait(struct client *client, uint64_t until_us, struct curl_waitfd *extra, unsigned count);

/* The answer to the request that has finished. */
void client_read(struct client *client, struct answer *ret_answer);

/* Cancels the request: closes its connection, so that the server notices. Does nothing if none is under way. An answer
 * under way is lost, so this is not for requests that may be granted a lease. */
void client_cancel(struct client *client);

/* Ends a request that may be granted a lease: shuts the connection for writing, waits until the server has closed it or
 * answered (until_us at the latest), and then cancels. True: it has answered, client_read() follows. */
bool client_hang_up(struct client *client, uint64_t until_us) __attribute__((warn_unused_result));

/* The side request. client_read_side() is false while it is under way. client_end_side() cancels it if there is one. */
void client_begin_side(struct client *client, const struct server *server, const struct client_request *request,
		       uint64_t timeout_us);
bool client_read_side(struct client *client, struct answer *ret_answer);
void client_end_side(struct client *client);

#endif
