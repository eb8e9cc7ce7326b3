/* SPDX-License-Identifier: MIT */
/* Claims of a token: finding, matching, and texts with claims in them. See auth_internal.h. Pure. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

enum { VALUE_MAX = 1024 /* bytes of a value that can match: patterns take time */ };

static const char bad_name[] = "must name a claim: 1 to 256 bytes without control characters, where %2F stands for a "
			       "slash within a name and %25 for a percent sign";

/* ---- names ---- */

/* Decodes the next part of a name, up to a slash or `end`, and moves *at behind it. Returns its length; 0:
 * malformed. */
static size_t claims_next_part(const char **at, const char *end, char part[ISSUER_TEXT_MAX + 1])
{
	size_t len = 0;
	for (; *at < end && **at != '/' && len < ISSUER_TEXT_MAX; (*at)++) {
		char c = **at;
		if (c == '%') {
			if (end - *at < 3 || (*at)[1] != '2' || !strchr("F5", (*at)[2]))
				return 0;
			c = (*at)[2] == 'F' ? '/' : '%';
			*at += 2;
		}
		part[len++] = c;
	}
	part[len] = '\0';
	return len;
}

static bool claims_is_name(const char *name, size_t len)
{
	const char *at = name, *end = name + len;
	char part[ISSUER_TEXT_MAX + 1];
	if (len == 0 || len > ISSUER_TEXT_MAX || utf8_has_control(name, len))
		return false;
	for (;;) {
		if (claims_next_part(&at, end, part) == 0)
			return false;
		if (at == end)
			return true;
		at++; /* the slash */
	}
}

const char *claims_check_name(const char *name)
{
	return claims_is_name(name, strlen(name)) ? NULL : bad_name;
}

const json_t *claims_find(const json_t *claims, const char *name, size_t len)
{
	const char *at = name, *end = name + len;
	char part[ISSUER_TEXT_MAX + 1];
	const json_t *value = claims;
	assert(claims_is_name(name, len));
	while (value && at <= end) {
		(void)claims_next_part(&at, end, part);
		value = json_object_get(value, part);
		at++; /* the slash, or the end */
	}
	return value;
}

/* ---- patterns ---- */

/* Tries the shortest text for each asterisk first. The last asterisk of two kinds that can be extended: one of a kind
 * is enough, since a later one takes all that an earlier one of its kind could. */
static bool claims_text_matches(const char *pattern, const char *text, const char *end)
{
	struct {
		const char *pattern,
			*text; /* where to go on: behind the asterisks, and one character more of the text */
	} one = {NULL, NULL}, any = {NULL, NULL};
	for (;;) {
		if (*pattern == '*') {
			bool many = pattern[1] == '*';
			pattern += many ? 2 : 1;
			if (many) {
				any.pattern = pattern;
				any.text = text;
				one.pattern = NULL;
			} else {
				one.pattern = pattern;
				one.text = text;
			}
		} else if (text == end && *pattern == '\0') {
			return true;
		} else if (text < end && *pattern == *text) {
			pattern++;
			text++;
		} else if (one.pattern && one.text < end && *one.text != ':') {
			pattern = one.pattern;
			text = ++one.text;
		} else if (any.pattern && any.text < end) {
			pattern = any.pattern;
			text = ++any.text;
			one.pattern = NULL;
		} else {
			return false;
		}
	}
}

static bool claims_value_matches(const json_t *value, const char *pattern)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);
	return text && len <= VALUE_MAX && claims_text_matches(pattern, text, text + len);
}

bool claims_match(const json_t *claims, const struct issuer_match *match)
{
	const json_t *value = claims_find(claims, match->claim, strlen(match->claim));
	if (!json_is_array(value))
		return claims_value_matches(value, match->pattern);
	for (size_t i = 0; i < json_array_size(value); i++)
		if (claims_value_matches(json_array_get(value, i), match->pattern))
			return true;
	return false;
}

/* ---- templates ---- */

const char *claims_check_template(const char *text, bool prefix)
{
	const char *at = text, *end;
	if (utf8_has_control(text, strlen(text)))
		return "must not have control characters";
	while (at[strcspn(at, "{}")] != '\0') {
		at += strcspn(at, "{}");
		end = at + 1 + strcspn(at + 1, "{}");
		if (*at != '{' || *end != '}' || !claims_is_name(at + 1, (size_t)(end - at) - 1))
			return "must have each claim in braces, as in \"{sub}\", and no other brace";
		if (prefix && end[1] != '/')
			return "must have a slash after each claim, as in \"{sub}/\", so that \"shop\" is not also "
			       "\"shopping\"";
		at = end + 1;
	}
	return NULL;
}

/* True if the value may stand in a name, or in a prefix of resources. */
static bool claims_may_stand(const char *value, size_t len, bool prefix)
{
	if (len == 0 || len > ISSUER_TEXT_MAX || utf8_has_control(value, len))
		return false;
	return !prefix || (!memchr(value, '/', len) && strspn(value, ".") < len);
}

char *claims_fill(const json_t *claims, const char *text, bool prefix)
{
	struct text filled;
	bool good = true;
	text_init(&filled);
	text_append(&filled, "", 0);
	while (good && *text != '\0') {
		size_t plain = strcspn(text, "{");
		text_append(&filled, text, plain);
		text += plain;
		if (*text == '\0')
			break;
		size_t len = strcspn(text, "}");
		const json_t *value = claims_find(claims, text + 1, len - 1);
		good = json_is_string(value) &&
		       claims_may_stand(json_string_value(value), json_string_length(value), prefix);
		if (good)
			text_append(&filled, json_string_value(value), json_string_length(value));
		text += len + 1;
	}
	if (good && filled.len <= ISSUER_TEXT_MAX && (prefix || filled.len > 0))
		return filled.bytes;
	text_fini(&filled);
	return NULL;
}
