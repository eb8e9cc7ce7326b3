/* See watch.h. Times are CLOCK_MONOTONIC's, by which systemd measures too, but for those of the figures (clock.h). */
#include "watchdog.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#include "server/base/base.h"
#include "server/metrics/metrics.h"

enum { WATCH_STATUS_US = 1000000, WATCH_ALIVE_PART = 2, WATCH_STUCK_PART = 16 };

static uint64_t watch_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- the masters ---- */

/* `before`: lines to send with the status; "": only if it is another than the last. */
static void watch_tell_status(struct watch *watch, const char *before)
{
	size_t voting = metrics_voting(), needed = watch->master_count / 2 + 1;

	if (before[0] == '\0' && voting == watch->voting)
		return;
	watch->voting = voting;
	notify_send(watch->notify, "%sSTATUS=%zu of %zu masters voting%s\n", before, voting, watch->master_count,
		    voting < needed ? ": too few, no lock can be taken" : "");
}

/* ---- the loops ---- */

/* The first worker whose loop has not turned since we last said that we are alive; worker_count if there is none. */
static size_t watch_find_stuck(const struct watch *watch)
{
	size_t w = 0;

	while (w < watch->worker_count && worker_turns(watch->workers[w]) != watch->turns[w])
		w++;
	return w;
}

/* From now on each loop has to turn once more. */
static void watch_ask_loops(struct watch *watch, uint64_t now_us)
{
	if (watch->notify->watchdog_us == 0)
		return;
	for (size_t w = 0; w < watch->worker_count; w++) {
		watch->turns[w] = worker_turns(watch->workers[w]);
		worker_poke(watch->workers[w]);
	}
	watch->alive_us = now_us;
	watch->look_at_us = now_us + watch->notify->watchdog_us / WATCH_ALIVE_PART;
}

static void watch_note_stuck(struct watch *watch, size_t worker, uint64_t now_us)
{
	/* Looked at more often now, so that it is heard of in time if it turns again. */
	watch->look_at_us = now_us + watch->notify->watchdog_us / WATCH_STUCK_PART;
	if (watch->stuck)
		return;
	watch->stuck = true;
	log_begin(LOG_ERROR, "worker-stuck");
	log_num("worker", (int64_t)worker);
	log_num("for_ms", (int64_t)((now_us - watch->alive_us) / 1000));
	log_text("note", "the service manager is not told that redlockd is alive until its loop turns again");
	log_end();
}

static void watch_look_at_loops(struct watch *watch)
{
	uint64_t now_us = watch_now_us();

	if (watch->notify->watchdog_us == 0 || now_us < watch->look_at_us)
		return;
	size_t worker = watch_find_stuck(watch);
	if (worker < watch->worker_count) {
		watch_note_stuck(watch, worker, now_us);
		return;
	}
	watch->stuck = false;
	notify_send(watch->notify, "WATCHDOG=1");
	watch_ask_loops(watch, now_us);
}

/* ---- the main thread ---- */

void watch_begin(struct watch *watch, const struct notify *notify, struct worker *const workers[], size_t worker_count,
		 size_t master_count)
{
	assert(worker_count > 0 && worker_count <= METRICS_WORKERS_MAX);
	*watch = (struct watch){
		.notify = notify, .workers = workers, .worker_count = worker_count, .master_count = master_count};
	watch_tell_status(watch, "READY=1\n");
	watch_ask_loops(watch, watch_now_us());
}

/* How long nothing is to be done; where a service manager listens, a second at most. */
static struct timespec watch_pause(const struct watch *watch)
{
	uint64_t now_us = watch_now_us(), pause_us = stats_pause_us(clock_now_us());

	if (notify_is_on(watch->notify) && pause_us > WATCH_STATUS_US)
		pause_us = WATCH_STATUS_US;
	if (watch->notify->watchdog_us > 0 && watch->look_at_us < now_us + pause_us)
		pause_us = watch->look_at_us > now_us ? watch->look_at_us - now_us : 0;
	return (struct timespec){.tv_sec = (time_t)(pause_us / 1000000), .tv_nsec = (long)(pause_us % 1000000) * 1000};
}

int watch_wait(struct watch *watch, const sigset_t *waited, siginfo_t *ret_info)
{
	for (;;) {
		struct timespec pause = watch_pause(watch);
		int number = sigtimedwait(waited, ret_info, &pause);
		if (number > 0)
			return number;
		assert(errno == EAGAIN || errno == EINTR);
		if (errno == EINTR)
			continue;
		stats_tick(clock_now_us());
		watch_tell_status(watch, "");
		watch_look_at_loops(watch);
	}
}

void watch_reloading(struct watch *watch)
{
	notify_reloading(watch->notify);
}

void watch_reloaded(struct watch *watch)
{
	watch_tell_status(watch, "READY=1\n");
}

void watch_end(struct watch *watch)
{
	notify_send(watch->notify, "STOPPING=1\nSTATUS=draining");
}
