/* What the files of api/ share: the HTTP side of one worker. Everything in it belongs to that worker's thread. */
#ifndef INTERNAL_H
#define INTERNAL_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/auth/auth.h"
#include "connection.h"
#include "daemon_pool.h"
#include "disconnect.h"
#include "http.h"
#include "http_metrics.h"
#include "tls.h"

enum { LINGER_MAX = 64, ARRIVALS_MAX = 1024 };

/* A socket of ours that has been answered for the last time: what the client still sends is read away for a moment, as
 * closing with unread bytes would reset the connection under the answer. */
struct lingering {
	int fd;
	uint64_t until_ms;
	size_t bytes_left; /* how much is read away at most */
};

/* An accepted socket that was handed to libmicrohttpd, and its client's address. */
struct arrival {
	int fd;
	struct peer *peer;
};

struct api {
	struct api_config config;
	struct daemon_pool daemon_pool;
	struct tls *tls; /* a reference: for new connections; NULL: there is no TLS */
	struct http_metrics *metrics;
	struct keys *keys;       /* a reference; NULL: no access control by keys */
	size_t connections;      /* open ones, libmicrohttpd's */
	size_t connections_most; /* since memory was given back for the last time */
	uint64_t trim_us;        /* when to give memory back; 0: not now */
	size_t arrivals_count;   /* handed over, but not taken up before the next run (the 1.0 series) */
	struct arrival arrivals[ARRIVALS_MAX];
	bool draining;
	bool ending;   /* within api_free(): nothing new is begun, nothing is suspended */
	bool stopping; /* … and the daemon is being stopped */
	int gone_fd;   /* gone.c's epoll instance */
	struct connection_list lists[CONNECTION_PHASE_COUNT];
	size_t lingering_count;
	uint64_t lingering_look_us; /* when they are looked at next: not in every round, each costs a system call */
	struct lingering lingering[LINGER_MAX];
};

/* CLOCK_BOOTTIME, which cannot be set and counts a suspended machine's sleep. */
uint64_t api_now_us(void);

/* True from SIGTERM on. */
bool api_is_draining(const struct api *api);

#endif
