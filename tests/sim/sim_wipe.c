/* SPDX-License-Identifier: MIT */
/* A master that loses its memory, once: the part of sim_world.c that is about it. The guard (server/redlock/guard/) is
 * modelled by the time at which the master may vote again, and its floor then. That is after the longest lease, or when
 * both others were asked (SURVEY, N − Q + 1 of them) and the leases are over that they told of. */
#include "sim_world.h"

/* The largest number of N − Q + 1 others: of three masters, both. */
static uint8_t fence_of_others(const struct sim_world *world, unsigned master)
{
	uint8_t fence = 0;
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		for (unsigned key = 0; i != master && key < SIM_KEYS; key++) {
			uint8_t number = sim_master(world->masters[i])->numbers[key];
			fence = number > fence ? number : fence;
		}
	}
	return fence;
}

void sim_wipe(struct sim_world *world, unsigned master)
{
	world->wiped = (uint8_t)master;
	world->masters[master] = sim_master_flush(world->masters[master]);
	for (unsigned o = 0; o < SIM_OPS; o++) {
		for (unsigned i = 0; i < SIM_MASTERS; i++) {
			struct sim_link *link = &world->ops[o].links[i];
			for (unsigned c = 0; c < SIM_QUEUE; c++) {
				link->commands[c].old = c < link->command_count;
				link->stale[c].old = c < link->stale_count;
			}
		}
	}
}

/* Their deadline has passed by then. A release has none. */
static void make_late(struct sim_command *commands, unsigned count)
{
	for (unsigned c = 0; c < count; c++)
		commands[c].late |= commands[c].old && commands[c].script != REDLOCK_SCRIPT_RELEASE;
}

void sim_wipe_survey(struct sim_world *world, unsigned master)
{
	world->surveyed |= (uint8_t)(1U << master);
	for (unsigned o = 0; o < SIM_OPS; o++) {
		struct sim_op *op = &world->ops[o];
		make_late(op->links[master].commands, op->links[master].command_count);
		make_late(op->links[master].stale, op->links[master].stale_count);
		op->told |= op->turn[master] != 0;
	}
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

/* What the others told of is over. Only its time ends a lease for them: what gave a lease back, or failed, need not be
 * waited for here, which can only show more. */
static bool leases_are_over(const struct sim_world *world, unsigned master)
{
	for (unsigned o = 0; o < SIM_OPS; o++) {
		const struct sim_op *op = &world->ops[o];
		if (op->told && (sim_is_open(op) || has_lease(op)) && sim_has_validity(op))
			return false;
	}
	return (world->surveyed | 1U << master) == (1U << SIM_MASTERS) - 1;
}

/* The survey of fences and WRITE_EPOCH, at one time. */
void sim_wipe_write_epoch(struct sim_world *world, unsigned master)
{
	world->masters[master] = sim_master_write_epoch(world->masters[master], SIM_NEXT_EPOCH,
							fence_of_others(world, master));
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
	case SIM_SURVEY:
		return config->survey && world->wiped != SIM_MASTERS &&
		       sim_master(world->masters[world->wiped])->epoch == 0 && event->master != world->wiped &&
		       !redlock_has(world->surveyed, event->master);
	default:
		return sim_master(world->masters[event->master])->epoch == 0 &&
		       (quarantine_is_over(world, event->master) || leases_are_over(world, event->master));
	}
}
