/* SPDX-License-Identifier: MIT */
/* Addresses of servers: parsed and rejected. */
#include <check.h>
#include <string.h>

#include "cli/base/server.h"
#include "suite.h"

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
	{"localhost:8080", "http://localhost:8080", "", false, false},
	{"lock-1.example:8080/", "http://lock-1.example:8080", "", false, true},
	{"8080", "http://127.0.0.1:8080", "", false, false},
};

static const char *const bad[] = TEXTS(
	"", "localhost", "u:p@x:1", "https://", "https:///", "https://x", "https://x:0", "https://x:1/y",
	"https://u:p@x:1", "httpss://x:1", "HTTP://x:1", "http://", "http://:1", "http:///", "http://x",
	"http://x:", "http://x:0", "http://x:65536", "http://x:1a", "http://x:+1", "http://x:000001", "http://x:1/path",
	"http://x:1?q", "http://x:1#f", "http://u:p@x:1", "http://x y:1", "http://x\n:1", "http://[]:1",
	"http://[::1:1", "http://[::1]", "http://[x]:1", "http://x:1//", "unix:", "unix:relative");

TEST_EACH(good_ones, 0, sizeof(good) / sizeof(*good))
{
	struct address server;
	char base[SERVER_BASE_MAX];
	const char *reason = server_parse(good[_i].text, &server);
	ck_assert_msg(reason == NULL, "%s: %s", good[_i].text, reason);
	ck_assert_str_eq(server.shown, good[_i].text);
	server_write_base(&server, base);
	ck_assert_str_eq(base, good[_i].base);
	ck_assert_str_eq(server.is_unix ? server.host : "", good[_i].unix_path);
	ck_assert_int_eq(server.tls, good[_i].is_tls);
	ck_assert_int_eq(server_is_exposed(&server), good[_i].is_exposed);
}

TEST_EACH(bad_ones, 0, sizeof(bad) / sizeof(*bad))
{
	struct address server = {.shown = "as it was"};
	ck_assert_msg(server_parse(bad[_i], &server) != NULL, "%s", bad[_i]);
	ck_assert_str_eq(server.shown, "as it was");
}

TEST(long_ones)
{
	struct address server;
	char text[ADDRESS_TEXT_MAX + 2];
	memset(text, 'x', sizeof(text));
	memcpy(text, "unix:/", 6);
	text[5 + ADDRESS_UNIX_MAX] = '\0';
	ck_assert_ptr_null(server_parse(text, &server));
	ck_assert_uint_eq(strlen(server.host), ADDRESS_UNIX_MAX);
	strcpy(text + 5 + ADDRESS_UNIX_MAX, "x");
	ck_assert_ptr_nonnull(server_parse(text, &server));
	memset(text, 'x', sizeof(text));
	memcpy(text, "http://", 7);
	strcpy(text + 7 + 253, ":80"); /* the longest name of a host */
	ck_assert_ptr_null(server_parse(text, &server));
	strcpy(text + 7 + 253, "x:80");
	ck_assert_ptr_nonnull(server_parse(text, &server));
}

TEST(with_another_scheme)
{
	struct address server;
	ck_assert_str_eq(server_parse("redis://localhost:8080", &server),
			 "the scheme is not one of those that are allowed");
}
