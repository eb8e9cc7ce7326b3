/* SPDX-License-Identifier: MIT */
/* The command `run`: a command under a lock. The one header of this folder for the others. */
#ifndef RUN_H
#define RUN_H

#include "cli/base/cli_base.h"

/* Returns the exit status. */
int run_command(struct arguments *arguments);

#endif
