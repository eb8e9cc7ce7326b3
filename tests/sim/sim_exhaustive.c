/* The exhaustive check of the core: every state that two overlapping acquisitions on three masters can reach, in each
 * of the configurations below. tests/sim/README.md says what is modelled and what is checked.
 *
 *   sim_exhaustive [--config NAME] [--max-states N] [--mutation NAME | --mutation all] [--check-form]
 *
 * Exit status: 0 if nothing is violated; 1 with a story if something is, or if --mutation all misses a mutation; 2 for
 * a mistake in the arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_search.h"

enum redlock_mutation redlock_mutation = MUTATION_NONE;

static const struct sim_config configs[] = {
	{.name = "plain",
	 .about = "no lock is dropped; one trouble",
	 .guesses = {4, 5, 6, 7},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 6,
	 .troubles = 1},
	{.name = "drops",
	 .about = "two locks dropped early",
	 .guesses = {4, 5, 6, 7},
	 .buckets = {5, 5, 5},
	 .tries = 1,
	 .useful_ticks = 6,
	 .drops = 2},
	{.name = "uneven",
	 .about = "the buckets differ, one has a floor; one lock dropped early",
	 .guesses = {5, 7},
	 .buckets = {4, 5, 6},
	 .floors = {6, 0, 0},
	 .tries = 1,
	 .useful_ticks = 6,
	 .drops = 1},
	{.name = "linger",
	 .about = "one trouble: what a lost connection held may come late",
	 .guesses = {5, 6},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 6,
	 .troubles = 1,
	 .linger = true},
	{.name = "bucket",
	 .about = "two resources of one bucket",
	 .guesses = {5, 6},
	 .buckets = {5, 5, 5},
	 .two_resources = true,
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 3},
	{.name = "retry",
	 .about = "two tries each",
	 .guesses = {6},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 2,
	 .useful_ticks = 3},
	{.name = "wipe",
	 .about = "a master loses its memory, leases run out",
	 .guesses = {6},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 3,
	 .wipes = 1},
	{.name = "queue",
	 .about = "both wait in the queue, three attempts",
	 .guesses = {6},
	 .buckets = {5, 5, 5},
	 .tries = 1,
	 .useful_ticks = 3,
	 .attempts = 3,
	 .patient = true},
	{.name = "leave",
	 .about = "both wait in the queue, two attempts; the second one's wait ends, is cancelled",
	 .guesses = {6},
	 .buckets = {5, 5, 5},
	 .tries = 1,
	 .useful_ticks = 3,
	 .attempts = 2,
	 .patient = true,
	 .second_leaves = true},
	{.name = "troubles2",
	 .about = "two troubles",
	 .large = true,
	 .guesses = {5, 6},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 6,
	 .troubles = 2},
	{.name = "uneven2",
	 .about = "as uneven, with one trouble",
	 .large = true,
	 .guesses = {5, 7},
	 .buckets = {4, 5, 6},
	 .floors = {6, 0, 0},
	 .tries = 1,
	 .useful_ticks = 6,
	 .drops = 1,
	 .troubles = 1},
	{.name = "linger2",
	 .about = "as linger, with one lock dropped early",
	 .large = true,
	 .guesses = {5, 6},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 6,
	 .drops = 1,
	 .troubles = 1,
	 .linger = true},
	{.name = "wipe2",
	 .about = "as wipe, with more guesses",
	 .large = true,
	 .guesses = {6, 7},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 3,
	 .wipes = 1},
	{.name = "bucket2",
	 .about = "as bucket, with one lock dropped early",
	 .large = true,
	 .guesses = {4, 5, 6, 7},
	 .buckets = {5, 5, 5},
	 .two_resources = true,
	 .tries = 1,
	 .useful_ticks = 4,
	 .drops = 1},
	{.name = "retry2",
	 .about = "as retry, with one trouble as in linger",
	 .large = true,
	 .guesses = {5},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 2,
	 .useful_ticks = 3,
	 .troubles = 1,
	 .linger = true},
	{.name = "missed2",
	 .about = "as queue; a notification is lost, or an alive key runs out",
	 .large = true,
	 .guesses = {6},
	 .buckets = {5, 5, 5},
	 .tries = 1,
	 .useful_ticks = 3,
	 .attempts = 3,
	 .patient = true,
	 .missed_notifications = 1},
	{.name = "queue2",
	 .about = "as queue; waits end, are cancelled, there are one missed notification and one trouble as in linger",
	 .large = true,
	 .guesses = {6},
	 .buckets = {5, 5, 5},
	 .late = true,
	 .tries = 1,
	 .useful_ticks = 3,
	 .attempts = 3,
	 .missed_notifications = 1,
	 .troubles = 1,
	 .linger = true},
};

enum { CONFIGS = sizeof configs / sizeof *configs };

/* By which check, in which configuration a mutation must show. */
static const struct mutation {
	const char *name;
	enum redlock_mutation mutation;
	const char *config;
	enum sim_check check;
} mutations[] = {
	{"no-second-round", MUTATION_NO_SECOND_ROUND, "plain", SIM_DISTINCT},
	{"no-second-round", MUTATION_NO_SECOND_ROUND, "plain", SIM_REAL_TIME},
	{"no-second-round", MUTATION_NO_SECOND_ROUND, "bucket", SIM_DISTINCT},
	{"raise-not-strict", MUTATION_RAISE_NOT_STRICT, "drops", SIM_DISTINCT},
	{"raise-no-token", MUTATION_RAISE_NO_TOKEN, "drops", SIM_HOLDING},
	{"old-round", MUTATION_OLD_ROUND, "bucket", SIM_DEFINITION},
	{"quorum-half", MUTATION_QUORUM_HALF, "plain", SIM_EXCLUSION},
	{"delete-no-compare", MUTATION_DELETE_NO_COMPARE, "plain", SIM_KEPT},
	{"delete-no-compare", MUTATION_DELETE_NO_COMPARE, "retry", SIM_EXCLUSION},
	{"one-token", MUTATION_ONE_TOKEN, "retry2", SIM_KEPT},
	{"no-release", MUTATION_NO_RELEASE, "plain", SIM_LEFT_BEHIND},
	{"release-answered", MUTATION_RELEASE_ANSWERED, "plain", SIM_LEFT_BEHIND},
	{"silence-ignored", MUTATION_SILENCE_IGNORED, "plain", SIM_ASSERT},
	{"no-quarantine", MUTATION_NO_QUARANTINE, "wipe", SIM_EXCLUSION},
	{"epoch-ignored", MUTATION_EPOCH_IGNORED, "wipe", SIM_EXCLUSION},
	{"no-recovery", MUTATION_NO_RECOVERY, "wipe", SIM_DISTINCT},
	{"no-recovery", MUTATION_NO_RECOVERY, "wipe2", SIM_REAL_TIME},
	{"recovery-early", MUTATION_RECOVERY_EARLY, "wipe", SIM_DISTINCT},
	{"recovery-few", MUTATION_RECOVERY_FEW, "wipe", SIM_DISTINCT},
	{"notification-lost", MUTATION_NOTIFICATION_LOST, "queue", SIM_FORGOTTEN},
};

enum { MUTATIONS = sizeof mutations / sizeof *mutations };

static struct sim_search search; /* large */

static const struct sim_config *config_find(const char *name)
{
	for (unsigned i = 0; i < CONFIGS; i++)
		if (strcmp(configs[i].name, name) == 0)
			return &configs[i];
	return NULL;
}

static struct {
	const char *config, *mutation; /* NULL: all, none */
	uint64_t max_states;
	bool check_form;
} options;

/* True if nothing was violated. */
static bool run(const struct sim_config *config, unsigned checks)
{
	memset(&search, 0, sizeof search);
	search.config = config;
	search.checks = checks;
	search.max_states = options.max_states;
	search.check_form = options.check_form;
	sim_search(&search);
	return search.violated == 0 && search.unlike == 0;
}

/* A chance that two of n states have one fingerprint: n² / 2⁶⁵ by birth dates, eight times that for the sorting in
 * it. */
#define TWO_TO_THE_62 4611686018427387904.0

static void print_figures(void)
{
	double states = (double)search.states;
	const char *result = search.violated  ? "VIOLATED"
			     : search.bounded ? "ok so far: stopped at --max-states"
					      : "ok: all there are";
	printf("%-11s states %llu  transitions %llu  depth %u  seconds %.1f (cpu %.1f)", search.config->name,
	       (unsigned long long)search.states, (unsigned long long)search.transitions, search.depth, search.seconds,
	       search.cpu_seconds);
	printf("  both numbered %llu  collision < %.0e  %s\n", (unsigned long long)search.oks,
	       states * states / TWO_TO_THE_62, result);
	if (options.check_form)
		printf("%-11s %llu states do not go on like another one with the same fingerprint\n",
		       search.config->name, (unsigned long long)search.unlike);
	fflush(stdout);
}

static int run_all(void)
{
	unsigned passed = 0, failed = 0;
	for (unsigned i = 0; i < CONFIGS; i++) {
		if (options.config ? strcmp(configs[i].name, options.config) != 0 : configs[i].large)
			continue;
		printf("%s: %s\n", configs[i].name, configs[i].about);
		bool ok = run(&configs[i], SIM_ALL);
		if (search.violated)
			sim_search_tell(&search);
		print_figures();
		passed += ok;
		failed += !ok;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed > 0;
}

/* Each mutation by itself: the check that it is meant for must find it, all others are off. */
static int run_mutations(void)
{
	unsigned passed = 0, failed = 0;
	for (unsigned i = 0; i < MUTATIONS; i++) {
		redlock_mutation = mutations[i].mutation;
		bool found = !run(config_find(mutations[i].config), mutations[i].check);
		printf("%-19s %s in %s after %llu states, a story of %u events: %s\n", mutations[i].name,
		       found ? "found" : "NOT FOUND", mutations[i].config, (unsigned long long)search.states,
		       search.story_len, sim_check_name(mutations[i].check));
		fflush(stdout);
		passed += found;
		failed += !found;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed > 0;
}

static bool mutation(const char *name)
{
	for (unsigned i = 0; i < MUTATIONS; i++)
		if (strcmp(mutations[i].name, name) == 0)
			redlock_mutation = mutations[i].mutation;
	return redlock_mutation != MUTATION_NONE;
}

static int usage(void)
{
	fprintf(stderr, "sim_exhaustive [--config NAME] [--max-states N] [--mutation NAME | --mutation all] "
			"[--check-form]\nconfigurations:\n");
	for (unsigned i = 0; i < CONFIGS; i++)
		fprintf(stderr, "  %-11s %s%s\n", configs[i].name, configs[i].about,
			configs[i].large ? " (only by name)" : "");
	fprintf(stderr, "mutations:\n");
	for (unsigned i = 0; i < MUTATIONS; i++)
		if (i == 0 || mutations[i].mutation != mutations[i - 1].mutation)
			fprintf(stderr, "  %s\n", mutations[i].name);
	return 2;
}

/* Takes --NAME VALUE, or --check-form; false for a mistake. */
static bool parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		char *end = "";
		if (strcmp(argv[i], "--check-form") == 0) {
			options.check_form = true;
			continue;
		}
		if (i + 1 == argc)
			return false;
		if (strcmp(argv[i], "--config") == 0)
			options.config = argv[++i];
		else if (strcmp(argv[i], "--max-states") == 0)
			options.max_states = strtoull(argv[++i], &end, 10);
		else if (strcmp(argv[i], "--mutation") == 0)
			options.mutation = argv[++i];
		else
			return false;
		if (*end)
			return false;
	}
	return !options.config || config_find(options.config);
}

int main(int argc, char **argv)
{
	if (!parse(argc, argv))
		return usage();
	if (options.mutation && strcmp(options.mutation, "all") == 0)
		return options.config ? usage() : run_mutations();
	if (options.mutation && !mutation(options.mutation))
		return usage();
	return run_all();
}
