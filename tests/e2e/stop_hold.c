/* SPDX-License-Identifier: MIT */
/* A redlockd that stands still between the grant of a lease and the beginning of its hold, for LD_PRELOAD: while the
 * file named by STOP_FILE is there, libuv makes no timer. A hold has one of its own, made when the lease has been
 * granted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int uv_timer_init(void *loop, void *timer)
{
	int (*next)(void *, void *) = (int (*)(void *, void *))dlsym(RTLD_NEXT, "uv_timer_init");
	const char *path = getenv("STOP_FILE");

	while (path != NULL && access(path, F_OK) == 0)
		usleep(1000);
	return next(loop, timer);
}
