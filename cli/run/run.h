/* SPDX-License-Identifier: MIT */
/* The command `run`: a command under a lock. The one header of this folder for the others. */
#ifndef RUN_H
#define RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/base/cli_base.h"

/* A page of memory that the processes of a run share, zeroed at the start. Only the supervisor writes, and the
 * foreground process its pid. */
struct run_shared {
	/* when the foreground process kills the remaining processes, if the supervisor has not; 0: nothing runs */
	_Atomic uint64_t dead_by_us;
	_Atomic pid_t supervisor;
	_Atomic pid_t group; /* of the command */
	/* SIGINT or SIGQUIT, if it ended the command; the foreground process then ends by the same signal */
	_Atomic int interrupt;
	_Atomic bool from_keyboard; /* only the command got that signal, since it had the terminal */

	_Atomic uint64_t fence;                /* of the lease; 0: there was none */
	_Atomic uint64_t started_us, ended_us; /* of the command, after its group and its status; 0: not yet */
	_Atomic int status;                    /* of the command, if it has ended, as a shell has it */
};

/* Returns the exit status. */
int run_command(const struct arguments *arguments);

/* The same with a page of the caller, in a child of the caller's. It calls descriptors_walk(DESCRIPTORS_RECORD) before,
 * and _exit() with the status: two processes return. */
int run_command_shared(const struct arguments *arguments, struct run_shared *shared);

/* ---- descriptors.c: the command inherits the descriptors that redlockctl inherited, and no other ---- */

/* RECORD, at the start, stores the open descriptors. SEAL, before the command is started, marks later ones
 * close-on-exec, which libcurl does not always do. */
enum descriptors_step { DESCRIPTORS_RECORD, DESCRIPTORS_SEAL };
void descriptors_walk(enum descriptors_step step);

/* ---- process_tree.c: the processes below a process ---- */

/* Sends a signal to every descendant of `root`, except those in the group `spared` (0: none); also to zombies, since a
 * process whose first thread has ended looks like one while its other threads run. A process that forks meanwhile may
 * be missed: repeat until none is left. */
void process_tree_signal(pid_t root, pid_t spared, int signal_number);

/* True if no descendant of `root` runs a program: each has stopped or ended, or waits in the kernel and stops there if
 * it has got SIGSTOP. After vfork() that lasts until its child, which is stopped, goes on. */
bool process_tree_is_stopped(pid_t root);

/* The letter of /proc: T stopped, D in the kernel, Z ended and not waited for; 0: there is no such process. */
char process_state(pid_t pid);
/* True for the states of which process_tree_is_stopped() speaks. */
bool process_is_halted(char state);

#endif
