/* SPDX-License-Identifier: MIT */
/* The keys file: JSON -> struct keys, and the life of that struct. See auth.h.
 *
 * The first mistake ends it, with a message that names its position: "line 3, column 7: …" if the text is not JSON,
 * else "keys[2].prefixes[0]: …". A message never repeats a part of the file, which might be a key or a hash in the
 * wrong member. The only exception is a short and plain name of a member.
 *
 * The texts of the result are those of the parsed JSON, which it owns. `usages` is the only state: one usage for each
 * name of a key in any living `struct keys`. Only loading and freeing take the lock: requests change a usage by atomic
 * operations. Any thread. */
#include <assert.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"

enum { MEMBER_NAME_MAX = 20 }; /* longer names are not shown: they could be a hash or a key */

/* ---- keys, and usages, which outlive a reload ---- */

static pthread_mutex_t usages_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, key_usage) usages;

/* The usage of the key with this name, an existing or a new one. Adds a reference. */
static struct key_usage *usage_get(const char *name)
{
	assert(strlen(name) > 0 && strlen(name) <= KEY_NAME_MAX);
	pthread_mutex_lock(&usages_lock);
	struct key_usage *usage = LIST_FIRST(&usages);
	while (usage && strcmp(usage->name, name) != 0)
		usage = LIST_NEXT(usage, others);
	if (!usage) {
		usage = memory_zeroed(1, sizeof *usage);
		strcpy(usage->name, name);
		LIST_INSERT_HEAD(&usages, usage, others);
	}
	usage->references++;
	pthread_mutex_unlock(&usages_lock);
	return usage;
}

/* Returns a reference; with the last one the usage is freed. */
static void usage_put(struct key_usage *usage)
{
	pthread_mutex_lock(&usages_lock);
	assert(usage->references > 0);
	if (--usage->references == 0) {
		assert(atomic_load(&usage->waiting) == 0);
		LIST_REMOVE(usage, others);
		free(usage);
	}
	pthread_mutex_unlock(&usages_lock);
}

struct keys *keys_ref(struct keys *keys)
{
	unsigned before = atomic_fetch_add_explicit(&keys->references, 1, memory_order_relaxed);
	assert(before > 0);
	return keys;
}

void keys_unref(struct keys *keys)
{
	if (!keys || atomic_fetch_sub_explicit(&keys->references, 1, memory_order_acq_rel) > 1)
		return;
	assert(atomic_load(&keys->references) == 0 && keys->count <= KEYS_MAX);
	for (size_t i = 0; i < keys->count; i++) {
		if (keys->keys[i].usage)
			usage_put(keys->keys[i].usage);
		free(keys->keys[i].prefixes);
	}
	json_decref(keys->root);
	free(keys);
}

/* ---- parsing ---- */

/* The position of the parser. */
struct reading {
	struct keys *keys;
	struct key *key;    /* the last one of `keys` */
	const char *member; /* of the key; NULL: the key as a whole */
	int item;           /* of a member that is a list; -1: the member as a whole */
	char reason[128];   /* for a reason that is not static */
};

/* NULL, or the reason why the value is rejected, static or in reading->reason. */
typedef const char *parse_fn(struct reading *reading, const json_t *value);

__attribute__((format(printf, 2, 3))) static const char *explain(struct reading *reading, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(reading->reason, sizeof reading->reason, format, args);
	va_end(args);
	return reading->reason;
}

/* ---- members, or the items of those that are lists ---- */

static bool is_name(const char *text, size_t len, size_t max)
{
	return len > 0 && len <= max &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

static const char *parse_name(struct reading *reading, const json_t *value)
{
	const char *name = json_string_value(value);
	if (!name || !is_name(name, json_string_length(value), KEY_NAME_MAX))
		return explain(reading,
			       "must be a string of 1 to %d letters, digits, full stops, underscores and hyphens",
			       KEY_NAME_MAX);
	assert(!reading->key->name);
	for (const struct key *other = reading->keys->keys; other < reading->key; other++)
		if (strcmp(other->name, name) == 0)
			return explain(reading, "is also that of keys[%td]", other - reading->keys->keys);
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
		return explain(reading, "must be a string of 1 to %d bytes without control characters",
			       KEY_CERTIFICATE_MAX);
	if (keys_find_certificate(reading->keys, &text, 1))
		return "is in the file already";
	reading->key->certificates[reading->key->certificate_count++] = text;
	return NULL;
}

static const char *parse_prefix(struct reading *reading, const json_t *value)
{
	struct key *key = reading->key;
	struct key_prefix prefix = {.bytes = json_string_value(value), .len = json_string_length(value)};
	assert(key->prefix_count < KEY_PREFIXES_MAX);
	if (!prefix.bytes || prefix.len > KEY_PREFIX_MAX || utf8_has_control(prefix.bytes, prefix.len))
		return explain(reading, "must be a string of at most %d bytes without control characters",
			       KEY_PREFIX_MAX);
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
		return explain(reading, "must be a whole number from 1 to %d", max);
	*ret_bound = (uint32_t)json_integer_value(value);
	return NULL;
}

/* ---- one key ---- */

static const struct member {
	const char *name;
	parse_fn *parse;       /* the member, or each of its items; NULL: a bound */
	size_t items_max;      /* 0: not a list */
	const char *list_rule; /* the reason for a list of another length */
	bool or_one;           /* one item may stand without a list */
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

static const char *parse_key_member(struct reading *reading, const struct member *member, const json_t *value)
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

static const char *parse_named(struct reading *reading, const char *name, const json_t *value)
{
	for (size_t i = 0; i < sizeof members / sizeof *members; i++)
		if (strcmp(members[i].name, name) == 0)
			return parse_key_member(reading, &members[i], value);
	reading->member = NULL;
	if (is_name(name, strlen(name), MEMBER_NAME_MAX))
		return explain(reading, "has the unknown member \"%s\"", name);
	return "has an unknown member";
}

static const char *parse_key_entry(struct reading *reading, json_t *object)
{
	struct key *key = reading->key;
	const char *name, *reason = NULL;
	json_t *value;
	if (!json_is_object(object))
		return "must be a JSON object";
	json_object_foreach(object, name, value)
	{
		if ((reason = parse_named(reading, name, value)))
			return reason;
	}
	/* the required members, in the order of their messages */
	bool found = key->hash_count > 0 || key->certificate_count > 0;
	reading->member = !key->name ? "name" : !found ? NULL : key->prefix_count == 0 ? "prefixes" : "rights";
	if (key->name && !found)
		return "needs \"sha256\" or \"certificates\"";
	if (key->name && key->prefix_count == 0)
		return "is required (\"\" stands for every resource)";
	if (!key->name || key->rights == 0)
		return "is required";
	key->usage = usage_get(key->name);
	return NULL;
}

/* ---- the file ---- */

const char *keys_json_reason(const struct json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_duplicate_key: return "a member is given twice";
	case json_error_null_character:
	case json_error_null_byte_in_key: return "NUL is not allowed";
	case json_error_invalid_utf8: return "not valid UTF-8";
	case json_error_numeric_overflow: return "a number that is too large";
	case json_error_end_of_input_expected: return "text after the end of the object";
	case json_error_stack_overflow: return "nested too deeply";
	default: return "not valid JSON";
	}
}

/* Parses the items of `list`. False, and a message. */
static bool parse_list(struct keys *keys, const json_t *list, char *message, size_t message_size)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct reading reading = {.keys = keys, .key = &keys->keys[i], .item = -1};
		char item[16] = "";
		keys->count++; /* before it is complete, so that keys_unref() frees its parts */
		const char *reason = parse_key_entry(&reading, json_array_get(list, i));
		if (!reason)
			continue;
		if (reading.item >= 0)
			snprintf(item, sizeof item, "[%d]", reading.item);
		snprintf(message, message_size, "keys[%zu]%s%s%s: %s", i, reading.member ? "." : "",
			 reading.member ? reading.member : "", item, reason);
		return false;
	}
	return true;
}

struct keys *keys_parse(const char *bytes, size_t len, char *message, size_t message_size)
{
	json_error_t error;
	struct keys *keys = NULL;
	assert(len <= KEYS_FILE_MAX && message_size > 0);
	json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &error), *list = json_object_get(root, "keys");
	if (!root) {
		snprintf(message, message_size, "line %d, column %d: %s", error.line, error.column,
			 keys_json_reason(&error));
	} else if (json_object_size(root) != 1 || !list) {
		snprintf(message, message_size, "line 1: must be a JSON object with the one member \"keys\"");
	} else if (json_array_size(list) < 1 || json_array_size(list) > KEYS_MAX) { /* 0: no list */
		snprintf(message, message_size, "keys: must be a list of 1 to %d keys", KEYS_MAX);
	} else {
		keys = memory_zeroed(1, sizeof *keys + json_array_size(list) * sizeof keys->keys[0]);
		atomic_init(&keys->references, 1);
		keys->root = json_incref(root);
		if (!parse_list(keys, list, message, message_size)) {
			keys_unref(keys);
			keys = NULL;
		}
	}
	json_decref(root);
	return keys;
}

struct keys *keys_load(const char *path, char *message, size_t message_size)
{
	char wrong[KEYS_MESSAGE_MAX];
	struct keys *keys = NULL;
	struct text text;
	assert(message_size > 0);
	text_init(&text);
	if (secret_file_read(path, SECRET_FILE_TRUSTED, KEYS_FILE_MAX, &text, message, message_size)) {
		keys = keys_parse(text.bytes, text.len, wrong, sizeof wrong);
		if (!keys)
			snprintf(message, message_size, "%s: %s", path, wrong);
	}
	text_fini(&text);
	return keys;
}
