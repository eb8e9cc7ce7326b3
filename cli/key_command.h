/* The commands that make and hash keys. They send no request. Both return the exit status. */
#ifndef KEY_COMMAND_H
#define KEY_COMMAND_H

#include "cli/base/cli_base.h"

int key_command_new(const struct arguments *arguments);
int key_command_hash(const struct arguments *arguments);

#endif
