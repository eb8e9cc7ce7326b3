/* Texts into values. Parsing is strict: a text that is not understood to the last byte is rejected. Pure functions. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "server/base/base.h"

const char *const options_truths[] = {"false", "true", NULL};

static void options_store(const struct options_entry *entry, uint64_t number, void *values)
{
	void *place = (char *)values + entry->offset;

	assert(entry->size == 1 || entry->size == 4 || entry->size == 8);
	if (entry->size == 8)
		memcpy(place, &number, 8);
	else if (entry->size == 4)
		memcpy(place, &(uint32_t){(uint32_t)number}, 4);
	else
		memcpy(place, &(uint8_t){(uint8_t)number}, 1);
}

static const struct options_unit {
	const char *name;
	uint64_t factor;
} options_units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

/* A whole number with one of the first `units` units. */
static const char *options_parse_unit(const struct options_entry *entry, const char *text, void *values, size_t units,
				      const char *reason)
{
	const char *digits = text + (text[0] == '-');
	char *end;
	uint64_t number = strtoull(digits, &end, 10); /* the largest, if it does not fit; all bounds are far below */
	const struct options_unit *unit = options_units;

	assert(entry->min <= entry->max && units <= sizeof options_units / sizeof *options_units);
	while (unit < options_units + units && strcmp(end, unit->name) != 0)
		unit++;
	if (digits[0] < '0' || digits[0] > '9' || unit == options_units + units)
		return reason;
	if (__builtin_mul_overflow(number, unit->factor, &number))
		number = UINT64_MAX;
	if (text[0] == '-' || number < entry->min)
		return "too low";
	if (number > entry->max)
		return "too high";
	options_store(entry, number, values);
	return NULL;
}

const char *options_parse_number(const struct options_entry *entry, const char *text, void *values)
{
	return options_parse_unit(entry, text, values, 1, "not a whole number");
}

const char *options_parse_time(const struct options_entry *entry, const char *text, void *values)
{
	return options_parse_unit(entry, text, values, sizeof options_units / sizeof *options_units,
				  "not a time: 500ms, 60s, 5m, 1h or a whole number of milliseconds");
}

const char *options_parse_fraction(const struct options_entry *entry, const char *text, void *values)
{
	char *end;
	double number = strtod(text, &end);

	assert(entry->size == sizeof number);
	/* strtod() alone would accept spaces, signs, hexadecimal, inf and nan. */
	if (text[0] < '0' || text[0] > '9' || strspn(text, "0123456789.eE+-") != strlen(text) || *end != '\0')
		return "not a number";
	if (number * 1000 < (double)entry->min || number * 1000 > (double)entry->max)
		return number * 1000 < (double)entry->min ? "too low" : "too high";
	memcpy((char *)values + entry->offset, &number, sizeof number);
	return NULL;
}

const char *options_parse_choice(const struct options_entry *entry, const char *text, void *values)
{
	assert(entry->choices && entry->choices[0]);
	for (uint64_t i = 0; entry->choices[i]; i++)
		if (strcmp(text, entry->choices[i]) == 0) {
			options_store(entry, i, values);
			return NULL;
		}
	return "not known";
}

const char *options_parse_text(const struct options_entry *entry, const char *text, void *values)
{
	size_t len = strlen(text);
	void *place = (char *)values + entry->offset;

	assert(entry->size == sizeof text || entry->max < entry->size);
	if (len < entry->min || len > entry->max)
		return len == 0 ? "empty" : len < entry->min ? "too short" : "too long";
	if (!utf8_is_valid(text, len) || utf8_has_control(text, len))
		return "not UTF-8 without control characters";
	if (entry->size == sizeof text)
		memcpy(place, &text, sizeof text);
	else
		memcpy(place, text, len + 1);
	return NULL;
}
