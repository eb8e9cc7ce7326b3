/* The main thread while the workers serve: it waits for signals, adds up every two seconds what GET /stats shows, and
 * sends messages to the service manager, if systemd started the program with Type=notify (sd_notify(3)).
 *
 * Messages: ready, reloading, stopping, how many masters vote, and that the program is alive: but only if the loop of
 * every worker has turned since the last one, so that a hung loop gets the program restarted. */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "worker.h"

struct watchdog {
	struct sockaddr_un manager;
	socklen_t manager_len; /* 0: no service manager, nothing is sent */
	uint64_t interval_us;  /* the longest time between two messages that it is alive; 0: none are wanted */
	struct worker *const *workers;
	size_t worker_count, master_count;
	uint64_t look_at_us; /* when to check the loops again */
	uint64_t alive_us;   /* time of the last message */
	size_t voting;       /* as last reported */
	bool stuck;          /* a loop hangs, and that is logged */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment: they are not for child
 * processes. */
void watchdog_init(struct watchdog *watchdog);

/* Reports READY. All arguments outlive the watchdog. */
void watchdog_begin(struct watchdog *watchdog, struct worker *const workers[], size_t worker_count,
		    size_t master_count);

/* Waits for one of the signals in *waited, which are blocked, and returns its number; *ret_info describes the
 * sender. */
int watchdog_wait(struct watchdog *watchdog, const sigset_t *waited, siginfo_t *ret_info);

/* Before and after a reload. */
void watchdog_reloading(struct watchdog *watchdog);
void watchdog_reloaded(struct watchdog *watchdog);

/* Reports STOPPING. */
void watchdog_end(struct watchdog *watchdog);

#endif
