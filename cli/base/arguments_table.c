/* The options of redlockctl: name, commands, and the function that parses the value. See arguments_table.h. */
#include "arguments_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls.h"
#include "duration.h"
#include "server/base/base.h"

#define DURATION_WANTED "not a duration such as 250ms, 30s, 5m or 1h"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

enum { TTL_MAX_MS = 86400000 };

bool arguments_is_api_key(const char *text)
{
	return strncmp(text, API_KEY_START, strlen(API_KEY_START)) == 0;
}

bool arguments_is_token(const char *text)
{
	assert(text);
	return strlen(text) == ARGUMENTS_TOKEN_LEN && strspn(text, "0123456789abcdef") == ARGUMENTS_TOKEN_LEN;
}

/* ---- parsing values: NULL, or the reason (static) why the value is rejected ---- */

static const char *arguments_parse_duration(const char *value, uint64_t min_ms, uint64_t max_ms, uint64_t *ret_ms)
{
	uint64_t ms;

	assert(min_ms <= max_ms);
	if (!duration_parse(value, &ms))
		return DURATION_WANTED;
	if (ms < min_ms)
		return "too short";
	if (ms > max_ms)
		return "too long";
	*ret_ms = ms;
	return NULL;
}

static const char *arguments_parse_server(struct arguments *arguments, const char *value)
{
	return server_list_add(&arguments->servers, value, strlen(value));
}

static const char *arguments_parse_ttl(struct arguments *arguments, const char *value)
{
	return arguments_parse_duration(value, 1, TTL_MAX_MS, &arguments->ttl_ms);
}

static const char *arguments_parse_wait(struct arguments *arguments, const char *value)
{
	if (arguments->wait_given)
		return "--wait and --no-wait may be given once only, and not both";
	arguments->wait_given = true;
	return arguments_parse_duration(value, 0, DURATION_MAX_MS, &arguments->wait_ms);
}

static const char *arguments_parse_no_wait(struct arguments *arguments, const char *value)
{
	(void)value;
	return arguments_parse_wait(arguments, "0s");
}

static const char *arguments_parse_kill_after(struct arguments *arguments, const char *value)
{
	arguments->kill_after_given = true;
	return arguments_parse_duration(value, 0, TTL_MAX_MS, &arguments->kill_after_ms);
}

static const char *arguments_parse_timeout(struct arguments *arguments, const char *value)
{
	arguments->timeout_given = true;
	return arguments_parse_duration(value, 10, 3600000, &arguments->timeout_ms);
}

static const char *arguments_parse_number(const char *value, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	assert(min <= max && max < 1000000000);
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

static const char *arguments_parse_held_status(struct arguments *arguments, const char *value)
{
	uint64_t status;
	const char *reason = arguments_parse_number(value, 0, 255, &status);

	if (!reason)
		arguments->held_status = (int)status;
	return reason;
}

static const char *arguments_parse_limit(struct arguments *arguments, const char *value)
{
	return arguments_parse_number(value, 1, 1000000, &arguments->limit);
}

static const char *arguments_parse_plain(const char *value, size_t max, const char **ret_text)
{
	size_t len = strlen(value);

	assert(value && max > 0);
	if (len > max)
		return "too long";
	if (!utf8_is_valid(value, len) || utf8_has_control(value, len))
		return "not UTF-8 without control characters";
	*ret_text = value;
	return NULL;
}

static const char *arguments_parse_owner(struct arguments *arguments, const char *value)
{
	return arguments_parse_plain(value, ARGUMENTS_OWNER_MAX, &arguments->owner);
}

/* list takes one, key new several. */
static const char *arguments_parse_prefix(struct arguments *arguments, const char *value)
{
	const char *reason = arguments_parse_plain(value, PATH_VALUE_MAX, &arguments->prefix);

	assert(arguments->prefix_count <= ARGUMENTS_PREFIXES_MAX);
	if (reason || arguments->command != COMMAND_KEY_NEW)
		return reason;
	if (arguments->prefix_count == ARGUMENTS_PREFIXES_MAX)
		return "there are too many prefixes";
	arguments->prefixes[arguments->prefix_count++] = value;
	return NULL;
}

static const char *arguments_parse_key_name(struct arguments *arguments, const char *value)
{
	size_t len = strlen(value);

	if (len == 0 || len > ARGUMENTS_KEY_NAME_MAX || strspn(value, LETTERS "0123456789._-") != len)
		return "not a name of 1 to 64 letters, digits, dots, dashes and underscores";
	arguments->key_name = value;
	return NULL;
}

const char *const arguments_rights[ARGUMENTS_RIGHTS] = {"acquire", "inspect", "list", "admin"};

static const char *arguments_parse_right(struct arguments *arguments, const char *value)
{
	for (unsigned right = 0; right < ARGUMENTS_RIGHTS; right++)
		if (strcmp(value, arguments_rights[right]) == 0) {
			arguments->rights |= 1U << right;
			return NULL;
		}
	return "not a right: acquire, inspect, list or admin";
}

static const char *arguments_parse_token(struct arguments *arguments, const char *value)
{
	if (!arguments_is_token(value))
		return "not a token: 40 digits, 0 to 9 and a to f";
	arguments->token = value;
	return NULL;
}

static const char *arguments_parse_file(const char *value, const char **ret_path)
{
	assert(value);
	if (arguments_is_api_key(value))
		return "give a file that holds the key, not the key: others can see it in the list of processes";
	*ret_path = value;
	return *value == '\0' ? "empty" : NULL;
}

static const char *arguments_parse_token_file(struct arguments *arguments, const char *value)
{
	return arguments_parse_file(value, &arguments->token_file);
}

static const char *arguments_parse_cacert(struct arguments *arguments, const char *value)
{
	return arguments_parse_file(value, &arguments->credentials.ca_file);
}

static const char *arguments_parse_cert(struct arguments *arguments, const char *value)
{
	return arguments_parse_file(value, &arguments->credentials.cert_file);
}

static const char *arguments_parse_cert_key(struct arguments *arguments, const char *value)
{
	return arguments_parse_file(value, &arguments->credentials.cert_key_file);
}

static const char *arguments_parse_key_file(struct arguments *arguments, const char *value)
{
	return arguments_parse_file(value, &arguments->credentials.api_key_file);
}

static const char *arguments_parse_out(struct arguments *arguments, const char *value)
{
	return arguments_parse_file(value, &arguments->out);
}

static const char *arguments_parse_json(struct arguments *arguments, const char *value)
{
	(void)value;
	arguments->json = true;
	return NULL;
}

static const char *arguments_parse_force(struct arguments *arguments, const char *value)
{
	(void)value;
	arguments->force = true;
	return NULL;
}

static const char *arguments_parse_ready(struct arguments *arguments, const char *value)
{
	(void)value;
	arguments->ready = true;
	return NULL;
}

static const char *arguments_parse_verbose(struct arguments *arguments, const char *value)
{
	(void)value;
	arguments->verbose = true;
	return NULL;
}

static const char *arguments_parse_wait_all(struct arguments *arguments, const char *value)
{
	(void)value;
	arguments->wait_all = true;
	return NULL;
}

static const struct arguments_row arguments_rows[] = {
	{"server", 's', true, false, IN_ALL, arguments_parse_server},
	{"timeout", 0, true, false, IN_ALL, arguments_parse_timeout},
	{"json", 0, false, false, IN_ALL | IN_KEY_NEW | IN_KEY_HASH, arguments_parse_json},
	{"cacert", 0, true, false, IN_ALL, arguments_parse_cacert},
	{"cert", 0, true, false, IN_ALL, arguments_parse_cert},
	{"key", 0, true, false, IN_ALL, arguments_parse_cert_key},
	{"key-file", 0, true, false, IN_ALL | IN_KEY_HASH, arguments_parse_key_file},
	{"ttl", 't', true, false, IN_ACQUIRE | IN_EXTEND | IN_RUN, arguments_parse_ttl},
	{"wait", 'w', true, false, IN_ACQUIRE | IN_RUN, arguments_parse_wait},
	{"no-wait", 'n', false, false, IN_ACQUIRE | IN_RUN, arguments_parse_no_wait},
	{"owner", 0, true, false, IN_ACQUIRE | IN_RUN, arguments_parse_owner},
	{"conflict-exit-code", 'E', true, false, IN_ACQUIRE | IN_RUN, arguments_parse_held_status},
	{"kill-after", 'k', true, false, IN_RUN, arguments_parse_kill_after},
	{"wait-all", 0, false, false, IN_RUN, arguments_parse_wait_all},
	{"verbose", 'v', false, false, IN_RUN, arguments_parse_verbose},
	{"token-file", 0, true, false, IN_ACQUIRE | IN_EXTEND | IN_RELEASE, arguments_parse_token_file},
	{"token", 0, true, true, IN_EXTEND | IN_RELEASE, arguments_parse_token},
	{"force", 0, false, false, IN_RELEASE, arguments_parse_force},
	{"ready", 0, false, false, IN_HEALTH, arguments_parse_ready},
	{"prefix", 0, true, false, IN_LIST | IN_KEY_NEW, arguments_parse_prefix},
	{"limit", 0, true, false, IN_LIST, arguments_parse_limit},
	{"name", 0, true, false, IN_KEY_NEW, arguments_parse_key_name},
	{"right", 0, true, false, IN_KEY_NEW, arguments_parse_right},
	{"out", 0, true, false, IN_KEY_NEW, arguments_parse_out},
};

/* ---- looking up ---- */

static const struct arguments_row *arguments_table_find_long(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof arguments_rows / sizeof *arguments_rows; i++)
		if (strlen(arguments_rows[i].name) == len && memcmp(arguments_rows[i].name, name, len) == 0)
			return &arguments_rows[i];
	return NULL;
}

static const struct arguments_row *arguments_table_find_letter(const char *text)
{
	for (size_t i = 0; text[1] == '\0' && i < sizeof arguments_rows / sizeof *arguments_rows; i++)
		if (arguments_rows[i].letter != 0 && arguments_rows[i].letter == text[0])
			return &arguments_rows[i];
	return NULL;
}

const struct arguments_row *arguments_table_find(const char *argument, const char **ret_inline)
{
	assert(argument[0] == '-');
	*ret_inline = NULL;
	if (argument[1] != '-')
		return arguments_table_find_letter(argument + 1);
	size_t len = strcspn(argument + 2, "=");
	if (argument[2 + len] == '=')
		*ret_inline = argument + 2 + len + 1;
	return arguments_table_find_long(argument + 2, len);
}
