/* Drawing steps: see compare_draw.h. */
#include "compare_draw.h"

#include <string.h>

#include "compare_text.h"

enum { TOKENS = 3, CERTIFICATES = 3, RUN_IDS = 2, CLUSTERS = 2, DIGESTS = 2, SOON_US = 40000, SHORT_MS = 80 };

#define DAY_US UINT64_C(86400000000)

uint64_t compare_random(uint64_t *random, uint64_t bound)
{
	uint64_t word = *random += UINT64_C(0x9e3779b97f4a7c15);
	word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (word ^ (word >> 31)) % bound;
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

static unsigned draw_kind(uint64_t *random)
{
	static const uint8_t weights[COMPARE_STEP_KINDS] = {
		[COMPARE_ACQUIRE] = 24, [COMPARE_RAISE] = 16, [COMPARE_EXTEND] = 20, [COMPARE_RELEASE] = 10,
		[COMPARE_INSPECT] = 6,  [COMPARE_CERTIFICATE] = 7, [COMPARE_BAR] = 5, [COMPARE_FENCES] = 7,
		[COMPARE_CERTIFY] = 3,  [COMPARE_FOREIGN] = 2, [COMPARE_FOREIGN_PX] = 2, [COMPARE_HASH_KEY] = 2,
		[COMPARE_LIST_KEY] = 1, [COMPARE_PERSIST] = 2, [COMPARE_PEXPIRE] = 2, [COMPARE_DROP_KEY] = 2,
		[COMPARE_DROP_HASH] = 1, [COMPARE_DROP_ALL] = 1,
	};
	unsigned sum = 0, kind = 0;
	for (unsigned i = 0; i < COMPARE_STEP_KINDS; i++)
		sum += weights[i];
	for (uint64_t at = compare_random(random, sum); at >= weights[kind]; kind++)
		at -= weights[kind];
	return kind;
}

static uint64_t draw_ttl(uint64_t *random)
{
	static const uint64_t long_ones[] = { 5000, 30000, 60000, 86400000 };
	return chance(random, 30) ? one_of(random, SHORT_MS) : long_ones[compare_random(random, 4)];
}

static uint64_t draw_deadline(uint64_t *random, uint64_t now_us)
{
	if (chance(random, 70))
		return now_us + 3600000000;
	return chance(random, 80) ? now_us + compare_random(random, SOON_US) : now_us - compare_random(random, 2000000);
}

static uint64_t draw_certificate(uint64_t *random, const struct model_master *master)
{
	return chance(random, 15) ? MODEL_ANY_CERTIFICATE : like(random, master->certificate, CERTIFICATES);
}

/* At, just below and just above what the master has counted to; by the clock; about a day ahead; small. */
static uint64_t draw_fence(uint64_t *random, uint64_t has, uint64_t now_us)
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

static void draw_guard(struct model_command *command, unsigned kind, uint64_t *random, const struct model_master *master,
		       uint64_t now_us)
{
	command->marker = kind == COMPARE_CERTIFY ? like(random, master->marker, CERTIFICATES) : one_of(random, CERTIFICATES);
	command->run_id = like(random, master->marker_run_id, RUN_IDS);
	command->cluster = one_of(random, CLUSTERS);
	command->digest = like(random, master->digest, DIGESTS);
	command->evicted = (uint32_t)compare_random(random, 4);
	command->kept = chance(random, 70);
	command->clocked = chance(random, 40);
	command->deadline_us = draw_deadline(random, now_us);
	command->fence = chance(random, 10) ? 0 : draw_fence(random, model_number(master, 0), now_us);
	if (kind == COMPARE_BAR)
		command->certificate = chance(random, 70) ? master->certificate : compare_random(random, CERTIFICATES + 1);
	else
		command->certificate = like(random, chance(random, 50) ? master->certificate : master->marker, CERTIFICATES);
}

static void draw_lock(struct model_command *command, unsigned kind, uint64_t *random, const struct model_master *master,
		      uint64_t now_us)
{
	uint64_t holder = master->keys[command->key].value.token;
	command->bucket = (unsigned)compare_random(random, MODEL_BUCKETS);
	command->token = kind == COMPARE_ACQUIRE ? one_of(random, TOKENS) : like(random, holder, TOKENS);
	command->max_hold_ms = chance(random, 50) ? 0 : chance(random, 50) ? one_of(random, 3 * SHORT_MS) : 1000 * one_of(random, 100);
	command->owner = compare_random(random, COMPARE_OWNERS);
	command->fence = draw_fence(random, model_number(master, command->bucket), now_us);
	command->certificate = draw_certificate(random, master);
	command->deadline_us = draw_deadline(random, now_us);
}

/* Only where it cannot run out at that very moment: what became of it would be anybody's guess. */
static bool may_set_expiry(const struct model_master *master, unsigned key, uint64_t now_us)
{
	const struct model_key *at = &master->keys[key];
	return at->type == MODEL_NONE || at->expires_ms == 0 || at->expires_ms > now_us / 1000 + 4000;
}

void compare_draw(struct compare_step *step, uint64_t *random, const struct model_master *master, uint64_t now_us)
{
	struct model_command *command = &step->command;
	memset(step, 0, sizeof *step);
	step->kind = draw_kind(random);
	if (master->certificate == 0 && chance(random, 40)) /* so that most masters are certified for most of the time */
		step->kind = master->marker == 0 ? COMPARE_BAR : COMPARE_CERTIFY;
	command->key = chance(random, 50) ? 0 : (unsigned)compare_random(random, MODEL_KEYS);
	command->ttl_ms = draw_ttl(random);
	if (step->kind <= COMPARE_INSPECT)
		draw_lock(command, step->kind, random, master, now_us);
	else if (compare_is_script(step))
		draw_guard(command, step->kind, random, master, now_us);
	else
		command->owner = compare_random(random, COMPARE_FOREIGN_TEXTS);
	if ((step->kind == COMPARE_PERSIST || step->kind == COMPARE_PEXPIRE) && !may_set_expiry(master, command->key, now_us))
		step->kind = COMPARE_DROP_KEY;
}
