/* The world of fuzz_guard.c: one guard, the servers that it looks after, and what was seen of them. */
#ifndef FUZZ_GUARD_H
#define FUZZ_GUARD_H

#include "fuzz.h"
#include "server/redlock/guard/guard.h"

#define SECOND UINT64_C(1000000)
#define DIGEST UINT64_C(0xd1)
#define WALL_US UINT64_C(1700000000000000)
#define GAP_US (5 * SECOND)
#define TTL_MAX_US (1000 * SECOND) /* of other redlockd */

#define ASKED_AFTER_US (GUARD_LATE_US + 250000)
#define STILL_US (3 * SECOND)

enum { STEPS_MAX = 3000, ROUNDS_MAX = 3000 };

struct server {
	uint64_t run_id, client_id, beat, epoch, epoch_run_id, cluster, digest, ttl_us, marker, marker_run_id,
		clocked_us, fence;
	bool kept;
	int64_t ahead_us; /* its clock */
	/* what was seen of it, over the connection that stands */
	bool connected;
	struct guard_action action; /* under way */
	uint64_t action_us;
	uint64_t trusted; /* the epoch that it may vote by; 0: none */
	uint64_t seen_marker, marked_us, since_us, heard_us;
	/* its hash is of another version, with this digest and beat: since when it was read so */
	bool other;
	uint64_t other_digest, other_beat, still_us;
	bool skips;                   /* a new cluster: nothing to wait for … */
	uint64_t skip_marker;         /* … with this marker */
	uint64_t told_us, told_fence; /* its last answer to SURVEY: when it was asked */
	uint64_t leases_us;           /* how long leases that it granted may last yet */
	/* by master i's answers since the quarantine: when all are over; 0: it has told nothing */
	uint64_t ends_us[REDLOCK_MASTERS_MAX];
};

struct world {
	struct guard guard;
	struct guard_params params;
	uint64_t now_us;
	bool seen_any; /* an epoch, or a cluster id */
	struct server servers[REDLOCK_MASTERS_MAX];
};

/* ---- fuzz_guard_check.c; each check ends the run where it fails ---- */

/* How long a master is kept from voting, at least. */
uint64_t quarantine_us(const struct world *world);
/* Those who may vote, as a set. */
uint16_t voters(const struct world *world);
/* A quarantine is left out where no master of a new cluster had an epoch, and only this one quarantine. */
void check_skips(struct world *world);
/* Nobody but master i may have got a vote by an event of master i, and it only by an epoch that `fits`. */
void check_votes(const struct world *world, uint16_t before, unsigned i, bool fits);
/* What the guard wants of master i. */
void check_action(const struct world *world, unsigned i, const struct guard_action *action);

#endif
