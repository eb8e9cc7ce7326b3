/* The one table of options: their names, bounds, defaults and descriptions. Everything else follows from it: flags,
 * environment variables, keys of the configuration file, --help, the manual page and the table in
 * docs/configuration.md.
 *
 * A new option needs an entry here and a member in struct options, and no more unless its kind is new. */
#include "options_table.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const options_log_formats[] = {[LOG_LOGFMT] = "logfmt", [LOG_JSON] = "json", NULL};
static const char *const options_log_levels[] =
	{[LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error", NULL};
static const char *const options_help_forms[] =
	{[OPTIONS_HELP_TEXT] = "text", [OPTIONS_HELP_MAN] = "man", [OPTIONS_HELP_MARKDOWN] = "markdown", NULL};

static const char *const options_guards[] = {[OPTIONS_GUARD_ON] = "on", [OPTIONS_GUARD_OFF] = "off", NULL};
static const char *const options_truths[] = {"false", "true", NULL};

static_assert(sizeof(enum log_format) == sizeof(uint32_t) && sizeof(enum log_level) == sizeof(uint32_t),
	      "a choice is stored as uint32_t");

#define OPTIONS_AT(member) offsetof(struct options, member)
#define OPTIONS_U32(member, least, most, initial) OPTIONS_KIND_U32, OPTIONS_AT(member), least, most, initial, NULL, NULL
#define OPTIONS_U64(member, least, most, initial) OPTIONS_KIND_U64, OPTIONS_AT(member), least, most, initial, NULL, NULL

const struct options_entry options_table[OPTIONS_COUNT] = {
	{"listen", "ADDRESS", OPTIONS_KIND_LISTEN, OPTIONS_AT(listen), 0, 0, "127.0.0.1:8080",
	 "host:port, [v6]:port, http://…, https://… or unix:/path, at most 16 of them", NULL,
	 "The addresses to listen on. A TCP address without a scheme is https:// if --tls-cert is given, else "
	 "http://; a Unix socket is always plain HTTP. Beyond loopback --keys, --tls-client-ca or --insecure is "
	 "required. May be given more than once; the environment variable takes a list separated by commas, the "
	 "file also an array. With port 0 the kernel chooses a free port, which the log shows."},
	{"masters", "LIST", OPTIONS_KIND_MASTERS, OPTIONS_AT(masters), 0, 0, NULL,
	 "1 to 15 of redis:// or rediss://[user:pass@]host[:port][/db] or unix:/path, separated by commas", NULL,
	 "The independent Redis masters. Use an odd number: an even one survives no more failures than one master "
	 "less. User and password are percent-encoded; give a password in the environment or the file, since "
	 "others can read a command line. A Unix socket with a password is unix://user:pass@/path, with a "
	 "database unix:/path?db=N."},
	{"masters-file", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(masters_file), 0, 0, NULL,
	 "paths of files that others may not read", NULL,
	 "A file with the masters, instead of --masters: one or more on each line, # begins a comment. It keeps "
	 "their passwords off the command line."},
	{"masters-ca", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(masters_ca), 0, 0, NULL, "paths of PEM files", NULL,
	 "The certificate authorities that the certificates of rediss:// masters must come from. Without it: "
	 "those of the system."},
	{"masters-cert", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(masters_cert), 0, 0, NULL, "paths of PEM files", NULL,
	 "The client certificate for rediss:// masters that require one."},
	{"masters-key", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(masters_key), 0, 0, NULL,
	 "paths of PEM files that others may not read", NULL, "The key of --masters-cert."},
	{"dev", "N", OPTIONS_KIND_DEV, OPTIONS_AT(dev), 0, 0, "false", "true, false or 1 to 15", NULL,
	 "For trying out, instead of --masters: starts N (default 3) private redis-server processes on Unix "
	 "sockets in a temporary folder, and ends them together with redlockd, however it ends."},
	{"config", "FILE", OPTIONS_KIND_CONFIG, 0, 0, 0, NULL, "the path of a JSON file of at most 1 MiB", NULL,
	 "A file with one JSON object whose keys are the names of the options with underscores. Unknown and "
	 "repeated keys are mistakes."},
	{"key-prefix", "TEXT", OPTIONS_KIND_PREFIX, OPTIONS_AT(key_prefix), 0, 0, "",
	 "at most 128 bytes of UTF-8 without control characters, without redlockd:", NULL,
	 "The beginning of the name of every Redis key. All replicas that share locks need the same one."},
	{"default-ttl-ms", "MS", OPTIONS_U32(default_ttl_ms, 10, 86400000, "30000"),
	 "The ttl of a lease if the request names none."},
	{"min-ttl-ms", "MS", OPTIONS_U32(min_ttl_ms, 10, 86400000, "100"),
	 "The shortest ttl that a request may ask for."},
	{"max-ttl-ms", "MS", OPTIONS_U32(max_ttl_ms, 10, 86400000, "60000"),
	 "The longest ttl that a request may ask for. A lease can be extended again and again."},
	{"max-wait-ms", "MS", OPTIONS_U32(max_wait_ms, 0, 86400000, "60000"),
	 "The longest time that a request may wait for a lock (wait_ms). 0: requests may not wait."},
	{"max-waiters", "N", OPTIONS_U32(max_waiters, 1, 1000000, "8000"),
	 "The most requests that may wait for locks. Further ones that would have to wait are answered 429."},
	{"max-waiters-per-resource", "N", OPTIONS_U32(max_waiters_per_resource, 1, 1000000, "1000"),
	 "The most of them, in each worker, that may wait for the same resource."},
	{"max-hold-ms", "MS", OPTIONS_U64(max_hold_ms, 0, UINT64_C(31536000000), "86400000"),
	 "No lease is extended past this age, so that a client that hangs and still extends does not block all "
	 "others for ever. 0: no bound."},
	{"master-timeout-ms", "MS", OPTIONS_U32(master_timeout_ms, 1, 60000, "50"),
	 "The time a master has to answer before it counts as failed. It should be far below the ttl of a lease."},
	{"retry-min-ms", "MS", OPTIONS_U32(retry_min_ms, 0, 60000, "50"),
	 "The shortest pause before the next attempt after a split vote. The pause is random."},
	{"retry-max-ms", "MS", OPTIONS_U32(retry_max_ms, 0, 60000, "250"),
	 "The longest pause before the next attempt after a split vote."},
	{"retry-count", "N", OPTIONS_U32(retry_count, 1, 100, "3"),
	 "The number of attempts of a request for a lease while votes are split."},
	{"drift-factor", "NUMBER", OPTIONS_KIND_FRACTION, OPTIONS_AT(drift_factor), 0, 0, "0.01", "0.001 to 0.5", NULL,
	 "How much the clocks of masters and clients may differ in speed, as a part of the ttl; it is subtracted "
	 "from the validity of a lease."},
	{"drift-ms", "MS", OPTIONS_U32(drift_ms, 2, 60000, "2"),
	 "A constant that is subtracted from the validity of a lease too: Redis expires keys with a precision of 1 "
	 "ms."},
	{"restart-guard", "WHEN", OPTIONS_KIND_CHOICE, OPTIONS_AT(restart_guard), 0, 0, "on", NULL, options_guards,
	 "Quarantines a master that may have forgotten locks until the longest lease has run out. Off is for "
	 "tests alone: then a restarted master can grant a lock that somebody holds."},
	{"bootstrap", "TRUTH", OPTIONS_KIND_SWITCH, OPTIONS_AT(bootstrap), 0, 0, "false", NULL, options_truths,
	 "Declares masters new if none of them has an epoch, so that there is nothing to wait for. Without it "
	 "redlockd cannot tell them from masters that lost everything, and waits out the longest lease. If a "
	 "master has an epoch this option does nothing. A minority of masters that answer but cannot be used "
	 "(wrong password, replica) is left out; redlockd waits for a master that does not answer. --dev implies "
	 "it."},
	{"allow-replicas", "TRUTH", OPTIONS_KIND_SWITCH, OPTIONS_AT(allow_replicas), 0, 0, "false", NULL,
	 options_truths,
	 "Lets masters vote that have replicas. A replica that takes over has not seen the last locks, so make "
	 "sure that none ever does."},
	{"workers", "N", OPTIONS_U32(workers, 1, 64, "1"),
	 "Threads, each with an event loop, a listener and connections to the masters of its own."},
	{"max-connections", "N", OPTIONS_U32(max_connections, 1, 1000000, "10000"),
	 "HTTP connections, divided evenly among the workers. Further ones are answered 429 and closed."},
	{"request-timeout-ms", "MS", OPTIONS_U32(request_timeout_ms, 100, 3600000, "10000"),
	 "The time for receiving a request, and for sending its answer."},
	{"idle-timeout-ms", "MS", OPTIONS_U32(idle_timeout_ms, 100, 86400000, "60000"),
	 "The time that a connection may stay open between two requests."},
	{"max-connections-per-address", "N", OPTIONS_U32(max_connections_per_address, 0, 1000000, "5000"),
	 "Connections of one client address (of IPv6 the first 64 bits). Further ones are answered 429 and "
	 "closed. 0: no bound."},
	{"max-rate-per-address", "N", OPTIONS_U32(max_rate_per_address, 0, 1000000, "0"),
	 "Requests a second of one client address, over all its connections. Further ones are answered 429. 0: no "
	 "bound."},
	{"max-requests-per-connection", "N", OPTIONS_U32(max_requests_per_connection, 0, 1000000000, "1000000"),
	 "The number of requests after which a connection is closed, so that clients spread over the replicas "
	 "again. 0: no bound."},
	{"tls-cert", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(tls_cert), 0, 0, NULL, "paths of PEM files", NULL,
	 "The certificate for HTTPS, followed by those between it and its authority. Read again on SIGHUP."},
	{"tls-key", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(tls_key), 0, 0, NULL,
	 "paths of PEM files that others may not read", NULL, "The key of --tls-cert."},
	{"tls-client-ca", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(tls_client_ca), 0, 0, NULL, "paths of PEM files", NULL,
	 "The certificate authorities of clients: over HTTPS a client must present a certificate of one of them, "
	 "or a key of --keys. Read again on SIGHUP."},
	{"keys", "FILE", OPTIONS_KIND_PATH, OPTIONS_AT(keys), 0, 0, NULL,
	 "paths of JSON files that nobody else may write", NULL,
	 "The keys file: keys and names of client certificates with their rights, prefixes and limits "
	 "(docs/security.md). With it every client needs one. Read again on SIGHUP."},
	{"insecure", "TRUTH", OPTIONS_KIND_SWITCH, OPTIONS_AT(insecure), 0, 0, "false", NULL, options_truths,
	 "Lets redlockd listen beyond loopback without authentication: anybody who reaches it may take and "
	 "inspect every lock."},
	{"allow-host", "LIST", OPTIONS_KIND_HOSTS, OPTIONS_AT(allow_hosts), 0, 0, NULL,
	 "names or addresses of hosts without ports, separated by commas", NULL,
	 "The names that the header Host of a request may have, besides localhost and loopback addresses; beyond "
	 "loopback, besides any address. Others are rejected, since a web page can have its own name point here. "
	 "Without this option Host is checked on loopback addresses alone."},
	{"allow-origin", "LIST", OPTIONS_KIND_ORIGINS, OPTIONS_AT(allow_origins), 0, 0, NULL,
	 "origins as browsers send them, https://host or https://host:port, separated by commas", NULL,
	 "Origins whose web pages may call redlockd from a browser (CORS). Without it only its own page may."},
	{"drain-ms", "MS", OPTIONS_U32(drain_ms, 0, 3600000, "10000"),
	 "The time for requests in flight after SIGTERM. For the first second of it /readyz answers 503 and "
	 "redlockd goes on, so that load balancers notice."},
	{"log-format", "FORMAT", OPTIONS_KIND_CHOICE, OPTIONS_AT(log_format), 0, 0, "logfmt", NULL, options_log_formats,
	 "The format of the log, which goes to standard error."},
	{"log-level", "LEVEL", OPTIONS_KIND_CHOICE, OPTIONS_AT(log_level), 0, 0, "info", NULL, options_log_levels,
	 "The least important level that is logged."},
	{"help", "FORM", OPTIONS_KIND_HELP, 0, 0, 0, NULL, NULL, options_help_forms,
	 "Prints this help, the manual page or a table in Markdown, and exits."},
	{"version", NULL, OPTIONS_KIND_VERSION, 0, 0, 0, NULL, "no value", NULL,
	 "Prints version and commit, and exits."},
};

bool options_is_list(const struct options_entry *entry)
{
	return entry->kind == OPTIONS_KIND_LISTEN || entry->kind == OPTIONS_KIND_MASTERS ||
	       entry->kind == OPTIONS_KIND_HOSTS || entry->kind == OPTIONS_KIND_ORIGINS;
}

bool options_value_optional(const struct options_entry *entry)
{
	return entry->kind == OPTIONS_KIND_DEV || entry->kind == OPTIONS_KIND_SWITCH ||
	       entry->kind == OPTIONS_KIND_HELP || entry->kind == OPTIONS_KIND_VERSION;
}

bool options_in_environment(const struct options_entry *entry)
{
	return entry->kind != OPTIONS_KIND_HELP && entry->kind != OPTIONS_KIND_VERSION;
}

bool options_in_file(const struct options_entry *entry)
{
	return options_in_environment(entry) && entry->kind != OPTIONS_KIND_CONFIG;
}

void options_spell(const struct options_entry *entry, enum options_source source, char name[OPTIONS_NAME_MAX])
{
	bool flag = source == OPTIONS_FROM_FLAG || source == OPTIONS_FROM_DEFAULT;
	int len = snprintf(name, OPTIONS_NAME_MAX, "%s%s",
			   flag                                 ? "--"
			   : source == OPTIONS_FROM_ENVIRONMENT ? "REDLOCKD_"
								: "",
			   entry->name);

	assert(entry >= options_table && entry < options_table + OPTIONS_COUNT);
	assert(len > 0 && len < OPTIONS_NAME_MAX);
	for (char *c = name; !flag && *c != '\0'; c++) {
		if (*c == '-')
			*c = '_';
		else if (source == OPTIONS_FROM_ENVIRONMENT)
			*c = (char)toupper((unsigned char)*c);
	}
}

const char *options_allowed(const struct options_entry *entry, char buffer[OPTIONS_ALLOWED_MAX])
{
	assert(entry->allowed || entry->choices || entry->min <= entry->max);
	if (entry->allowed)
		return entry->allowed;
	buffer[0] = '\0';
	for (size_t i = 0, len = 0; entry->choices && entry->choices[i]; i++)
		len += (size_t)snprintf(buffer + len, OPTIONS_ALLOWED_MAX - len, "%s%s",
					i == 0                   ? ""
					: !entry->choices[i + 1] ? " or "
								 : ", ",
					entry->choices[i]);
	if (!entry->choices)
		snprintf(buffer, OPTIONS_ALLOWED_MAX, "%llu to %llu", (unsigned long long)entry->min,
			 (unsigned long long)entry->max);
	return buffer;
}

const struct options_entry *options_find(const char *given, size_t len, enum options_source source)
{
	char name[OPTIONS_NAME_MAX];

	assert(len == 0 || given);
	for (size_t i = 0; i < OPTIONS_COUNT; i++) {
		const struct options_entry *entry = &options_table[i];
		options_spell(entry, source, name);
		bool known = source == OPTIONS_FROM_FLAG ||
			     (source == OPTIONS_FROM_ENVIRONMENT ? options_in_environment(entry)
								 : options_in_file(entry));
		if (known && strlen(name) == len && memcmp(name, given, len) == 0)
			return entry;
	}
	return NULL;
}

const struct options_entry *options_entry_of(const char *name)
{
	for (size_t i = 0; i < OPTIONS_COUNT; i++)
		if (strcmp(options_table[i].name, name) == 0)
			return &options_table[i];
	abort(); /* a name that is not in the table is a bug */
}

bool options_is_service_link(const char *name, size_t len, const char *value)
{
	static const char *const inside[] = {"_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"};
	char text[OPTIONS_NAME_MAX * 2];

	if (len >= sizeof text)
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	const char *at = strstr(text, inside[0]);
	if (at)
		return at[strlen(inside[0])] == '\0';
	if (strstr(text, inside[1]))
		return true;
	at = strstr(text, inside[2]);
	if (at)
		return isdigit((unsigned char)at[strlen(inside[2])]);
	return len > 5 && strcmp(text + len - 5, "_PORT") == 0 && strstr(value, "://");
}
