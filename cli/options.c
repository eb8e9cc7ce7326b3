/* The command line: one table of options, one of commands. See options.h.
 *
 * Written by hand and not with getopt_long(), because every message must name the argument and none may repeat a token, and
 * because an option that a command does not have must be refused rather than ignored: --ttl with `release` is a mistake. */
#include "options.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../api/path.h"
#include "duration.h"
#include "status.h"

#define DURATION_WANTED "not a duration such as 250ms, 30s, 5m or 1h"

enum {
	IN_ACQUIRE = 1 << COMMAND_ACQUIRE,
	IN_EXTEND = 1 << COMMAND_EXTEND,
	IN_RELEASE = 1 << COMMAND_RELEASE,
	IN_STATUS = 1 << COMMAND_STATUS,
	IN_LIST = 1 << COMMAND_LIST,
	IN_MASTERS = 1 << COMMAND_MASTERS,
	IN_RUN = 1 << COMMAND_RUN,
	IN_NAMED = IN_ACQUIRE | IN_EXTEND | IN_RELEASE | IN_STATUS | IN_RUN,
	IN_ALL = IN_NAMED | IN_LIST | IN_MASTERS,
	DEFAULT_TTL_MS = 30000,
	DEFAULT_WAIT_MS = 300000,
	DEFAULT_TIMEOUT_MS = 5000,
	DEFAULT_KILL_AFTER_MS = 5000,
	TTL_MAX_MS = 86400000
};

static const char *const command_names[COMMAND_COUNT] = {
	[COMMAND_ACQUIRE] = "acquire", [COMMAND_EXTEND] = "extend", [COMMAND_RELEASE] = "release", [COMMAND_STATUS] = "status",
	[COMMAND_LIST] = "list", [COMMAND_MASTERS] = "masters", [COMMAND_RUN] = "run", [COMMAND_HELP] = "help",
	[COMMAND_VERSION] = "version",
};

/* ---- what each option does with its value: NULL, or the reason (static) why it is not taken ---- */

static const char *take_duration(const char *value, uint64_t min_ms, uint64_t max_ms, uint64_t *ret_ms)
{
	uint64_t ms;

	if (!duration_parse(value, &ms))
		return DURATION_WANTED;
	if (ms < min_ms)
		return "too short";
	if (ms > max_ms)
		return "too long";
	*ret_ms = ms;
	return NULL;
}

static const char *take_server(struct options *options, const char *value)
{
	return server_list_add(&options->servers, value, strlen(value));
}

static const char *take_ttl(struct options *options, const char *value)
{
	return take_duration(value, 1, TTL_MAX_MS, &options->ttl_ms);
}

static const char *take_wait(struct options *options, const char *value)
{
	if (options->wait_given)
		return "--wait and --no-wait may be given once only, and not both";
	options->wait_given = true;
	return take_duration(value, 0, DURATION_MAX_MS, &options->wait_ms);
}

static const char *take_no_wait(struct options *options, const char *value)
{
	(void)value;
	return take_wait(options, "0s");
}

static const char *take_kill_after(struct options *options, const char *value)
{
	options->kill_after_given = true;
	return take_duration(value, 0, TTL_MAX_MS, &options->kill_after_ms);
}

static const char *take_timeout(struct options *options, const char *value)
{
	return take_duration(value, 10, 3600000, &options->timeout_ms);
}

static const char *take_number(const char *value, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	if (*value == '\0' || strspn(value, "0123456789") != strlen(value))
		return "not a whole number";
	uint64_t number = strlen(value) > 9 ? UINT64_MAX : strtoull(value, NULL, 10);
	if (number < min)
		return "too low";
	if (number > max)
		return "too high";
	*ret_number = number;
	return NULL;
}

static const char *take_held_status(struct options *options, const char *value)
{
	uint64_t status;
	const char *reason = take_number(value, 0, 255, &status);

	if (reason == NULL)
		options->held_status = (int)status;
	return reason;
}

static const char *take_limit(struct options *options, const char *value)
{
	return take_number(value, 1, 1000000, &options->limit);
}

static const char *take_plain(const char *value, size_t max, const char **ret_text)
{
	size_t len = strlen(value);

	if (len > max)
		return "too long";
	if (!path_is_utf8(value, len) || path_has_control(value, len))
		return "not UTF-8 without control characters";
	*ret_text = value;
	return NULL;
}

static const char *take_owner(struct options *options, const char *value)
{
	return take_plain(value, OPTIONS_OWNER_MAX, &options->owner);
}

static const char *take_prefix(struct options *options, const char *value)
{
	return take_plain(value, PATH_VALUE_MAX, &options->prefix);
}

static const char *take_token(struct options *options, const char *value)
{
	if (!options_is_token(value))
		return "not a token: 40 digits, 0 to 9 and a to f";
	options->token = value;
	return NULL;
}

static const char *take_token_file(struct options *options, const char *value)
{
	options->token_file = value;
	return *value == '\0' ? "empty" : NULL;
}

static const char *take_json(struct options *options, const char *value)
{
	(void)value;
	options->json = true;
	return NULL;
}

static const char *take_verbose(struct options *options, const char *value)
{
	(void)value;
	options->verbose = true;
	return NULL;
}

static const char *take_wait_all(struct options *options, const char *value)
{
	(void)value;
	options->wait_all = true;
	return NULL;
}

static const struct option_row {
	const char *name;
	char letter;
	bool has_value, secret;
	unsigned commands;
	const char *(*take)(struct options *, const char *value);
} rows[] = {
	{"server", 's', true, false, IN_ALL, take_server},
	{"timeout", 0, true, false, IN_ALL, take_timeout},
	{"json", 0, false, false, IN_ALL, take_json},
	{"ttl", 't', true, false, IN_ACQUIRE | IN_EXTEND | IN_RUN, take_ttl},
	{"wait", 'w', true, false, IN_ACQUIRE | IN_RUN, take_wait},
	{"no-wait", 'n', false, false, IN_ACQUIRE | IN_RUN, take_no_wait},
	{"owner", 0, true, false, IN_ACQUIRE | IN_RUN, take_owner},
	{"conflict-exit-code", 'E', true, false, IN_ACQUIRE | IN_RUN, take_held_status},
	{"kill-after", 'k', true, false, IN_RUN, take_kill_after},
	{"wait-all", 0, false, false, IN_RUN, take_wait_all},
	{"verbose", 'v', false, false, IN_RUN, take_verbose},
	{"token-file", 0, true, false, IN_ACQUIRE | IN_EXTEND | IN_RELEASE, take_token_file},
	{"token", 0, true, true, IN_EXTEND | IN_RELEASE, take_token},
	{"prefix", 0, true, false, IN_LIST, take_prefix},
	{"limit", 0, true, false, IN_LIST, take_limit},
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

/* An address may hold a password by mistake: such a value is not repeated either. */
static bool fail_value(struct options *options, const struct option_row *row, const char *value, const char *reason)
{
	if (!row->has_value || row->secret || strchr(value, '@') != NULL)
		return fail(options, "--%s: %s", row->name, reason);
	return fail(options, "--%s '%.100s': %s", row->name, value, reason);
}

/* ---- the walk over the arguments ---- */

struct walk {
	struct options *options;
	char **at, **command;
};

static const struct option_row *find_long(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
			return &rows[i];
	return NULL;
}

static const struct option_row *find_letter(const char *text)
{
	for (size_t i = 0; text[1] == '\0' && i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].letter != 0 && rows[i].letter == text[0])
			return &rows[i];
	return NULL;
}

/* Finds the row for an argument that begins with a dash; *ret_inline is what stands behind "=" in it. */
static const struct option_row *find_row(const char *argument, const char **ret_inline)
{
	*ret_inline = NULL;
	if (argument[1] != '-')
		return find_letter(argument + 1);
	size_t len = strcspn(argument + 2, "=");
	if (argument[2 + len] == '=')
		*ret_inline = argument + 2 + len + 1;
	return find_long(argument + 2, len);
}

/* Takes the option at walk->at and its value. What stands behind an unknown option's "=" is not repeated. */
static bool walk_option(struct walk *walk)
{
	struct options *options = walk->options;
	const char *argument = *walk->at, *value;
	const struct option_row *row = find_row(argument, &value);

	if (row == NULL)
		return fail(options, "there is no option %.*s", (int)(strcspn(argument, "=") > 100 ? 100 : strcspn(argument, "=")), argument);
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
			walk->at++;
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
	if (options->token != NULL && options->token_file != NULL)
		return fail(options, "--token and --token-file: one of them only");
	if (options->token != NULL || options->token_file != NULL)
		return true;
	if (from_environment == NULL || *from_environment == '\0')
		return fail(options, "%s needs the token: in REDLOCK_TOKEN or with --token-file FILE", command_names[options->command]);
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

static bool check_all(struct options *options, const struct options_environment *environment)
{
	if (options->command == COMMAND_HELP || options->command == COMMAND_VERSION)
		return true;
	if ((IN_NAMED & 1U << options->command) != 0 && options->name == NULL)
		return fail(options, "%s needs a NAME", command_names[options->command]);
	if (!options->wait_given)
		options->wait_ms = options->command == COMMAND_RUN ? DEFAULT_WAIT_MS : 0;
	if (!options->kill_after_given)
		options->kill_after_ms = options->ttl_ms / 3 < DEFAULT_KILL_AFTER_MS ? options->ttl_ms / 3 : DEFAULT_KILL_AFTER_MS;
	if ((options->command == COMMAND_EXTEND || options->command == COMMAND_RELEASE) && !check_token(options, environment->token))
		return false;
	if (options->command == COMMAND_RUN && !check_run(options))
		return false;
	if (options->command == COMMAND_ACQUIRE && options->token_file != NULL && strcmp(options->token_file, "-") == 0)
		return fail(options, "--token-file: acquire writes to a file, not to -");
	return check_servers(options, environment->server);
}

/* Where the command is: options with their values may stand before it. */
static char **find_command(char **at)
{
	while (*at != NULL && (*at)[0] == '-' && (*at)[1] != '\0') {
		const char *value;
		const struct option_row *row = find_row(*at, &value);
		if (row == NULL)
			break;
		at++;
		if (row->has_value && value == NULL && *at != NULL)
			at++;
	}
	return at;
}

static bool take_command(struct options *options, const char *name)
{
	if (name == NULL)
		return fail(options, "a command is missing; redlockctl --help lists them");
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		name = "version";
	for (int command = 0; command < COMMAND_COUNT; command++)
		if (strcmp(name, command_names[command]) == 0) {
			options->command = (enum command)command;
			return true;
		}
	if (name[0] == '-')
		return fail(options, "there is no option %.*s", (int)(strcspn(name, "=") > 100 ? 100 : strcspn(name, "=")), name);
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
	char **command = find_command(argv + 1);
	if (!take_command(ret_options, *command))
		return false;
	struct walk walk = {ret_options, argv + 1, command};
	return walk_all(&walk) && check_all(ret_options, environment);
}

bool options_is_token(const char *text)
{
	return strlen(text) == OPTIONS_TOKEN_LEN && strspn(text, "0123456789abcdef") == OPTIONS_TOKEN_LEN;
}
