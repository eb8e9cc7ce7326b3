/* SPDX-License-Identifier: MIT */
/* path.c and headers.c: queries, and targets with an authority. Decoding, encoding and the rule for resources are
 * compared with a second implementation in tests/fuzz/fuzz_path.c. */
#include <check.h>
#include <string.h>

#include "api/calls/calls.h"
#include "api/http/http.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
	const char *target;
	const char *host, *rest; /* NULL: it has no authority */
} absolutes[] = {
	{"http://localhost/locks?a", "localhost", "/locks?a"},
	{"HTTP://LocalHost:80", "LocalHost:80", ""},
	{"https://[::1]:8443?a/b", "[::1]:8443", "?a/b"},
	{"http://a//b", "a", "//b"},
	{"/locks", NULL, NULL},
	{"//host/x", NULL, NULL},
	{"http:///x", NULL, NULL},
	{"http://", NULL, NULL},
	{"http:/host", NULL, NULL},
	{"ftp://host/x", NULL, NULL},
	{"http://me@host/x", NULL, NULL},
	{"http://me:secret@host/x", NULL, NULL},
	{"http://host/a#b", NULL, NULL},
	{"http://ho\x80st/", NULL, NULL},
	{"host:80", NULL, NULL},
	{"*", NULL, NULL},
	{"", NULL, NULL},
};

TEST_EACH(test_after_authority, 0, COUNT(absolutes))
{
	const char *target = absolutes[_i].target, *host = NULL;
	size_t len = 0;
	const char *rest = target_after_authority(target, strlen(target), &host, &len);

	ck_assert_pstr_eq(rest, absolutes[_i].rest);
	ck_assert((host != NULL) == (rest != NULL));
	if (rest != NULL)
		ck_assert(len == strlen(absolutes[_i].host) && memcmp(host, absolutes[_i].host, len) == 0);
}

static const struct {
	const char *query;
	const char *prefix; /* what must come out; NULL: not given */
	const char *limit;
	const char *error; /* field of the first error; NULL: none */
} queries[] = {
	{NULL, NULL, NULL, NULL},
	{"", NULL, NULL, NULL},
	{"prefix=a", "a", NULL, NULL},
	{"prefix=", "", NULL, NULL},
	{"prefix=a%2Fb&limit=5", "a/b", "5", NULL},
	{"limit=5&prefix=a", "a", "5", NULL},
	{"prefix=a=b", "a=b", NULL, NULL},
	{"prefix=a+b", "a b", NULL, NULL},
	{"prefix=%C3%A9", "\xc3\xa9", NULL, NULL},
	{"prefix=a&", "a", NULL, NULL},
	{"prefix", NULL, NULL, "prefix"},
	{"prefix=a&prefix=a", "a", NULL, "prefix"},
	{"prefix=%00", "", NULL, "prefix"},
	{"prefix=a%", "", NULL, "prefix"},
	{"prefix=%0A", "", NULL, "prefix"},
	{"prefix=%FF", "", NULL, "prefix"},
	{"Prefix=a", NULL, NULL, "Prefix"},
	{"prefi%78=a", NULL, NULL, "?"},
	{"=a", NULL, NULL, "?"},
	{"&", NULL, NULL, "?"},
	{"prefix=a&&limit=1", "a", "1", "?"},
	{"token=0123456789abcdef0123456789abcdef01234567", NULL, NULL, "token"},
	{"x=1", NULL, NULL, "x"},
	{"%", NULL, NULL, "?"},
};

TEST_EACH(test_query, 0, COUNT(queries))
{
	static const char *const names[] = {"prefix", "limit", NULL};
	struct path_param params[PATH_PARAMS_MAX];
	struct field_errors errors = {.count = 0};
	const char *expected[] = {queries[_i].prefix, queries[_i].limit};

	memset(params, 0xa5, sizeof(params));
	path_parse_query(queries[_i].query, names, params, &errors);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(params[i].given, expected[i] != NULL);
		ck_assert_str_eq(params[i].value, expected[i] != NULL ? expected[i] : "");
		ck_assert_uint_eq(params[i].len, strlen(params[i].value));
	}
	ck_assert_uint_eq(params[2].len, (size_t)UINT64_C(0xa5a5a5a5a5a5a5a5)); /* the route has no third one */
	ck_assert_int_eq(errors.count > 0, queries[_i].error != NULL);
	if (queries[_i].error != NULL)
		ck_assert_str_eq(errors.items[0].field, queries[_i].error);
}
