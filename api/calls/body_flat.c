/* A small part of JSON, in place. See body.h.
 *
 * It must never accept a text that jansson rejects, nor read another value in it. A text that it leaves to jansson
 * costs only time. tests/fuzz/fuzz_body.c and tests/unit/test_body_flat.c compare the two. Pure; any thread. */
#include <assert.h>
#include <string.h>

#include "body.h"

enum { DIGITS_MAX = 15 }; /* of a whole number: far from the bounds of 64 bits */

/* The rest of the text. */
struct rest {
	const char *at, *end;
};

static void skip_space(struct rest *rest)
{
	assert(rest->at <= rest->end);
	while (rest->at < rest->end &&
	       (*rest->at == ' ' || *rest->at == '\t' || *rest->at == '\n' || *rest->at == '\r'))
		rest->at++;
}

/* Skips one character, and the space after it. */
static bool parse_mark(struct rest *rest, char mark)
{
	if (rest->at == rest->end || *rest->at != mark)
		return false;
	rest->at++;
	skip_space(rest);
	return true;
}

/* Each of the next three leaves *rest as it was if it does not find what it parses: another one may. */
static bool parse_word(struct rest *rest, const char *word, size_t len)
{
	if ((size_t)(rest->end - rest->at) < len || memcmp(rest->at, word, len) != 0)
		return false;
	rest->at += len;
	return true;
}

static bool parse_string(struct rest *rest, const char **ret_bytes, size_t *ret_len)
{
	const char *from = rest->at + 1, *at = from;

	if (rest->at == rest->end || *rest->at != '"')
		return false;
	while (at < rest->end && *at >= ' ' && *at <= '~' && *at != '"' && *at != '\\')
		at++;
	if (at == rest->end || *at != '"')
		return false;
	*ret_bytes = from;
	*ret_len = (size_t)(at - from);
	rest->at = at + 1;
	return true;
}

static bool parse_integer(struct rest *rest, int64_t *ret_integer)
{
	assert(rest->at <= rest->end);
	const char *at = rest->at;
	int64_t integer = 0;

	while (at < rest->end && *at >= '0' && *at <= '9' && at - rest->at < DIGITS_MAX)
		integer = integer * 10 + (*at++ - '0');
	if (at == rest->at || (*rest->at == '0' && at - rest->at > 1))
		return false;
	rest->at = at;
	*ret_integer = integer;
	return true;
}

static bool parse_value(struct rest *rest, struct body_value *ret_value)
{
	*ret_value = (struct body_value){.kind = BODY_STRING};
	if (parse_string(rest, &ret_value->bytes, &ret_value->len))
		return true;
	ret_value->kind = BODY_INTEGER;
	if (parse_integer(rest, &ret_value->integer))
		return true;
	ret_value->kind = BODY_BOOLEAN;
	ret_value->boolean = parse_word(rest, "true", 4);
	return ret_value->boolean || parse_word(rest, "false", 5);
}

static bool is_among(const struct body_member *members, size_t count, const struct body_member *member)
{
	assert(count < BODY_FLAT_MAX);
	for (size_t i = 0; i < count; i++)
		if (members[i].name_len == member->name_len &&
		    memcmp(members[i].name, member->name, member->name_len) == 0)
			return true;
	return false;
}

/* A name, a colon, a value; and the space after each of them. */
static bool parse_member(struct rest *rest, struct body_member *ret_member)
{
	if (!parse_string(rest, &ret_member->name, &ret_member->name_len))
		return false;
	skip_space(rest);
	if (!parse_mark(rest, ':') || !parse_value(rest, &ret_member->value))
		return false;
	skip_space(rest);
	return true;
}

bool body_flat_scan(const char *bytes, size_t len, struct body_member ret_members[BODY_FLAT_MAX], size_t *ret_count)
{
	struct rest rest = {bytes, bytes + len};
	size_t count = 0;

	assert(bytes || len == 0);
	skip_space(&rest);
	if (!parse_mark(&rest, '{'))
		return false;
	if (!parse_mark(&rest, '}')) {
		do {
			if (count == BODY_FLAT_MAX || !parse_member(&rest, &ret_members[count]) ||
			    is_among(ret_members, count, &ret_members[count]))
				return false;
			count++;
		} while (parse_mark(&rest, ','));
		if (!parse_mark(&rest, '}'))
			return false;
	}
	*ret_count = count;
	return rest.at == rest.end;
}
