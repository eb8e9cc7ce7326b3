/* Starts the command of `run`. */
#ifndef CHILD_H
#define CHILD_H

#include <sys/types.h>

#include "cli/http/client.h"
#include "run_shared.h"

/* Starts the command in a process group of its own. -1: it cannot be run, *ret_error says why. */
pid_t child_start(struct run *run, const struct lease *lease, int *ret_error) __attribute__((warn_unused_result));

#endif
