/* The main thread while the workers serve: it waits for signals, and adds up every two seconds what GET /stats shows.
 *
 * With a service manager (systemd.h) it also wakes in between, to report how many masters vote, and that the program is
 * alive: but only if the loop of every worker has turned since the last report, so that a hung loop gets the program
 * restarted. */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/metrics/metrics.h"
#include "systemd.h"
#include "worker.h"

struct watchdog {
	const struct systemd *systemd;
	struct worker *const *workers;
	size_t worker_count, master_count;
	uint64_t turns[METRICS_WORKERS_MAX]; /* of each loop, at the last report */
	uint64_t look_at_us;                 /* when to check the loops again */
	uint64_t alive_us;                   /* time of the last report */
	size_t voting;                       /* as last reported */
	bool stuck;                          /* a loop hangs, and that is logged */
};

/* Reports READY. All arguments outlive the watchdog. */
void watchdog_begin(struct watchdog *watchdog, const struct systemd *systemd, struct worker *const workers[],
		    size_t worker_count, size_t master_count);

/* Waits for one of the signals in *waited, which are blocked, and returns its number; *ret_info describes the
 * sender. */
int watchdog_wait(struct watchdog *watchdog, const sigset_t *waited, siginfo_t *ret_info);

/* Before and after a reload. */
void watchdog_reloading(struct watchdog *watchdog);
void watchdog_reloaded(struct watchdog *watchdog);

/* Reports STOPPING. */
void watchdog_end(struct watchdog *watchdog);

#endif
