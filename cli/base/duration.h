/* Durations as people write them: 250ms, 30s, 5m, 1h. Pure functions. */
#ifndef DURATION_H
#define DURATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No duration is longer than a year: sums of a few of them in microseconds fit in 64 bits. */
#define DURATION_MAX_MS (UINT64_C(366) * 24 * 3600 * 1000)

enum { DURATION_TEXT_MAX = 32 };

/* Parses a whole number and one of ms, s, m, h. False if the text is anything else, or longer than DURATION_MAX_MS. */
bool duration_parse(const char *text, uint64_t *ret_ms) __attribute__((warn_unused_result));

/* Writes a duration for people: "250 ms", "12.3 s", "5 min 2 s", "1 h 3 min". */
void duration_format(uint64_t ms, char ret_text[DURATION_TEXT_MAX]);

#endif
