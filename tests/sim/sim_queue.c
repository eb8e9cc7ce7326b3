/* SPDX-License-Identifier: MIT */
/* Waiters: the part of sim_world.c that is about the queue. Each operation is a process of its own, and its entry is
 * replica:arrival with the operation's number + 1 for the replica. All processes live.
 *
 * A notification is on its way from when a script names the operation until it is heard, which happens at any
 * time and in any order. Notifications of one master that are on their way together count as one. What the other
 * process hears (PASSED) only changes how long it sleeps; its timer may come at any time anyway, so it is left out. */
#include <assert.h>
#include <string.h>

#include "sim_world.h"

void sim_queue_begin(struct sim_world *world, const struct sim_config *config, unsigned o, unsigned guess)
{
	unsigned waiters = 0;
	for (unsigned other = 0; other < SIM_OPS; other++)
		waiters += world->ops[other].arrival != 0;
	if (config->attempts > 0)
		world->ops[o].arrival = (uint8_t)(SIM_OPS * guess + waiters);
}

void sim_queue_entry(const struct sim_world *world, const struct sim_config *config, unsigned o,
		     const struct sim_command *command, struct sim_request *ret_request)
{
	if (command->tokenless)
		ret_request->token = 0;
	if (command->entry == REDLOCK_ENTRY_NONE)
		return;
	(void)config;
	ret_request->waiter = (uint8_t)(o + 1);
	ret_request->arrival = world->ops[o].arrival;
	ret_request->leaves = command->entry != REDLOCK_ENTRY_KEEP;
}

void sim_queue_note_notification(struct sim_world *world, const struct sim_config *config, unsigned master,
				 const struct sim_effect *effect)
{
	for (unsigned o = 0; o < SIM_OPS; o++) {
		struct sim_op *op = &world->ops[o];
		bool waits = op->arrival != 0 && !op->done;
		if ((effect->notified >> o & 1) != 0 ||
		    (sim_lease_kind(config, o) == SIM_PLUS && waits && op->arrival <= effect->up_to))
			op->notified |= (uint8_t)(1U << master);
	}
}

/* ---- events ---- */

static bool is_majority(uint16_t set)
{
	return 2 * __builtin_popcount(set) > SIM_MASTERS;
}

static bool notification_begins_attempt(const struct sim_op *op, unsigned master)
{
	return op->core.state == REDLOCK_WAITING && is_majority(op->core.notified | (uint16_t)(1U << master));
}

static bool may_attempt(const struct sim_world *world, const struct sim_config *config)
{
	unsigned attempts = 0;
	for (unsigned o = 0; o < SIM_OPS; o++)
		attempts += world->ops[o].core.attempt;
	return attempts < config->attempts;
}

/* It sleeps until it is notified, or the holder's time is up. */
static bool sleeps(const struct sim_op *op)
{
	return op->core.state == REDLOCK_WAITING &&
	       redlock_deadline_us(&op->core) > op->now_us + op->core.params.master_timeout_us;
}

bool sim_queue_may_leave(const struct sim_config *config, const struct sim_op *op)
{
	return op->arrival == 0 || (config->second_leaves && op->arrival % SIM_OPS != 0);
}

bool sim_queue_can_wake_up(const struct sim_world *world, const struct sim_config *config, unsigned o)
{
	return may_attempt(world, config) && !sleeps(&world->ops[o]);
}

bool sim_queue_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	const struct sim_op *op = &world->ops[event->op];
	bool on_its_way = redlock_has(op->notified, event->master),
	     begins = notification_begins_attempt(op, event->master);
	if (event->kind == SIM_END)
		return op->core.state == REDLOCK_WAITING && sim_queue_may_leave(config, op);
	if (!on_its_way || (begins && !may_attempt(world, config)))
		return false;
	return begins ? config->guesses[event->arg] > 0 : event->arg == 0;
}

/* The operation hears it; if it is not there any more its process gives up the entry for it. */
static void hear_notification(struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	struct sim_op *op = &world->ops[event->op];
	struct redlock_event wake = {
		.kind = REDLOCK_NOTIFIED, .master = event->master, .fence = config->guesses[event->arg]};
	struct sim_command leave = {.script = REDLOCK_SCRIPT_RELEASE,
				    .attempt = (uint8_t)op->core.attempt,
				    .silent = true,
				    .epoch = op->epochs[event->master],
				    .entry = REDLOCK_ENTRY_LEAVE,
				    .tokenless = true};
	if (op->done)
		sim_send(world, event->op, event->master, &leave);
	else
		sim_drive(world, event->op, &wake);
}

void sim_queue_apply(struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	struct sim_op *op = &world->ops[event->op];
	struct redlock_event timer = {.kind = REDLOCK_TIMER, .fence = config->guesses[0]};
	if (event->kind == SIM_END) {
		op->now_us = op->core.wait_end_us;
		sim_drive(world, event->op, &timer);
	} else {
		op->notified &= (uint8_t) ~(1U << event->master);
		hear_notification(world, config, event);
	}
}

/* ---- what must hold ---- */

static void check_entry(struct sim_world *world, const struct sim_config *config, unsigned o)
{
	const struct sim_op *op = &world->ops[o];
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		const struct sim_link *link = &op->links[i];
		bool all_carried_out = !link->excused && link->command_count == 0 && link->stale_count == 0;
		FOR_EACH_KEY (key, all_carried_out ? sim_names(config, o) : 0)
			if (memchr(sim_master(world->masters[i])->queues[key], (int)o + 1, SIM_OPS))
				world->violated |= SIM_ENTRY_LEFT;
	}
}

/* Nothing is on its way from or to it, and it will not do anything soon. */
static bool is_quiet(const struct sim_world *world, const struct sim_config *config, unsigned o)
{
	const struct sim_op *op = &world->ops[o];
	bool beside = op->done && config->slots; /* there is a slot for each */
	bool gone = op->core.state == REDLOCK_IDLE || beside ||
		    (op->done && (op->outcome != REDLOCK_OK || op->released));
	bool quiet = (sleeps(op) || gone) && op->notified == 0;
	for (unsigned i = 0; i < SIM_MASTERS; i++)
		quiet = quiet && op->links[i].command_count + op->links[i].reply_count + op->links[i].stale_count == 0;
	return quiet;
}

void sim_queue_check(struct sim_world *world, const struct sim_config *config)
{
	bool all_quiet = true, one_waits = false;
	for (unsigned o = 0; o < SIM_OPS; o++) {
		all_quiet = all_quiet && is_quiet(world, config, o);
		one_waits = one_waits || world->ops[o].core.state == REDLOCK_WAITING;
		if (world->ops[o].finished)
			check_entry(world, config, o);
	}
	if (all_quiet && one_waits && world->troubles_left == config->troubles)
		world->violated |= SIM_FORGOTTEN;
}
