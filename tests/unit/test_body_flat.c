/* The scanner of plain bodies: jansson accepts each body that it accepts, and reads the same values. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "api/calls/calls_internal.h"
#include "suite.h"

/* body_visit_fn: builds the object. A repeated member ends the scan, as it does for a body. */
static bool add_member(void *arg, const char *name, size_t name_len, const struct body_value *value)
{
	char key[200];

	ck_assert_uint_lt(name_len, sizeof(key));
	ck_assert_int_ne(value->kind, BODY_OTHER);
	snprintf(key, sizeof(key), "%.*s", (int)name_len, name);
	return json_object_get(arg, key) == NULL &&
	       json_object_set_new(arg, key,
				   value->kind == BODY_STRING    ? json_stringn(value->bytes, value->len)
				   : value->kind == BODY_INTEGER ? json_integer(value->integer)
								 : json_boolean(value->integer)) == 0;
}

/* Returns true if the scanner accepts the text; then both read the same. */
static bool check_text(const char *text, size_t len)
{
	json_t *scanned = json_object();
	bool taken = body_flat_scan(text, len, add_member, scanned);

	if (taken) {
		json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
		ck_assert_msg(json_equal(scanned, root), "jansson reads something else: %.*s", (int)len, text);
		json_decref(root);
	}
	json_decref(scanned);
	return taken;
}

static const struct {
	const char *text;
	bool taken;
} texts[] = {
	{"{}", true},
	{" {\t}\r\n", true},
	{"{\"resource\":\"orders/42\"}", true},
	{"{ \"resource\" : \"a b\" , \"ttl_ms\" : 0, \"wait_ms\":999999999999999, \"hold\" : true ,\"owner\":\"\", "
	 "\"x\":false }",
	 true},
	{"{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8}", true},
	{"{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9}", true},
	{"", false},
	{"   ", false},
	{"{", false},
	{"{\"a\"", false},
	{"{\"a\":", false},
	{"{\"a\":1", false},
	{"{\"a\":1,", false},
	{"{\"a\":1,}", false},
	{"{,\"a\":1}", false},
	{"{\"a\":1}x", false},
	{"{\"a\":1}{}", false},
	{"[{\"a\":1}]", false},
	{"{\"a\":01}", false},
	{"{\"a\":00true}", false},
	{"{\"a\":01false}", false},
	{"{\"a\":1true}", false},
	{"{\"a\":-1}", false},
	{"{\"a\":1.0}", false},
	{"{\"a\":1e3}", false},
	{"{\"a\":1000000000000000}", false},
	{"{\"a\":null}", false},
	{"{\"a\":tru}", false},
	{"{\"a\":truer}", false},
	{"{\"a\":[]}", false},
	{"{\"a\":{}}", false},
	{"{\"a\":1,\"a\":2}", false},
	{"{\"a\":\"\\n\"}", false},
	{"{\"a\":\"\x01\"}", false},
	{"{\"a\":\"\xc3\xbc\"}", false},
	{"{\"a\":\"\x7f\"}", false},
	{"{\"\\u0061\":1}", false},
	{"{a:1}", false},
	{"{'a':1}", false},
	{"{\"a\" 1}", false},
	{"{\"a\":\"x}", false},
	{"{\"a\":\"x\" \"b\":1}", false},
};

TEST_EACH(test_text, 0, sizeof(texts) / sizeof(texts[0]))
{
	ck_assert_int_eq(check_text(texts[_i].text, strlen(texts[_i].text)), texts[_i].taken);
}

/* A good text with some bytes changed, from a fixed seed; also cut short. */
TEST(test_made_up)
{
	static const char good[] =
		"{\"resource\":\"orders/42\", \"ttl_ms\":30000,\"hold\":true , \"wait_ms\" : 0,\"owner\":\"w 7\"}";
	static const char bytes[] = "{}[]:,\"\\ \t\n0123456789-.eEtruefalsn/ab_\x01\x7f\xc3\xbc";
	unsigned taken = 0, state = 1;

	for (int i = 0; i < 300000; i++) {
		char text[sizeof(good)];
		size_t len = sizeof(good) - 1;
		memcpy(text, good, len);
		for (int changes = 0; changes < 1 + i % 3; changes++) {
			state = state * 1103515245u + 12345u;
			text[(state >> 8) % len] = bytes[(state >> 20) % (sizeof(bytes) - 1)];
		}
		taken += check_text(text, i % 7 == 0 ? (state >> 4) % (len + 1) : len);
	}
	ck_assert_uint_gt(taken, 30000); /* else nothing was compared */
}
