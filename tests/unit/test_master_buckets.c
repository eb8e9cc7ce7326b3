/* SPDX-License-Identifier: MIT */
/* The buckets of the fences. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/masters/masters.h"
#include "suite.h"

#define X16 "xxxxxxxxxxxxxxxx"
#define X64 X16 X16 X16 X16

enum { BUCKETS = 16384 };

/* Worked out apart from the code, from the 64-bit FNV-1a of the bytes: h ^ h >> 32, the low 14 bits. All redlockd over
 * the same masters must agree on them, also those of another version: a change here breaks the order of fences while
 * old and new run side by side. */
static const struct {
	const char *resource;
	unsigned bucket;
} buckets[] = {
	{"a", 12480},
	{"foobar", 9881},
	{"orders/42", 14377},
	{"nightly-report", 12173},
	{"\xe9\x8d\xb5", 15585},
	{X64 X64 X64 X64, 4957},
};

TEST_EACH(they_never_change, 0, sizeof buckets / sizeof *buckets)
{
	ck_assert_uint_eq(masters_bucket(buckets[_i].resource, strlen(buckets[_i].resource)), buckets[_i].bucket);
}

/* Names as people choose them fall into all buckets about alike: 40 a bucket, and chance spreads them by 6.3. */
TEST(they_are_filled_evenly)
{
	static unsigned filled[BUCKETS];
	char name[32];
	for (unsigned i = 0; i < 40 * BUCKETS; i++) {
		int len = snprintf(name, sizeof name, "orders/%u", i);
		unsigned bucket = masters_bucket(name, (size_t)len);
		if (bucket >= BUCKETS)
			ck_abort_msg("%s in bucket %u", name, bucket);
		filled[bucket]++;
	}
	double deviation = 0;
	for (unsigned i = 0; i < BUCKETS; i++) {
		if (filled[i] == 0 || filled[i] > 120)
			ck_abort_msg("%u names in bucket %u", filled[i], i);
		deviation += ((double)filled[i] - 40) * ((double)filled[i] - 40) / 40;
	}
	ck_assert_msg(deviation < 1.1 * BUCKETS, "chi-squared %g with %d buckets", deviation, BUCKETS);
}
