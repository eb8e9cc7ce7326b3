/* SPDX-License-Identifier: MIT */
/* Texts of options: names, messages, values, and the help, which the completion of the shells reads, too. An unknown
 * word is shown only if it cannot be a password or a part of one. See options.h. */
#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "server/base/base.h"

#define OPTIONS_PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.,"
enum { OPTIONS_WORD_MAX = 20, OPTIONS_HELP_WIDTH = 80, OPTIONS_HELP_INDENT = 8 };
enum { OPTIONS_SHOWN_MAX = 40 }; /* a token has 40 digits */

/* ---- names ---- */

void options_spell(const struct options_table *table, const struct options_entry *entry, enum options_source source,
		   char name[OPTIONS_NAME_MAX])
{
	bool variable = source == OPTIONS_FROM_ENVIRONMENT || entry->traits & OPTIONS_NO_FLAG;
	bool flag = !variable && source != OPTIONS_FROM_FILE;
	const char *start = variable && !entry->variable ? table->variables : flag ? "--" : "";
	snprintf(name, OPTIONS_NAME_MAX, "%s%s", start, variable && entry->variable ? entry->variable : entry->name);
	for (char *c = name; !flag && *c != '\0'; c++)
		*c = *c == '-' ? '_' : variable ? (char)toupper((unsigned char)*c) : *c;
}

static const struct {
	const char *name;
	uint64_t ms;
} time_units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
enum { TIME_UNITS = sizeof time_units / sizeof *time_units, TIME_TEXT_MAX = 32 };

/* As it may be given: 0s, 1500ms, 60s, 5m, 24h. */
static const char *options_time_text(uint64_t ms, char ret_text[TIME_TEXT_MAX])
{
	size_t unit = ms == 0 ? 2 : TIME_UNITS - 1;
	while (unit > 1 && ms % time_units[unit].ms != 0)
		unit--;
	snprintf(ret_text, TIME_TEXT_MAX, "%" PRIu64 "%s", ms / time_units[unit].ms, time_units[unit].name);
	return ret_text;
}

void options_allowed(const struct options_entry *entry, char allowed[OPTIONS_ALLOWED_MAX])
{
	size_t len = 0;
	for (size_t i = 0; entry->choices && entry->choices[i]; i++) {
		const char *before = i == 0 ? "" : entry->choices[i + 1] ? ", " : " or ";
		len += (size_t)snprintf(allowed + len, OPTIONS_ALLOWED_MAX - len, "%s%s", before, entry->choices[i]);
	}
	if (entry->traits & OPTIONS_UNITS && !entry->allowed)
		snprintf(allowed, OPTIONS_ALLOWED_MAX, "%s to %s",
			 options_time_text(entry->min, (char[TIME_TEXT_MAX]){0}),
			 options_time_text(entry->max, (char[TIME_TEXT_MAX]){0}));
	else if (!entry->choices)
		snprintf(allowed, OPTIONS_ALLOWED_MAX, entry->allowed ? entry->allowed : OPTIONS_RANGE, entry->min,
			 entry->max);
}

const struct options_entry *options_entry_of(const struct options_table *table, const char *name)
{
	for (size_t i = 0; i < table->count; i++)
		if (strcmp(table->entries[i].name, name) == 0)
			return &table->entries[i];
	abort(); /* a name that is not in the table is a bug */
}

enum options_source options_origin(const struct options_reader *reader, const char *name)
{
	return reader->origins[options_entry_of(reader->table, name) - reader->table->entries];
}

bool options_is_in_source(const struct options_table *table, const struct options_entry *entry,
			  enum options_source source)
{
	if (source == OPTIONS_FROM_FLAG)
		return !(entry->traits & OPTIONS_NO_FLAG);
	if (entry->traits & OPTIONS_ENDS || (source == OPTIONS_FROM_FILE && entry->traits & OPTIONS_FILE))
		return false;
	return entry->variable ? entry->variable[0] != '\0' : table->variables && !table->names_variables;
}

bool options_is_harmless(const char *word)
{
	size_t len = strlen(word);
	return len > 0 && len <= OPTIONS_WORD_MAX && strspn(word, "abcdefghijklmnopqrstuvwxyz-") == len;
}

/* ---- messages ---- */

bool options_reject(struct options_reader *reader, const char *format, ...)
{
	va_list args;
	reader->message[0] = '\0';
	if (reader->source == OPTIONS_FROM_FILE)
		snprintf(reader->message, reader->message_size, "%s: ", reader->path);
	size_t len = strlen(reader->message);
	va_start(args, format);
	vsnprintf(reader->message + len, reader->message_size - len, format, args);
	va_end(args);
	for (char *c = reader->message; *c != '\0'; c++)
		if (iscntrl((unsigned char)*c))
			*c = '?'; /* the message stays one line */
	return false;
}

bool options_reject_value(struct options_reader *reader, const struct options_entry *entry, size_t item,
			  const char *value, const char *reason)
{
	char name[OPTIONS_NAME_MAX], allowed[OPTIONS_ALLOWED_MAX], address[32] = "";
	bool shown = value && entry->traits & OPTIONS_SHOWN && strlen(value) < OPTIONS_SHOWN_MAX &&
		     strspn(value, OPTIONS_PLAIN) == strlen(value);
	assert(reason);
	options_spell(reader->table, entry, reader->source, name);
	options_allowed(entry, allowed);
	if (item > 0)
		snprintf(address, sizeof address, ", address %zu", item);
	return options_reject(reader, "%s%s%s%s: %s; allowed are %s", name, address, shown ? "=" : "",
			      shown ? value : "", reason, allowed);
}

bool options_reject_option(struct options_reader *reader, const char *name, const char *format, ...)
{
	char given[OPTIONS_NAME_MAX], reason[OPTIONS_PATH_MAX + 600];
	va_list args;
	va_start(args, format);
	vsnprintf(reason, sizeof reason, format, args);
	va_end(args);
	reader->source = options_origin(reader, name);
	options_spell(reader->table, options_entry_of(reader->table, name), reader->source, given);
	return options_reject(reader, "%s: %s", given, reason);
}

/* ---- help ---- */

void options_print_wrapped(FILE *to, const char *text)
{
	size_t column = OPTIONS_HELP_WIDTH;
	for (size_t len; *text != '\0'; text += len + (text[len] == ' ')) {
		len = strcspn(text, " ");
		bool fits = column + 1 + len <= OPTIONS_HELP_WIDTH;
		fprintf(to, fits ? " %.*s" : "\n        %.*s", (int)len, text);
		column = fits ? column + 1 + len : OPTIONS_HELP_INDENT + len;
	}
}

void options_print_help(const struct options_table *table, FILE *to)
{
	char allowed[OPTIONS_ALLOWED_MAX], name[OPTIONS_NAME_MAX], line[512];
	fputs(table->usage, to);
	for (const struct options_entry *entry = table->entries; entry < table->entries + table->count; entry++) {
		bool optional = entry->traits & OPTIONS_OPTIONAL, has_flag = !(entry->traits & OPTIONS_NO_FLAG);
		options_spell(table, entry, has_flag ? OPTIONS_FROM_FLAG : OPTIONS_FROM_ENVIRONMENT, name);
		fprintf(to, "\n  %s", name);
		if (entry->argument)
			fprintf(to, optional ? "[=%s]" : "=%s", entry->argument);
		if (entry->letter)
			fprintf(to, ", -%c", entry->letter);
		options_print_wrapped(to, entry->help);
		options_allowed(entry, allowed);
		snprintf(line, sizeof line, "Allowed: %s.", allowed);
		if (entry->argument)
			options_print_wrapped(to, line);
		snprintf(line, sizeof line, "Default: %s.", entry->standard);
		if (entry->argument && entry->standard && entry->standard[0] != '\0')
			options_print_wrapped(to, line);
		snprintf(line, sizeof line, "Variable: %s.", entry->variable);
		if (entry->variable && entry->variable[0] != '\0' && has_flag) /* otherwise the usage has it */
			options_print_wrapped(to, line);
		fputc('\n', to);
	}
	fflush(to);
}

/* ---- values ---- */

const char *const options_truths[] = {"false", "true", NULL};

static void options_store(const struct options_entry *entry, uint64_t number, void *values)
{
	const bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
	assert(entry->size == 1 || entry->size == 4 || entry->size == 8);
	memcpy((char *)values + entry->offset, (const char *)&number + (big ? 8 - entry->size : 0), entry->size);
}

const char *options_parse_number(const struct options_entry *entry, const char *text, void *values)
{
	const bool is_time = entry->traits & OPTIONS_UNITS;
	const char *digits = text + (text[0] == '-');
	char *end;
	uint64_t number = strtoull(digits, &end, 10); /* the largest, if it does not fit; all bounds are far below */
	size_t i = 0, count = is_time ? TIME_UNITS : 1;
	assert(entry->min <= entry->max);
	while (i < count && strcmp(end, time_units[i].name) != 0)
		i++;
	if (!isdigit((unsigned char)digits[0]) || i == count)
		return is_time ? "not a time: 500ms, 60s, 5m, 1h or a whole number of milliseconds"
			       : "not a whole number";
	if (__builtin_mul_overflow(number, time_units[i].ms, &number))
		number = UINT64_MAX;
	if (text[0] == '-' || number < entry->min)
		return "too low";
	if (number > entry->max)
		return "too high";
	options_store(entry, number, values);
	return NULL;
}

const char *options_parse_fraction(const struct options_entry *entry, const char *text, void *values)
{
	char *end;
	double number = strtod(text, &end);
	assert(entry->size == sizeof number);
	/* strtod() alone would accept spaces, signs, hexadecimal, inf and nan. */
	if (text[0] < '0' || text[0] > '9' || strspn(text, "0123456789.eE+-") != strlen(text) || *end != '\0')
		return "not a number";
	memcpy((char *)values + entry->offset, &number, sizeof number);
	return number * 1000 < (double)entry->min ? "too low" : number * 1000 > (double)entry->max ? "too high" : NULL;
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
