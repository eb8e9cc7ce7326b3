/* SPDX-License-Identifier: MIT */
/* The world of the tests of the HTTP side: real sockets into a real api with fake leases, driven by poll as the worker
 * drives it.
 *
 * A `struct world` is one worker; exchange() sends bytes and runs the worker until so many answers have come or the
 * connection has ended. No test waits for time to pass but those of deadlines, which are set to some 50 ms. */
#ifndef API_WORLD_H
#define API_WORLD_H

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls.h"
#include "api/http/http.h"
#include "api/http/http_internal.h"
#include "fake_hold.h"
#include "fake_lease.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define HOST "Host: localhost\r\n"
#define S(literal) literal, sizeof(literal) - 1
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { PATIENCE_MS = 60000 }; /* only a failure takes that long */

struct world {
	struct api *api;
	struct leases leases;
	struct holds holds;
	struct masters masters;
	struct api_config config;
	struct options options;
	int served; /* the worker's end of the connection made last */
};

/* The bytes that came back on a connection. */
struct answer {
	char text[128 * 1024];
	size_t len;
	bool closed, reset;
};

extern struct world world;
extern struct answer answer;

/* Two requests that most tests use. */
extern const char get_healthz[], post_a[];
extern const size_t get_healthz_len, post_a_len;

/* The fixture: each test has a world of its own. */
void open_world(void);
void close_world(void);

/* Ends the api and makes another one from the present world.config. */
void reopen_world(void);

/* How many connections are in a phase. */
size_t in_phase(enum connection_phase phase);

/* New connections, handed to the api; both return the client's end. */
int connect_tcp(void);
int connect_unix(void);

/* One round of the worker's loop: waits for the api or `client` (-1: none), at most `at_most_ms`. */
void turn(int client, int at_most_ms);
uint64_t now_ms(void);

/* Runs the worker until `condition` holds; fails if it never does. */
#define RUN_UNTIL(condition)                                                                 \
	do {                                                                                 \
		uint64_t end_ms = now_ms() + PATIENCE_MS;                                    \
		while (!(condition)) {                                                       \
			ck_assert_msg(now_ms() < end_ms, "never came true: %s", #condition); \
			turn(-1, 20);                                                        \
		}                                                                            \
	} while (0)

/* Empties `answer`; takes into it what has come; runs the worker until so many answers are in it, or the connection is
 * closed. */
void forget(void);
void receive(int client);
void await(int client, unsigned answers, bool bodiless);

/* How many whole answers are in `answer`; those to HEAD have no body. */
unsigned count_answers(bool bodiless);

void set_nonblocking(int fd);
void put(int client, const char *bytes, size_t len);

/* forget(), put() and await(). */
void exchange(int client, const char *bytes, size_t len, unsigned answers);

/* One request, one answer; returns its status, 0 if none came. */
int ask(int client, const char *request);

/* The same with a body; `head` is the first line and headers without Host, Content-Length and the last empty line. */
int ask_body(int client, const char *head, const char *body);

/* The body of the answer. */
json_t *answer_json(void);

/* What stands at `path` in that body is this JSON, "" for nothing: "masters/1/state" is "down" in quotation marks. */
void assert_json(const char *path, const char *wanted);

/* The answer is a problem with this code. */
void assert_code(const char *code);

#define HAS(part) ck_assert_msg(strstr(answer.text, part) != NULL, "no %s in: %s", part, answer.text)
#define HAS_NOT(part) ck_assert_msg(strstr(answer.text, part) == NULL, "there is %s in: %s", part, answer.text)

#endif
