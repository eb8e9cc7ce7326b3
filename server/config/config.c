/* SPDX-License-Identifier: MIT */
/* Loads the options of redlockd and checks those that depend on each other. A message names the option that was given
 * with the highest precedence. See config.h. */
#include "config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	MASTERS_FILE_MAX = 1 << 16,
	CONFIG_FAULT_MAX = OPTIONS_PATH_MAX + 400,
	DEV_MASTER_TIMEOUT_MS = 1000 /* private masters share a machine that may be busy, and must not count as down */
};

/* Returns the index of the option that was given with the highest precedence, since the others may be defaults. Writes
 * the name of another one, as it was given. */
static size_t config_find_rejected(struct options_reader *reader, const char *const names[], size_t count,
				   char other[OPTIONS_NAME_MAX])
{
	size_t rejected = 0;
	assert(count > 1);
	for (size_t i = 1; i < count; i++)
		if (options_origin(reader, names[i]) > options_origin(reader, names[rejected]))
			rejected = i;
	const char *second = names[rejected == 0];
	options_spell(reader->table, options_entry_of(reader->table, second), options_origin(reader, second), other);
	return rejected;
}

/* The first of two numbers must not be above the second. */
static bool config_check_orders(struct options_reader *reader, const struct options *options)
{
	const struct {
		const char *names[2];
		uint32_t values[2];
	} orders[] = {{{"min-ttl-ms", "default-ttl-ms"}, {options->min_ttl_ms, options->default_ttl_ms}},
		      {{"default-ttl-ms", "max-ttl-ms"}, {options->default_ttl_ms, options->max_ttl_ms}},
		      {{"retry-min-ms", "retry-max-ms"}, {options->retry_min_ms, options->retry_max_ms}},
		      {{"workers", "max-connections"}, {options->workers, options->max_connections}}};
	char other[OPTIONS_NAME_MAX];
	for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
		if (orders[i].values[0] <= orders[i].values[1])
			continue;
		size_t rejected = config_find_rejected(reader, orders[i].names, 2, other);
		bool is_default = options_origin(reader, orders[i].names[!rejected]) == OPTIONS_FROM_DEFAULT;
		return options_reject_option(reader, orders[i].names[rejected], "%s than %s=%u%s",
					     rejected ? "less" : "more", other, orders[i].values[!rejected],
					     is_default ? " (the default)" : "");
	}
	return true;
}

/* The shortest lease must have validity left. */
static bool config_check_drift(struct options_reader *reader, const struct options *options)
{
	static const char *const names[] = {"drift-ms", "drift-factor", "min-ttl-ms"};
	char other[OPTIONS_NAME_MAX];
	/* a whole ms must be left */
	if (options->min_ttl_ms * options->drift_factor + options->drift_ms + 1 < options->min_ttl_ms)
		return true;
	size_t rejected = config_find_rejected(reader, names, 3, other);
	return options_reject_option(
		reader, names[rejected],
		"no validity is left of the shortest lease, with %s: min-ttl-ms * drift-factor + drift-ms "
		"must be less than min-ttl-ms by more than 1",
		other);
}

/* Adds the masters of --masters-file: addresses separated by commas, blanks or line feeds; a word with # at its start
 * begins a comment. False: a message that begins with the path. The bytes of the file are overwritten before they are
 * freed; the passwords stay in struct options for later connections. */
static bool config_read_masters(struct options *options, char *fault, size_t size)
{
	const struct options_entry *entry = options_entry_of(&config_table, "masters");
	char allowed[OPTIONS_ALLOWED_MAX];
	const char *path = options->masters_file, *reason = NULL;
	struct text text;
	unsigned line = 0;
	assert(options->master_count == 0);
	text_init(&text);
	bool ok = secret_file_read(path, SECRET_FILE_SECRET, MASTERS_FILE_MAX, &text, fault, size);
	bool is_text = ok && strlen(text.bytes) == text.len;
	for (char *rest = is_text ? text.bytes : NULL, *row; !reason && (row = strsep(&rest, "\n"));) {
		line++;
		for (char *at, *word = strtok_r(row, ", \t\r", &at); word && *word != '#' && !reason;
		     word = strtok_r(NULL, ", \t\r", &at))
			reason = options->master_count == entry->max ? "too many" : entry->parse(entry, word, options);
	}
	secret_file_wipe(&text);
	text_fini(&text);
	if (!ok)
		return false;
	options_allowed(entry, allowed);
	if (reason)
		snprintf(fault, size, "%s: line %u: %s; masters are %s", path, line, reason, allowed);
	else if (options->master_count == 0)
		snprintf(fault, size, "%s: holds %s; masters are %s", path, is_text ? "no address" : "a NUL", allowed);
	return !reason && options->master_count > 0;
}

/* A master keeps its number as long as the program runs, since votes are counted by number. */
static bool config_check_change(const struct options *before, const struct options *after, char *fault, size_t size)
{
	if (after->master_count != before->master_count) {
		snprintf(fault, size,
			 "%s: has %zu masters and not %zu: another number needs a restart of every redlockd "
			 "(docs/how-to/replace-a-master.md)",
			 after->masters_file, after->master_count, before->master_count);
		return false;
	}
	for (size_t i = 0; i < after->master_count; i++) {
		const struct address *master = &after->masters[i];
		for (size_t j = 0; j < before->master_count; j++) {
			if (j == i || !config_is_same_place(master, &before->masters[j]) ||
			    config_is_same_place(master, &before->masters[i]))
				continue;
			snprintf(fault, size, "%s: master %zu was master %zu: the order must stay", after->masters_file,
				 i + 1, j + 1);
			return false;
		}
		if (master->db == before->masters[i].db)
			continue;
		snprintf(fault, size, "%s: master %zu: another database needs a restart", after->masters_file, i + 1);
		return false;
	}
	return true;
}

bool config_reload_masters(struct options *options, char *message, size_t message_size)
{
	char fault[CONFIG_FAULT_MAX];
	struct options *read = memory_zeroed(1, sizeof *read);
	assert(options->master_count > 0 && options->masters_file[0]);
	strcpy(read->masters_file, options->masters_file);
	bool good = config_read_masters(read, fault, sizeof fault) &&
		    config_check_change(options, read, fault, sizeof fault);
	if (good)
		memcpy(options->masters, read->masters, sizeof options->masters);
	else
		snprintf(message, message_size, "--masters-file: %s", fault);
	explicit_bzero(read, sizeof *read);
	free(read);
	return good;
}

static bool config_load_masters(struct options_reader *reader, struct options *options)
{
	char fault[CONFIG_FAULT_MAX];
	return config_read_masters(options, fault, sizeof fault) ||
	       options_reject_option(reader, "masters-file", "%s", fault);
}

static bool config_check_masters(struct options_reader *reader, struct options *options)
{
	const char *given[3];
	size_t count = 0;
	char other[OPTIONS_NAME_MAX];
	if (options->master_count > 0)
		given[count++] = "masters";
	if (options->masters_file[0] != '\0')
		given[count++] = "masters-file";
	if (options->dev > 0)
		given[count++] = "dev";
	if (count == 0)
		return options_reject_option(
			reader, "masters",
			"missing: give --masters redis://HOST1,redis://HOST2,redis://HOST3 or --masters-file FILE, "
			"or try redlockd out with --dev");
	if (count > 1) {
		size_t rejected = config_find_rejected(reader, given, count, other);
		return options_reject_option(reader, given[rejected], "cannot be used together with %s", other);
	}
	if (options_origin(reader, "masters") == OPTIONS_FROM_FLAG && config_have_password(options))
		return options_reject_option(
			reader, "masters",
			"a password on the command line can be seen by everybody on this host (ps): give "
			"the masters by --masters-file, --config or the variable REDLOCKD_MASTERS");
	return options->masters_file[0] == '\0' || config_load_masters(reader, options);
}

/* Durable masters have no replicas, and need the restart guard. */
static bool config_check_durable(struct options_reader *reader, const struct options *options)
{
	const char *names[] = {"durable-masters", options->allow_replicas ? "allow-replicas"
						  : options->dev > 0      ? "dev"
									  : "restart-guard"};
	char other[OPTIONS_NAME_MAX];
	bool fits = !options->allow_replicas && options->dev == 0 && options->restart_guard != OPTIONS_GUARD_OFF;
	if (!options->durable_masters || fits)
		return true;
	size_t rejected = config_find_rejected(reader, names, 2, other);
	return options_reject_option(reader, names[rejected], "cannot be used together with %s", other);
}

/* The TLS options fit together; addresses without a scheme get theirs. */
static bool config_check_tls(struct options_reader *reader, struct options *options)
{
	const struct {
		const char *name, *value, *other, *other_value;
	} pairs[] = {{"tls-cert", options->tls_cert, "--tls-key", options->tls_key},
		     {"tls-key", options->tls_key, "--tls-cert", options->tls_cert},
		     {"tls-client-ca", options->tls_client_ca, "--tls-cert", options->tls_cert},
		     {"masters-cert", options->masters_cert, "--masters-key", options->masters_key},
		     {"masters-key", options->masters_key, "--masters-cert", options->masters_cert}};
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		if (pairs[i].value[0] != '\0' && pairs[i].other_value[0] == '\0')
			return options_reject_option(reader, pairs[i].name, "%s is needed with it", pairs[i].other);
	for (size_t i = 0; i < options->listen_count; i++) {
		struct address *address = &options->listen[i];
		if (address->tls && options->tls_cert[0] == '\0')
			return options_reject_option(reader, "listen", "%s needs --tls-cert", address->shown);
		address->tls = address->tls || (address->scheme == ADDRESS_PLAIN && options->tls_cert[0] != '\0');
	}
	return true;
}

bool config_load(int argc, char *argv[], char *const environment[], struct options *ret_options,
		 enum config_action *ret_action, char *message, size_t message_size)
{
	struct options options = {0};
	struct options_reader reader = {
		.table = &config_table, .values = &options, .message = message, .message_size = message_size};
	assert(argc >= 0 && message_size > 0);
	if (!options_read(&reader, argc, argv, environment))
		return false;
	*ret_action = reader.end ? CONFIG_SHOWN : options.check ? CONFIG_CHECK : CONFIG_RUN;
	if (reader.end) {
		if (reader.end->letter == 'V')
			printf("redlockd %s (%s)\n", build_version, build_commit);
		else
			options_print_help(&config_table, stdout);
		fflush(stdout);
		return true;
	}
	if (!config_check_masters(&reader, &options) || !config_check_orders(&reader, &options) ||
	    !config_check_drift(&reader, &options) || !config_check_durable(&reader, &options) ||
	    !config_check_tls(&reader, &options))
		return false;
	if (options.dev > 0 && options_origin(&reader, "master-timeout-ms") == OPTIONS_FROM_DEFAULT)
		options.master_timeout_ms = DEV_MASTER_TIMEOUT_MS;
	*ret_options = options;
	return true;
}
