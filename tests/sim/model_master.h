/* A Redis master as the scripts of server/scripts/ see it: plain memory, no server.
 *
 * Each function does what the script of its verb does, with one resource, with several leases on it, or with a set.
 * sim_compare holds them against the Lua on a real server. The caller moves the time; a key whose end has passed is
 * gone, as in Redis. There are functions for what happens to a master outside of scripts (it is
 * flushed, restarted, evicts, its clock is set). A copy of the struct is an image of the machine.
 *
 * Text is modelled as numbers, 0 for none: tokens, labels, epochs, markers, run_ids, clusters, digests, replicas. Not
 * modelled: memory limits, a hash or a queue of another type, and values of other libraries beyond the fact that they
 * are not redlockd's (token 0). sim_compare.c compares the model with the real scripts on a real server.
 *
 * Nothing is delivered: notifications (PUBLISH) are members of the reply, which the caller passes on.
 *
 * Files: model_master.c the scripts of the lock, model_shared.c what is particular to shared leases, model_set.c the
 * scripts for several resources, model_queue.c the queues, model_guard.c the scripts of the guard. */
#ifndef MODEL_MASTER_H
#define MODEL_MASTER_H

#include <stdbool.h>
#include <stdint.h>

/* A program may have other numbers of these. */
#ifndef MODEL_KEYS
#define MODEL_KEYS 2
#endif
#ifndef MODEL_BUCKETS
#define MODEL_BUCKETS 1
#endif
#ifndef MODEL_ENTRIES
/* in the queue of one key, dead ones too; one more is a failed assert, as are more living replicas than these: */
#define MODEL_ENTRIES 8
#endif
#ifndef MODEL_REPLICAS
#define MODEL_REPLICAS 8
#endif

/* The keys of a set, one after the other: `names` has a bit for each. */
#define MODEL_FOR_EACH_KEY(key, names)                  \
	for (unsigned key = 0; key < MODEL_KEYS; key++) \
		if ((names) & (UINT32_C(1) << key))

#define MODEL_ANY_EPOCH UINT64_MAX /* sixteen dashes: the guard is off */

#ifndef MODEL_PLACES
#define MODEL_PLACES 1 /* places that are kept at a time; of more, the first to end are forgotten */
#endif
#ifndef MODEL_HOLDERS
#define MODEL_HOLDERS 1 /* shared leases of one key; one more is a failed assert */
#endif

enum model_type { MODEL_NONE, MODEL_STRING, MODEL_SHARED, MODEL_OTHER /* a hash, a list, … */ };
/* queue_tell(): at most so many waiters are notified at once. */
#define MODEL_WAVE 16u

enum model_kind { MODEL_EXCLUSIVE, MODEL_PLUS /* shared */, MODEL_SLOT };

/* token:hold_until_ms:fence:key:owner, of a set token;… and the names, of a shared lease token+:…, on a slot
 * token#N:… */
struct model_value {
	uint64_t token; /* stands for 40 hex digits; 0: not a value of ours */
	uint64_t hold_until_ms;
	uint64_t fence;
	uint64_t owner; /* stands for the label */
	uint64_t key;   /* stands for 16 hex digits; 0: empty */
	bool noted;     /* without a question mark */
	uint32_t names; /* of a set: its keys, a bit each; 0: one resource */
	uint32_t slot;  /* of MODEL_SLOT */
	uint32_t kind;  /* of enum model_kind */
};

struct model_holder {
	struct model_value value;
	uint64_t ends_ms;
};

struct model_key {
	struct model_value value; /* STRING; SHARED: of the holder that ends last */
	uint64_t expires_ms;      /* 0: never */
	enum model_type type;
	uint32_t holder_count;                      /* SHARED: those in front, in no order */
	struct model_holder holders[MODEL_HOLDERS]; /* … those that have ended too, until somebody drops them */
};

/* replica:arrival. Sorted by arrival, then as text. */
struct model_entry {
	uint64_t arrival; /* below 2^53 */
	uint64_t replica; /* stands for 16 hex digits; 0: no entry */
	uint32_t kind;    /* of enum model_kind: replica:arrival, replica+arrival:most or replica#arrival:most */
	uint32_t most;    /* not of MODEL_EXCLUSIVE */
	bool of_set;      /* of MODEL_PLUS: replica+arrival;most */
};

/* The sorted set {prefix}redlockd:queue:{key}. */
struct model_queue {
	/* sorted; those of dead replicas until somebody meets them in front */
	struct model_entry entries[MODEL_ENTRIES];
	uint64_t expires_ms; /* means something only where there are entries; 0: never */
	uint32_t count;
};

/* The key {prefix}redlockd:alive:{replica}. */
struct model_alive {
	uint64_t replica; /* 0: no key */
	uint64_t expires_ms;
};

/* The key {prefix}redlockd:place:{place}. */
struct model_place {
	uint64_t place; /* stands for 16 hex digits; 0: no key */
	struct model_entry entry;
	uint64_t expires_ms;
};

struct model_master {
	/* The server. */
	uint64_t now_us;
	uint64_t server_run_id;
	/* The hash {prefix}redlockd:master; 0: no such field. */
	uint64_t epoch;
	uint64_t run_id; /* for which the epoch was written: not that of a server restarted since */
	uint64_t cluster, digest;
	uint64_t marker, marker_run_id;
	uint64_t clocked_us;
	uint64_t floor;
	uint64_t buckets[MODEL_BUCKETS];
	uint32_t ttl_ms, timeout_ms;
	uint64_t leases; /* the second by which all leases that were granted here are over */
	uint32_t beat;
	uint32_t evicted;   /* one more than the field says */
	bool kept;          /* means something only beside a marker: the two come and go together */
	uint64_t waited_us; /* until then some queue may not be empty; before that nobody looks for one */
	/* The server again: its evicted_keys. Not more by one. */
	uint32_t server_evicted;
	struct model_key keys[MODEL_KEYS];
	struct model_queue queues[MODEL_KEYS];
	struct model_alive alive[MODEL_REPLICAS]; /* in no order */
	struct model_place places[MODEL_PLACES];
	struct model_alive keepers[MODEL_PLACES]; /* the alive keys of their entries */
	uint64_t watched_ms[MODEL_KEYS];          /* the keys {prefix}redlockd:watch:{key}: their ends; 0: no key */
};

/* KEYS and ARGV. */
struct model_command {
	unsigned key, bucket;        /* not of a set */
	uint32_t names;              /* a set: its keys, a bit each, two at least; 0: `key` alone */
	uint8_t buckets[MODEL_KEYS]; /* a set: of each of its keys */
	unsigned last_bucket;        /* fences: from `bucket` to this one */
	uint64_t token;              /* release: 0: nothing to release, only an entry to give up */
	uint64_t ttl_ms;          /* acquire, extend, epoch, write its epoch; inspect: for how long it watches, or 0 */
	struct model_entry entry; /* acquire, release: the caller's entry in the queue, replica 0: it has none */
	/* with an entry: how long it waits yet. Release: 0: it leaves the queue, else it keeps (or takes) the entry */
	uint32_t wait_ms;
	uint64_t place;              /* release: it is kept, or with wait_ms taken; 0: neither */
	uint64_t max_hold_ms, owner; /* acquire */
	bool repair;                /* acquire: of a lease that was found gone; max_hold_ms is what is left of it … */
	bool is_noted;              /* … and `noted` has no question mark */
	uint64_t named[MODEL_KEYS]; /* … void unless the buckets have these numbers */
	uint64_t most;              /* acquire shared: leases at once; inspect: listed at most */
	uint32_t kind, slot;        /* likewise: PLUS; SLOT, on which */
	uint64_t noted;             /* acquire: the value's key; extend: with the fence it is noted; 0: none */
	/* acquire: the guess; raise: the number; extend with a key: of the lease; write its epoch: the floor */
	uint64_t fence;
	/* lock scripts: it or ANY; quarantine: as read, or 0; fences: it or a marker; epoch: that it keeps, or 0 */
	uint64_t epoch;
	uint64_t deadline_us; /* acquire, raise, extend, epoch, write its epoch: in the master's own time */
	uint64_t until_s;     /* acquire, extend: 0: left out */
	uint64_t marker;      /* quarantine, write its epoch */
	uint64_t run_id;      /* epoch, quarantine, write its epoch */
	uint64_t cluster;     /* write its epoch */
	uint64_t digest;      /* epoch, quarantine, write its epoch */
	uint64_t taken;       /* quarantine: with takes_over the digest of the hash that it replaces, 0: it has none */
	uint32_t evicted;     /* epoch: one more than evicted_keys; 0: not known */
	bool compared;        /* epoch: the caller has compared `evicted` with what is noted */
	bool kept;            /* quarantine */
	bool takes_over;      /* quarantine */
	bool clocked;         /* write its epoch */
	uint32_t timeout_ms;  /* epoch, write its epoch */
};

struct model_reply {
	/* the first element: 2, 1, 0, -1 and -2 late, -3 another epoch, -4 a guess too far ahead; acquire 2: another's
	 * turn */
	int code;
	uint64_t now_us;              /* the second, always */
	uint64_t old;                 /* acquire 1, raise 2 */
	uint32_t gone;                /* extend -1: the keys that were asked for, a bit each … */
	uint64_t buckets[MODEL_KEYS]; /* … and their buckets; 0: no such field */
	/* lock scripts 0: PTTL, −1: never expires. Acquire 2: for how long the replica of `first` counts as alive */
	int64_t remaining_ms;
	bool has_value;           /* 0: false for a key of another type; extend 1, release 1: true */
	struct model_value value; /* 0; extend 1, release 1 */
	uint32_t taken;           /* acquire shared 0: the slots below `most` that are taken, a bit each */
	uint32_t slots;           /* … how many there are; 0: none */
	uint32_t waiters;         /* inspect 0, −1: entries in the queue, dead ones too */
	uint32_t holder_count;    /* inspect 0: of several leases; 0: not of several … */
	uint32_t listed_count;    /* … how many of them are in `listed` … */
	uint64_t digest_of_tokens;
	struct model_holder listed[MODEL_HOLDERS]; /* … sorted by their end */
	bool tokens_alone;                         /* … without their values */
	struct model_entry first;                  /* acquire 2: whose turn it is */
	uint8_t which; /* acquire 0 and 2, release 0, of a set: about which of its keys, in their order */
	/* acquire, release: whose entry is published on {prefix}redlockd:wake for each key, replica 0: nobody's.
	 * Whatever the code is: a release calls also where it answers −3 */
	struct model_entry notified[MODEL_KEYS];
	uint32_t free[MODEL_KEYS]; /* … for a slot: one more than that which has become free; 0: it is not named */
	uint64_t last[MODEL_KEYS]; /* … of shared ones: up to which arrival others are notified, too; 0: none */
	uint64_t arrival;          /* release 2: of the place that was taken; 0: none was */
	uint32_t watched;          /* of which keys the watchers are told there: a bit each */
	uint64_t ttl_ms;           /* extend 1, epoch, fences */
	uint64_t fence;            /* fences; likewise: */
	uint64_t leases, timeout_ms;
	uint64_t beat, epoch, run_id, cluster, digest, marker_run_id, clocked_us; /* epoch */
	uint32_t evicted;                                                         /* epoch: as in the master */
	uint64_t marker;                                                          /* epoch, quarantine */
	bool kept;                                                                /* likewise */
};

/* The lock. */
void model_acquire(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_raise(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_extend(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_release(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_inspect(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
/* inspect.lua, and ZRANGEBYSCORE: into the reply, of several leases that have not ended. */
void model_shared_list(const struct model_master *master, const struct model_key *key, uint64_t most,
		       struct model_reply *reply);

/* A shared lease. */
void model_acquire_shared(struct model_master *master, const struct model_command *command,
			  struct model_reply *ret_reply);

/* The lock on several resources. */
void model_acquire_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_raise_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_extend_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_release_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);

/* Those who wait. SET alive '' PX ttl_ms, with XX where `only_if_there`. True if it was there; where it was not and
 * only_if_there, it is not set. */
bool model_alive_set(struct model_master *master, uint64_t replica, uint64_t ttl_ms, bool only_if_there);

/* The restart guard. */
void model_epoch(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_quarantine(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_fences(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_write_epoch(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);

/* ---- what happens to a master ---- */

/* FLUSHALL: all keys are gone, the hash too. */
void model_flushall(struct model_master *master);
/* Another server starts under the same address, with the data of `data`: NULL, it is empty; the master itself, it has
 * kept all; an older image, the last writes are lost. Its clock goes on. */
void model_restart(struct model_master *master, const struct model_master *data, uint64_t run_id);
/* Dropped for want of memory: evicted_keys grows by one if it was there. */
void model_evict_key(struct model_master *master, unsigned key);
void model_evict_hash(struct model_master *master);
void model_evict_queue(struct model_master *master, unsigned key);
void model_evict_alive(struct model_master *master, uint64_t replica);
/* The clock is set, either way. What has run out by then is gone, as by the server's own sweep. */
void model_clock_set(struct model_master *master, uint64_t now_us);
/* The key is gone, whatever its end was: a clock that jumped there and back. Its queue stays. Of shared leases, that of
 * one of them. */
void model_drop(struct model_master *master, unsigned key);
void model_drop_token(struct model_master *master, unsigned key, uint64_t token);

/* ---- for looking at ---- */

/* The token that holds a key now; 0 where it is free or not ours. The i-th of shared leases; 0: there are no more. */
uint64_t model_token(const struct model_master *master, unsigned key);
uint64_t model_token_of(const struct model_master *master, unsigned key, unsigned i);
bool model_has_token(const struct model_master *master, unsigned key, uint64_t token);
/* The largest of the floor and a bucket: all that the scripts ever look at. */
uint64_t model_number(const struct model_master *master, unsigned bucket);
/* Which stands before the other in a queue. */
bool model_is_before(struct model_entry a, struct model_entry b);
/* The queue of a key now, its entries sorted, dead ones too. NULL: nobody stands there. */
const struct model_queue *model_waiting(const struct model_master *master, unsigned key);
/* Kept for a wait that goes on. */
bool model_is_place(struct model_entry entry);
bool model_is_alive(const struct model_master *master, uint64_t replica);
/* True while changes of the key's holder are published. */
bool model_is_watched(const struct model_master *master, unsigned key);

#endif
