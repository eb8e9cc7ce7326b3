/* The commands that make and hash keys. They ask no server. Both return the exit status. */
#ifndef CLI_KEY_COMMAND_H
#define CLI_KEY_COMMAND_H

#include "arguments.h"

int key_command_new(const struct options *options);
int key_command_hash(const struct options *options);

#endif
