/* The seeded simulator: see random_world.h and README.md.
 *
 *   sim_random --seeds N [--from S] [--seconds T] [--mutation NAME | --mutation all]
 *   sim_random --story SEED | --hash SEED [--mutation NAME]
 *
 * Exit status: 0 if nothing is violated (with --mutation: if it is found within N seeds); 1 if not, with the
 * story's end; 2 for a mistake in the arguments. A failed assert of the core or the guard is a violation like
 * others. */
#include <assert.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random_world.h"

enum redlock_mutation redlock_mutation = MUTATION_NONE;

enum { KEPT_LINES = 60, LINE_MAX_ = 400, MUTATION_SEEDS = 100000, TOLD = 3 };

/* Each with the check that must find it; no other counts. */
static const struct mutation {
	const char *name;
	enum redlock_mutation mutation;
	const char *check;
} mutations[] = {
	{"no-validity-check", MUTATION_NO_VALIDITY_CHECK, "overlap"},
	{"delete-no-compare", MUTATION_DELETE_NO_COMPARE, "overlap"},
	{"no-quarantine", MUTATION_NO_QUARANTINE, "overlap"},
	{"marker-no-ttl", MUTATION_MARKER_NO_TTL, "overlap"},
	{"quarantine-by-uptime", MUTATION_QUARANTINE_BY_UPTIME, "overlap"},
	{"raise-not-strict", MUTATION_RAISE_NOT_STRICT, "fences"},
	{"one-token", MUTATION_ONE_TOKEN, "kept"},
	{"extend-shortens", MUTATION_EXTEND_SHORTENS, "overlap"},
	{"extend-recreates", MUTATION_EXTEND_RECREATES, "revived"},
	{"quorum-half", MUTATION_QUORUM_HALF, "overlap"},
	{"late-accepted", MUTATION_LATE_ACCEPTED, "late"},
	{"epoch-ignored", MUTATION_EPOCH_IGNORED, "overlap"},
	{"recovery-early", MUTATION_RECOVERY_EARLY, "fences"},
	{"no-drift", MUTATION_NO_DRIFT, "overlap"},
	{"wall-clock", MUTATION_WALL_CLOCK, "overlap"},
	{"no-release", MUTATION_NO_RELEASE, "left behind"},
	{"no-second-round", MUTATION_NO_SECOND_ROUND, "fences"},
	{"notification-lost", MUTATION_NOTIFICATION_LOST, "wake-up"},
	{"barge", MUTATION_BARGE, "overtake"},
};

enum { MUTATIONS = sizeof mutations / sizeof *mutations };

static struct world world; /* large */
static struct figures figures;
static jmp_buf on_assert;
static bool running;

static struct {
	uint64_t seeds, from, seconds, story, hash;
	bool has_story, has_hash;
	const char *mutation;
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
		fail(&world, "assert: %s (%s:%u)", text, file, line);
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
		good = world_run(&world, seed, into, tell_line);
	running = false;
	return good;
}

static void tell_failure(uint64_t seed)
{
	static struct figures ignored;
	kept_count = 0;
	run(seed, &ignored, keep_line);
	printf("seed %llu: %s\nthe end of its story (--story %llu tells all):\n", (unsigned long long)seed,
	       world.failure, (unsigned long long)seed);
	print_kept();
}

/* ---- runs ---- */

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void print_figures(uint64_t ms)
{
	const struct figures *f = &figures;
	static const char *const outcomes[] = {"ok",        "locked", "not-owner", "expired",
					       "no-quorum", "split",  "cancelled"};
	uint64_t seeds = f->seeds ? f->seeds : 1;
	printf("%llu seeds in %llu.%03llu s, %llu seeds/s; %llu events, %llu s simulated\n",
	       (unsigned long long)f->seeds, (unsigned long long)(ms / 1000), (unsigned long long)(ms % 1000),
	       (unsigned long long)(f->seeds * 1000 / (ms ? ms : 1)), (unsigned long long)f->events,
	       (unsigned long long)(f->simulated_us / SECOND));
	printf("operations %llu (%llu a seed), leases %llu, extended %llu, second rounds %llu\noutcomes:",
	       (unsigned long long)f->operations, (unsigned long long)(f->operations / seeds),
	       (unsigned long long)f->leases, (unsigned long long)f->extensions, (unsigned long long)f->rounds);
	for (unsigned i = 0; i < sizeof outcomes / sizeof *outcomes; i++)
		printf(" %s %llu", outcomes[i], (unsigned long long)f->outcomes[i]);
	printf("\nbars %llu, epoch_written %llu, of these with a floor from clocks %llu; bad epochs %llu, late "
	       "commands %llu, clock jumps seen %llu (%llu late)\n",
	       (unsigned long long)f->quarantines, (unsigned long long)f->epoch_written, (unsigned long long)f->clocked,
	       (unsigned long long)f->bad_epochs, (unsigned long long)f->late, (unsigned long long)f->jumps_seen,
	       (unsigned long long)f->late_jumps);
	printf("slowest recovery %llu ms beyond the longest lease, its drift and 2 s; at most %llu events to come, "
	       "%llu requests on a connection, "
	       "%llu operations of a redlockd\nfaults:",
	       (unsigned long long)(f->slowest_recovery_us / 1000), (unsigned long long)f->fullest_events,
	       (unsigned long long)f->fullest_requests, (unsigned long long)f->fullest_ops);
	for (unsigned i = 0; i < FAULTS; i++)
		printf("%s %s %llu", i ? "," : "", fault_name((enum fault)i), (unsigned long long)f->faults[i]);
	printf("\nwaiters %llu, granted after waiting %llu, wait ends %llu; notified %llu, passed %llu, "
	       "missed_notifications %llu, stale_entries %llu; overtakes %llu, of one at most %llu, outruns %llu, of "
	       "one at most %llu; "
	       "slowest wake-up %llu ms",
	       (unsigned long long)f->waiters, (unsigned long long)f->granted_waiting, (unsigned long long)f->wait_ends,
	       (unsigned long long)f->notified, (unsigned long long)f->passed,
	       (unsigned long long)f->missed_notifications, (unsigned long long)f->stale_entries,
	       (unsigned long long)f->overtakes, (unsigned long long)f->most_overtakes, (unsigned long long)f->outruns,
	       (unsigned long long)f->most_outruns, (unsigned long long)(f->slowest_wake_us / 1000));
	printf("\nexcused:");
	for (unsigned i = 0; i < EXCUSES; i++)
		printf("%s %s %llu", i ? "," : "", excuse_name((enum excuse)i), (unsigned long long)f->excused[i]);
	printf("\n");
}

static bool run_seeds(void)
{
	uint64_t began_ms = now_ms(), passed = 0, failed = 0, hash = 0;
	for (uint64_t i = 0; i < arguments.seeds; i++) {
		if (arguments.seconds && i % 64 == 0 && now_ms() - began_ms >= arguments.seconds * 1000)
			break;
		bool good = run(arguments.from + i, &figures, NULL);
		hash = (hash << 1 | hash >> 63) ^ world.hash;
		passed += good;
		if (good)
			continue;
		if (failed++ < TOLD)
			tell_failure(arguments.from + i);
		else
			printf("seed %llu: %s\n", (unsigned long long)(arguments.from + i), world.failure);
	}
	print_figures(now_ms() - began_ms);
	printf("trace hash of all: %016llx\n", (unsigned long long)hash);
	printf("%llu passed, %llu failed\n", (unsigned long long)passed, (unsigned long long)failed);
	return failed == 0;
}

static bool find_mutation(const struct mutation *mutation, uint64_t seeds)
{
	redlock_mutation = mutation->mutation;
	world.only = mutation->check;
	for (uint64_t i = 0; i < seeds; i++) {
		if (run(arguments.from + i, &figures, NULL) || !world.failed)
			continue; /* an assert that failed on the way is not what is looked for */
		printf("%-20s found by seed %llu, after %llu seeds: %s\n", mutation->name,
		       (unsigned long long)(arguments.from + i), (unsigned long long)(i + 1), world.failure);
		fflush(stdout);
		return true;
	}
	printf("%-20s NOT FOUND within %llu seeds\n", mutation->name, (unsigned long long)seeds);
	return false;
}

static bool run_mutations(void)
{
	unsigned passed = 0, failed = 0;
	for (unsigned i = 0; i < MUTATIONS; i++) {
		if (strcmp(arguments.mutation, "all") != 0 && strcmp(arguments.mutation, mutations[i].name) != 0)
			continue;
		if (find_mutation(&mutations[i], arguments.seeds ? arguments.seeds : MUTATION_SEEDS))
			passed++;
		else
			failed++;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed == 0 && passed > 0;
}

static bool run_one(uint64_t seed, bool story)
{
	for (unsigned i = 0; arguments.mutation && i < MUTATIONS; i++)
		if (strcmp(arguments.mutation, mutations[i].name) == 0)
			redlock_mutation = mutations[i].mutation, world.only = mutations[i].check;
	bool good = run(seed, &figures, story ? print_line : NULL);
	printf("%s%016llx\n", story ? "trace hash " : "", (unsigned long long)world.hash);
	return good;
}

/* ---- arguments ---- */

static int complain(const char *what)
{
	fprintf(stderr,
		"sim_random: %s\nusage: sim_random --seeds N [--from S] [--seconds T] [--mutation NAME|all] | --story "
		"SEED | --hash SEED [--mutation NAME]\n",
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
	else if (strcmp(name, "--mutation") == 0)
		arguments.mutation = value;
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i += 2)
		if (i + 1 == argc || !take_argument(argv[i], argv[i + 1]))
			return complain(argv[i]);
	if (arguments.has_story || arguments.has_hash)
		return run_one(arguments.has_story ? arguments.story : arguments.hash, arguments.has_story) ? 0 : 1;
	if (arguments.mutation)
		return run_mutations() ? 0 : 1;
	if (arguments.seeds == 0 && arguments.seconds == 0)
		return complain("say --seeds or --seconds");
	if (arguments.seeds == 0)
		arguments.seeds = UINT64_MAX;
	return run_seeds() ? 0 : 1;
}
