/* What redlockctl says: messages on stderr, as lines for people or, with --json, as one object a line. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

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

#endif
