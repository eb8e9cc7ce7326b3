/* What redlockctl says: messages on stderr, as lines for people or, with --json, as one object a line. */
#ifndef REPORT_H
#define REPORT_H

#include <jansson.h>
#include <stdbool.h>

struct report {
	bool json, verbose;
	const char *name; /* of the lock; NULL: none */
};

enum report_level { REPORT_DETAIL, REPORT_NOTE }; /* with --verbose or --json only; always */

/* One line. `event` is for programs, `fields` (may be NULL, is taken over) go with it, the rest is for people. */
void report_event(const struct report *report, enum report_level level, const char *event, json_t *fields,
		  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A line for people, whatever the options say: "redlockctl: ...". */
void report_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Replaces what could steer a terminal: control characters, also those of U+0080 to U+009F. */
void report_clean(char *text);

#endif
