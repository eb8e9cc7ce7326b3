/* The foreground process of `run`: see run_shared.h. */
#ifndef FOREGROUND_H
#define FOREGROUND_H

#include "run_shared.h"

/* Follows the supervisor until it has ended. Returns the exit status. */
int foreground_run(struct run *run, pid_t supervisor);

#endif
