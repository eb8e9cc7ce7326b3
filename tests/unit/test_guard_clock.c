/* SPDX-License-Identifier: MIT */
/* A master's clock against ours: no false alarm, and every jump that is larger than the intervals allow is found. Only
 * guard_time() is tested, over networks with any delays. */
#include <math.h>

#include "guard_cases.h"

/* A master's clock, and a network whose ways there and back take random times. */
struct clock_world {
	struct guard guard;
	uint64_t random, now_us;
	double ahead_us, drift; /* master = ours + ahead + drift × time passed; drift 0.0005: 0.05 % */
	/* How far "master − ours" may be overestimated, and underestimated: the smallest over all answers of the way
	 * there (back) + the allowed and the real drift since. */
	double above_us, below_us;
};

static uint64_t random_below(struct clock_world *world, uint64_t bound)
{
	return redlock_random(&world->random) % bound;
}

static void clock_init(struct clock_world *world, uint64_t seed)
{
	struct cases cases = cases_new(3, false);
	memset(world, 0, sizeof *world);
	world->guard = cases.guard;
	world->random = seed;
	world->now_us = START;
	world->ahead_us = (double)random_below(world, 2 * START);
	world->above_us = world->below_us = 1e18;
}

static uint64_t master_time(const struct clock_world *world)
{
	return (uint64_t)((double)world->now_us + world->ahead_us);
}

/* 1/1000 is allowed; the real drift moves away from one bound and towards the other. */
static void let_pass(struct clock_world *world, uint64_t us)
{
	world->now_us += us;
	world->ahead_us += world->drift * (double)us;
	world->above_us += (0.001 - world->drift) * (double)us;
	world->below_us += (0.001 + world->drift) * (double)us;
}

/* One command and its answer. */
static enum guard_clock answer(struct clock_world *world, uint64_t there_us, uint64_t back_us)
{
	uint64_t sent_us = world->now_us;
	/* since TIME was read */
	double allowed_us = 0.001 * (double)(there_us + back_us), drifted_us = world->drift * (double)back_us;
	let_pass(world, there_us);
	uint64_t time_us = master_time(world);
	let_pass(world, back_us);
	enum guard_clock found = guard_time(&world->guard, 0, sent_us, world->now_us, time_us);
	world->above_us = fmin(world->above_us, (double)there_us + allowed_us - drifted_us);
	world->below_us = fmin(world->below_us, (double)back_us + allowed_us + drifted_us);
	return found;
}

/* Mostly fast, sometimes very slow, and different in the two directions. */
static uint64_t delay(struct clock_world *world)
{
	static const uint64_t bounds[] = {50, 200, 200, 1000, 5000, 50000, 3000000};
	return random_below(world, bounds[random_below(world, 7)]);
}

static uint64_t pause_of(struct clock_world *world)
{
	static const uint64_t bounds[] = {1, 3, 100, 1000, 100000, 2000000, 20000000};
	return random_below(world, bounds[random_below(world, 7)]);
}

/* ck_assert() writes to the parent each time: too slow for millions of checks. */
#define EXPECT(truth)                                         \
	do {                                                  \
		if (!(truth))                                 \
			ck_abort_msg("not true: %s", #truth); \
	} while (0)

/* ---- steady clocks ---- */

/* Drifts up to ±0.05 %; also ±0.1 %, the most that is allowed for. */
TEST_EACH(test_a_steady_clock_is_never_called_a_jump, -4, 5)
{
	struct clock_world world;
	for (uint64_t seed = 0; seed < 300; seed++) {
		clock_init(&world, seed * 1000 + (uint64_t)_i);
		world.drift = (double)_i * 0.00025;
		for (unsigned i = 0; i < 3000; i++) {
			EXPECT(answer(&world, delay(&world), delay(&world)) == GUARD_CLOCK_STEADY);
			let_pass(&world, pause_of(&world));
		}
		if (seed % 10 == 0)
			let_pass(&world,
				 random_below(&world, 30 * 86400 * SECOND)); /* and after a month without an answer */
		EXPECT(answer(&world, 30, 30) == GUARD_CLOCK_STEADY);
	}
}

/* A million answers, microseconds apart: the rounding must not add up. */
TEST_EACH(test_many_answers_in_a_short_time, 0, 2)
{
	struct clock_world world;
	clock_init(&world, 7);
	world.drift = _i == 0 ? 0.0005 : -0.0005;
	for (unsigned i = 0; i < 1000000; i++) {
		EXPECT(answer(&world, random_below(&world, 3), random_below(&world, 3)) == GUARD_CLOCK_STEADY);
		let_pass(&world, random_below(&world, 20));
	}
}

/* ---- jumps ---- */

static void look_for_a_while(struct clock_world *world)
{
	for (uint64_t i = random_below(world, 50) + 1; i > 0; i--) {
		answer(world, delay(world), delay(world));
		let_pass(world, pause_of(world));
	}
}

static double some_more(struct clock_world *world)
{
	return 5 +
	       (random_below(world, 4) == 0 ? (double)random_below(world, START / 2) : (double)random_below(world, 50));
}

/* A jump is found by the very next answer if it is larger than what was open before (the quickest way there, or back),
 * that answer's other way, 1 ms, and the time that two clocks may part. A little larger, since the rounding is on the
 * safe side. */
TEST_EACH(test_jumps_are_found, 0, 10)
{
	struct clock_world world;
	bool forward = _i < 5;
	double sign = forward ? 1 : -1;
	for (uint64_t seed = 0; seed < 20000; seed++) {
		clock_init(&world, seed);
		world.drift = (double)(_i % 5 - 2) * 0.00025;
		look_for_a_while(&world);
		uint64_t there_us = delay(&world), back_us = delay(&world);
		double trip_us = (double)(there_us + back_us),
		       way_us = forward ? (double)back_us * (1 + world.drift)
					: (double)there_us - world.drift * (double)back_us,
		       jump_us = (forward ? world.above_us : world.below_us) + (0.001 - sign * world.drift) * trip_us +
				 way_us + 0.001 * trip_us + 1000 + some_more(&world);
		world.ahead_us += sign * jump_us;
		EXPECT(answer(&world, there_us, back_us) ==
		       (forward ? GUARD_CLOCK_JUMPED_FORWARD : GUARD_CLOCK_JUMPED_BACK));
		double said_us = sign * (double)world.guard.masters[0].jump_us;
		EXPECT(said_us > 0 && said_us <= jump_us + 1);
		for (unsigned i = 0; i < 10; i++) /* once: then the new time counts */
			EXPECT(answer(&world, delay(&world), delay(&world)) == GUARD_CLOCK_STEADY);
	}
}

TEST(test_jumps_back_are_told_and_no_more)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	ck_assert_int_eq(guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, 5 * START), GUARD_CLOCK_STEADY);
	cases.now_us += SECOND;
	ck_assert_int_eq(guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, 5 * START - 10 * SECOND),
			 GUARD_CLOCK_JUMPED_BACK);
	ck_assert_int_le(cases.guard.masters[0].jump_us, -10 * (int64_t)SECOND);
	is(&cases, 0, GUARD_VOTING, 0);
	wants(&cases, 0, GUARD_NOTHING);
	cases.now_us += SECOND;
	ck_assert_int_eq(guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, 5 * START - 9 * SECOND),
			 GUARD_CLOCK_STEADY);
}

/* 0.9 ms ten times a second: each is within the tolerance, together they are not. */
TEST_EACH(test_small_steps_add_up, 0, 2)
{
	struct clock_world world;
	unsigned steps = 0;
	clock_init(&world, 3);
	for (unsigned i = 0; i < 100; i++)
		ck_assert_int_eq(answer(&world, 50, 50), GUARD_CLOCK_STEADY);
	do {
		let_pass(&world, 100 * MS);
		world.ahead_us += _i == 0 ? 900 : -900;
		steps++;
	} while (answer(&world, 50, 50) == GUARD_CLOCK_STEADY && steps < 100);
	ck_assert_uint_le(steps, 3);
}

/* A clock that runs too fast is found, with many answers as with few: 0.2 % within 3 s, 10 % within 0.1 s. */
TEST_EACH(test_a_fast_clock_is_found_in_every_rhythm, 0, 2)
{
	static const uint64_t pauses_us[] = {0, 500, 5000, 50000, 500000};
	struct clock_world world;
	for (unsigned i = 0; i < sizeof pauses_us / sizeof *pauses_us; i++) {
		enum guard_clock found = GUARD_CLOCK_STEADY;
		clock_init(&world, i);
		world.drift = _i == 0 ? 0.002 : 0.1;
		uint64_t until_us = world.now_us + (_i == 0 ? 3 * SECOND : 100 * MS + pauses_us[i]);
		while (found == GUARD_CLOCK_STEADY && world.now_us < until_us) {
			found = answer(&world, 100, 100);
			let_pass(&world, pauses_us[i]);
		}
		EXPECT(found == GUARD_CLOCK_JUMPED_FORWARD);
	}
}

/* ---- what follows from a jump forward ---- */

static void jumps_forward(struct cases *cases, unsigned i)
{
	guard_time(&cases->guard, i, cases->now_us, cases->now_us + 100, 5 * START);
	cases->now_us += SECOND;
	ck_assert_int_eq(guard_time(&cases->guard, i, cases->now_us, cases->now_us + 100, 5 * START + 60 * SECOND),
			 GUARD_CLOCK_JUMPED_FORWARD);
}

TEST(test_a_jump_forward_quarantines)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	jumps_forward(&cases, 0);
	is(&cases, 0, GUARD_MARKING, GUARD_CLOCK_FORWARD);
	struct guard_action action = wants(&cases, 0, GUARD_QUARANTINE);
	ck_assert(action.kept); /* locks ran out early, but no fence is lost */
	ck_assert_uint_eq(action.epoch, CERT(0));
	TELL(&cases, 0, .kind = GUARD_QUARANTINED, .done = true, .marker = MARKER(0), .kept = true, .ttl_us = TTL);
	cases.answers[0] = (struct guard_event){QUARANTINED_BY(MARKER(0), 0), .kept = true};
	is(&cases, 0, GUARD_WAITING, GUARD_CLOCK_FORWARD);
	pass(&cases, QUARANTINE);
	ck_assert(!wants(&cases, 0, GUARD_WRITE_EPOCH).clocked);
	gets_epoch(&cases, 0);
}

/* Found in the answer to READ, the jump is remembered over a new connection until the wait is over. */
TEST(test_a_jump_forward_is_not_forgotten)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, 5 * START);
	loses(&cases, 0);
	cases.now_us += 60 * SECOND;
	connects(&cases, 0, RUN(0));
	wants(&cases, 0, GUARD_READ);
	ck_assert_int_eq(guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, 5 * START + 61 * SECOND),
			 GUARD_CLOCK_JUMPED_FORWARD);
	is(&cases, 0, GUARD_ASKING, 0);
	ANSWERS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_MARKING, GUARD_CLOCK_FORWARD);
	wants(&cases, 0, GUARD_QUARANTINE);
	loses(&cases, 0);
	READS(&cases, 0, FITS(0));
	is(&cases, 0, GUARD_MARKING, GUARD_CLOCK_FORWARD);
	ANSWERS(&cases, 0, .epoch = 77, .epoch_run_id = RUN(0), .cluster = CLUSTER, .digest = DIGEST);
	is(&cases, 0, GUARD_MARKING, GUARD_CLOCK_FORWARD);
}

/* During a quarantine a jump needs no other one. */
TEST(test_a_jump_during_the_quarantine)
{
	struct cases cases = cases_new(1, false);
	waits(&cases, 0);
	jumps_forward(&cases, 0);
	is(&cases, 0, GUARD_WAITING, GUARD_NO_EPOCH);
	pass(&cases, QUARANTINE);
	wants(&cases, 0, GUARD_WRITE_EPOCH);
	TELL(&cases, 0, .kind = GUARD_EPOCH_WRITTEN, .done = true);
	ANSWERS(&cases, 0, .epoch = MARKER(0), .epoch_run_id = RUN(0), .cluster = cases.guard.masters[0].cluster,
		.digest = DIGEST);
	is(&cases, 0, GUARD_VOTING, 0);
}

/* Another server has another clock. */
TEST(test_another_server_has_another_clock)
{
	struct cases cases = cases_new(3, false);
	votes(&cases, 0);
	guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, 5 * START);
	loses(&cases, 0);
	connects(&cases, 0, 0x7777);
	ck_assert_uint_eq(guard_master_time_us(&cases.guard, 0, cases.now_us), 0);
	ck_assert_int_eq(guard_time(&cases.guard, 0, cases.now_us, cases.now_us + 100, 9 * START), GUARD_CLOCK_STEADY);
}

/* ---- deadlines ---- */

/* The deadline is never too early, and after a fast answer not much too late. */
TEST_EACH(test_master_time_is_never_too_early, 0, 5)
{
	struct clock_world world;
	for (uint64_t seed = 0; seed < 300; seed++) {
		clock_init(&world, seed);
		world.drift = (double)(_i - 2) * 0.00025;
		EXPECT(guard_master_time_us(&world.guard, 0, world.now_us) == 0);
		for (unsigned i = 0; i < 1000; i++) {
			answer(&world, delay(&world), delay(&world));
			uint64_t later_us = random_below(&world, 10 * SECOND);
			double then_us = (double)world.now_us + world.ahead_us + (1 + world.drift) * (double)later_us;
			EXPECT((double)guard_master_time_us(&world.guard, 0, world.now_us + later_us) >= then_us);
			let_pass(&world, pause_of(&world));
		}
		answer(&world, 20, 20);
		EXPECT((double)guard_master_time_us(&world.guard, 0, world.now_us) <=
		       (double)world.now_us + world.ahead_us + 20 + 1000 + 3);
	}
}
