/* SPDX-License-Identifier: MIT */
/* A redlockd that takes its time when it looks at how much of a socket is unread (SIOCINQ), for LD_PRELOAD: in the look
 * of the number LOOK_NUMBER it makes the file LOOK_FILE, and looks when that is gone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

int ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, void *) = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	const char *path = getenv("LOOK_FILE"), *number = getenv("LOOK_NUMBER");
	static int looks;
	va_list arguments;

	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	if (request == SIOCINQ && path != NULL && number != NULL && ++looks == atoi(number)) {
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		while (access(path, F_OK) == 0)
			usleep(1000);
	}
	return next(fd, request, argument);
}
