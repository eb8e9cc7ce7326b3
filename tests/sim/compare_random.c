/* SPDX-License-Identifier: MIT */
/* Random steps: see compare_random.h. */
#include "compare_random.h"

#include <string.h>

#include "compare_text.h"
#include "server/redlock/redlock.h"

enum {
	ARRIVALS = 4,
	PLACES = 2,
	TOKENS = COMPARE_HOLDERS + 1,
	EPOCHS = 3,
	RUN_IDS = 2,
	CLUSTERS = 2,
	DIGESTS = 2,
	SOON_US = 40000,
	SHORT_MS = 80
};

#define DAY_US UINT64_C(86400000000)

_Static_assert(COMPARE_ENTRIES >= 3 * ARRIVALS * COMPARE_REPLICAS, "the queue can be full");

uint64_t compare_random(uint64_t *random, uint64_t bound)
{
	return redlock_random(random) % bound;
}

static bool chance(uint64_t *random, unsigned percent)
{
	return compare_random(random, 100) < percent;
}

/* 1 … count */
static uint64_t one_of(uint64_t *random, unsigned count)
{
	return 1 + compare_random(random, count);
}

/* Mostly what the master has, if it has something. */
static uint64_t like(uint64_t *random, uint64_t its, unsigned count)
{
	return its != 0 && chance(random, 80) ? its : one_of(random, count);
}

static unsigned random_kind(uint64_t *random, bool crowded)
{
	static const uint8_t all_weights[COMPARE_STEP_KINDS] = {
		[COMPARE_ACQUIRE] = 28,         [COMPARE_RAISE] = 16,
		[COMPARE_EXTEND] = 20,          [COMPARE_RELEASE] = 12,
		[COMPARE_INSPECT] = 6,          [COMPARE_EPOCH] = 7,
		[COMPARE_QUARANTINE] = 5,       [COMPARE_FENCES] = 7,
		[COMPARE_WRITE_EPOCH] = 3,      [COMPARE_OTHER_LIBRARY] = 2,
		[COMPARE_OTHER_LIBRARY_PX] = 2, [COMPARE_HASH_KEY] = 2,
		[COMPARE_LIST_KEY] = 1,         [COMPARE_PERSIST] = 2,
		[COMPARE_PEXPIRE] = 2,          [COMPARE_DROP_KEY] = 2,
		[COMPARE_DROP_HASH] = 1,        [COMPARE_DROP_ALL] = 1,
		[COMPARE_ALIVE_AGAIN] = 3,      [COMPARE_ALIVE] = 4,
		[COMPARE_DROP_ALIVE] = 1,       [COMPARE_QUEUE_PEXPIRE] = 1,
		[COMPARE_DROP_QUEUE] = 1,       [COMPARE_WAITED] = 1,
		[COMPARE_ACQUIRE_SET] = 16,     [COMPARE_RAISE_SET] = 10,
		[COMPARE_EXTEND_SET] = 12,      [COMPARE_RELEASE_SET] = 7,
		[COMPARE_ACQUIRE_SHARED] = 30,
	};
	static const uint8_t crowd_weights[COMPARE_STEP_KINDS] = {
		[COMPARE_ACQUIRE] = 46,        [COMPARE_EXTEND] = 3,     [COMPARE_RELEASE] = 30,
		[COMPARE_INSPECT] = 9,         [COMPARE_EPOCH] = 2,      [COMPARE_OTHER_LIBRARY_PX] = 1,
		[COMPARE_LIST_KEY] = 1,        [COMPARE_DROP_KEY] = 4,   [COMPARE_DROP_HASH] = 1,
		[COMPARE_ALIVE_AGAIN] = 8,     [COMPARE_ALIVE] = 14,     [COMPARE_DROP_ALIVE] = 2,
		[COMPARE_QUEUE_PEXPIRE] = 3,   [COMPARE_DROP_QUEUE] = 1, [COMPARE_WAITED] = 3,
		[COMPARE_ACQUIRE_SET] = 24,    [COMPARE_EXTEND_SET] = 2, [COMPARE_RELEASE_SET] = 16,
		[COMPARE_ACQUIRE_SHARED] = 40,
	};
	const uint8_t *weights = crowded ? crowd_weights : all_weights;
	unsigned sum = 0, kind = 0;
	for (unsigned i = 0; i < COMPARE_STEP_KINDS; i++)
		sum += weights[i];
	for (uint64_t at = compare_random(random, sum); at >= weights[kind]; kind++)
		at -= weights[kind];
	return kind;
}

static uint64_t random_ttl(uint64_t *random)
{
	static const uint64_t long_ones[] = {5000, 30000, 60000, 86400000};
	return chance(random, 30) ? one_of(random, SHORT_MS) : long_ones[compare_random(random, 4)];
}

static uint64_t random_deadline(uint64_t *random, uint64_t now_us)
{
	if (chance(random, 70))
		return now_us + 3600000000;
	return chance(random, 80) ? now_us + compare_random(random, SOON_US) : now_us - compare_random(random, 2000000);
}

static uint64_t random_epoch(uint64_t *random, const struct compare_master *master)
{
	return chance(random, 15) ? COMPARE_ANY_EPOCH : like(random, master->epoch, EPOCHS);
}

/* At, just below and just above what the master has counted to; by the clock; about a day ahead; small. */
static uint64_t random_fence(uint64_t *random, uint64_t has, uint64_t now_us)
{
	switch (compare_random(random, 8)) {
	case 0: return one_of(random, 3);
	case 1: return now_us + DAY_US + compare_random(random, SOON_US);
	case 2: return now_us + DAY_US - compare_random(random, 2 * SOON_US);
	case 3:
	case 4: return now_us + compare_random(random, SOON_US);
	default: return has > 1 ? has - 1 + compare_random(random, 3) : one_of(random, 5);
	}
}

static void random_guard(struct compare_command *command, unsigned kind, uint64_t *random,
			 const struct compare_master *master, uint64_t now_us)
{
	command->marker = kind == COMPARE_WRITE_EPOCH ? like(random, master->marker, EPOCHS) : one_of(random, EPOCHS);
	command->run_id = like(random, master->marker_run_id, RUN_IDS);
	command->cluster = one_of(random, CLUSTERS);
	command->digest = like(random, master->digest, DIGESTS);
	command->takes_over = chance(random, 30);
	command->taken = chance(random, 80) ? master->digest : compare_random(random, DIGESTS + 1);
	command->bucket = (unsigned)compare_random(random, COMPARE_BUCKETS);
	command->last_bucket = command->bucket + (unsigned)compare_random(random, COMPARE_BUCKETS - command->bucket);
	if (kind == COMPARE_QUARANTINE && chance(random, 20))
		command->ttl_ms = 0; /* leaves a marker as an older version did */
	command->evicted = (uint32_t)compare_random(random, 4);
	command->compared = chance(random, 60);
	command->timeout_ms = (uint32_t)one_of(random, 100);
	command->kept = chance(random, 70);
	command->clocked = chance(random, 40);
	command->deadline_us = random_deadline(random, now_us);
	command->fence = chance(random, 10) ? 0 : random_fence(random, master->numbers[0], now_us);
	if (kind == COMPARE_EPOCH)
		command->run_id = like(random, master->run_id, RUN_IDS);
	if (kind == COMPARE_QUARANTINE)
		command->epoch = chance(random, 70) ? master->epoch : compare_random(random, EPOCHS + 1);
	else
		command->epoch = like(random, chance(random, 50) ? master->epoch : master->marker, EPOCHS);
}

static uint32_t random_wait(uint64_t *random)
{
	return (uint32_t)(chance(random, 50) ? one_of(random, SHORT_MS) : 1000 * one_of(random, 60));
}

/* More often than not one that is in the queue, whatever its replica. */
static void random_entry(struct compare_command *command, unsigned kind, uint64_t *random,
			 const struct compare_master *master)
{
	static const uint64_t arrivals[ARRIVALS] = {3, 20, UINT64_C(1795215206922001), (UINT64_C(1) << 53) - 1};
	const struct compare_queue *queue = &master->queues[command->key];
	bool release = kind == COMPARE_RELEASE || kind == COMPARE_RELEASE_SET;
	if (chance(random, 40))
		return;
	if (queue->count > 0 && chance(random, 60))
		command->entry = queue->entries[compare_random(random, queue->count)];
	else
		command->entry = (struct compare_entry){arrivals[compare_random(random, ARRIVALS)],
							one_of(random, COMPARE_REPLICAS),
							":+#"[compare_random(random, 3)], chance(random, 30),
							(uint32_t)one_of(random, COMPARE_HOLDERS)};
	if (!release) {
		command->entry.kind = command->kind;
		command->entry.most = (uint32_t)command->most;
		command->entry.of_set = command->names != 0;
	}
	if (command->entry.kind == ':')
		command->entry.most = 0;
	if (command->entry.kind != '+')
		command->entry.of_set = false;
	command->wait_ms = chance(random, release ? 50 : 5) ? 0 : random_wait(random);
	if (release && chance(random, 40))
		command->token = 0;
	if (release && chance(random, 50))
		command->place = one_of(random, PLACES) << 32;
}

/* Two or three keys, mostly those of the set that holds `key`. */
static uint32_t random_names(uint64_t *random, const struct compare_master *master, unsigned key)
{
	const struct compare_key *its = &master->keys[key];
	uint32_t all = (UINT32_C(1) << COMPARE_KEYS) - 1, names = all;
	if (its->count > 0 && its->leases[its->count - 1].names != 0 && chance(random, 80))
		return its->leases[its->count - 1].names;
	if (chance(random, 75))
		names &= ~(UINT32_C(1) << (key + one_of(random, COMPARE_KEYS - 1)) % COMPARE_KEYS);
	return names;
}

/* The key of the lease of that token: an extension notes no other. */
static uint64_t key_of(const struct compare_key *key, uint64_t token)
{
	for (uint32_t i = 0; i < key->count; i++)
		if (key->leases[i].token == token)
			return key->leases[i].key;
	return 0;
}

static bool is_used(const struct compare_key *key, uint64_t token)
{
	uint32_t i = 0;
	while (i < key->count && key->leases[i].token != token)
		i++;
	return key->is_several && i < key->count;
}

/* One that holds no shared lease: no token is used twice. 0: all do. */
static uint64_t new_token(uint64_t *random, const struct compare_master *master, uint32_t names)
{
	uint64_t token = one_of(random, TOKENS);
	for (unsigned tries = 0; tries < TOKENS; tries++, token = token % TOKENS + 1) {
		bool used = false;
		FOR_EACH_KEY (key, names)
			used |= is_used(&master->keys[key], token);
		if (!used)
			return token;
	}
	return 0;
}

/* Mostly of the kind that holds the key. */
static void random_shared(struct compare_command *command, uint64_t *random, const struct compare_master *master)
{
	const struct compare_key *key = &master->keys[command->key];
	bool is_slot = command->names == 0 && chance(random, 50);
	if (command->names == 0 && key->is_several && key->count > 0 && chance(random, 80))
		is_slot = key->leases[0].kind == '#';
	command->token = new_token(random, master, command->names != 0 ? command->names : UINT32_C(1) << command->key);
	command->most = one_of(random, COMPARE_HOLDERS);
	if (command->token == 0) {
		command->token = one_of(random, TOKENS); /* it meets what holds the keys */
		return;
	}
	command->kind = is_slot ? '#' : '+';
	command->slot = is_slot ? (uint32_t)compare_random(random, command->most) : 0;
	if (key->is_several && key->count > 0 && chance(random, 10))
		command->noted = key->leases[compare_random(random, key->count)].key;
}

/* A lease that was found gone comes back; sometimes a bucket has another number by then. */
static void random_repair(struct compare_command *command, uint64_t *random, const struct compare_master *master)
{
	command->repair = true;
	command->is_noted = command->noted != 0 && chance(random, 50);
	for (unsigned i = 0; i < COMPARE_KEYS; i++)
		command->named[i] =
			chance(random, 5)
				? one_of(random, 3)
				: master->buckets[command->names != 0 ? command->buckets[i] : command->bucket];
}

static void random_lock(struct compare_command *command, unsigned kind, uint64_t *random,
			const struct compare_master *master, uint64_t now_us, bool crowded)
{
	bool acquire = kind == COMPARE_ACQUIRE || kind == COMPARE_ACQUIRE_SET || kind == COMPARE_ACQUIRE_SHARED;
	const struct compare_key *key = &master->keys[command->key];
	uint64_t holder = key->count > 0 ? key->leases[compare_random(random, key->count)].token : 0;
	command->kind = ':';
	command->bucket = (unsigned)compare_random(random, COMPARE_BUCKETS);
	for (unsigned i = 0; i < COMPARE_KEYS; i++)
		command->buckets[i] = (uint8_t)compare_random(random, COMPARE_BUCKETS);
	command->names = compare_is_set(kind) ? random_names(random, master, command->key) : 0;
	command->token = acquire ? one_of(random, TOKENS) : like(random, holder, TOKENS);
	command->max_hold_ms = chance(random, 50)   ? 0
			       : chance(random, 50) ? one_of(random, 3 * SHORT_MS)
						    : 1000 * one_of(random, 100);
	command->owner = compare_random(random, COMPARE_OWNERS);
	command->noted = chance(random, 50) ? 0 : redlock_random(random) | 1;
	if (kind == COMPARE_ACQUIRE_SHARED || (kind == COMPARE_ACQUIRE_SET && chance(random, 50)))
		random_shared(command, random, master);
	else if ((kind == COMPARE_EXTEND || kind == COMPARE_EXTEND_SET) && key->is_several)
		command->noted = chance(random, 50) ? 0 : key_of(key, command->token);
	command->fence = random_fence(random, master->numbers[command->bucket], now_us);
	command->epoch = random_epoch(random, master);
	command->deadline_us = random_deadline(random, now_us);
	if (chance(random, 50))
		command->until_s = chance(random, 50)
					   ? now_us / 1000000 + one_of(random, 100)
					   : master->leases - (master->leases > 0) + compare_random(random, 3);
	command->asks = chance(random, 50);
	if (kind == COMPARE_INSPECT)
		command->most = one_of(random, COMPARE_HOLDERS + 1);
	if (kind == COMPARE_INSPECT || kind == COMPARE_RELEASE || kind == COMPARE_RELEASE_SET)
		command->deadline_us = UINT64_C(9999999999999999); /* carried out however late */
	if (kind == COMPARE_INSPECT && chance(random, 50))
		command->ttl_ms = 0; /* it does not watch */
	if (kind == COMPARE_RELEASE || kind == COMPARE_RELEASE_SET) {
		command->ttl_ms = chance(random, 60) ? 0 : command->ttl_ms;
		command->of_kept = chance(random, 20);
		command->token = command->of_kept ? one_of(random, TOKENS) : command->token;
	}
	if (acquire || kind == COMPARE_RELEASE || kind == COMPARE_RELEASE_SET)
		random_entry(command, kind, random, master);
	if (acquire && command->entry.replica == 0 && chance(random, 30))
		random_repair(command, random, master);
	if (crowded && chance(random, 95)) {
		command->epoch = COMPARE_ANY_EPOCH;
		command->deadline_us = now_us + 3600000000;
		command->fence = now_us;
	}
}

static void random_outside(struct compare_step *step, uint64_t *random, const struct compare_master *master,
			   uint64_t now_us)
{
	struct compare_command *command = &step->command;
	bool sets_expiry = step->kind == COMPARE_PERSIST || step->kind == COMPARE_PEXPIRE;
	command->owner = compare_random(random, COMPARE_OTHER_LIBRARY_TEXTS);
	command->entry.replica = one_of(random, COMPARE_REPLICAS);
	step->waited_us = chance(random, 30) ? 0 : now_us - SOON_US / 2 + compare_random(random, 2 * SOON_US);
	if (sets_expiry && master->keys[command->key].is_several)
		step->kind = COMPARE_DROP_KEY;
}

void compare_random_step(struct compare_step *step, uint64_t *random, const struct compare_master *master,
			 uint64_t now_us, bool crowded)
{
	struct compare_command *command = &step->command;
	memset(step, 0, sizeof *step);
	step->kind = random_kind(random, crowded);
	/* so that most masters have an epoch most of the time */
	if (!crowded && master->epoch == 0 && chance(random, 40))
		step->kind = master->marker == 0 ? COMPARE_QUARANTINE : COMPARE_WRITE_EPOCH;
	command->key = chance(random, crowded ? 90 : 50) ? 0 : (unsigned)compare_random(random, COMPARE_KEYS);
	command->ttl_ms = random_ttl(random);
	if (compare_is_lock(step->kind))
		random_lock(command, step->kind, random, master, now_us, crowded);
	else if (compare_is_script(step))
		random_guard(command, step->kind, random, master, now_us);
	else
		random_outside(step, random, master, now_us);
}
