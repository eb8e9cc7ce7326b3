/* Fuzz target: the keys file (api/auth/keys_parse.c). Input: the file. */
#include <ctype.h>
#include <jansson.h>

#include "api/auth/auth.h"
#include "fuzz_words.h"

#define SECRET "correct-horse-battery"
#define SECRET_HASH                                                                                                    \
	"\x62\x24\x93\x69\x38\x90\x75\x49\x05\x55\xa7\x58\x35\x3a\xec\x61\x50\x0c\x62\x18\xfa\x59\x72\x52\xd5\x2d\xc4" \
	"\xbd\x01\x48\xf1\x2d"

enum { RIGHT_COUNT = 4 };
static const char *const rights[RIGHT_COUNT] = {"acquire", "inspect", "list", "admin"};

#ifdef FUZZ_MUTATED
/* A key that may list gets the rights of the key after it as well. */
static struct keys *keys_parse_mutated(const char *bytes, size_t len, char *message, size_t message_size)
{
	struct keys *keys = keys_parse(bytes, len, message, message_size);
	for (size_t i = 0; keys != NULL && i + 1 < keys->count; i++)
		if (keys->keys[i].rights & ACCESS_RIGHT(ACCESS_LIST))
			keys->keys[i].rights |= keys->keys[i + 1].rights;
	return keys;
}
#define keys_parse keys_parse_mutated
#endif

/* ---- the file and what was read of it, both in one form ---- */

static json_t *list_of(const char *const items[], size_t count)
{
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_string(items[i]));
	return list;
}

static json_t *hashes_of(const struct key *key)
{
	json_t *list = json_array();
	for (size_t i = 0; i < key->hash_count; i++) {
		char text[2 * KEY_HASH_LEN + 1];
		for (size_t byte = 0; byte < KEY_HASH_LEN; byte++)
			snprintf(text + 2 * byte, 3, "%02x", key->hashes[i][byte]);
		json_array_append_new(list, json_string(text));
	}
	return list;
}

static json_t *rights_of(const struct key *key)
{
	json_t *list = json_array();
	for (unsigned bit = 0; bit < RIGHT_COUNT; bit++)
		if (key->rights & 1u << bit)
			json_array_append_new(list, json_string(rights[bit]));
	return list;
}

static void add_bound(json_t *object, const char *name, uint32_t bound)
{
	if (bound > 0)
		json_object_set_new(object, name, json_integer(bound));
}

/* A key written again. */
static json_t *write_key(const struct key *key)
{
	json_t *object = json_object(), *prefixes = json_array();
	for (size_t i = 0; i < key->prefix_count; i++)
		json_array_append_new(prefixes, json_stringn(key->prefixes[i].bytes, key->prefixes[i].len));
	json_object_set_new(object, "name", json_string(key->name));
	if (key->hash_count > 0)
		json_object_set_new(object, "sha256", hashes_of(key));
	if (key->certificate_count > 0)
		json_object_set_new(object, "certificates", list_of(key->certificates, key->certificate_count));
	json_object_set_new(object, "prefixes", prefixes);
	json_object_set_new(object, "rights", rights_of(key));
	add_bound(object, "max_ttl_ms", key->max_ttl_ms);
	add_bound(object, "rate", key->rate);
	add_bound(object, "max_waiting", key->max_waiting);
	return object;
}

static json_t *write_keys(const struct keys *keys)
{
	json_t *list = json_array();
	for (size_t i = 0; i < keys->count; i++)
		json_array_append_new(list, write_key(&keys->keys[i]));
	return json_pack("{s:o}", "keys", list);
}

/* One text becomes a list of one. */
static void make_list(json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);
	if (json_is_string(value))
		json_object_set_new(object, name, json_pack("[O]", value));
}

static void make_lower(json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		char *text = fuzz_text(json_string_value(json_array_get(list, i)),
				       json_string_length(json_array_get(list, i)));
		for (char *c = text; *c != '\0'; c++)
			*c = (char)tolower((unsigned char)*c);
		json_array_set_new(list, i, json_string(text));
		free(text);
	}
}

static json_t *sort_rights(const json_t *list)
{
	json_t *sorted = json_array();
	for (unsigned bit = 0; bit < RIGHT_COUNT; bit++)
		for (size_t i = 0; i < json_array_size(list); i++)
			if (strcmp(json_string_value(json_array_get(list, i)), rights[bit]) == 0)
				json_array_append_new(sorted, json_string(rights[bit]));
	return sorted;
}

/* The file as it is, in the form of write_keys(). */
static json_t *read_file(const char *bytes, size_t len)
{
	json_t *root = json_loadb(bytes, len, 0, NULL), *list = json_object_get(root, "keys");
	MUST(root != NULL, "taken, and it is not JSON");
	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *object = json_array_get(list, i);
		make_list(object, "sha256");
		make_list(object, "certificates");
		make_lower(json_object_get(object, "sha256"));
		json_object_set_new(object, "rights", sort_rights(json_object_get(object, "rights")));
	}
	return root;
}

/* ---- what must hold ---- */

static void check_bounds(const struct key *key)
{
	size_t name = strlen(key->name);
	MUST(name >= 1 && name <= 64, "a name of %zu bytes", name);
	for (size_t i = 0; i < name; i++)
		MUST(isalnum((unsigned char)key->name[i]) || strchr("._-", key->name[i]) != NULL, "%s", key->name);
	MUST(key->rights >= 1 && key->rights <= 15, "rights %u", key->rights);
	MUST(key->hash_count <= 4 && key->certificate_count <= 8 && key->hash_count + key->certificate_count > 0,
	     "nobody can show it");
	MUST(key->prefix_count >= 1 && key->prefix_count <= 64, "%zu prefixes", key->prefix_count);
	for (size_t i = 0; i < key->prefix_count; i++)
		MUST(key->prefixes[i].len <= 256 && words_are_plain(key->prefixes[i].bytes, key->prefixes[i].len),
		     "a prefix of %zu bytes", key->prefixes[i].len);
	for (size_t i = 0; i < key->certificate_count; i++) {
		size_t len = strlen(key->certificates[i]);
		MUST(len >= 1 && len <= 1024 && words_are_plain(key->certificates[i], len),
		     "a certificate of %zu bytes", len);
	}
	MUST(key->max_ttl_ms <= 86400000 && key->rate <= 1000000 && key->max_waiting <= 1000000, "%s: bounds",
	     key->name);
	/* Nothing else is loaded: a file that was refused has left nothing behind. */
	MUST(strcmp(key->usage->name, key->name) == 0 && key->usage->references == 1, "%s: usage of %s", key->name,
	     key->usage->name);
}

/* Nothing that says who calls is there twice. */
static void check_apart(const struct key *key, const struct key *other)
{
	MUST(strcmp(key->name, other->name) != 0, "two of %s", key->name);
	for (size_t i = 0; i < key->hash_count; i++)
		for (size_t j = 0; j < other->hash_count; j++)
			MUST(memcmp(key->hashes[i], other->hashes[j], KEY_HASH_LEN) != 0, "%s and %s have one hash",
			     key->name, other->name);
	for (size_t i = 0; i < key->certificate_count; i++)
		for (size_t j = 0; j < other->certificate_count; j++)
			MUST(strcmp(key->certificates[i], other->certificates[j]) != 0,
			     "%s and %s have one certificate", key->name, other->name);
}

static bool begins_with_one(const struct key *key, const char *bytes, size_t len)
{
	for (size_t i = 0; i < key->prefix_count; i++) {
		size_t same = 0;
		while (same < len && same < key->prefixes[i].len && bytes[same] == key->prefixes[i].bytes[same])
			same++;
		if (same == key->prefixes[i].len)
			return true;
	}
	return false;
}

/* Each prefix of each key, whole and cut off, against this key. */
static void check_prefixes(const struct key *key, const struct key *other)
{
	for (size_t i = 0; i < other->prefix_count; i++)
		for (size_t cut = 0; cut < 3 && cut <= other->prefixes[i].len; cut++) {
			size_t len = other->prefixes[i].len - cut;
			char *bytes = fuzz_copy(other->prefixes[i].bytes, len);
			MUST(key_allows_prefix(key, bytes, len) == begins_with_one(key, bytes, len), "%s: %zu bytes",
			     key->name, len);
			free(bytes);
		}
}

static void check_found(const struct keys *keys, const struct key *key)
{
	unsigned char hash[KEY_HASH_LEN];

	for (size_t i = 0; i < key->certificate_count; i++)
		MUST(keys_find_certificate(keys, &key->certificates[i], 1) == key, "%s: not found by its certificate",
		     key->name);
	for (size_t i = 0; i < key->hash_count; i++)
		if (memcmp(key->hashes[i], SECRET_HASH, KEY_HASH_LEN) == 0)
			MUST(keys_find(keys, SECRET, strlen(SECRET), hash) == key, "%s: not found by its hash",
			     key->name);
}

static void check_keys(const struct keys *keys)
{
	MUST(keys->count <= 1000, "%zu keys", keys->count);
	for (size_t i = 0; i < keys->count; i++) {
		check_bounds(&keys->keys[i]);
		check_found(keys, &keys->keys[i]);
		for (size_t j = 0; j < keys->count; j++) {
			if (j < i)
				check_apart(&keys->keys[i], &keys->keys[j]);
			check_prefixes(&keys->keys[i], &keys->keys[j]);
		}
	}
}

/* Written and read again it is the same. */
static void check_again(const json_t *written)
{
	char message[KEYS_MESSAGE_MAX], *text = json_dumps(written, JSON_COMPACT);
	struct keys *keys = keys_parse(text, strlen(text), message, sizeof(message));
	MUST(keys != NULL, "written again it is refused: %s", message);
	json_t *again = write_keys(keys);
	MUST(json_equal(again, written), "written again it is another: %s", text);
	json_decref(again);
	keys_unref(keys);
	free(text);
}

/* One line that can be shown, says where, and holds nothing that could be a hash. */
static void check_message(const char *message)
{
	int place = 0, column = 0, end = 0;
	MUST(strlen(message) < KEYS_MESSAGE_MAX - 1 && words_are_plain(message, strlen(message)), "%s", message);
	bool text = sscanf(message, "line %d, column %d: %n", &place, &column, &end) == 2 && end > 0 && place >= 1 &&
		    column >= 0;
	bool whole = strncmp(message, "line 1: ", 8) == 0 || strncmp(message, "keys: ", 6) == 0;
	bool member = sscanf(message, "keys[%d]%n", &place, &end) == 1 && end > 0 && place >= 0 && place < KEYS_MAX &&
		      strchr(".:", message[end]) != NULL;
	MUST(text || whole || member, "no place: %s", message);
	MUST(strstr(message, ": ") != NULL && strlen(strstr(message, ": ")) > 8, "no reason: %s", message);
	for (const char *at = message; *at != '\0'; at++)
		MUST(strspn(at, "0123456789abcdefABCDEF") < 24, "a hash? %s", message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char message[KEYS_MESSAGE_MAX] = "";
	if (size > KEYS_FILE_MAX)
		return 0;
	char *bytes = fuzz_copy(data, size);
	struct keys *keys = keys_parse(bytes, size, message, sizeof(message));
	if (keys == NULL) {
		check_message(message);
		free(bytes);
		return 0;
	}
	MUST(message[0] == '\0', "taken, and yet: %s", message);
	check_keys(keys);
	json_t *written = write_keys(keys), *file = read_file(bytes, size);
	MUST(json_equal(written, file), "the file says something else");
	keys_unref(keys);
	check_again(written);
	json_decref(written);
	json_decref(file);
	free(bytes);
	return 0;
}
