/* Messages to the service manager, if systemd started the program with Type=notify: ready, reloading, stopping, alive
 * (sd_notify(3)).
 *
 * The protocol is one datagram of NAME=value lines to the socket in NOTIFY_SOCKET; systemd guarantees that it stays so.
 * libsystemd would load seven more libraries, compressors among them, into a process that holds keys; the backdoor of
 * CVE-2024-3094 got into sshd that way. For the main thread alone. */
#ifndef SYSTEMD_H
#define SYSTEMD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct systemd {
	struct sockaddr_un to;
	socklen_t to_len;     /* 0: no service manager, nothing is sent */
	uint64_t watchdog_us; /* the longest interval between two WATCHDOG=1; 0: none are wanted */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment: they are not for child
 * processes. */
void systemd_init(struct systemd *systemd);

/* True if there is a service manager. */
bool systemd_is_on(const struct systemd *systemd);

/* Sends lines ("READY=1\nSTATUS=…"), without waiting longer than a second. Failures are logged. */
void systemd_send(const struct systemd *systemd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* RELOADING=1 with the time that Type=notify-reload asks for. READY=1 ends it. */
void systemd_reloading(const struct systemd *systemd);

#endif
