/* SPDX-License-Identifier: MIT */
/* Somebody who wants locks, at redlockd or at etcd: one connection, one call at a time.
 *
 *   client_open ─► READY ─► client_acquire ─► GRANTED ─► client_release ─► RELEASED
 *                                  └─► REFUSED                └─► REFUSED
 *                           client_count ─► COUNTED
 *
 * Each event comes out of on_event, where the next call may be made at once. The client notes when its request left and
 * when the answer came (uv_hrtime()); what that means is for whoever drives it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "hot_http.h"

enum client_event { CLIENT_READY, CLIENT_GRANTED, CLIENT_RELEASED, CLIENT_REFUSED, CLIENT_COUNTED };
enum client_state { CLIENT_IDLE, CLIENT_PREPARING, CLIENT_ACQUIRING, CLIENT_RELEASING, CLIENT_COUNTING };

struct client;
struct service;

typedef void client_event_cb(struct client *client, enum client_event event);

struct client {
	struct http http;
	const struct service *service;
	client_event_cb *on_event;
	void *owner;
	unsigned number, server;
	bool waits;                   /* redlockd: in the line, where somebody has the lock */
	enum client_state state, was; /* was: what the event is the answer to */
	char resource[64];
	char key[128];  /* releases the lock: a token, or etcd's key in base64 */
	char lease[24]; /* etcd: of this client, for all its locks */
	uint64_t fence; /* 0: the service has none */
	uint64_t sent_ns, answered_ns;
	int status;
	unsigned waiters; /* after COUNTED */

	/* The driver's own. */
	uint64_t release_sent_ns, release_answered_ns, next_grant_ns;
	uv_timer_t pause;
};

/* "redlockd" or "etcd"; NULL if it is neither. */
const struct service *service_find(const char *name);

void client_open(struct client *client, uv_loop_t *loop, const struct service *service, const char *address,
		 client_event_cb *on_event);
void client_acquire(struct client *client, const char *resource);
void client_release(struct client *client);

/* How many wait for a resource, without the holder. */
void client_count(struct client *client, const char *resource);

void client_close(struct client *client);
