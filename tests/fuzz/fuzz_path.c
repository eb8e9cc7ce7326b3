/* SPDX-License-Identifier: MIT */
/* Fuzz target: the first line of a request (api/calls/path.c, route.c) and the cursor of a listing.
 *
 * Input: `METHOD target`, as in a request. The raw bytes also go through the decoder alone, with rooms of all sizes. */
#include "fuzz_path.h"

#include <ctype.h>

#include "api/calls/calls.h"
#include "api/calls/calls_internal.h"
#include "api/http/http.h"
#include "fuzz_words.h"

enum { TARGET_MAX = 2048 };

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", ""};
enum { METHOD_COUNT = sizeof methods / sizeof methods[0] };

#ifdef FUZZ_MUTATED
/* C1 control characters pass. */
static const char *path_check_resource_mutated(const char *bytes, size_t len)
{
	const char *reason = path_check_resource(bytes, len);
	return reason != NULL && strstr(reason, "control") != NULL && memchr(bytes, 0xc2, len) != NULL ? NULL : reason;
}
#define path_check_resource path_check_resource_mutated
#endif

/* ---- decoding ---- */

static bool reference_decode(const char *raw, size_t raw_len, bool plus, char *ret, size_t size, size_t *ret_len)
{
	*ret_len = 0;
	for (size_t i = 0; i < raw_len; i++) {
		char hex[3] = {0}, c = raw[i] == '+' && plus ? ' ' : raw[i];
		if (raw[i] == '%') {
			if (raw_len - i < 3 || !isxdigit((unsigned char)raw[i + 1]) ||
			    !isxdigit((unsigned char)raw[i + 2]))
				return false;
			memcpy(hex, raw + i + 1, 2);
			c = (char)strtoul(hex, NULL, 16);
			i += 2;
		}
		if (*ret_len == size)
			return false;
		ret[(*ret_len)++] = c;
	}
	return true;
}

static void check_decode(const char *raw, size_t raw_len, bool plus, size_t size)
{
	char *bytes = malloc(size + 1), *expected = malloc(size + 1), *room = malloc(size > 0 ? size : 1);
	size_t len = SIZE_MAX, expected_len;
	const char *reason = path_decode(raw, raw_len, plus, room, size, &len);
	bool good = reference_decode(raw, raw_len, plus, expected, size, &expected_len);
	MUST((reason == NULL) == good, "decoded: %s", reason != NULL ? reason : "yes");
	MUST(reason == NULL ? len == expected_len && memcmp(room, expected, len) == 0
			    : reason[0] != '\0' && len == SIZE_MAX,
	     "%zu bytes", len);
	free(bytes);
	free(expected);
	free(room);
}

/* Writes a decoded path, and reads it again. */
static void check_encode(const char *bytes, size_t len)
{
	char text[PATH_ENCODED_MAX + 1], again[256];
	size_t again_len = 0;
	path_encode(bytes, len, text);
	size_t text_len = strlen(text);
	MUST(strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/%") == text_len,
	     "encoded as %s", text);
	const char *reason = path_decode(text, text_len, false, again, sizeof again, &again_len);
	MUST(reason == NULL && again_len == len && memcmp(again, bytes, len) == 0, "%s: %s", text,
	     reason != NULL ? reason : "other bytes");
}

static void check_resource(const char *rest)
{
	char resource[256];
	size_t len = 0;
	const char *reason = path_decode(rest, strlen(rest), false, resource, sizeof resource, &len);
	check_decode(rest, strlen(rest), false, sizeof resource);
	if (reason != NULL)
		return;
	reason = path_check_resource(resource, len);
	MUST((reason == NULL) == words_name_resource(resource, len), "taken for a resource: %s",
	     reason != NULL ? reason : "yes");
	MUST(reason == NULL || reason[0] != '\0', "no reason");
	if (reason == NULL)
		check_encode(resource, len);
}

/* ---- the query ---- */

static const struct path_param *find_param(const struct path_param *params, const char *const names[], const char *name,
					   size_t len)
{
	for (size_t i = 0; names[i] != NULL; i++)
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return &params[i];
	return NULL;
}

/* A query without mistakes holds known names alone, each with the value that was read. Returns how many there are. */
static size_t check_good_query(const char *query, const struct path_param *params, const char *const names[])
{
	size_t count = 0;
	while (query != NULL && *query != '\0') {
		const char *end = strchrnul(query, '&'), *equals = memchr(query, '=', (size_t)(end - query));
		char value[PATH_VALUE_MAX];
		size_t len;
		MUST(equals != NULL, "a part without = is taken");
		const struct path_param *param = find_param(params, names, query, (size_t)(equals - query));
		MUST(param != NULL && param->given, "an unknown part is taken");
		MUST(reference_decode(equals + 1, (size_t)(end - equals - 1), true, value, sizeof value, &len),
		     "an ill-formed part is taken");
		MUST(len == param->len && memcmp(value, param->value, len) == 0, "another value");
		count++;
		query = *end == '&' ? end + 1 : NULL;
	}
	return count;
}

static void check_query(const char *query, const struct route *route)
{
	struct path_param params[PATH_PARAMS_MAX];
	struct field_errors errors = {.count = 0};
	size_t known = 0, given = 0;
	memset(params, 0xa5, sizeof params);
	path_parse_query(query, route->params, params, &errors);
	words_check_errors(&errors, 0);
	while (route->params[known] != NULL)
		known++;
	for (size_t i = 0; i < known; i++) {
		const struct path_param *param = &params[i];
		MUST(param->len <= PATH_VALUE_MAX && strlen(param->value) == param->len, "a value of %zu bytes",
		     param->len);
		MUST(words_are_plain(param->value, param->len), "a value that is not plain");
		MUST(param->given ? i < known : param->len == 0, "parameter %zu of %zu", i, known);
		given += param->given;
		fuzz_check_cursor(param->value);
	}
	if (errors.count == 0)
		MUST(check_good_query(query, params, route->params) == given, "%zu parameters", given);
}

/* ---- routes ---- */

/* Every method that `allow` names must be taken by the path, and no other. */
static void check_allow(const char *path, const char *allow)
{
	for (size_t i = 0; i < METHOD_COUNT; i++) {
		const char *rest = NULL;
		char other[ROUTE_ALLOW_MAX], listed[ROUTE_ALLOW_MAX + 4], wanted[16];
		bool found = route_find(methods[i], path, NULL, &rest, other) != NULL;
		snprintf(listed, sizeof listed, ", %s,", allow);
		snprintf(wanted, sizeof wanted, ", %s,", methods[i]);
		bool named = methods[i][0] != '\0' && strstr(listed, wanted) != NULL;
		MUST(found == named, "%s is allowed as one of: %s", methods[i], allow);
		MUST(found || (other[0] != '\0') == (allow[0] != '\0'), "the path is there for some methods");
	}
}

static void check_found(const char *method, const char *path, const struct route *route, const char *rest)
{
	const char *mark = strstr(route->pattern, "{resource}");
	size_t fixed = mark != NULL ? (size_t)(mark - route->pattern) : strlen(route->pattern);
	MUST(strcmp(route_name(route_index(route)), route->name) == 0, "a route that is not in the table");
	MUST(strcmp(route->method, strcmp(method, "HEAD") == 0 ? "GET" : method) == 0, "%s for %s", route->method,
	     method);
	MUST(strncmp(route->pattern, path, fixed) == 0 && rest == (mark ? path + fixed : NULL), "%s for %s",
	     route->pattern, path);
	MUST(mark != NULL || path[fixed] == '\0', "%s for %s", route->pattern, path);
	if (mark != NULL)
		check_resource(rest);
}

static void check_target(const char *method, char *target)
{
	const char *rest = NULL;
	char allow[ROUTE_ALLOW_MAX], *query = strchr(target, '?');
	if (query != NULL)
		*query++ = '\0';
	const struct route *route = route_find(method, target, query, &rest, allow);
	if (route) {
		check_found(method, target, route, rest);
		check_query(query, route);
	} else {
		check_allow(target, allow);
	}
}

static bool reference_target(const char *target)
{
	for (const char *c = target; *c != '\0'; c++)
		if (!isgraph((unsigned char)*c) || *c == '#')
			return false;
	return target[0] == '/';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *raw = fuzz_copy(data, size), *text = fuzz_text(data, size), *target = strchr(text, ' ');
	check_decode(raw, size, size % 2 == 1, size % 300);
	if (target != NULL) {
		*target++ = '\0';
		bool good = target_is_origin(target, strlen(target));
		MUST(good == reference_target(target), "taken for a target: %d", good);
		if (good && strlen(target) <= TARGET_MAX)
			check_target(text, target);
	}
	free(raw);
	free(text);
	return 0;
}
