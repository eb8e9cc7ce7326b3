/* SPDX-License-Identifier: MIT */
/* See run_internal.h.
 *
 * The command has a process group of its own, so that it can be ended as a whole. Ctrl-C reaches the command, and it
 * may read, only while the terminal belongs to that group. In a pipeline ("redlockctl run ... | less") the other
 * programs of the job need the terminal, too. So the command gets it when it reads from it; until then the foreground
 * process passes Ctrl-C and Ctrl-Z on. */
#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

#include "run_internal.h"

void terminal_open(struct terminal *terminal)
{
	terminal->file = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	terminal->job = getpgrp();
	terminal->eager = terminal->file >= 0 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

bool terminal_belongs_to(const struct terminal *terminal, pid_t group)
{
	assert(group >= 0); /* 0: the leader is in another PID namespace */
	return terminal->file >= 0 && tcgetpgrp(terminal->file) == group;
}

void terminal_pass(const struct terminal *terminal, pid_t from, pid_t to)
{
	assert(from >= 0 && to >= 0);
	if (terminal_belongs_to(terminal, from))
		tcsetpgrp(terminal->file, to);
}
