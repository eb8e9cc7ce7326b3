/* SPDX-License-Identifier: MIT */
/* The main thread while the workers serve. See daemon.h.
 *
 * The protocol of the service manager is one datagram of NAME=value lines to the socket in NOTIFY_SOCKET; systemd
 * guarantees that it stays so. libsystemd would load seven more libraries, compressors among them, into a process that
 * holds keys; the backdoor of CVE-2024-3094 got into sshd that way.
 *
 * The clock of redlockd counts the sleep of a suspended machine, that of systemd does not. So a message comes earlier,
 * never later. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "daemon.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"
#include "server/redlock/redlock.h"

enum { WATCHDOG_STATUS_US = 1000000, WATCHDOG_ALIVE_PART = 2, WATCHDOG_STUCK_PART = 16, WATCHDOG_SEND_S = 1 };

/* ---- the service manager ---- */

static uint64_t watchdog_parse_number(const char *text)
{
	char *end;
	if (!text || text[0] < '0' || text[0] > '9')
		return 0;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	return *end == '\0' && errno == 0 ? number : 0;
}

void watchdog_init(struct watchdog *watchdog)
{
	const char *name = getenv("NOTIFY_SOCKET"), *pid = getenv("WATCHDOG_PID");
	size_t len = name ? strlen(name) : 0;
	*watchdog = (struct watchdog){.manager.sun_family = AF_UNIX};
	/* "/path", or "@name" for an abstract socket; anything else is ignored */
	if (len >= 2 && len < sizeof watchdog->manager.sun_path && (name[0] == '/' || name[0] == '@')) {
		memcpy(watchdog->manager.sun_path, name, len);
		if (name[0] == '@')
			watchdog->manager.sun_path[0] = '\0';
		watchdog->manager_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
		if (!pid || watchdog_parse_number(pid) == (uint64_t)getpid())
			watchdog->interval_us = watchdog_parse_number(getenv("WATCHDOG_USEC"));
	}
	assert(watchdog->manager_len > 0 || watchdog->interval_us == 0);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

/* Sends lines ("READY=1\nSTATUS=…"), without waiting longer than a second. Failures are logged. */
static __attribute__((format(printf, 2, 3))) void watchdog_send(const struct watchdog *watchdog, const char *format,
								...)
{
	const struct timeval bound = {.tv_sec = WATCHDOG_SEND_S};
	char text[512];
	va_list args;
	if (watchdog->manager_len == 0)
		return;
	va_start(args, format);
	int len = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	assert(len > 0 && (size_t)len < sizeof text);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound) != 0 ||
	    sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&watchdog->manager,
		   watchdog->manager_len) < 0) {
		log_begin(LOG_WARN, "notify-failed");
		log_str("text", text, strcspn(text, "\n"));
		log_text("reason", strerror(errno));
		log_end();
		log_flush();
	}
	if (fd >= 0)
		close(fd);
}

/* `before`: lines to send with the status; "": send only if the status has changed. */
static void watchdog_send_status(struct watchdog *watchdog, const char *before)
{
	size_t voting = metrics_voting(), needed = redlock_majority((uint8_t)watchdog->master_count);
	assert(watchdog->master_count > 0);
	if (before[0] == '\0' && voting == watchdog->voting)
		return;
	watchdog->voting = voting;
	watchdog_send(watchdog, "%sSTATUS=%zu of %zu masters voting%s\n", before, voting, watchdog->master_count,
		      voting < needed ? ": too few, no lock can be taken" : "");
}

/* RELOADING=1 with the time that Type=notify-reload asks for. READY=1 ends it. */
void watchdog_reloading(struct watchdog *watchdog)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	watchdog_send(watchdog, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		      (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

void watchdog_reloaded(struct watchdog *watchdog)
{
	watchdog_send_status(watchdog, "READY=1\n");
}

void watchdog_end(struct watchdog *watchdog)
{
	watchdog_send(watchdog, "STOPPING=1\nSTATUS=draining");
}

/* ---- the loops ---- */

/* Each loop has to run once until the next message. */
static void watchdog_ping_loops(struct watchdog *watchdog, uint64_t now_us)
{
	for (size_t w = 0; watchdog->interval_us > 0 && w < watchdog->worker_count; w++)
		worker_ping(watchdog->workers[w]);
	watchdog->alive_us = now_us;
	watchdog->look_at_us = now_us + watchdog->interval_us / WATCHDOG_ALIVE_PART;
}

static void watchdog_count_stuck(struct watchdog *watchdog, size_t worker, uint64_t now_us)
{
	assert(worker < watchdog->worker_count && now_us >= watchdog->alive_us);
	/* Checks more often from now on, so that the message is in time if the loop runs again. */
	watchdog->look_at_us = now_us + watchdog->interval_us / WATCHDOG_STUCK_PART;
	if (watchdog->stuck)
		return;
	watchdog->stuck = true;
	log_begin(LOG_ERROR, "worker-stuck");
	log_num("worker", (int64_t)worker);
	log_num("for_ms", (int64_t)((now_us - watchdog->alive_us) / 1000));
	log_text("note", "the service manager gets no message that redlockd is alive until its loop runs again");
	log_end();
}

static void watchdog_check_loops(struct watchdog *watchdog)
{
	uint64_t now_us = clock_now_us();
	if (watchdog->interval_us == 0 || now_us < watchdog->look_at_us)
		return;
	for (size_t w = 0; w < watchdog->worker_count; w++)
		if (!worker_loop_ran(watchdog->workers[w])) {
			watchdog_count_stuck(watchdog, w, now_us);
			return;
		}
	watchdog->stuck = false;
	watchdog_send(watchdog, "WATCHDOG=1");
	watchdog_ping_loops(watchdog, now_us);
}

/* ---- the main thread ---- */

void watchdog_begin(struct watchdog *watchdog, struct worker *const workers[], size_t worker_count, size_t master_count)
{
	assert(worker_count > 0);
	watchdog->workers = workers;
	watchdog->worker_count = worker_count;
	watchdog->master_count = master_count;
	watchdog_send_status(watchdog, "READY=1\n");
	watchdog_ping_loops(watchdog, clock_now_us());
}

/* The time until the next task; with a service manager a second at most. */
static struct timespec watchdog_pause(const struct watchdog *watchdog)
{
	uint64_t now_us = clock_now_us(), pause_us = stats_pause_us(now_us);
	if (watchdog->manager_len > 0 && pause_us > WATCHDOG_STATUS_US)
		pause_us = WATCHDOG_STATUS_US;
	if (watchdog->interval_us > 0 && watchdog->look_at_us < now_us + pause_us)
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
		return 0;
	}
}
