/* SPDX-License-Identifier: MIT */
/* The options of redlockd, for the other folders. One table (config_table.c, of the type in server/options) defines
 * flags, environment variables, keys of --config FILE and --help. Tests compare the manual page and
 * docs/reference/configuration.md with it. Anything unknown or out of bounds ends the program. */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/base.h"
#include "server/options/options.h"
#include "server/redlock/redlock.h"

enum { OPTIONS_LISTEN_MAX = 16, OPTIONS_MASTERS_MAX = REDLOCK_MASTERS_MAX, OPTIONS_NAMES_MAX = 16 };

enum options_guard { OPTIONS_GUARD_ON, OPTIONS_GUARD_WHOLE, OPTIONS_GUARD_OFF };

/* Names of hosts, or origins, as given. */
struct options_names {
	size_t count;
	char items[OPTIONS_NAMES_MAX][ADDRESS_HOST_MAX];
};

struct options {
	size_t listen_count;
	struct address listen[OPTIONS_LISTEN_MAX]; /* tls: it speaks HTTPS; port 0: any free one (the log says which) */
	size_t master_count;
	struct address masters[OPTIONS_MASTERS_MAX];
	uint32_t dev; /* 0: off; else how many private masters */
	char key_prefix[129];
	uint32_t default_ttl_ms, min_ttl_ms, max_ttl_ms;
	uint64_t max_hold_ms;                           /* 0: no bound */
	uint32_t max_wait_ms;                           /* 0: no request may wait */
	uint32_t max_waiters, max_waiters_per_resource; /* over all workers; of each worker */
	uint32_t max_shared;                            /* shared leases of a resource at once */
	uint32_t master_timeout_ms;
	uint32_t retry_min_ms, retry_max_ms, retry_count;
	double drift_factor;
	uint32_t drift_ms;
	uint32_t restart_guard; /* enum options_guard */
	uint32_t bootstrap;     /* 0 or 1 */
	uint32_t allow_replicas, durable_masters;
	uint32_t workers;
	uint32_t max_connections;    /* over all workers */
	uint32_t request_timeout_ms; /* for receiving a request, and for sending its answer */
	uint32_t idle_timeout_ms;    /* between the requests of a connection */
	/* 0: no bound; the rate is per second */
	uint32_t max_connections_per_address, max_rate_per_address, max_requests_per_connection;
	/* paths of files; "": not given */
	char tls_cert[OPTIONS_PATH_MAX], tls_key[OPTIONS_PATH_MAX], tls_client_ca[OPTIONS_PATH_MAX];
	char keys[OPTIONS_PATH_MAX];
	char masters_file[OPTIONS_PATH_MAX], masters_ca[OPTIONS_PATH_MAX], masters_cert[OPTIONS_PATH_MAX],
		masters_key[OPTIONS_PATH_MAX];
	uint32_t insecure; /* 0 or 1 */
	struct options_names allow_hosts, allow_origins;
	uint32_t drain_ms;
	uint32_t check; /* 0 or 1 */
	char config[OPTIONS_PATH_MAX];
	enum log_format log_format;
	enum log_level log_level;
	enum log_requests log_requests;
	uint32_t log_leases; /* 0 or 1 */
};

enum config_action {
	CONFIG_RUN,
	CONFIG_CHECK, /* --check: say what would run */
	CONFIG_SHOWN  /* --help or --version was printed to standard output: exit 0 */
};

extern const struct options_table config_table;

/* Fills *ret_options from the command line, `environment` ("NAME=value" strings, NULL at the end) and the configuration
 * file. Returns false and writes one line into `message` that names the option (as it was given: flag, variable, or key
 * and file), its fault and what is allowed, but never a value. */
bool config_load(int argc, char *argv[], char *const environment[], struct options *ret_options,
		 enum config_action *ret_action, char *message, size_t message_size)
	__attribute__((warn_unused_result));

/* Reads --masters-file again into the masters of *options. Their number, order and databases must be the same; their
 * servers may change. False: one line in `message`, and *options is unchanged. */
bool config_reload_masters(struct options *options, char *message, size_t message_size)
	__attribute__((warn_unused_result));

/* True if both lead to the same server. The database does not matter: two of one server fail together. */
bool config_is_same_place(const struct address *address, const struct address *other);

/* True if a master has a password. For the files of this folder. */
bool config_have_password(const struct options *options);

#endif
