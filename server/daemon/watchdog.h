/* What the main thread does while the workers serve: it waits for signals, and adds up every two seconds what GET
 * /stats shows (stats.h). Where a service manager listens (notify.h) it wakes in between, to say how many masters vote,
 * and that the program is alive: but only if the loop of every worker has turned since it last said so, so that a loop
 * that hangs gets the program restarted. */
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
	uint64_t turns[METRICS_WORKERS_MAX]; /* of each loop, when we last said that we are alive */
	uint64_t look_at_us;                 /* when to look at the loops again */
	uint64_t alive_us;                   /* when we last said that we are alive */
	size_t voting;                       /* as last said */
	bool stuck;                          /* a loop did not turn, and the log says so */
};

/* Says that we serve. All that is given outlives the watch. */
void watchdog_begin(struct watchdog *watchdog, const struct systemd *systemd, struct worker *const workers[],
		    size_t worker_count, size_t master_count);

/* Waits for one of the signals in *waited, which are blocked, and returns its number; *ret_info says who sent it. */
int watchdog_wait(struct watchdog *watchdog, const sigset_t *waited, siginfo_t *ret_info);

/* Around a reload: SIGHUP was taken, and has been acted upon. */
void watchdog_reloading(struct watchdog *watchdog);
void watchdog_reloaded(struct watchdog *watchdog);

/* Says that we end. */
void watchdog_end(struct watchdog *watchdog);

#endif
