/* SPDX-License-Identifier: MIT */
/* Signals to all descendants, found in /proc. See run_internal.h.
 *
 * If the caller is a subreaper, all processes that it started stay below it, also those that forked twice and made a
 * session of their own. Processes that a service manager or a container engine started for them do not.
 *
 * A pid from /proc may belong to another process a moment later. So a pidfd is opened first, then /proc is read again.
 * If the process is still below the root, it gets the signal through the pidfd; if it has ended meanwhile, the signal
 * reaches nobody. Without pidfds (before Linux 5.3, or with a filter of system calls) only children of the caller are
 * signalled: their pids are free only after the caller has waited for them, and their children become its children.
 * Without /proc only the group of the command is signalled, and only while a child of the caller is in it: its number
 * is not free then. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_internal.h"

enum { STAT_MAX = 1024, READS_MAX = 3 };

struct process {
	pid_t parent, group;
	char state;
};

/* The name in parentheses may have parentheses, blanks and line feeds, so the other fields follow the last
 * parenthesis. */
static bool process_read(pid_t pid, struct process *ret_process)
{
	char path[64], text[STAT_MAX];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	ssize_t len = read(file, text, sizeof text - 1); /* complete, or not at all */
	close(file);
	if (len <= 0)
		return false;
	text[len] = '\0';
	const char *rest = strrchr(text, ')');
	return rest &&
	       sscanf(rest + 1, " %c %d %d", &ret_process->state, &ret_process->parent, &ret_process->group) == 3;
}

/* True if `pid` is below the root; then *ret_process is set. Begins again if an ancestor ends meanwhile, since its
 * children get another parent. `outside`: a cache of a parent that is not below the root, since siblings follow one
 * another; 0: none. */
static bool process_is_below(pid_t pid, pid_t root, pid_t *outside, struct process *ret_process)
{
	assert(pid > 0 && root > 0);
	for (int tries = 0; tries < READS_MAX && process_read(pid, ret_process); tries++) {
		struct process above = *ret_process;
		bool read = true;
		while (read && above.parent > 1 && above.parent != root && above.parent != *outside)
			read = process_read(above.parent, &above);
		if (read && above.parent == root)
			return true;
		if (read) {
			*outside = ret_process->parent;
			return false;
		}
	}
	return false;
}

static void process_signal(pid_t pid, pid_t root, pid_t *outside, pid_t spared, int signal_number)
{
	struct process process;
	pid_t none = 0;
	if (!process_is_below(pid, root, outside, &process) || (spared != 0 && process.group == spared))
		return;
	int file = pidfd_open(pid, 0);
	if (file >= 0) {
		if (process_is_below(pid, root, &none, &process))
			pidfd_send_signal(file, signal_number, NULL, 0);
		close(file);
	} else if (errno != ESRCH && process.parent == getpid()) {
		kill(pid, signal_number);
	}
}

bool process_group_signal(pid_t group, int signal_number)
{
	siginfo_t info;
	assert(group > 0 && signal_number > 0);
	return waitid(P_PGID, (id_t)group, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && kill(-group, signal_number) == 0;
}

void process_tree_signal(pid_t root, pid_t spared, int signal_number)
{
	DIR *all = opendir("/proc");
	struct dirent *entry;
	pid_t outside = 0;
	assert(root > 0 && spared >= 0 && signal_number > 0);
	while (all && (entry = readdir(all)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			process_signal(atoi(entry->d_name), root, &outside, spared, signal_number);
	if (all)
		closedir(all);
}

bool process_is_halted(char state)
{
	return state != '\0' && strchr("TtDZX", state);
}

bool process_tree_is_stopped(pid_t root)
{
	DIR *all = opendir("/proc");
	struct process process;
	struct dirent *entry;
	pid_t outside = 0;
	bool stopped = all != NULL;
	assert(root > 0);
	while (stopped && (entry = readdir(all)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
		    process_is_below(atoi(entry->d_name), root, &outside, &process))
			stopped = process_is_halted(process.state);
	if (all)
		closedir(all);
	return stopped;
}

char process_state(pid_t pid)
{
	struct process process;
	assert(pid > 0);
	return process_read(pid, &process) ? process.state : '\0';
}
