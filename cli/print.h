/* Prints the results of the commands to stdout: for people, or as JSON with --json. Each returns false if stdout cannot
 * be written. */
#ifndef PRINT_H
#define PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/http/client.h"

struct print_lease {
	const char *name, *owner, *server;
	const struct lease *lease;
	uint64_t left_ms;   /* as of now */
	bool without_token; /* the token is in a file, or known */
};

bool print_lease(const struct print_lease *what, bool json) __attribute__((warn_unused_result));
bool print_state(const json_t *state, bool json) __attribute__((warn_unused_result));
bool print_locks(const json_t *locks, bool json) __attribute__((warn_unused_result));
bool print_health(const json_t *health, bool json) __attribute__((warn_unused_result)); /* without --json nothing */
bool print_masters(const json_t *masters, bool json) __attribute__((warn_unused_result));

/* A new key, or only its hash. key and entry (for the keys file) may be NULL. */
bool print_key(const char *key, const char *hash, json_t *entry, bool json) __attribute__((warn_unused_result));

/* A problem as JSON with --json, else nothing. */
bool print_problem(const struct answer *answer, bool json) __attribute__((warn_unused_result));

#endif
