/* The command line of redlockctl and its variables of the environment, as one struct. Parsing reads no file, no
 * environment but PATH and the one that it is given, and prints nothing. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "credentials.h"
#include "server/options/options.h"

/* ---- server.c: addresses of redlockd: http://host:port, host:port, https://host:port or unix:/path ---- */

enum { SERVER_TEXT_MAX = 300, SERVER_PATH_MAX = 107, SERVERS_MAX = 16 };

struct server {
	char text[SERVER_TEXT_MAX + 1];      /* as the user wrote it, for messages */
	char base[SERVER_TEXT_MAX + 1];      /* the URL without the path of the request: http://host:port */
	char unix_path[SERVER_PATH_MAX + 1]; /* empty: TCP */
	bool is_tls;
	/* requests can be read on the way: plain HTTP, most likely to another machine */
	bool is_exposed;
};

struct server_list {
	size_t count; /* first, as server/options wants it */
	struct server items[SERVERS_MAX];
};

/* NULL, or the reason (static, so it never holds a part of the text). */
const char *server_parse(const char *text, struct server *ret_server) __attribute__((warn_unused_result));

/* ---- arguments.c, and command_help.c: the help of one command ---- */

enum command {
	COMMAND_RUN,
	COMMAND_ACQUIRE,
	COMMAND_EXTEND,
	COMMAND_RELEASE,
	COMMAND_STATUS,
	COMMAND_WATCH,
	COMMAND_LIST,
	COMMAND_MASTERS,
	COMMAND_HEALTH,
	COMMAND_KEY_NEW,
	COMMAND_KEY_HASH,
	COMMAND_HELP,
	COMMAND_VERSION,
	COMMAND_COUNT
};

enum {
	ARGUMENTS_MESSAGE_MAX = 512,
	ARGUMENTS_OWNER_MAX = 128,
	ARGUMENTS_METADATA_MAX = 1024, /* bytes of compact JSON */
	ARGUMENTS_TOKEN_LEN = 40,
	ARGUMENTS_RUN_TTL_MIN_MS = 200
};

enum { ARGUMENTS_KEY_NAME_MAX = 64, ARGUMENTS_NAMES_MAX = 16, ARGUMENTS_PREFIXES_MAX = 64, ARGUMENTS_RIGHTS = 4 };

struct arguments {
	enum command command;
	unsigned help_of;                       /* COMMAND_HELP: a bit for each command that is asked for; 0: all */
	const char *name;                       /* for messages: of several all, with commas between them */
	const char *names[ARGUMENTS_NAMES_MAX]; /* sorted; one, or the resources of a set */
	size_t name_count;
	struct server_list servers;
	uint64_t ttl_ms, wait_ms, kill_after_ms, timeout_ms;
	const char *ttl_text; /* as it was typed */
	bool json, verbose, quiet, wait_all, force, ready, no_wait, exit_code;
	struct credentials credentials; /* its files are not read yet: credentials_load() */
	int held_status;
	uint64_t limit;                               /* of list; 0: all */
	uint64_t fence;                               /* of release --force; 0: any */
	const char *owner;                            /* NULL: none given */
	const char *prefix;                           /* NULL: none given */
	json_t *metadata;                             /* NULL: none given */
	const char *token;                            /* from --token or the environment; NULL: none given */
	const char *token_file;                       /* NULL: none given */
	const char *key_name, *out;                   /* of key new; NULL: none given */
	const char *prefixes[ARGUMENTS_PREFIXES_MAX]; /* of key new */
	size_t prefix_count;
	unsigned rights;                     /* of key new: a bit for each of arguments_rights; 0: none given */
	char **argv;                         /* the command of run and watch; NULL-terminated */
	char message[ARGUMENTS_MESSAGE_MAX]; /* the mistake, if parsing failed */
};

extern const char *const arguments_rights[ARGUMENTS_RIGHTS + 1]; /* NULL at the end */

extern const struct options_table arguments_table;

/* Prints the help of the commands in arguments->help_of, or of all. */
void arguments_print_help(const struct arguments *arguments, FILE *to);

/* `environment` holds "NAME=value", NULL at the end. False: ret_arguments->message names the argument and says what is
 * wrong with it. No value is repeated there. */
bool arguments_parse(struct arguments *ret_arguments, char **argv, char *const environment[])
	__attribute__((warn_unused_result));

/* The member of a request for the names: "resource", or "resources" with the array of several. The reference is the
 * caller's. */
const char *arguments_names_member(const struct arguments *arguments);
json_t *arguments_names_json(const struct arguments *arguments);

/* True if the text is a token: 40 digits, 0 to 9 and a to f. */
bool arguments_is_token(const char *text);

#endif
