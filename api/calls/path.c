/* SPDX-License-Identifier: MIT */
/* Strict decoding of the path and the query of a request, and the rule for resources. libmicrohttpd's own decoding is
 * switched off: it is lenient and stops at NUL, so that `a%00b` would be `a`. Pure functions; any thread. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "calls.h"
#include "server/base/base.h"

const char *path_decode(const char *raw, size_t raw_len, bool plus, char *ret_bytes, size_t size, size_t *ret_len)
{
	size_t len = 0;
	assert(raw || raw_len == 0);
	for (size_t i = 0; i < raw_len; i++) {
		char c = raw[i];
		if (c == '%') {
			int high = i + 2 < raw_len ? hex_digit(raw[i + 1]) : -1;
			int low = i + 2 < raw_len ? hex_digit(raw[i + 2]) : -1;
			if (high < 0 || low < 0)
				return "has a % that is not followed by two hexadecimal digits";
			c = (char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && plus) {
			c = ' ';
		}
		if (len == size)
			return "must be at most 256 bytes";
		ret_bytes[len++] = c;
	}
	*ret_len = len;
	return NULL;
}

static const char *check_text(const char *bytes, size_t len)
{
	if (!utf8_is_valid(bytes, len))
		return "must be valid UTF-8";
	return utf8_has_control(bytes, len) ? "must not hold control characters" : NULL;
}

static bool has_dot_segment(const char *bytes, size_t len)
{
	size_t begin = 0, dots = 0;
	for (size_t i = 0; i <= len; i++) {
		if (i < len && bytes[i] != '/') {
			dots += bytes[i] == '.';
			continue;
		}
		if (dots == i - begin && (dots == 1 || dots == 2))
			return true;
		begin = i + 1;
		dots = 0;
	}
	return false;
}

const char *path_check_resource(const char *bytes, size_t len)
{
	static const char reserved[] = "redlockd:";
	assert(bytes || len == 0);
	if (len == 0)
		return "must not be empty";
	if (len > LEASE_RESOURCE_MAX)
		return "must be at most 256 bytes";
	/* anywhere: another cluster's --key-prefix may precede it */
	if (memmem(bytes, len, reserved, sizeof reserved - 1) != NULL)
		return "must not contain \"redlockd:\", which names redlockd's own keys";
	/* a release of "a/../b" would reach "b" */
	if (has_dot_segment(bytes, len))
		return "must not have a segment \".\" or \"..\": HTTP clients and proxies rewrite such a path";
	return check_text(bytes, len);
}

static bool needs_no_encoding(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != 0 && strchr("-._~/", c) != NULL);
}

void path_encode(const char *bytes, size_t len, char *ret_text)
{
	static const char digits[] = "0123456789ABCDEF";
	char *to = ret_text;
	assert(len <= LEASE_RESOURCE_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];
		if (needs_no_encoding(c)) {
			*to++ = (char)c;
			continue;
		}
		*to++ = '%';
		*to++ = digits[c >> 4];
		*to++ = digits[c & 15];
	}
	*to = '\0';
}

/* One `name=value` of a query. Names are compared without decoding: the known names need no encoding. */
static void query_parse_part(const char *part, size_t part_len, const char *const names[], struct path_param *params,
			     struct field_errors *errors)
{
	const char *equals = memchr(part, '=', part_len), *reason;
	size_t name_len = equals ? (size_t)(equals - part) : part_len, i = 0;
	assert(part && names);
	while (names[i] && (strlen(names[i]) != name_len || memcmp(names[i], part, name_len) != 0))
		i++;
	if (!names[i] && name_len == 5 && memcmp(part, "token", 5) == 0) {
		field_errors_add(errors, "token",
				 "must not travel in the URL: send it in the body or in the header Lock-Token");
	} else if (!names[i]) {
		field_errors_add_name(errors, part, name_len,
				      "is not a parameter of this call (/openapi.yaml lists them)");
	} else if (!equals) {
		field_errors_add(errors, names[i], "has no value");
	} else if (params[i].given) {
		field_errors_add(errors, names[i], "must not be given twice");
	} else {
		struct path_param *param = &params[i];
		param->given = true;
		reason = path_decode(equals + 1, part_len - name_len - 1, true, param->value, PATH_VALUE_MAX,
				     &param->len);
		if (!reason)
			reason = check_text(param->value, param->len);
		if (reason) {
			param->len = 0;
			field_errors_add(errors, names[i], "%s", reason);
		}
		param->value[param->len] = '\0';
	}
}

void path_parse_query(const char *query, const char *const names[], struct path_param params[PATH_PARAMS_MAX],
		      struct field_errors *errors)
{
	assert(names && errors && (params || !names[0]));
	for (size_t i = 0; names[i]; i++) {
		params[i].given = false;
		params[i].len = 0;
		params[i].value[0] = '\0';
	}
	while (query && *query != '\0') {
		const char *end = strchr(query, '&');
		size_t len = end ? (size_t)(end - query) : strlen(query);
		query_parse_part(query, len, names, params, errors);
		query = end ? end + 1 : NULL;
	}
}
