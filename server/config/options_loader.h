/* What is known while the options are being loaded. For options.c and options_check.c alone. */
#ifndef OPTIONS_LOADER_H
#define OPTIONS_LOADER_H

#include <sys/stat.h>

#include "options_table.h"

struct options_loader {
	struct options *options;
	enum options_source source;                 /* being read */
	enum options_source origins[OPTIONS_COUNT]; /* of the values in *options */
	bool seen[OPTIONS_COUNT];                   /* in this source */
	const char *path;                           /* of the configuration file, or NULL */
	const struct options_entry *path_entry;     /* --config … */
	enum options_source path_source;            /* … and who gave it */
	struct stat file;                           /* who owns it and who may touch it */
	const char *help, *version;                 /* their values, or NULL if not asked for */
	char *message;
	size_t message_size;
};

/* Writes "<option as given>=<value>: <reason>; allowed are …" (value NULL: without it) into the message. Always
 * false. */
bool options_complain(struct options_loader *loader, const struct options_entry *entry, const char *value,
		      const char *reason);

/* Writes a message of another shape, as one line. */
void options_say(struct options_loader *loader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True if a master has a password. */
bool options_have_password(const struct options *options);

/* What concerns several options: false and the message if they do not fit together. Decides what --listen left open. */
bool options_check(struct options_loader *loader) __attribute__((warn_unused_result));

#endif
