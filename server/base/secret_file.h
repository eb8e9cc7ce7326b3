/* Files that grant rights or hold secrets: keys, certificates, passwords. They are read whole, and rejected if anybody
 * else could have written them, or could read what must stay secret. Blocking: for the start and for SIGHUP alone. */
#ifndef SECRET_FILE_H
#define SECRET_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "text.h"

enum secret_file_kind {
	SECRET_FILE_TRUSTED, /* anybody may read it, but only its owner (root or our user) may have written it */
	SECRET_FILE_SECRET   /* the same, and others may not read it either; its group may */
};

/* Checks owner and mode as fstat() returned them. NULL, or the reason (static) why the file is rejected. */
const char *secret_file_check(const struct stat *file, enum secret_file_kind kind);

/* Reads the file at `path`, at most `max` bytes, into `text`, which the caller initialises and owns; a NUL follows the
 * bytes. False: a message that names the file and what is wrong with it. The rules are checked on the open descriptor,
 * so that the file cannot be replaced in between. */
bool secret_file_read(const char *path, enum secret_file_kind kind, size_t max, struct text *text, char *message,
		      size_t message_size) __attribute__((warn_unused_result));

/* Overwrites the bytes before they are freed, so that they do not stay in memory. */
void secret_file_wipe(struct text *text);

#endif
