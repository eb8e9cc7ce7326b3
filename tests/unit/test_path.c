/* path.c and headers.c: strict decoding, the rule for resources, encoding, queries; the target of a request line. */
#include <check.h>
#include <string.h>

#include "api/calls/calls.h"
#include "api/http/http.h"
#include "suite.h"

/* A literal with its length, NULs included. */
#define S(literal) literal, sizeof(literal) - 1
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Bytes that may hold NUL. */
struct bytes {
	const char *bytes;
	size_t len;
};

static const struct {
	const char *raw;
	size_t raw_len;
	bool plus;
	const char *decoded;
	size_t decoded_len;
} decodings[] = {
	{S(""), false, S("")},
	{S("a"), false, S("a")},
	{S("orders/42"), false, S("orders/42")},
	{S("%61"), false, S("a")},
	{S("%41%62"), false, S("Ab")},
	{S("a%2Fb"), false, S("a/b")},
	{S("a%2fb"), false, S("a/b")},
	{S("%25"), false, S("%")},
	{S("%2525"), false, S("%25")},
	{S("%00"), false, S("\0")},
	{S("a%00b"), false, S("a\0b")},
	{S("%C3%A9"), false, S("\xc3\xa9")},
	{S("%c3%a9"), false, S("\xc3\xa9")},
	{S("%FF"), false, S("\xff")},
	{S("%20"), false, S(" ")},
	{S("a+b"), false, S("a+b")},
	{S("a+b"), true, S("a b")},
	{S("a%2Bb"), true, S("a+b")},
	{S("a%2Bb"), false, S("a+b")},
	{S("~-._"), false, S("~-._")},
	{S("a;b:c@d"), false, S("a;b:c@d")},
	{S(".."), false, S("..")},
	{S("%2e%2e"), false, S("..")},
	{S("0123456789abcdef"), false, S("0123456789abcdef")},
	{S("%30123456789abcdef"), false, S("0123456789abcdef")},
};

static const char *const not_decoded[] = {"%",   "%%",   "%4",   "%4g", "%g4", "%zz", "a%",
					  "a%2", "%%41", "% 41", "%-1", "%+1", "%0x", "%u0041"};

enum { ROOM = 16 };

TEST_EACH(test_decode, 0, COUNT(decodings))
{
	char bytes[ROOM];
	size_t len = 99;

	ck_assert_ptr_null(
		path_decode(decodings[_i].raw, decodings[_i].raw_len, decodings[_i].plus, bytes, ROOM, &len));
	ck_assert_uint_eq(len, decodings[_i].decoded_len);
	ck_assert_mem_eq(bytes, decodings[_i].decoded, len);
}

TEST(test_not_decoded)
{
	char bytes[ROOM];
	size_t len = 99;

	for (size_t i = 0; i < COUNT(not_decoded); i++)
		ck_assert_ptr_nonnull(path_decode(not_decoded[i], strlen(not_decoded[i]), false, bytes, ROOM, &len));
	ck_assert_ptr_nonnull(path_decode(S("%4\0"), false, bytes, ROOM, &len));
	ck_assert_ptr_nonnull(path_decode(S("0123456789abcdefg"), false, bytes, ROOM, &len)); /* longer than the room */
	ck_assert_ptr_nonnull(path_decode(S("0123456789abcdef%67"), false, bytes, ROOM, &len));
	ck_assert_uint_eq(len, 99);
}

static const struct bytes resources[] = {{S("a")},
					 {S("orders/42")},
					 {S("/")},
					 {S("//")},
					 {S(" ")},
					 {S("..x")},
					 {S("\xf0\x9f\x94\x92")},
					 {S("redlock")},
					 {S("redlockd")},
					 {S("Redlockd:x")},
					 {S("redlockd :")},
					 {S("x/redlockd")},
					 {S("redlockd;x")},
					 {S("...")},
					 {S("a/...")},
					 {S("a/.b")},
					 {S("a./b")},
					 {S("a/..b/c")},
					 {S("a../b")},
					 {S("a\\..\\b")},
					 {S("%2e%2e")}};
static const struct bytes not_resources[] = {{S("my-redlockd:x")},
					     {S("app:redlockd:master")},
					     {S("a/redlockd:")},
					     {S("redlockredlockd:")},
					     {S("redlockd: :")},
					     {S("")},
					     {S("redlockd:")},
					     {S("redlockd:master")},
					     {S("a\0")},
					     {S("\0")},
					     {S("a\nb")},
					     {S("a\x7f")},
					     {S("\xc2\x85")},
					     {S("\xff")},
					     {S("\xc0\xaf")},
					     {S(".")},
					     {S("..")},
					     {S("./a")},
					     {S("../a")},
					     {S("a/.")},
					     {S("a/..")},
					     {S("a/./b")},
					     {S("a/../b")},
					     {S("/..")},
					     {S("../")},
					     {S("./")},
					     {S("//./")},
					     {S("a//..//b")}};

TEST(test_resource)
{
	for (size_t i = 0; i < COUNT(resources); i++)
		ck_assert_pstr_eq(path_check_resource(resources[i].bytes, resources[i].len), NULL);
	for (size_t i = 0; i < COUNT(not_resources); i++)
		ck_assert_msg(path_check_resource(not_resources[i].bytes, not_resources[i].len) != NULL,
			      "%zu: accepted", i);
}

TEST(test_resource_length)
{
	char bytes[257];

	memset(bytes, 'x', sizeof(bytes));
	ck_assert_ptr_null(path_check_resource(bytes, 256));
	ck_assert_ptr_nonnull(path_check_resource(bytes, 257));
	memcpy(bytes + 255, "\xc3\xa9", 2); /* the bytes count, and a character must be whole */
	ck_assert_ptr_nonnull(path_check_resource(bytes, 256));
	ck_assert_ptr_nonnull(path_check_resource(bytes, 257));
	ck_assert_ptr_null(path_check_resource(bytes, 255));
}

/* A target may be good though its resource is not. */
static const struct bytes targets[] = {{S("/")},
				       {S("/locks/a?b=c&d")},
				       {S("/%00")},
				       {S("/{}|\\^`\"<>")},
				       {S("//host/x")}};
static const struct bytes not_targets[] = {{S("")},       {S("*")},         {S("locks")}, {S("http://host/locks")},
					   {S("/a b")},   {S("/a\tb")},     {S("/a\0b")}, {S("/a\x01")},
					   {S("/a\x7f")}, {S("/\xc3\xa9")}, {S("/\x80")}, {S("/\xff")},
					   {S("/a#b")},   {S("/a\r")},      {S("/a\n")}};

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

TEST(test_target)
{
	for (size_t i = 0; i < COUNT(targets); i++)
		ck_assert_msg(target_is_origin(targets[i].bytes, targets[i].len), "%s", targets[i].bytes);
	for (size_t i = 0; i < COUNT(not_targets); i++)
		ck_assert_msg(!target_is_origin(not_targets[i].bytes, not_targets[i].len), "%zu: accepted", i);
}

static const struct {
	const char *bytes;
	size_t len;
	const char *text;
} encodings[] = {
	{S(""), ""},      {S("orders/42"), "orders/42"},     {S("a b"), "a%20b"},       {S("~-._A9"), "~-._A9"},
	{S("%"), "%25"},  {S("a?b#c"), "a%3Fb%23c"},         {S("\xc3\xa9"), "%C3%A9"}, {S("a+b&c=d"), "a%2Bb%26c%3Dd"},
	{S("\0"), "%00"}, {S("\r\nX: y"), "%0D%0AX%3A%20y"},
};

TEST_EACH(test_encode, 0, COUNT(encodings))
{
	char text[PATH_ENCODED_MAX + 1], back[256];
	size_t len = 0;

	path_encode(encodings[_i].bytes, encodings[_i].len, text);
	ck_assert_str_eq(text, encodings[_i].text);
	ck_assert_ptr_null(path_decode(text, strlen(text), false, back, sizeof(back), &len));
	ck_assert_uint_eq(len, encodings[_i].len);
	ck_assert_mem_eq(back, encodings[_i].bytes, len);
}

/* All 256 bytes, and the longest result. */
TEST(test_encode_all)
{
	char bytes[256], text[PATH_ENCODED_MAX + 1], back[256];
	size_t len = 0;

	for (size_t i = 0; i < 256; i++)
		bytes[i] = (char)i;
	path_encode(bytes, 256, text);
	ck_assert(strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%") == strlen(text));
	ck_assert_ptr_null(path_decode(text, strlen(text), false, back, sizeof(back), &len));
	ck_assert_uint_eq(len, 256);
	ck_assert_mem_eq(back, bytes, 256);
	memset(bytes, ' ', 256);
	path_encode(bytes, 256, text);
	ck_assert_uint_eq(strlen(text), PATH_ENCODED_MAX);
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

TEST(test_query_length)
{
	static const char *const names[] = {"prefix", NULL};
	struct path_param params[PATH_PARAMS_MAX];
	struct field_errors errors = {.count = 0};
	char query[7 + 257 + 1] = "prefix=";

	memset(query + 7, 'x', 257);
	query[7 + 257] = '\0';
	path_parse_query(query, names, params, &errors);
	ck_assert_uint_eq(errors.count, 1);
	query[7 + 256] = '\0';
	errors.count = 0;
	path_parse_query(query, names, params, &errors);
	ck_assert_uint_eq(errors.count, 0);
	ck_assert_uint_eq(params[0].len, 256);
}
