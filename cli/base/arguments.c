/* SPDX-License-Identifier: MIT */
/* The command line of redlockctl: its table of options, its commands and NAMEs, and checks of their combinations. See
 * arguments.h; the parser is server/options. */
#include "arguments.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/calls/calls.h"
#include "made/arguments_help.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DAY_MS 86400000
#define YEAR_MS (UINT64_C(366) * DAY_MS) /* a sum of a few of them, in microseconds, fits into 64 bits */

/* health checks of containers end after a few seconds */
enum { RUN_WAIT_MS = 300000, HEALTH_TIMEOUT_MS = 2000, KILL_AFTER_MS = 5000, AT_LEAST_OF_LEASE_MS = 10000 };

/* The sets of commands that have an option. */
#define IN(command) (1U << COMMAND_##command)
#define IN_SETS (IN(ACQUIRE) | IN(EXTEND) | IN(RELEASE) | IN(RUN)) /* several NAMEs are one lease */
#define IN_NAMED (IN_SETS | IN(STATUS) | IN(EXPLAIN) | IN(WATCH) | IN(DRILL))
#define IN_ALL (IN_NAMED | IN(LIST) | IN(MASTERS) | IN(HEALTH) | IN(WHOAMI)) /* they send requests */

/* ---- options ---- */

const char *const arguments_rights[ARGUMENTS_RIGHTS + 1] = {"acquire", "inspect", "list", "admin", NULL};

static const char *arguments_add_server(const struct options_entry *entry, const char *text, void *values)
{
	struct server_list *list = &((struct arguments *)values)->servers;
	const char *reason = server_parse(text, &list->items[list->count]);
	assert(list->count < entry->max);
	list->count += !reason;
	return reason;
}

/* key new takes several. */
static const char *arguments_add_prefix(const struct options_entry *entry, const char *text, void *values)
{
	struct arguments *arguments = values;
	const char *reason = options_parse_text(entry, text, values);
	if (!reason && arguments->prefix_count == ARGUMENTS_PREFIXES_MAX)
		return "too many";
	if (!reason)
		arguments->prefixes[arguments->prefix_count++] = text;
	return reason;
}

static const char *arguments_parse_key_name(const struct options_entry *entry, const char *text, void *values)
{
	return strspn(text, LETTERS "0123456789._-") != strlen(text) ? "not a name"
								     : options_parse_text(entry, text, values);
}

static const char *arguments_add_right(const struct options_entry *entry, const char *text, void *values)
{
	struct arguments *arguments = values;
	unsigned rights = arguments->rights;
	const char *reason = options_parse_choice(entry, text, values);
	arguments->rights = reason ? rights : rights | 1U << arguments->rights;
	return reason;
}

static const char *arguments_parse_metadata(const struct options_entry *entry, const char *text, void *values)
{
	struct arguments *arguments = values;
	(void)entry;
	json_decref(arguments->metadata);
	arguments->metadata = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(arguments->metadata))
		return "not a JSON object";
	return json_dumpb(arguments->metadata, NULL, 0, JSON_COMPACT) > ARGUMENTS_METADATA_MAX ? "too long" : NULL;
}

/* A key may be given in place of its file. */
static const char *arguments_parse_file(const struct options_entry *entry, const char *text, void *values)
{
	return strncmp(text, API_KEY_START, strlen(API_KEY_START)) == 0
		       ? "give a file that holds the key, not the key: others can see it in the list of processes"
		       : options_parse_text(entry, text, values);
}

static const char *arguments_parse_api_key(const struct options_entry *entry, const char *text, void *values)
{
	(void)entry;
	return api_key_parse(text, strlen(text), ((struct arguments *)values)->credentials.api_key);
}

/* A number alone is milliseconds, for scripts. A person who types 30 means seconds, and gets a hint. */
static const char *arguments_parse_time(const struct options_entry *entry, const char *text, void *values)
{
	static char hint[64];
	size_t len = strlen(text);
	if (entry->offset == offsetof(struct arguments, ttl_ms))
		((struct arguments *)values)->ttl_text = text;
	if (entry->offset == offsetof(struct arguments, at_least_ms))
		((struct arguments *)values)->at_least_text = text;
	if (len == 0 || len > 2 || strspn(text, "0123456789") != len || text[0] == '0')
		return options_parse_number(entry, text, values);
	snprintf(hint, sizeof hint, "a number alone is milliseconds: write %ss, or %sms", text, text);
	return hint;
}

/* A name with or without SIG, in any case of letters, or a number. */
static const char *arguments_parse_signal(const struct options_entry *entry, const char *text, void *values)
{
	const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
	char *end;
	long number = strtol(text, &end, 10);
	(void)entry;
	if (text[0] < '0' || text[0] > '9' || *end != '\0')
		for (number = NSIG - 1; number > 0; number--)
			if (sigabbrev_np((int)number) && strcasecmp(name, sigabbrev_np((int)number)) == 0)
				break;
	if (number < 1 || number >= NSIG || number == SIGKILL || number == SIGSTOP)
		return "not a signal for a command";
	((struct arguments *)values)->signal_wanted = (int)number;
	return NULL;
}

#define HELP_api_key "The API key itself." /* no option */
#define OPTION(flag, letter_, key, member, commands) \
	.name = flag, .letter = letter_, OPTIONS_AT(struct arguments, member), .scope = commands, .help = HELP_##key
#define SWITCH(flag, letter_, member, commands) \
	OPTION(flag, letter_, member, member, commands), OPTIONS_CHOICE(NULL, 0, options_truths)
#define TIME(flag, letter_, key, commands, least, most) \
	OPTION(flag, letter_, key, key##_ms, commands), OPTIONS_TIME(least, most, arguments_parse_time)
#define TEXT(flag, what, function, key, member, commands, least, most, values)                                  \
	OPTION(flag, 0, key, member, commands), .argument = what, .parse = function, .min = least, .max = most, \
						.allowed = values
#define PATH(flag, key, member, commands) \
	TEXT(flag, "FILE", arguments_parse_file, key, member, commands, 1, 4096, "paths of files")

static const struct options_entry arguments_entries[] = {
	{OPTION("server", 's', server, servers, IN_ALL), .argument = "ADDRESS",
	 .traits = OPTIONS_LIST | OPTIONS_REPEATED, .parse = arguments_add_server, .min = 1, .max = SERVERS_MAX,
	 .standard = "http://127.0.0.1:8080", .variable = "REDLOCKCTL_SERVER",
	 .allowed = OPTIONS_RANGE " of host:port, http://host:port, https://host:port or unix:/path"},
	{PATH("cacert", cacert, credentials.ca_file, IN_ALL), .variable = "REDLOCKCTL_CACERT"},
	{PATH("cert", cert, credentials.cert_file, IN_ALL), .variable = "REDLOCKCTL_CERT"},
	{PATH("key", key, credentials.cert_key_file, IN_ALL), .variable = "REDLOCKCTL_KEY"},
	{PATH("key-file", key_file, credentials.api_key_file, IN_ALL | IN(KEY_HASH)),
	 .variable = "REDLOCKCTL_KEY_FILE"},
	{TEXT("api-key", "KEY", arguments_parse_api_key, api_key, credentials.api_key, IN_ALL, API_KEY_MIN, API_KEY_MAX,
	      OPTIONS_RANGE " visible ASCII characters"),
	 .traits = OPTIONS_NO_FLAG, .variable = "REDLOCKCTL_API_KEY"},
	{TIME("timeout", 0, timeout, IN_ALL, 10, 3600000), .standard = "5s"},
	{SWITCH("json", 0, json, IN_ALL | IN(KEY_NEW) | IN(KEY_HASH))},
	{TIME("ttl", 't', ttl, IN(ACQUIRE) | IN(EXTEND) | IN(RUN) | IN(DRILL), 1, DAY_MS)},
	{TIME("wait", 'w', wait, IN(ACQUIRE) | IN(RUN), 0, YEAR_MS)},
	{SWITCH("no-wait", 'n', no_wait, IN(ACQUIRE) | IN(RUN))},
	{SWITCH("shared", 0, shared, IN(ACQUIRE) | IN(RUN))},
	{OPTION("slots", 0, slots, slots, IN(ACQUIRE) | IN(RUN)), OPTIONS_NUMBER(1, LEASE_SLOTS_MAX)},
	{TEXT("owner", "TEXT", options_parse_text, owner, owner, IN(ACQUIRE) | IN(RUN) | IN(LIST), 0,
	      ARGUMENTS_OWNER_MAX, OPTIONS_RANGE " bytes of UTF-8 without control characters")},
	{TEXT("metadata", "JSON", arguments_parse_metadata, metadata, metadata, IN(ACQUIRE) | IN(RUN), 2,
	      ARGUMENTS_METADATA_MAX, "an object of " OPTIONS_RANGE " bytes")},
	{OPTION("conflict-exit-code", 'E', conflict_exit_code, held_status, IN(ACQUIRE) | IN(RUN)),
	 OPTIONS_NUMBER(0, 255), .standard = "75"},
	{TIME("kill-after", 'k', kill_after, IN(RUN), 0, DAY_MS)},
	{TIME("at-least", 0, at_least, IN(RUN), 1, DAY_MS)},
	{SWITCH("wait-all", 0, wait_all, IN(RUN))},
	{TEXT("signal-wanted", "SIGNAL", arguments_parse_signal, signal_wanted, signal_wanted, IN(RUN), 1, 64,
	      "USR1, SIGUSR1 or a number, but not KILL or STOP")},
	{SWITCH("verbose", 'v', verbose, IN(RUN))},
	{SWITCH("quiet", 'q', quiet, IN(ACQUIRE) | IN(RUN))},
	{PATH("token-file", token_file, token_file, IN(ACQUIRE) | IN(EXTEND) | IN(RELEASE))},
	{TEXT("token", "TOKEN", options_parse_text, token, token, IN(EXTEND) | IN(RELEASE), 0, 4096,
	      "40 digits, 0 to 9 and a to f"),
	 .variable = "REDLOCK_TOKEN"},
	{TIME("keep", 0, keep, IN(RELEASE), 0, DAY_MS)},
	{SWITCH("force", 0, force, IN(RELEASE))},
	{OPTION("fence", 0, fence, fence, IN(RELEASE)), OPTIONS_NUMBER(1, REDLOCK_FENCE_LIMIT - 1)},
	{OPTION("rounds", 0, rounds, rounds, IN(DRILL)), OPTIONS_NUMBER(1, ARGUMENTS_ROUNDS_MAX), .standard = "5"},
	{TIME("at", 0, at, IN(DRILL), 1, DAY_MS)},
	{OPTION("seed", 0, seed, seed, IN(DRILL)), OPTIONS_NUMBER(1, UINT32_MAX)},
	{TEXT("check", "COMMAND", options_parse_text, check, check, IN(DRILL), 1, 4096,
	      OPTIONS_RANGE " bytes of UTF-8 without control characters")},
	{PATH("junit", junit, junit, IN(DRILL))},
	{SWITCH("exit-code", 0, exit_code, IN(STATUS))},
	{SWITCH("ready", 0, ready, IN(HEALTH))},
	{SWITCH("restart-safe", 0, restart_safe, IN(HEALTH))},
	{TEXT("prefix", "TEXT", arguments_add_prefix, prefix, prefix, IN(LIST) | IN(KEY_NEW), 0, PATH_VALUE_MAX,
	      OPTIONS_RANGE " bytes of UTF-8 without control characters"),
	 .traits = OPTIONS_REPEATED},
	{OPTION("limit", 0, limit, limit, IN(LIST)), OPTIONS_NUMBER(1, 1000000)},
	{OPTION("below", 0, below, below, IN(LIST)), OPTIONS_NUMBER(2, REDLOCK_MASTERS_MAX)},
	{SWITCH("below-full", 0, below_full, IN(LIST))},
	{TEXT("name", "TEXT", arguments_parse_key_name, name, key_name, IN(KEY_NEW), 1, ARGUMENTS_KEY_NAME_MAX,
	      OPTIONS_RANGE " letters, digits, dots, dashes and underscores")},
	{OPTION("right", 0, right, rights, IN(KEY_NEW)), .argument = "RIGHT",
	 .traits = OPTIONS_SHOWN | OPTIONS_REPEATED, .parse = arguments_add_right, .choices = arguments_rights},
	{PATH("out", out, out, IN(KEY_NEW))},
	{OPTIONS_END("help", 'h', HELP_help)},
	{OPTIONS_END("version", 'V', HELP_version)},
};

/* ---- words that are no options ---- */

static const char *const command_names[COMMAND_COUNT] = {
	[COMMAND_ACQUIRE] = "acquire", [COMMAND_EXTEND] = "extend",     [COMMAND_RELEASE] = "release",
	[COMMAND_STATUS] = "status",   [COMMAND_LIST] = "list",         [COMMAND_MASTERS] = "masters",
	[COMMAND_HEALTH] = "health",   [COMMAND_RUN] = "run",           [COMMAND_KEY_NEW] = "key new",
	[COMMAND_WATCH] = "watch",     [COMMAND_KEY_HASH] = "key hash", [COMMAND_HELP] = "help",
	[COMMAND_VERSION] = "version", [COMMAND_EXPLAIN] = "explain",   [COMMAND_DRILL] = "drill",
	[COMMAND_WHOAMI] = "whoami",
};

static bool arguments_read_name(struct options_reader *reader, const char *name)
{
	struct arguments *arguments = reader->values;
	const char *reason = path_check_resource(name, strlen(name));
	if (IN(LIST) & reader->scope)
		return options_reject(reader, "list takes no NAME; use --prefix PREFIX");
	if ((IN_NAMED & reader->scope) == 0)
		return options_reject(reader, "%s takes no NAME", reader->command);
	bool has_command = arguments->command == COMMAND_WATCH || arguments->command == COMMAND_DRILL ||
			   (arguments->command == COMMAND_RUN && !names_go_on(reader, name));
	if (arguments->names.count > 0 && has_command) {
		reader->is_rest = true; /* its options belong to it */
		return true;
	}
	if (reason)
		return options_reject(reader, "NAME: %s", reason);
	return names_add(reader, &arguments->names, name, (IN_SETS & reader->scope) != 0,
			 arguments->command == COMMAND_RUN);
}

/* Reads the command; `key` has a second word. */
static bool arguments_read_command(struct options_reader *reader, const char *word)
{
	struct arguments *arguments = reader->values;
	bool plain = options_is_harmless(word);
	char name[32];
	const char *like = NULL;
	snprintf(name, sizeof name, "%s%s%s", reader->command ? reader->command : "", reader->command ? " " : "", word);
	for (int command = 0; command < COMMAND_COUNT; command++) {
		if (strcmp(name, command_names[command]) == 0) {
			arguments->command = (enum command)command;
			reader->scope = 1U << command;
			reader->command = command_names[command];
			return true;
		}
		if (plain && options_distance(word, command_names[command]) <= 2)
			like = command_names[command];
	}
	if (reader->command)
		return options_reject(reader, "key: new or hash must follow it");
	if (strcmp(word, "key") == 0) {
		reader->command = "key";
		return true;
	}
	return options_reject(reader, "there is no command %s%s%s%s%s%s; redlockctl --help lists them",
			      plain ? "'" : "of that name", plain ? word : "", plain ? "'" : "",
			      like ? "; did you mean " : "", like ? like : "", like ? "?" : "");
}

/* Reads the command, then NAMEs; after `help` another command. */
static bool arguments_read_operand(struct options_reader *reader, const char *word)
{
	if (reader->scope == IN(HELP)) {
		((struct arguments *)reader->values)->help_of = IN(HELP);
		reader->scope = 0;
		reader->command = NULL;
	}
	return reader->scope != 0 ? arguments_read_name(reader, word) : arguments_read_command(reader, word);
}

/* ---- arguments that depend on each other ---- */

uint64_t arguments_kill_after_ms(const struct arguments *arguments, uint64_t ttl_ms)
{
	bool is_standard = arguments->kill_after_ms == ARGUMENTS_KILL_AFTER_STANDARD;
	uint64_t wanted_ms = is_standard ? KILL_AFTER_MS : arguments->kill_after_ms;
	uint64_t most_ms = is_standard ? ttl_ms / 3 : ttl_ms / 2;
	assert(arguments->command == COMMAND_RUN);
	return wanted_ms < most_ms ? wanted_ms : most_ms;
}

static void arguments_complete(struct options_reader *reader, struct arguments *arguments)
{
	struct credentials *credentials = &arguments->credentials;
	if (options_origin(reader, "wait") == OPTIONS_FROM_DEFAULT)
		arguments->wait_ms = arguments->command == COMMAND_RUN && !arguments->no_wait ? RUN_WAIT_MS : 0;
	if (arguments->command == COMMAND_HEALTH && options_origin(reader, "timeout") == OPTIONS_FROM_DEFAULT)
		arguments->timeout_ms = HEALTH_TIMEOUT_MS;
	/* a server that grants such a lease also keeps a lock for so long; a short one is not worth its renewals */
	if (arguments->at_least_ms >= AT_LEAST_OF_LEASE_MS && options_origin(reader, "ttl") == OPTIONS_FROM_DEFAULT) {
		arguments->ttl_ms = arguments->at_least_ms;
		arguments->ttl_text = arguments->at_least_text;
	}
	if (options_origin(reader, "kill-after") == OPTIONS_FROM_DEFAULT)
		arguments->kill_after_ms = ARGUMENTS_KILL_AFTER_STANDARD;
	/* the token of the environment counts only if no other is given */
	if (options_origin(reader, "token") != OPTIONS_FROM_FLAG && (arguments->force || arguments->token_file))
		arguments->token = NULL;
	/* the private key of the environment belongs to its certificate, not to one of the command line */
	if (options_origin(reader, "cert") > options_origin(reader, "key"))
		credentials->cert_key_file = NULL;
	if (options_origin(reader, "key-file") == OPTIONS_FROM_FLAG)
		explicit_bzero(credentials->api_key, sizeof credentials->api_key);
}

static bool arguments_check(struct options_reader *reader, const struct arguments *arguments)
{
	const struct credentials *credentials = &arguments->credentials;
	const char *token = arguments->token, *file = arguments->token_file, *program = arguments->argv[0];
	bool run = arguments->command == COMMAND_RUN, drill = arguments->command == COMMAND_DRILL;
	bool holds = arguments->command == COMMAND_EXTEND || arguments->command == COMMAND_RELEASE;
	const struct {
		bool is_wrong;
		const char *message;
	} rules[] = {
		{arguments->command == COMMAND_LIST && arguments->prefix_count > 1, "--prefix: given twice"},
		{arguments->no_wait && options_origin(reader, "wait") == OPTIONS_FROM_FLAG,
		 "--wait and --no-wait: one of them only"},
		{arguments->below > 0 && arguments->below_full, "--below and --below-full: one of them only"},
		{arguments->ready && arguments->restart_safe, "--ready and --restart-safe: one of them only"},
		{arguments->shared && arguments->slots > 0, "--shared and --slots: one of them only"},
		{arguments->slots > 0 && arguments->names.count > 1, "--slots goes with one NAME"},
		{holds && arguments->force && (token || file), "--force goes without a token"},
		{arguments->fence > 0 && !arguments->force, "--fence goes with --force"},
		{arguments->keep_ms > 0 && arguments->force, "--keep goes without --force"},
		{run && arguments->ttl_ms > 0 && arguments->at_least_ms > arguments->ttl_ms,
		 "--at-least: at most --ttl"},
		{arguments->force && arguments->names.count > 1, "--force goes with one NAME"},
		{holds && token && file, "--token and --token-file: one of them only"},
		{holds && !token && !file && !arguments->force,
		 "the token is missing: in REDLOCK_TOKEN or with --token-file FILE"},
		{arguments->command == COMMAND_ACQUIRE && file && strcmp(file, "-") == 0,
		 "--token-file: acquire writes to a file, not to -"},
		{run && !program, "run needs a command: redlockctl run NAME COMMAND [ARGUMENT...]"},
		{run && arguments->quiet && (arguments->verbose || arguments->json),
		 "--quiet goes without --verbose and --json"},
		{drill && !program, "drill needs a job: redlockctl drill NAME --check COMMAND -- JOB [ARGUMENT...]"},
		{drill && !arguments->check, "--check: missing: a command that ends with 0 if the data are right"},
		{(run || drill) && program && program[0] == '\0', "the command to run is empty"},
		{run && arguments->ttl_ms > 0 && arguments->kill_after_ms != ARGUMENTS_KILL_AFTER_STANDARD &&
			 arguments->kill_after_ms > arguments->ttl_ms / 2,
		 "--kill-after: at most half of --ttl"},
		{credentials->cert_key_file && !credentials->cert_file,
		 "--key (or REDLOCKCTL_KEY) is the key of a certificate: it needs --cert (or REDLOCKCTL_CERT)"},
		{credentials->api_key_file && strcmp(credentials->api_key_file, "-") == 0,
		 "--key-file: - (stdin) is for key hash alone"},
		{credentials->api_key_file && credentials->api_key[0] != '\0',
		 "REDLOCKCTL_KEY_FILE and REDLOCKCTL_API_KEY: one of them only"},
	};
	assert(IN_ALL & reader->scope);
	if (IN_NAMED & reader->scope && !arguments->names.joined)
		return options_reject(reader, "NAME: missing: redlockctl %s NAME%s", reader->command,
				      run     ? " COMMAND [ARGUMENT...]"
				      : drill ? " --check COMMAND -- JOB [ARGUMENT...]"
					      : "");
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (rules[i].is_wrong)
			return options_reject(reader, "%s", rules[i].message);
	if ((run || drill) && arguments->ttl_ms > 0 && arguments->ttl_ms < ARGUMENTS_RUN_TTL_MIN_MS)
		return options_reject(reader, "--ttl: at least %dms for %s", ARGUMENTS_RUN_TTL_MIN_MS, reader->command);
	return !holds || !token || token_is_valid(token) ||
	       options_reject_option(reader, "token", "not a token; allowed are 40 digits, 0 to 9 and a to f");
}

/* ---- all of it ---- */

const struct options_table arguments_table = {
	.program = "redlockctl",
	.variables = "REDLOCKCTL_",
	.names_variables = true,
	.entries = arguments_entries,
	.count = sizeof arguments_entries / sizeof *arguments_entries,
	.operand = arguments_read_operand,
	.usage = "\n\nA TIME is 500ms, 60s, 5m, 1h or a whole number of milliseconds. Exit statuses:\n"
		 "0; 64 usage; 69 no server answers; 71 system error; 75 somebody else holds the\n"
		 "lock; 76 not redlockd's answer, or a certificate that is not trusted; 77 not\n"
		 "allowed; 79 the lock is lost; run: otherwise the command's own, 128+N where\n"
		 "signal N ended it, 126 and 127 where it cannot be run.\n",
};

bool arguments_parse(struct arguments *ret_arguments, char **argv, char *const environment[])
{
	struct options_reader reader = {.table = &arguments_table,
					.values = ret_arguments,
					.message = ret_arguments->message,
					.message_size = sizeof ret_arguments->message};
	int argc = 0;
	assert(argv && environment);
	*ret_arguments = (struct arguments){.command = COMMAND_HELP};
	while (argv[argc])
		argc++;
	if (argc == 0)
		return options_reject(&reader, "the name of the program is missing");
	if (!options_read(&reader, argc, argv, environment))
		return false;
	ret_arguments->argv = reader.rest;
	if (reader.end || ret_arguments->help_of) {
		bool is_key = reader.command && reader.scope == 0;
		ret_arguments->command = reader.end && reader.end->letter == 'V' ? COMMAND_VERSION : COMMAND_HELP;
		ret_arguments->help_of = is_key ? IN(KEY_NEW) | IN(KEY_HASH) : reader.scope & ~(IN(HELP) | IN(VERSION));
		return true;
	}
	if (reader.scope == 0)
		return options_reject(&reader, reader.command ? "key: new or hash must follow it"
							      : "a command is missing; redlockctl --help "
								"lists them");
	if ((IN_ALL & reader.scope) == 0)
		return true; /* no server is asked */
	if (!names_join(&reader, &ret_arguments->names))
		return false;
	arguments_complete(&reader, ret_arguments);
	return arguments_check(&reader, ret_arguments);
}
