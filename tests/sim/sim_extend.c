/* SPDX-License-Identifier: MIT */
/* Extensions of a lease, and the repair that may follow each: see sim_world.h. Lease A is on two masters at the
 * beginning; the third has lost its memory and votes again. Operation 0 extends A, and so does operation 2 if there are
 * three. Operation 1 acquires.
 *
 * The holder of A may release it at any time through another redlockd, so these commands can overtake the others. */
#include <assert.h>

#include "sim_world.h"

enum { FORGOT = SIM_MASTERS - 1, HOLDER = 0, LATER = 1 };

static bool lies_on(const struct sim_world *world, unsigned master)
{
	return sim_master_has_token(sim_master(world->masters[master]), 0, sim_token(HOLDER, 1));
}

static bool has_lock(const struct sim_op *op)
{
	return op->done && op->outcome == REDLOCK_OK;
}

void sim_extend_init(struct sim_world *world, const struct sim_config *config)
{
	struct sim_request acquire = {
		.script = REDLOCK_SCRIPT_ACQUIRE,
		.names = 1,
		.token = sim_token(HOLDER, 1),
		.fence = SIM_LEASE_FENCE,
		.epoch = SIM_EPOCH,
		.kind = (uint8_t)sim_lease_kind(config, HOLDER),
	};
	if (acquire.kind != SIM_EXCLUSIVE)
		acquire.most = sim_most(config);
	for (unsigned i = 0; i < SIM_MASTERS; i++)
		if (i != FORGOT)
			world->masters[i] = sim_master_run(world->masters[i], &acquire)->state;
	world->masters[FORGOT] = sim_master_write_epoch(sim_master_flush(world->masters[FORGOT]), SIM_EPOCH,
							SIM_LEASE_FENCE);
}

void sim_extend_note(struct sim_world *world, unsigned o, unsigned master, const struct sim_command *command,
		     enum redlock_vote vote)
{
	struct sim_op *op = &world->ops[o];
	bool granted = vote == REDLOCK_VOTE_GRANTED;
	if (sim_is_extension(op) && command->script == REDLOCK_SCRIPT_EXTEND && granted) {
		world->extended[master] |= (uint8_t)(1U << o);
		if (command->round == 0 && has_lock(&world->ops[LATER]))
			op->extended_after |= (uint8_t)(1U << master);
	} else if (command->repair && granted) {
		world->extended[master] = (uint8_t)(1U << o);
		if (!has_lock(op))
			world->violated |= SIM_REVIVED;
	}
	if (!lies_on(world, master))
		world->extended[master] = 0;
}

static bool is_valid(const struct sim_op *op)
{
	return has_lock(op) && sim_has_validity(op);
}

/* A key that no extension has prolonged may end at any time; another one when these extensions failed or are over. */
static bool can_expire(const struct sim_world *world, unsigned master)
{
	for (unsigned o = 0; o < SIM_OPS; o++)
		if (redlock_has(world->extended[master], o) && (!world->ops[o].done || is_valid(&world->ops[o])))
			return false;
	return lies_on(world, master);
}

bool sim_extend_is_its(const struct sim_event *event)
{
	return event->kind == SIM_RUN_OUT || event->kind == SIM_EXPIRE ||
	       (event->kind == SIM_RELEASE && event->op != LATER);
}

/* Nobody is cancelled. The guesses are those of the acquisition. */
bool sim_extend_may(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	bool is_second = config->extends_apart && event->op > LATER;
	switch ((enum sim_kind)event->kind) {
	case SIM_START: return (event->arg == 0 || event->op == LATER) && (!is_second || world->ops[LATER].done);
	case SIM_DELIVER: return !is_second;
	case SIM_TIMER: return !config->extends_apart;
	default: return event->kind != SIM_CANCEL;
	}
}

bool sim_extend_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	switch ((enum sim_kind)event->kind) {
	case SIM_RELEASE: return event->op == HOLDER && !world->ops[HOLDER].released;
	case SIM_RUN_OUT: return sim_is_extension(&world->ops[event->op]) && is_valid(&world->ops[event->op]);
	default:
		return sim_event_token(world, config, event) == sim_token(HOLDER, 1) &&
		       can_expire(world, event->master);
	}
}

static void release(struct sim_world *world)
{
	struct sim_op *op = &world->ops[HOLDER];
	op->released = true;
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		struct sim_link *link = &op->links[i];
		assert(link->stale_count < SIM_QUEUE);
		link->stale[link->stale_count++] = (struct sim_command){
			.script = REDLOCK_SCRIPT_RELEASE, .attempt = 1, .epoch = SIM_EPOCH, .silent = true};
	}
}

/* The deadlines of its commands have passed by then. */
static void run_out(struct sim_op *op)
{
	op->now_us = sim_useful_until_us(op);
	for (unsigned i = 0; i < SIM_MASTERS; i++)
		for (unsigned c = 0; c < op->links[i].command_count; c++)
			op->links[i].commands[c].late = true;
}

void sim_extend_apply(struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	switch ((enum sim_kind)event->kind) {
	case SIM_RELEASE: release(world); break;
	case SIM_RUN_OUT:
		run_out(&world->ops[event->op]);
		world->first_over = true;
		break;
	default:
		world->first_over = true; /* each extension ends later */
		world->extended[event->master] = 0;
		world->masters[event->master] = sim_master_drop(world->masters[event->master],
								sim_event_key(config, event), sim_token(HOLDER, 1));
		break;
	}
}

/* While the later lease is valid, A is not. No extension of A gets a majority after that. */
void sim_extend_check(struct sim_world *world, const struct sim_config *config)
{
	const struct sim_op *later = &world->ops[LATER];
	bool is_held = !world->first_over;
	unsigned kept = 0;
	for (unsigned i = 0; i < SIM_MASTERS; i++)
		kept += lies_on(world, i);
	for (unsigned o = 0; o < SIM_OPS; o++) {
		if (!sim_is_extension(&world->ops[o]))
			continue;
		if (2 * __builtin_popcount(world->ops[o].extended_after) > SIM_MASTERS)
			world->violated |= SIM_REVIVED;
		is_held |= is_valid(&world->ops[o]);
	}
	is_held &= !world->ops[HOLDER].released;
	if (is_held && 2 * kept <= SIM_MASTERS)
		world->violated |= SIM_KEPT;
	bool apart = (config->shared >> HOLDER & config->shared >> LATER & 1) != 0;
	if (is_held && !apart && has_lock(later) && !later->released)
		world->violated |= SIM_EXCLUSION;
	if (has_lock(later) && later->fence <= SIM_LEASE_FENCE)
		world->violated |= SIM_REAL_TIME;
}
