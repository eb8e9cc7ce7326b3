/* See duration.h. No state.
 *
 * Parsing is strict: a number without a unit is rejected, since it could mean seconds or milliseconds, and a lease that
 * is a thousand times too long or too short would be a bad guess. */
#include "duration.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	uint64_t ms;
} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}};

static bool duration_unit(const char *name, uint64_t *ret_ms)
{
	assert(name);
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (strcmp(name, units[i].name) == 0) {
			*ret_ms = units[i].ms;
			return true;
		}
	return false;
}

bool duration_parse(const char *text, uint64_t *ret_ms)
{
	size_t digits = strspn(text, "0123456789");
	uint64_t number = 0, unit_ms;

	assert(text);
	if (digits == 0 || !duration_unit(text + digits, &unit_ms))
		return false;
	for (size_t i = 0; i < digits; i++) {
		number = number * 10 + (uint64_t)(text[i] - '0');
		if (number > DURATION_MAX_MS)
			return false;
	}
	if (number > DURATION_MAX_MS / unit_ms)
		return false;
	*ret_ms = number * unit_ms;
	return true;
}

void duration_format(uint64_t ms, char ret_text[DURATION_TEXT_MAX])
{
	uint64_t seconds = ms / 1000;
	int len;

	if (ms < 1000)
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 " ms", ms);
	else if (seconds < 60)
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " s", seconds, ms % 1000 / 100);
	else if (seconds < 3600)
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 " min %" PRIu64 " s", seconds / 60,
			       seconds % 60);
	else
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
			       seconds % 3600 / 60);
	assert(len > 0 && len < DURATION_TEXT_MAX);
}
