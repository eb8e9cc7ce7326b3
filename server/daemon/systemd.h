/* Words to the service manager, where systemd started us as Type=notify: that we serve, reload, end, and that we are
 * alive (sd_notify(3)).
 *
 * The protocol is one datagram of NAME=value lines to the socket in NOTIFY_SOCKET, and promised to stay so. It is
 * spoken here and not through libsystemd, which would load seven more libraries, compressors among them, into a process
 * that holds keys; that is the way by which a backdoor in one of them got into sshd (CVE-2024-3094). For the main
 * thread alone. */
#ifndef SYSTEMD_H
#define SYSTEMD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct systemd {
	struct sockaddr_un to;
	socklen_t to_len;     /* 0: nobody listens, and nothing is sent */
	uint64_t watchdog_us; /* how often we must say that we are alive; 0: never */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment: they are not for our
 * children. */
void systemd_init(struct systemd *systemd);

/* True if anybody listens. */
bool systemd_is_on(const struct systemd *systemd);

/* Sends lines ("READY=1\nSTATUS=…"), without waiting longer than a second. Failures are logged. */
void systemd_send(const struct systemd *systemd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* RELOADING=1 with the time that Type=notify-reload asks for. READY=1 ends it. */
void systemd_reloading(const struct systemd *systemd);

#endif
