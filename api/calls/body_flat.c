/* A small part of JSON, in place. It must never take a text that jansson rejects, nor read another value in it; a text
 * that it leaves to jansson costs only time. tests/fuzz/fuzz_body.c compares the two. Pure; any thread. */
#include <assert.h>

#include "calls_internal.h"

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

/* This and the next two skip what they look for and the space after it, or nothing if it is not there. */
static bool scan_word(struct rest *rest, const char *word)
{
	const char *at = rest->at;
	for (; *word != '\0'; at++, word++)
		if (at == rest->end || *at != *word)
			return false;
	rest->at = at;
	skip_space(rest);
	return true;
}

static bool scan_string(struct rest *rest, struct body_value *ret_value)
{
	const char *from = rest->at + 1, *at = from;
	if (rest->at == rest->end || *rest->at != '"')
		return false;
	while (at < rest->end && *at >= ' ' && *at <= '~' && *at != '"' && *at != '\\')
		at++;
	if (at == rest->end || *at != '"')
		return false;
	*ret_value = (struct body_value){.kind = BODY_STRING, .bytes = from, .len = (size_t)(at - from)};
	rest->at = at + 1;
	skip_space(rest);
	return true;
}

static bool scan_integer(struct rest *rest, struct body_value *ret_value)
{
	const char *at = rest->at;
	int64_t integer = 0;
	while (at < rest->end && *at >= '0' && *at <= '9' && at - rest->at < DIGITS_MAX)
		integer = integer * 10 + (*at++ - '0');
	if (at == rest->at || (*rest->at == '0' && at - rest->at > 1))
		return false;
	*ret_value = (struct body_value){.kind = BODY_INTEGER, .integer = integer};
	rest->at = at;
	skip_space(rest);
	return true;
}

static bool scan_value(struct rest *rest, struct body_value *ret_value)
{
	if (scan_string(rest, ret_value) || scan_integer(rest, ret_value))
		return true;
	*ret_value = (struct body_value){.kind = BODY_BOOLEAN, .integer = scan_word(rest, "true")};
	return ret_value->integer != 0 || scan_word(rest, "false");
}

/* `bytes` NULL: there is no body. */
static struct rest rest_of(const char *bytes, size_t len)
{
	assert(bytes || len == 0);
	if (!bytes)
		bytes = ""; /* NULL + 0 is not defined */
	return (struct rest){bytes, bytes + len};
}

bool body_flat_scan(const char *bytes, size_t len, body_visit_fn *visit, void *arg)
{
	struct rest rest = rest_of(bytes, len);
	struct body_value name, value;
	skip_space(&rest);
	if (!scan_word(&rest, "{"))
		return false;
	if (!scan_word(&rest, "}")) {
		do
			if (!scan_string(&rest, &name) || !scan_word(&rest, ":") || !scan_value(&rest, &value) ||
			    !visit(arg, name.bytes, name.len, &value))
				return false;
		while (scan_word(&rest, ","));
		if (!scan_word(&rest, "}"))
			return false;
	}
	return rest.at == rest.end;
}

bool body_is_nothing(const char *bytes, size_t len)
{
	struct rest rest = rest_of(bytes, len);
	skip_space(&rest);
	scan_word(&rest, "null");
	return rest.at == rest.end;
}
