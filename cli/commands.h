/* The commands that ask and end: acquire, extend, release, status, list, masters, health. Each returns the exit
 * status. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "cli/base/cli_base.h"

int commands_run(const struct arguments *arguments);

#endif
