/* The bodies that are read in place: what the scanner takes, jansson takes too, and sees the same in it. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/body.h"

static void check_value(const struct body_value *value, const json_t *json)
{
	if (json_is_string(json)) {
		ck_assert_int_eq(value->kind, BODY_STRING);
		ck_assert_uint_eq(value->len, json_string_length(json));
		ck_assert_int_eq(memcmp(value->bytes, json_string_value(json), value->len), 0);
	} else if (json_is_integer(json)) {
		ck_assert_int_eq(value->kind, BODY_INTEGER);
		ck_assert_int_eq(value->integer, json_integer_value(json));
	} else {
		ck_assert(json_is_boolean(json));
		ck_assert_int_eq(value->kind, BODY_BOOLEAN);
		ck_assert_int_eq(value->boolean, json_is_true(json));
	}
}

/* Returns true if the scanner took it; then both have read the same. */
static bool check_text(const char *text, size_t len)
{
	struct body_member members[BODY_FLAT_MAX];
	size_t count = 0, i = 0;
	const char *name;
	json_t *json;

	if (!body_flat_scan(text, len, members, &count))
		return false;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_msg(json_is_object(root), "taken, but refused by jansson: %.*s", (int)len, text);
	ck_assert_uint_eq(count, json_object_size(root));
	json_object_foreach(root, name, json)
	{
		ck_assert_uint_eq(members[i].name_len, strlen(name));
		ck_assert_int_eq(memcmp(members[i].name, name, strlen(name)), 0);
		check_value(&members[i++].value, json);
	}
	json_decref(root);
	return true;
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
	{"{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9}", false},
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

START_TEST(test_text)
{
	ck_assert_int_eq(check_text(texts[_i].text, strlen(texts[_i].text)), texts[_i].taken);
}
END_TEST

/* A good text with a byte or two changed, left out or put in, from a fixed seed; also cut short. */
START_TEST(test_made_up)
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
END_TEST

int main(void)
{
	Suite *suite = suite_create("body_flat");
	TCase *tcase = tcase_create("body_flat");

	tcase_add_loop_test(tcase, test_text, 0, sizeof(texts) / sizeof(texts[0]));
	tcase_add_test(tcase, test_made_up);
	suite_add_tcase(suite, tcase);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
