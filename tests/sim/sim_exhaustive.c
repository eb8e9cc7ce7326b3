/* SPDX-License-Identifier: MIT */
/* The exhaustive check of the core: every state that two overlapping acquisitions on three masters can reach, in each
 * of the configurations below; sim_exhaustive3: three acquisitions. tests/sim/README.md says what is modelled and what
 * is checked.
 *
 *   sim_exhaustive [--config NAME] [--max-states N] [--only CHECK] [--check-form]
 *
 * Exit status: 0 if nothing is violated; 1 with a story if something is; 2 for a mistake in the arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_search.h"

static const struct sim_config configs[] = {
	{.name = "plain",
	 .about = "no lock is dropped; one trouble",
	 .guesses = {4, 5, 6, 7},
	 .late = true,
	 .useful_ticks = 6,
	 .troubles = 1},
	{.name = "drops", .about = "two locks dropped early", .guesses = {4, 5, 6, 7}, .useful_ticks = 6, .drops = 2},
	{.name = "uneven",
	 .about = "the buckets differ, one has a floor; one lock dropped early",
	 .guesses = {5, 7},
	 .buckets = {4, 5, 6},
	 .floors = {6, 0, 0},
	 .useful_ticks = 6,
	 .drops = 1},
	{.name = "linger",
	 .about = "one trouble: what a lost connection held may come late",
	 .guesses = {5, 6},
	 .late = true,
	 .useful_ticks = 6,
	 .troubles = 1,
	 .linger = true},
	{.name = "bucket",
	 .about = "two resources of one bucket",
	 .guesses = {5, 6},
	 .two_resources = true,
	 .late = true},
	{.name = "retry", .about = "two tries each", .guesses = {6}, .late = true, .tries = 2},
	{.name = "wipe",
	 .about = "a master loses its memory, leases run out",
	 .guesses = {6},
	 .late = true,
	 .wipes = 1},
	{.name = "witness",
	 .about = "as wipe; the others tell of the leases that they granted",
	 .guesses = {6},
	 .useful_ticks = 1,
	 .wipes = 1,
	 .survey = true},
	{.name = "queue", .about = "both wait in the queue, three attempts", .guesses = {6}, .attempts = 3},
	{.name = "leave",
	 .about = "both wait in the queue, two attempts; the second one's wait ends, is cancelled",
	 .guesses = {6},
	 .attempts = 2,
	 .second_leaves = true},
	{.name = "reader",
	 .about = "a shared and an exclusive lease; one trouble",
	 .guesses = {5, 6, 7},
	 .shared = 2,
	 .late = true,
	 .useful_ticks = 6,
	 .troubles = 1},
	{.name = "readqueue",
	 .about = "a shared and an exclusive request wait in the queue, three attempts",
	 .guesses = {6},
	 .shared = 2,
	 .attempts = 3},
	{.name = "keep",
	 .about = "a lease that is given back is kept: nobody else ever gets the lock; one trouble",
	 .guesses = {5, 6},
	 .late = true,
	 .useful_ticks = 6,
	 .keeps = true,
	 .troubles = 1},
	{.name = "keepshared",
	 .about = "as keep, with a shared and an exclusive lease",
	 .guesses = {6},
	 .shared = 2,
	 .late = true,
	 .useful_ticks = 6,
	 .keeps = true,
	 .troubles = 1},
	{.name = "keepsets",
	 .about = "as keep, with two sets",
	 .guesses = {6},
	 .sets = true,
	 .late = true,
	 .useful_ticks = 6,
	 .keeps = true,
	 .troubles = 1},
	{.name = "slots2",
	 .about = "leases on two slots, two tries each",
	 .guesses = {6},
	 .slots = true,
	 .late = true,
	 .tries = 2},
	{.name = "slotqueue2",
	 .about = "both wait for one of two slots, three attempts",
	 .guesses = {6},
	 .slots = true,
	 .attempts = 3},
	{.name = "sets",
	 .about = "two sets with one resource in common, the buckets differ; one trouble",
	 .guesses = {5, 7},
	 .buckets = {4, 5, 6},
	 .sets = true,
	 .late = true,
	 .useful_ticks = 6,
	 .troubles = 1},
	{.name = "setdrops",
	 .about = "two sets; two keys dropped early",
	 .guesses = {5, 6},
	 .sets = true,
	 .useful_ticks = 6,
	 .drops = 2},
	{.name = "setqueue",
	 .about = "two sets; both wait in the queues, three attempts",
	 .guesses = {6},
	 .sets = true,
	 .attempts = 3},
	{.name = "setleave",
	 .about = "two sets; both wait, two attempts; the second one's wait ends, is cancelled",
	 .guesses = {6},
	 .sets = true,
	 .attempts = 2,
	 .second_leaves = true},
	{.name = "repair",
	 .about = "an extension and its repair of a lease that the holder gives back or that ends; an acquisition",
	 .guesses = {7},
	 .extends = true},
	{.name = "repairfences2",
	 .about = "as repair; the guess of the acquisition may be too low",
	 .guesses = {5, 7},
	 .extends = true},
	{.name = "repairshared2",
	 .about = "as repair, of a shared lease, before an exclusive one",
	 .guesses = {7},
	 .shared = 1,
	 .extends = true},
	{.name = "repair3",
	 .about = "as repair; another extension when the acquisition has been answered",
	 .ops = 3,
	 .guesses = {7},
	 .extends = true,
	 .extends_apart = true},
	{.name = "repairs3",
	 .about = "as repair, with two extensions at once",
	 .ops = 3,
	 .guesses = {7},
	 .extends = true},
	{.name = "readers3",
	 .about = "two readers and a writer; one trouble",
	 .ops = 3,
	 .guesses = {6},
	 .shared = 6,
	 .late = true,
	 .troubles = 1},
	{.name = "readdrops3",
	 .about = "two readers and a writer, the buckets differ; one lease dropped early",
	 .ops = 3,
	 .guesses = {6},
	 .buckets = {4, 5, 6},
	 .shared = 6,
	 .useful_ticks = 6,
	 .drops = 1},
	{.name = "readwipe3",
	 .about = "two readers and a writer; a master loses its memory, leases run out",
	 .ops = 3,
	 .guesses = {6},
	 .shared = 6,
	 .late = true,
	 .wipes = 1},
	{.name = "readqueue3",
	 .about = "two readers and a writer wait in the queue, four attempts",
	 .ops = 3,
	 .guesses = {6},
	 .shared = 6,
	 .attempts = 4},
	{.name = "slots3",
	 .about = "three want one of two slots, two tries each; one trouble",
	 .ops = 3,
	 .guesses = {6},
	 .slots = true,
	 .tries = 2,
	 .troubles = 1},
	{.name = "slotwipe3",
	 .about = "three want one of two slots; a master loses its memory, leases run out",
	 .ops = 3,
	 .guesses = {6},
	 .slots = true,
	 .late = true,
	 .tries = 2,
	 .wipes = 1},
	{.name = "slotdrops3",
	 .about = "three want one of two slots; one lease dropped early",
	 .ops = 3,
	 .guesses = {6},
	 .slots = true,
	 .tries = 2,
	 .drops = 1},
	{.name = "slotqueue3",
	 .about = "three wait for one of two slots, four attempts",
	 .ops = 3,
	 .guesses = {6},
	 .slots = true,
	 .attempts = 4},
};

enum { CONFIGS = sizeof configs / sizeof *configs };

static struct sim_search search; /* large */

static bool is_of_this_program(const struct sim_config *config)
{
	return (config->ops > 0 ? config->ops : 2) == SIM_OPS;
}

/* Takes minutes: only when asked for by name. */
static bool is_large(const struct sim_config *config)
{
	return SIM_OPS > 2 || strchr(config->name, '2');
}

static struct {
	const char *config; /* NULL: all but the large ones */
	unsigned checks;
	uint64_t max_states;
	bool check_form;
} options = {.checks = SIM_ALL};

/* True if nothing was violated. */
static bool run(const struct sim_config *config)
{
	memset(&search, 0, sizeof search);
	search.config = config;
	search.checks = options.checks;
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
	printf("  all numbered %llu  collision < %.0e  %s\n", (unsigned long long)search.oks,
	       states * states / TWO_TO_THE_62, result);
	if (options.check_form)
		printf("%-11s %llu states do not go on like another one with the same fingerprint\n",
		       search.config->name, (unsigned long long)search.unlike);
	fflush(stdout);
}

static int usage(void)
{
	fprintf(stderr,
		"sim_exhaustive [--config NAME] [--max-states N] [--only CHECK] [--check-form]\nconfigurations:\n");
	for (unsigned i = 0; i < CONFIGS; i++)
		if (is_of_this_program(&configs[i]))
			fprintf(stderr, "  %-11s %s%s\n", configs[i].name, configs[i].about,
				is_large(&configs[i]) ? " (only by name)" : "");
	fprintf(stderr, "checks:\n");
	for (unsigned check = 1; check < SIM_ALL; check <<= 1)
		fprintf(stderr, "  %s\n", sim_check_name(check));
	return 2;
}

static int run_all(void)
{
	unsigned passed = 0, failed = 0;
	for (unsigned i = 0; i < CONFIGS; i++) {
		if (!is_of_this_program(&configs[i]) ||
		    (options.config ? strcmp(configs[i].name, options.config) != 0 : is_large(&configs[i])))
			continue;
		printf("%s: %s\n", configs[i].name, configs[i].about);
		bool ok = run(&configs[i]);
		if (search.violated)
			sim_search_tell(&search);
		print_figures();
		if (search.violated)
			printf("found in %s after %llu states, a story of %u events\n", configs[i].name,
			       (unsigned long long)search.states, search.story_len);
		passed += ok;
		failed += !ok;
	}
	if (passed + failed == 0)
		return usage();
	printf("%u passed, %u failed\n", passed, failed);
	return failed > 0;
}

/* The check that is called so, up to the colon of its name; 0: none. */
static unsigned find_check(const char *name)
{
	size_t len = strlen(name);
	for (unsigned check = 1; check < SIM_ALL; check <<= 1)
		if (strncmp(sim_check_name(check), name, len) == 0 && sim_check_name(check)[len] == ':')
			return check;
	return 0;
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
		else if (strcmp(argv[i], "--only") == 0)
			options.checks = find_check(argv[++i]);
		else
			return false;
		if (*end)
			return false;
	}
	return options.checks != 0;
}

int main(int argc, char **argv)
{
	return parse(argc, argv) ? run_all() : usage();
}
