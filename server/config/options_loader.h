/* The state of options_load(). For options.c, options_check.c and options_message.c alone. */
#ifndef OPTIONS_LOADER_H
#define OPTIONS_LOADER_H

#include <sys/stat.h>

#include "options_table.h"

enum { OPTIONS_SHOWN_MAX = 200 }; /* bytes of a value in a message */

struct options_loader {
	struct options *options;
	enum options_source source;                 /* being read */
	enum options_source origins[OPTIONS_COUNT]; /* of the values in *options */
	bool seen[OPTIONS_COUNT];                   /* in this source */
	const char *path;                           /* of the configuration file, or NULL */
	const struct options_entry *path_entry;     /* --config */
	enum options_source path_source;            /* where --config was given */
	struct stat file;                           /* owner and mode of the configuration file */
	const char *help, *version;                 /* values of --help and --version, or NULL */
	char *message;
	size_t message_size;
};

/* Writes "<option as given>=<value>: <reason>; allowed are …" (value NULL: without it) into the message. Always
 * false. */
bool options_complain(struct options_loader *loader, const struct options_entry *entry, const char *value,
		      const char *reason);

/* The same where no option matches. `given` is shown cut and without what may be a password. Always false. */
bool options_complain_unknown(struct options_loader *loader, const char *given, size_t len, const char *reason);

/* Writes a message of another shape, as one line. */
void options_complain_text(struct options_loader *loader, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* True if a master has a password. */
bool options_have_password(const struct options *options);

/* Checks options against each other: false and the message if they do not fit together. Completes --listen. */
bool options_check(struct options_loader *loader) __attribute__((warn_unused_result));

#endif
