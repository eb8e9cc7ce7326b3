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

START_TEST(commands_are_as_the_scripts_want_them)
{
	static const char *const acquire[] = {
		"2",       "app:orders/42", "app:redlockd:master", GUARD, "86400000", TOKEN, "30000",
		":me:you", "14377",         "9007199254740991",    "",    NULL,
	};
	static const char *const raise[] = {
		"2", "app:orders/42", "app:redlockd:master", TOKEN, "14377", "1795215206922001", GUARD, NULL};
	static const char *const extend[] = {
		"2", "app:orders/42", "app:redlockd:master", GUARD, TOKEN, "30000", "", "14377", NULL};
	static const char *const release[] = {"2", "app:orders/42", "app:redlockd:master", NO_EPOCH, TOKEN, "", NULL};
	static const char *const inspect[] = {"2", "app:orders/42", "app:redlockd:master", NO_EPOCH, "30000", "100",
					      NULL};
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
END_TEST

#define SET "3", "app:a", "app:foobar", "app:redlockd:master", TOKEN

START_TEST(commands_of_a_set_have_a_key_and_a_bucket_for_each_name)
{
	static const char *const acquire[] = {SET,         "30000", "86400000", ":me:you", "7",    "",  GUARD,
					      "a\nfoobar", "100",   "",         "12480",   "9881", NULL};
	static const char *const raise[] = {SET, "7", GUARD, "12480", "9881", NULL};
	static const char *const extend[] = {SET, "30000", "", GUARD, "a\nfoobar", "12480", "9881", NULL};
	static const char *const release[] = {SET, "", GUARD, "a\nfoobar", NULL};
	static const char *const *const expected[] = {acquire, raise, extend, release};
	for (unsigned i = 0; i < 4; i++) {
		struct master_script script = script_of(REDLOCK_SCRIPT_ACQUIRE + i);
		script.set_count = 2;
		script.resource = "a\nfoobar";
		script.resource_len = 8;
		assert_words(words_of(1, &script), "EVALSHA", scripts[REDLOCK_SCRIPT_ACQUIRE_SET + i].sha1,
			     expected[i]);
	}
}
END_TEST

START_TEST(an_extension_notes_a_key)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_EXTEND);
	script.key = UINT64_C(0x0123456789abcdef);
	ck_assert_str_eq(words_of(1, &script)->element[9], "7:0123456789abcdef");
}
END_TEST

START_TEST(a_repair_names_the_buckets)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_ACQUIRE);
	script.repair = true;
	script.buckets = "1795215206922001";
	script.buckets_len = 16;
	script.hold_ms = 4200;
	ck_assert_str_eq(words_of(1, &script)->element[13], "!4200 1795215206922001");
}
END_TEST

/* ---- several in one command ---- */

/* Of a script that takes a batch: where the arguments of each begin, how many those are, and where its token is. */
static const struct {
	enum redlock_script script;
	size_t shared, each;
} batches[] = {
	{REDLOCK_SCRIPT_ACQUIRE, MASTER_BATCH_SHARED, MASTER_BATCH_EACH},
	{REDLOCK_SCRIPT_EXTEND, 2, 4},
	{REDLOCK_SCRIPT_RELEASE, 1, 2},
};

static void check_batch(unsigned batch, size_t count)
{
	static char names[MASTER_BATCH_MAX][8], tokens[MASTER_BATCH_MAX][RANDOM_TOKEN_LEN + 1];
	static struct master_script list[MASTER_BATCH_MAX];
	size_t shared = batches[batch].shared, each = batches[batch].each;
	char expected[32];
	for (size_t i = 0; i < count; i++) {
		list[i] = script_of(batches[batch].script);
		list[i].resource_len = (uint16_t)snprintf(names[i], sizeof names[i], "r%zu", i);
		list[i].resource = names[i];
		memset(tokens[i], (int)('A' + i), RANDOM_TOKEN_LEN);
		list[i].token = tokens[i];
	}
	const struct words *got = words_of(count, list);
	snprintf(expected, sizeof expected, "%zu", count + 1);
	ck_assert_uint_eq(got->elements, 3 + count + 1 + shared + count * each);
	ck_assert_str_eq(got->element[0], "EVALSHA");
	ck_assert_str_eq(got->element[1], scripts[batches[batch].script].sha1);
	ck_assert_str_eq(got->element[2], expected);
	ck_assert_str_eq(got->element[3 + count], "app:redlockd:master");
	ck_assert_str_eq(got->element[3 + count + 1], NO_EPOCH);
	for (size_t i = 0; i < count; i++) {
		snprintf(expected, sizeof expected, "app:r%zu", i);
		ck_assert_str_eq(got->element[3 + i], expected);
		ck_assert_str_eq(got->element[3 + count + 1 + shared + i * each], tokens[i]);
	}
}

START_TEST(several_are_joined_in_their_order)
{
	for (unsigned batch = 0; batch < sizeof batches / sizeof *batches; batch++)
		check_batch(batch, (size_t)_i);
}
END_TEST

/* As many as go together, each as long as can be: the text has room for them. */
START_TEST(the_longest_have_room)
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
	ck_assert_uint_eq(got->elements, MASTER_WORDS_SENT_MAX);
	ck_assert_uint_eq(strlen(got->element[3]), sizeof options.key_prefix - 1 + MASTERS_RESOURCE_MAX);
	strcpy(options.key_prefix, "app:");
}
END_TEST

/* ---- entries in the queue ---- */

#define ENTRY REPLICA ":1795215206922001 60000"
static const struct master_entry entry = {.arrival = UINT64_C(1795215206922001), .wait_ms = 60000};

START_TEST(an_entry_goes_with_acquire_and_release_alone)
{
	for (enum redlock_script kind = REDLOCK_SCRIPT_ACQUIRE; kind <= REDLOCK_SCRIPT_INSPECT; kind++) {
		struct master_script script = script_of(kind);
		unsigned found = 0;
		script.entry = entry;
		const struct words *got = words_of(1, &script);
		for (size_t i = 0; i < got->elements; i++)
			found += strcmp(got->element[i], ENTRY) == 0;
		ck_assert_uint_eq(found, kind == REDLOCK_SCRIPT_ACQUIRE || kind == REDLOCK_SCRIPT_RELEASE);
	}
}
END_TEST

/* A waiter that leaves the queue has no lock to release: an empty token, never one that a key could begin with. */
START_TEST(a_release_may_have_no_token)
{
	static const char *const leave[] = {
		"2", "app:orders/42", "app:redlockd:master", NO_EPOCH, "", REPLICA ":1795215206922001 0", NULL};
	struct master_script script = script_of(REDLOCK_SCRIPT_RELEASE);
	script.token = NULL;
	script.entry.arrival = entry.arrival;
	check(&script, leave);
	script.with_source = true;
	check(&script, leave);
}
END_TEST

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

START_TEST(an_entry_has_fixed_columns)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_RELEASE);
	script.entry = (struct master_entry){.arrival = entries[_i].arrival, .wait_ms = entries[_i].wait_ms};
	const char *got = words_of(1, &script)->element[7];
	ck_assert_str_eq(got, entries[_i].entry);
	ck_assert_int_eq(got[MASTER_REPLICA_LEN], ':');
	ck_assert_int_eq(got[33], ' ');
}
END_TEST

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

START_TEST(an_entry_has_the_limit_of_its_mode)
{
	struct master_script script = script_of(REDLOCK_SCRIPT_RELEASE);
	script.kind = limits[_i].kind;
	script.most = 1000;
	script.entry = entry;
	script.entry.of_set = limits[_i].of_set;
	ck_assert_str_eq(words_of(1, &script)->element[7], limits[_i].entry);
}
END_TEST

/* ---- listings and other reads ---- */

static void check_words(const struct master_words *written, size_t count, const char *const expected[])
{
	ck_assert_uint_eq(written->count, count);
	for (size_t i = 0; i < count; i++) {
		ck_assert_uint_eq(written->words[i].len, strlen(expected[i]));
		ck_assert_mem_eq(written->words[i].bytes, expected[i], written->words[i].len);
	}
}

START_TEST(values_and_tokens_are_read)
{
	static struct master_words written;
	struct master_read_command read = {
		.resource = "a/b", .resource_len = 3, .count = 2, .tokens = {TOKEN, TOKEN}, .after_ms = 1700000000000};
	const char *const values[] = {"HMGET", "app:redlockd:holders:app:a/b", TOKEN, TOKEN};
	const char *const tokens[] = {"ZRANGEBYSCORE", "app:a/b", "(1700000000000", "+inf", "LIMIT", "0", "1024"};
	master_script_write_read(&masters, &read, &written);
	check_words(&written, 4, values);
	read.count = 0;
	master_script_write_read(&masters, &read, &written);
	check_words(&written, 7, tokens);
	read.count = MASTER_READ_VALUES_MAX;
	for (size_t i = 0; i < read.count; i++)
		read.tokens[i] = TOKEN;
	master_script_write_read(&masters, &read, &written);
	ck_assert_uint_eq(written.count, 2 + MASTER_READ_VALUES_MAX);
}
END_TEST

START_TEST(a_prefix_is_no_pattern)
{
	static struct master_words written;
	const struct master_scan_command scan = {.cursor = 17, .prefix = "a*[x]\\", .prefix_len = 6, .keys = 50};
	const char *const expected[] = {"SCAN", "17", "MATCH", "app:a\\*\\[x\\]\\\\*", "COUNT", "50"};
	master_script_write_scan(&masters, &scan, &written);
	check_words(&written, 6, expected);
}
END_TEST

/* ---- the scripts' own words ---- */

/* The arguments by the head of each script, in this order, each with a value of its own. */
static const struct {
	const char *name, *value;
} argument_values[] = {
	{"token", TOKEN},
	{"ttl_ms", "30000"},
	{"watch_ms", "30000"},
	{"max_hold_ms", "86400000"},
	{"label", ":me:you"},
	{"note", ""},
	{"bucket", "14377"},
	{"guess", "7"},
	{"most", "100"},
	{"fence", "7"},
	{"entry", ENTRY},
	{"epoch", "----------------"},
	{"deadline_us", "9999999999999999"},
};

static const char *value_of(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof argument_values / sizeof *argument_values; i++)
		if (strlen(argument_values[i].name) == len && memcmp(argument_values[i].name, name, len) == 0)
			return argument_values[i].value;
	ck_abort_msg("the script has an argument %.*s", (int)len, name);
}

/* In the comment at its top a script names ARGV[1], ARGV[2], … one after the other. Only until_s may be left out. */
START_TEST(arguments_are_in_the_order_of_the_scripts)
{
	struct master_script script = script_of((enum redlock_script)_i);
	script.entry = entry;
	words_of(1, &script);
	const char *at = scripts[_i].source, *code = strstr(at, "\nlocal ");
	size_t count = 0;
	while ((at = strstr(at, "ARGV[")) != NULL && at < code) {
		ck_assert_uint_eq(strtoul(at + 5, NULL, 10), count + 1);
		at = strchr(at, ']') + 1;
		at += strspn(at, " ");
		size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
		if (len == 7 && memcmp(at, "until_s", len) == 0)
			break;
		ck_assert_uint_lt(5 + count, words.elements);
		ck_assert_str_eq(words.element[5 + count], value_of(at, len));
		count++;
	}
	ck_assert_uint_eq(5 + count, words.elements);
}
END_TEST

/* What acquire_shared.lua wants: see its head. */
START_TEST(an_acquisition_that_leaves_room_for_others_is_of_its_own)
{
	static const char *const shown[] = {REPLICA "+1795215206922001:100 60000",
					    REPLICA "#1795215206922001:100 60000"};
	struct master_script script = script_of(REDLOCK_SCRIPT_ACQUIRE);
	script.entry = entry;
	script.slot = 17;
	for (unsigned i = 0; i < 2; i++) {
		script.kind = i == 0 ? MASTER_SHARED : MASTER_SLOT;
		const struct words *got = words_of(1, &script);
		ck_assert_uint_eq(got->elements, 16);
		ck_assert_str_eq(got->element[1], scripts[REDLOCK_SCRIPT_ACQUIRE_SHARED].sha1);
		ck_assert_str_eq(got->element[11], shown[i]);
		ck_assert_str_eq(got->element[15], i == 0 ? "+" : "#17");
	}
}
END_TEST

/* The build resolves all --include lines, and both scripts that use the queue have the same parts. */
START_TEST(included_parts_are_in_the_scripts)
{
	static const enum redlock_script with_queue[] = {REDLOCK_SCRIPT_ACQUIRE, REDLOCK_SCRIPT_RELEASE};
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++)
		ck_assert_ptr_null(strstr(scripts[script].source, "--include"));
	for (size_t i = 0; i < 2; i++) {
		ck_assert_ptr_nonnull(strstr(scripts[with_queue[i]].source,
					     "entries = redis.call('ZRANGE', queue, stale, stale + last)"));
		ck_assert_ptr_nonnull(strstr(scripts[with_queue[i]].source,
					     "redis.call('ZADD', queue, 'NX', string.sub(entry, 18, 33), entry)"));
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("master_script");
	tcase_add_checked_fixture(tests, set_up, NULL);
	suite_add(tests, commands_are_as_the_scripts_want_them, commands_of_a_set_have_a_key_and_a_bucket_for_each_name,
		  an_extension_notes_a_key, a_repair_names_the_buckets);
	tcase_add_loop_test(tests, several_are_joined_in_their_order, 1, MASTER_BATCH_MAX + 1);
	suite_add(tests, the_longest_have_room, values_and_tokens_are_read, a_prefix_is_no_pattern,
		  an_entry_goes_with_acquire_and_release_alone, a_release_may_have_no_token);
	tcase_add_loop_test(tests, an_entry_has_fixed_columns, 0, sizeof entries / sizeof *entries);
	tcase_add_loop_test(tests, an_entry_has_the_limit_of_its_mode, 0, sizeof limits / sizeof *limits);
	tcase_add_loop_test(tests, arguments_are_in_the_order_of_the_scripts, REDLOCK_SCRIPT_ACQUIRE,
			    REDLOCK_SCRIPT_INSPECT + 1);
	suite_add(tests, an_acquisition_that_leaves_room_for_others_is_of_its_own, included_parts_are_in_the_scripts);
	return suite_run("master_script", tests, NULL);
}
