/* SPDX-License-Identifier: MIT */
/* The members of a key in the keys file, and of a rule for the callers of an issuer, which has most of them, too. See
 * auth_internal.h. Pure. */
#include <assert.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

enum { MEMBER_NAME_MAX = 20 }; /* longer names are not shown: they could be a hash or a key */

/* NULL, or the reason why the value is rejected, static or in reading->reason. */
typedef const char *parse_fn(struct reading *reading, const json_t *value);

const char *parse_explain(struct reading *reading, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(reading->reason, sizeof reading->reason, format, args);
	va_end(args);
	return reading->reason;
}

/* ---- members, or the items of those that are lists ---- */

bool parse_is_name(const char *text, size_t len, size_t max)
{
	return len > 0 && len <= max &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

/* A text with claims in braces. */
static const char *parse_template(struct reading *reading, const json_t *value, bool prefix, const char **ret_text)
{
	const char *text = json_string_value(value), *reason;
	if (!text || (!prefix && text[0] == '\0') || json_string_length(value) > ISSUER_TEXT_MAX)
		return parse_explain(reading, "must be a string of at most %d bytes, not empty", ISSUER_TEXT_MAX);
	if ((reason = claims_check_template(text, prefix)))
		return reason;
	*ret_text = text;
	return NULL;
}

static const char *parse_name(struct reading *reading, const json_t *value)
{
	const char *name = json_string_value(value);
	if (reading->rule)
		return parse_template(reading, value, false, &reading->key->name);
	if (!name || !parse_is_name(name, json_string_length(value), KEY_NAME_MAX))
		return parse_explain(reading,
				     "must be a string of 1 to %d letters, digits, full stops, underscores and hyphens",
				     KEY_NAME_MAX);
	assert(!reading->key->name);
	for (const struct key *other = reading->keys->keys; other < reading->key; other++)
		if (strcmp(other->name, name) == 0)
			return parse_explain(reading, "is also that of keys[%td]", other - reading->keys->keys);
	reading->key->name = name;
	return NULL;
}

static const char *parse_hash(struct reading *reading, const json_t *value)
{
	struct key *key = reading->key;
	unsigned char *hash = key->hashes[key->hash_count];
	assert(key->hash_count < KEY_HASHES_MAX);
	if (json_string_length(value) != 2 * KEY_HASH_LEN || !hex_read(json_string_value(value), KEY_HASH_LEN, hash))
		return "must be a string of 64 hexadecimal digits";
	if (keys_find_hash(reading->keys, hash))
		return "is in the file already";
	key->hash_count++;
	return NULL;
}

static const char *parse_certificate(struct reading *reading, const json_t *value)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);
	assert(reading->key->certificate_count < KEY_CERTIFICATES_MAX);
	if (len == 0 || len > KEY_CERTIFICATE_MAX || utf8_has_control(text, len))
		return parse_explain(reading, "must be a string of 1 to %d bytes without control characters",
				     KEY_CERTIFICATE_MAX);
	if (keys_find_certificate(reading->keys, &text, 1))
		return "is in the file already";
	reading->key->certificates[reading->key->certificate_count++] = text;
	return NULL;
}

static const char *parse_prefix(struct reading *reading, const json_t *value)
{
	struct key *key = reading->key;
	const char *reason;
	struct key_prefix prefix = {.bytes = json_string_value(value), .len = json_string_length(value)};
	assert(key->prefix_count < KEY_PREFIXES_MAX);
	if (!prefix.bytes || prefix.len > KEY_PREFIX_MAX || utf8_has_control(prefix.bytes, prefix.len))
		return parse_explain(reading, "must be a string of at most %d bytes without control characters",
				     KEY_PREFIX_MAX);
	if (reading->rule && (reason = parse_template(reading, value, true, &prefix.bytes)))
		return reason;
	key->prefixes = memory_resize(key->prefixes, (key->prefix_count + 1) * sizeof prefix);
	key->prefixes[key->prefix_count++] = prefix;
	return NULL;
}

static const char *parse_right(struct reading *reading, const json_t *value)
{
	enum access_need need = ACCESS_ACQUIRE;
	while (need < ACCESS_NEED_COUNT &&
	       (!json_is_string(value) || strcmp(json_string_value(value), access_right_name(need)) != 0))
		need++;
	if (need == ACCESS_NEED_COUNT)
		return "must be \"acquire\", \"inspect\", \"list\" or \"admin\"";
	if (reading->key->rights & ACCESS_RIGHT(need))
		return "is given twice";
	reading->key->rights |= ACCESS_RIGHT(need);
	return NULL;
}

static const char *parse_bound(struct reading *reading, const json_t *value, int max, uint32_t *ret_bound)
{
	assert(max >= 1 && *ret_bound == 0);
	if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > max)
		return parse_explain(reading, "must be a whole number from 1 to %d", max);
	*ret_bound = (uint32_t)json_integer_value(value);
	return NULL;
}

/* ---- one key ---- */

static const struct member {
	const char *name;
	parse_fn *parse;       /* the member, or each of its items; NULL: a bound */
	size_t items_max;      /* 0: not a list */
	const char *list_rule; /* the reason for a list of another length */
	bool or_one;           /* one item may stand without a list; not for a rule */
	size_t bound_at;       /* in struct key */
	int bound_max;
} members[] = {
	{"name", .parse = parse_name},
	{"sha256", parse_hash, KEY_HASHES_MAX, "must have 1 to 4 items", .or_one = true},
	{"certificates", parse_certificate, KEY_CERTIFICATES_MAX, "must have 1 to 8 items", .or_one = true},
	{"prefixes", parse_prefix, KEY_PREFIXES_MAX, "must be a list of 1 to 64 strings", .or_one = false},
	{"rights", parse_right, SIZE_MAX, "must be a list with at least one right", .or_one = false},
	{"max_ttl_ms", .bound_at = offsetof(struct key, max_ttl_ms), .bound_max = KEY_TTL_MAX},
	{"rate", .bound_at = offsetof(struct key, rate), .bound_max = KEY_RATE_MAX},
	{"max_waiting", .bound_at = offsetof(struct key, max_waiting), .bound_max = KEY_WAITING_MAX},
};
static_assert(KEY_HASHES_MAX == 4 && KEY_CERTIFICATES_MAX == 8 && KEY_PREFIXES_MAX == 64, "as the rules say");

static const char *parse_value(struct reading *reading, const struct member *member, const json_t *value)
{
	const char *reason = NULL;
	size_t count = json_array_size(value);
	reading->member = member->name;
	if (!member->parse)
		return parse_bound(reading, value, member->bound_max,
				   (uint32_t *)(void *)((char *)reading->key + member->bound_at));
	if (member->items_max == 0 || (member->or_one && json_is_string(value)))
		return member->parse(reading, value);
	if (member->or_one && !json_is_array(value))
		return "must be a string or a list of strings";
	if (count == 0 || count > member->items_max)
		return member->list_rule;
	for (size_t i = 0; i < count && !reason; i++) {
		reading->item = (int)i;
		reason = member->parse(reading, json_array_get(value, i));
	}
	if (!reason)
		reading->item = -1;
	return reason;
}

const char *parse_unknown(struct reading *reading, const char *name)
{
	reading->member = NULL;
	if (parse_is_name(name, strlen(name), MEMBER_NAME_MAX))
		return parse_explain(reading, "has the unknown member \"%s\"", name);
	return "has an unknown member";
}

const char *parse_member(struct reading *reading, const char *name, const json_t *value)
{
	for (size_t i = 0; i < sizeof members / sizeof *members; i++)
		if (strcmp(members[i].name, name) == 0 && (!reading->rule || !members[i].or_one))
			return parse_value(reading, &members[i], value);
	return parse_unknown(reading, name);
}

void parse_write(const struct reading *reading, const char *reason, char *message, size_t message_size)
{
	char item[16] = "";
	if (reading->item >= 0)
		snprintf(item, sizeof item, "[%d]", reading->item);
	snprintf(message, message_size, "%s%s%s%s: %s", reading->where, reading->member ? "." : "",
		 reading->member ? reading->member : "", item, reason);
}
