/* See systemd.h. */
#include "systemd.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "server/base/base.h"

enum { SYSTEMD_MAX = 512, SYSTEMD_SEND_S = 1 };

/* "/path", or "@name" for an abstract socket; anything else is ignored. */
static void systemd_parse_socket(struct systemd *systemd, const char *name)
{
	size_t len = strlen(name);

	assert(systemd->to_len == 0);
	if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof systemd->to.sun_path)
		return;
	systemd->to.sun_family = AF_UNIX;
	memcpy(systemd->to.sun_path, name, len);
	if (name[0] == '@')
		systemd->to.sun_path[0] = '\0';
	systemd->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

/* A whole number, or 0. */
static uint64_t systemd_parse_number(const char *text)
{
	char *end;

	if (!text || text[0] < '0' || text[0] > '9')
		return 0;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	return *end == '\0' && errno == 0 ? number : 0;
}

void systemd_init(struct systemd *systemd)
{
	const char *name = getenv("NOTIFY_SOCKET"), *pid = getenv("WATCHDOG_PID");

	assert(systemd);
	*systemd = (struct systemd){0};
	if (name)
		systemd_parse_socket(systemd, name);
	if (systemd->to_len > 0 && (!pid || systemd_parse_number(pid) == (uint64_t)getpid()))
		systemd->watchdog_us = systemd_parse_number(getenv("WATCHDOG_USEC"));
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

bool systemd_is_on(const struct systemd *systemd)
{
	assert(systemd->to_len <= sizeof systemd->to);
	return systemd->to_len > 0;
}

/* 0 or errno. */
static int systemd_deliver(const struct systemd *systemd, const char *text, size_t len)
{
	const struct timeval bound = {.tv_sec = SYSTEMD_SEND_S};
	int error = 0, fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert(systemd_is_on(systemd) && len > 0);
	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
	if (sendto(fd, text, len, MSG_NOSIGNAL, (const struct sockaddr *)&systemd->to, systemd->to_len) < 0)
		error = errno;
	close(fd);
	return error;
}

void systemd_send(const struct systemd *systemd, const char *format, ...)
{
	char text[SYSTEMD_MAX];
	va_list args;

	if (!systemd_is_on(systemd))
		return;
	va_start(args, format);
	int len = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	assert(len > 0 && (size_t)len < sizeof text);
	int error = systemd_deliver(systemd, text, (size_t)len);
	if (error == 0)
		return;
	log_begin(LOG_WARN, "notify-failed");
	log_str("text", text, strcspn(text, "\n"));
	log_text("reason", strerror(error));
	log_end();
	log_flush();
}

void systemd_reloading(const struct systemd *systemd)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	systemd_send(systemd, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		     (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}
