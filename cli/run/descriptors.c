/* See descriptors.h. Descriptors of DESCRIPTORS_MAX and above count as inherited. */
#include "descriptors.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { DESCRIPTORS_MAX = 4096 };

static bool inherited[DESCRIPTORS_MAX];

static void descriptors_for_each(void (*act)(int descriptor))
{
	DIR *open_ones = opendir("/proc/self/fd");
	struct dirent *entry;

	assert(act);
	if (!open_ones)
		return;
	while ((entry = readdir(open_ones))) {
		int descriptor = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && descriptor != dirfd(open_ones) && descriptor < DESCRIPTORS_MAX)
			act(descriptor);
	}
	closedir(open_ones);
}

static void descriptors_note_one(int descriptor)
{
	assert(descriptor >= 0 && descriptor < DESCRIPTORS_MAX);
	inherited[descriptor] = true;
}

static void descriptors_seal_one(int descriptor)
{
	assert(descriptor >= 0 && descriptor < DESCRIPTORS_MAX);
	if (!inherited[descriptor] && descriptor > STDERR_FILENO)
		fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

void descriptors_note(void)
{
	descriptors_for_each(descriptors_note_one);
}

void descriptors_seal(void)
{
	descriptors_for_each(descriptors_seal_one);
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
