/* SPDX-License-Identifier: MIT */
/* `issuers` in the keys file, and the files with their keys. See auth_internal.h. Messages as in keys_parse.c: a name
 * of a claim is shown only if it is short and plain. */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "auth_internal.h"

enum { CLAIM_SHOWN_MAX = 40 };

/* ---- a rule ---- */

/* Reads `match`. `shown`: room for the name of a claim in a message. */
static const char *parse_match(struct reading *reading, json_t *object, char *shown, size_t shown_size)
{
	struct issuer_rule *rule = reading->rule;
	const char *claim, *reason;
	json_t *value;
	reading->member = "match";
	if (json_object_size(object) < 1 || json_object_size(object) > ISSUER_MATCH_MAX)
		return parse_explain(reading, "must be a JSON object with 1 to %d claims", ISSUER_MATCH_MAX);
	rule->matches = memory_zeroed(json_object_size(object), sizeof *rule->matches);
	json_object_foreach(object, claim, value)
	{
		snprintf(shown, shown_size, "match.%s", claim);
		reading->member = parse_is_name(claim, strlen(claim), CLAIM_SHOWN_MAX) ? shown : "match";
		if ((reason = claims_check_name(claim)))
			return reason;
		if (json_string_length(value) < 1 || json_string_length(value) > ISSUER_TEXT_MAX)
			return parse_explain(reading, "must be a string of 1 to %d bytes", ISSUER_TEXT_MAX);
		rule->matches[rule->match_count++] = (struct issuer_match){claim, json_string_value(value)};
	}
	return NULL;
}

/* `shown`: as for parse_match(). */
static const char *parse_rule(struct reading *reading, json_t *object, char *shown, size_t shown_size)
{
	const struct key *key = reading->key;
	const char *name, *reason;
	json_t *value;
	if (!json_is_object(object))
		return "must be a JSON object";
	json_object_foreach(object, name, value)
	{
		reason = strcmp(name, "match") == 0 ? parse_match(reading, value, shown, shown_size)
						    : parse_member(reading, name, value);
		if (reason)
			return reason;
	}
	reading->member = reading->rule->match_count == 0 ? "match"
			  : !key->name                    ? "name"
			  : key->prefix_count == 0        ? "prefixes"
							  : "rights";
	return reading->rule->match_count == 0 || !key->name || key->prefix_count == 0 || key->rights == 0
		       ? "is required"
		       : NULL;
}

static bool parse_rules(struct keys *keys, struct issuer *issuer, const json_t *list, char *message, size_t size)
{
	ptrdiff_t index = issuer - keys->issuers;
	char shown[CLAIM_SHOWN_MAX + sizeof "match."];
	if (json_array_size(list) < 1 || json_array_size(list) > ISSUER_RULES_MAX) {
		snprintf(message, size, "issuers[%td].callers: must be a list of 1 to %d rules", index,
			 ISSUER_RULES_MAX);
		return false;
	}
	issuer->rules = memory_zeroed(json_array_size(list), sizeof *issuer->rules);
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct issuer_rule *rule = &issuer->rules[issuer->rule_count++];
		struct reading reading = {.keys = keys, .key = &rule->key, .rule = rule, .item = -1};
		snprintf(reading.where, sizeof reading.where, "issuers[%td].callers[%zu]", index, i);
		const char *reason = parse_rule(&reading, json_array_get(list, i), shown, sizeof shown);
		if (!reason)
			continue;
		parse_write(&reading, reason, message, size);
		return false;
	}
	return true;
}

/* ---- an issuer ---- */

static const char *parse_issuer_text(struct reading *reading, const json_t *value, const char **ret_text)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);
	if (len < 1 || len > ISSUER_TEXT_MAX || utf8_has_control(text, len))
		return parse_explain(reading, "must be a string of 1 to %d bytes without control characters",
				     ISSUER_TEXT_MAX);
	*ret_text = text;
	return NULL;
}

/* Reads all but `callers`. */
static const char *parse_issuer(struct reading *reading, struct issuer *issuer, json_t *object)
{
	const struct {
		const char *name, **text;
	} texts[] = {{"issuer", &issuer->name}, {"audience", &issuer->audience}, {"jwks_file", &issuer->jwks_file}};
	enum { TEXTS = sizeof texts / sizeof *texts };
	const char *name, *reason;
	json_t *value;
	if (!json_is_object(object))
		return "must be a JSON object";
	json_object_foreach(object, name, value)
	{
		size_t i = 0;
		while (i < TEXTS && strcmp(texts[i].name, name) != 0)
			i++;
		if (i == TEXTS && strcmp(name, "callers") == 0)
			continue;
		if (i == TEXTS)
			return parse_unknown(reading, name);
		reading->member = texts[i].name;
		if ((reason = parse_issuer_text(reading, value, texts[i].text)))
			return reason;
	}
	for (size_t i = 0; i < TEXTS; i++) {
		reading->member = texts[i].name;
		if (!*texts[i].text)
			return "is required";
	}
	reading->member = "issuer";
	for (const struct issuer *other = reading->keys->issuers; other < issuer; other++)
		if (strcmp(other->name, issuer->name) == 0)
			return parse_explain(reading, "is also that of issuers[%td]", other - reading->keys->issuers);
	return NULL;
}

bool issuers_parse(struct keys *keys, const json_t *list, char *message, size_t size)
{
	if (json_array_size(list) < 1 || json_array_size(list) > ISSUERS_MAX) {
		snprintf(message, size, "issuers: must be a list of 1 to %d issuers", ISSUERS_MAX);
		return false;
	}
	keys->issuers = memory_zeroed(json_array_size(list), sizeof *keys->issuers);
	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *object = json_array_get(list, i);
		struct issuer *issuer = &keys->issuers[keys->issuer_count++];
		struct reading reading = {.keys = keys, .item = -1};
		snprintf(reading.where, sizeof reading.where, "issuers[%zu]", i);
		const char *reason = parse_issuer(&reading, issuer, object);
		if (reason)
			parse_write(&reading, reason, message, size);
		if (reason || !parse_rules(keys, issuer, json_object_get(object, "callers"), message, size))
			return false;
	}
	return true;
}

/* ---- the files ---- */

/* Names the files as they are now: a mounted ConfigMap is a link to another folder after a change. */
uint64_t keys_files_mark(const struct keys *keys)
{
	uint64_t mark = 0;
	for (size_t i = 0; i < keys->issuer_count; i++) {
		struct stat file = {.st_size = -1};
		(void)stat(keys->issuers[i].jwks_file, &file); /* one that is not there counts, too */
		const uint64_t facts[] = {mark,
					  (uint64_t)file.st_dev,
					  (uint64_t)file.st_ino,
					  (uint64_t)file.st_size,
					  (uint64_t)file.st_mtim.tv_sec,
					  (uint64_t)file.st_mtim.tv_nsec};
		mark = hash_fnv1a(facts, sizeof facts) | 1;
	}
	return mark;
}

/* The public keys that the issuer had until now, or NULL. */
static struct jwks *issuers_find_set(const struct keys *before, const struct issuer *issuer)
{
	for (size_t i = 0; before && i < before->issuer_count; i++)
		if (strcmp(before->issuers[i].name, issuer->name) == 0 &&
		    strcmp(before->issuers[i].jwks_file, issuer->jwks_file) == 0)
			return before->issuers[i].jwks;
	return NULL;
}

bool issuers_load(struct keys *keys, const struct keys *before, char *message, size_t size)
{
	char wrong[KEYS_MESSAGE_MAX];
	size_t len = 0;
	message[0] = '\0';
	keys->files_mark = keys_files_mark(keys);
	for (size_t i = 0; i < keys->issuer_count; i++) {
		struct issuer *issuer = &keys->issuers[i];
		assert(!issuer->jwks);
		issuer->jwks = jwks_load(issuer->jwks_file, wrong, sizeof wrong);
		if (issuer->jwks)
			continue;
		if (len < size)
			len += (size_t)snprintf(message + len, size - len, "%sissuers[%zu].jwks_file: %s",
						len > 0 ? "; " : "", i, wrong);
		struct jwks *set = issuers_find_set(before, issuer);
		if (!set)
			return false;
		issuer->jwks = jwks_ref(set);
	}
	return true;
}
