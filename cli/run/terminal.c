/* The terminal: see terminal.h.
 *
 * The command is in a group of its own, so that it can be ended as a whole; then Ctrl-C reaches it, and it may read,
 * only while the terminal belongs to that group. In a pipeline ("redlockctl run ... | less") the other programs of the
 * job need the terminal as well: there the command gets it only when it asks for it, and until then Ctrl-C and Ctrl-Z
 * are passed on by the foreground process. */
#include "terminal.h"

#include <fcntl.h>
#include <unistd.h>

void terminal_open(struct terminal *terminal)
{
	terminal->file = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	terminal->job = getpgrp();
	terminal->eager = terminal->file >= 0 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

bool terminal_belongs_to(const struct terminal *terminal, pid_t group)
{
	return terminal->file >= 0 && tcgetpgrp(terminal->file) == group;
}

void terminal_pass(const struct terminal *terminal, pid_t from, pid_t to)
{
	if (terminal_belongs_to(terminal, from))
		tcsetpgrp(terminal->file, to);
}
