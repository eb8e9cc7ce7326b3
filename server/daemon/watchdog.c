/* See watchdog.h. Times are CLOCK_MONOTONIC, as systemd's are, but for those of the statistics (clock.h). */
#include "watchdog.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#include "server/base/base.h"
#include "server/metrics/metrics.h"

enum { WATCHDOG_STATUS_US = 1000000, WATCHDOG_ALIVE_PART = 2, WATCHDOG_STUCK_PART = 16 };

static uint64_t watchdog_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- the masters ---- */

/* `before`: lines to send with the status; "": send only if the status has changed. */
static void watchdog_send_status(struct watchdog *watchdog, const char *before)
{
	size_t voting = metrics_voting(), needed = watchdog->master_count / 2 + 1;

	assert(watchdog->systemd && watchdog->master_count > 0);
	if (before[0] == '\0' && voting == watchdog->voting)
		return;
	watchdog->voting = voting;
	systemd_send(watchdog->systemd, "%sSTATUS=%zu of %zu masters voting%s\n", before, voting,
		     watchdog->master_count, voting < needed ? ": too few, no lock can be taken" : "");
}

/* ---- the loops ---- */

/* The first worker whose loop has not turned since the last report; worker_count if there is none. */
static size_t watchdog_find_stuck(const struct watchdog *watchdog)
{
	size_t w = 0;

	assert(watchdog->worker_count > 0);
	while (w < watchdog->worker_count && worker_turns(watchdog->workers[w]) != watchdog->turns[w])
		w++;
	return w;
}

/* Each loop has to turn once until the next report. */
static void watchdog_poke_loops(struct watchdog *watchdog, uint64_t now_us)
{
	assert(watchdog->worker_count <= METRICS_WORKERS_MAX);
	if (watchdog->systemd->watchdog_us == 0)
		return;
	for (size_t w = 0; w < watchdog->worker_count; w++) {
		watchdog->turns[w] = worker_turns(watchdog->workers[w]);
		worker_poke(watchdog->workers[w]);
	}
	watchdog->alive_us = now_us;
	watchdog->look_at_us = now_us + watchdog->systemd->watchdog_us / WATCHDOG_ALIVE_PART;
}

static void watchdog_note_stuck(struct watchdog *watchdog, size_t worker, uint64_t now_us)
{
	assert(worker < watchdog->worker_count && now_us >= watchdog->alive_us);
	/* Checked more often from now on, so that the report is in time if the loop turns again. */
	watchdog->look_at_us = now_us + watchdog->systemd->watchdog_us / WATCHDOG_STUCK_PART;
	if (watchdog->stuck)
		return;
	watchdog->stuck = true;
	log_begin(LOG_ERROR, "worker-stuck");
	log_num("worker", (int64_t)worker);
	log_num("for_ms", (int64_t)((now_us - watchdog->alive_us) / 1000));
	log_text("note", "the service manager is not told that redlockd is alive until its loop turns again");
	log_end();
}

static void watchdog_check_loops(struct watchdog *watchdog)
{
	uint64_t now_us = watchdog_now_us();

	if (watchdog->systemd->watchdog_us == 0 || now_us < watchdog->look_at_us)
		return;
	size_t worker = watchdog_find_stuck(watchdog);
	if (worker < watchdog->worker_count) {
		watchdog_note_stuck(watchdog, worker, now_us);
		return;
	}
	watchdog->stuck = false;
	systemd_send(watchdog->systemd, "WATCHDOG=1");
	watchdog_poke_loops(watchdog, now_us);
}

/* ---- the main thread ---- */

void watchdog_begin(struct watchdog *watchdog, const struct systemd *systemd, struct worker *const workers[],
		    size_t worker_count, size_t master_count)
{
	assert(worker_count > 0 && worker_count <= METRICS_WORKERS_MAX);
	*watchdog = (struct watchdog){
		.systemd = systemd, .workers = workers, .worker_count = worker_count, .master_count = master_count};
	watchdog_send_status(watchdog, "READY=1\n");
	watchdog_poke_loops(watchdog, watchdog_now_us());
}

/* The time until there is something to do; with a service manager a second at most. */
static struct timespec watchdog_pause(const struct watchdog *watchdog)
{
	uint64_t now_us = watchdog_now_us(), pause_us = stats_pause_us(clock_now_us());

	if (systemd_is_on(watchdog->systemd) && pause_us > WATCHDOG_STATUS_US)
		pause_us = WATCHDOG_STATUS_US;
	if (watchdog->systemd->watchdog_us > 0 && watchdog->look_at_us < now_us + pause_us)
		pause_us = watchdog->look_at_us > now_us ? watchdog->look_at_us - now_us : 0;
	return (struct timespec){.tv_sec = (time_t)(pause_us / 1000000), .tv_nsec = (long)(pause_us % 1000000) * 1000};
}

int watchdog_wait(struct watchdog *watchdog, const sigset_t *waited, siginfo_t *ret_info)
{
	assert(waited && ret_info);
	for (;;) {
		struct timespec pause = watchdog_pause(watchdog);
		int number = sigtimedwait(waited, ret_info, &pause);
		if (number > 0)
			return number;
		assert(errno == EAGAIN || errno == EINTR);
		if (errno == EINTR)
			continue;
		stats_tick(clock_now_us());
		watchdog_send_status(watchdog, "");
		watchdog_check_loops(watchdog);
	}
}

void watchdog_reloading(struct watchdog *watchdog)
{
	systemd_reloading(watchdog->systemd);
}

void watchdog_reloaded(struct watchdog *watchdog)
{
	watchdog_send_status(watchdog, "READY=1\n");
}

void watchdog_end(struct watchdog *watchdog)
{
	systemd_send(watchdog->systemd, "STOPPING=1\nSTATUS=draining");
}
