/* What the main thread does while the workers serve: it waits for signals, and adds up every two seconds what GET
 * /stats shows (stats.h). Where a service manager listens (notify.h) it wakes in between, to say how many masters vote,
 * and that the program is alive: but only if the loop of every worker has turned since it last said so, so that a loop
 * that hangs gets the program restarted. */
#ifndef WATCH_H
#define WATCH_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/metrics/metrics.h"
#include "systemd.h"
#include "worker.h"

struct watch {
	const struct notify *notify;
	struct worker *const *workers;
	size_t worker_count, master_count;
	uint64_t turns[METRICS_WORKERS_MAX]; /* of each loop, when we last said that we are alive */
	uint64_t look_at_us;                 /* when to look at the loops again */
	uint64_t alive_us;                   /* when we last said that we are alive */
	size_t voting;                       /* as last said */
	bool stuck;                          /* a loop did not turn, and the log says so */
};

/* Says that we serve. All that is given outlives the watch. */
void watch_begin(struct watch *watch, const struct notify *notify, struct worker *const workers[], size_t worker_count,
		 size_t master_count);

/* Waits for one of the signals in *waited, which are blocked, and returns its number; *ret_info says who sent it. */
int watch_wait(struct watch *watch, const sigset_t *waited, siginfo_t *ret_info);

/* Around a reload: SIGHUP was taken, and has been acted upon. */
void watch_reloading(struct watch *watch);
void watch_reloaded(struct watch *watch);

/* Says that we end. */
void watch_end(struct watch *watch);

#endif
