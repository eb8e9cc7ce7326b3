/* SPDX-License-Identifier: MIT */
/* Random steps of a sequence, chosen so that they interact: few keys, tokens, buckets and epochs, which mostly fit the
 * present state of the master. */
#ifndef COMPARE_RANDOM_H
#define COMPARE_RANDOM_H

#include "compare_master.h"
#include "compare_server.h"

#define COMPARE_ANY_EPOCH UINT64_MAX /* sixteen dashes: the guard is off */

/* The kinds of steps: a script, or an action of somebody else. */
enum compare_step_kind {
	COMPARE_OTHER_LIBRARY = COMPARE_SCRIPTS, /* SET key (text of another library) */
	COMPARE_OTHER_LIBRARY_PX,                /* the same with PX ttl */
	COMPARE_HASH_KEY,                        /* the key becomes a hash */
	COMPARE_LIST_KEY,                        /* a list */
	COMPARE_PERSIST,                         /* the key loses its expiry */
	COMPARE_PEXPIRE,                         /* the key gets another expiry */
	COMPARE_DROP_KEY,
	COMPARE_DROP_HASH,
	COMPARE_DROP_ALL,
	COMPARE_ALIVE_AGAIN, /* SET (alive key of a replica) '' PX ttl XX */
	COMPARE_ALIVE,       /* the same without XX */
	COMPARE_DROP_ALIVE,
	COMPARE_QUEUE_PEXPIRE, /* the queue is given another expiry */
	COMPARE_DROP_QUEUE,
	COMPARE_WAITED, /* `waited` in the hash changes, or is removed */
	COMPARE_STEP_KINDS
};

/* KEYS and ARGV of a script. */
struct compare_command {
	unsigned key, bucket;          /* not of a set */
	uint32_t names;                /* a set: its keys, a bit each, two at least; 0: `key` alone */
	uint8_t buckets[COMPARE_KEYS]; /* a set: of each of its keys */
	unsigned last_bucket;          /* fences: from `bucket` to this one */
	uint64_t token;                /* 0: none */
	uint64_t ttl_ms;               /* inspect: for how long it watches, or 0 */
	struct compare_entry entry;    /* acquire, release */
	uint32_t wait_ms;              /* with an entry: how long it still waits. Release: 0: it leaves the queue */
	uint64_t place;                /* release: it is kept, or with wait_ms taken; 0: neither */
	uint64_t max_hold_ms, owner;   /* acquire */
	bool of_kept;                  /* release: by the token under which that of `token` is kept */
	bool repair, is_noted;         /* acquire: of a lease that was found gone; the key has no question mark */
	uint64_t named[COMPARE_KEYS];  /* a repair: void unless the buckets have these numbers */
	uint64_t most;                 /* acquire shared: leases at once; inspect: listed at most */
	char kind;                     /* acquire: of enum master_kind's characters, ':' of an exclusive one */
	uint32_t slot;
	uint64_t noted;       /* acquire: the value's key; extend: with the fence it is noted; 0: none */
	uint64_t fence;       /* acquire: the guess; raise: the number; write its epoch: the floor */
	uint64_t epoch;       /* quarantine: as read, or 0; fences: it or a marker */
	uint64_t deadline_us; /* in the master's own time */
	uint64_t until_s;     /* acquire, extend: 0: left out */
	bool asks;            /* extend: for a message of waiters */
	uint64_t marker, run_id, cluster, digest;
	uint64_t taken;   /* quarantine: with takes_over the digest of the hash that it replaces, 0: it has none */
	uint32_t evicted; /* epoch: one more than evicted_keys; 0: not known */
	bool compared, kept, takes_over, clocked;
	uint32_t timeout_ms; /* epoch, write its epoch */
};

struct compare_step {
	unsigned kind; /* of enum compare_script or of the above */
	/* key, ttl_ms, owner (which text of another library), entry.replica also where it is no script */
	struct compare_command command;
	uint64_t waited_us; /* WAITED: 0: the field is dropped */
};

static inline bool compare_is_script(const struct compare_step *step)
{
	return step->kind < COMPARE_SCRIPTS;
}

/* True if the step changes only a replica's alive key. */
static inline bool compare_is_alive_step(const struct compare_step *step)
{
	return step->kind >= COMPARE_ALIVE_AGAIN && step->kind <= COMPARE_DROP_ALIVE;
}

/* A script for several keys at once. */
static inline bool compare_is_set(unsigned kind)
{
	return kind >= COMPARE_ACQUIRE_SET && kind <= COMPARE_RELEASE_SET;
}

/* A script of the lock. */
static inline bool compare_is_lock(unsigned kind)
{
	return kind <= COMPARE_INSPECT || compare_is_set(kind) || kind == COMPARE_ACQUIRE_SHARED;
}

/* The keys of the step, a bit each; none for a replica's alive key. */
static inline uint32_t compare_keys(const struct compare_step *step)
{
	if (compare_is_alive_step(step))
		return 0;
	return step->command.names != 0 ? step->command.names : UINT32_C(1) << step->command.key;
}

/* `now_us`: the server's, a few milliseconds ago. `crowded`: mostly waiters for one key that nothing blocks. */
void compare_random_step(struct compare_step *step, uint64_t *random, const struct compare_master *master,
			 uint64_t now_us, bool crowded);
/* Below `bound`. */
uint64_t compare_random(uint64_t *random, uint64_t bound);

#endif
