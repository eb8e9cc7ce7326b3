/* SPDX-License-Identifier: MIT */
/* The seeded simulator: see daemon_world.h and README.md.
 *
 *   sim_random --seeds N [--from S] [--seconds T] [--only CHECK]
 *   sim_random --story SEED | --hash SEED | --twice N
 *
 * Exit status: 0 if nothing is violated; 1 if something is, with the end of the story; 2 for a mistake in the
 * arguments. A failed assert of the daemon is a violation like others. --only: no other check counts, and the first
 * violation ends the run. --twice: each of N histories is played twice, and must be the same to the byte. */
#include <assert.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon_world.h"

enum { KEPT_LINES = 60, LINE_MAX_ = 400, TOLD = 3 };

struct world world_of_all; /* large */
static struct figures figures;
static jmp_buf on_assert;
static bool running;

static struct {
	uint64_t seeds, from, seconds, story, hash;
	bool has_story, has_hash, twice;
} arguments = {.from = 1};

/* ---- stories ---- */

static char kept[KEPT_LINES][LINE_MAX_];
static uint64_t kept_count;

static void keep_line(const char *line)
{
	snprintf(kept[kept_count++ % KEPT_LINES], LINE_MAX_, "%s", line);
}

static void print_line(const char *line)
{
	puts(line);
}

static void print_kept(void)
{
	uint64_t first = kept_count > KEPT_LINES ? kept_count - KEPT_LINES : 0;
	for (uint64_t i = first; i < kept_count; i++)
		puts(kept[i % KEPT_LINES]);
}

void __assert_fail(const char *text, const char *file, unsigned line, const char *function)
{
	if (running) {
		fail(&world_of_all, "assert: %s (%s:%u)", text, file, line);
		longjmp(on_assert, 1);
	}
	fprintf(stderr, "%s:%u: %s: assertion failed: %s\n", file, line, function, text);
	abort();
}

static bool run(uint64_t seed, struct figures *into, void (*tell_line)(const char *line))
{
	bool good = false;
	running = true;
	if (setjmp(on_assert) == 0)
		good = world_run(&world_of_all, seed, into, tell_line);
	world_of_all.current = PROCS;
	running = false;
	return good;
}

static void tell_failure(uint64_t seed)
{
	static struct figures ignored;
	kept_count = 0;
	run(seed, &ignored, keep_line);
	printf("seed %llu: %s\nthe end of its story (--story %llu tells all):\n", (unsigned long long)seed,
	       world_of_all.failure, (unsigned long long)seed);
	print_kept();
}

/* ---- runs ---- */

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#define SHOW(name) printf(" " #name " %llu", (unsigned long long)figures.name)

static void print_figures(uint64_t ms)
{
	static const char *const outcomes[] = {"ok",        "locked", "not-owner", "expired",
					       "no-quorum", "split",  "cancelled", "too-many"};
	printf("%llu seeds in %llu ms, %llu seeds/s; %llu events, %llu s simulated, leases held for %llu s\n",
	       (unsigned long long)figures.seeds, (unsigned long long)ms,
	       (unsigned long long)(figures.seeds * 1000 / (ms ? ms : 1)), (unsigned long long)figures.events,
	       (unsigned long long)(figures.simulated_us / SECOND), (unsigned long long)(figures.held_us / SECOND));
	FIGURES_OF_LEASES(SHOW);
	printf("\noutcomes:");
	for (unsigned i = 0; i < LEASE_STATUS_COUNT; i++)
		printf(" %s %llu", outcomes[i], (unsigned long long)figures.outcomes[i]);
	printf("\n");
	FIGURES_OF_MASTERS(SHOW);
	printf("\nfaults:");
	for (unsigned i = 0; i < FAULTS; i++)
		printf("%s %s %llu", i ? "," : "", fault_name((enum fault)i), (unsigned long long)figures.faults[i]);
	printf("\n");
	FIGURES_OF_WAITERS(SHOW);
	printf("\nexcused:");
	for (unsigned i = 0; i < EXCUSES; i++)
		printf("%s %s %llu", i ? "," : "", excuse_name((enum excuse)i), (unsigned long long)figures.excused[i]);
	printf("\n");
}

static bool run_seeds(void)
{
	uint64_t began_ms = now_ms(), passed = 0, failed = 0, hash = 0;
	for (uint64_t i = 0; i < arguments.seeds; i++) {
		if (arguments.seconds && i % 64 == 0 && now_ms() - began_ms >= arguments.seconds * 1000)
			break;
		bool good = run(arguments.from + i, &figures, NULL);
		uint64_t before = world_of_all.hash;
		if (good && arguments.twice &&
		    (!run(arguments.from + i, &figures, NULL) || world_of_all.hash != before)) {
			printf("seed %llu: two histories\n", (unsigned long long)(arguments.from + i));
			failed++;
			continue;
		}
		hash = (hash << 1 | hash >> 63) ^ world_of_all.hash;
		passed += good;
		if (good)
			continue;
		if (world_of_all.only && !world_of_all.failed)
			continue; /* an assert that failed on the way is not what is looked for */
		if (world_of_all.only) {
			printf("found by seed %llu, after %llu seeds: %s\n", (unsigned long long)(arguments.from + i),
			       (unsigned long long)(i + 1), world_of_all.failure);
			return false;
		}
		if (failed++ < TOLD)
			tell_failure(arguments.from + i);
		else
			printf("seed %llu: %s\n", (unsigned long long)(arguments.from + i), world_of_all.failure);
	}
	print_figures(now_ms() - began_ms);
	printf("trace hash of all: %016llx\n", (unsigned long long)hash);
	printf("%llu passed, %llu failed\n", (unsigned long long)passed, (unsigned long long)failed);
	return failed == 0;
}

static bool run_one(uint64_t seed, bool story)
{
	bool good = run(seed, &figures, story ? print_line : NULL);
	printf("%s%016llx\n", story ? "trace hash " : "", (unsigned long long)world_of_all.hash);
	return good;
}

/* ---- arguments ---- */

static int complain(const char *what)
{
	fprintf(stderr,
		"sim_random: %s\nusage: sim_random --seeds N [--from S] [--seconds T] [--only CHECK] | --story SEED | "
		"--hash SEED | --twice N\n",
		what);
	return 2;
}

static bool take_argument(const char *name, const char *value)
{
	uint64_t number = strtoull(value, NULL, 10);
	if (strcmp(name, "--seeds") == 0)
		arguments.seeds = number;
	else if (strcmp(name, "--from") == 0)
		arguments.from = number;
	else if (strcmp(name, "--seconds") == 0)
		arguments.seconds = number;
	else if (strcmp(name, "--story") == 0)
		arguments.story = number, arguments.has_story = true;
	else if (strcmp(name, "--hash") == 0)
		arguments.hash = number, arguments.has_hash = true;
	else if (strcmp(name, "--twice") == 0)
		arguments.seeds = number, arguments.twice = true;
	else if (strcmp(name, "--only") == 0)
		world_of_all.only = value;
	else
		return false;
	return true;
}

/* What the daemon does once, before it has workers. */
static void set_up(void)
{
	const char *addresses[NODES] = {"0", "1", "2", "3", "4"};
	world_of_all.current = PROCS;
	log_setup(LOG_ERROR, LOG_LOGFMT);
	metrics_init(PROCS, NODES, addresses);
	stats_init(1);
	words_init();
}

int main(int argc, char **argv)
{
	set_up();
	for (int i = 1; i < argc; i += 2)
		if (i + 1 == argc || !take_argument(argv[i], argv[i + 1]))
			return complain(argv[i]);
	if (arguments.has_story || arguments.has_hash)
		return run_one(arguments.has_story ? arguments.story : arguments.hash, arguments.has_story) ? 0 : 1;
	if (arguments.seeds == 0 && arguments.seconds == 0)
		return complain("say --seeds or --seconds");
	if (arguments.seeds == 0)
		arguments.seeds = UINT64_MAX;
	return run_seeds() ? 0 : 1;
}
