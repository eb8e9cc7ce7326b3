/* The commands that ask and end: acquire, extend, release, status, list, masters, health. Each returns the exit
 * status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "arguments.h"

int commands_run(const struct options *options);

#endif
