/* SPDX-License-Identifier: MIT */
/* Which Host a request over loopback may name, and which Origin may send requests. */
#include <check.h>
#include <string.h>

#include "api/auth/auth.h"
#include "suite.h"

static const struct options_names none = {.count = 0};
static const struct options_names hosts = {.count = 2, .items = {"locks.internal", "[2001:db8::1]"}};
static const struct options_names origins = {.count = 2, .items = {"https://ops.example", "http://ops.example:8000"}};

static const char *const local[] = {
	"localhost",   "localhost:8080",  "LOCALHOST",         "localhost.",         "localhost.:80",
	"a.localhost", "a.b.localhost:1", "127.0.0.1",         "127.0.0.1:8080",     "127.9.9.9",
	"[::1]",       "[::1]:8080",      "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "127.0.0.1.",
};

static const char *const other[] = TEXTS(
	"", ":", ":8080", ".", "evil.example", "evil.example:8080", "localhost.evil.example", "localhostx",
	"xlocalhost", ".localhost", "127.0.0.1.evil.example", "127.1", "2130706433", "0x7f.0.0.1", "127.0.0.01",
	"128.0.0.1", "0.0.0.0", "[::]", "[::2]", "[::1", "[::1]x", "::1", "[::ffff:10.0.0.1]", "[]", "[", "]",
	"local host", "localhost@evil.example", "evil.example@localhost", "localhost/", "127.0.0.1 evil.example",
	"locals.internal", "xlocks.internal");

TEST_EACH(local_names_are_accepted, 0, (int)(sizeof local / sizeof *local))
{
	ck_assert_msg(origin_is_local_host(local[_i], strlen(local[_i]), &none), "%s", local[_i]);
}

TEST_EACH(other_names_are_rejected, 0, (int)(sizeof other / sizeof *other))
{
	ck_assert_msg(!origin_is_local_host(other[_i], strlen(other[_i]), &hosts), "%s", other[_i]);
}

TEST(listed_names_are_accepted)
{
	static const char *const listed[] = {"locks.internal", "Locks.Internal:80", "locks.internal.", "[2001:db8::1]",
					     "[2001:db8::1]:8080"};

	for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
		ck_assert_msg(origin_is_local_host(listed[i], strlen(listed[i]), &hosts), "%s", listed[i]);
		ck_assert_msg(!origin_is_local_host(listed[i], strlen(listed[i]), &none), "%s", listed[i]);
	}
}

TEST(addresses_are_told_from_names)
{
	static const char *const addresses[] = {"10.0.0.1", "10.0.0.1:8080",      "127.0.0.1",        "0.0.0.0",
						"[::]",     "[2001:db8::1]:8080", "[::ffff:10.0.0.1]"};
	static const char *const names[] = {"",       ":80",        "evil.example", "10.0.0.1.evil.example",
					    "10.0.0", "0x0a.0.0.1", "2001:db8::1",  "[2001:db8::1",
					    "[]",     "[10.0.0.1]", "localhost"};

	for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
		ck_assert_msg(origin_is_address(addresses[i], strlen(addresses[i])), "%s", addresses[i]);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		ck_assert_msg(!origin_is_address(names[i], strlen(names[i])), "%s", names[i]);
}

TEST(names_of_any_length_are_safe)
{
	char name[2000];

	memset(name, 'a', sizeof name);
	for (size_t len = 0; len <= sizeof name; len++)
		ck_assert(!origin_is_local_host(name, len, &hosts));
	memcpy(name + 246, ".localhost", 10); /* 256 bytes */
	ck_assert(!origin_is_local_host(name, 256, &none));
	ck_assert(origin_is_local_host(name + 1, 255, &none));
}

static const struct {
	const char *origin, *host;
	bool same;
} pairs[] = {
	{"http://127.0.0.1:8080", "127.0.0.1:8080", true},
	{"https://locks.example", "locks.example", true},
	{"https://locks.example", "Locks.Example:443", true},
	{"http://locks.example", "locks.example:80", true},
	{"http://locks.example:80", "locks.example", true},
	{"https://locks.example", "locks.example:80", false},
	{"http://locks.example", "locks.example:443", false},
	{"https://[::1]:8443", "[::1]:8443", true},
	{"http://localhost:8080", "localhost:8081", false},
	{"http://localhost", "127.0.0.1", false},
	{"http://evil.example", "locks.example", false},
	{"http://locks.example.evil.example", "locks.example", false},
	{"http://locks.example@evil.example", "locks.example", false},
	{"ftp://locks.example", "locks.example", false},
	{"://locks.example", "locks.example", false},
	{"locks.example", "locks.example", false},
	{"null", "null", false},
	{"null", "", false},
	{"", "", false},
	{"http://", "", false},
	{"file://", "", false},
};

TEST_EACH(the_page_of_the_service_has_its_origin, 0, (int)(sizeof pairs / sizeof *pairs))
{
	bool same = origin_is_same(pairs[_i].origin, strlen(pairs[_i].origin), pairs[_i].host, strlen(pairs[_i].host));

	ck_assert_msg(same == pairs[_i].same, "%s at %s", pairs[_i].origin, pairs[_i].host);
}

TEST(listed_origins_are_found_byte_by_byte)
{
	static const char *const others[] = TEXTS("https://ops.example:443", "https://OPS.example",
						  "https://ops.example/", "http://ops.example", "null", "",
						  "https://ops.exampl", "https://ops.example.evil");

	for (size_t i = 0; i < origins.count; i++)
		ck_assert_ptr_eq(origin_find(origins.items[i], strlen(origins.items[i]), &origins), origins.items[i]);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		ck_assert_ptr_null(origin_find(others[i], strlen(others[i]), &origins));
	ck_assert_ptr_null(origin_find(origins.items[0], strlen(origins.items[0]), &none));
}
