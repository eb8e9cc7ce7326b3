/* The keys file: JSON -> struct keys, and the life of that struct. See keys.h.
 *
 * Strict: {"keys": [{…}, …]} and nothing else; no unknown or repeated member, no NUL, no trailing bytes, integers only
 * where integers are meant. The first mistake in the order of the text ends it, with a message that names its position:
 * "line 3, column 7: …" where the text is not JSON, else "keys[2].prefixes[0]: …". A message never repeats a part of
 * the file, since it might be a key or a hash in the wrong member. The exception is the name of a member that is short
 * and plain.
 *
 * The texts of the result are those of the parsed JSON, which it owns. No other state; any thread. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_memory.h"
#include "keys.h"
#include "keys_internal.h"
#include "server/base/base.h"

enum { MEMBER_NAME_MAX = 20 }; /* longer names are not shown: they could be a hash or a key */

/* The key that is being parsed, and the buffer of the message. */
struct reading {
	struct keys *keys;
	struct key *key;
	size_t index; /* keys[index] */
	char *message;
	size_t message_size;
};

/* Parses one member of a key. False: the message is written. */
typedef bool parse_fn(struct reading *reading, const json_t *value);

/* "keys[3].rights: reason", and false. `member` is "" or begins with a full stop. */
__attribute__((format(printf, 3, 4))) static bool reject(struct reading *reading, const char *member,
							 const char *format, ...)
{
	char reason[128];
	va_list args;

	assert(member[0] == '\0' || member[0] == '.');
	va_start(args, format);
	vsnprintf(reason, sizeof reason, format, args);
	va_end(args);
	snprintf(reading->message, reading->message_size, "keys[%zu]%s: %s", reading->index, member, reason);
	return false;
}

static bool reject_item(struct reading *reading, const char *member, size_t item, const char *reason)
{
	char where[48];

	snprintf(where, sizeof where, ".%s[%zu]", member, item);
	return reject(reading, where, "%s", reason);
}

/* ---- members ---- */

static bool is_name(const char *text, size_t len, size_t max)
{
	return len > 0 && len <= max &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

static bool parse_name(struct reading *reading, const json_t *value)
{
	if (!json_is_string(value) || !is_name(json_string_value(value), json_string_length(value), KEY_NAME_MAX))
		return reject(reading, ".name",
			      "must be a string of 1 to %d letters, digits, full stops, underscores and hyphens",
			      KEY_NAME_MAX);
	assert(!reading->key->name && reading->key == &reading->keys->keys[reading->index]);
	for (size_t i = 0; i < reading->index; i++)
		if (strcmp(reading->keys->keys[i].name, json_string_value(value)) == 0)
			return reject(reading, ".name", "is also that of keys[%zu]", i);
	reading->key->name = json_string_value(value);
	return true;
}

static bool parse_hex(const json_t *value, unsigned char ret_hash[KEY_HASH_LEN])
{
	const char *text = json_string_value(value);

	if (!text || json_string_length(value) != 2 * KEY_HASH_LEN)
		return false;
	for (size_t i = 0; i < KEY_HASH_LEN; i++) {
		int high = text_hex_digit(text[2 * i]), low = text_hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		ret_hash[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

/* NULL, or the reason (static) why this key cannot have the hash. */
static const char *parse_hash(struct reading *reading, const json_t *value)
{
	struct key *key = reading->key;

	assert(key->hash_count < KEY_HASHES_MAX);
	if (!parse_hex(value, key->hashes[key->hash_count]))
		return "must be a string of 64 hexadecimal digits";
	for (const struct key *other = reading->keys->keys; other <= key; other++)
		for (size_t i = 0; i < other->hash_count; i++)
			if (memcmp(other->hashes[i], key->hashes[key->hash_count], KEY_HASH_LEN) == 0)
				return "is in the file already";
	key->hash_count++;
	return NULL;
}

static const char *parse_certificate(struct reading *reading, const json_t *value)
{
	const char *text = json_string_value(value);
	struct key *key = reading->key;

	assert(key->certificate_count < KEY_CERTIFICATES_MAX);
	if (!text || json_string_length(value) == 0 || json_string_length(value) > KEY_CERTIFICATE_MAX ||
	    utf8_has_control(text, json_string_length(value)))
		return "must be a string of 1 to 1024 bytes without control characters";
	for (const struct key *other = reading->keys->keys; other <= key; other++)
		for (size_t i = 0; i < other->certificate_count; i++)
			if (strcmp(other->certificates[i], text) == 0)
				return "is in the file already";
	key->certificates[key->certificate_count++] = text;
	return NULL;
}

/* One text or a list of at most `max`. */
static bool parse_texts(struct reading *reading, const char *member, const json_t *value, size_t max,
			const char *(*parse)(struct reading *reading, const json_t *value))
{
	char where[32];

	assert(strlen(member) + 2 <= sizeof where);
	snprintf(where, sizeof where, ".%s", member);
	if (!json_is_array(value)) {
		const char *reason = json_is_string(value) ? parse(reading, value)
							   : "must be a string or a list of strings";
		return !reason || reject(reading, where, "%s", reason);
	}
	if (json_array_size(value) == 0 || json_array_size(value) > max)
		return reject(reading, where, "must have 1 to %zu items", max);
	for (size_t i = 0; i < json_array_size(value); i++) {
		const char *reason = parse(reading, json_array_get(value, i));
		if (reason)
			return reject_item(reading, member, i, reason);
	}
	return true;
}

static bool parse_sha256(struct reading *reading, const json_t *value)
{
	return parse_texts(reading, "sha256", value, KEY_HASHES_MAX, parse_hash);
}

static bool parse_certificates(struct reading *reading, const json_t *value)
{
	return parse_texts(reading, "certificates", value, KEY_CERTIFICATES_MAX, parse_certificate);
}

static bool parse_prefixes(struct reading *reading, const json_t *value)
{
	struct key *key = reading->key;
	size_t count = json_array_size(value); /* 0: not a list */

	if (count == 0 || count > KEY_PREFIXES_MAX)
		return reject(reading, ".prefixes", "must be a list of 1 to %d strings", KEY_PREFIXES_MAX);
	assert(!key->prefixes && key->prefix_count == 0);
	key->prefixes = calloc(count, sizeof *key->prefixes);
	if (!key->prefixes)
		return reject(reading, ".prefixes", "out of memory");
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(value, i);
		size_t len = json_string_length(item);
		if (!json_is_string(item) || len > KEY_PREFIX_MAX || utf8_has_control(json_string_value(item), len))
			return reject_item(reading, "prefixes", i,
					   "must be a string of at most 256 bytes without control characters");
		key->prefixes[key->prefix_count++] = (struct key_prefix){.bytes = json_string_value(item), .len = len};
	}
	return true;
}

/* The bit of a right; 0: no such right. */
static unsigned right_of(const json_t *value)
{
	for (unsigned bit = 0; json_is_string(value) && bit < KEY_RIGHT_COUNT; bit++)
		if (strcmp(json_string_value(value), key_right_name((enum key_right)(1u << bit))) == 0)
			return 1u << bit;
	return 0;
}

static bool parse_rights(struct reading *reading, const json_t *value)
{
	size_t count = json_array_size(value);

	assert(reading->key->rights == 0);
	if (count == 0)
		return reject(reading, ".rights", "must be a list with at least one right");
	for (size_t i = 0; i < count; i++) {
		unsigned right = right_of(json_array_get(value, i));
		if (right == 0)
			return reject_item(reading, "rights", i,
					   "must be \"acquire\", \"inspect\", \"list\" or \"admin\"");
		if (reading->key->rights & right)
			return reject_item(reading, "rights", i, "is given twice");
		reading->key->rights |= right;
	}
	return true;
}

static bool parse_bound(struct reading *reading, const char *where, const json_t *value, int max, uint32_t *ret_bound)
{
	assert(max >= 1 && *ret_bound == 0);
	if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > max)
		return reject(reading, where, "must be a whole number from 1 to %d", max);
	*ret_bound = (uint32_t)json_integer_value(value);
	return true;
}

static bool parse_max_ttl(struct reading *reading, const json_t *value)
{
	return parse_bound(reading, ".max_ttl_ms", value, KEY_TTL_MAX, &reading->key->max_ttl_ms);
}

static bool parse_rate(struct reading *reading, const json_t *value)
{
	return parse_bound(reading, ".rate", value, KEY_RATE_MAX, &reading->key->rate);
}

static bool parse_max_waiting(struct reading *reading, const json_t *value)
{
	return parse_bound(reading, ".max_waiting", value, KEY_WAITING_MAX, &reading->key->max_waiting);
}

static const struct {
	const char *name;
	parse_fn *parse;
} members[] = {
	{"name", parse_name},         {"sha256", parse_sha256},           {"certificates", parse_certificates},
	{"prefixes", parse_prefixes}, {"rights", parse_rights},           {"max_ttl_ms", parse_max_ttl},
	{"rate", parse_rate},         {"max_waiting", parse_max_waiting},
};
enum { MEMBER_COUNT = sizeof members / sizeof members[0] };

/* ---- one key ---- */

static bool parse_member(struct reading *reading, const char *name, const json_t *value)
{
	for (size_t i = 0; i < MEMBER_COUNT; i++)
		if (strcmp(members[i].name, name) == 0)
			return members[i].parse(reading, value);
	if (is_name(name, strlen(name), MEMBER_NAME_MAX))
		return reject(reading, "", "has the unknown member \"%s\"", name);
	return reject(reading, "", "has an unknown member");
}

/* Whether all required members were given. */
static bool check_whole(struct reading *reading)
{
	const struct key *key = reading->key;

	if (!key->name)
		return reject(reading, ".name", "is required");
	if (key->hash_count == 0 && key->certificate_count == 0)
		return reject(reading, "", "needs \"sha256\" or \"certificates\"");
	if (key->prefix_count == 0)
		return reject(reading, ".prefixes", "is required (\"\" stands for every resource)");
	if (key->rights == 0)
		return reject(reading, ".rights", "is required");
	return true;
}

static bool parse_key(struct reading *reading, json_t *object)
{
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return reject(reading, "", "must be a JSON object");
	json_object_foreach(object, name, value)
	{
		if (!parse_member(reading, name, value))
			return false;
	}
	if (!check_whole(reading))
		return false;
	assert(!reading->key->usage);
	reading->key->usage = keys_usage_get(reading->key->name);
	return reading->key->usage || reject(reading, "", "out of memory");
}

/* ---- the file ---- */

/* Why jansson rejected the text. Its own message repeats parts of the text. */
static const char *parse_reason(const json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_duplicate_key: return "a member is given twice";
	case json_error_null_character:
	case json_error_null_byte_in_key: return "NUL is not allowed";
	case json_error_invalid_utf8: return "not valid UTF-8";
	case json_error_numeric_overflow: return "a number that is too large";
	case json_error_end_of_input_expected: return "text after the end of the object";
	case json_error_stack_overflow: return "nested too deeply";
	case json_error_out_of_memory: return "out of memory";
	default: return "not valid JSON";
	}
}

/* The list in {"keys": …}, borrowed from `root`; NULL: the message is written. */
static json_t *list_of(json_t *root, char *message, size_t message_size)
{
	json_t *list = json_object_get(root, "keys");

	if (!json_is_object(root) || json_object_size(root) != 1 || !list)
		snprintf(message, message_size, "line 1: must be a JSON object with the one member \"keys\"");
	else if (!json_is_array(list))
		snprintf(message, message_size, "keys: must be a list");
	else if (json_array_size(list) > KEYS_MAX)
		snprintf(message, message_size, "keys: must have at most %d items", KEYS_MAX);
	else
		return list;
	return NULL;
}

/* Takes over `root`. */
static struct keys *keys_new(json_t *root, char *message, size_t message_size)
{
	json_t *list = list_of(root, message, message_size);
	struct keys *keys = list ? calloc(1, sizeof *keys) : NULL;
	/* + 1: calloc() of no bytes may return NULL */
	struct key *array = list ? calloc(json_array_size(list) + 1, sizeof *array) : NULL;

	if (!keys || !array) {
		if (list)
			snprintf(message, message_size, "keys: out of memory");
		free(keys);
		free(array);
		json_decref(root);
		return NULL;
	}
	atomic_init(&keys->references, 1);
	keys->keys = array;
	keys->root = root;
	return keys;
}

static json_t *parse_json(const char *bytes, size_t len, char *message, size_t message_size)
{
	json_error_t error;
	json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &error);

	if (json_memory_failed()) { /* the prefix "orders/" could have become "" */
		snprintf(message, message_size, "keys: out of memory");
		json_decref(root);
		return NULL;
	}
	if (!root)
		snprintf(message, message_size, "line %d, column %d: %s", error.line, error.column,
			 parse_reason(&error));
	return root;
}

struct keys *keys_ref(struct keys *keys)
{
	unsigned before = atomic_fetch_add_explicit(&keys->references, 1, memory_order_relaxed);
	assert(before > 0);
	return keys;
}

void keys_unref(struct keys *keys)
{
	if (!keys)
		return;
	unsigned before = atomic_fetch_sub_explicit(&keys->references, 1, memory_order_acq_rel);
	assert(before > 0);
	if (before > 1)
		return;
	assert(keys->count <= KEYS_MAX);
	for (size_t i = 0; i < keys->count; i++) {
		if (keys->keys[i].usage)
			keys_usage_put(keys->keys[i].usage);
		free(keys->keys[i].prefixes);
	}
	free(keys->keys);
	json_decref(keys->root);
	free(keys);
}

struct keys *keys_parse(const char *bytes, size_t len, char *message, size_t message_size)
{
	struct reading reading = {.message = message, .message_size = message_size};

	assert(len <= KEYS_FILE_MAX && message_size > 0);
	json_t *root = parse_json(bytes, len, message, message_size);
	if (!root)
		return NULL;
	struct keys *keys = keys_new(root, message, message_size);
	if (!keys)
		return NULL;
	json_t *list = json_object_get(root, "keys");
	reading.keys = keys;
	for (; reading.index < json_array_size(list); reading.index++) {
		reading.key = &keys->keys[reading.index];
		keys->count++; /* before it is complete, so that keys_unref() frees its parts */
		if (!parse_key(&reading, json_array_get(list, reading.index))) {
			keys_unref(keys);
			return NULL;
		}
	}
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
