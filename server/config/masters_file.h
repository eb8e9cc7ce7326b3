/* The masters in a file of their own (--masters-file), so that their passwords stand neither on a command line nor
 * where others may read them. One address a line, or several with commas or blanks between them; what follows a # at
 * the beginning of a line or after a blank is a comment. Blocking: for the start alone. */
#ifndef MASTERS_FILE_H
#define MASTERS_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

/* Reads options->masters_file, by the rules for secrets of secret_file.h, and puts the masters in it into *options,
 * which has none yet. False: one line that names the file, the line and what is wrong there, but never repeats a word
 * of it. */
bool masters_file_load(struct options *options, char *message, size_t message_size) __attribute__((warn_unused_result));

#endif
