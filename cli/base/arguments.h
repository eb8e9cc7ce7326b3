/* The command line of redlockctl and its variables of the environment, as one struct. Parsing is pure: it reads no
 * file, no clock and no environment of its own, and prints nothing. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "credentials.h"
#include "server.h"

enum command {
	COMMAND_ACQUIRE,
	COMMAND_EXTEND,
	COMMAND_RELEASE,
	COMMAND_STATUS,
	COMMAND_LIST,
	COMMAND_MASTERS,
	COMMAND_HEALTH,
	COMMAND_RUN,
	COMMAND_KEY_NEW,
	COMMAND_KEY_HASH,
	COMMAND_HELP,
	COMMAND_VERSION,
	COMMAND_COUNT
};

enum {
	ARGUMENTS_MESSAGE_MAX = 512,
	ARGUMENTS_OWNER_MAX = 128,
	ARGUMENTS_TOKEN_LEN = 40,
	ARGUMENTS_RUN_TTL_MIN_MS = 200
};

enum { ARGUMENTS_KEY_NAME_MAX = 64, ARGUMENTS_PREFIXES_MAX = 64, ARGUMENTS_RIGHTS = 4 };

struct arguments {
	enum command command;
	const char *name;
	struct server_list servers;
	uint64_t ttl_ms, wait_ms, kill_after_ms, timeout_ms;
	bool wait_given, kill_after_given, timeout_given, json, verbose, wait_all, force, ready;
	struct credentials credentials; /* its files are not read yet: credentials_load() */
	int held_status;
	uint64_t limit;                               /* of list; 0: all */
	const char *owner;                            /* NULL: none given */
	const char *prefix;                           /* NULL: none given */
	const char *token;                            /* from --token or the environment; NULL: none given */
	const char *token_file;                       /* NULL: none given */
	const char *key_name, *out;                   /* of key new; NULL: none given */
	const char *prefixes[ARGUMENTS_PREFIXES_MAX]; /* of key new */
	size_t prefix_count;
	unsigned rights;                     /* of key new: a bit for each of arguments_rights; 0: none given */
	char **argv;                         /* the command of run; NULL-terminated */
	char message[ARGUMENTS_MESSAGE_MAX]; /* the mistake, if parsing failed */
};

/* The variables; NULL where one is not set. An empty one counts as not set. */
struct arguments_environment {
	const char *server;                                   /* REDLOCKCTL_SERVER */
	const char *token;                                    /* REDLOCK_TOKEN */
	const char *cacert, *cert, *key, *key_file, *api_key; /* REDLOCKCTL_... */
};

extern const char *const arguments_rights[ARGUMENTS_RIGHTS];

/* False: ret_options->message names the argument and says what is wrong with it. A token or a key is never repeated
 * there. */
bool arguments_parse(struct arguments *ret_options, char **argv, const struct arguments_environment *environment)
	__attribute__((warn_unused_result));

/* True if the text is a token: 40 digits, 0 to 9 and a to f. */
bool arguments_is_token(const char *text);

const char *arguments_help(void);

#endif
