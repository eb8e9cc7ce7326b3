/* Messages of redlockctl on stderr: lines for people or, with --json, one object a line. */
#ifndef REPORT_H
#define REPORT_H

#include <jansson.h>
#include <stdbool.h>

struct report {
	bool json, verbose;
	const char *name; /* of the lock; NULL: none */
};

enum report_level { REPORT_DETAIL, REPORT_NOTE }; /* with --verbose or --json only; always */

/* One line. `event` and `fields` (may be NULL; ownership passes) are for programs, the rest for people. */
void report_event(const struct report *report, enum report_level level, const char *event, json_t *fields,
		  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A line for people, also with --json: "redlockctl: ...". */
void report_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Replaces control characters, also U+0080 to U+009F, since a terminal might act on them. */
void report_clean(char *text);

#endif
