/* A master that loses its memory, once: the part of sim_world.c that is about it. The guard (server/redlock/guard/) is
 * modelled by the time at which the master may vote again, and its floor then. */
#include "sim_world.h"

/* The largest number of N − Q + 1 others: of three masters, both. */
static uint8_t fence_of_others(const struct sim_world *world, unsigned master)
{
	uint64_t fence = 0;
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		for (unsigned bucket = 0; i != master && bucket < MODEL_BUCKETS; bucket++) {
			uint64_t number = model_number(&world->masters[i], bucket);
			fence = number > fence ? number : fence;
		}
	}
	return (uint8_t)fence;
}

void sim_wipe(struct sim_world *world, unsigned master)
{
	world->wiped = (uint8_t)master;
	model_flushall(&world->masters[master]);
}

static bool has_lease(const struct sim_op *op)
{
	return op->done && op->outcome == REDLOCK_OK && !op->released;
}

/* What waiting for the longest lease makes sure of: whoever had the old epoch neither has a lease any more nor can get
 * one. The keys of later attempts are not there, so there is nothing of them to forget. */
static bool quarantine_is_over(const struct sim_world *world, unsigned master)
{
	for (unsigned o = 0; o < SIM_OPS; o++) {
		const struct sim_op *op = &world->ops[o];
		bool lives = (sim_is_open(op) || has_lease(op)) && sim_has_validity(op);
		if (lives && op->epochs[master] == SIM_EPOCH)
			return false;
	}
	return true;
}

/* The survey and WRITE_EPOCH, at one time. */
void sim_wipe_write_epoch(struct sim_world *world, unsigned master)
{
	world->masters[master].floor = fence_of_others(world, master);
	world->masters[master].epoch = SIM_NEXT_EPOCH;
}

/* A key lives longer than the validity of its attempt. What has no lease (any more) gives it back: that need not be
 * waited for. */
static bool can_expire(const struct sim_world *world, uint64_t token)
{
	if (token == 0)
		return false;
	const struct sim_op *op = &world->ops[sim_token_op(token)];
	return (sim_is_open(op) || has_lease(op)) && sim_token_attempt(token) == op->core.attempt &&
	       !sim_has_validity(op);
}

bool sim_wipe_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	const struct sim_op *op = &world->ops[event->op];
	switch ((enum sim_kind)event->kind) {
	case SIM_WIPE: return world->wiped == SIM_MASTERS;
	case SIM_RUN_OUT: return has_lease(op) && sim_has_validity(op);
	case SIM_EXPIRE: return can_expire(world, sim_event_token(world, config, event));
	default: return world->masters[event->master].epoch == 0 && quarantine_is_over(world, event->master);
	}
}
