/* The options of redlockctl: what each is called, which commands have it, what it does with its value. See
 * options_table.h. */
#include "arguments_table.h"

#include <stdlib.h>
#include <string.h>

#include "api/calls/path.h"
#include "duration.h"

#define DURATION_WANTED "not a duration such as 250ms, 30s, 5m or 1h"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

enum { TTL_MAX_MS = 86400000 };

bool options_is_api_key(const char *text)
{
	return strncmp(text, API_KEY_START, strlen(API_KEY_START)) == 0;
}

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
	options->timeout_given = true;
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

/* list has one, key new a list of them. */
static const char *take_prefix(struct options *options, const char *value)
{
	const char *reason = take_plain(value, PATH_VALUE_MAX, &options->prefix);

	if (reason != NULL || options->command != COMMAND_KEY_NEW)
		return reason;
	if (options->prefix_count == OPTIONS_PREFIXES_MAX)
		return "there are too many prefixes";
	options->prefixes[options->prefix_count++] = value;
	return NULL;
}

static const char *take_key_name(struct options *options, const char *value)
{
	size_t len = strlen(value);

	if (len == 0 || len > OPTIONS_KEY_NAME_MAX || strspn(value, LETTERS "0123456789._-") != len)
		return "not a name of 1 to 64 letters, digits, dots, dashes and underscores";
	options->key_name = value;
	return NULL;
}

const char *const options_rights[OPTIONS_RIGHTS] = {"acquire", "inspect", "list", "admin"};

static const char *take_right(struct options *options, const char *value)
{
	for (unsigned right = 0; right < OPTIONS_RIGHTS; right++)
		if (strcmp(value, options_rights[right]) == 0) {
			options->rights |= 1U << right;
			return NULL;
		}
	return "not a right: acquire, inspect, list or admin";
}

static const char *take_token(struct options *options, const char *value)
{
	if (!options_is_token(value))
		return "not a token: 40 digits, 0 to 9 and a to f";
	options->token = value;
	return NULL;
}

static const char *take_file(const char *value, const char **ret_path)
{
	if (options_is_api_key(value))
		return "a file with the key in it is wanted, not the key: others can see it in the list of processes";
	*ret_path = value;
	return *value == '\0' ? "empty" : NULL;
}

static const char *take_token_file(struct options *options, const char *value)
{
	return take_file(value, &options->token_file);
}

static const char *take_cacert(struct options *options, const char *value)
{
	return take_file(value, &options->credentials.ca_file);
}

static const char *take_cert(struct options *options, const char *value)
{
	return take_file(value, &options->credentials.cert_file);
}

static const char *take_cert_key(struct options *options, const char *value)
{
	return take_file(value, &options->credentials.cert_key_file);
}

static const char *take_key_file(struct options *options, const char *value)
{
	return take_file(value, &options->credentials.api_key_file);
}

static const char *take_out(struct options *options, const char *value)
{
	return take_file(value, &options->out);
}

static const char *take_json(struct options *options, const char *value)
{
	(void)value;
	options->json = true;
	return NULL;
}

static const char *take_force(struct options *options, const char *value)
{
	(void)value;
	options->force = true;
	return NULL;
}

static const char *take_ready(struct options *options, const char *value)
{
	(void)value;
	options->ready = true;
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

static const struct option_row rows[] = {
	{"server", 's', true, false, IN_ALL, take_server},
	{"timeout", 0, true, false, IN_ALL, take_timeout},
	{"json", 0, false, false, IN_ALL | IN_KEY_NEW | IN_KEY_HASH, take_json},
	{"cacert", 0, true, false, IN_ALL, take_cacert},
	{"cert", 0, true, false, IN_ALL, take_cert},
	{"key", 0, true, false, IN_ALL, take_cert_key},
	{"key-file", 0, true, false, IN_ALL | IN_KEY_HASH, take_key_file},
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
	{"force", 0, false, false, IN_RELEASE, take_force},
	{"ready", 0, false, false, IN_HEALTH, take_ready},
	{"prefix", 0, true, false, IN_LIST | IN_KEY_NEW, take_prefix},
	{"limit", 0, true, false, IN_LIST, take_limit},
	{"name", 0, true, false, IN_KEY_NEW, take_key_name},
	{"right", 0, true, false, IN_KEY_NEW, take_right},
	{"out", 0, true, false, IN_KEY_NEW, take_out},
};

/* ---- finding ---- */

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

const struct option_row *options_find_row(const char *argument, const char **ret_inline)
{
	*ret_inline = NULL;
	if (argument[1] != '-')
		return find_letter(argument + 1);
	size_t len = strcspn(argument + 2, "=");
	if (argument[2 + len] == '=')
		*ret_inline = argument + 2 + len + 1;
	return find_long(argument + 2, len);
}
