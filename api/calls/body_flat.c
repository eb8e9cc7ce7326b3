/* SPDX-License-Identifier: MIT */
/* A small part of JSON, in place. It must never accept a text that jansson rejects, nor read another value from it;
 * leaving a text to jansson only costs time. tests/fuzz/fuzz_body.c compares the two. Pure; any thread. */
#include <assert.h>

#include "calls_internal.h"

enum { DIGITS_MAX = 15 }; /* of a whole number: far from the bounds of 64 bits */

/* The text that has not been read yet. */
struct cursor {
	const char *at, *end;
};

static void skip_space(struct cursor *cursor)
{
	assert(cursor->at <= cursor->end);
	while (cursor->at < cursor->end &&
	       (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\n' || *cursor->at == '\r'))
		cursor->at++;
}

/* Skips the word and the space after it, or nothing if it is not there; likewise the next two functions. */
static bool scan_word(struct cursor *cursor, const char *word)
{
	const char *at = cursor->at;
	for (; *word != '\0'; at++, word++)
		if (at == cursor->end || *at != *word)
			return false;
	cursor->at = at;
	skip_space(cursor);
	return true;
}

static bool scan_string(struct cursor *cursor, struct body_value *ret_value)
{
	const char *from = cursor->at + 1, *at = from;
	if (cursor->at == cursor->end || *cursor->at != '"')
		return false;
	while (at < cursor->end && *at >= ' ' && *at <= '~' && *at != '"' && *at != '\\')
		at++;
	if (at == cursor->end || *at != '"')
		return false;
	*ret_value = (struct body_value){.kind = BODY_STRING, .bytes = from, .len = (size_t)(at - from)};
	cursor->at = at + 1;
	skip_space(cursor);
	return true;
}

static bool scan_integer(struct cursor *cursor, struct body_value *ret_value)
{
	const char *at = cursor->at;
	int64_t integer = 0;
	while (at < cursor->end && *at >= '0' && *at <= '9' && at - cursor->at < DIGITS_MAX)
		integer = integer * 10 + (*at++ - '0');
	if (at == cursor->at || (*cursor->at == '0' && at - cursor->at > 1))
		return false;
	*ret_value = (struct body_value){.kind = BODY_INTEGER, .integer = integer};
	cursor->at = at;
	skip_space(cursor);
	return true;
}

static bool scan_value(struct cursor *cursor, struct body_value *ret_value)
{
	if (scan_string(cursor, ret_value) || scan_integer(cursor, ret_value))
		return true;
	*ret_value = (struct body_value){.kind = BODY_BOOLEAN, .integer = scan_word(cursor, "true")};
	return ret_value->integer != 0 || scan_word(cursor, "false");
}

/* `bytes` NULL: there is no body. */
static struct cursor cursor_of(const char *bytes, size_t len)
{
	assert(bytes || len == 0);
	if (!bytes)
		bytes = ""; /* NULL + 0 is not defined */
	return (struct cursor){bytes, bytes + len};
}

bool body_flat_scan(const char *bytes, size_t len, body_visit_fn *visit, void *arg)
{
	struct cursor cursor = cursor_of(bytes, len);
	struct body_value name, value;
	skip_space(&cursor);
	if (!scan_word(&cursor, "{"))
		return false;
	if (!scan_word(&cursor, "}")) {
		do
			if (!scan_string(&cursor, &name) || !scan_word(&cursor, ":") || !scan_value(&cursor, &value) ||
			    !visit(arg, name.bytes, name.len, &value))
				return false;
		while (scan_word(&cursor, ","));
		if (!scan_word(&cursor, "}"))
			return false;
	}
	return cursor.at == cursor.end;
}

/* Skips an object and the space after it. Its text, up to the brace that closes it, may not be JSON. */
static bool scan_object(struct cursor *cursor, struct body_item *ret_item)
{
	const char *at = cursor->at;
	size_t depth = 0;
	bool quoted = false;
	if (at == cursor->end || *at != '{')
		return false;
	do {
		if (quoted && *at == '\\' && at + 1 < cursor->end)
			at++;
		else if (*at == '"')
			quoted = !quoted;
		else if (!quoted && *at == '{')
			depth++;
		else if (!quoted && *at == '}')
			depth--;
		at++;
	} while (depth > 0 && at < cursor->end);
	*ret_item = (struct body_item){cursor->at, (size_t)(at - cursor->at)};
	cursor->at = at;
	skip_space(cursor);
	return depth == 0;
}

size_t body_find_items(const char *bytes, size_t len, struct body_item ret_items[BODY_ITEMS_MAX])
{
	struct cursor cursor = cursor_of(bytes, len);
	struct body_item unused;
	size_t count = 0;
	skip_space(&cursor);
	if (!scan_word(&cursor, "{") || !scan_word(&cursor, "\"leases\"") || !scan_word(&cursor, ":") ||
	    !scan_word(&cursor, "["))
		return 0;
	do
		if (!scan_object(&cursor, count < BODY_ITEMS_MAX ? &ret_items[count] : &unused))
			return 0;
	while (count++, scan_word(&cursor, ","));
	return scan_word(&cursor, "]") && scan_word(&cursor, "}") && cursor.at == cursor.end ? count : 0;
}

bool body_is_nothing(const char *bytes, size_t len)
{
	struct cursor cursor = cursor_of(bytes, len);
	skip_space(&cursor);
	scan_word(&cursor, "null");
	return cursor.at == cursor.end;
}
