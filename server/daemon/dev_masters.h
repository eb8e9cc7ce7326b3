/* The private masters of --dev: redis-server (else valkey-server) processes on Unix sockets in a temporary folder.
 *
 * Processes and folder are removed soon after redlockd ends, also after kill -9: a small supervisor process sees to
 * that. For the main thread; dev_masters_start() before there is another thread. */
#ifndef DEV_MASTERS_H
#define DEV_MASTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/config/config.h"

enum { DEV_MASTERS_FOLDER_MAX = 96 };

struct dev_masters {
	pid_t supervisor;
	int report_fd; /* reports of the supervisor; end of file when it has ended everything */
	char folder[DEV_MASTERS_FOLDER_MAX];
};

/* Starts `count` (1 … OPTIONS_MASTERS_MAX) masters, waits until each listens, at most 5 s, and writes their addresses
 * into options->masters[]. False and a message if that fails; then nothing is left. By the thread whose end is the end
 * of the program, before any other exists: it forks. */
bool dev_masters_start(struct dev_masters *dev, uint32_t count, struct options *options, char *message, size_t size)
	__attribute__((warn_unused_result));

/* Ends the masters and waits, about 3 s at most, until they have ended and the folder is removed. */
void dev_masters_stop(struct dev_masters *dev);

#endif
