/* SPDX-License-Identifier: MIT */
/* The space-saving counters, against exact counts of the same stream. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/metrics/metrics.h"
#include "suite.h"

enum { NAMES = 5000, ROUNDS = 100000, HOT = 20 };

static struct stats_hot hot;
static struct stats_resource list[STATS_HOT_COUNTERS];
static uint32_t exact[NAMES], state;

static void set_up(void)
{
	memset(&hot, 0, sizeof(hot));
	memset(exact, 0, sizeof(exact));
	state = 1;
}

static void count(const char *name, unsigned times, bool refused)
{
	for (unsigned i = 0; i < times; i++)
		stats_hot_count(&hot, name, strlen(name), refused);
}

/* The figures of a name; zeros if there are none. */
static struct stats_resource told(const char *name)
{
	size_t n = stats_hot_read(&hot, list);

	for (size_t i = 0; i < n; i++)
		if (list[i].len == strlen(name) && memcmp(list[i].name, name, list[i].len) == 0)
			return list[i];
	return (struct stats_resource){.len = 0};
}

static uint32_t random_below(uint32_t below)
{
	state ^= state << 13; /* xorshift: the same numbers each time */
	state ^= state >> 17;
	state ^= state << 5;
	return state % below;
}

/* A number by Zipf's law, about: k comes as often as 1 ÷ (k + 1). */
static unsigned draw_skewed(void)
{
	return random_below(1U << random_below(13));
}

static void count_number(unsigned number, bool refused)
{
	char name[32];

	snprintf(name, sizeof(name), "name/%u", number);
	count(name, 1, refused);
	exact[number]++;
}

static struct stats_resource told_number(unsigned number)
{
	char name[32];

	snprintf(name, sizeof(name), "name/%u", number);
	return told(name);
}

TEST(few_are_counted_exactly)
{
	char longest[STATS_RESOURCE_MAX];

	memset(longest, 'x', sizeof(longest));
	count("a", 120, true);
	count("a", 20, false);
	count("b", 3, false);
	count("ab", 1, true); /* a prefix in common with another one */
	stats_hot_count(&hot, longest, sizeof(longest), false);
	stats_hot_count(&hot, longest, sizeof(longest) - 1, false);
	ck_assert_uint_eq(stats_hot_read(&hot, list), 5);
	ck_assert_uint_eq(told("a").count, 140);
	ck_assert_uint_eq(told("a").refused, 120);
	ck_assert_uint_eq(told("b").count, 3);
	ck_assert_uint_eq(told("b").refused, 0);
	ck_assert_uint_eq(told("ab").count, 1);
	ck_assert_uint_eq(told("ab").refused, 1);
	ck_assert_uint_eq(list[3].len, STATS_RESOURCE_MAX);
	ck_assert_mem_eq(list[3].name, longest, sizeof(longest));
}

/* The bounds of the algorithm: no count is too high, none more than rounds ÷ 64 too low, and each resource with more
 * than that is listed. */
TEST(a_skewed_stream_keeps_the_bounds)
{
	unsigned large = 0;

	for (unsigned i = 0; i < ROUNDS; i++)
		count_number(draw_skewed(), i % 3 == 0);
	for (unsigned n = 0; n < NAMES; n++) {
		struct stats_resource got = told_number(n);
		ck_assert_uint_le(got.count, exact[n]);
		ck_assert_uint_le(got.refused, got.count);
		ck_assert_uint_le(exact[n] - got.count, ROUNDS / STATS_HOT_COUNTERS);
		large += exact[n] > ROUNDS / STATS_HOT_COUNTERS;
		if (exact[n] > ROUNDS / STATS_HOT_COUNTERS)
			ck_assert_uint_gt(got.count, 0);
	}
	ck_assert_uint_ge(large, 5); /* else the test proves nothing */
}

/* A resource that lost its counter and comes back begins at zero, so that nothing is counted twice. */
TEST(pushed_out_and_back)
{
	char name[32];

	count("a", 1, true);
	for (unsigned n = 0; n < 3 * STATS_HOT_COUNTERS; n++) {
		snprintf(name, sizeof(name), "%u", n);
		count(name, 2, false);
	}
	ck_assert_uint_eq(told("a").count, 0);
	count("a", 1, false);
	ck_assert_uint_eq(told("a").count, 1);
	ck_assert_uint_eq(told("a").refused, 0);
	ck_assert_uint_eq(stats_hot_read(&hot, list), STATS_HOT_COUNTERS);
}

/* Each part of ten seconds is dropped by itself, after at most sixty. */
TEST(what_is_old_is_forgotten)
{
	for (unsigned part = 0; part < STATS_HOT_PARTS; part++) {
		count("a", 1U << part, true);
		if (part < STATS_HOT_PARTS - 1)
			stats_hot_turn(&hot);
	}
	ck_assert_uint_eq(told("a").count, (1U << STATS_HOT_PARTS) - 1);
	for (unsigned part = 0; part < STATS_HOT_PARTS; part++) {
		stats_hot_turn(&hot);
		unsigned left = (1U << STATS_HOT_PARTS) - (2U << part);
		ck_assert_uint_eq(told("a").count, left);
		ck_assert_uint_eq(told("a").refused, left);
	}
	ck_assert_uint_eq(stats_hot_read(&hot, list), 0);
}

FIXTURE(set_up, NULL)
