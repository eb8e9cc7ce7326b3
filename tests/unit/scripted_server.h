/* SPDX-License-Identifier: MIT */
/* A server that answers the requests of redlockctl as a test has written down, one after the other, on Unix sockets. */
#ifndef SCRIPTED_SERVER_H
#define SCRIPTED_SERVER_H

#include <stddef.h>

enum { SCRIPTED_SERVERS = 2, SCRIPTED_MAX = 16 };

struct scripted_step {
	/* "STATUS [NAME: VALUE ]BODY"; "close": the connection is closed without an answer; "stop": the same once the
	 * client has closed it, and there is something to read from scripted_server_orders() at once */
	const char *answer;
	size_t late; /* the answer is sent after those to so many of the next requests */
};

/* Listens on the sockets 0 and 1 of a new folder, and answers in a thread of its own. */
void scripted_server_start(const struct scripted_step *steps, size_t count);

const char *scripted_server_folder(void);
int scripted_server_orders(void);

/* The requests that came, a line each: "SERVER METHOD TARGET", headers that matter, and the body. A key of idempotency
 * is shown as its number. */
const char *scripted_server_seen(void);

/* Ends the thread, and removes the folder. */
void scripted_server_end(void);

#endif
