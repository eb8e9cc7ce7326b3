/* SPDX-License-Identifier: MIT */
/* HTTP and HTTPS requests by libcurl's multi interface, and the other parts of this folder for the other folders. The
 * loop can wait for other descriptors and for a time of CLOCK_BOOTTIME meanwhile. Connections are kept between
 * requests. Requests go to the current server; if one does not answer, the next one of the list becomes it.
 *
 * There is one main request at a time, and at most one side request on a connection of its own, for health checks while
 * the main request waits. */
#ifndef CLIENT_H
#define CLIENT_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answer.h"
#include "cli/base/cli_base.h"
#include "server/base/base.h"

/* ---- client_request.c: the requests of redlockctl as method, path and body. Nothing is sent there ---- */

enum { CLIENT_REQUEST_PATH_MAX = 2048, CLIENT_REQUEST_BODY_MAX = 16384 };

struct client_request {
	const char *method;
	char path[CLIENT_REQUEST_PATH_MAX];
	char body[CLIENT_REQUEST_BODY_MAX]; /* empty: none */
	const char *token;                  /* for the header Lock-Token; the caller owns it. NULL: none */
	uint64_t wait_ms;                   /* how long the server may let it wait */
	bool may_grant;                     /* the answer may be a new lease */
	bool of_lease;                      /* of a lease that is held: only "it is over" answers for all servers */
	bool once;                          /* once it was sent, no other server gets it */
	/* for the headers Idempotency-Key and If-None-Match; the caller owns them. NULL: none */
	const char *key, *tag;
};

/* wait_ms: 0 for a request that does not wait. key: the same for all requests of one acquisition. */
struct client_request client_request_acquire(const struct arguments *arguments, uint64_t wait_ms, const char *key);
struct client_request client_request_extend(const struct arguments *arguments, const char *token, uint64_t ttl_ms);
struct client_request client_request_release(const struct arguments *arguments, const char *token, uint64_t keep_ms);
/* GET: the state of one lock, without a token. */
struct client_request client_request_get_state(const char *name);
/* Without a token. fence: of the holder that is meant; 0: whoever holds it. */
struct client_request client_request_force(const char *name, uint64_t fence);
/* cursor: may be empty. */
struct client_request client_request_list(const struct arguments *arguments, uint64_t limit, const char *cursor);
struct client_request client_request_get(const char *path);
/* A GET of the state, answered when it has another tag, or after wait_ms. tag: of the state before, may be empty. */
struct client_request client_request_watch(const char *name, const char *tag, uint64_t wait_ms);

/* ---- client.c ---- */

/* The descriptors that client_wait() waits for: its own, then those of the caller. */
enum { CLIENT_TIMER, CLIENT_ORDERS, CLIENT_CHILDREN, CLIENT_FDS };

/* Wishes of the caller while a request is under way. */
enum client_order {
	CLIENT_GO_ON,
	CLIENT_HOLD, /* send no request until the order changes */
	CLIENT_STOP
};

struct client_exchange {
	CURL *easy;
	struct curl_slist *headers;
	const char *method;
	enum { CLIENT_IDLE, CLIENT_BUSY, CLIENT_FINISHED } state;
	uint64_t sent_us; /* a time before the request was sent */
	CURLcode result;  /* not CURLE_OK: no answer; `error` may say why */
	struct text body;
	char error[CURL_ERROR_SIZE];
};

struct client {
	const struct arguments *arguments;
	size_t server;       /* the current one */
	unsigned unanswered; /* servers that may have got the request of client_ask() without an answer */
	CURLM *multi;
	struct curl_waitfd fds[CLIENT_FDS];
	struct client_exchange main, side;
	char key[BEARER_MAX + 1]; /* of the last request; empty: none */
	char failures[SERVERS_MAX]
		     [ANSWER_DETAIL_MAX]; /* why each cannot be used at present; empty: it can, or it is not known */

	/* for orders: the caller sets fds[CLIENT_ORDERS].fd and these two */
	enum client_order (*read_order)(void *context);
	void *context;
	enum client_order order; /* the last one */
};

/* The arguments outlive the client. The caller ignores or blocks SIGPIPE: libcurl writes when it closes a connection
 * over TLS, which the server may have closed. False: libcurl failed, or errno. */
bool client_init(struct client *client, const struct arguments *arguments) __attribute__((warn_unused_result));
void client_fini(struct client *client);

const struct address *client_server(const struct client *client);
void client_next_server(struct client *client);

/* Begins a request to the current server; none may be under way there. *request is copied. Connecting may take
 * timeout_us, and the whole timeout_us besides request->wait_ms. A request that may be granted a lease
 * (request->may_grant) is cancelled by the caller then; it ends by itself only seconds later. */
void client_begin(struct client *client, struct client_exchange *exchange, const struct client_request *request,
		  uint64_t timeout_us);

/* Sets a timerfd of CLOCK_BOOTTIME, which counts the sleep of a suspended machine; 0: none. The time limit of
 * curl_multi_poll() would not count it. */
void client_arm(int timer, uint64_t when_us);

/* Waits until the main request has finished, the time is until_us (UINT64_MAX: no limit), the side request has finished
 * or one of the first `count` descriptors of the caller is ready. May return earlier. True if the main one has
 * finished: client_read() follows. */
bool client_wait(struct client *client, uint64_t until_us, unsigned count);

/* The same for the descriptor of the orders, which it reads into client->order. */
bool client_wait_order(struct client *client, uint64_t until_us);

/* Waits until the time is until_us or the order changes. No main request is under way. */
void client_pause(struct client *client, uint64_t until_us);

/* The answer to a request that has finished. */
void client_read(struct client_exchange *exchange, struct answer *ret_answer);

/* Records an answer of the current server for client_explain(). */
void client_record(struct client *client, const struct answer *answer);

/* The answer for people: if servers failed, each with its reason. Returns ret_text. */
enum { CLIENT_TEXT_MAX = SERVERS_MAX * (SERVER_SHOWN_MAX + ANSWER_DETAIL_MAX + 4) + ANSWER_TEXT_MAX };
const char *client_explain(const struct client *client, const struct answer *answer, char ret_text[CLIENT_TEXT_MAX]);

/* Sends a main request to one server after the other, from the current one on, until one answers for all of them,
 * `tries` times at most. With `stop_on_signal` an order ends it: OUTCOME_UNAVAILABLE. */
struct answer client_ask(struct client *client, size_t tries, const struct client_request *request, uint64_t timeout_us,
			 bool stop_on_signal) __attribute__((warn_unused_result));

/* Cancels the request: closes its connection, so that the server notices. Does nothing if none is under way. An answer
 * under way is lost, and with it a lease that it grants. */
void client_cancel(struct client *client, struct client_exchange *exchange);

/* ---- acquire.c: acquires a lease: asks, waits, fails over. For the commands acquire and run ---- */

struct acquire {
	struct client *client;   /* with orders; its server is asked first, and is the one that granted afterwards */
	char key[TOKEN_LEN + 1]; /* its Idempotency-Key: a repeated request finds the lease of a lost answer */

	uint64_t begun_us;   /* private from here: a time before its first request */
	bool wants_state;    /* the next side request asks for the state of the lock, for the report */
	size_t asked;        /* … of which name */
	uint64_t check_us;   /* time of the next side request */
	uint64_t report_us;  /* from when on a wait is reported, once; UINT64_MAX: never, or done */
	uint64_t silent_us;  /* when it is reported that the server has not answered anything yet */
	uint64_t cut_off_us; /* from when on it is reported, once, that no server can be used */
};

/* False: no lease is held, and no queue entry. The order is CLIENT_STOP then, or ret_answer says why (answer_fini()
 * it). */
bool acquire_lease(struct acquire *acquire, struct lease *ret_lease, struct answer *ret_answer)
	__attribute__((warn_unused_result));

/* Releases a lease that is not wanted. Tries for about a second. */
void acquire_release(struct client *client, const struct lease *lease);

#endif
