/* SPDX-License-Identifier: MIT */
/* The shape of the command line, the environment and the configuration file; options that must go together; and that no
 * message holds a password or more than one line. */
#include "options_given.h"
#include "rows.h"
#include "suite.h"

/* ---- tests/unit/options.txt ---- */

/* "log-level=2 dev=0": numbers of options, as they are loaded. */
static void assert_numbers(const char *line, const char *numbers)
{
	char name[64];
	unsigned long long wanted;
	for (int len = 0; sscanf(numbers, " %63[^=]=%llu%n", name, &wanted, &len) == 2; numbers += len) {
		const struct options_entry *entry = options_entry_of(&config_table, name);
		uint64_t number = 0;
		memcpy(&number, (const char *)&options + entry->offset, entry->size); /* little-endian */
		ck_assert_msg(number == wanted, "%s: %s is %llu", line, name, (unsigned long long)number);
	}
}

static void load_row(const char *line, char *given, const char *expected)
{
	char said[sizeof message], *words, *at, *file = strstr(given, "FILE ");
	if (file) {
		snprintf(json, sizeof json, "%s", rows_decode(file + 5));
		*file = '\0';
	}
	for (char *word = strtok_r(given, " ", &words); word; word = strtok_r(NULL, " ", &words))
		if (*word == '$')
			give_variable("%s", rows_decode(word + 1));
		else
			flags[flag_count++] = strdup(rows_decode(word));
	bool good = load(), has_numbers = strncmp(expected, "ok ", 3) == 0;
	snprintf(said, sizeof said, "%s", good ? "ok" : message);
	if ((at = strstr(said, file_path)))
		snprintf(at, sizeof said - (size_t)(at - said), "FILE%s",
			 strstr(message, file_path) + strlen(file_path));
	ck_assert_msg(rows_match(said, has_numbers ? "ok" : expected), "%s: %s", line, said);
	if (has_numbers)
		assert_numbers(line, expected + 2);
	else if (good) /* no row that is good gives another number */
		ck_assert_msg(options.workers == 1, "%s", line);
}

TEST(every_mistake_has_its_message)
{
	ck_assert_uint_ge(rows_check(OPTIONS_ROWS, load_row), 200);
}

TEST(the_file_may_be_named_by_a_variable)
{
	FILE *file = fopen(file_path, "we");

	fputs("{\"dev\":2}", file);
	fclose(file);
	give_variable("REDLOCKD_CONFIG=%s", file_path);
	assert_loads();
	ck_assert_uint_eq(options.dev, 2);
	give_variable("REDLOCKD_CONFIG=/no/such/file"); /* the flag goes before it */
	give_flag("--config=%s", file_path);
	assert_loads();
	ck_assert_uint_eq(options.dev, 2);
	give_variable("REDLOCKD_CONFIG=/no/such/file");
	assert_mistake("REDLOCKD_CONFIG: /no/such/file: No such file", NULL);
}

TEST(a_file_may_have_one_mebibyte)
{
	static char spaces[(1 << 20) + 1];

	for (int more = 0; more < 2; more++) {
		FILE *file = fopen(file_path, "we");
		memset(spaces, ' ', sizeof(spaces));
		memcpy(spaces, "{\"dev\":1}", 9);
		fwrite(spaces, 1, (1 << 20) + (size_t)more, file);
		fclose(file);
		give_flag("--config=%s", file_path);
		if (more)
			assert_mistake("larger than 1 MiB", NULL);
		else
			assert_loads();
	}
}

/* ---- passwords ---- */

static void assert_hushed(const char *given)
{
	ck_assert_msg(!load(), "%s was taken", given);
	ck_assert_msg(strstr(message, "s3cret") == NULL, "%s: %s", given, message);
}

TEST(passwords_are_not_repeated)
{
	static const char *const urls[] = TEXTS(
		"redis://u:s3cret@", "redis://u:s3cret@:1", "redis://u:s3cret@h:x", "redis://u:s3cret@h/x",
		"redis://u:s3cret@h?x", "redis://u:s3cret@h:1:2", "redis://u:a@s3cret@h", "redis://u:%s3cret@h",
		"redis://u:x/s3cret@h", "redis://u:x,s3cret@h", "redis://u:x@y,s3cret@h", "redis://:s3cret,x@h",
		"redis://u:s3cret", "redis://:s3cret", "redis://u:x?s3cret@h", "redis://u:x#s3cret",
		"redis://h?password=s3cret", "rediss://u:s3cret@", "rediss://u:s3cret@h:x", "http://u:s3cret@h",
		"u:s3cret@h:1", "redis:u:s3cret@h", "redis:/u:s3cret@h", "redis//u:s3cret@h", "REDIS://u:s3cret@h",
		"unix://u:s3cret/path", "unix://u:s3cret@path", "unix://u:s3cret@/path?x=1", "unix://u:s3cret@/path/",
		"unix:u:s3cret@/path", "redis://a,redis://u:s3cret@h:x,redis://b",
		"redis://u:s3cret@h,redis://u:s3cret@h", "redis:// u:s3cret@h", "redis://u:s3:cret@h,s3cret",
		"redis://s3cret@h", "unix://s3cret@/path");

	for (size_t i = 0; i < COUNT(urls); i++) {
		for (int source = 0; source < SOURCES; source++) {
			give_text("masters", source, urls[i]);
			assert_hushed(urls[i]);
			ck_assert_ptr_nonnull(strstr(message, spell("masters", source)));
		}
		snprintf(json, sizeof(json), "{\"masters\":[\"redis://ok\",\"%s\",\"redis://x:\"]}", urls[i]);
		assert_hushed(urls[i]);
		snprintf(json, sizeof(json), "{\"masters\":\"%s\" \"x\"}", urls[i]); /* broken just behind it */
		assert_hushed(urls[i]);
		if (strchr(urls[i], '@') == NULL)
			continue;
		give_flag("--masterz=%s", urls[i]);
		assert_hushed(urls[i]);
		give_variable("REDLOCKD_MASTERZ=%s", urls[i]);
		assert_hushed(urls[i]);
	}
	give_flag("redis://u:s3cret@h");
	assert_hushed("an argument");
	give_flag("--listen=redis://u:s3cret@h");
	assert_hushed("--listen");
	give_flag("--masters=redis://host-one,redis://host-two:70000");
	assert_mistake("--masters, address 2: the port is not a number from 0 to 65535", NULL);
	ck_assert_ptr_null(strstr(message, "70000"));
}

TEST(a_key_prefix_has_a_longest)
{
	give_flag("--key-prefix=%0128d", 7);
	give_flag("--dev");
	assert_loads();
	ck_assert_uint_eq(strlen(options.key_prefix), 128);
	give_flag("--key-prefix=%0129d", 7);
	assert_mistake("--key-prefix: too long", NULL);
}

FIXTURE(options_set_up, options_tear_down)
