/* The terminal, and which group of processes it belongs to. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct terminal {
	int file;   /* the controlling terminal; -1: there is none */
	pid_t job;  /* the group that the shell knows: the foreground process's */
	bool eager; /* the command gets the terminal from the start, not only when it reads from it */
};

void terminal_open(struct terminal *terminal);

bool terminal_belongs_to(const struct terminal *terminal, pid_t group);

/* Gives the terminal to `to` if it belongs to `from`. Also from the background if SIGTTOU is blocked. */
void terminal_pass(const struct terminal *terminal, pid_t from, pid_t to);

#endif
