/* Durations: parsed, rejected, written. */
#include <check.h>
#include <stdlib.h>

#include "cli/base/duration.h"

static const struct {
	const char *text;
	uint64_t ms;
} good[] = {
	{"0s", 0},       {"0ms", 0},     {"1ms", 1},
	{"250ms", 250},  {"30s", 30000}, {"5m", 300000},
	{"1h", 3600000}, {"007s", 7000}, {"8784h", DURATION_MAX_MS},
};

static const char *const bad[] = {
	"",
	"5",
	"s",
	"ms",
	"-1s",
	"+1s",
	" 1s",
	"1s ",
	"1 s",
	"1.5s",
	"1d",
	"1S",
	"1sec",
	"0x1s",
	"1e3s",
	"8785h",
	"31622400001ms",
	"99999999999999999999ms",
	"18446744073709551617ms",
	"1s1s",
	"1h30m",
};

START_TEST(good_ones)
{
	uint64_t ms = 42;
	ck_assert_msg(duration_parse(good[_i].text, &ms), "%s", good[_i].text);
	ck_assert_uint_eq(ms, good[_i].ms);
}
END_TEST

START_TEST(bad_ones)
{
	uint64_t ms = 42;
	ck_assert_msg(!duration_parse(bad[_i], &ms), "%s", bad[_i]);
	ck_assert_uint_eq(ms, 42);
}
END_TEST

START_TEST(written)
{
	static const struct {
		uint64_t ms;
		const char *text;
	} cases[] = {{0, "0 ms"},       {999, "999 ms"},      {1000, "1.0 s"},       {12345, "12.3 s"},
		     {59999, "59.9 s"}, {60000, "1 min 0 s"}, {302000, "5 min 2 s"}, {3780000, "1 h 3 min"}};
	char text[DURATION_TEXT_MAX];
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		duration_format(cases[i].ms, text);
		ck_assert_str_eq(text, cases[i].text);
	}
	duration_format(UINT64_MAX, text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_duration");
	TCase *tests = tcase_create("cli_duration");
	tcase_add_loop_test(tests, good_ones, 0, sizeof(good) / sizeof(*good));
	tcase_add_loop_test(tests, bad_ones, 0, sizeof(bad) / sizeof(*bad));
	tcase_add_test(tests, written);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
