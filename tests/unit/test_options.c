/* SPDX-License-Identifier: MIT */
/* Each number by flag, variable and file: good, too low, too high and garbage; precedence; lists. What is expected is
 * written down here once more, on purpose: a changed bound or default must be changed in two places. Words, switches
 * and the sources themselves: test_options_sources.c; addresses: test_options_address.c; help, manual page and docs:
 * test_options_help.c. */
#include "options_given.h"
#include "suite.h"

/* ---- numbers ---- */

#define MEMBER(m) offsetof(struct options, m), sizeof(((struct options *)NULL)->m)

static const struct number {
	const char *name;
	size_t offset, size;
	uint64_t low, high, standard;
	const char *companions; /* other flags with which all of low to high passes the checks over several options */
} numbers[] = {
	{"default-ttl-ms", MEMBER(default_ttl_ms), 10, 86400000, 30000, "--min-ttl-ms=10 --max-ttl-ms=86400000"},
	{"min-ttl-ms", MEMBER(min_ttl_ms), 10, 86400000, 100, "--default-ttl-ms=86400000 --max-ttl-ms=86400000"},
	{"max-ttl-ms", MEMBER(max_ttl_ms), 10, 86400000, 60000, "--min-ttl-ms=10 --default-ttl-ms=10"},
	{"max-wait-ms", MEMBER(max_wait_ms), 0, 86400000, 60000, ""},
	{"max-waiters", MEMBER(max_waiters), 1, 1000000, 8000, ""},
	{"max-waiters-per-resource", MEMBER(max_waiters_per_resource), 1, 1000000, 1000, ""},
	{"max-shared", MEMBER(max_shared), 1, 10000, 1000, ""},
	{"max-hold-ms", MEMBER(max_hold_ms), 0, UINT64_C(31536000000), 86400000, ""},
	{"master-timeout-ms", MEMBER(master_timeout_ms), 1, 60000, 1000, ""}, /* with --dev */
	{"retry-min-ms", MEMBER(retry_min_ms), 0, 60000, 50, "--retry-max-ms=60000"},
	{"retry-max-ms", MEMBER(retry_max_ms), 0, 60000, 250, "--retry-min-ms=0"},
	{"retry-count", MEMBER(retry_count), 1, 100, 3, ""},
	{"drift-ms", MEMBER(drift_ms), 2, 60000, 2, "--min-ttl-ms=70000 --default-ttl-ms=70000 --max-ttl-ms=70000"},
	{"workers", MEMBER(workers), 1, 64, 1, ""},
	{"max-connections", MEMBER(max_connections), 1, 1000000, 10000, ""},
	{"request-timeout-ms", MEMBER(request_timeout_ms), 100, 3600000, 10000, ""},
	{"idle-timeout-ms", MEMBER(idle_timeout_ms), 100, 86400000, 60000, ""},
	{"drain-ms", MEMBER(drain_ms), 0, 3600000, 10000, ""},
};
enum { NUMBERS = COUNT(numbers) };

static uint64_t value_of(const struct number *number)
{
	const char *place = (const char *)&options + number->offset;
	uint32_t narrow;
	uint64_t wide;

	memcpy(&narrow, place, sizeof(narrow));
	memcpy(&wide, place, sizeof(wide));
	return number->size == sizeof(wide) ? wide : narrow;
}

static void give_companions(const struct number *number)
{
	char words[200];

	strcpy(words, number->companions);
	for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
		give_flag("%s", word);
	give_flag("--dev");
}

static void give_number(const struct number *number, int source, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	give(number->name, source, text);
	give_companions(number);
}

static bool is_time(const struct number *number)
{
	return strstr(number->name, "-ms") != NULL;
}

TEST_EACH(numbers_within_their_bounds_are_taken, 0, NUMBERS *SOURCES)
{
	const struct number *number = &numbers[_i / SOURCES];
	uint64_t values[] = {number->low, number->low + 1, number->high - 1, number->high};

	for (int i = 0; i < 4; i++) {
		give_number(number, _i % SOURCES, values[i]);
		assert_loads();
		ck_assert_uint_eq(value_of(number), values[i]);
	}
}

TEST_EACH(numbers_out_of_their_bounds_are_mistakes, 0, NUMBERS *SOURCES)
{
	const struct number *number = &numbers[_i / SOURCES];
	int source = _i % SOURCES;
	char named[300], allowed[300];

	snprintf(allowed, sizeof(allowed), "; allowed are %llu to %llu", (unsigned long long)number->low,
		 (unsigned long long)number->high);
	if (is_time(number))
		strcpy(allowed, "; allowed are "); /* with units: options.txt */
	snprintf(named, sizeof(named), "%s=%llu: too high", spell(number->name, source),
		 (unsigned long long)number->high + 1);
	give_number(number, source, number->high + 1);
	assert_mistake(named, allowed, source == 2 ? file_path : named, NULL);
	if (number->low > 0) {
		snprintf(named, sizeof(named), "%s=%llu: too low", spell(number->name, source),
			 (unsigned long long)number->low - 1);
		give_number(number, source, number->low - 1);
		assert_mistake(named, allowed, NULL);
	}
	snprintf(named, sizeof(named), "%s=-1: too low", spell(number->name, source));
	give(number->name, source, "-1");
	assert_mistake(named, allowed, NULL);
}

TEST_EACH(what_is_not_a_whole_number_is_a_mistake, 0, NUMBERS)
{
	static const char *const texts[] = {"",      "abc", "1.5", "0x10", " 1",   "1 ",        "+1",  "1e3",
					    "--1",   "-",   "s",   "1d",   "1sec", "1h30m",     "5 s", "1S",
					    "1,000", "NaN", "1\n", "5us",  "1.5s", "\xd9\xa1s", "ms"};
	static const char *const jsons[] = {"100.0", "1e2", "true", "null", "[300]", "{}"};
	const struct number *number = &numbers[_i];
	char named[300];

	for (int source = 0; source < 2; source++)
		for (size_t i = 0; i < COUNT(texts); i++) {
			snprintf(named, sizeof(named), "%s", spell(number->name, source));
			give(number->name, source, texts[i]);
			assert_mistake(named,
				       is_time(number) ? ": not a time: 500ms, 60s, 5m, 1h" : ": not a whole number",
				       "; allowed are ", NULL);
		}
	for (size_t i = 0; i < COUNT(jsons); i++) {
		snprintf(named, sizeof(named), "%s: %s: ", file_path, spell(number->name, 2));
		give(number->name, 2, jsons[i]);
		assert_mistake(named, "the value has the wrong type", "; allowed are ", NULL);
	}
	give(number->name, 2, "\"7d\"");
	assert_mistake(spell(number->name, 2), is_time(number) ? "not a time" : "the value has the wrong type", NULL);
	for (int source = 0; source < 2; source++) { /* more than 64 bits */
		give(number->name, source, "184467440737095516160000000000001");
		assert_mistake("too high", NULL);
		give(number->name, source, "18446744073709551617");
		assert_mistake("too high", NULL);
	}
}

TEST_EACH(flag_before_variable_before_file_before_default, 0, NUMBERS)
{
	const struct number *number = &numbers[_i];
	uint64_t low = number->low;

	for (int given = 0; given < 8; given++) { /* a bit for each source */
		give_companions(number);
		if (given & 1)
			give_flag("--%s=%llu", number->name, (unsigned long long)low + 7);
		if (given & 2)
			give_variable("%s=%llu", spell(number->name, 1), (unsigned long long)low + 8);
		if (given & 4)
			snprintf(json, sizeof(json), "{\"%s\":%llu}", spell(number->name, 2),
				 (unsigned long long)low + 9);
		uint64_t expected = given & 1 ? low + 7 : given & 2 ? low + 8 : given & 4 ? low + 9 : number->standard;
		assert_loads();
		ck_assert_uint_eq(value_of(number), expected);
	}
}

/* Others: options.txt. */
TEST(the_drift_factor_is_a_fraction)
{
	static const char *const good[] = {"0.001", "0.01", "0.5", "1e-3", "0.49999"};

	for (int source = 0; source < SOURCES; source++)
		for (size_t i = 0; i < COUNT(good); i++) {
			give("drift-factor", source, good[i]);
			give_flag("--dev");
			assert_loads();
			ck_assert_double_eq(options.drift_factor, strtod(good[i], NULL));
		}
	give_flag("--dev");
	assert_loads();
	ck_assert_double_eq(options.drift_factor, 0.01);
}

/* ---- lists ---- */

TEST(listen_may_be_a_list_in_every_source)
{
	give_flag("--dev");
	assert_loads();
	ck_assert_uint_eq(options.listen_count, 1);
	ck_assert_str_eq(options.listen[0].host, "127.0.0.1");
	ck_assert_uint_eq(options.listen[0].port, 8080);

	give_flag("--dev");
	give_flag("--listen=a:1");
	give_flag("--listen");
	give_flag("unix:/b");
	give_variable("REDLOCKD_LISTEN=c:3,d:4,e:5");
	strcpy(json, "{\"listen\":[\"f:6\"]}");
	assert_loads();
	ck_assert_uint_eq(options.listen_count, 2);
	ck_assert_str_eq(options.listen[0].host, "a");
	ck_assert_str_eq(options.listen[1].host, "/b");

	give_variable("REDLOCKD_DEV=true");
	give_variable("REDLOCKD_LISTEN=c:3,d:4,[::1]:5");
	strcpy(json, "{\"listen\":[\"f:6\"]}");
	assert_loads();
	ck_assert_uint_eq(options.listen_count, 3);
	ck_assert_str_eq(options.listen[2].host, "::1");

	strcpy(json, "{\"dev\":true,\"listen\":[\"f:6\",\"g:7\"]}");
	assert_loads();
	ck_assert_uint_eq(options.listen_count, 2);
	strcpy(json, "{\"dev\":true,\"listen\":\"f:6,g:7,h:8\"}");
	assert_loads();
	ck_assert_uint_eq(options.listen_count, 3);
}

TEST(masters_may_be_a_list_in_every_source)
{
	const char *list = "redis://a:1,unix:/b,redis://:p%2Cw@[::1]/2";

	for (int source = 1; source < SOURCES; source++) { /* not as a flag: there is a password in it */
		give_text("masters", source, list);
		assert_loads();
		ck_assert_uint_eq(options.master_count, 3);
		ck_assert_str_eq(options.masters[2].shown, "redis://[::1]:6379/2");
		ck_assert_str_eq(options.masters[2].password, "p,w");
	}
	/* a comma is none of the list's in an array */
	strcpy(json, "{\"masters\":[\"redis://a:1\",\"redis://:p,w@b\"]}");
	assert_loads();
	ck_assert_uint_eq(options.master_count, 2);
	ck_assert_str_eq(options.masters[1].password, "p,w");

	give_flag("--masters=redis://a");
	give_variable("REDLOCKD_MASTERS=redis://b,redis://c");
	assert_loads();
	ck_assert_uint_eq(options.master_count, 1);
	ck_assert_str_eq(options.masters[0].host, "a");
}

TEST(lists_have_bounds)
{
	char list[2000];

	for (int masters = 0; masters < 2; masters++) {
		int most = masters ? 15 : 16;
		for (int count = 1; count <= most + 1; count++) {
			list[0] = '\0';
			for (int i = 0; i < count; i++)
				sprintf(list + strlen(list), "%s%sh:%d", i > 0 ? "," : "", masters ? "redis://" : "",
					i + 1);
			give(masters ? "masters" : "listen", 1, list);
			if (!masters)
				give_flag("--dev=1");
			if (count > most) {
				assert_mistake(masters ? "too many; allowed are 1 to 15 of "
						       : "too many; allowed are 1 to 16 of ",
					       NULL);
				continue;
			}
			assert_loads();
			ck_assert_uint_eq(masters ? options.master_count : options.listen_count, (size_t)count);
		}
	}
}

FIXTURE(options_set_up, options_tear_down)
