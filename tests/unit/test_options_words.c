/* Options that are words: choices, switches, the key prefix, and --dev, which is a switch or a number. Each by flag,
 * variable and file, good and bad. Numbers and lists: test_options.c. */
#include "options_given.h"
#include "suite.h"

static const struct {
	const char *name;
	size_t offset;
	const char *allowed, *words[5]; /* by their value, from 0 */
} choices[] = {
	{"log-level",
	 offsetof(struct options, log_level),
	 "debug, info, warn or error",
	 {"debug", "info", "warn", "error"}},
	{"log-requests", offsetof(struct options, log_requests), "all, errors or none", {"all", "errors", "none"}},
	{"log-format", offsetof(struct options, log_format), "logfmt or json", {"logfmt", "json"}},
	{"restart-guard", offsetof(struct options, restart_guard), "on, whole or off", {"on", "whole", "off"}},
};

static uint32_t number_at(size_t offset)
{
	uint32_t value;

	memcpy(&value, (const char *)&options + offset, sizeof(value));
	return value;
}

TEST_EACH(choices_are_taken_by_name, 0, COUNT(choices) * SOURCES)
{
	const char *name = choices[_i / SOURCES].name, *const *words = choices[_i / SOURCES].words;
	int source = _i % SOURCES;

	for (unsigned i = 0; words[i] != NULL; i++) {
		give_text(name, source, words[i]);
		give_flag("--dev");
		assert_loads();
		ck_assert_uint_eq(number_at(choices[_i / SOURCES].offset), i);
	}
}

TEST_EACH(choices_are_nothing_else, 0, COUNT(choices))
{
	static const char *const bad[] = {"",    "INFO", "trace", "inf",   "info ", "1",  "ON",
					  "Off", "0",    "true",  "false", "no",    "of", "off "};
	static const char *const jsons[] = {"true", "false", "0", "null", "[\"off\"]", "[\"info\"]", "1"};
	const char *name = choices[_i].name;
	char allowed[100];

	snprintf(allowed, sizeof(allowed), "; allowed are %s", choices[_i].allowed);
	for (int source = 0; source < SOURCES; source++)
		for (size_t i = 0; i < COUNT(bad); i++) {
			give_text(name, source, bad[i]);
			assert_mistake(spell(name, source), allowed, NULL);
		}
	for (size_t i = 0; i < COUNT(jsons); i++) {
		give(name, 2, jsons[i]);
		assert_mistake(file_path, spell(name, 2), ": the value has the wrong type", allowed, NULL);
	}
	give_flag("--%s", name);
	assert_mistake(spell(name, 0), ": the value is missing", allowed, NULL);
}

TEST(the_restart_guard_is_on)
{
	give_flag("--dev");
	assert_loads();
	ck_assert_uint_eq(options.restart_guard, OPTIONS_GUARD_ON);
}

/* Others: options.txt. */
TEST(the_key_prefix_is_plain_text)
{
	static const char *const good[] = {"", "app:", "{x}", "a b", "\xc3\xa9", "\xf0\x9f\x94\x92/", "%s"};
	char text[131];

	for (int source = 0; source < SOURCES; source++)
		for (size_t i = 0; i < COUNT(good); i++) {
			give_text("key-prefix", source, good[i]);
			give_flag("--dev");
			assert_loads();
			ck_assert_str_eq(options.key_prefix, good[i]);
		}
	memset(text, 'x', 129);
	text[128] = '\0';
	give("key-prefix", 0, text);
	give_flag("--dev");
	assert_loads();
	ck_assert_str_eq(options.key_prefix, text);
	strcpy(text + 128, "x");
	give("key-prefix", 0, text);
	assert_mistake("too long", NULL);
}

TEST(dev_is_a_switch_or_a_number)
{
	static const struct {
		const char *value;
		uint32_t count;
	} good[] = {{"true", 3}, {"1", 1}, {"3", 3}, {"15", 15}};
	static const char *const bad[] = {"0", "16", "-1", "yes", "on", "TRUE", "", "3.0"};

	give_flag("--dev");
	assert_loads();
	ck_assert_uint_eq(options.dev, 3);
	for (int source = 0; source < SOURCES; source++) {
		for (size_t i = 0; i < COUNT(good); i++) {
			give("dev", source, good[i].value);
			assert_loads();
			ck_assert_uint_eq(options.dev, good[i].count);
			ck_assert_uint_eq(options.master_count, 0);
		}
		for (size_t i = 0; i < COUNT(bad); i++) {
			give_text("dev", source, bad[i]);
			assert_mistake(spell("dev", source), "; allowed are true, false or 1 to 15", NULL);
		}
		give("dev", source, "false");
		give_flag("--masters=redis://h");
		assert_loads();
		ck_assert_uint_eq(options.dev, 0);
	}
	give("dev", 2, "16");
	assert_mistake("dev=16: too high", NULL);
	give("dev", 2, "2.5");
	assert_mistake("dev: the value has the wrong type", NULL);
}

static const struct {
	const char *name;
	size_t offset;
} switches[] = {{"bootstrap", offsetof(struct options, bootstrap)},
		{"allow-replicas", offsetof(struct options, allow_replicas)}};
enum { SWITCHES = COUNT(switches) };

static void assert_switch(int which, bool expected)
{
	assert_loads();
	ck_assert_uint_eq(number_at(switches[which].offset), expected);
}

TEST_EACH(switches_are_true_or_false, 0, SWITCHES)
{
	const char *name = switches[_i].name;

	give_flag("--masters=redis://a");
	assert_switch(_i, false);
	give_flag("--%s", name);
	give_flag("--masters"); /* what follows is not its value */
	give_flag("redis://a");
	assert_switch(_i, true);
	for (int source = 0; source < SOURCES; source++)
		for (int value = 0; value < 2; value++) {
			give(name, source, value ? "true" : "false");
			give_flag("--masters=redis://a");
			assert_switch(_i, value);
		}
	give_flag("--%s=false", name); /* the flag goes before the others, also when it says no */
	give_variable("%s=true", spell(name, 1));
	give("masters", 2, "\"redis://a\"");
	assert_switch(_i, false);
	give_variable("%s=false", spell(name, 1));
	snprintf(json, sizeof(json), "{\"masters\":\"redis://a\",\"%s\":true}", spell(name, 2));
	assert_switch(_i, false);
}

TEST_EACH(switches_are_nothing_else, 0, SWITCHES)
{
	static const char *const bad[] = {"",  "TRUE", "True",  "yes",   "on",       "off",
					  "1", "0",    " true", "true ", "truefalse"};
	static const char *const jsons[] = {"1", "0", "\"true\"", "\"\"", "null", "[true]", "{}", "1.0"};
	const char *name = switches[_i].name;
	char named[300];

	for (int source = 0; source < 2; source++)
		for (size_t i = 0; i < COUNT(bad); i++) {
			snprintf(named, sizeof(named), "%s%s%s", spell(name, source),
				 strchr(bad[i], ' ') == NULL ? "=" : "", strchr(bad[i], ' ') == NULL ? bad[i] : ": ");
			give(name, source, bad[i]);
			give_flag("--dev");
			assert_mistake(named, "; allowed are false or true", NULL);
		}
	for (size_t i = 0; i < COUNT(jsons); i++) {
		snprintf(named, sizeof(named), "%s: the value has the wrong type", spell(name, 2));
		give(name, 2, jsons[i]);
		give_flag("--dev");
		assert_mistake(file_path, named, "; allowed are false or true", NULL);
	}
	give_flag("--%s", name);
	give_flag("true");
	give_flag("--dev");
	assert_mistake("argument 2 ('true'): not an option", NULL);
	give_flag("--%s", name);
	give_flag("--%s=true", name);
	assert_mistake("given twice", NULL);
}

FIXTURE(options_set_up, options_tear_down)
