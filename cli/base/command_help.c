/* SPDX-License-Identifier: MIT */
/* The help of all commands, or of one, with two examples and only its options. See arguments.h. */
#include <assert.h>
#include <stdio.h>

#include "arguments.h"

static const struct {
	const char *usage, *purpose, *examples[2];
} helps[COMMAND_COUNT] = {
	[COMMAND_RUN] =
		{"run NAME... [OPTION...] [--] COMMAND [ARGUMENT...]",
		 "Runs a command under a lock: extends it meanwhile, ends the command before the lock is "
		 "lost, releases it. Options after COMMAND belong to it. With --, the words before it are NAMEs; "
		 "several are locked at once.",
		 {"redlockctl run nightly-report --no-wait -E 0 /usr/local/bin/report",
		  "redlockctl run account/1 account/2 --wait 10m -- ./transfer.sh --all"}},
	[COMMAND_DRILL] =
		{"drill NAME --check COMMAND [OPTION...] -- JOB [ARGUMENT...]",
		 "Tests whether a job is safe when it loses its lock: stops it under the lock, as a frozen "
		 "machine would, runs it again to its end after the lease, continues the first one, and runs "
		 "COMMAND in a shell. The exit status is 0 if COMMAND ended with 0 in each round, otherwise 1.",
		 {"redlockctl drill orders/42 --ttl 1s --check ./check.sh -- ./job.sh",
		  "redlockctl drill orders/42 --rounds 20 --junit drill.xml --check ./check.sh -- ./job.sh"}},
	[COMMAND_ACQUIRE] =
		{"acquire NAME... [OPTION...]",
		 "Acquires a lease, of several NAMEs all at once, and prints its token, its fence and its validity.",
		 {"redlockctl acquire orders/42 --token-file token",
		  "redlockctl acquire orders/42 --ttl 1m --wait 20s --json"}},
	[COMMAND_EXTEND] = {"extend NAME... [OPTION...]",
			    "Sets the end of a lease to --ttl from now, unless it ends later. Its token is in "
			    "REDLOCK_TOKEN or in --token-file.",
			    {"redlockctl extend orders/42 --token-file token",
			     "REDLOCK_TOKEN=$TOKEN redlockctl extend orders/42 --ttl 1m"}},
	[COMMAND_RELEASE] = {"release NAME... [OPTION...]",
			     "Releases a lease. Its token is in REDLOCK_TOKEN or in --token-file; --force needs none.",
			     {"redlockctl release orders/42 --token-file token",
			      "redlockctl release orders/42 --force"}},
	[COMMAND_STATUS] = {"status NAME [OPTION...]",
			    "Shows who holds a lock, and how many requests wait for it.",
			    {"redlockctl status orders/42",
			     "if redlockctl status orders/42 --exit-code >/dev/null; then echo held; fi"}},
	[COMMAND_EXPLAIN] = {"explain NAME [OPTION...]",
			     "Shows why a job does not get a lock: holder, waiters, masters, servers, the caller's "
			     "rights, and what to do next. The exit status is 0 if nothing is in the way.",
			     {"redlockctl explain orders/42", "redlockctl explain orders/42 --json"}},
	[COMMAND_WATCH] = {"watch NAME [OPTION...] [[--] COMMAND [ARGUMENT...]]",
			   "Prints who holds a lock, now and at each change, or runs a command each time, with the "
			   "state in REDLOCK_STATE, REDLOCK_OWNER, REDLOCK_FENCE and others.",
			   {"redlockctl watch leader/billing", "redlockctl watch leader/billing -- ./new-leader.sh"}},
	[COMMAND_LIST] = {"list [OPTION...]",
			  "Lists the locks that are held, by name.",
			  {"redlockctl list --prefix orders/", "redlockctl list --limit 20 --json"}},
	[COMMAND_MASTERS] = {"masters [OPTION...]",
			     "Shows the Redis masters as the server sees them. The exit status is 69 if there "
			     "is no quorum.",
			     {"redlockctl masters", "redlockctl masters --server localhost:9090 --json"}},
	[COMMAND_HEALTH] = {"health [OPTION...]",
			    "Checks that the server is alive, with --ready that it can grant locks, with "
			    "--restart-safe that the next master may be restarted. Prints "
			    "nothing if all is well; otherwise the exit status is 69.",
			    {"redlockctl health", "redlockctl health --ready --timeout 5s"}},
	[COMMAND_WHOAMI] = {"whoami [OPTION...]",
			    "Shows what the key, the token or the certificate may do: the caller's name, its rights, "
			    "and what the names of its locks begin with.",
			    {"redlockctl whoami --key-file billing.key", "redlockctl whoami --json"}},
	[COMMAND_KEY_NEW] = {"key new [OPTION...]",
			     "Makes an API key, and its entry for the keys file of redlockd.",
			     {"redlockctl key new --name billing --prefix orders/ --out billing.key",
			      "redlockctl key new --name ops --right list --right admin --json"}},
	[COMMAND_KEY_HASH] = {"key hash [OPTION...]",
			      "Prints the SHA-256 of a key, from --key-file or from stdin.",
			      {"redlockctl key hash --key-file billing.key", "redlockctl key hash <billing.key"}},
};

static void command_help_describe(enum command command, const char *start, FILE *to)
{
	assert(helps[command].usage);
	fprintf(to, "%s%s", start, helps[command].usage);
	options_print_wrapped(to, helps[command].purpose);
}

static void command_help_print(enum command command, FILE *to)
{
	struct options_entry entries[OPTIONS_MAX];
	struct options_table table = {.entries = entries, .usage = "Options:\n"};
	assert(arguments_table.count <= OPTIONS_MAX);
	for (size_t i = 0; i < arguments_table.count; i++)
		if ((arguments_table.entries[i].scope & 1U << command) != 0)
			entries[table.count++] = arguments_table.entries[i];
	command_help_describe(command, "Usage: redlockctl ", to);
	fprintf(to, "\n\nExamples:\n  %s\n  %s\n\n", helps[command].examples[0], helps[command].examples[1]);
	options_print_help(&table, to);
}

void arguments_print_help(const struct arguments *arguments, FILE *to)
{
	const char *between = "";
	assert(arguments->command == COMMAND_HELP);
	if (arguments->help_of == 0)
		fputs("Usage: redlockctl COMMAND [OPTION...]\n"
		      "       redlockctl help COMMAND               its options, and examples\n",
		      to);
	for (int command = 0; command < COMMAND_HELP; command++)
		if (arguments->help_of == 0) {
			command_help_describe((enum command)command, "\n  ", to);
		} else if ((arguments->help_of & 1U << command) != 0) {
			fputs(between, to);
			command_help_print((enum command)command, to);
			between = "\n";
		}
	if (arguments->help_of == 0)
		options_print_help(&arguments_table, to);
}
