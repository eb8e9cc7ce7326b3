/* SPDX-License-Identifier: MIT */
/* The digest in the hash of a master: the settings on which all redlockd over the same masters must agree. It is a
 * number that can be decoded for people: 16 bits of the layout, 16 of the number of masters, 32 of the number of fence
 * buckets. The highest bit of the number of masters is set with --durable-masters: under an epoch in such a hash, each
 * redlockd has checked the settings of the master before it counted a vote. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "master_internal.h"

/* The version of all data in Redis. Raise it with each change of them, and record tests/e2e/layout.json again
 * (test_layout.py). Redlockd with different layouts cannot share masters. */
enum { LAYOUT = 4 };

#define DURABLE (UINT64_C(1) << 47)

uint64_t master_digest_of(size_t masters, bool durable)
{
	assert(masters >= 1 && masters <= OPTIONS_MASTERS_MAX);
	return (uint64_t)LAYOUT << 48 | (durable ? DURABLE : 0) | (uint64_t)masters << 32 | MASTER_FENCE_BUCKETS;
}

static void describe(uint64_t digest, char ret_text[MASTER_DIGEST_TEXT])
{
	uint64_t masters = (digest & ~DURABLE) >> 32 & 0xffff;
	if (digest == 0) /* layouts 1 and 2 wrote none beside the marker of a new master */
		snprintf(ret_text, MASTER_DIGEST_TEXT, "a layout before 3");
	else
		snprintf(ret_text, MASTER_DIGEST_TEXT, "layout %" PRIu64 " for %" PRIu64 " %smaster%s", digest >> 48,
			 masters, digest & DURABLE ? "durable " : "", masters == 1 ? "" : "s");
}

static const char *describe_end(const struct guard *guard, unsigned i)
{
	const struct guard_master *master = &guard->masters[i];
	if (master->state != GUARD_REJECTED)
		return "; --bootstrap has taken it over, and it votes when the other redlockd's leases have expired";
	if (guard_other_runs(guard, i))
		return "; a redlockd of that kind runs there";
	return guard->take_over_open ? "; --bootstrap takes it over if no redlockd of that kind runs there" : "";
}

void master_digest_describe(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	char theirs[MASTER_DIGEST_TEXT], ours[MASTER_DIGEST_TEXT];
	const struct guard *guard = &master->all->guard;
	assert(guard->masters[master->index].reason == GUARD_OTHER_DIGEST);
	describe(guard->masters[master->index].other_digest, theirs);
	describe(guard->params.digest, ours);
	snprintf(ret_reason, STATUS_REASON_MAX, "digest: it was written with %s, and this redlockd has %s%s", theirs,
		 ours, describe_end(guard, (unsigned)master->index));
}
