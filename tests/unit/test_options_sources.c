/* The shape of the command line, the environment and the configuration file; options that must go together; and that no
 * message holds a password or more than one line. */
#include "options_given.h"
#include "suite.h"

/* ---- the shape of the sources ---- */

TEST(values_follow_their_flag)
{
	give_flag("--masters");
	give_flag("redis://a");
	give_flag("--workers");
	give_flag("4");
	give_flag("--key-prefix");
	give_flag("-x=");
	assert_loads();
	ck_assert_uint_eq(options.workers, 4);
	ck_assert_str_eq(options.key_prefix, "-x=");
}

TEST(the_shape_of_the_command_line_is_checked)
{
	static const struct {
		const char *flags[4], *named, *reason;
	} cases[] = {
		{{"--bogus"}, "--bogus: ", "unknown option"},
		{{"--bogus=1"}, "--bogus: ", "unknown option"},
		{{"--worker=1"}, "--worker: ", "unknown option; did you mean --workers?"},
		{{"--wrokers=1"}, "--wrokers: ", "unknown option; did you mean --workers?"},
		{{"--master-timout-ms", "5"}, "--master-timout-ms: ", "did you mean --master-timeout-ms?"},
		{{"--dve"}, "--dve: ", "did you mean --dev?"},
		{{"--master-time"},
		 "--master-time: ",
		 "unknown option; did you mean --master-timeout-ms?"}, /* understood, not taken */
		{{"--mas"}, "--mas: ", "unknown option; allowed"},     /* no wild guesses */
		{{"--WORKERS=1"}, "--WORKERS: ", "unknown option"},
		{{"--max_ttl_ms=1"}, "--max_ttl_ms: ", "did you mean --max-ttl-ms?"},
		{{"-workers=1"}, "-workers: ", "unknown option; did you mean --workers?"},
		{{"-x"}, "-x: ", "unknown option"},
		{{"-"}, "-: ", "unknown option"},
		{{"--dev", "--", "x"}, "argument 3 ('x'): ", "not an option"},
		{{"--=1"}, "--: ", "unknown option"},
		{{"word"}, "argument 1 ('word'): ", "not an option"},
		{{""}, "argument 1: ", "not an option"},
		{{"--dev", "3"}, "argument 2: ", "not an option"}, /* shown only if it cannot be a secret */
		{{"--workers"}, "--workers: ", "the value is missing"},
		{{"--workers", "--dev"}, "--workers: ", "the value is missing"},
		{{"--workers=1", "--workers=1"}, "--workers: ", "given twice"},
		{{"--dev", "--dev"}, "--dev: ", "given twice"},
		{{"--masters=redis://a", "--masters=redis://b"}, "--masters: ", "given twice"},
		{{"--help=html"}, "--help: ", "takes no value"},
		{{"--version=1"}, "--version: ", "takes no value"},
		{{"--bogus", "--version"}, "--bogus: ", "unknown option"},
		{{"--config"}, "--config: ", "the value is missing"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		give_flags(cases[i].flags);
		assert_mistake(cases[i].named, cases[i].reason, "; allowed are ", NULL);
		ck_assert_int_eq(strncmp(message, cases[i].named, strlen(cases[i].named)), 0);
	}
}

TEST(unknown_variables_are_mistakes)
{
	static const char *const bad[] = {"REDLOCKD_=1",        "REDLOCKD_WORKER=1",  "REDLOCKD_workers=1",
					  "REDLOCKD_HELP=1",    "REDLOCKD_VERSION=1", "REDLOCKD_MAX-TTL-MS=1",
					  "REDLOCKD_PORT=8080", "REDLOCKD_SERVICE=x"};
	static const char *const good[] = {
		"REDLOCKDX=1", "redlockd_workers=9", "REDLOCKD=1", "XREDLOCKD_WORKERS=9", "PATH=/bin", "nonsense",
		/* what Kubernetes makes for a service called redlockd */
		"REDLOCKD_SERVICE_HOST=10.0.0.1", "REDLOCKD_SERVICE_PORT=80", "REDLOCKD_SERVICE_PORT_HTTP=80",
		"REDLOCKD_PORT=tcp://10.0.0.1:80", "REDLOCKD_PORT_80_TCP=tcp://10.0.0.1:80",
		"REDLOCKD_PORT_80_TCP_ADDR=10.0.0.1"};
	char named[100];

	for (size_t i = 0; i < COUNT(bad); i++) {
		give_flag("--dev");
		give_variable("%s", bad[i]);
		snprintf(named, sizeof(named), "%.*s: unknown variable; ", (int)strcspn(bad[i], "="), bad[i]);
		assert_mistake(named, NULL);
	}
	for (size_t i = 0; i < COUNT(good); i++) {
		give_flag("--dev");
		give_variable("%s", good[i]);
		assert_loads();
		ck_assert_uint_eq(options.workers, 1);
	}
	give_variable("REDLOCKD_WORKESR=2");
	assert_mistake("REDLOCKD_WORKESR: unknown variable; did you mean REDLOCKD_WORKERS?", NULL);
	give_variable("REDLOCKD_CHECK=true"); /* a flag alone: no advice to give it in the same way */
	assert_mistake("REDLOCKD_CHECK: unknown variable; allowed", NULL);
	strcpy(json, "{\"wrokers\":2}");
	assert_mistake(file_path, ": wrokers: unknown key; did you mean workers?", NULL);
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

TEST(bad_files_are_mistakes)
{
	static const struct {
		const char *json, *reason;
	} cases[] = {
		{" ", "line 1"},
		{"[]", "not a JSON object"},
		{"\"dev\"", "line 1"},
		{"{\"dev\":true", "line 1"},
		{"{\"dev\":true}x", "line 1"},
		{"{\"dev\":true,}", "line 1"},
		{"{\n\"dev\":true\n\"workers\":2}", "line 3"},
		{"{\"dev\":true,\"dev\":true}", "dev"},
		{"{\"bogus\":1}", "bogus: unknown key"},
		{"{\"max-ttl-ms\":1}", "max-ttl-ms: unknown key"},
		{"{\"config\":\"x\"}", "config: unknown key"},
		{"{\"help\":true}", "help: unknown key"},
		{"{\"version\":true}", "version: unknown key"},
		{"{\"\":true}", ": unknown key"},
		{"{\"dev\":\xff}", "line 1"},
		{"{\"workers\":99999999999999999999999}", "line 1"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		strcpy(json, cases[i].json);
		assert_mistake(file_path, cases[i].reason, NULL);
	}
	give_flag("--config=%s", "/");
	assert_mistake("--config: /: Is a directory", NULL);
	give_flag("--config=/dev/zero");
	assert_mistake("larger than 1 MiB", NULL);
	give_flag("--config=/dev/null");
	assert_mistake("--config: /dev/null: bad JSON: line 1", NULL);
	give_flag("--config=");
	assert_mistake("--config: empty; allowed are the path of a JSON file", NULL);
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

/* ---- several options together ---- */

TEST(options_that_do_not_go_together_are_mistakes)
{
	static const struct {
		const char *flags[4], *parts[3];
	} cases[] = {
		{{NULL}, {"--masters: missing", "--dev"}},
		{{"--dev=false"}, {"--masters: missing", "--dev"}},
		{{"--dev", "--masters=redis://a"}, {"--masters: cannot be used together with --dev"}},
		{{"--dev", "--min-ttl-ms=30001"}, {"--min-ttl-ms: more than --default-ttl-ms=30000 (the default)"}},
		{{"--dev", "--default-ttl-ms=99"}, {"--default-ttl-ms: less than --min-ttl-ms=100 (the default)"}},
		{{"--dev", "--default-ttl-ms=60001"}, {"--default-ttl-ms: more than --max-ttl-ms=60000 (the default)"}},
		{{"--dev", "--max-ttl-ms=29999"}, {"--max-ttl-ms: less than --default-ttl-ms=30000 (the default)"}},
		{{"--dev", "--min-ttl-ms=200", "--default-ttl-ms=150"},
		 {"--min-ttl-ms: more than --default-ttl-ms=150"}},
		{{"--dev", "--retry-min-ms=251"}, {"--retry-min-ms: more than --retry-max-ms=250"}},
		{{"--dev", "--retry-max-ms=49"}, {"--retry-max-ms: less than --retry-min-ms=50"}},
		{{"--dev", "--workers=4", "--max-connections=3"}, {"--workers: more than --max-connections=3"}},
		{{"--dev", "--drift-ms=99"}, {"--drift-ms: no validity"}},
		{{"--dev", "--min-ttl-ms=10", "--drift-ms=9"}, {"no validity"}},
		{{"--dev", "--drift-ms=49", "--drift-factor=0.5"}, {"no validity", "--drift-factor"}},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		give_flags(cases[i].flags);
		assert_mistake(cases[i].parts[0], cases[i].parts[1], NULL);
	}
	give_variable("REDLOCKD_DEV=3");
	strcpy(json, "{\"masters\":\"redis://a\"}");
	assert_mistake("REDLOCKD_DEV: cannot be used together with masters", NULL);
	give_variable("REDLOCKD_DEV=3");
	give_variable("REDLOCKD_MAX_TTL_MS=20000");
	strcpy(json, "{\"default_ttl_ms\":25000}");
	assert_mistake("REDLOCKD_MAX_TTL_MS: less than default_ttl_ms=25000", NULL);
}

TEST(options_at_the_edge_of_going_together_are_taken)
{
	give_flag("--dev");
	give_flag("--min-ttl-ms=500");
	give_flag("--default-ttl-ms=500");
	give_flag("--max-ttl-ms=500");
	give_flag("--retry-min-ms=0");
	give_flag("--retry-max-ms=0");
	assert_loads();
	give_flag("--dev");
	give_flag("--drift-ms=97"); /* 1 + 97 + 1 < 100 */
	assert_loads();
	give_flag("--dev");
	give_flag("--min-ttl-ms=10"); /* 0.1 + 2 + 1 < 10 */
	assert_loads();
	give_flag("--masters=redis://a,redis://b"); /* even: the program warns */
	assert_loads();
}

/* ---- passwords ---- */

TEST(passwords_are_not_repeated)
{
	static const char *const urls[] = {
		"redis://u:s3cret@",
		"redis://u:s3cret@:1",
		"redis://u:s3cret@h:x",
		"redis://u:s3cret@h/x",
		"redis://u:s3cret@h?x",
		"redis://u:s3cret@h:1:2",
		"redis://u:a@s3cret@h",
		"redis://u:%s3cret@h",
		"redis://u:x/s3cret@h",
		"redis://u:x,s3cret@h",
		"redis://u:x@y,s3cret@h",
		"redis://:s3cret,x@h",
		"redis://u:s3cret",
		"redis://:s3cret",
		"redis://u:x?s3cret@h",
		"redis://u:x#s3cret",
		"redis://h?password=s3cret",
		"rediss://u:s3cret@",
		"rediss://u:s3cret@h:x",
		"http://u:s3cret@h",
		"u:s3cret@h:1",
		"redis:u:s3cret@h",
		"redis:/u:s3cret@h",
		"redis//u:s3cret@h",
		"REDIS://u:s3cret@h",
		"unix://u:s3cret/path",
		"unix://u:s3cret@path",
		"unix://u:s3cret@/path?x=1",
		"unix://u:s3cret@/path/",
		"unix:u:s3cret@/path",
		"redis://a,redis://u:s3cret@h:x,redis://b",
		"redis://u:s3cret@h,redis://u:s3cret@h",
		"redis:// u:s3cret@h",
		"redis://u:s3:cret@h,s3cret",
		"redis://s3cret@h",
		"unix://s3cret@/path",
	};
	char text[300];

	for (size_t i = 0; i < COUNT(urls); i++) {
		for (int source = 0; source < SOURCES; source++) {
			give_text("masters", source, urls[i]);
			ck_assert_msg(!load(), "%s was taken", urls[i]);
			ck_assert_msg(strstr(message, "s3cret") == NULL, "%s: %s", urls[i], message);
			ck_assert_ptr_nonnull(strstr(message, spell("masters", source)));
		}
		snprintf(json, sizeof(json), "{\"masters\":[\"redis://ok\",\"%s\",\"redis://x:\"]}", urls[i]);
		ck_assert(!load());
		ck_assert_msg(strstr(message, "s3cret") == NULL, "%s: %s", urls[i], message);
		snprintf(json, sizeof(json), "{\"masters\":\"%s\" \"x\"}", urls[i]); /* broken just behind it */
		ck_assert(!load());
		ck_assert_msg(strstr(message, "s3cret") == NULL, "%s: %s", urls[i], message);
		if (strchr(urls[i], '@') == NULL)
			continue;
		snprintf(text, sizeof(text), "--masterz=%s", urls[i]);
		give_flag("%s", text);
		ck_assert(!load());
		ck_assert_msg(strstr(message, "s3cret") == NULL, "%s: %s", urls[i], message);
		give_variable("REDLOCKD_MASTERZ=%s", urls[i]);
		ck_assert(!load());
		ck_assert_msg(strstr(message, "s3cret") == NULL, "%s: %s", urls[i], message);
	}
	give_flag("redis://u:s3cret@h");
	ck_assert(!load());
	ck_assert_ptr_null(strstr(message, "s3cret"));
	give_flag("--listen=redis://u:s3cret@h");
	ck_assert(!load());
	ck_assert_ptr_null(strstr(message, "s3cret"));
	give_flag("--masters=redis://host-one,redis://host-two:70000");
	assert_mistake("--masters, address 2: the port is not a number from 0 to 65535", NULL);
	ck_assert_ptr_null(strstr(message, "70000"));
}

TEST(values_cannot_break_the_line)
{
	char long_value[1000];

	give_flag("--log-level=trace");
	assert_mistake("--log-level=trace: not known", NULL);
	give_flag("--log-level=0123456789012345678901234567890123456789"); /* it may be a token */
	assert_mistake("--log-level: not known", NULL);
	give_flag("--log-level=a\nb\x1b[31m\r\x7f");
	assert_mistake("--log-level: not known", NULL);
	strcpy(json, "{\"a\\nb\":1}");
	assert_mistake("a?b: unknown key", NULL);
	memset(long_value, 'x', sizeof(long_value) - 1);
	long_value[sizeof(long_value) - 1] = '\0';
	give_flag("--log-level=%s", long_value);
	assert_mistake("; allowed are debug, info, warn or error", NULL);
}

FIXTURE(options_set_up, options_tear_down)
