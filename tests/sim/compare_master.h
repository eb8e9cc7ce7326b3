/* SPDX-License-Identifier: MIT */
/* The keys of one sequence in the store of sim_compare, so that the next random step fits them. */
#ifndef COMPARE_MASTER_H
#define COMPARE_MASTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store.h"

enum { COMPARE_KEYS = 3, COMPARE_BUCKETS = 2, COMPARE_REPLICAS = 3, COMPARE_HOLDERS = 3, COMPARE_ENTRIES = 64 };

/* Formats of the names of one sequence's keys: its number; its number and that of the key, or the replica; the queue,
 * the watch, the mark of a holder that asks for waiters and the holders have its number twice. */
#define COMPARE_HASH_NAME "%u:redlockd:master"
#define COMPARE_KEY_NAME "%u:key%u"
#define COMPARE_QUEUE_NAME "%u:redlockd:queue:%u:key%u"
#define COMPARE_WATCH_NAME "%u:redlockd:watch:%u:key%u"
#define COMPARE_WANTED_NAME "%u:redlockd:wanted:%u:key%u"
#define COMPARE_HOLDERS_NAME "%u:redlockd:holders:%u:key%u"
#define COMPARE_ALIVE_NAME "%u:redlockd:alive:%016llx"

/* A field of the hash. */
const char *compare_bucket_name(unsigned bucket);

/* replica:arrival, replica+arrival:most (;most of a set), replica#arrival:most */
struct compare_entry {
	uint64_t arrival, replica; /* replica 0: none */
	char kind;                 /* ':', '+' or '#' */
	bool of_set;
	uint32_t most;
};

struct compare_lease {
	uint64_t token, key; /* key: the Idempotency-Key */
	uint32_t names;      /* of a set: its keys, a bit each */
	char kind;           /* ':', '+' or '#' */
};

struct compare_key {
	bool is_several;
	uint32_t count;                               /* 0: nobody, or no lease of redlockd's */
	struct compare_lease leases[COMPARE_HOLDERS]; /* the last one ends last */
};

struct compare_queue {
	uint32_t count;
	struct compare_entry entries[COMPARE_ENTRIES];
};

struct compare_master {
	uint64_t epoch, run_id, digest, marker, marker_run_id;               /* 0: none */
	uint64_t leases, numbers[COMPARE_BUCKETS], buckets[COMPARE_BUCKETS]; /* numbers: the floor is included */
	struct compare_key keys[COMPARE_KEYS];
	struct compare_queue queues[COMPARE_KEYS];
};

void compare_master_read(const struct store *store, unsigned sequence, struct compare_master *ret_master);

#endif
