/* The masters in a file of their own (--masters-file), so that their passwords are neither on a command line nor
 * readable by others. Each line holds one or more addresses, separated by commas or blanks; a # at the beginning of a
 * line or after a blank begins a comment. Blocking: for the start alone. */
#ifndef MASTERS_FILE_H
#define MASTERS_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

/* Reads options->masters_file by the rules of secret_file.h and adds its masters to *options, which has none yet.
 * False: a message of one line with the file, the line and the mistake, which never repeats a word of the file. */
bool masters_file_load(struct options *options, char *message, size_t message_size) __attribute__((warn_unused_result));

#endif
