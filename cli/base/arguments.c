/* The command line: the walk over it, and what must go together. The options themselves are in options_table.c. See
 * options.h.
 *
 * Written by hand and not with getopt_long(), because every message must name the argument and none may repeat a token,
 * and because an option that a command does not have must be refused rather than ignored: --ttl with `release` is a
 * mistake. */
#include "arguments.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/path.h"
#include "arguments_table.h"
#include "exit_status.h"

enum {
	DEFAULT_TTL_MS = 30000,
	DEFAULT_WAIT_MS = 300000,
	DEFAULT_TIMEOUT_MS = 5000,
	DEFAULT_HEALTH_TIMEOUT_MS = 2000, /* whoever looks after a container gives such a command few seconds */
	DEFAULT_KILL_AFTER_MS = 5000
};

static const char *const command_names[COMMAND_COUNT] = {
	[COMMAND_ACQUIRE] = "acquire",   [COMMAND_EXTEND] = "extend", [COMMAND_RELEASE] = "release",
	[COMMAND_STATUS] = "status",     [COMMAND_LIST] = "list",     [COMMAND_MASTERS] = "masters",
	[COMMAND_HEALTH] = "health",     [COMMAND_RUN] = "run",       [COMMAND_KEY_NEW] = "key new",
	[COMMAND_KEY_HASH] = "key hash", [COMMAND_HELP] = "help",     [COMMAND_VERSION] = "version",
};

/* ---- messages ---- */

static bool fail(struct options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(struct options *options, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(options->message, sizeof(options->message), format, arguments);
	va_end(arguments);
	return false;
}

/* An address may hold a password by mistake, and a key may stand where its file should: such a value is not repeated
 * either. */
static bool fail_value(struct options *options, const struct option_row *row, const char *value, const char *reason)
{
	if (!row->has_value || row->secret || strchr(value, '@') != NULL || options_is_api_key(value))
		return fail(options, "--%s: %s", row->name, reason);
	return fail(options, "--%s '%.100s': %s", row->name, value, reason);
}

/* ---- the walk over the arguments ---- */

struct walk {
	struct options *options;
	char **at, **command, **behind; /* behind: what follows the command, which may be two words */
};

/* Takes the option at walk->at and its value. What stands behind an unknown option's "=" is not repeated. */
static bool walk_option(struct walk *walk)
{
	struct options *options = walk->options;
	const char *argument = *walk->at, *value;
	const struct option_row *row = options_find_row(argument, &value);

	if (row == NULL)
		return fail(options, "there is no option %.*s",
			    (int)(strcspn(argument, "=") > 100 ? 100 : strcspn(argument, "=")), argument);
	if ((row->commands & 1U << options->command) == 0)
		return fail(options, "%s has no option --%s", command_names[options->command], row->name);
	if (!row->has_value && value != NULL)
		return fail(options, "--%s takes no value", row->name);
	if (row->has_value && value == NULL) {
		if (walk->at[1] == NULL)
			return fail(options, "--%s needs a value", row->name);
		value = *++walk->at;
	}
	walk->at++;
	const char *reason = row->take(options, value == NULL ? "" : value);
	return reason == NULL || fail_value(options, row, value == NULL ? "" : value, reason);
}

static bool walk_name(struct walk *walk)
{
	struct options *options = walk->options;
	const char *name = *walk->at++;

	if ((IN_NAMED & 1U << options->command) == 0)
		return fail(options, "%s takes no NAME: '%.100s'", command_names[options->command], name);
	if (options->name != NULL && options->command == COMMAND_RUN)
		return fail(options, "run needs -- before the command: '%.100s'", name);
	if (options->name != NULL)
		return fail(options, "one NAME only: '%.100s'", name);
	const char *reason = path_check_resource(name, strlen(name));
	if (reason != NULL)
		return fail(options, "NAME: %s", reason);
	options->name = name;
	return true;
}

/* Behind "--" stands the command of run; for the others, a NAME that may begin with a dash. */
static bool walk_rest(struct walk *walk)
{
	walk->at++;
	if (walk->options->command == COMMAND_RUN) {
		walk->options->argv = walk->at;
		return true;
	}
	while (*walk->at != NULL)
		if (!walk_name(walk))
			return false;
	return true;
}

static bool walk_all(struct walk *walk)
{
	while (*walk->at != NULL) {
		if (walk->at == walk->command) {
			walk->at = walk->behind;
			continue;
		}
		if (strcmp(*walk->at, "--") == 0)
			return walk_rest(walk);
		if (strcmp(*walk->at, "--help") == 0 || strcmp(*walk->at, "-h") == 0) {
			walk->options->command = COMMAND_HELP;
			return true;
		}
		if (!((*walk->at)[0] == '-' && (*walk->at)[1] != '\0' ? walk_option(walk) : walk_name(walk)))
			return false;
	}
	return true;
}

/* ---- what must go together ---- */

static bool check_run(struct options *options)
{
	if (options->argv == NULL || options->argv[0] == NULL)
		return fail(options, "run needs a command: redlockctl run NAME -- COMMAND [ARGUMENT...]");
	if (options->argv[0][0] == '\0')
		return fail(options, "the command to run is empty");
	if (options->ttl_ms < OPTIONS_RUN_TTL_MIN_MS)
		return fail(options, "--ttl: at least %dms for run", OPTIONS_RUN_TTL_MIN_MS);
	if (options->kill_after_ms > options->ttl_ms / 2)
		return fail(options, "--kill-after: at most half of --ttl");
	return true;
}

static bool check_token(struct options *options, const char *from_environment)
{
	if (options->force && (options->token != NULL || options->token_file != NULL))
		return fail(options, "--force goes without a token");
	if (options->force)
		return true;
	if (options->token != NULL && options->token_file != NULL)
		return fail(options, "--token and --token-file: one of them only");
	if (options->token != NULL || options->token_file != NULL)
		return true;
	if (from_environment == NULL || *from_environment == '\0')
		return fail(options, "%s needs the token: in REDLOCK_TOKEN or with --token-file FILE",
			    command_names[options->command]);
	if (!options_is_token(from_environment))
		return fail(options, "REDLOCK_TOKEN: not a token: 40 digits, 0 to 9 and a to f");
	options->token = from_environment;
	return true;
}

static bool check_servers(struct options *options, const char *from_environment)
{
	const char *reason;

	if (options->servers.count > 0)
		return true;
	if (from_environment == NULL || *from_environment == '\0')
		reason = server_list_parse(&options->servers, "http://127.0.0.1:8080");
	else
		reason = server_list_parse(&options->servers, from_environment);
	return reason == NULL || fail(options, "REDLOCKCTL_SERVER: an address is not as it should be: %s", reason);
}

static const char *or_null(const char *variable)
{
	return variable == NULL || *variable == '\0' ? NULL : variable;
}

/* A variable that names a file. */
static bool check_file(struct options *options, const char *name, const char *path)
{
	return path == NULL || !options_is_api_key(path) ||
	       fail(options, "%s: a file with the key in it is wanted, not the key", name);
}

/* The environment's private key goes with its certificate, and not with one of the command line. */
static bool check_tls(struct options *options, const struct options_environment *environment)
{
	struct credentials *credentials = &options->credentials;

	if (!check_file(options, "REDLOCKCTL_CACERT", environment->cacert) ||
	    !check_file(options, "REDLOCKCTL_CERT", environment->cert) ||
	    !check_file(options, "REDLOCKCTL_KEY", environment->key))
		return false;
	if (credentials->ca_file == NULL)
		credentials->ca_file = or_null(environment->cacert);
	if (credentials->cert_file == NULL && credentials->cert_key_file == NULL)
		credentials->cert_key_file = or_null(environment->key);
	if (credentials->cert_file == NULL)
		credentials->cert_file = or_null(environment->cert);
	if (credentials->cert_key_file != NULL && credentials->cert_file == NULL)
		return fail(
			options,
			"--key (or REDLOCKCTL_KEY) is the key of a certificate: it needs --cert (or REDLOCKCTL_CERT)");
	return true;
}

static bool check_api_key(struct options *options, const struct options_environment *environment)
{
	struct credentials *credentials = &options->credentials;
	const char *key = or_null(environment->api_key), *file = or_null(environment->key_file);

	if (credentials->api_key_file != NULL)
		return strcmp(credentials->api_key_file, "-") != 0 ||
		       fail(options, "--key-file: - (stdin) is for key hash alone");
	if (key != NULL && file != NULL)
		return fail(options, "REDLOCKCTL_KEY_FILE and REDLOCKCTL_API_KEY: one of them only");
	credentials->api_key_file = file;
	const char *reason = key == NULL ? NULL : api_key_take(key, strlen(key), credentials->api_key);
	if (reason != NULL)
		return fail(options, "REDLOCKCTL_API_KEY: %s", reason);
	return check_file(options, "REDLOCKCTL_KEY_FILE", file);
}

static bool check_all(struct options *options, const struct options_environment *environment)
{
	if ((IN_ALL & 1U << options->command) == 0)
		return true; /* no server is asked */
	if ((IN_NAMED & 1U << options->command) != 0 && options->name == NULL)
		return fail(options, "%s needs a NAME", command_names[options->command]);
	if (!options->wait_given)
		options->wait_ms = options->command == COMMAND_RUN ? DEFAULT_WAIT_MS : 0;
	if (options->command == COMMAND_HEALTH && !options->timeout_given)
		options->timeout_ms = DEFAULT_HEALTH_TIMEOUT_MS;
	if (!options->kill_after_given)
		options->kill_after_ms = options->ttl_ms / 3 < DEFAULT_KILL_AFTER_MS ? options->ttl_ms / 3
										     : DEFAULT_KILL_AFTER_MS;
	if ((options->command == COMMAND_EXTEND || options->command == COMMAND_RELEASE) &&
	    !check_token(options, environment->token))
		return false;
	if (options->command == COMMAND_RUN && !check_run(options))
		return false;
	if (options->command == COMMAND_ACQUIRE && options->token_file != NULL && strcmp(options->token_file, "-") == 0)
		return fail(options, "--token-file: acquire writes to a file, not to -");
	return check_servers(options, environment->server) && check_tls(options, environment) &&
	       check_api_key(options, environment);
}

/* Where the command is: options with their values may stand before it. */
static char **find_command(char **at)
{
	while (*at != NULL && (*at)[0] == '-' && (*at)[1] != '\0') {
		const char *value;
		const struct option_row *row = options_find_row(*at, &value);
		if (row == NULL)
			break;
		at++;
		if (row->has_value && value == NULL && *at != NULL)
			at++;
	}
	return at;
}

static const char *command_alias(const char *name)
{
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		return "help";
	return strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 ? "version" : name;
}

/* The commands of two words; the second one follows the first. */
static bool take_key_command(struct options *options, struct walk *walk)
{
	const char *second = walk->command[1] == NULL ? "" : command_alias(walk->command[1]);

	walk->behind = walk->command + 2;
	if (strcmp(second, "help") == 0)
		options->command = COMMAND_HELP;
	else if (strcmp(second, "new") == 0)
		options->command = COMMAND_KEY_NEW;
	else if (strcmp(second, "hash") == 0)
		options->command = COMMAND_KEY_HASH;
	else
		return fail(options, "key: new or hash must follow it");
	return true;
}

static bool take_command(struct options *options, struct walk *walk)
{
	const char *name = *walk->command;

	if (name == NULL)
		return fail(options, "a command is missing; redlockctl --help lists them");
	walk->behind = walk->command + 1;
	if (strcmp(name, "key") == 0)
		return take_key_command(options, walk);
	name = command_alias(name);
	for (int command = 0; command < COMMAND_COUNT; command++)
		if (strcmp(name, command_names[command]) == 0) {
			options->command = (enum command)command;
			return true;
		}
	if (name[0] == '-')
		return fail(options, "there is no option %.*s",
			    (int)(strcspn(name, "=") > 100 ? 100 : strcspn(name, "=")), name);
	return fail(options, "there is no command '%.100s'; redlockctl --help lists them", name);
}

bool options_parse(struct options *ret_options, char **argv, const struct options_environment *environment)
{
	assert(argv != NULL);
	memset(ret_options, 0, sizeof(*ret_options));
	ret_options->command = COMMAND_HELP;
	ret_options->ttl_ms = DEFAULT_TTL_MS;
	ret_options->timeout_ms = DEFAULT_TIMEOUT_MS;
	ret_options->held_status = STATUS_HELD;
	if (argv[0] == NULL)
		return fail(ret_options, "there is not even a name of the program");
	struct walk walk = {.options = ret_options, .at = argv + 1, .command = find_command(argv + 1)};
	return take_command(ret_options, &walk) && walk_all(&walk) && check_all(ret_options, environment);
}

bool options_is_token(const char *text)
{
	return strlen(text) == OPTIONS_TOKEN_LEN && strspn(text, "0123456789abcdef") == OPTIONS_TOKEN_LEN;
}
