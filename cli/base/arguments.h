/* SPDX-License-Identifier: MIT */
/* The command line of redlockctl and its variables of the environment, as one struct. Parsing reads no file, and no
 * environment but PATH and `environment`. It prints nothing. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "credentials.h"
#include "names.h"
#include "server.h"
#include "server/options/options.h"

enum command {
	COMMAND_RUN,
	COMMAND_DRILL,
	COMMAND_ACQUIRE,
	COMMAND_EXTEND,
	COMMAND_RELEASE,
	COMMAND_STATUS,
	COMMAND_EXPLAIN,
	COMMAND_WATCH,
	COMMAND_LIST,
	COMMAND_MASTERS,
	COMMAND_HEALTH,
	COMMAND_WHOAMI,
	COMMAND_KEY_NEW,
	COMMAND_KEY_HASH,
	COMMAND_HELP,
	COMMAND_VERSION,
	COMMAND_COUNT
};

enum { ARGUMENTS_OWNER_MAX = 128, ARGUMENTS_METADATA_MAX = 1024 }; /* bytes */
enum { ARGUMENTS_KEY_NAME_MAX = 64, ARGUMENTS_PREFIXES_MAX = 64, ARGUMENTS_RIGHTS = 4, ARGUMENTS_MESSAGE_MAX = 512 };
enum { ARGUMENTS_RUN_TTL_MIN_MS = 200, ARGUMENTS_ROUNDS_MAX = 1000 };
#define ARGUMENTS_KILL_AFTER_STANDARD UINT64_MAX

struct arguments {
	enum command command;
	unsigned help_of; /* COMMAND_HELP: a bit for each command whose help is wanted; 0: all */
	struct names names;
	struct server_list servers;
	uint64_t ttl_ms;        /* 0: the server's default */
	uint64_t kill_after_ms; /* see arguments_kill_after_ms() */
	uint64_t at_least_ms;   /* of run: nobody else gets the lock before; 0: no such time */
	uint64_t keep_ms;       /* of release: how long nobody gets it then; 0: not at all */
	uint64_t wait_ms, timeout_ms;
	const char *ttl_text, *at_least_text; /* as given; the same one if only the latter was */
	bool json, verbose, quiet, wait_all, force, ready, restart_safe, below_full, no_wait, exit_code, shared;
	struct credentials credentials; /* credentials_load() reads its files */
	int held_status;
	int signal_wanted; /* of run: sent to the command when somebody begins to wait; 0: none */
	uint64_t limit;    /* of list; 0: all */
	uint64_t below;    /* of list: locks with fewer votes; 0: all */
	uint64_t fence;    /* of release --force; 0: any */
	uint64_t slots;    /* of acquire and run; 0: the lock has none */
	/* of drill; 0: a random time, a random seed */
	uint64_t rounds, at_ms, seed;
	const char *check, *junit; /* NULL: none given */
	/* NULL: none given; the last two are of key new */
	const char *owner, *prefix, *token, *token_file, *key_name, *out;
	json_t *metadata;                             /* NULL: none given */
	const char *prefixes[ARGUMENTS_PREFIXES_MAX]; /* of key new */
	size_t prefix_count;
	unsigned rights;                     /* of key new: a bit for each of arguments_rights; 0: none given */
	char **argv;                         /* the command of run, drill and watch; NULL-terminated */
	char message[ARGUMENTS_MESSAGE_MAX]; /* the mistake, if parsing failed */
};

extern const char *const arguments_rights[ARGUMENTS_RIGHTS + 1]; /* NULL at the end */

extern const struct options_table arguments_table;

/* Prints the help of the commands in arguments->help_of, or of all. */
void arguments_print_help(const struct arguments *arguments, FILE *to);

/* run: the time from SIGTERM to SIGKILL, for a lease of that ttl. */
uint64_t arguments_kill_after_ms(const struct arguments *arguments, uint64_t ttl_ms);

/* `environment` holds "NAME=value", NULL at the end. False: ret_arguments->message names the argument and its fault,
 * and repeats no value. */
bool arguments_parse(struct arguments *ret_arguments, char **argv, char *const environment[])
	__attribute__((warn_unused_result));

#endif
