/* SPDX-License-Identifier: MIT */
/* The sources of option values, in falling precedence: the command line, the environment, the configuration file that
 * the two may name, defaults. A value that an earlier source has set is ignored. See options.h. */
#include "options.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/base.h"

enum { OPTIONS_FILE_MAX = 1 << 20, OPTIONS_LONG = 256 /* what getopt_long() returns for a name */ };

/* ---- names ---- */

size_t options_distance(const char *a, const char *b)
{
	size_t row[OPTIONS_NAME_MAX], len = strlen(b);
	assert(len < OPTIONS_NAME_MAX);
	for (size_t j = 0; j <= len; j++)
		row[j] = j;
	for (; *a != '\0'; a++) {
		size_t corner = row[0]++;
		for (size_t j = 1; j <= len; j++) {
			size_t changed = corner + (*a != b[j - 1]),
			       other = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
			corner = row[j];
			row[j] = changed < other ? changed : other;
		}
	}
	return row[len];
}

/* True if the command being read has this option. */
static bool options_is_in_scope(const struct options_reader *reader, const struct options_entry *entry)
{
	return !entry->scope || !reader->scope || entry->scope & reader->scope;
}

/* The entry whose name, as the present source spells it, is most like the `len` bytes of `given`; NULL: all differ in
 * `limit` letters or more. */
static const struct options_entry *options_find(const struct options_reader *reader, const char *given, size_t len,
						size_t limit)
{
	const struct options_table *table = reader->table;
	const struct options_entry *found = NULL;
	char name[OPTIONS_NAME_MAX], known[OPTIONS_NAME_MAX];
	if (len >= sizeof name)
		return NULL;
	snprintf(name, sizeof name, "%.*s", (int)len, given);
	for (const struct options_entry *entry = table->entries; entry < table->entries + table->count; entry++) {
		if (!options_is_in_source(table, entry, reader->source))
			continue;
		options_spell(table, entry, reader->source, known);
		/* an incomplete name counts as one with two wrong letters */
		bool begins = limit > 2 && len > strlen("--max") && strncmp(known, name, len) == 0;
		size_t distance = begins ? 2 : options_distance(name, known);
		if (distance >= limit || distance >= strlen(entry->name) ||
		    (distance > 0 && !options_is_in_scope(reader, entry)))
			continue;
		limit = distance;
		found = entry;
	}
	return found;
}

/* `position`: of a word. */
static bool options_reject_unknown(struct options_reader *reader, const char *given, size_t position)
{
	bool flag = reader->source == OPTIONS_FROM_FLAG, is_word = flag && given[0] != '-';
	char like[OPTIONS_NAME_MAX] = "", shown[OPTIONS_NAME_MAX] = "a name";
	size_t len = strcspn(given, "=");
	bool plain = !is_word && len < sizeof shown && strcspn(given, "@:/%?") >= len;
	const struct options_entry *entry = plain ? options_find(reader, given, len, flag ? 3 : 4) : NULL;
	const char *kind = flag                                  ? "unknown option"
			   : reader->source == OPTIONS_FROM_FILE ? "unknown key"
								 : "unknown variable";
	if (is_word)
		kind = "not an option (a value that may be left out is given with =)";
	if (entry)
		options_spell(reader->table, entry, reader->source, like);
	if (plain) /* of a letter without its value, which may be a secret */
		snprintf(shown, sizeof shown, "%.*s", entry || !flag || given[1] == '-' ? (int)len : 2, given);
	else if (flag && options_is_harmless(given))
		snprintf(shown, sizeof shown, "argument %zu ('%s')", position, given);
	else if (flag)
		snprintf(shown, sizeof shown, "argument %zu", position);
	return options_reject(reader, "%s: %s%s%s%s; allowed are those that %s --help lists", shown, kind,
			      entry ? "; did you mean " : "", like, entry ? "?" : "", reader->table->program);
}

/* ---- one value from one source ---- */

static bool options_set_item(struct options_reader *reader, const struct options_entry *entry, const char *text)
{
	size_t count = 0;
	reader->origins[entry - reader->table->entries] = reader->source;
	if (entry->traits & OPTIONS_FILE)
		reader->path = text;
	if (entry->traits & OPTIONS_LIST) {
		memcpy(&count, (char *)reader->values + entry->offset, sizeof count);
		count++;
	}
	const char *reason = count > entry->max ? "too many" : entry->parse(entry, text, reader->values);
	return !reason || options_reject_value(reader, entry, count, text, reason);
}

/* True if a source that goes before the one being read has set it. */
static bool options_is_overridden(const struct options_reader *reader, const struct options_entry *entry)
{
	return reader->origins[entry - reader->table->entries] > reader->source;
}

static bool options_set(struct options_reader *reader, const struct options_entry *entry, const char *value)
{
	if (options_is_overridden(reader, entry))
		return true;
	if (!(entry->traits & OPTIONS_LIST))
		return options_set_item(reader, entry, value);
	char *copy = memory_copy(value, strlen(value)), *rest = copy, *item;
	bool ok = true;
	while (ok && (item = strsep(&rest, ",")))
		ok = options_set_item(reader, entry, item);
	free(copy);
	return ok;
}

/* ---- the command line ---- */

/* The table as getopt_long() needs it. */
static void options_describe(const struct options_table *table, struct option longs[OPTIONS_MAX + 1],
			     char letters[3 * OPTIONS_MAX + 3])
{
	char *letter = stpcpy(letters, "-:"); /* words that are no options stay in order; the messages are ours */
	size_t n = 0;
	assert(table->count <= OPTIONS_MAX);
	for (size_t i = 0; i < table->count; i++) {
		const struct options_entry *entry = &table->entries[i];
		int has_value = !entry->argument                   ? no_argument
				: entry->traits & OPTIONS_OPTIONAL ? optional_argument
								   : required_argument;
		if (entry->letter)
			letter += sprintf(letter, "%c%.*s", entry->letter, has_value, "::");
		if (!(entry->traits & OPTIONS_NO_FLAG))
			longs[n++] = (struct option){entry->name, has_value, NULL, OPTIONS_LONG};
	}
}

/* The command may follow its options: then this is called again. */
static bool options_check_scope(struct options_reader *reader, const struct options_entry *entry)
{
	return options_is_in_scope(reader, entry) ||
	       options_reject(reader, "%s has no option --%s", reader->command, entry->name);
}

/* One step of getopt_long(), at argv[at]. */
static bool options_read_word(struct options_reader *reader, int code, char **argv, int at)
{
	const struct options_table *table = reader->table;
	const struct options_entry *entry = NULL;
	int letter = code == '?' || code == ':' ? optopt : code;
	if (code == 1 && table->operand)
		return table->operand(reader, optarg);
	if (strncmp(argv[at], "--", 2) == 0) /* getopt_long() takes the beginning of a name for the name */
		entry = options_find(reader, argv[at], strcspn(argv[at], "="), 1);
	else
		for (size_t i = 0; i < table->count; i++)
			if (letter && table->entries[i].letter == letter)
				entry = &table->entries[i];
	if (!entry)
		return options_reject_unknown(reader, argv[at], (size_t)at);
	if (code == '?')
		return options_reject_value(reader, entry, 0, NULL, "takes no value");
	/* A value that begins with two dashes must be given with =. */
	if (code == ':' || (optarg && optarg == argv[at + 1] && strncmp(optarg, "--", 2) == 0))
		return options_reject_value(reader, entry, 0, NULL, "the value is missing");
	if (entry->traits & OPTIONS_ENDS)
		reader->end = entry;
	if (options_origin(reader, entry->name) == OPTIONS_FROM_FLAG && entry->argument &&
	    !(entry->traits & OPTIONS_REPEATED))
		return options_reject_value(reader, entry, 0, NULL, "given twice");
	return reader->end ||
	       (options_check_scope(reader, entry) && options_set(reader, entry, optarg ? optarg : "true"));
}

/* Reads the words up to the end, to an option like --help, or to the words of another program. */
static bool options_read_arguments(struct options_reader *reader, int argc, char **argv)
{
	struct option longs[OPTIONS_MAX + 1] = {0};
	char letters[3 * OPTIONS_MAX + 3];
	int code, at = 1;
	reader->source = OPTIONS_FROM_FLAG;
	options_describe(reader->table, longs, letters);
	optind = 0; /* the state of getopt_long() is global */
	for (; (code = getopt_long(argc, argv, letters, longs, NULL)) != -1; at = optind) {
		reader->rest = argv + optind;
		if (!options_read_word(reader, code, argv, at))
			return false;
		if (reader->is_rest || reader->end)
			break;
	}
	reader->rest = argv + (reader->is_rest ? at : optind);
	while (reader->table->operand && !reader->is_rest && !reader->end && *reader->rest) {
		if (!reader->table->operand(reader, *reader->rest)) /* it may begin with a dash */
			return false;
		reader->rest += !reader->is_rest;
	}
	for (size_t i = 0; i < reader->table->count && !reader->end; i++)
		if (reader->origins[i] == OPTIONS_FROM_FLAG && !options_check_scope(reader, &reader->table->entries[i]))
			return false;
	return reader->end || reader->table->operand || !*reader->rest ||
	       options_reject_unknown(reader, *reader->rest, (size_t)optind);
}

/* ---- the environment ---- */

/* The variables that Kubernetes sets in every pod: a service called redlockd makes REDLOCKD_SERVICE_HOST,
 * REDLOCKD_PORT=tcp://… and REDLOCKD_PORT_8080_TCP_ADDR. They are ignored. */
static const char options_service_link[] = "*@(_SERVICE_HOST=|_SERVICE_PORT*=|_PORT_[0-9]*=|_PORT=*://)*";

static bool options_read_environment(struct options_reader *reader, char *const environment[])
{
	const char *prefix = reader->table->variables;
	bool keeps_empty = prefix && !reader->table->names_variables;
	reader->source = OPTIONS_FROM_ENVIRONMENT;
	for (; *environment; environment++) {
		const char *variable = *environment, *value = strchr(variable, '=');
		const struct options_entry *entry =
			value ? options_find(reader, variable, (size_t)(value - variable), 1) : NULL;
		if (!entry && value && prefix && strncmp(variable, prefix, strlen(prefix)) == 0 &&
		    fnmatch(options_service_link, variable, FNM_EXTMATCH) != 0)
			return options_reject_unknown(reader, variable, 0);
		if (entry && (keeps_empty || value[1] != '\0') && options_is_in_scope(reader, entry) &&
		    !options_set(reader, entry, value + 1))
			return false;
	}
	return true;
}

/* ---- the configuration file ---- */

/* A JSON value as the text of the same flag. NULL: the option does not allow its type. */
static const char *options_json_text(const struct options_entry *entry, const json_t *value, char buffer[32])
{
	static const unsigned types[] = {
		[JSON_STRING] = OPTIONS_STRING, [JSON_INTEGER] = OPTIONS_INTEGER, [JSON_REAL] = OPTIONS_REAL,
		[JSON_TRUE] = OPTIONS_TRUTH,    [JSON_FALSE] = OPTIONS_TRUTH,     [JSON_NULL] = 0};
	unsigned type = types[json_typeof(value)];
	if (!(entry->traits & type) || type == OPTIONS_STRING)
		return entry->traits & type ? json_string_value(value) : NULL;
	size_t len = json_dumpb(value, buffer, 31, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	buffer[len < 31 ? len : 31] = '\0';
	return buffer;
}

static bool options_set_json(struct options_reader *reader, const struct options_entry *entry, const json_t *value)
{
	bool list = entry->traits & OPTIONS_LIST && json_is_array(value);
	size_t count = list ? json_array_size(value) : 1;
	char buffer[32];
	if (options_is_overridden(reader, entry))
		return true;
	if (count == 0)
		return options_reject_value(reader, entry, 0, NULL, "the list is empty");
	for (size_t i = 0; i < count; i++) {
		const char *text = options_json_text(entry, list ? json_array_get(value, i) : value, buffer);
		if (!text)
			return options_reject_value(reader, entry, list ? i + 1 : 0, NULL,
						    "the value has the wrong type");
		/* a comma within an item of an array separates nothing */
		if (list ? !options_set_item(reader, entry, text) : !options_set(reader, entry, text))
			return false;
	}
	return true;
}

/* NULL: the file is no object; a message was written. */
static json_t *options_load_file(struct options_reader *reader)
{
	char place[64] = "";
	json_error_t error;
	size_t len = 0;
	int fd = open(reader->path, O_RDONLY | O_CLOEXEC);
	char *bytes = memory_alloc(OPTIONS_FILE_MAX + 1), *near;
	bool ok = fd >= 0 && fstat(fd, &reader->file) == 0 && file_read(fd, bytes, OPTIONS_FILE_MAX + 1, &len);
	const char *fault = !ok ? strerror(errno) : len > OPTIONS_FILE_MAX ? "larger than 1 MiB" : NULL;
	json_t *object = fault ? NULL : json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &error);
	explicit_bzero(bytes, len);
	free(bytes);
	if (fd >= 0)
		close(fd);
	if (json_is_object(object))
		return object;
	if (!fault && !object) {
		snprintf(place, sizeof place, "bad JSON: line %d column %d: ", error.line, error.column);
		/* without the text near the fault, which may be a password; only a repeated key is named */
		if (json_error_code(&error) != json_error_duplicate_key && (near = strstr(error.text, " near ")))
			*near = '\0';
		fault = error.text;
	}
	json_decref(object);
	options_reject_option(reader, "config", "%s: %s%s", reader->path, place, fault ? fault : "not a JSON object");
	return NULL;
}

static bool options_read_file(struct options_reader *reader)
{
	const char *key;
	json_t *value;
	if (!reader->path)
		return true;
	json_t *object = options_load_file(reader);
	bool ok = object;
	reader->source = OPTIONS_FROM_FILE;
	json_object_foreach(object, key, value)
	{
		const struct options_entry *entry = options_find(reader, key, strlen(key), 1);
		ok = entry ? options_set_json(reader, entry, value) : options_reject_unknown(reader, key, 0);
		if (!ok)
			break;
	}
	json_decref(object);
	return ok && (!reader->table->check_file || reader->table->check_file(reader));
}

bool options_read(struct options_reader *reader, int argc, char **argv, char *const environment[])
{
	const struct options_table *table = reader->table;
	assert(reader->message_size > 0);
	bool ok = options_read_arguments(reader, argc, argv) &&
		  (reader->end || (options_read_environment(reader, environment) && options_read_file(reader)));
	reader->source = OPTIONS_FROM_DEFAULT;
	for (size_t i = 0; i < table->count && ok && !reader->end; i++)
		ok = !table->entries[i].standard || options_set(reader, &table->entries[i], table->entries[i].standard);
	return ok;
}
