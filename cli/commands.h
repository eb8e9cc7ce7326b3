/* The commands that send requests and end: acquire, extend, release, status, list, masters, health. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "cli/base/cli_base.h"

/* Returns the exit status. */
int commands_run(const struct arguments *arguments);

#endif
