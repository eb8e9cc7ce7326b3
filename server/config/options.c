/* The sources of option values, read in rising precedence: defaults, the configuration file, the environment, the
 * command line. Each overrides the values of the one before.
 *
 * Before that, options_load() reads the command line once to find --help, --version and --config, and the environment
 * for REDLOCKD_CONFIG. A value that is overridden must be valid all the same: any mistake ends the program.
 *
 * `struct options_loader` is on the stack of options_load(). Values are copied from the arguments. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options_loader.h"
#include "server/base/base.h"

enum { OPTIONS_FILE_MAX = 1 << 20, OPTIONS_ITEM_MAX = 2048 };

/* ---- one value from one source ---- */

/* Parses a value, or one item of a list. `next`: the text after the item, for hiding passwords. */
static bool options_set_item(struct options_loader *loader, const struct options_entry *entry, const char *item,
			     const char *next)
{
	char shown[OPTIONS_SHOWN_MAX];
	const char *reason;

	assert(next);
	if (options_parse_value(entry, item, loader->options, &reason))
		return true;
	if (entry->kind != OPTIONS_KIND_MASTERS && !strstr(item, "://") && !strchr(item, '@'))
		return options_complain(loader, entry, item, reason);
	/* an address in the wrong option: it is not known where its password begins */
	if (entry->kind != OPTIONS_KIND_MASTERS && strchr(item, '@'))
		snprintf(shown, sizeof shown, "***");
	else
		options_redact(item, next, shown, sizeof shown);
	return options_complain(loader, entry, shown, reason);
}

static bool options_set_list(struct options_loader *loader, const struct options_entry *entry, const char *list)
{
	char item[OPTIONS_ITEM_MAX];

	assert(options_is_list(entry));
	for (;;) {
		size_t len = strcspn(list, ",");
		if (len >= sizeof item)
			return options_complain(loader, entry, NULL, "an item is longer than 2047 bytes");
		memcpy(item, list, len);
		item[len] = '\0';
		bool last = list[len] == '\0';
		if (!options_set_item(loader, entry, item, last ? "" : list + len + 1))
			return false;
		if (last)
			return true;
		list += len + 1;
	}
}

/* The source being read sets this option: values of lower sources are dropped. */
static void options_override(struct options_loader *loader, const struct options_entry *entry)
{
	enum options_source *origin = &loader->origins[entry - options_table];

	assert(*origin <= loader->source);
	if (*origin == loader->source)
		return;
	*origin = loader->source;
	if (entry->kind == OPTIONS_KIND_LISTEN)
		loader->options->listen_count = 0;
	if (entry->kind == OPTIONS_KIND_MASTERS)
		loader->options->master_count = 0;
	if (entry->kind == OPTIONS_KIND_HOSTS || entry->kind == OPTIONS_KIND_ORIGINS)
		((struct options_names *)(void *)((char *)loader->options + entry->offset))->count = 0;
}

static bool options_set(struct options_loader *loader, const struct options_entry *entry, const char *value)
{
	options_override(loader, entry);
	if (options_is_list(entry))
		return options_set_list(loader, entry, value);
	return options_set_item(loader, entry, value, "");
}

static bool options_set_defaults(struct options_loader *loader)
{
	loader->source = OPTIONS_FROM_DEFAULT;
	for (size_t i = 0; i < OPTIONS_COUNT; i++)
		if (options_table[i].standard && !options_set(loader, &options_table[i], options_table[i].standard))
			return false;
	return true;
}

/* True if the option was given in this source before, and may be given only once. */
static bool options_is_repeated(struct options_loader *loader, const struct options_entry *entry)
{
	bool *seen = &loader->seen[entry - options_table];
	bool repeated = *seen && !(entry->kind == OPTIONS_KIND_LISTEN && loader->source == OPTIONS_FROM_FLAG);

	*seen = true;
	return repeated;
}

/* ---- the command line ---- */

/* Reads the flag at argv[*at] with its value, and advances *at. The value is NULL if it is optional and missing. */
static bool options_read_flag(struct options_loader *loader, int argc, char *const argv[], int *at,
			      const struct options_entry **ret_entry, const char **ret_value)
{
	const char *given = argv[(*at)++], *equals = strchr(given, '=');
	size_t len = equals ? (size_t)(equals - given) : strlen(given);

	assert(*at > 1 && *at <= argc);
	if (given[0] != '-')
		return options_complain_unknown(loader, given, strlen(given), "not an option");
	const struct options_entry *entry = options_find(given, len, OPTIONS_FROM_FLAG);
	if (!entry)
		return options_complain_unknown(loader, given, len, "unknown option");
	const char *value = equals ? equals + 1 : NULL;
	if (!value && !options_value_optional(entry)) {
		/* A value that begins with two dashes must be given with =. */
		if (*at >= argc || strncmp(argv[*at], "--", 2) == 0)
			return options_complain(loader, entry, NULL, "the value is missing");
		value = argv[(*at)++];
	}
	*ret_entry = entry;
	*ret_value = value;
	return true;
}

/* The first pass over the command line: its syntax, and the options that decide about the other sources. */
static bool options_scan_flags(struct options_loader *loader, int argc, char *const argv[])
{
	const struct options_entry *entry;
	const char *value;

	loader->source = OPTIONS_FROM_FLAG;
	memset(loader->seen, 0, sizeof loader->seen);
	for (int at = 1; at < argc;) {
		if (!options_read_flag(loader, argc, argv, &at, &entry, &value))
			return false;
		if (options_is_repeated(loader, entry))
			return options_complain(loader, entry, NULL, "given twice");
		if (entry->kind == OPTIONS_KIND_VERSION && value)
			return options_complain(loader, entry, value, "takes no value");
		if (entry->kind == OPTIONS_KIND_VERSION)
			loader->version = "";
		if (entry->kind == OPTIONS_KIND_HELP)
			loader->help = value ? value : "text";
		if (entry->kind == OPTIONS_KIND_CONFIG) {
			loader->path = value;
			loader->path_entry = entry;
			loader->path_source = OPTIONS_FROM_FLAG;
		}
	}
	return true;
}

static bool options_apply_flags(struct options_loader *loader, int argc, char *const argv[])
{
	const struct options_entry *entry;
	const char *value;

	loader->source = OPTIONS_FROM_FLAG;
	for (int at = 1; at < argc;) {
		if (!options_read_flag(loader, argc, argv, &at, &entry, &value))
			return false;
		if (!options_set(loader, entry, value ? value : "true"))
			return false;
	}
	return true;
}

/* Carries out --help or --version. */
static bool options_show(struct options_loader *loader)
{
	const struct options_entry *entry = options_entry_of("help");

	assert(loader->help || loader->version);
	if (loader->help) {
		for (int form = 0; entry->choices[form]; form++)
			if (strcmp(loader->help, entry->choices[form]) == 0) {
				options_print_help(stdout, (enum options_help)form);
				return true;
			}
		return options_complain(loader, entry, loader->help, "not known");
	}
	printf("redlockd %s (%s)\n", build_version, build_commit);
	return true;
}

/* ---- the environment ---- */

/* Reads the variables that begin with REDLOCKD_: first to find REDLOCKD_CONFIG (`apply` false), then to set the
 * values. */
static bool options_read_environment(struct options_loader *loader, char *const environment[], bool apply)
{
	loader->source = OPTIONS_FROM_ENVIRONMENT;
	memset(loader->seen, 0, sizeof loader->seen);
	for (size_t i = 0; environment[i]; i++) {
		const char *name = environment[i], *equals = strchr(name, '=');
		if (strncmp(name, "REDLOCKD_", 9) != 0 || !equals)
			continue;
		size_t len = (size_t)(equals - name);
		const struct options_entry *entry = options_find(name, len, OPTIONS_FROM_ENVIRONMENT);
		if (!entry && options_is_service_link(name, len, equals + 1))
			continue;
		if (!entry)
			return options_complain_unknown(loader, name, len, "unknown variable");
		if (options_is_repeated(loader, entry))
			return options_complain(loader, entry, NULL, "given twice");
		if (entry->kind == OPTIONS_KIND_CONFIG && !loader->path) {
			loader->path = equals + 1;
			loader->path_entry = entry;
			loader->path_source = OPTIONS_FROM_ENVIRONMENT;
		}
		if (apply && !options_set(loader, entry, equals + 1))
			return false;
	}
	return true;
}

/* ---- the configuration file ---- */

/* Writes a JSON value as the text of the same flag. False if the option does not allow its type. */
static bool options_json_text(const struct options_entry *entry, const json_t *value, char text[OPTIONS_ITEM_MAX])
{
	bool number = entry->kind == OPTIONS_KIND_U32 || entry->kind == OPTIONS_KIND_U64 ||
		      entry->kind == OPTIONS_KIND_FRACTION || entry->kind == OPTIONS_KIND_DEV;

	assert(entry && value);
	text[0] = '\0';
	if (number && json_is_integer(value))
		snprintf(text, OPTIONS_ITEM_MAX, "%lld", (long long)json_integer_value(value));
	else if (entry->kind == OPTIONS_KIND_FRACTION && json_is_real(value))
		snprintf(text, OPTIONS_ITEM_MAX, "%.15g", json_real_value(value));
	else if ((entry->kind == OPTIONS_KIND_DEV || entry->kind == OPTIONS_KIND_SWITCH) && json_is_boolean(value))
		snprintf(text, OPTIONS_ITEM_MAX, "%s", json_is_true(value) ? "true" : "false");
	else if (!number && entry->kind != OPTIONS_KIND_SWITCH && json_is_string(value) &&
		 json_string_length(value) < OPTIONS_ITEM_MAX)
		snprintf(text, OPTIONS_ITEM_MAX, "%s", json_string_value(value));
	else
		return false;
	return true;
}

/* A value of a wrong type, shown as JSON unless it may hold a password. Always false. */
static bool options_complain_type(struct options_loader *loader, const struct options_entry *entry, const json_t *value)
{
	char *json = entry->kind == OPTIONS_KIND_MASTERS ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	/* otherwise it may be an address in the wrong place */
	bool plain = json && !strpbrk(json, "@:");
	bool ok = options_complain(loader, entry, plain ? json : NULL, "of another type, or too long");

	free(json);
	return ok;
}

static bool options_set_json(struct options_loader *loader, const struct options_entry *entry, const json_t *value)
{
	bool list = options_is_list(entry);
	char text[OPTIONS_ITEM_MAX];

	assert(value);
	options_override(loader, entry);
	if (list && json_is_string(value))
		return options_set_list(loader, entry, json_string_value(value));
	if (!list || !json_is_array(value))
		return options_json_text(entry, value, text) ? options_set_item(loader, entry, text, "")
							     : options_complain_type(loader, entry, value);
	if (json_array_size(value) == 0)
		return options_complain(loader, entry, NULL, "the list is empty");
	for (size_t i = 0; i < json_array_size(value); i++) {
		if (!options_json_text(entry, json_array_get(value, i), text))
			return options_complain(loader, entry, NULL, "the list holds something else than texts");
		if (!options_set_item(loader, entry, text, ""))
			return false;
	}
	return true;
}

/* A mistake with the file as a whole. Always false. */
static bool options_complain_file(struct options_loader *loader, const char *reason)
{
	assert(loader->path_entry && loader->path);
	loader->source = loader->path_source;
	return options_complain(loader, loader->path_entry, loader->path, reason);
}

static bool options_read_file(struct options_loader *loader, struct text *text)
{
	char bytes[4096];
	ssize_t n;
	int fd = open(loader->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return options_complain_file(loader, strerror(errno));
	while ((n = read(fd, bytes, sizeof bytes)) > 0 && text->len <= OPTIONS_FILE_MAX)
		text_append(text, bytes, (size_t)n);
	int error = n < 0 || fstat(fd, &loader->file) != 0 ? errno : 0;
	close(fd);
	if (error != 0)
		return options_complain_file(loader, strerror(error));
	if (text->failed || text->len > OPTIONS_FILE_MAX)
		return options_complain_file(loader, text->failed ? "out of memory" : "larger than 1 MiB");
	return true;
}

/* Reports where the JSON is wrong, without quoting it: it may hold a password. Only a repeated key is named. */
static bool options_complain_json(struct options_loader *loader, const json_error_t *error)
{
	const char *near = strstr(error->text, " near ");
	char reason[JSON_ERROR_TEXT_LENGTH + 64];
	bool show = !near || json_error_code(error) == json_error_duplicate_key;

	int len = show ? (int)strlen(error->text) : (int)(near - error->text);
	snprintf(reason, sizeof reason, "line %d column %d: %.*s", error->line, error->column, len, error->text);
	return options_complain_file(loader, reason);
}

static bool options_apply_object(struct options_loader *loader, json_t *object)
{
	const char *key;
	json_t *value;

	assert(json_is_object(object));
	loader->source = OPTIONS_FROM_FILE;
	json_object_foreach(object, key, value)
	{
		const struct options_entry *entry = options_find(key, strlen(key), OPTIONS_FROM_FILE);
		if (!entry)
			return options_complain_unknown(loader, key, strlen(key), "unknown key");
		if (!options_set_json(loader, entry, value))
			return false;
	}
	return true;
}

/* A file that holds a password must not be readable by others. */
static bool options_check_file(struct options_loader *loader)
{
	const char *fault = secret_file_check(&loader->file, SECRET_FILE_SECRET);
	char reason[200];

	if (!fault || !options_have_password(loader->options))
		return true;
	snprintf(reason, sizeof reason, "holds a password, and so %s", fault);
	return options_complain_file(loader, reason);
}

static bool options_apply_file(struct options_loader *loader)
{
	struct text text;
	json_error_t error;
	bool ok = false;

	text_init(&text);
	if (options_read_file(loader, &text)) {
		json_t *object = json_loadb(text.bytes ? text.bytes : "", text.len, JSON_REJECT_DUPLICATES, &error);
		if (!object)
			ok = options_complain_json(loader, &error);
		else if (!json_is_object(object))
			ok = options_complain_file(loader, "not a JSON object");
		else
			ok = options_apply_object(loader, object) && options_check_file(loader);
		json_decref(object);
	}
	text_fini(&text);
	return ok;
}

bool options_load(int argc, char *const argv[], char *const environment[], struct options *ret_options,
		  enum options_action *ret_action, char *message, size_t message_size)
{
	struct options options = {0};
	struct options_loader loader = {.options = &options, .message = message, .message_size = message_size};

	assert(argc >= 0 && message_size > 0);
	if (!options_scan_flags(&loader, argc, argv))
		return false;
	if (loader.help || loader.version) {
		if (!options_show(&loader))
			return false;
		*ret_action = OPTIONS_SHOWN;
		return true;
	}
	if (!options_read_environment(&loader, environment, false) || !options_set_defaults(&loader) ||
	    (loader.path && !options_apply_file(&loader)) || !options_read_environment(&loader, environment, true) ||
	    !options_apply_flags(&loader, argc, argv) || !options_check(&loader))
		return false;
	*ret_options = options;
	*ret_action = OPTIONS_RUN;
	return true;
}
