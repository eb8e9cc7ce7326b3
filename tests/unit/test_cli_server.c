/* Addresses of servers: parsed and rejected. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/server.h"

static const struct {
	const char *text, *base, *unix_path;
	bool is_tls, is_exposed;
} good[] = {
	{"http://127.0.0.1:8080", "http://127.0.0.1:8080", "", false, false},
	{"http://127.0.0.1:8080/", "http://127.0.0.1:8080", "", false, false},
	{"http://lock-1.example_net:1", "http://lock-1.example_net:1", "", false, true},
	{"http://[::1]:65535", "http://[::1]:65535", "", false, false},
	{"unix:/run/redlockd.sock", "http://localhost", "/run/redlockd.sock", false, false},
	{"https://lock-1.example_net:1", "https://lock-1.example_net:1", "", true, false},
	{"https://127.0.0.1:8080/", "https://127.0.0.1:8080", "", true, false},
	{"https://[2001:db8::1]:443", "https://[2001:db8::1]:443", "", true, false},
	{"http://localhost:1", "http://localhost:1", "", false, false},
	{"http://a.LocalHost:1", "http://a.LocalHost:1", "", false, false},
	{"http://notlocalhost:1", "http://notlocalhost:1", "", false, true},
	{"http://localhost.example:1", "http://localhost.example:1", "", false, true},
	{"http://127.255.255.254:1", "http://127.255.255.254:1", "", false, false},
	{"http://128.0.0.1:1", "http://128.0.0.1:1", "", false, true},
	{"http://127.0.0.1.example:1", "http://127.0.0.1.example:1", "", false, true},
	{"http://127.0.0.1x:1", "http://127.0.0.1x:1", "", false, true},
	{"http://[::2]:1", "http://[::2]:1", "", false, true},
	{"http://[::]:1", "http://[::]:1", "", false, true},
};

static const char *const bad[] = {"",
				  "127.0.0.1:8080",
				  "https://",
				  "https:///",
				  "https://x",
				  "https://x:0",
				  "https://x:1/y",
				  "https://u:p@x:1",
				  "httpss://x:1",
				  "HTTP://x:1",
				  "http://",
				  "http://:1",
				  "http:///",
				  "http://x",
				  "http://x:",
				  "http://x:0",
				  "http://x:65536",
				  "http://x:1a",
				  "http://x:+1",
				  "http://x:000001",
				  "http://x:1/path",
				  "http://x:1?q",
				  "http://x:1#f",
				  "http://u:p@x:1",
				  "http://x y:1",
				  "http://x\n:1",
				  "http://[]:1",
				  "http://[::1:1",
				  "http://[::1]",
				  "http://[x]:1",
				  "http://x:1//",
				  "unix:",
				  "unix:relative"};

START_TEST(good_ones)
{
	struct server server;
	const char *reason = server_parse(good[_i].text, strlen(good[_i].text), &server);
	ck_assert_msg(reason == NULL, "%s: %s", good[_i].text, reason);
	ck_assert_str_eq(server.text, good[_i].text);
	ck_assert_str_eq(server.base, good[_i].base);
	ck_assert_str_eq(server.unix_path, good[_i].unix_path);
	ck_assert_int_eq(server.is_tls, good[_i].is_tls);
	ck_assert_int_eq(server.is_exposed, good[_i].is_exposed);
}
END_TEST

START_TEST(bad_ones)
{
	struct server server = {.text = "as it was"};
	ck_assert_msg(server_parse(bad[_i], strlen(bad[_i]), &server) != NULL, "%s", bad[_i]);
	ck_assert_str_eq(server.text, "as it was");
}
END_TEST

START_TEST(lists)
{
	static struct server_list list;
	ck_assert_ptr_null(server_list_parse(&list, "http://a:1,unix:/b,http://c:3"));
	ck_assert_uint_eq(list.count, 3);
	ck_assert_str_eq(list.items[1].unix_path, "/b");
	list.count = 0;
	ck_assert_ptr_nonnull(server_list_parse(&list, "http://a:1,"));
	ck_assert_ptr_nonnull(server_list_parse(&list, ",http://a:1"));
	list.count = 0;
	for (int i = 0; i < SERVERS_MAX; i++)
		ck_assert_ptr_null(server_list_add(&list, "http://a:1", 10));
	ck_assert_ptr_nonnull(server_list_add(&list, "http://a:1", 10));
	ck_assert_uint_eq(list.count, SERVERS_MAX);
}
END_TEST

START_TEST(long_ones)
{
	struct server server;
	char text[SERVER_TEXT_MAX + 2];
	memset(text, 'x', sizeof(text));
	memcpy(text, "unix:/", 6);
	ck_assert_ptr_null(server_parse(text, 5 + SERVER_PATH_MAX, &server));
	ck_assert_uint_eq(strlen(server.unix_path), SERVER_PATH_MAX);
	ck_assert_ptr_nonnull(server_parse(text, 5 + SERVER_PATH_MAX + 1, &server));
	memcpy(text, "http://", 7);
	memcpy(text + SERVER_TEXT_MAX - 3, ":80", 3);
	ck_assert_ptr_null(server_parse(text, SERVER_TEXT_MAX, &server));
	ck_assert_ptr_nonnull(server_parse(text, SERVER_TEXT_MAX + 1, &server));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_server");
	TCase *tests = tcase_create("cli_server");
	tcase_add_loop_test(tests, good_ones, 0, sizeof(good) / sizeof(*good));
	tcase_add_loop_test(tests, bad_ones, 0, sizeof(bad) / sizeof(*bad));
	tcase_add_test(tests, lists);
	tcase_add_test(tests, long_ones);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
