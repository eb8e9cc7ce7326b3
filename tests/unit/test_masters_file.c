/* SPDX-License-Identifier: MIT */
/* Where the passwords of masters may stand: in --masters-file, in a --config that others cannot read, in the
 * environment; options.txt has the command line. And that no message repeats one. */
#include <sys/stat.h>

#include "options_given.h"
#include "suite.h"

static char masters_path[64];

static void set_up(void)
{
	options_set_up();
	strcpy(masters_path, "/tmp/redlockd-masters-XXXXXX");
	int fd = mkstemp(masters_path);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void tear_down(void)
{
	unlink(masters_path);
	options_tear_down();
}

static void write_masters(const char *bytes, size_t len)
{
	FILE *file = fopen(masters_path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
	fclose(file);
}

/* Loads with a masters file of this content. */
static bool load_masters(const char *content)
{
	write_masters(content, strlen(content));
	give_flag("--masters-file=%s", masters_path);
	return load();
}

/* ---- the file ---- */

TEST(a_file_of_masters_is_read)
{
	static const char *const contents[] = {
		"redis://u:p%2Cw@a:1\nunix:/b\nredis://c/2", "redis://u:p%2Cw@a:1\nunix:/b\nredis://c/2\n",
		"redis://u:p%2Cw@a:1,unix:/b,redis://c/2\n", "redis://u:p%2Cw@a:1, unix:/b,\n\tredis://c/2\r\n\r\n",
		"# three of them\n\nredis://u:p%2Cw@a:1 # the first, redis://x\n  # no more\nunix:/b,redis://c/2#"};

	for (size_t i = 0; i + 1 < COUNT(contents); i++) {
		ck_assert_msg(load_masters(contents[i]), "%zu: %s", i, message);
		ck_assert_uint_eq(options.master_count, 3);
		ck_assert_str_eq(options.masters[0].password, "p,w");
		ck_assert_str_eq(options.masters[1].shown, "unix:/b");
		ck_assert_str_eq(options.masters[2].shown, "redis://c:6379/2");
	}
	ck_assert(!load_masters(contents[4])); /* a # within a word begins no comment */
	ck_assert_ptr_nonnull(strstr(message, "line 5: "));
}

TEST(it_may_be_given_by_every_source)
{
	write_masters("redis://a", 9);
	for (int source = 0; source < SOURCES; source++) {
		give_text("masters-file", source, masters_path);
		assert_loads();
		ck_assert_uint_eq(options.master_count, 1);
		ck_assert_str_eq(options.masters[0].host, "a");
	}
}

TEST(a_bad_file_of_masters_is_a_mistake)
{
	static const struct {
		const char *content, *reason;
	} cases[] = {
		{"", ": holds no address"},
		{"# none\n , \n", ": holds no address"},
		{"redis://a\nredis://:s3cret@h:x\n", ": line 2: "},
		{"redis://a\n\n\nhttp://:s3cret@h\n", ": line 4: the scheme is not one of those"},
		{"redis://a\nredis://:s3cret@a\n", ": line 2: the same master twice"},
		{"redis://:a s3cret@h\n", ": line 1: "},
		{"redis://:a,s3cret@h\n", ": line 1: "},
		{"redis://:a #s3cret@h\n", ": line 1: "},
		{"{\"masters\":[\"redis://:s3cret@h\"]}", ": line 1: "},
	};
	char named[100];

	for (size_t i = 0; i < COUNT(cases); i++) {
		ck_assert_msg(!load_masters(cases[i].content), "%s", cases[i].content);
		snprintf(named, sizeof(named), "--masters-file: %s%s", masters_path, cases[i].reason);
		ck_assert_msg(strncmp(message, named, strlen(named)) == 0, "no \"%s\" in: %s", named, message);
		ck_assert_msg(strstr(message, "s3cret") == NULL, "%s", message);
	}
	write_masters("redis://a\0redis://b", 19);
	give_flag("--masters-file=%s", masters_path);
	assert_mistake(masters_path, "holds a NUL", NULL);
	give_variable("REDLOCKD_MASTERS_FILE=/no/such/file");
	assert_mistake("REDLOCKD_MASTERS_FILE: /no/such/file: No such file", NULL);
}

TEST(it_is_bounded)
{
	char *content = malloc((1 << 16) + 2);

	memset(content, '\n', (1 << 16) + 1);
	memcpy(content, "redis://a", 9);
	content[1 << 16] = '\0';
	ck_assert_msg(load_masters(content), "%s", message);
	content[1 << 16] = '\n';
	content[(1 << 16) + 1] = '\0';
	ck_assert(!load_masters(content));
	ck_assert_ptr_nonnull(strstr(message, "too large"));
	free(content);
	char list[400] = "";
	for (int i = 0; i < 16; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "redis://h%d\n", i);
	ck_assert(!load_masters(list));
	ck_assert_ptr_nonnull(strstr(message, "line 16: too many; masters are 1 to 15 of "));
}

TEST(the_masters_come_from_one_place)
{
	write_masters("redis://a", 9);
	give_flag("--masters-file=%s", masters_path);
	give_flag("--masters=redis://b");
	assert_mistake("cannot be used together with --masters", NULL);
	give_flag("--masters-file=%s", masters_path);
	give_flag("--dev");
	assert_mistake("cannot be used together with --", NULL);
	give_variable("REDLOCKD_MASTERS_FILE=%s", masters_path);
	give_flag("--masters=redis://b");
	assert_mistake("--masters: cannot be used together with REDLOCKD_MASTERS_FILE", NULL);
	give_flag("--masters-file=%s", masters_path);
	give_flag("--dev=false");
	assert_loads();
	assert_mistake("--masters: missing: give ", " or --masters-file FILE, or try redlockd out with --dev", NULL);
}

/* ---- read again ---- */

/* Nothing of a bad file is used. */
TEST(a_bad_file_is_not_read_again)
{
	static const struct {
		const char *content, *reason;
	} cases[] = {
		{"redis://u:new@a:1\nunix:/b", ": has 2 masters and not 3: "},
		{"redis://u:new@a:1\nunix:/b\nredis://c/2\nredis://d", ": has 4 masters and not 3: "},
		{"unix:/b\nredis://u:new@a:1\nredis://c/2", ": master 1 was master 2: "},
		{"redis://u:new@a:1\nredis://d\nredis://A:1/2", ": line 3: the same master twice; "},
		{"redis://u:new@a:1\nredis://C\nredis://d/2", ": master 2 was master 3: "},
		{"redis://u:new@a:1\nunix:/b\nredis://c", ": master 3: another database "},
		{"redis://u:new@a:1\nunix:/b\nredis://d/3", ": master 3: another database "},
		{"redis://u:s3cret@a:0\nunix:/b\nredis://c/2", ": line 1: "},
		{"", ": holds no address; "},
	};

	ck_assert(load_masters("redis://u:old@a:1\nunix:/b\nredis://c/2"));
	for (size_t i = 0; i < COUNT(cases); i++) {
		write_masters(cases[i].content, strlen(cases[i].content));
		ck_assert_msg(!config_reload_masters(&options, message, sizeof message), "%s", cases[i].content);
		ck_assert_msg(strstr(message, cases[i].reason) != NULL, "%s: %s", cases[i].reason, message);
		ck_assert_int_eq(strncmp(message, "--masters-file: ", 16), 0);
		ck_assert(strstr(message, "s3cret") == NULL);
		ck_assert_str_eq(options.masters[0].password, "old");
		ck_assert_str_eq(options.masters[1].shown, "unix:/b");
		ck_assert_str_eq(options.masters[2].shown, "redis://c:6379/2");
	}
	ck_assert_int_eq(chmod(masters_path, 0644), 0);
	ck_assert(!config_reload_masters(&options, message, sizeof message));
	ck_assert_ptr_nonnull(strstr(message, "must not be readable by others"));
}

/* ---- the command line, the configuration file ---- */

TEST(a_configuration_file_with_a_password_is_a_secret)
{
	static const mode_t bad[] = {0644, 0604, 0660, 0606};

	for (size_t i = 0; i < COUNT(bad); i++) {
		ck_assert_int_eq(chmod(file_path, bad[i]), 0);
		strcpy(json, "{\"masters\":[\"redis://a\",\"redis://:s3cret@b\"]}");
		ck_assert(!load());
		ck_assert_msg(strstr(message, file_path) != NULL &&
				      strstr(message, "holds a password, and so must not be ") != NULL,
			      "%s", message);
		ck_assert_msg(strstr(message, "s3cret") == NULL, "%s", message);
		strcpy(json, "{\"masters\":\"redis://:s3cret@b\"}"); /* not looked at if something else overrides it */
		give_variable("REDLOCKD_MASTERS=redis://h");
		assert_loads();
		strcpy(json, "{\"masters\":\"redis://a\"}");
		assert_loads();
	}
	ck_assert_int_eq(chmod(file_path, 0640), 0);
	strcpy(json, "{\"masters\":\"redis://:s3cret@b\"}");
	assert_loads();
}

FIXTURE(set_up, tear_down)
