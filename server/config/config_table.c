/* SPDX-License-Identifier: MIT */
/* The one table of the options of redlockd: names, bounds and defaults, and the parsers of its own values: addresses,
 * names of hosts, the key prefix, --dev. A new option needs an entry here, a member in struct options and an item in
 * man/redlockd.8, whose first paragraph --help shows. */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "config.h"
#include "made/config_help.h"

enum {
	CONFIG_REDIS_PORT = 6379,
	CONFIG_DEV_DEFAULT = 3,
	CONFIG_MASTER = ADDRESS_UNIX | ADDRESS_REDIS | ADDRESS_REDISS | ADDRESS_PASSWORD | ADDRESS_DB,
	CONFIG_LISTENER = ADDRESS_PLAIN | ADDRESS_UNIX | ADDRESS_HTTP | ADDRESS_HTTPS | ADDRESS_NEEDS_PORT |
			  ADDRESS_ZERO_PORT
};

/* ---- values of options ---- */

/* Writes the address as it could be given again, but without user and password. */
static void config_show_master(struct address *address)
{
	const struct address parsed = *address;
	char db[16] = "";
	if (parsed.db > 0)
		snprintf(db, sizeof db, parsed.is_unix ? "?db=%u" : "/%u", parsed.db);
	if (parsed.is_unix)
		snprintf(address->shown, sizeof address->shown, "unix:%s%s", parsed.host, db);
	else
		snprintf(address->shown, sizeof address->shown,
			 parsed.is_v6 ? "redis%s://[%s]:%u%s" : "redis%s://%s:%u%s", parsed.tls ? "s" : "", parsed.host,
			 parsed.port, db);
}

bool config_is_same_place(const struct address *address, const struct address *other)
{
	return other->is_unix == address->is_unix && other->port == address->port &&
	       (address->is_unix ? strcmp : strcasecmp)(other->host, address->host) == 0;
}

/* Appends an address to the listeners or the masters, unless another one leads to the same server. Port 0 is a new port
 * each time. */
static const char *config_add_address(const struct options_entry *entry, const char *text, void *values)
{
	struct options *options = values;
	bool is_listen = entry->offset == offsetof(struct options, listen_count);
	size_t *count = is_listen ? &options->listen_count : &options->master_count;
	struct address *list = is_listen ? options->listen : options->masters, *address = &list[*count];
	assert(*count < entry->max);
	const char *reason = address_parse(text, is_listen ? CONFIG_LISTENER : CONFIG_MASTER, address);
	if (reason)
		return reason;
	if (!address->is_unix && !address->has_port)
		address->port = CONFIG_REDIS_PORT;
	snprintf(address->shown, sizeof address->shown, "%s", text);
	for (const struct address *other = list; other < address; other++)
		if (config_is_same_place(address, other) && (address->is_unix || address->port != 0))
			return is_listen ? "given twice" : "the same master twice";
	if (!is_listen)
		config_show_master(address);
	(*count)++;
	return NULL;
}

/* A host as in the header Host, without a port; or an origin as a browser sends it, perhaps with a port. */
static const char *config_add_name(const struct options_entry *entry, const char *text, void *values)
{
	struct options_names *names = (void *)((char *)values + entry->offset);
	bool is_host = entry->offset == offsetof(struct options, allow_hosts);
	struct address parts;
	const char *reason = address_parse(text, is_host ? ADDRESS_PLAIN : ADDRESS_HTTP | ADDRESS_HTTPS, &parts);
	assert(names->count < entry->max);
	if (reason || strlen(text) >= ADDRESS_HOST_MAX || (is_host && parts.has_port))
		return reason ? reason : is_host && parts.has_port ? "a port is not allowed here" : "too long";
	for (size_t i = 0; i < names->count; i++)
		if (strcasecmp(names->items[i], text) == 0)
			return "given twice";
	strcpy(names->items[names->count++], text);
	return NULL;
}

static const char *config_parse_dev(const struct options_entry *entry, const char *text, void *values)
{
	struct options *options = values;
	if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
		return options_parse_number(entry, text, values);
	options->dev = strcmp(text, "true") == 0 ? CONFIG_DEV_DEFAULT : 0;
	return NULL;
}

/* The key of a lock must never look like one of redlockd's own keys: a prefix must not contain `redlockd:`, nor end
 * with a beginning of it, which a resource could complete. */
static const char *config_parse_prefix(const struct options_entry *entry, const char *text, void *values)
{
	static const char reserved[] = "redlockd:";
	enum { WORD_MIN = 4 }; /* fewer letters end ordinary words */
	size_t len = strlen(text);
	bool is_reserved = strstr(text, reserved);
	for (size_t part = WORD_MIN; part < sizeof reserved - 1; part++)
		is_reserved = is_reserved || (len >= part && memcmp(text + len - part, reserved, part) == 0);
	return is_reserved ? "redlockd: begins the names of redlockd's own keys; end the prefix in another way, such "
			     "as with a colon"
			   : options_parse_text(entry, text, values);
}

/* ---- passwords ---- */

bool config_have_password(const struct options *options)
{
	for (size_t i = 0; i < options->master_count; i++)
		if (options->masters[i].password[0] != '\0')
			return true;
	return false;
}

/* A configuration file that holds a password must not be readable by others. */
static bool config_check_file(struct options_reader *reader)
{
	const char *fault = secret_file_check(&reader->file, SECRET_FILE_SECRET);
	if (!fault || options_origin(reader, "masters") != OPTIONS_FROM_FILE || !config_have_password(reader->values))
		return true;
	return options_reject(reader, "holds a password, and so %s", fault);
}

/* ---- the table ---- */

static const char *const config_log_formats[] = {[LOG_LOGFMT] = "logfmt", [LOG_JSON] = "json", NULL};
static const char *const config_log_levels[] =
	{[LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error", NULL};
static const char *const config_log_requests[] =
	{[LOG_REQUESTS_ALL] = "all", [LOG_REQUESTS_ERRORS] = "errors", [LOG_REQUESTS_NONE] = "none", NULL};
static const char *const config_guards[] =
	{[OPTIONS_GUARD_ON] = "on", [OPTIONS_GUARD_WHOLE] = "whole", [OPTIONS_GUARD_OFF] = "off", NULL};

#define OPTION(flag, member, key) .name = flag, OPTIONS_AT(struct options, member), .help = HELP_##key
#define NUMBER(flag, member, least, most, initial) \
	OPTION(flag, member, member), OPTIONS_NUMBER(least, most), .standard = initial
#define TIME(flag, member, least, most, initial) \
	OPTION(flag, member, member), OPTIONS_TIME(least, most, options_parse_number), .standard = initial
#define CHOICE(flag, what, member, initial, all) \
	OPTION(flag, member, member), OPTIONS_CHOICE(what, OPTIONS_STRING, all), .standard = initial
#define SWITCH(flag, member)                                                                                     \
	OPTION(flag, member, member), OPTIONS_CHOICE("TRUTH", OPTIONS_OPTIONAL | OPTIONS_TRUTH, options_truths), \
		.standard = "false"
#define PATH(flag, member, files)                                                                                \
	OPTION(flag, member, member), .argument = "FILE", .traits = OPTIONS_STRING, .parse = options_parse_text, \
				      .min = 1, .max = OPTIONS_PATH_MAX - 1, .allowed = files
#define LIST(flag, what, member, key, trait, function, most, values)                                    \
	OPTION(flag, member, key), .argument = what, .traits = OPTIONS_LIST | OPTIONS_STRING | (trait), \
				   .parse = function, .min = 1, .max = most, .allowed = OPTIONS_RANGE " " values

static const struct options_entry config_entries[] = {
	{LIST("listen", "ADDRESS", listen_count, listen, OPTIONS_REPEATED, config_add_address, OPTIONS_LISTEN_MAX,
	      "of host:port, [v6]:port, http://…, https://… or unix:/path"),
	 .standard = "127.0.0.1:8080"},
	{LIST("masters", "LIST", master_count, masters, 0, config_add_address, OPTIONS_MASTERS_MAX,
	      "of redis:// or rediss://[user:pass@]host[:port][/db] or unix:/path, separated by commas")},
	{PATH("masters-file", masters_file, "paths of files that others may not read")},
	{PATH("masters-ca", masters_ca, "paths of PEM files")},
	{PATH("masters-cert", masters_cert, "paths of PEM files")},
	{PATH("masters-key", masters_key, "paths of PEM files that others may not read")},
	{OPTION("dev", dev, dev), .argument = "N",
	 .traits = OPTIONS_SHOWN | OPTIONS_OPTIONAL | OPTIONS_INTEGER | OPTIONS_TRUTH, .parse = config_parse_dev,
	 .min = 1, .max = OPTIONS_MASTERS_MAX, .standard = "false", .allowed = "true, false or " OPTIONS_RANGE},
	{OPTION("config", config, config), .argument = "FILE", .traits = OPTIONS_FILE, .parse = options_parse_text,
	 .min = 1, .max = OPTIONS_PATH_MAX - 1, .allowed = "the path of a JSON file of at most 1 MiB"},
	{OPTION("key-prefix", key_prefix, key_prefix), .argument = "TEXT", .traits = OPTIONS_STRING,
	 .parse = config_parse_prefix, .max = 128, .standard = "",
	 .allowed = OPTIONS_RANGE " bytes of UTF-8 without control characters, without redlockd:"},
	{TIME("default-ttl-ms", default_ttl_ms, 10, 86400000, "30s")},
	{TIME("min-ttl-ms", min_ttl_ms, 10, 86400000, "100ms")},
	{TIME("max-ttl-ms", max_ttl_ms, 10, 86400000, "1m")},
	{TIME("max-wait-ms", max_wait_ms, 0, 86400000, "1m")},
	{NUMBER("max-waiters", max_waiters, 1, 1000000, "8000")},
	{NUMBER("max-waiters-per-resource", max_waiters_per_resource, 1, 1000000, "1000")},
	{NUMBER("max-shared", max_shared, 1, 10000, "1000")},
	{TIME("max-hold-ms", max_hold_ms, 0, UINT64_C(31536000000), "24h")},
	{TIME("master-timeout-ms", master_timeout_ms, 1, 60000, "50ms")},
	{TIME("retry-min-ms", retry_min_ms, 0, 60000, "50ms")},
	{TIME("retry-max-ms", retry_max_ms, 0, 60000, "250ms")},
	{NUMBER("retry-count", retry_count, 1, 100, "3")},
	{OPTION("drift-factor", drift_factor, drift_factor), .argument = "NUMBER",
	 .traits = OPTIONS_SHOWN | OPTIONS_INTEGER | OPTIONS_REAL, .parse = options_parse_fraction, .min = 1,
	 .max = 500, .standard = "0.01",
	 .allowed = "0.001 to 0.5"}, /* below it leases may overlap: docs/explanation/proofs.md, The sum */
	{TIME("drift-ms", drift_ms, 2, 60000, "2ms")},
	{CHOICE("restart-guard", "WHEN", restart_guard, "on", config_guards)},
	{SWITCH("bootstrap", bootstrap)},
	{SWITCH("allow-replicas", allow_replicas)},
	{SWITCH("durable-masters", durable_masters)},
	{NUMBER("workers", workers, 1, 64, "1")},
	{NUMBER("max-connections", max_connections, 1, 1000000, "10000")},
	{TIME("request-timeout-ms", request_timeout_ms, 100, 3600000, "10s")},
	{TIME("idle-timeout-ms", idle_timeout_ms, 100, 86400000, "1m")},
	{NUMBER("max-connections-per-address", max_connections_per_address, 0, 1000000, "5000")},
	{NUMBER("max-rate-per-address", max_rate_per_address, 0, 1000000, "0")},
	{NUMBER("max-requests-per-connection", max_requests_per_connection, 0, 1000000000, "1000000")},
	{PATH("tls-cert", tls_cert, "paths of PEM files")},
	{PATH("tls-key", tls_key, "paths of PEM files that others may not read")},
	{PATH("tls-client-ca", tls_client_ca, "paths of PEM files")},
	{PATH("keys", keys, "paths of JSON files that nobody else may write")},
	{SWITCH("insecure", insecure)},
	{LIST("allow-host", "LIST", allow_hosts, allow_host, 0, config_add_name, OPTIONS_NAMES_MAX,
	      "names or addresses of hosts without ports, separated by commas")},
	{LIST("allow-origin", "LIST", allow_origins, allow_origin, 0, config_add_name, OPTIONS_NAMES_MAX,
	      "origins as browsers send them, https://host or https://host:port, separated by commas")},
	{TIME("drain-ms", drain_ms, 0, 3600000, "10s")},
	{CHOICE("log-format", "FORMAT", log_format, "logfmt", config_log_formats)},
	{CHOICE("log-level", "LEVEL", log_level, "info", config_log_levels)},
	{CHOICE("log-requests", "WHICH", log_requests, "errors", config_log_requests)},
	{SWITCH("log-leases", log_leases)},
	{SWITCH("check", check), .variable = ""},
	{OPTIONS_END("help", 'h', HELP_help)},
	{OPTIONS_END("version", 'V', HELP_version)},
};

const struct options_table config_table = {
	.program = "redlockd",
	.variables = "REDLOCKD_",
	.entries = config_entries,
	.count = sizeof config_entries / sizeof *config_entries,
	.check_file = config_check_file,
	.usage = "Usage: redlockd --masters LIST [OPTION]...\n"
		 "       redlockd --dev[=N] [OPTION]...\n\n"
		 "Leases over HTTP, by Redlock over independent Redis masters.\n\n"
		 "Every option is also an environment variable and a key of the --config file:\n"
		 "--max-ttl-ms is REDLOCKD_MAX_TTL_MS is \"max_ttl_ms\". A flag overrides the\n"
		 "variable, the variable the file. Any mistake ends the program. A TIME is 500ms,\n"
		 "60s, 5m, 1h or a whole number of milliseconds.\n",
};
