/* The processes below a process. */
#ifndef PROCESS_TREE_H
#define PROCESS_TREE_H

#include <sys/types.h>

/* Sends a signal to every descendant of `root`, except those in the group `spared` (0: none); also to zombies, since a
 * process whose first thread has ended looks like one while its other threads run. Returns to how many it was sent. A
 * process that forks meanwhile may be missed: repeat until none is left. */
unsigned process_tree_signal(pid_t root, pid_t spared, int signal_number);

#endif
