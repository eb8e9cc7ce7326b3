/* SPDX-License-Identifier: MIT */
/* The commands to a master, alone and joined. */
#include "master_words.h"

/* Checks all words after the script's name; `expected` ends with NULL. */
static void assert_words(const struct words *got, const char *first, const char *script, const char *const *expected)
{
	ck_assert_str_eq(got->element[0], first);
	ck_assert_str_eq(got->element[1], script);
	size_t at = 2;
	for (; *expected; expected++, at++) {
		ck_assert_uint_lt(at, got->elements);
		ck_assert_str_eq(got->element[at], *expected);
	}
	ck_assert_uint_eq(at, got->elements);
}

static void check(const struct master_script *script, const char *const *expected)
{
	assert_words(words_of(1, script), script->with_source ? "EVAL" : "EVALSHA",
		     script->with_source ? scripts[script->script].source : scripts[script->script].sha1, expected);
}

#define PLAIN "2", "app:orders/42", "app:redlockd:master", GUARD, ""

TEST(commands_are_as_the_scripts_want_them)
{
	static const char *const acquire[] = {PLAIN,   "0 86400000",       TOKEN, "30000", ":me:you",
					      "14377", "9007199254740991", "",    NULL};
	static const char *const raise[] = {PLAIN, "", TOKEN, "14377", "1795215206922001", NULL};
	static const char *const extend[] = {PLAIN, "", TOKEN, "30000", "", "14377", "1", NULL};
	static const char *const release[] = {PLAIN, "", TOKEN, "", "30000", NULL};
	static const char *const inspect[] = {PLAIN, "", "30000", "100", NULL};
	static const char *const *const expected[] = {
		[REDLOCK_SCRIPT_ACQUIRE] = acquire, [REDLOCK_SCRIPT_RAISE] = raise,
		[REDLOCK_SCRIPT_EXTEND] = extend,   [REDLOCK_SCRIPT_RELEASE] = release,
		[REDLOCK_SCRIPT_INSPECT] = inspect,
	};
	for (enum redlock_script kind = REDLOCK_SCRIPT_ACQUIRE; kind <= REDLOCK_SCRIPT_INSPECT; kind++) {
		struct master_script script = script_of(kind);
		script.fence = kind == REDLOCK_SCRIPT_ACQUIRE ? REDLOCK_FENCE_LIMIT - 1 : UINT64_C(1795215206922001);
		check(&script, expected[kind]);
		script.with_source = true;
		check(&script, expected[kind]);
	}
}

#define SET "3", "app:a", "app:foobar", "app:redlockd:master", GUARD, "2"

TEST(commands_of_a_set_have_a_key_and_a_bucket_for_each_name)
{
	static const char *const acquire[] = {SET,          "0 86400000", TOKEN, "30000", ":me:you",
					      "12480,9881", "7",          "",    NULL};
	static const char *const raise[] = {SET, "", TOKEN, "12480,9881", "7", NULL};
	static const char *const extend[] = {SET, "", TOKEN, "30000", "", "12480,9881", "1", NULL};
	static const char *const release[] = {SET, "", TOKEN, "", "30000", NULL};
	static const char *const *const expected[] = {acquire, raise, extend, release};
	for (unsigned i = 0; i < 4; i++) {
		struct master_script script = script_of(REDLOCK_SCRIPT_ACQUIRE + i);
		script.set_count = 2;
		script.resource = "a\nfoobar";
		script.resource_len = 8;
		check(&script, expected[i]);
	}
}

TEST(an_extension_notes_a_key)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_EXTEND);
	script.key = UINT64_C(0x0123456789abcdef);
	ck_assert_str_eq(words_of(1, &script)->element[11], "7:0123456789abcdef");
}

TEST(a_repair_names_the_buckets)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_ACQUIRE);
	script.repair = true;
	script.buckets = "1795215206922001";
	script.buckets_len = 16;
	script.hold_ms = 4200;
	ck_assert_str_eq(words_of(1, &script)->element[14], "!4200 1795215206922001");
}

/* ---- several in one command ---- */

/* As many as go together, each as long as can be: the text has room for them. */
TEST(the_longest_have_room)
{
	static char name[MASTERS_RESOURCE_MAX];
	static struct master_script list[MASTER_BATCH_MAX];
	memset(name, 'n', sizeof name);
	memset(options.key_prefix, 'p', sizeof options.key_prefix - 1);
	masters.prefix_len = sizeof options.key_prefix - 1;
	know(UINT64_C(1795215206922001));
	for (size_t i = 0; i < MASTER_BATCH_MAX; i++) {
		list[i] = script_of(REDLOCK_SCRIPT_ACQUIRE);
		list[i].resource = name;
		list[i].resource_len = sizeof name;
		list[i].ttl_ms = UINT32_MAX;
		list[i].fence = REDLOCK_FENCE_LIMIT - 1;
		list[i].entry = (struct master_entry){.arrival = UINT64_C(9999999999999999), .wait_ms = UINT64_MAX};
	}
	const struct words *got = words_of(MASTER_BATCH_MAX, list);
	ck_assert_uint_eq(got->elements, MASTER_COMMAND_ARGUMENTS_MAX);
	ck_assert_uint_eq(strlen(got->element[3]), sizeof options.key_prefix - 1 + MASTERS_RESOURCE_MAX);
	strcpy(options.key_prefix, "app:");
}

/* ---- entries in the queue ---- */

#define ENTRY REPLICA ":1795215206922001 60000"
static const struct master_entry entry = {.arrival = UINT64_C(1795215206922001), .wait_ms = 60000};

/* A waiter that leaves the queue has no lock to release: an empty token, never one that a key could begin with. */
TEST(a_release_may_have_no_token)
{
	static const char *const leave[] = {PLAIN, "", "", REPLICA ":1795215206922001 0", "30000", NULL};
	struct master_script script = script_of(REDLOCK_SCRIPT_RELEASE);
	script.token = NULL;
	script.entry.arrival = entry.arrival;
	check(&script, leave);
	script.with_source = true;
	check(&script, leave);
}

/* The scripts cut it at fixed columns: 16 digits, a colon, 16 digits, a blank, the rest. */
static const struct {
	uint64_t arrival, wait_ms;
	const char *entry;
} entries[] = {
	{UINT64_C(1795215206922001), 60000, REPLICA ":1795215206922001 60000"},
	{1, 1, REPLICA ":0000000000000001 1"},
	{REDLOCK_FENCE_LIMIT - 1, 0, REPLICA ":9007199254740991 0"},
	{UINT64_C(1795215206922001), 86400000, REPLICA ":1795215206922001 86400000"},
	/* the longest there is */
	{UINT64_C(9999999999999999), UINT64_MAX, REPLICA ":9999999999999999 18446744073709551615"},
};

TEST_EACH(an_entry_has_fixed_columns, 0, sizeof entries / sizeof *entries)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_RELEASE);
	script.entry = (struct master_entry){.arrival = entries[_i].arrival, .wait_ms = entries[_i].wait_ms};
	const char *got = words_of(1, &script)->element[10];
	ck_assert_str_eq(got, entries[_i].entry);
	ck_assert_int_eq(got[MASTER_REPLICA_LEN], ':');
	ck_assert_int_eq(got[33], ' ');
}

/* A master knows from its entry how many may hold the resource beside a waiter. */
static const struct {
	enum master_kind kind;
	bool of_set;
	const char *entry;
} limits[] = {
	{MASTER_EXCLUSIVE, false, ENTRY},
	{MASTER_EXCLUSIVE, true, ENTRY},
	{MASTER_SHARED, false, REPLICA "+1795215206922001:1000 60000"},
	{MASTER_SHARED, true, REPLICA "+1795215206922001;1000 60000"},
	{MASTER_SLOT, false, REPLICA "#1795215206922001:1000 60000"},
};

TEST_EACH(an_entry_has_the_limit_of_its_mode, 0, sizeof limits / sizeof *limits)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_RELEASE);
	script.kind = limits[_i].kind;
	script.capacity = 1000;
	script.entry = entry;
	script.entry.of_set = limits[_i].of_set;
	ck_assert_str_eq(words_of(1, &script)->element[10], limits[_i].entry);
}

/* ---- listings and other reads ---- */

static void check_words(const struct master_arguments *written, size_t count, const char *const expected[])
{
	ck_assert_uint_eq(written->count, count);
	for (size_t i = 0; i < count; i++) {
		ck_assert_uint_eq(written->arguments[i].len, strlen(expected[i]));
		ck_assert_mem_eq(written->arguments[i].bytes, expected[i], written->arguments[i].len);
	}
}

TEST(values_lists_and_tokens_are_read)
{
	static struct master_arguments written;
	struct master_read_command read = {.resource = "a/b",
					   .resource_len = 3,
					   .read = MASTER_READ_VALUES,
					   .count = 2,
					   .tokens = {TOKEN, TOKEN},
					   .after_ms = 1700000000000};
	const char *const values[] = {"HMGET", "app:redlockd:holders:app:a/b", TOKEN, TOKEN};
	const char *const list[] = {
		"ZRANGEBYSCORE", "app:a/b", "(1700000000000", "+inf", "WITHSCORES", "LIMIT", "0", "100"};
	const char *const tokens[] = {"ZRANGEBYSCORE", "app:a/b", "(1700000000000", "+inf", "LIMIT", "0", "1024"};
	master_script_write_read(&masters, &read, &written);
	check_words(&written, 4, values);
	read.count = 0;
	read.read = MASTER_READ_LIST;
	master_script_write_read(&masters, &read, &written);
	check_words(&written, 8, list);
	read.read = MASTER_READ_TOKENS;
	master_script_write_read(&masters, &read, &written);
	check_words(&written, 7, tokens);
	read.read = MASTER_READ_VALUES;
	read.count = MASTER_READ_VALUES_MAX;
	for (size_t i = 0; i < read.count; i++)
		read.tokens[i] = TOKEN;
	master_script_write_read(&masters, &read, &written);
	ck_assert_uint_eq(written.count, 2 + MASTER_READ_VALUES_MAX);
}

TEST(a_prefix_is_no_pattern)
{
	static struct master_arguments written;
	const struct master_scan_command scan = {.cursor = 17, .prefix = "a*[x]\\", .prefix_len = 6, .keys = 50};
	const char *const expected[] = {"SCAN", "17", "MATCH", "app:a\\*\\[x\\]\\\\*", "COUNT", "50"};
	master_script_write_scan(&masters, &scan, &written);
	check_words(&written, 6, expected);
}

/* ---- the scripts' own words ---- */

/* What acquire.lua says of its mode. */
TEST(a_mode_has_what_is_shared)
{
	static const struct {
		enum master_kind kind;
		uint8_t set_count;
		const char *mode, *entry;
	} modes[] = {
		{MASTER_SHARED, 0, "+ 100", REPLICA "+1795215206922001:100 60000"},
		{MASTER_SLOT, 0, "#17 100", REPLICA "#1795215206922001:100 60000"},
		{MASTER_SHARED, 2, "2 + 100", REPLICA "+1795215206922001:100 60000"},
	};
	struct master_script script = script_of(REDLOCK_SCRIPT_ACQUIRE);
	script.entry = entry;
	script.slot = 17;
	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
		script.kind = modes[i].kind;
		script.set_count = modes[i].set_count;
		script.resource = script.set_count > 0 ? "a\nfoobar" : "orders/42";
		script.resource_len = (uint16_t)strlen(script.resource);
		const struct words *got = words_of(1, &script);
		ck_assert_str_eq(got->element[got->elements - 8], modes[i].mode);
		ck_assert_str_eq(got->element[got->elements - 1], modes[i].entry);
	}
}
