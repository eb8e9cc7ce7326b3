/* The command line: what comes out of a good one; the messages of bad ones are in tests/e2e/test_redlockctl.py. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "status.h"

#define TOKEN "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"
#define ARGS(...) ((char *[]){"redlockctl", __VA_ARGS__, NULL})

static struct options options;
static const struct options_environment nothing = {NULL, NULL};

static void good(char **argv)
{
	ck_assert_msg(options_parse(&options, argv, &nothing), "%s", options.message);
}

static void bad(char **argv, const char *named)
{
	ck_assert(!options_parse(&options, argv, &nothing));
	ck_assert_msg(strstr(options.message, named) != NULL, "%s", options.message);
	ck_assert_ptr_null(strchr(options.message, '\n'));
}

START_TEST(defaults)
{
	good(ARGS("run", "a", "--", "cmd", "--ttl", "x"));
	ck_assert_int_eq(options.command, COMMAND_RUN);
	ck_assert_str_eq(options.name, "a");
	ck_assert_uint_eq(options.ttl_ms, 30000);
	ck_assert_uint_eq(options.wait_ms, 300000);
	ck_assert_uint_eq(options.kill_after_ms, 5000);
	ck_assert_uint_eq(options.timeout_ms, 5000);
	ck_assert_int_eq(options.held_status, STATUS_HELD);
	ck_assert_uint_eq(options.servers.count, 1);
	ck_assert_str_eq(options.servers.items[0].base, "http://127.0.0.1:8080");
	ck_assert_str_eq(options.argv[0], "cmd");
	ck_assert_str_eq(options.argv[2], "x");
	good(ARGS("run", "a", "--ttl", "6s", "--", "cmd"));
	ck_assert_uint_eq(options.kill_after_ms, 2000);
	good(ARGS("acquire", "a"));
	ck_assert_uint_eq(options.wait_ms, 0);
}
END_TEST

START_TEST(all_forms)
{
	good(ARGS("-s", "http://a:1", "run", "--server=unix:/b", "-w", "5m", "name", "-E", "3", "--ttl=1h", "-k", "0s", "--wait-all", "-v", "--json", "--owner", "", "--", "c"));
	ck_assert_uint_eq(options.servers.count, 2);
	ck_assert_str_eq(options.servers.items[1].unix_path, "/b");
	ck_assert_uint_eq(options.wait_ms, 300000);
	ck_assert_uint_eq(options.ttl_ms, 3600000);
	ck_assert_uint_eq(options.kill_after_ms, 0);
	ck_assert_int_eq(options.held_status, 3);
	ck_assert(options.wait_all && options.verbose && options.json);
	ck_assert_str_eq(options.name, "name");
	good(ARGS("-n", "run", "x", "--", "c"));
	ck_assert_uint_eq(options.wait_ms, 0);
	good(ARGS("status", "--", "-x"));
	ck_assert_str_eq(options.name, "-x");
	good(ARGS("list", "--prefix", "orders/", "--limit", "7"));
	ck_assert_uint_eq(options.limit, 7);
}
END_TEST

START_TEST(help_and_version)
{
	good(ARGS("--help"));
	ck_assert_int_eq(options.command, COMMAND_HELP);
	good(ARGS("run", "-h"));
	ck_assert_int_eq(options.command, COMMAND_HELP);
	good(ARGS("--version"));
	ck_assert_int_eq(options.command, COMMAND_VERSION);
}
END_TEST

START_TEST(from_the_environment)
{
	struct options_environment environment = {.server = "http://a:1,unix:/b", .token = TOKEN};
	ck_assert(options_parse(&options, ARGS("release", "a"), &environment));
	ck_assert_uint_eq(options.servers.count, 2);
	ck_assert_str_eq(options.token, TOKEN);
	ck_assert(options_parse(&options, ARGS("release", "a", "--token-file", "f", "-s", "http://c:1"), &environment));
	ck_assert_uint_eq(options.servers.count, 1);
	ck_assert_ptr_null(options.token);
	environment = (struct options_environment){.server = "", .token = ""};
	ck_assert(options_parse(&options, ARGS("status", "a"), &environment));
	ck_assert(!options_parse(&options, ARGS("release", "a"), &environment));
	environment.server = "http://a";
	ck_assert(!options_parse(&options, ARGS("status", "a"), &environment));
	ck_assert_ptr_nonnull(strstr(options.message, "REDLOCKCTL_SERVER"));
}
END_TEST

START_TEST(secrets_are_not_repeated)
{
	struct options_environment environment = {.token = "almost-a-token"};
	bad(ARGS("release", "a", "--token", "almost-a-token"), "--token");
	ck_assert_ptr_null(strstr(options.message, "almost"));
	bad(ARGS("release", "a", "--tokn=almost-a-token"), "--tokn");
	ck_assert_ptr_null(strstr(options.message, "almost"));
	bad(ARGS("status", "a", "-s", "http://u:almost@h:1"), "--server");
	ck_assert_ptr_null(strstr(options.message, "almost"));
	ck_assert(!options_parse(&options, ARGS("release", "a"), &environment));
	ck_assert_ptr_null(strstr(options.message, "almost"));
	bad(ARGS("release", "a", "--token", TOKEN, "--token-file", "x"), "--token-file");
	ck_assert_ptr_null(strstr(options.message, "5f2b"));
}
END_TEST

START_TEST(bounds)
{
	bad(ARGS("run", "a", "--ttl", "199ms", "--", "c"), "--ttl");
	good(ARGS("run", "a", "--ttl", "200ms", "--", "c"));
	bad(ARGS("run", "a", "--ttl", "25h", "--", "c"), "--ttl");
	good(ARGS("run", "a", "--ttl", "24h", "--", "c"));
	good(ARGS("run", "a", "--ttl", "10s", "-k", "5s", "--", "c"));
	bad(ARGS("run", "a", "--ttl", "10s", "-k", "5001ms", "--", "c"), "--kill-after");
	bad(ARGS("acquire", "a", "-E", "256"), "--conflict-exit-code");
	bad(ARGS("acquire", "a", "-E", "-1"), "--conflict-exit-code");
	bad(ARGS("list", "--limit", "0"), "--limit");
	bad(ARGS("run", "a", "-n", "-w", "1s", "--", "c"), "--wait");
	bad(ARGS("run", "a", "--", ""), "empty");
	bad(ARGS("acquire", "a", "--token-file", "-"), "--token-file");
	bad((char *[]){"redlockctl", NULL}, "command");
	bad((char *[]){NULL}, "name");
}
END_TEST

START_TEST(names)
{
	char name[258];
	memset(name, 'x', sizeof(name));
	name[256] = '\0';
	good(ARGS("status", name));
	name[256] = 'x';
	name[257] = '\0';
	bad(ARGS("status", name), "NAME");
	bad(ARGS("status", "a\x1b"), "NAME");
	bad(ARGS("status", "\xff"), "NAME");
	memset(name, 'o', 128);
	name[128] = '\0';
	good(ARGS("acquire", "a", "--owner", name));
	name[128] = 'o';
	name[129] = '\0';
	bad(ARGS("acquire", "a", "--owner", name), "--owner");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_options");
	TCase *tests = tcase_create("cli_options");
	tcase_add_test(tests, defaults);
	tcase_add_test(tests, all_forms);
	tcase_add_test(tests, help_and_version);
	tcase_add_test(tests, from_the_environment);
	tcase_add_test(tests, secrets_are_not_repeated);
	tcase_add_test(tests, bounds);
	tcase_add_test(tests, names);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
