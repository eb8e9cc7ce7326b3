/* SPDX-License-Identifier: MIT */
/* See run_internal.h. Descriptors of DESCRIPTORS_MAX and above count as inherited. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "run_internal.h"

enum { DESCRIPTORS_MAX = 4096 };

static bool inherited[DESCRIPTORS_MAX];

void descriptors_walk(enum descriptors_step step)
{
	DIR *open_ones = opendir("/proc/self/fd");
	struct dirent *entry;
	while (open_ones && (entry = readdir(open_ones))) {
		int descriptor = atoi(entry->d_name);
		if (entry->d_name[0] == '.' || descriptor == dirfd(open_ones) || descriptor >= DESCRIPTORS_MAX)
			continue;
		if (step == DESCRIPTORS_RECORD)
			inherited[descriptor] = true;
		else if (!inherited[descriptor] && descriptor > STDERR_FILENO)
			fcntl(descriptor, F_SETFD, FD_CLOEXEC);
	}
	if (open_ones)
		closedir(open_ones);
}

void descriptors_release_stdio(void)
{
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (nothing < 0)
		return;
	dup2(nothing, STDIN_FILENO);
	dup2(nothing, STDOUT_FILENO);
	if (nothing > STDERR_FILENO)
		close(nothing);
}
