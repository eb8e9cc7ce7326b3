/* SPDX-License-Identifier: MIT */
/* Addresses of listeners and masters: every form that is allowed, with all its parts, and many that are not. */
#include <assert.h>
#include <check.h>
#include <string.h>

#include "server/config/config.h"
#include "server/transport/transport.h"
#include "suite.h"

/* NULL, or the reason. It is added on success alone. */
static const char *parse_address(const char *option, const char *text, struct options *ret_options)
{
	const struct options_entry *entry = options_entry_of(&config_table, option);

	memset(ret_options, 0, sizeof *ret_options);
	const char *reason = entry->parse(entry, text, ret_options);
	assert(ret_options->listen_count + ret_options->master_count == (reason == NULL));
	assert(!reason || reason[0] != '\0');
	return reason;
}

static const char *parse_listen(const char *text, struct address *ret_address)
{
	static struct options options;
	const char *reason = parse_address("listen", text, &options);

	*ret_address = options.listen[0];
	return reason;
}

static const char *parse_master(const char *text, struct address *ret_address)
{
	static struct options options;
	const char *reason = parse_address("masters", text, &options);

	*ret_address = options.masters[0];
	return reason;
}

static const struct {
	const char *text;
	bool is_unix;
	const char *host;
	uint16_t port;
} listens[] = {
	{"127.0.0.1:8080", false, "127.0.0.1", 8080},
	{"0.0.0.0:1", false, "0.0.0.0", 1},
	{"localhost:65535", false, "localhost", 65535},
	{"a-b.example_1.org:80", false, "a-b.example_1.org", 80},
	{"1a:80", false, "1a", 80},
	{"h:0", false, "h", 0},
	{"h:00080", false, "h", 80},
	{"[::1]:8080", false, "::1", 8080},
	{"[::]:0", false, "::", 0},
	{"[::ffff:1.2.3.4]:7", false, "::ffff:1.2.3.4", 7},
	{"unix:/a", true, "/a", 0},
	{"unix:/run/red lock@d/http:1.sock", true, "/run/red lock@d/http:1.sock", 0},
	{"unix:/tmp/\xc3\xa9", true, "/tmp/\xc3\xa9", 0},
	{"unix:///a", true, "/a", 0},
	{":8080", false, "127.0.0.1", 8080},
	{"8080", false, "127.0.0.1", 8080},
	{"http://h:1", false, "h", 1},
	{"https://[::1]:1", false, "::1", 1},
};
enum { LISTENS = sizeof(listens) / sizeof(listens[0]) };

TEST_EACH(good_listen_addresses_are_understood, 0, LISTENS)
{
	struct address address;
	const char *reason = "";

	ck_assert_msg((reason = parse_listen(listens[_i].text, &address)) == NULL, "%s: %s", listens[_i].text, reason);
	ck_assert_int_eq(address.is_unix, listens[_i].is_unix);
	ck_assert_str_eq(address.host, listens[_i].host);
	ck_assert_uint_eq(address.port, listens[_i].port);
}

static const char *const bad_listens[] = TEXTS(
	"", ":", "h", "h:", "h:x", "h:-1", "h:+1", "h: 1", "h:1 ", " h:1", "h:65536", "h:99999999999999999999", "h:1:2",
	"h:1/", "h/:1", "h:0x10", "*:80", "::1", "::1:80", "[::1]", "[::1]:", "[::1]80", "[::1", "[]:80", "[h]:80",
	"[1.2.3.4]:80", "[::1]:1:2", "[fe80::1%eth0]:80", "[:::1]:80", "[v1.x]:80", "HTTP://h:80", "1.2.3:80",
	"256.1.1.1:80", "1.2.3.4.5:80", "01.2.3.4:80", ".h:1", "-h:1", "h\xc3\xa9:1", "h\n:1", "h,i:1", "ftp://h:80",
	"redis://h:80", "u@h:80", "unix:", "unix:a", "unix:/", "unix:./a", "unix:/a/", "unix://a", "unix:////a",
	"unix:/a?b", "http://:80", "http://u:p@h:80", "unix:/a\nb", "unix:/\xff", "UNIX:/a", "/a");
enum { BAD_LISTENS = sizeof(bad_listens) / sizeof(bad_listens[0]) };

TEST_EACH(bad_listen_addresses_are_refused, 0, BAD_LISTENS)
{
	struct address address;

	ck_assert_msg(parse_listen(bad_listens[_i], &address) != NULL, "%s was taken", bad_listens[_i]);
}

static const struct {
	const char *text;
	bool is_unix;
	const char *host;
	uint16_t port, db;
	const char *user, *password, *shown;
} masters[] = {
	{"redis://h", false, "h", 6379, 0, "", "", "redis://h:6379"},
	{"redis://h:7000", false, "h", 7000, 0, "", "", "redis://h:7000"},
	{"redis://h/", false, "h", 6379, 0, "", "", "redis://h:6379"},
	{"redis://h:1/15", false, "h", 1, 15, "", "", "redis://h:1/15"},
	{"redis://h/65535", false, "h", 6379, 65535, "", "", "redis://h:6379/65535"},
	{"redis://10.1.2.3:65535", false, "10.1.2.3", 65535, 0, "", "", "redis://10.1.2.3:65535"},
	{"redis://[::1]", false, "::1", 6379, 0, "", "", "redis://[::1]:6379"},
	{"redis://[2001:db8::2]:7/3", false, "2001:db8::2", 7, 3, "", "", "redis://[2001:db8::2]:7/3"},
	{"redis://:pass@h", false, "h", 6379, 0, "", "pass", "redis://h:6379"},
	{"redis://user:pass@h:7/1", false, "h", 7, 1, "user", "pass", "redis://h:7/1"},
	{"redis://u%3as%40:p%2F%3f%23%25%2c%20@[::1]:7", false, "::1", 7, 0, "u:s@", "p/?#%, ", "redis://[::1]:7"},
	{"redis://u:a+b!$&'()*;=~@h", false, "h", 6379, 0, "u", "a+b!$&'()*;=~", "redis://h:6379"},
	{"redis://:%C3%A9@h", false, "h", 6379, 0, "", "\xc3\xa9", "redis://h:6379"},
	{"unix:/run/r.sock", true, "/run/r.sock", 0, 0, "", "", "unix:/run/r.sock"},
	{"unix:///run/r.sock", true, "/run/r.sock", 0, 0, "", "", "unix:/run/r.sock"},
	{"unix:/a@b:c", true, "/a@b:c", 0, 0, "", "", "unix:/a@b:c"},
	{"unix:/a?db=3", true, "/a", 0, 3, "", "", "unix:/a?db=3"},
	{"unix:///a/b?db=0", true, "/a/b", 0, 0, "", "", "unix:/a/b"},
	{"unix://:pass@/a", true, "/a", 0, 0, "", "pass", "unix:/a"},
	{"unix://us%20er:p%40ss@/a/b?db=12", true, "/a/b", 0, 12, "us er", "p@ss", "unix:/a/b?db=12"},
};
enum { MASTERS = sizeof(masters) / sizeof(masters[0]) };

TEST_EACH(good_masters_are_understood, 0, MASTERS)
{
	struct address address, again;
	const char *reason = "";

	ck_assert_msg((reason = parse_master(masters[_i].text, &address)) == NULL, "%s: %s", masters[_i].text, reason);
	ck_assert_int_eq(address.is_unix, masters[_i].is_unix);
	ck_assert_str_eq(address.host, masters[_i].host);
	ck_assert_uint_eq(address.port, masters[_i].port);
	ck_assert_uint_eq(address.db, masters[_i].db);
	ck_assert_str_eq(address.user, masters[_i].user);
	ck_assert_str_eq(address.password, masters[_i].password);
	ck_assert_str_eq(address.shown, masters[_i].shown);
	/* what is shown leads to the same place, without its password */
	ck_assert((reason = parse_master(address.shown, &again)) == NULL);
	ck_assert_str_eq(again.shown, address.shown);
	ck_assert_str_eq(again.password, "");
}

static const char *const bad_masters[] = TEXTS(
	"", "h", "h:6379", "127.0.0.1:6379", "redis:", "redis:h", "redis:/h", "redis://", "redis:///", "redis:///1",
	"redis://:6379", "redis://h:", "redis://h:0", "redis://h:65536", "redis://h:x", "redis://h:-1", "redis://h:1:2",
	"redis://h: 1", "redis://h:1x", "redis://h:/1", "redis://h/x", "redis://h/-1", "redis://h/65536",
	"redis://h/1/2", "redis://h/1/", "redis://h//", "redis://h?db=1", "redis://h/1?x", "redis://h#1", "redis://::1",
	"redis://::1:6379", "redis://[::1", "redis://[::1]x", "redis://[::1]:", "redis://[h]:1", "redis://[]",
	"redis://1.2.3", "redis://1.2.3.999", "redis://h h", "redis://h\n", "redis://-h", "redis://h,i", "redis://*",
	"redis://@h", "redis://user@h", "redis://user:@h", "redis://:@h", "redis://a:b:c@h", "redis://a:b@c@h",
	"redis://a:b c@h", "redis://a:\xc3\xa9@h", "redis://a:b^c@h", "redis://a:%@h", "redis://a:%4@h",
	"redis://a:%4g@h", "redis://a:%zz@h", "redis://a:%00@h", "redis://a%00:b@h", "redis://a:b/c@h",
	"redis://a:b?c@h", "redis://a:b@", "redis://a:b@:1", "redis://a:b\x01@h", "REDIS://h", "Redis://h", "http://h",
	"tcp://h", "valkey://h", "redis+tls://h", " redis://h", "redis://h ", "redis://redis://h", "unix:", "unix:a",
	"unix:/", "unix://", "unix://a", "unix://a/b", "unix:////a", "unix:/a/", "unix:/a?", "unix:/a?db",
	"unix:/a?db=", "unix:/a?db=x", "unix:/a?db=65536", "unix:/a?db=1&x=2", "unix:/a?x=1", "unix:/a\nb",
	"unix:/\xff", "unix://user@/a", "unix://user:@/a", "unix://u:p@a", "unix://u:p@", "unix://u:%0@/a", "UNIX:/a",
	"/a");
enum { BAD_MASTERS = sizeof(bad_masters) / sizeof(bad_masters[0]) };

TEST_EACH(bad_masters_are_refused, 0, BAD_MASTERS)
{
	struct address address;

	ck_assert_msg(parse_master(bad_masters[_i], &address) != NULL, "%s was taken", bad_masters[_i]);
}

TEST(tls_is_understood)
{
	static const char *const urls[] = {"rediss://h", "rediss://u:p@h:6380/1", "rediss://[::1]:7"};
	static const char *const shown[] = {"rediss://h:6379", "rediss://h:6380/1", "rediss://[::1]:7"};
	struct address address;
	const char *reason;

	for (size_t i = 0; i < 3; i++) {
		ck_assert((reason = parse_master(urls[i], &address)) == NULL && address.tls);
		ck_assert_str_eq(address.shown, shown[i]);
	}
	ck_assert((reason = parse_master("redis://h", &address)) == NULL && !address.tls);
	ck_assert((reason = parse_master("unix:/s", &address)) == NULL && !address.tls);
	/* a mistake in it is told first */
	ck_assert((reason = parse_master("rediss://h:x", &address)) != NULL);
	ck_assert_ptr_nonnull(strstr(reason, "port"));
}

/* "<before><n times c><after>" */
static char *filled(const char *before, size_t n, char c, const char *after)
{
	static char text[2000];
	size_t len = strlen(before);

	strcpy(text, before);
	memset(text + len, c, n);
	strcpy(text + len + n, after);
	return text;
}

TEST(parts_have_their_longest)
{
	static const struct {
		const char *before, *after;
		size_t longest;
	} cases[] = {{"redis://", ":1", 253},   {"redis://", ":65535/65535", 253},
		     {"redis://u:", "@h", 255}, {"redis://", ":p@h", 127},
		     {"unix:/", "", 106},       {"unix:/", "?db=1", 106}};
	struct address address;
	struct address listen;
	const char *reason = "";

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_msg((reason = parse_master(filled(cases[i].before, cases[i].longest, 'x', cases[i].after),
						     &address)) == NULL,
			      "%zu: %s", i, reason);
		ck_assert_msg((reason = parse_master(filled(cases[i].before, cases[i].longest + 1, 'x', cases[i].after),
						     &address)) != NULL,
			      "%zu", i);
		ck_assert_msg(strstr(reason, "long") != NULL, "%s", reason);
	}
	ck_assert((reason = parse_listen(filled("unix:/", 106, 'x', ""), &listen)) == NULL);
	ck_assert((reason = parse_listen(filled("unix:/", 107, 'x', ""), &listen)) != NULL);
	ck_assert((reason = parse_listen(filled("", 253, 'x', ":1"), &listen)) == NULL);
	ck_assert((reason = parse_listen(filled("", 254, 'x', ":1"), &listen)) != NULL);
}
