/* SPDX-License-Identifier: MIT */
/* What must hold in every state of the world: see the list in sim_world.h. Majorities are counted here independently of
 * the core. */
#include "sim_world.h"

static bool has_lock(const struct sim_op *op)
{
	return op->done && op->outcome == REDLOCK_OK;
}

/* Leases run out only where a master may be wiped: nothing waits for it otherwise. A lease that is kept never ends. */
static bool has_ended(const struct sim_op *op, const struct sim_config *config)
{
	return (op->released && !config->keeps) || (config->wipes > 0 && !sim_has_validity(op));
}

/* The numbers given to two operations: different, and ordered. */
static void check_pair(struct sim_world *world, const struct sim_config *config, unsigned one, unsigned other)
{
	const struct sim_op *a = &world->ops[one], *b = &world->ops[other];
	if (a->fence == b->fence)
		world->violated |= SIM_DISTINCT;
	if (((a->before >> other & 1) != 0 && a->fence < b->fence) ||
	    ((b->before >> one & 1) != 0 && b->fence < a->fence))
		world->violated |= SIM_REAL_TIME;
	/* On a master where both made the increase that gave them their numbers, the first to hold the lock has the
	 * smaller one; two shared leases, or on two slots, may be held there at one time. */
	bool apart = config->two_resources || (config->shared >> one & config->shared >> other & 1) != 0 ||
		     sim_slot(config, a->core.attempt) != sim_slot(config, b->core.attempt);
	for (unsigned i = 0; i < SIM_MASTERS && !apart; i++) {
		bool increased = a->increased[i] == a->fence && b->increased[i] == b->fence;
		if (increased && a->turn[i] != 0 && b->turn[i] != 0 &&
		    (a->turn[i] < b->turn[i]) != (a->fence < b->fence))
			world->violated |= SIM_HOLDING;
	}
	bool both_valid = !has_ended(a, config) && !has_ended(b, config);
	if (config->drops == 0 && !apart && both_valid)
		world->violated |= SIM_EXCLUSION;
}

static void check_holder(struct sim_world *world, const struct sim_config *config, unsigned o)
{
	const struct sim_op *op = &world->ops[o];
	unsigned increased = 0, kept = 0;
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		increased += op->increased[i] == op->fence;
		bool forgotten = i == world->wiped && op->turn[i] != 0;
		bool all = true;
		uint8_t token = sim_token(o, op->core.attempt);
		const struct sim_master *master = sim_master(world->masters[i]);
		FOR_EACH_KEY (key, sim_names(config, o))
			all = all && (sim_master_has_token(master, key, token) ||
				      sim_master_has_token(master, key, token | SIM_KEPT_TOKEN));
		kept += forgotten || all;
	}
	if (2 * increased <= SIM_MASTERS)
		world->violated |= SIM_DEFINITION;
	if (config->drops == 0 && !has_ended(op, config) && 2 * kept <= SIM_MASTERS)
		world->violated |= SIM_KEPT;
}

/* When all that an operation sent has been carried out, no key of it is left. */
static void check_left_behind(struct sim_world *world, const struct sim_config *config, unsigned o)
{
	const struct sim_op *op = &world->ops[o];
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		const struct sim_link *link = &op->links[i];
		if (link->excused || link->command_count > 0 || link->stale_count > 0)
			continue;
		FOR_EACH_KEY (key, sim_names(config, o)) {
			for (const uint8_t *token = sim_master(world->masters[i])->tokens[key]; *token != 0; token++)
				if ((*token & SIM_KEPT_TOKEN) == 0 && sim_token_op(*token) == o)
					world->violated |= SIM_LEFT_BEHIND;
		}
	}
}

/* An attempt has all keys of its set on a master, or none. */
static void check_part(struct sim_world *world)
{
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		const struct sim_master *master = sim_master(world->masters[i]);
		uint8_t shared = master->tokens[SIM_SHARED][0];
		for (unsigned o = 0; 2 * o < SIM_KEYS; o++) {
			uint8_t own = master->tokens[2 * o][0];
			bool has_shared = shared != 0 && sim_token_op(shared) == o;
			if (own != (has_shared ? shared : 0))
				world->violated |= SIM_PART;
		}
	}
}

void sim_check(struct sim_world *world, const struct sim_config *config)
{
	for (unsigned o = 0; o < SIM_OPS; o++) {
		const struct sim_op *op = &world->ops[o];
		if (has_lock(op) && !sim_is_extension(op))
			check_holder(world, config, o);
		if (op->done && !sim_is_extension(op) && (op->outcome != REDLOCK_OK || op->released))
			check_left_behind(world, config, o);
		if (!op->done && op->core.state != REDLOCK_IDLE && redlock_deadline_us(&op->core) == REDLOCK_NEVER)
			world->violated |= SIM_ONCE;
	}
	for (unsigned o = 0; o < SIM_OPS; o++)
		for (unsigned other = 0; other < o; other++)
			if (has_lock(&world->ops[o]) && has_lock(&world->ops[other]) && !config->extends)
				check_pair(world, config, o, other);
	if (config->attempts > 0)
		sim_queue_check(world, config);
	if (config->extends)
		sim_extend_check(world, config);
	if (config->sets && config->drops == 0 && config->wipes == 0)
		check_part(world);
}

const char *sim_check_name(unsigned check)
{
	switch ((enum sim_check)check) {
	case SIM_DISTINCT: return "distinct: two leases with one number";
	case SIM_HOLDING: return "holding: who held the lock first on a shared master has the larger number";
	case SIM_REAL_TIME: return "real time: an attempt that began after an OK got the smaller number";
	case SIM_DEFINITION: return "definition: no majority made a strict increase to the number given";
	case SIM_EXCLUSION: return "exclusion: two leases at the same time";
	case SIM_KEPT: return "kept: a lease without a majority of keys";
	case SIM_LEFT_BEHIND: return "left behind: a key of a lock that was not given or was given back";
	case SIM_ONCE: return "once: done or finished not exactly once, or no deadline";
	case SIM_ASSERT: return "assert: the core's own";
	case SIM_ENTRY_LEFT: return "entry left: an entry in the queue of one that does not wait any more";
	case SIM_FORGOTTEN: return "forgotten: one that waits sleeps, and the lock is free";
	case SIM_PART: return "part: a master has a part of a set";
	case SIM_REVIVED: return "revived: a repair, or a majority, for a lease that is over";
	case SIM_ALL: break;
	}
	return "several";
}
