/* Texts into values, each stored in its member of struct options. Addresses are parsed in options_address.c, numbers in
 * options_words.c. Pure functions; no file, no environment.
 *
 * Parsing is strict: a text that is not understood to the last byte is rejected with a reason. A reason is a static
 * string and so never holds a part of the text, which may hold a password. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options_table.h"

enum { OPTIONS_DEV_DEFAULT = 3 };

/* ---- numbers and words ---- */

static bool options_parse_fraction(const char *text, double *ret_number, const char **ret_reason)
{
	char *end;

	/* strtod() alone would accept spaces, signs, hexadecimal, inf and nan. */
	if (text[0] < '0' || text[0] > '9' || strspn(text, "0123456789.eE+-") != strlen(text)) {
		*ret_reason = "not a number";
		return false;
	}
	double number = strtod(text, &end);
	/* below, two leases could be valid at once: docs/safety.md, "The sum" */
	if (*end != '\0' || number < 0.001 || number > 0.5) {
		*ret_reason = *end != '\0' ? "not a number" : number > 0.5 ? "too high" : "too low";
		return false;
	}
	*ret_number = number;
	return true;
}

static bool options_parse_choice(const char *const choices[], const char *text, uint32_t *ret_choice,
				 const char **ret_reason)
{
	assert(choices && choices[0]);
	for (uint32_t i = 0; choices[i]; i++)
		if (strcmp(text, choices[i]) == 0) {
			*ret_choice = i;
			return true;
		}
	*ret_reason = "not known";
	return false;
}

static bool options_parse_dev(const char *text, uint32_t *ret_count, const char **ret_reason)
{
	uint64_t count = OPTIONS_DEV_DEFAULT;

	if (strcmp(text, "false") == 0)
		count = 0;
	else if (strcmp(text, "true") != 0 && !options_parse_number(text, 1, OPTIONS_MASTERS_MAX, &count, ret_reason))
		return false;
	*ret_count = (uint32_t)count;
	return true;
}

/* The key of a lock must never look like one of redlockd's own keys: a prefix must not contain `redlockd:`, nor a
 * beginning of it at its end, which a resource could complete. */
static bool options_is_reserved(const char *prefix)
{
	assert(prefix);
	static const char reserved[] = "redlockd:";
	enum { WORD_MIN = 4 }; /* fewer letters end ordinary words */
	size_t len = strlen(prefix);
	if (strstr(prefix, reserved))
		return true;
	for (size_t part = WORD_MIN; part < sizeof reserved - 1; part++)
		if (len >= part && memcmp(prefix + len - part, reserved, part) == 0)
			return true;
	return false;
}

static bool options_parse_prefix(const char *text, char prefix[129], const char **ret_reason)
{
	if (strlen(text) > 128 || !options_is_plain_text(text)) {
		*ret_reason = strlen(text) > 128 ? "too long" : "not plain text";
		return false;
	}
	if (options_is_reserved(text)) {
		*ret_reason = "redlockd: begins the names of redlockd's own keys; end the prefix in another way, such "
			      "as with a colon";
		return false;
	}
	strcpy(prefix, text);
	return true;
}

/* The path of a file, which is not opened here. */
static bool options_parse_path(const char *text, char path[OPTIONS_PATH_MAX], const char **ret_reason)
{
	size_t len = strlen(text);

	assert(text);
	if (len == 0 || len >= OPTIONS_PATH_MAX || !options_is_plain_text(text)) {
		*ret_reason = len == 0 ? "empty" : len >= OPTIONS_PATH_MAX ? "too long" : "not plain text";
		return false;
	}
	memcpy(path, text, len + 1);
	return true;
}

/* ---- names of hosts, origins ---- */

/* NULL, or why it is not a host as the header Host has it: a name or an address, without a port. */
static const char *options_check_host_name(const char *text)
{
	size_t len = strlen(text);
	char inside[OPTIONS_HOST_MAX];

	if (len == 0 || len >= OPTIONS_HOST_MAX)
		return len == 0 ? "empty" : "too long";
	if (text[0] != '[')
		return options_check_host(text, false);
	if (text[len - 1] != ']')
		return "the ] of the IPv6 address is missing, or text after it";
	memcpy(inside, text + 1, len - 2);
	inside[len - 2] = '\0';
	return options_check_host(inside, true);
}

/* NULL, or why it is not an origin as a browser sends it: a scheme, a host and perhaps a port, and nothing after
 * them. */
static const char *options_check_origin(const char *text)
{
	struct listen_address address;
	const char *host = strstr(text, "://"), *reason;
	char with_port[OPTIONS_HOST_MAX + 8];

	if (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0)
		return "an origin must begin with http:// or https://";
	if (strlen(text) >= OPTIONS_HOST_MAX)
		return "too long";
	const char *last = strrchr(host, ']') ? strrchr(host, ']') : host + 3;
	snprintf(with_port, sizeof with_port, "%s%s", host + 3, !strchr(last, ':') ? ":80" : "");
	return options_parse_listen(with_port, &address, &reason) && !address.is_unix
		       ? NULL
		       : "not scheme://host or scheme://host:port";
}

static bool options_add_name(enum options_kind kind, const char *text, struct options_names *names,
			     const char **ret_reason)
{
	const char *reason = kind == OPTIONS_KIND_HOSTS ? options_check_host_name(text) : options_check_origin(text);

	assert(names->count <= OPTIONS_NAMES_MAX);
	for (size_t i = 0; !reason && i < names->count; i++)
		if (strcasecmp(names->items[i], text) == 0)
			reason = "given twice";
	if (!reason && names->count == OPTIONS_NAMES_MAX)
		reason = "more than 16 of them";
	if (reason) {
		*ret_reason = reason;
		return false;
	}
	strcpy(names->items[names->count++], text);
	return true;
}

/* ---- storing values ---- */

static bool options_same_listen(const struct listen_address *a, const struct listen_address *b)
{
	/* Port 0 is a different port each time. */
	return a->is_unix == b->is_unix && a->port == b->port && (a->is_unix || a->port != 0) &&
	       (a->is_unix ? strcmp(a->host, b->host) : strcasecmp(a->host, b->host)) == 0;
}

/* Two databases of one server are one master: they fail together. */
static bool options_same_master(const struct master_address *a, const struct master_address *b)
{
	return a->is_unix == b->is_unix && a->port == b->port &&
	       (a->is_unix ? strcmp(a->host, b->host) : strcasecmp(a->host, b->host)) == 0;
}

static bool options_add_listen(const char *text, struct options *options, const char **ret_reason)
{
	struct listen_address address;

	assert(options->listen_count <= OPTIONS_LISTEN_MAX);
	if (!options_parse_listen(text, &address, ret_reason))
		return false;
	for (size_t i = 0; i < options->listen_count; i++)
		if (options_same_listen(&address, &options->listen[i])) {
			*ret_reason = "given twice";
			return false;
		}
	if (options->listen_count == OPTIONS_LISTEN_MAX) {
		*ret_reason = "more than 16 addresses";
		return false;
	}
	options->listen[options->listen_count++] = address;
	return true;
}

static bool options_add_master(const char *text, struct options *options, const char **ret_reason)
{
	struct master_address address;

	assert(options->master_count <= OPTIONS_MASTERS_MAX);
	if (!options_parse_master(text, &address, ret_reason))
		return false;
	for (size_t i = 0; i < options->master_count; i++)
		if (options_same_master(&address, &options->masters[i])) {
			*ret_reason = "the same master twice";
			return false;
		}
	if (options->master_count == OPTIONS_MASTERS_MAX) {
		*ret_reason = "more than 15 masters";
		return false;
	}
	options->masters[options->master_count++] = address;
	return true;
}

bool options_parse_value(const struct options_entry *entry, const char *text, struct options *options,
			 const char **ret_reason)
{
	void *place = (char *)options + entry->offset;
	uint64_t number;

	assert(text && entry->offset < sizeof *options);
	switch (entry->kind) {
	case OPTIONS_KIND_LISTEN: return options_add_listen(text, options, ret_reason);
	case OPTIONS_KIND_MASTERS: return options_add_master(text, options, ret_reason);
	case OPTIONS_KIND_DEV: return options_parse_dev(text, place, ret_reason);
	case OPTIONS_KIND_PREFIX: return options_parse_prefix(text, place, ret_reason);
	case OPTIONS_KIND_PATH: return options_parse_path(text, place, ret_reason);
	case OPTIONS_KIND_HOSTS:
	case OPTIONS_KIND_ORIGINS: return options_add_name(entry->kind, text, place, ret_reason);
	case OPTIONS_KIND_FRACTION: return options_parse_fraction(text, place, ret_reason);
	case OPTIONS_KIND_SWITCH: /* false or true: 0 or 1 */
	case OPTIONS_KIND_CHOICE: /* an enum of ours has the size of uint32_t */
		return options_parse_choice(entry->choices, text, place, ret_reason);
	case OPTIONS_KIND_U32:
	case OPTIONS_KIND_U64:
		if (!options_parse_number(text, entry->min, entry->max, &number, ret_reason))
			return false;
		if (entry->kind == OPTIONS_KIND_U64)
			memcpy(place, &number, sizeof number);
		else
			memcpy(place, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
		return true;
	case OPTIONS_KIND_CONFIG:
	case OPTIONS_KIND_HELP:
	case OPTIONS_KIND_VERSION: break;
	}
	return true;
}
