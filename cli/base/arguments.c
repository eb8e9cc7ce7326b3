/* Parses the command line and checks that the arguments fit together. The options are in arguments_table.c. See
 * arguments.h.
 *
 * Not getopt_long(): every message must name the argument, none may repeat a token, and an option that a command does
 * not have must be rejected and not ignored: --ttl with `release` is a mistake. */
#include "arguments.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls.h"
#include "arguments_table.h"
#include "exit_status.h"

enum {
	DEFAULT_TTL_MS = 30000,
	DEFAULT_WAIT_MS = 300000,
	DEFAULT_TIMEOUT_MS = 5000,
	DEFAULT_HEALTH_TIMEOUT_MS = 2000, /* health checks of containers have few seconds */
	DEFAULT_KILL_AFTER_MS = 5000
};

static const char *const command_names[COMMAND_COUNT] = {
	[COMMAND_ACQUIRE] = "acquire",   [COMMAND_EXTEND] = "extend", [COMMAND_RELEASE] = "release",
	[COMMAND_STATUS] = "status",     [COMMAND_LIST] = "list",     [COMMAND_MASTERS] = "masters",
	[COMMAND_HEALTH] = "health",     [COMMAND_RUN] = "run",       [COMMAND_KEY_NEW] = "key new",
	[COMMAND_KEY_HASH] = "key hash", [COMMAND_HELP] = "help",     [COMMAND_VERSION] = "version",
};

/* ---- messages ---- */

static bool arguments_fail(struct arguments *arguments, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool arguments_fail(struct arguments *arguments, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vsnprintf(arguments->message, sizeof arguments->message, format, values);
	va_end(values);
	return false;
}

/* Does not repeat a value that may be a secret: an address may hold a password by mistake, and a key may be given in
 * place of its file. */
static bool arguments_fail_value(struct arguments *arguments, const struct arguments_row *row, const char *value,
				 const char *reason)
{
	assert(value && reason);
	if (!row->has_value || row->secret || strchr(value, '@') || arguments_is_api_key(value))
		return arguments_fail(arguments, "--%s: %s", row->name, reason);
	return arguments_fail(arguments, "--%s '%.100s': %s", row->name, value, reason);
}

/* ---- one argument after the other ---- */

struct walk {
	struct arguments *arguments;
	char **at, **command, **behind; /* behind: after the command, which may be two words */
};

/* Parses the option at walk->at and its value. The value of an unknown option is not repeated. */
static bool arguments_walk_option(struct walk *walk)
{
	struct arguments *arguments = walk->arguments;
	const char *argument = *walk->at, *value;
	const struct arguments_row *row = arguments_table_find(argument, &value);

	assert((*walk->at)[0] == '-');
	if (!row)
		return arguments_fail(arguments, "there is no option %.*s",
				      (int)(strcspn(argument, "=") > 100 ? 100 : strcspn(argument, "=")), argument);
	if ((row->commands & 1U << arguments->command) == 0)
		return arguments_fail(arguments, "%s has no option --%s", command_names[arguments->command], row->name);
	if (!row->has_value && value)
		return arguments_fail(arguments, "--%s takes no value", row->name);
	if (row->has_value && !value) {
		if (!walk->at[1])
			return arguments_fail(arguments, "--%s needs a value", row->name);
		value = *++walk->at;
	}
	walk->at++;
	const char *reason = row->parse(arguments, value ? value : "");
	return !reason || arguments_fail_value(arguments, row, value ? value : "", reason);
}

static bool arguments_walk_name(struct walk *walk)
{
	struct arguments *arguments = walk->arguments;
	const char *name = *walk->at++;

	assert(name);
	if ((IN_NAMED & 1U << arguments->command) == 0)
		return arguments_fail(arguments, "%s takes no NAME: '%.100s'", command_names[arguments->command], name);
	if (arguments->name && arguments->command == COMMAND_RUN)
		return arguments_fail(arguments, "run needs -- before the command: '%.100s'", name);
	if (arguments->name)
		return arguments_fail(arguments, "one NAME only: '%.100s'", name);
	const char *reason = path_check_resource(name, strlen(name));
	if (reason)
		return arguments_fail(arguments, "NAME: %s", reason);
	arguments->name = name;
	return true;
}

/* "--" is followed by the command of run; for other commands by a NAME that may begin with a dash. */
static bool arguments_walk_rest(struct walk *walk)
{
	assert(strcmp(*walk->at, "--") == 0);
	walk->at++;
	if (walk->arguments->command == COMMAND_RUN) {
		walk->arguments->argv = walk->at;
		return true;
	}
	while (*walk->at)
		if (!arguments_walk_name(walk))
			return false;
	return true;
}

static bool arguments_walk_all(struct walk *walk)
{
	while (*walk->at) {
		if (walk->at == walk->command) {
			walk->at = walk->behind;
			continue;
		}
		if (strcmp(*walk->at, "--") == 0)
			return arguments_walk_rest(walk);
		if (strcmp(*walk->at, "--help") == 0 || strcmp(*walk->at, "-h") == 0) {
			walk->arguments->command = COMMAND_HELP;
			return true;
		}
		if (!((*walk->at)[0] == '-' && (*walk->at)[1] != '\0' ? arguments_walk_option(walk)
								      : arguments_walk_name(walk)))
			return false;
	}
	return true;
}

/* ---- arguments that depend on each other ---- */

static bool arguments_check_run(struct arguments *arguments)
{
	assert(arguments->command == COMMAND_RUN);
	if (!arguments->argv || !arguments->argv[0])
		return arguments_fail(arguments, "run needs a command: redlockctl run NAME -- COMMAND [ARGUMENT...]");
	if (arguments->argv[0][0] == '\0')
		return arguments_fail(arguments, "the command to run is empty");
	if (arguments->ttl_ms < ARGUMENTS_RUN_TTL_MIN_MS)
		return arguments_fail(arguments, "--ttl: at least %dms for run", ARGUMENTS_RUN_TTL_MIN_MS);
	if (arguments->kill_after_ms > arguments->ttl_ms / 2)
		return arguments_fail(arguments, "--kill-after: at most half of --ttl");
	return true;
}

static bool arguments_check_token(struct arguments *arguments, const char *from_environment)
{
	assert(arguments->command == COMMAND_EXTEND || arguments->command == COMMAND_RELEASE);
	if (arguments->force && (arguments->token || arguments->token_file))
		return arguments_fail(arguments, "--force goes without a token");
	if (arguments->force)
		return true;
	if (arguments->token && arguments->token_file)
		return arguments_fail(arguments, "--token and --token-file: one of them only");
	if (arguments->token || arguments->token_file)
		return true;
	if (!from_environment || *from_environment == '\0')
		return arguments_fail(arguments, "%s needs the token: in REDLOCK_TOKEN or with --token-file FILE",
				      command_names[arguments->command]);
	if (!arguments_is_token(from_environment))
		return arguments_fail(arguments, "REDLOCK_TOKEN: not a token: 40 digits, 0 to 9 and a to f");
	arguments->token = from_environment;
	return true;
}

static bool arguments_check_servers(struct arguments *arguments, const char *from_environment)
{
	const char *reason;

	if (arguments->servers.count > 0)
		return true;
	if (!from_environment || *from_environment == '\0')
		reason = server_list_parse(&arguments->servers, "http://127.0.0.1:8080");
	else
		reason = server_list_parse(&arguments->servers, from_environment);
	return !reason || arguments_fail(arguments, "REDLOCKCTL_SERVER: bad address: %s", reason);
}

static const char *arguments_or_null(const char *variable)
{
	return !variable || *variable == '\0' ? NULL : variable;
}

/* A variable that names a file. */
static bool arguments_check_file(struct arguments *arguments, const char *name, const char *path)
{
	return !path || !arguments_is_api_key(path) ||
	       arguments_fail(arguments, "%s: give a file that holds the key, not the key", name);
}

/* The private key of the environment belongs to the certificate of the environment, not to one of the command line. */
static bool arguments_check_tls(struct arguments *arguments, const struct arguments_environment *environment)
{
	struct credentials *credentials = &arguments->credentials;

	if (!arguments_check_file(arguments, "REDLOCKCTL_CACERT", environment->cacert) ||
	    !arguments_check_file(arguments, "REDLOCKCTL_CERT", environment->cert) ||
	    !arguments_check_file(arguments, "REDLOCKCTL_KEY", environment->key))
		return false;
	if (!credentials->ca_file)
		credentials->ca_file = arguments_or_null(environment->cacert);
	if (!credentials->cert_file && !credentials->cert_key_file)
		credentials->cert_key_file = arguments_or_null(environment->key);
	if (!credentials->cert_file)
		credentials->cert_file = arguments_or_null(environment->cert);
	if (credentials->cert_key_file && !credentials->cert_file)
		return arguments_fail(
			arguments,
			"--key (or REDLOCKCTL_KEY) is the key of a certificate: it needs --cert (or REDLOCKCTL_CERT)");
	return true;
}

static bool arguments_check_api_key(struct arguments *arguments, const struct arguments_environment *environment)
{
	struct credentials *credentials = &arguments->credentials;
	const char *key = arguments_or_null(environment->api_key), *file = arguments_or_null(environment->key_file);

	if (credentials->api_key_file)
		return strcmp(credentials->api_key_file, "-") != 0 ||
		       arguments_fail(arguments, "--key-file: - (stdin) is for key hash alone");
	if (key && file)
		return arguments_fail(arguments, "REDLOCKCTL_KEY_FILE and REDLOCKCTL_API_KEY: one of them only");
	credentials->api_key_file = file;
	const char *reason = key ? api_key_parse(key, strlen(key), credentials->api_key) : NULL;
	if (reason)
		return arguments_fail(arguments, "REDLOCKCTL_API_KEY: %s", reason);
	return arguments_check_file(arguments, "REDLOCKCTL_KEY_FILE", file);
}

static bool arguments_check_all(struct arguments *arguments, const struct arguments_environment *environment)
{
	assert(arguments->command < COMMAND_COUNT);
	if ((IN_ALL & 1U << arguments->command) == 0)
		return true; /* no server is asked */
	if ((IN_NAMED & 1U << arguments->command) != 0 && !arguments->name)
		return arguments_fail(arguments, "%s needs a NAME", command_names[arguments->command]);
	if (!arguments->wait_given)
		arguments->wait_ms = arguments->command == COMMAND_RUN ? DEFAULT_WAIT_MS : 0;
	if (arguments->command == COMMAND_HEALTH && !arguments->timeout_given)
		arguments->timeout_ms = DEFAULT_HEALTH_TIMEOUT_MS;
	if (!arguments->kill_after_given)
		arguments->kill_after_ms = arguments->ttl_ms / 3 < DEFAULT_KILL_AFTER_MS ? arguments->ttl_ms / 3
											 : DEFAULT_KILL_AFTER_MS;
	if ((arguments->command == COMMAND_EXTEND || arguments->command == COMMAND_RELEASE) &&
	    !arguments_check_token(arguments, environment->token))
		return false;
	if (arguments->command == COMMAND_RUN && !arguments_check_run(arguments))
		return false;
	if (arguments->command == COMMAND_ACQUIRE && arguments->token_file && strcmp(arguments->token_file, "-") == 0)
		return arguments_fail(arguments, "--token-file: acquire writes to a file, not to -");
	return arguments_check_servers(arguments, environment->server) && arguments_check_tls(arguments, environment) &&
	       arguments_check_api_key(arguments, environment);
}

/* Finds the command: options with their values may precede it. */
static char **arguments_find_command(char **at)
{
	while (*at && (*at)[0] == '-' && (*at)[1] != '\0') {
		const char *value;
		const struct arguments_row *row = arguments_table_find(*at, &value);
		if (!row)
			break;
		at++;
		if (row->has_value && !value && *at)
			at++;
	}
	return at;
}

static const char *arguments_alias(const char *name)
{
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		return "help";
	return strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 ? "version" : name;
}

/* The commands of two words; the second one follows the first. */
static bool arguments_parse_key_command(struct arguments *arguments, struct walk *walk)
{
	const char *second = walk->command[1] ? arguments_alias(walk->command[1]) : "";

	assert(strcmp(*walk->command, "key") == 0);
	walk->behind = walk->command + 2;
	if (strcmp(second, "help") == 0)
		arguments->command = COMMAND_HELP;
	else if (strcmp(second, "new") == 0)
		arguments->command = COMMAND_KEY_NEW;
	else if (strcmp(second, "hash") == 0)
		arguments->command = COMMAND_KEY_HASH;
	else
		return arguments_fail(arguments, "key: new or hash must follow it");
	return true;
}

static bool arguments_parse_command(struct arguments *arguments, struct walk *walk)
{
	const char *name = *walk->command;

	if (!name)
		return arguments_fail(arguments, "a command is missing; redlockctl --help lists them");
	walk->behind = walk->command + 1;
	if (strcmp(name, "key") == 0)
		return arguments_parse_key_command(arguments, walk);
	name = arguments_alias(name);
	for (int command = 0; command < COMMAND_COUNT; command++)
		if (strcmp(name, command_names[command]) == 0) {
			arguments->command = (enum command)command;
			return true;
		}
	if (name[0] == '-')
		return arguments_fail(arguments, "there is no option %.*s",
				      (int)(strcspn(name, "=") > 100 ? 100 : strcspn(name, "=")), name);
	return arguments_fail(arguments, "there is no command '%.100s'; redlockctl --help lists them", name);
}

bool arguments_parse(struct arguments *ret_options, char **argv, const struct arguments_environment *environment)
{
	assert(argv && environment);
	memset(ret_options, 0, sizeof *ret_options);
	ret_options->command = COMMAND_HELP;
	ret_options->ttl_ms = DEFAULT_TTL_MS;
	ret_options->timeout_ms = DEFAULT_TIMEOUT_MS;
	ret_options->held_status = EXIT_STATUS_HELD;
	if (!argv[0])
		return arguments_fail(ret_options, "the name of the program is missing");
	struct walk walk = {.arguments = ret_options, .at = argv + 1, .command = arguments_find_command(argv + 1)};
	return arguments_parse_command(ret_options, &walk) && arguments_walk_all(&walk) &&
	       arguments_check_all(ret_options, environment);
}
