/* The one table of the options of redlockd: names, bounds, defaults and short descriptions, and the parsers of its own
 * values: addresses, names of hosts, the key prefix, --dev. A new option needs an entry here and a member in struct
 * options. The grammar of addresses is in server/options/address.h. */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "config.h"

enum { CONFIG_REDIS_PORT = 6379, CONFIG_DEV_DEFAULT = 3 };

/* ---- values of options ---- */

/* True if both lead to the same place; port 0 is another one each time. */
#define CONFIG_IS_SAME(a, b)                                                                           \
	((a)->is_unix == (b)->is_unix && (a)->port == (b)->port && ((a)->is_unix || (a)->port != 0) && \
	 ((a)->is_unix ? strcmp : strcasecmp)((a)->host, (b)->host) == 0)

static const char *config_add_listen(const struct options_entry *entry, const char *text, void *values)
{
	const unsigned may = ADDRESS_PLAIN | ADDRESS_UNIX | ADDRESS_HTTP | ADDRESS_HTTPS | ADDRESS_NEEDS_PORT |
			     ADDRESS_ZERO_PORT;
	struct options *options = values;
	struct address parts;
	const char *reason = address_parse(text, may, &parts);

	assert(options->listen_count < entry->max);
	if (reason)
		return reason;
	struct listen_address address = {.is_unix = parts.is_unix, .port = parts.port};
	if (parts.scheme & (ADDRESS_HTTP | ADDRESS_HTTPS))
		address.scheme = parts.scheme == ADDRESS_HTTPS ? LISTEN_HTTPS : LISTEN_HTTP;
	strcpy(address.host, parts.host);
	snprintf(address.typed, sizeof address.typed, "%s", text);
	for (size_t i = 0; i < options->listen_count; i++)
		if (CONFIG_IS_SAME(&address, &options->listen[i]))
			return "given twice";
	options->listen[options->listen_count++] = address;
	return NULL;
}

/* Writes the address without user and password, in a form that could be given again. */
static const char *config_show_master(struct master_address *address)
{
	char db[16] = "";

	if (address->db > 0)
		snprintf(db, sizeof db, address->is_unix ? "?db=%u" : "/%u", address->db);
	int len = address->is_unix ? snprintf(address->shown, sizeof address->shown, "unix:%s%s", address->host, db)
				   : snprintf(address->shown, sizeof address->shown,
					      strchr(address->host, ':') ? "redis%s://[%s]:%u%s" : "redis%s://%s:%u%s",
					      address->tls ? "s" : "", address->host, address->port, db);
	return (size_t)len < sizeof address->shown ? NULL : "the host is too long";
}

static const char *config_add_master(const struct options_entry *entry, const char *text, void *values)
{
	const unsigned may = ADDRESS_UNIX | ADDRESS_REDIS | ADDRESS_REDISS | ADDRESS_PASSWORD | ADDRESS_DB;
	struct options *options = values;
	struct address parts;
	const char *reason = address_parse(text, may, &parts);

	assert(options->master_count < entry->max);
	if (reason)
		return reason;
	struct master_address address = {.is_unix = parts.is_unix,
					 .tls = parts.scheme == ADDRESS_REDISS,
					 .port = parts.is_unix || parts.has_port ? parts.port : CONFIG_REDIS_PORT,
					 .db = parts.db};
	strcpy(address.host, parts.host);
	strcpy(address.user, parts.user);
	strcpy(address.password, parts.password);
	for (size_t i = 0; i < options->master_count; i++)
		if (CONFIG_IS_SAME(&address, &options->masters[i])) /* two databases of one server fail together */
			return "the same master twice";
	reason = config_show_master(&address);
	if (!reason)
		options->masters[options->master_count++] = address;
	return reason;
}

static const char *config_add_name(const struct options_entry *entry, const char *text, void *values)
{
	struct options_names *names = (void *)((char *)values + entry->offset);

	for (size_t i = 0; i < names->count; i++)
		if (strcasecmp(names->items[i], text) == 0)
			return "given twice";
	assert(names->count < entry->max);
	if (strlen(text) >= ADDRESS_HOST_MAX)
		return "too long";
	strcpy(names->items[names->count++], text);
	return NULL;
}

/* As the header Host has it: a name or an address, without a port. */
static const char *config_add_host(const struct options_entry *entry, const char *text, void *values)
{
	struct address parts;
	const char *reason = address_parse(text, ADDRESS_PLAIN, &parts);

	if (!reason && parts.has_port)
		return "a port is not allowed here";
	return reason ? reason : config_add_name(entry, text, values);
}

/* As a browser sends it: a scheme, a host and perhaps a port. */
static const char *config_add_origin(const struct options_entry *entry, const char *text, void *values)
{
	struct address parts;
	const char *reason = address_parse(text, ADDRESS_HTTP | ADDRESS_HTTPS, &parts);

	return reason ? reason : config_add_name(entry, text, values);
}

static const char *config_parse_dev(const struct options_entry *entry, const char *text, void *values)
{
	struct options *options = values;

	if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
		return options_parse_number(entry, text, values);
	options->dev = strcmp(text, "true") == 0 ? CONFIG_DEV_DEFAULT : 0;
	return NULL;
}

/* The key of a lock must never look like one of redlockd's own keys: a prefix must not contain `redlockd:`, nor a
 * beginning of it at its end, which a resource could complete. */
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

	if (!fault || !config_have_password(reader->values))
		return true;
	return options_complain_text(reader, "holds a password, and so %s", fault);
}

/* ---- the table ---- */

static const char *const config_log_formats[] = {[LOG_LOGFMT] = "logfmt", [LOG_JSON] = "json", NULL};
static const char *const config_log_levels[] =
	{[LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error", NULL};
static const char *const config_log_requests[] =
	{[LOG_REQUESTS_ALL] = "all", [LOG_REQUESTS_ERRORS] = "errors", [LOG_REQUESTS_NONE] = "none", NULL};
static const char *const config_guards[] = {[OPTIONS_GUARD_ON] = "on", [OPTIONS_GUARD_OFF] = "off", NULL};

#define OPTION(flag, member, words) .name = flag, OPTIONS_AT(struct options, member), .help = words
#define NUMBER(flag, member, least, most, initial, words) \
	OPTION(flag, member, words), OPTIONS_NUMBER(least, most), .standard = initial
#define TIME(flag, member, least, most, initial, words) \
	OPTION(flag, member, words), OPTIONS_TIME(least, most), .standard = initial
#define CHOICE(flag, what, member, initial, all, words) \
	OPTION(flag, member, words), OPTIONS_CHOICE(what, OPTIONS_STRING, all), .standard = initial
#define SWITCH(flag, member, words)                                                                             \
	OPTION(flag, member, words), OPTIONS_CHOICE("TRUTH", OPTIONS_OPTIONAL | OPTIONS_TRUTH, options_truths), \
		.standard = "false"
#define PATH(flag, member, files, words)                                                                        \
	OPTION(flag, member, words), .argument = "FILE", .traits = OPTIONS_STRING, .parse = options_parse_text, \
				     .min = 1, .max = OPTIONS_PATH_MAX - 1, .allowed = files
#define LIST(flag, what, member, trait, function, most, values, words)                                    \
	OPTION(flag, member, words), .argument = what, .traits = OPTIONS_LIST | OPTIONS_STRING | (trait), \
				     .parse = function, .min = 1, .max = most, .allowed = OPTIONS_RANGE " " values

static const struct options_entry config_entries[] = {
	{LIST("listen", "ADDRESS", listen_count, OPTIONS_REPEATED, config_add_listen, OPTIONS_LISTEN_MAX,
	      "of host:port, [v6]:port, http://…, https://… or unix:/path",
	      "An address to listen on; may be given again. A port alone is one of 127.0.0.1."),
	 .standard = "127.0.0.1:8080"},
	{LIST("masters", "LIST", master_count, 0, config_add_master, OPTIONS_MASTERS_MAX,
	      "of redis:// or rediss://[user:pass@]host[:port][/db] or unix:/path, separated by commas",
	      "The independent Redis masters, best an odd number of them. User and password are percent-encoded.")},
	{PATH("masters-file", masters_file, "paths of files that others may not read",
	      "A file with the masters, instead of --masters, which keeps their passwords off the command line.")},
	{PATH("masters-ca", masters_ca, "paths of PEM files",
	      "The certificate authorities of rediss:// masters, instead of those of the system.")},
	{PATH("masters-cert", masters_cert, "paths of PEM files",
	      "The client certificate for rediss:// masters that require one.")},
	{PATH("masters-key", masters_key, "paths of PEM files that others may not read", "The key of --masters-cert.")},
	{OPTION("dev", dev,
		"For trying out, instead of --masters: starts N (default 3) private redis-server processes."),
	 .argument = "N", .traits = OPTIONS_SHOWN | OPTIONS_OPTIONAL | OPTIONS_INTEGER | OPTIONS_TRUTH,
	 .parse = config_parse_dev, .min = 1, .max = OPTIONS_MASTERS_MAX, .standard = "false",
	 .allowed = "true, false or " OPTIONS_RANGE},
	{OPTION("config", config,
		"A file with one JSON object whose keys are the names of the options with underscores."),
	 .argument = "FILE", .traits = OPTIONS_FILE, .parse = options_parse_text, .min = 1, .max = OPTIONS_PATH_MAX - 1,
	 .allowed = "the path of a JSON file of at most 1 MiB"},
	{OPTION("key-prefix", key_prefix,
		"The beginning of the name of every Redis key; the same for all replicas that share locks."),
	 .argument = "TEXT", .traits = OPTIONS_STRING, .parse = config_parse_prefix, .max = 128, .standard = "",
	 .allowed = OPTIONS_RANGE " bytes of UTF-8 without control characters, without redlockd:"},
	{TIME("default-ttl-ms", default_ttl_ms, 10, 86400000, "30000",
	      "The ttl of a lease if the request names none.")},
	{TIME("min-ttl-ms", min_ttl_ms, 10, 86400000, "100", "The shortest ttl that a request may ask for.")},
	{TIME("max-ttl-ms", max_ttl_ms, 10, 86400000, "60000",
	      "The longest ttl that a request may ask for. A lease can be extended again and again.")},
	{TIME("max-wait-ms", max_wait_ms, 0, 86400000, "60000",
	      "The longest time that a request may wait for a lock (wait_ms). 0: requests may not wait.")},
	{NUMBER("max-waiters", max_waiters, 1, 1000000, "8000",
		"The most requests that may wait for locks. Further ones are answered 429.")},
	{NUMBER("max-waiters-per-resource", max_waiters_per_resource, 1, 1000000, "1000",
		"The most of them, in each worker, that may wait for the same resource.")},
	{TIME("max-hold-ms", max_hold_ms, 0, UINT64_C(31536000000), "86400000",
	      "No lease is extended past this age. 0: no bound.")},
	{TIME("master-timeout-ms", master_timeout_ms, 1, 60000, "50",
	      "The time a master has to answer before it counts as failed. Far below the ttl of a lease. With --dev "
	      "the "
	      "default is 1000.")},
	{TIME("retry-min-ms", retry_min_ms, 0, 60000, "50",
	      "The shortest pause before the next attempt after a split vote. The pause is random.")},
	{TIME("retry-max-ms", retry_max_ms, 0, 60000, "250",
	      "The longest pause before the next attempt after a split vote.")},
	{NUMBER("retry-count", retry_count, 1, 100, "3",
		"The number of attempts of a request for a lease while votes are split.")},
	{OPTION("drift-factor", drift_factor,
		"How much clocks may differ in speed, as a part of the ttl; subtracted from the validity."),
	 .argument = "NUMBER", .traits = OPTIONS_SHOWN | OPTIONS_INTEGER | OPTIONS_REAL,
	 .parse = options_parse_fraction, .min = 1, .max = 500, .standard = "0.01",
	 .allowed = "0.001 to 0.5"}, /* below it leases may overlap: docs/explanation/safety.md, The sum */
	{TIME("drift-ms", drift_ms, 2, 60000, "2", "A constant that is subtracted from the validity of a lease too.")},
	{CHOICE("restart-guard", "WHEN", restart_guard, "on", config_guards,
		"Quarantines a master that may have forgotten locks. Off is for tests alone.")},
	{SWITCH("bootstrap", bootstrap,
		"Declares masters new if none of them has an epoch, so that there is nothing to wait for.")},
	{SWITCH("allow-replicas", allow_replicas,
		"Lets masters vote that have replicas. Make sure that none ever takes over.")},
	{NUMBER("workers", workers, 1, 64, "1",
		"Threads, each with an event loop, a listener and connections to the masters of its own.")},
	{NUMBER("max-connections", max_connections, 1, 1000000, "10000",
		"HTTP connections, divided evenly among the workers. Further ones are answered 429.")},
	{TIME("request-timeout-ms", request_timeout_ms, 100, 3600000, "10000",
	      "The time for receiving a request, and for sending its answer.")},
	{TIME("idle-timeout-ms", idle_timeout_ms, 100, 86400000, "60000",
	      "The time that a connection may stay open between two requests.")},
	{NUMBER("max-connections-per-address", max_connections_per_address, 0, 1000000, "5000",
		"Connections of one client address (of IPv6 the first 64 bits). 0: no bound.")},
	{NUMBER("max-rate-per-address", max_rate_per_address, 0, 1000000, "0",
		"Requests a second of one client address, over all its connections. 0: no bound.")},
	{NUMBER("max-requests-per-connection", max_requests_per_connection, 0, 1000000000, "1000000",
		"The number of requests after which a connection is closed. 0: no bound.")},
	{PATH("tls-cert", tls_cert, "paths of PEM files",
	      "The certificate for HTTPS and those between it and its authority. Read again on SIGHUP.")},
	{PATH("tls-key", tls_key, "paths of PEM files that others may not read", "The key of --tls-cert.")},
	{PATH("tls-client-ca", tls_client_ca, "paths of PEM files",
	      "The certificate authorities of clients. Read again on SIGHUP.")},
	{PATH("keys", keys, "paths of JSON files that nobody else may write",
	      "The keys file; with it every client needs a key or a certificate. Read again on SIGHUP.")},
	{SWITCH("insecure", insecure, "Lets redlockd listen beyond loopback without authentication.")},
	{LIST("allow-host", "LIST", allow_hosts, 0, config_add_host, OPTIONS_NAMES_MAX,
	      "names or addresses of hosts without ports, separated by commas",
	      "The names that the header Host may have, besides localhost and loopback addresses.")},
	{LIST("allow-origin", "LIST", allow_origins, 0, config_add_origin, OPTIONS_NAMES_MAX,
	      "origins as browsers send them, https://host or https://host:port, separated by commas",
	      "Origins whose web pages may call redlockd from a browser (CORS).")},
	{TIME("drain-ms", drain_ms, 0, 3600000, "10000", "The time for requests in flight after SIGTERM.")},
	{CHOICE("log-format", "FORMAT", log_format, "logfmt", config_log_formats,
		"The format of the log, which goes to standard error.")},
	{CHOICE("log-level", "LEVEL", log_level, "info", config_log_levels,
		"The least important level that is logged.")},
	{CHOICE("log-requests", "WHICH", log_requests, "errors", config_log_requests,
		"The requests that are logged. Errors: answers 401, 403, 429 and 5xx, and lost holds.")},
	{SWITCH("check", check,
		"Reads everything that is configured, says what would run, and exits: 0, or 2 with a message."),
	 .variable = ""},
	{OPTIONS_END("help", 'h', "Prints this help and exits.")},
	{OPTIONS_END("version", 'V', "Prints version and commit, and exits.")},
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
