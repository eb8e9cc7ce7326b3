/* SPDX-License-Identifier: MIT */
/* Messages of redlockctl on stderr: lines for people or, with --json, one object a line. Durations in messages. */
#ifndef REPORT_H
#define REPORT_H

#include <jansson.h>
#include <stdint.h>

#include "arguments.h"

enum report_level { REPORT_DETAIL, REPORT_NOTE }; /* with --verbose or --json only; unless --quiet */

/* Writes one line, as JSON if `run` has --json. `event` and `fields` (may be NULL; takes ownership) are for programs,
 * the other text for people. arguments: may be NULL. */
void report_event(const struct arguments *arguments, enum report_level level, const char *event, json_t *fields,
		  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A line for people, also with --json: "redlockctl: ...". */
#define report_error(...) report_event(NULL, REPORT_NOTE, "error", NULL, __VA_ARGS__)

/* The time after which a wait is reported: 0 if each step is reported, a second on a terminal. UINT64_MAX: never. */
uint64_t report_wait_after_us(const struct arguments *arguments);

/* Replaces control characters, also U+0080 to U+009F, since a terminal might act on them. In a text that is not UTF-8
 * it also replaces all bytes that are not ASCII, since JSON cannot hold them. */
void report_clean(char *text);

enum { DURATION_TEXT_MAX = 32 };

/* Writes a duration for people: "250 ms", "12.3 s", "5 min 2 s", "1 h 3 min". Returns the text. */
const char *duration_format(uint64_t ms, char ret_text[DURATION_TEXT_MAX]);

/* The same in memory that lasts as long as the block around it. */
#define DURATION_TEXT(ms) duration_format((uint64_t)(ms), (char[DURATION_TEXT_MAX]){0})

#endif
