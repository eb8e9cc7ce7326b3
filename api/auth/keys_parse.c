/* SPDX-License-Identifier: MIT */
/* The keys file: JSON -> struct keys. See auth.h.
 *
 * The first mistake ends it, with a message that names its position: "line 3, column 7: …" if the text is not JSON,
 * else "keys[2].prefixes[0]: …". A message never repeats a part of the file, which might be a key or a hash in the
 * wrong member. The only exception is a short and plain name of a member.
 *
 * The texts of the result are those of the parsed JSON, which it owns. Any thread. */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

/* ---- one key ---- */

static const char *parse_key_entry(struct reading *reading, json_t *object)
{
	struct key *key = reading->key;
	const char *name, *reason = NULL;
	json_t *value;
	if (!json_is_object(object))
		return "must be a JSON object";
	json_object_foreach(object, name, value)
	{
		if ((reason = parse_member(reading, name, value)))
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
	key->usage = usage_get(USAGE_KEY, key->name);
	return NULL;
}

/* ---- the file ---- */

/* Parses the items of `list`. False, and a message. */
static bool parse_keys(struct keys *keys, const json_t *list, char *message, size_t message_size)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct reading reading = {.keys = keys, .key = &keys->keys[i], .item = -1};
		snprintf(reading.where, sizeof reading.where, "keys[%zu]", i);
		keys->count++; /* before it is complete, so that keys_unref() frees its parts */
		const char *reason = parse_key_entry(&reading, json_array_get(list, i));
		if (!reason)
			continue;
		parse_write(&reading, reason, message, message_size);
		return false;
	}
	return true;
}

/* The keys in the JSON of a file. NULL, and a message. */
static struct keys *keys_make(json_t *root, char *message, size_t message_size)
{
	json_t *list = json_object_get(root, "keys"), *issuers = json_object_get(root, "issuers");
	size_t members = (list ? 1U : 0U) + (issuers ? 1U : 0U);
	if (members == 0 || json_object_size(root) != members) {
		snprintf(message, message_size,
			 "line 1: must be a JSON object with the members \"keys\", \"issuers\" or both, and no other");
		return NULL;
	}
	if (list && (json_array_size(list) < 1 || json_array_size(list) > KEYS_MAX)) { /* 0: no list */
		snprintf(message, message_size, "keys: must be a list of 1 to %d keys", KEYS_MAX);
		return NULL;
	}
	struct keys *keys = memory_zeroed(1, sizeof *keys + json_array_size(list) * sizeof keys->keys[0]);
	atomic_init(&keys->references, 1);
	keys->root = json_incref(root);
	if ((!list || parse_keys(keys, list, message, message_size)) &&
	    (!issuers || issuers_parse(keys, issuers, message, message_size)))
		return keys;
	keys_unref(keys);
	return NULL;
}

struct keys *keys_parse(const char *bytes, size_t len, char *message, size_t message_size)
{
	json_error_t error;
	struct keys *keys = NULL;
	assert(len <= KEYS_FILE_MAX && message_size > 0);
	json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &error);
	if (root)
		keys = keys_make(root, message, message_size);
	else
		snprintf(message, message_size, "line %d, column %d: %s", error.line, error.column,
			 keys_json_reason(&error));
	json_decref(root);
	return keys;
}

struct keys *keys_load_issuers(const struct keys *before, char *message, size_t message_size)
{
	/* A copy, since jansson reads its counts of references without synchronization, and another thread may drop
	 * `before`. */
	json_t *root = json_deep_copy(before->root);
	struct keys *keys = keys_make(root, message, message_size);
	json_decref(root);
	assert(keys); /* it was good before */
	bool loaded = issuers_load(keys, before, message, message_size);
	assert(loaded); /* each issuer had keys before */
	return keys;
}

struct keys *keys_load(const char *path, const struct keys *before, char *message, size_t message_size)
{
	char wrong[KEYS_MESSAGE_MAX];
	struct keys *keys = NULL;
	struct text text;
	assert(message_size > 0);
	text_init(&text);
	if (secret_file_read(path, SECRET_FILE_TRUSTED, KEYS_FILE_MAX, &text, message, message_size)) {
		keys = keys_parse(text.bytes, text.len, wrong, sizeof wrong);
		if (keys && !issuers_load(keys, before, wrong, sizeof wrong)) {
			keys_unref(keys);
			keys = NULL;
		}
		message[0] = '\0';
		if (wrong[0] != '\0')
			snprintf(message, message_size, "%s: %s", path, wrong);
	}
	text_fini(&text);
	return keys;
}
