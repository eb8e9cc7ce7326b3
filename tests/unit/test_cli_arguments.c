/* SPDX-License-Identifier: MIT */
/* Command lines: good ones here, bad ones with their whole messages in cli_arguments.txt. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/arguments.h"
#include "cli/base/cli_base.h"
#include "rows.h"
#include "suite.h"

#define TOKEN "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"
#define KEY "rlk_pqmVK0dQq5ZqTQx9h5s1xG2b9bqv8s1kq2bC3dE4fG5"
#define ARGS(...) ((char *[]){"redlockctl", __VA_ARGS__, NULL})
#define ENV(...) ((char *[]){__VA_ARGS__, NULL})

static struct arguments arguments;

static void good_with(char **argv, char **environment)
{
	ck_assert_msg(arguments_parse(&arguments, argv, environment), "%s", arguments.message);
}

static void good(char **argv)
{
	good_with(argv, ENV(NULL));
}

static void bad(char **argv, const char *named)
{
	ck_assert(!arguments_parse(&arguments, argv, ENV(NULL)));
	ck_assert_msg(strstr(arguments.message, named), "%s", arguments.message);
}

static void check_row(const char *line, char *given, const char *wanted)
{
	char *argv[20] = {"redlockctl"}, *environment[4] = {NULL}, **word = argv, **variable = environment, *words;
	for (char *at = strtok_r(given, " ", &words); at; at = strtok_r(NULL, " ", &words))
		if (*at == '$')
			*variable++ = rows_decode(at + 1);
		else
			*++word = rows_decode(at);
	bool good = arguments_parse(&arguments, argv, environment);
	ck_assert_msg(!good && rows_match(arguments.message, wanted), "%s: %s", line,
		      good ? "good" : arguments.message);
}

TEST(every_mistake_of_redlockctl_has_its_message)
{
	ck_assert_uint_ge(rows_check(CLI_ROWS, check_row), 90);
}

TEST(defaults)
{
	good(ARGS("run", "a", "--", "cmd", "--ttl", "x"));
	ck_assert_int_eq(arguments.command, COMMAND_RUN);
	ck_assert_str_eq(arguments.names.joined, "a");
	ck_assert_uint_eq(arguments.ttl_ms, 0);
	ck_assert_uint_eq(arguments.wait_ms, 300000);
	ck_assert_uint_eq(arguments_kill_after_ms(&arguments, 30000), 5000);
	ck_assert_uint_eq(arguments_kill_after_ms(&arguments, 6000), 2000);
	ck_assert_uint_eq(arguments.timeout_ms, 5000);
	ck_assert_int_eq(arguments.held_status, EXIT_STATUS_HELD);
	ck_assert_uint_eq(arguments.servers.count, 1);
	ck_assert_str_eq(arguments.servers.items[0].shown, "http://127.0.0.1:8080");
	ck_assert_str_eq(arguments.argv[0], "cmd");
	ck_assert_str_eq(arguments.argv[2], "x");
	good(ARGS("run", "a", "-k", "20s", "--", "cmd"));
	ck_assert_uint_eq(arguments_kill_after_ms(&arguments, 60000), 20000);
	ck_assert_uint_eq(arguments_kill_after_ms(&arguments, 30000), 15000); /* half of what the server gives */
	good(ARGS("acquire", "a"));
	ck_assert_uint_eq(arguments.wait_ms, 0);
}

TEST(all_forms)
{
	good(ARGS("-s", "http://a:1", "run", "--server=unix:/b", "-w", "5m", "name", "-E", "3", "--ttl=1h", "-k", "0s",
		  "--wait-all", "-v", "--json", "--owner", "", "--", "c"));
	ck_assert_uint_eq(arguments.servers.count, 2);
	ck_assert_str_eq(arguments.servers.items[1].host, "/b");
	ck_assert_uint_eq(arguments.wait_ms, 300000);
	ck_assert_uint_eq(arguments.ttl_ms, 3600000);
	ck_assert_uint_eq(arguments.kill_after_ms, 0);
	ck_assert_int_eq(arguments.held_status, 3);
	ck_assert(arguments.wait_all && arguments.verbose && arguments.json);
	ck_assert_str_eq(arguments.names.joined, "name");
	good(ARGS("-nv", "run", "x", "-t5000", "-k", "500", "--", "c")); /* milliseconds alone */
	ck_assert(arguments.no_wait && arguments.verbose);
	ck_assert_uint_eq(arguments.ttl_ms, 5000);
	ck_assert_uint_eq(arguments.kill_after_ms, 500);
	good(ARGS("-n", "run", "x", "--", "c"));
	ck_assert_uint_eq(arguments.wait_ms, 0);
	good(ARGS("status", "--", "-x"));
	ck_assert_str_eq(arguments.names.joined, "-x");
	good(ARGS("list", "--prefix", "orders/", "--limit", "7"));
	ck_assert_uint_eq(arguments.limit, 7);
	ck_assert_ptr_null(arguments.owner);
	good(ARGS("list", "--owner", "worker 7"));
	ck_assert_str_eq(arguments.owner, "worker 7");
}

/* Options after the command belong to it. */
TEST(run_without_dashes)
{
	good(ARGS("run", "a", "-v", "cmd", "--ttl", "x", "-q"));
	ck_assert(arguments.verbose && !arguments.quiet);
	ck_assert_str_eq(arguments.names.joined, "a");
	ck_assert_uint_eq(arguments.ttl_ms, 0);
	ck_assert_str_eq(arguments.argv[0], "cmd");
	ck_assert_str_eq(arguments.argv[3], "-q");
	ck_assert_ptr_null(arguments.argv[4]);
	good(ARGS("--json", "run", "a", "cmd"));
	ck_assert_str_eq(arguments.argv[0], "cmd");
	good(ARGS("run", "a", "cmd", "--help"));
	ck_assert_int_eq(arguments.command, COMMAND_RUN);
}

/* With dashes all words before them are names. A program among them may be meant as the command. */
TEST(several_names)
{
	good(ARGS("run", "b", "-v", "a", "--ttl", "5s", "c", "--", "cmd", "--", "-q"));
	ck_assert_str_eq(arguments.names.joined, "a, b, c");
	ck_assert_uint_eq(arguments.names.count, 3);
	ck_assert_str_eq(arguments.names.items[0], "a");
	ck_assert(arguments.verbose && !arguments.quiet && arguments.ttl_ms == 5000);
	ck_assert_str_eq(arguments.argv[0], "cmd");
	ck_assert_str_eq(arguments.argv[2], "-q");
	good(ARGS("run", "a", "--", "sh", "b", "--", "c"));
	ck_assert_uint_eq(arguments.names.count, 1);
	ck_assert_str_eq(arguments.argv[0], "sh");
	good(ARGS("run", "sh", "a", "--", "cmd"));
}

TEST(servers_are_few)
{
	char *argv[3 + SERVERS_MAX + 2] = {"redlockctl", "list"};

	for (int i = 0; i < SERVERS_MAX; i++)
		argv[2 + i] = "-sunix:/a";
	good(argv);
	ck_assert_uint_eq(arguments.servers.count, SERVERS_MAX);
	argv[2 + SERVERS_MAX] = "-sunix:/a";
	bad(argv, "--server, address 17: too many; allowed are 1 to 16 of ");
}

TEST(help_and_version)
{
	good(ARGS("--help"));
	ck_assert_int_eq(arguments.command, COMMAND_HELP);
	good(ARGS("run", "-h"));
	ck_assert_int_eq(arguments.command, COMMAND_HELP);
	ck_assert_uint_eq(arguments.help_of, 1U << COMMAND_RUN);
	good(ARGS("help"));
	ck_assert_uint_eq(arguments.help_of, 0);
	good(ARGS("help", "key", "hash"));
	ck_assert_int_eq(arguments.command, COMMAND_HELP);
	ck_assert_uint_eq(arguments.help_of, 1U << COMMAND_KEY_HASH);
	good(ARGS("help", "key"));
	ck_assert_uint_eq(arguments.help_of, 1U << COMMAND_KEY_NEW | 1U << COMMAND_KEY_HASH);
	good(ARGS("--version"));
	ck_assert_int_eq(arguments.command, COMMAND_VERSION);
}

TEST(from_the_environment)
{
	char **environment = ENV("REDLOCKCTL_SERVER=http://a:1,unix:/b", "REDLOCK_TOKEN=" TOKEN);
	good_with(ARGS("release", "a"), environment);
	ck_assert_uint_eq(arguments.servers.count, 2);
	ck_assert_str_eq(arguments.token, TOKEN);
	good_with(ARGS("release", "a", "--token-file", "f", "-s", "http://c:1"), environment);
	ck_assert_uint_eq(arguments.servers.count, 1);
	ck_assert_ptr_null(arguments.token);
	good_with(ARGS("status", "a"), ENV("REDLOCKCTL_SERVER=", "REDLOCK_TOKEN="));
	good_with(ARGS("list"), ENV("REDLOCKCTL=x", "REDLOCKCTL_SERVICE_HOST=10.0.0.1"));
}

TEST(letters_may_stand_together)
{
	char letters[3002] = "-";
	memset(letters + 1, 'v', 3000);
	good(ARGS("run", "x", letters, "-n", "--", "true"));
}

TEST(credentials_of_the_command_line)
{
	good(ARGS("status", "a", "--cacert", "ca", "--cert", "c", "--key", "k", "--key-file", "f"));
	ck_assert_str_eq(arguments.credentials.ca_file, "ca");
	ck_assert_str_eq(arguments.credentials.cert_file, "c");
	ck_assert_str_eq(arguments.credentials.cert_key_file, "k");
	ck_assert_str_eq(arguments.credentials.api_key_file, "f");
	ck_assert_str_eq(arguments.credentials.api_key, "");
	good(ARGS("--key-file=f", "run", "a", "--cert", "both", "--", "c", "--key", "x"));
	ck_assert_ptr_null(arguments.credentials.cert_key_file);
}

TEST(credentials_of_the_environment)
{
	char **files = ENV("REDLOCKCTL_CACERT=ca", "REDLOCKCTL_CERT=c", "REDLOCKCTL_KEY=k", "REDLOCKCTL_KEY_FILE=f"),
	     **key = ENV("REDLOCKCTL_CERT=c", "REDLOCKCTL_KEY_FILE=f", "REDLOCKCTL_API_KEY=" KEY);
	good_with(ARGS("status", "a"), files);
	ck_assert_str_eq(arguments.credentials.ca_file, "ca");
	ck_assert_str_eq(arguments.credentials.cert_key_file, "k");
	ck_assert_str_eq(arguments.credentials.api_key_file, "f");
	good_with(ARGS("status", "a", "--cert", "mine"), files);
	ck_assert_str_eq(arguments.credentials.cert_file, "mine");
	ck_assert_ptr_null(arguments.credentials.cert_key_file); /* the environment's belongs to another certificate */
	good_with(ARGS("status", "a", "--key", "mine"), files);
	ck_assert_str_eq(arguments.credentials.cert_file, "c");
	ck_assert_str_eq(arguments.credentials.cert_key_file, "mine");
	ck_assert(!arguments_parse(&arguments, ARGS("status", "a"), key));
	ck_assert_msg(strstr(arguments.message, "REDLOCKCTL_KEY_FILE"), "%s", arguments.message);
	good_with(ARGS("status", "a", "--key-file", "g"), key);
	ck_assert_str_eq(arguments.credentials.api_key_file, "g");
	ck_assert_str_eq(arguments.credentials.api_key, "");
	char **empty = ENV("REDLOCKCTL_CACERT=", "REDLOCKCTL_CERT=", "REDLOCKCTL_KEY=", "REDLOCKCTL_KEY_FILE=",
			   "REDLOCKCTL_API_KEY=" KEY "\n");
	good_with(ARGS("status", "a"), empty);
	ck_assert_str_eq(arguments.credentials.api_key, KEY);
	ck_assert_ptr_null(arguments.credentials.api_key_file);
	ck_assert_ptr_null(arguments.credentials.ca_file);
	ck_assert_ptr_null(arguments.credentials.cert_key_file);
	good_with(ARGS("key", "new"), empty);
}

TEST(keys)
{
	good(ARGS("key", "new"));
	ck_assert_int_eq(arguments.command, COMMAND_KEY_NEW);
	ck_assert_uint_eq(arguments.prefix_count, 0);
	ck_assert_uint_eq(arguments.rights, 0);
	good(ARGS("--json", "key", "new", "--name", "a.B_1-", "--prefix", "x/", "--prefix", "", "--right", "admin",
		  "--right=acquire", "--out", "f"));
	ck_assert_str_eq(arguments.key_name, "a.B_1-");
	ck_assert_uint_eq(arguments.prefix_count, 2);
	ck_assert_str_eq(arguments.prefixes[0], "x/");
	ck_assert_str_eq(arguments.prefixes[1], "");
	ck_assert_uint_eq(arguments.rights, 9);
	ck_assert_str_eq(arguments.out, "f");
	good(ARGS("key", "hash", "--key-file", "-"));
	ck_assert_int_eq(arguments.command, COMMAND_KEY_HASH);
	good(ARGS("key", "--help"));
	ck_assert_int_eq(arguments.command, COMMAND_HELP);
	good(ARGS("key", "--json", "new"));
}

TEST(bounds_of_keys)
{
	char name[ARGUMENTS_KEY_NAME_MAX + 2], *many[3 + 2 * ARGUMENTS_PREFIXES_MAX + 3] = {"redlockctl", "key", "new"};
	memset(name, 'x', sizeof(name));
	name[ARGUMENTS_KEY_NAME_MAX] = '\0';
	good(ARGS("key", "new", "--name", name));
	name[ARGUMENTS_KEY_NAME_MAX] = 'x';
	name[ARGUMENTS_KEY_NAME_MAX + 1] = '\0';
	bad(ARGS("key", "new", "--name", name), "--name");
	for (size_t i = 3; i < 3 + 2 * ARGUMENTS_PREFIXES_MAX; i++)
		many[i] = i % 2 == 1 ? "--prefix" : "p";
	good(many);
	ck_assert_uint_eq(arguments.prefix_count, ARGUMENTS_PREFIXES_MAX);
	many[3 + 2 * ARGUMENTS_PREFIXES_MAX] = "--prefix";
	many[3 + 2 * ARGUMENTS_PREFIXES_MAX + 1] = "p";
	bad(many, "--prefix");
}

TEST(force)
{
	static char fences[][20] = {"0", "9007199254740992", "x", "-1", ""};

	good(ARGS("release", "a", "--force"));
	ck_assert(arguments.force);
	ck_assert_ptr_null(arguments.token);
	good_with(ARGS("release", "a", "--force"), ENV("REDLOCK_TOKEN=" TOKEN));
	ck_assert_ptr_null(arguments.token);
	ck_assert_uint_eq(arguments.fence, 0);
	good(ARGS("release", "a", "--force", "--fence", "9007199254740991"));
	ck_assert_uint_eq(arguments.fence, 9007199254740991);
	for (size_t i = 0; i < sizeof fences / sizeof *fences; i++)
		bad(ARGS("release", "a", "--force", "--fence", fences[i]), "--fence");
}

TEST(bounds)
{
	good(ARGS("run", "a", "--ttl", "200ms", "--", "c"));
	good(ARGS("run", "a", "--ttl", "24h", "--", "c"));
	good(ARGS("run", "a", "--ttl", "10s", "-k", "5s", "--", "c"));
	good(ARGS("acquire", "a", "--ttl", "100", "--wait", "0"));
	bad((char *[]){"redlockctl", NULL}, "command");
	bad((char *[]){NULL}, "name");
}

TEST(names)
{
	char name[258];
	memset(name, 'x', sizeof(name));
	name[256] = '\0';
	good(ARGS("status", name));
	name[256] = 'x';
	name[257] = '\0';
	bad(ARGS("status", name), "NAME");
	memset(name, 'o', 128);
	name[128] = '\0';
	good(ARGS("acquire", "a", "--owner", name));
	name[128] = 'o';
	name[129] = '\0';
	bad(ARGS("acquire", "a", "--owner", name), "--owner");
}
