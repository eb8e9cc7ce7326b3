/* SPDX-License-Identifier: MIT */
/* When two worlds are the same: a canonical form, of which only a 64-bit hash is kept.
 *
 * The form leaves out what no later event depends on: the votes of a decided operation (late replies are only counted),
 * the history of increases of an operation without the lock, of a key's value all but the token, of bucket and floor
 * all but the larger one, of an increase all but whether it is to the current number (numbers only grow, so an older
 * one can never be given).
 *
 * Masters are interchangeable, as neither the core nor the world depends on their order: each is hashed with all that
 * belongs to it, and the three hashes are sorted. So are the operations, which may make the same guesses: by their
 * own state and, if that is equal, by the smallest hash of all orders. */
#include <assert.h>
#include <string.h>

#include "sim_world.h"

enum { RECORD_MAX = 512 };

struct record {
	unsigned len;
	union {
		uint8_t bytes[RECORD_MAX];
		uint64_t words[RECORD_MAX / 8];
	} at;
};

static void put(struct record *record, unsigned value)
{
	assert(value <= UINT8_MAX && record->len < RECORD_MAX);
	record->at.bytes[record->len++] = (uint8_t)value;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)(a ^ UINT64_C(0xa0761d6478bd642f)) *
				    (b ^ UINT64_C(0xe7037ed1a0b428db));
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_record(struct record *record)
{
	uint64_t hash = mix(record->len, UINT64_C(0x9e3779b97f4a7c15));
	while (record->len % 8 != 0)
		put(record, 0);
	for (unsigned i = 0; i < record->len / 8; i++)
		hash = mix(hash ^ record->at.words[i], UINT64_C(0x8ebc6af09c88c6e3) + hash);
	return hash;
}

/* An order of the operations: which one is at each place, and the place of each. */
struct order {
	uint8_t at[SIM_OPS], place[SIM_OPS];
};

/* A token as seen in this order. */
static unsigned token_from(uint64_t token, const struct order *order)
{
	if (token == SIM_SHARED_HOLDER)
		return SIM_SHARED_HOLDER + 3;
	if ((token & SIM_KEPT_TOKEN) != 0)
		return SIM_KEPT_TOKEN | token_from(token & ~(uint64_t)SIM_KEPT_TOKEN, order);
	return token == 0 ? 0 : 1U + order->place[sim_token_op(token)] * 4U + sim_token_attempt(token) - 1;
}

/* A key as seen in this order: of sets the two ends change places. */
static unsigned key_from(unsigned key, const struct sim_config *config, const struct order *order)
{
	return config->sets && order->at[0] == 1 ? 2 - key : key;
}

static unsigned set_from(unsigned ops, const struct order *order)
{
	unsigned set = 0;
	for (unsigned o = 0; o < SIM_OPS; o++)
		set |= (ops >> o & 1) << order->place[o];
	return set;
}

static bool may_have_lock(const struct sim_op *op)
{
	return !op->done || op->outcome == REDLOCK_OK;
}

/* The increases of a lost attempt do not matter any more. */
static bool has_history(const struct sim_op *op)
{
	return may_have_lock(op) && op->core.state != REDLOCK_WAITING && op->core.state != REDLOCK_LEAVING;
}

static void put_op(struct record *record, const struct sim_op *op, const struct sim_config *config)
{
	const struct redlock *core = &op->core;
	put(record,
	    (unsigned)(core->state * 8) + (op->before != 0 && !op->done) * 4U + op->released * 2U + may_have_lock(op));
	put(record, core->attempt);
	if (config->attempts > 0)
		put(record, op->arrival);
	/* what of its last attempt is left is on its way; all that counts of its sleep is whether it is a short one */
	if (core->state == REDLOCK_WAITING) {
		uint64_t sleep_us = core->deadline_us - op->now_us;
		put(record, sleep_us > core->params.master_timeout_us ? UINT8_MAX : (unsigned)sleep_us);
		return;
	}
	if (op->done) {
		put(record, op->fence);
		if (config->wipes > 0 || config->extends)
			put(record, may_have_lock(op) && (config->extends || !op->released) && sim_has_validity(op));
		return;
	}
	if (core->state == REDLOCK_LEAVING) /* the attempt is over: only votes count, and the time for them */
		return;
	put(record, core->round + core->again * 16U);
	put(record, (unsigned)core->fence);
	put(record, (unsigned)core->highest);
	put(record, (unsigned)(op->now_us - core->start_us) & 0xffU);
	put(record, core->state == REDLOCK_IDLE ? 0 : (unsigned)(core->deadline_us - op->now_us) & 0xffU);
}

/* The knowledge of the core about one master. */
static void put_core(struct record *record, const struct redlock *core, unsigned master, const struct order *order)
{
	const struct redlock_ballot *ballot = &core->ballots[master];
	bool answered = redlock_has(core->answered, master);
	unsigned round = redlock_has(core->asked, master) * 16U + redlock_has(core->raised, master) * 8U +
			 redlock_has(core->stale, master) * 4U + redlock_has(core->failed, master) * 2U;
	bool waits = core->params.wait_us > 0; /* then nothing is left of older rounds */
	put(record, (core->state != REDLOCK_LEAVING && redlock_has(core->sent, master)) * 32U +
			    (!waits || core->state == REDLOCK_RAISING ? round : 0) + answered);
	if (!answered)
		return;
	put(record, ballot->vote + ballot->elsewhere * 16U);
	if (ballot->vote == REDLOCK_VOTE_HELD)
		put(record, token_from(ballot->holder, order));
	else if (ballot->vote == REDLOCK_VOTE_GRANTED && core->state == REDLOCK_VOTING)
		put(record, (unsigned)ballot->fence);
}

/* The part of a waiter. */
static void put_waiter(struct record *record, const struct sim_op *op, unsigned master)
{
	const struct redlock *core = &op->core;
	bool held = core->state == REDLOCK_WAITING && redlock_has(core->held_by, master);
	put(record, held * 16U + redlock_has(core->joined, master) * 8U + redlock_has(core->notified, master) * 4U +
			    redlock_has(op->notified, master) * 2U + (op->done && redlock_has(core->sent, master)));
}

/* The queues of the keys: without sets somebody waits only for the first. */
static void put_queues(struct record *record, const struct sim_master *redis, const struct sim_config *config,
		       const struct order *order)
{
	put(record, redis->waited);
	for (unsigned key = 0; key < (config->sets ? SIM_KEYS : 1); key++) {
		const uint8_t *queue = redis->queues[key_from(key, config, order)];
		put(record, (unsigned)strlen((const char *)queue));
		for (; *queue != 0; queue++)
			put(record, order->place[*queue - 1]);
	}
}

static void put_commands(struct record *record, const struct sim_command *commands, unsigned count,
			 const struct sim_op *op)
{
	put(record, count);
	for (unsigned i = 0; i < count; i++) {
		const struct sim_command *command = &commands[i];
		bool is_release = command->script == REDLOCK_SCRIPT_RELEASE;
		unsigned newer = !is_release && command->epoch > 1; /* only of a wiped master is there more than one */
		put(record,
		    command->script + (command->silent && !op->done) * 8U + command->attempt * 16U + newer * 128U);
		put(record, op->done && !sim_is_extension(op) ? 0 : command->round);
		if (sim_is_extension(op))
			put(record, command->seen);
		put(record, is_release ? 0 : command->fence + command->old * 64U + command->late * 128U);
		if (op->arrival != 0)
			put(record, command->entry + command->tokenless * 4U + command->silent * 8U);
	}
}

/* What an extension may still repair, and how far its lease goes on this master. */
static void put_repair(struct record *record, const struct sim_world *world, unsigned o, unsigned master)
{
	const struct sim_op *op = &world->ops[o];
	put(record, redlock_has(op->core.repair_to, master) + redlock_has(op->core.confirmed, master) * 2U +
			    redlock_has(op->extended_after, master) * 4U +
			    redlock_has(world->extended[master], o) * 8U);
	put(record, op->gone[master]);
}

static void put_link(struct record *record, const struct sim_op *op, unsigned master, const struct order *order)
{
	const struct sim_link *link = &op->links[master];
	bool may_send = (may_have_lock(op) && !op->released) || op->arrival != 0;
	put(record, (may_send ? link->state * 2U : 0) + link->excused);
	put_commands(record, link->commands, link->command_count, op);
	put_commands(record, link->stale, link->stale_count, op);
	put(record, link->reply_count);
	for (unsigned i = 0; i < link->reply_count; i++) {
		const struct sim_reply *reply = &link->replies[i];
		put(record, reply->script + reply->vote * 8U + reply->elsewhere * 128U);
		put(record, reply->attempt + reply->round * 4U);
		put(record, reply->vote == REDLOCK_VOTE_HELD ? token_from(reply->holder, order) : reply->fence);
	}
}

/* The effects of this operation on one master that may still matter. */
static void put_history(struct record *record, const struct sim_world *world, unsigned o, unsigned master)
{
	const struct sim_op *op = &world->ops[o];
	uint64_t number = op->done ? op->fence : op->core.fence;
	put(record, has_history(op) ? (op->turn[master] != 0) * 2U +
					      (op->increased[master] != 0 && op->increased[master] == number)
				    : 0);
}

/* Whether this master was wiped, and what is to be known of it: whose attempts had which epoch. */
static void put_memory(struct record *record, const struct sim_world *world, unsigned master, const struct order *order)
{
	put(record, (unsigned)sim_master(world->masters[master])->epoch + (world->surveyed >> master & 1) * 4U);
	for (unsigned i = 0; i < SIM_OPS; i++) {
		const struct sim_op *op = &world->ops[order->at[i]];
		bool counts = may_have_lock(op) && !op->released;
		put(record, counts ? op->epochs[master] + op->told * 4U : 0);
	}
}

/* The tokens that hold the one key, in an order of their own. */
static void put_holders(struct record *record, const struct sim_master *redis, const struct order *order)
{
	unsigned found = 0, all = 1 + 4 * SIM_OPS;
	for (unsigned token = 1; token < all; token++) {
		unsigned real = 1U + order->at[(token - 1) >> 2] * 4U + ((token - 1) & 3);
		if (sim_master_has_token(redis, 0, (uint8_t)real))
			found |= 1U << token;
	}
	put(record, found & UINT8_MAX);
	put(record, found >> 8 | redis->is_several[0] * 32U);
}

/* Of each two attempts that acquired there, which one did first. */
static void put_turns(struct record *record, const struct sim_world *world, unsigned master, const struct order *order)
{
	for (unsigned i = 0; i < SIM_OPS; i++) {
		for (unsigned k = 0; k < i; k++) {
			const struct sim_op *a = &world->ops[order->at[k]], *b = &world->ops[order->at[i]];
			bool both = a->turn[master] != 0 && has_history(a) && b->turn[master] != 0 && has_history(b);
			put(record, both ? 1U + (b->turn[master] < a->turn[master]) : 0);
		}
	}
}

static uint64_t hash_master(const struct sim_world *world, const struct sim_config *config, unsigned master,
			    const struct order *order)
{
	struct record record = {.len = 0};
	const struct sim_master *redis = sim_master(world->masters[master]);
	for (unsigned bucket = 0; bucket < (config->sets ? SIM_KEYS : 1); bucket++)
		put(&record, redis->numbers[key_from(bucket, config, order)]);
	for (unsigned key = 0; key < (config->sets ? SIM_KEYS : 0); key++)
		put(&record, token_from(redis->tokens[key_from(key, config, order)][0], order));
	put_turns(&record, world, master, order);
	if (config->wipes > 0)
		put_memory(&record, world, master, order);
	if (config->attempts > 0)
		put_queues(&record, redis, config, order);
	for (unsigned i = 0; i < SIM_OPS; i++) {
		unsigned o = order->at[i];
		const struct sim_op *op = &world->ops[o];
		if (sim_has_several(config) && i == 0)
			put_holders(&record, redis, order);
		else if (!sim_has_several(config) && !config->sets && (i == 0 || config->two_resources))
			put(&record, token_from(redis->tokens[sim_key(config, o)][0], order));
		if (config->attempts > 0)
			put_waiter(&record, op, master);
		if (sim_is_extension(op))
			put_repair(&record, world, o, master);
		if ((!op->done || sim_is_extension(op)) && op->core.state != REDLOCK_WAITING)
			put_core(&record, &op->core, master, order);
		put_link(&record, op, master, order);
		put_history(&record, world, o, master);
	}
	return hash_record(&record);
}

static void sort_two(uint64_t *a, uint64_t *b)
{
	uint64_t smaller = *a < *b ? *a : *b;
	*b = *a < *b ? *b : *a;
	*a = smaller;
}

static uint64_t hash_from(const struct sim_world *world, const struct sim_config *config, const uint64_t ops[SIM_OPS],
			  const struct order *order)
{
	uint64_t masters[SIM_MASTERS];
	uint64_t hash = ops[order->at[0]] ^ (world->drops_left * 16U + world->troubles_left + world->first_over * 256U);
	for (unsigned i = 1; i < SIM_OPS; i++)
		hash = mix(hash, ops[order->at[i]]);
	for (unsigned i = 0; i < SIM_OPS && SIM_OPS > 2; i++) {
		const struct sim_op *op = &world->ops[order->at[i]];
		hash = mix(hash, op->done ? 0 : 1 + set_from(op->before, order));
	}
	for (unsigned i = 0; i < SIM_MASTERS; i++)
		masters[i] = hash_master(world, config, i, order);
	_Static_assert(SIM_MASTERS == 3, "sorts three");
	sort_two(&masters[0], &masters[1]);
	sort_two(&masters[1], &masters[2]);
	sort_two(&masters[0], &masters[1]);
	for (unsigned i = 0; i < SIM_MASTERS; i++)
		hash = mix(hash ^ masters[i], UINT64_C(0x589965cc75374cc3) + hash);
	return hash;
}

#if SIM_OPS == 2
static const struct order orders[] = {{{0, 1}, {0, 1}}, {{1, 0}, {1, 0}}};
#else
static const struct order orders[] = {
	{{0, 1, 2}, {0, 1, 2}}, {{0, 2, 1}, {0, 2, 1}}, {{1, 0, 2}, {1, 0, 2}},
	{{1, 2, 0}, {2, 0, 1}}, {{2, 0, 1}, {1, 2, 0}}, {{2, 1, 0}, {2, 1, 0}},
};
#endif
enum { ORDERS = sizeof orders / sizeof *orders };

static bool is_sorted(const uint64_t ops[SIM_OPS], const struct order *order)
{
	bool sorted = true;
	for (unsigned i = 1; i < SIM_OPS; i++)
		sorted &= ops[order->at[i - 1]] <= ops[order->at[i]];
	return sorted;
}

uint64_t sim_fingerprint(const struct sim_world *world, const struct sim_config *config)
{
	uint64_t ops[SIM_OPS];
	for (unsigned o = 0; o < SIM_OPS; o++) {
		struct record record = {.len = 0};
		put_op(&record, &world->ops[o], config);
		put(&record, sim_lease_kind(config, o));
		put(&record, config->extends ? o : 0); /* with extensions none can stand for another */
		ops[o] = hash_record(&record);
	}
	uint64_t hash = UINT64_MAX;
	for (unsigned i = 0; i < ORDERS; i++) {
		uint64_t its = is_sorted(ops, &orders[i]) ? hash_from(world, config, ops, &orders[i]) : UINT64_MAX;
		hash = its < hash ? its : hash;
	}
	return hash != 0 ? hash : 1;
}
