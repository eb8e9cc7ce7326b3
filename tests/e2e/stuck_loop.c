/* SPDX-License-Identifier: MIT */
/* One event loop that hangs, for LD_PRELOAD: while the file named by STUCK_FILE is there, the first thread that comes
 * to epoll does not come back from it; the others go on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static atomic_int stuck_thread;

static void get_stuck(void)
{
	const char *path = getenv("STUCK_FILE");
	int nobody = 0, self = gettid();

	if (path == NULL || access(path, F_OK) != 0 ||
	    !(atomic_compare_exchange_strong(&stuck_thread, &nobody, self) || nobody == self))
		return;
	while (access(path, F_OK) == 0)
		usleep(1000);
	atomic_store(&stuck_thread, 0);
}

int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	static int (*next)(int, struct epoll_event *, int, int);

	if (next == NULL)
		next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	get_stuck();
	return next(fd, events, count, timeout);
}

int epoll_pwait(int fd, struct epoll_event *events, int count, int timeout, const sigset_t *mask)
{
	static int (*next)(int, struct epoll_event *, int, int, const sigset_t *);

	if (next == NULL)
		next = (int (*)(int, struct epoll_event *, int, int, const sigset_t *))dlsym(RTLD_NEXT, "epoll_pwait");
	get_stuck();
	return next(fd, events, count, timeout, mask);
}
