/* SPDX-License-Identifier: MIT */
/* One history: its beginning, its loop, and its end.
 *
 *   faults     clients and the nemesis work; what daemon_check.c checks holds throughout
 *   healing    no more faults; clients release what they hold, quarantines run out
 *   serving    the quarantine + SLACK_US after the healing, each master votes at each redlockd; the remaining waiters
 *              are granted one after the other
 *   trials     no key is left. Then each resource is acquired, once alone, once by all redlockd at once, and one of
 *              them by a queue of waiters (daemon_trial.c). Afterwards neither keys nor entries may be left */
#include <assert.h>
#include <string.h>

#include "daemon_world.h"

enum {
	FIRST_FAULT_US = 1500000,
	SNAPSHOT_US = 600000,
	TRIAL_US = 250000,
	TRIAL_QUEUE_US = 1300000,
	OPERATIONS_MIN = 200,
	MORE_US = 250000
};
enum {
	ROLLING_EVERY = 29, /* one history of so many is of PROFILE_ROLLING */
	DURABLE_EVERY = 7,  /* … has durable masters */
	KEEPS_EVERY = 4     /* … keeps leases after their release */
};
enum { SERVING_US = 3000000, SERVING_STEP_US = 200000 };

/* From the healing on, beyond the longest lease + its drift + 2 s: a connection is tried again within 1 s, or the
 * handshake of the last attempt must first time out (1 s); the next heartbeat (1 s) may find what quarantines; those
 * who remember too little are given 2 s; the fences of another master are read in 64 round trips (2 s); and a redlockd
 * that waited sees with its next heartbeat (1 s) that another one has written the epoch. */
#define SLACK_US (6000 * MS)

static void push_phase(struct world *world, uint64_t after_us)
{
	event_push(world, event_new(world, EVENT_PHASE), world->now + after_us);
}

static void push_snapshot(struct world *world, unsigned node)
{
	struct event *event = event_new(world, EVENT_SNAPSHOT);
	event->node = (uint8_t)node;
	event_push(world, event, world->now + 1 + below(world, 2 * SNAPSHOT_US));
}

static void init_proc(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	int32_t ppm = (int32_t)below(world, 2 * CLOCK_PPM + 1) - CLOCK_PPM;
	proc->clock = (struct clock){.base = 10 * SECOND + below(world, 1000 * SECOND), .ppm = ppm};
	proc->wall_us = (int64_t)(DAY_BEGAN_US + below(world, 20 * MS) - proc->clock.base);
	bool ahead = index == 0 && (world->config.profile == PROFILE_RACE || world->config.profile == PROFILE_FLIGHT);
	proc->wall_ahead_us = ahead ? (int64_t)(7200 * SECOND) : 0;
	proc->wall_us += proc->wall_ahead_us;
	world->clocks_wrong |= ahead;
	proc->run = 0;
	proc->serial = 0;
	proc->up = false;
	proc->masters = NULL; /* of a history that ended with a failed assert */
	memset(proc->links, 0, sizeof proc->links);
	proc_start(world, index, world->config.bootstrap);
}

static void init(struct world *world, uint64_t seed, struct figures *figures)
{
	world->random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	world->now = 0;
	world->hash = UINT64_C(0xcbf29ce484222325);
	world->figures = figures;
	world->healing = world->watched = world->late_jump = world->over = world->clocks_wrong = world->failed = false;
	world->phase = PHASE_FAULTS;
	world->operations = 0;
	world->healed_at = world->recovered_at = world->clocked_at = 0;
	world->settled_at = NEVER;
	world->rolled_at = 0;
	world->next_run_id = 0;
	world->next_serial = 0;
	world->slow = 1;
	world->tests_ok = 0;
	proc_turn_to(world, PROCS);
	world->muted = false;
	world->dirty = world->first_free_timer = NONE;
	world->used_timers = 0;
	commands_init(world);
	world->free_connection_count = world->used_connections = 0;
	for (unsigned i = 0; i < CALLS; i++)
		world->calls[i].used = false;
	queue_init(world);
	check_init(world);
	config_random(world, seed % ROLLING_EVERY == 0, seed % DURABLE_EVERY == 0);
	world->config.keeps = seed % KEEPS_EVERY == 1 && world->config.profile != PROFILE_ROLLING;
	order_init(world);
	for (unsigned i = 0; i < world->config.nodes; i++) {
		node_init(world, i);
		if (world->config.faults & SNAPSHOT_FAULTS)
			push_snapshot(world, i);
	}
	for (unsigned p = 0; p < world->config.procs; p++)
		init_proc(world, p);
	clients_init(world);
	event_push(world, event_new(world, EVENT_FAULT), FIRST_FAULT_US);
	push_phase(world, FIRST_FAULT_US + world->config.fault_time_us);
}

/* ---- the end of it ---- */

/* The longest lease, its drift, 2 s. */
static uint64_t quarantine_of(const struct world *world)
{
	return world->config.max_ttl_us + world->config.max_ttl_us / 100 + world->config.margin_us;
}

static bool votes(const struct world *world, unsigned proc, unsigned node)
{
	const struct masters *masters = world->procs[proc].masters;
	return master_state_of(&masters->list[node]) == MASTER_VOTING;
}

bool is_recovered(const struct world *world)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		for (unsigned i = 0; i < world->config.nodes; i++)
			if (!votes(world, p, i))
				return false;
	return true;
}

static void check_voting(struct world *world)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		for (unsigned i = 0; i < world->config.nodes; i++) {
			const struct masters *masters = world->procs[p].masters;
			if (votes(world, p, i))
				continue;
			char reason[STATUS_REASON_MAX];
			proc_turn_to(world, p);
			master_state_write_reason(&masters->list[i], reason);
			proc_turn_to(world, PROCS);
			fail(world, "progress: p%u has master %u not voting (%.80s) %llu ms after the healing", p, i,
			     reason, (unsigned long long)((world->now - world->healed_at) / MS));
		}
}

static void check_granted_all(struct world *world)
{
	if (world->tests_ok != world->tests_due)
		fail(world, "progress: %u of %u that had to be granted were", world->tests_ok, world->tests_due);
}

/* The faults are over when there were calls enough. */
static void end_faults(struct world *world)
{
	if (world->operations < OPERATIONS_MIN && world->config.profile != PROFILE_ROLLING) {
		push_phase(world, MORE_US);
		return;
	}
	world->phase = PHASE_HEALING;
	if (world->config.faults != 0 || world->config.profile == PROFILE_QUEUE)
		order_trouble(world); /* what was frozen goes on */
	fault_heal(world);
	push_phase(world, quarantine_of(world) + SLACK_US);
}

/* A small jump of a clock was found late, so its quarantine began late, too: once more as long. */
static void heal_again(struct world *world)
{
	world->late_jump = false;
	world->figures->late_jumps++;
	world->phase = PHASE_HEALING;
	push_phase(world, quarantine_of(world) + SLACK_US);
}

static void end_healing(struct world *world)
{
	if (!is_recovered(world) && world->late_jump) {
		heal_again(world);
		return;
	}
	world->late_jump = false;
	check_voting(world);
	world->phase = PHASE_SERVING;
	order_calm(world, world->config.max_ttl_us + REDLOCK_ALIVE_US + 500 * MS);
	world->served_by = world->now + world->config.max_ttl_us + SERVING_US;
	push_phase(world, 1);
}

/* The remaining waiters are granted now, one after the other. */
static void end_serving(struct world *world)
{
	if (clients_busy(world) && world->now < world->served_by) {
		push_phase(world, SERVING_STEP_US);
		return;
	}
	if (clients_busy(world))
		fail(world, "progress: %u wait yet, %llu ms after the healing", order_waiting(world),
		     (unsigned long long)((world->now - world->healed_at) / MS));
	world->phase = PHASE_SERVED;
	/* leases with a key run out by themselves */
	push_phase(world, SERVING_STEP_US + (world->config.keyed != 0 ? 2 * world->config.max_ttl_us : 0));
}

static void next_phase(struct world *world)
{
	if (world->phase >= PHASE_SERVING && world->late_jump) { /* waiters and trials need every master */
		heal_again(world);
		return;
	}
	switch (world->phase) {
	case PHASE_FAULTS: end_faults(world); return;
	case PHASE_HEALING: end_healing(world); return;
	case PHASE_SERVING: end_serving(world); return;
	case PHASE_SERVED:
		check_nothing_left(world);
		trial_alone(world);
		push_phase(world, TRIAL_US);
		break;
	case PHASE_ALONE:
		check_granted_all(world);
		check_nothing_left(world);
		trial_together(world);
		push_phase(world, TRIAL_US);
		break;
	case PHASE_TOGETHER:
		check_nothing_left(world);
		for (unsigned key = 0; key < world->config.keys; key++)
			order_check_queue_empty(world, key);
		trial_queue(world);
		push_phase(world, TRIAL_QUEUE_US);
		break;
	case PHASE_QUEUE:
		check_granted_all(world);
		check_nothing_left(world);
		order_check_queue_empty(world, world->trial_key);
		world->over = true;
		return;
	}
	world->phase++;
}

/* ---- the loop ---- */

static void take_snapshot(struct world *world, const struct event *event)
{
	if (world->nodes[event->node].up)
		node_snapshot(world, event->node);
	if (!world->healing)
		push_snapshot(world, event->node);
}

static bool happen(struct world *world, struct event *event)
{
	switch ((enum event_kind)event->kind) {
	case EVENT_CONNECT:
	case EVENT_CONNECTED:
	case EVENT_COMMANDS:
	case EVENT_ANSWERS:
	case EVENT_MESSAGE:
	case EVENT_RESET: net_arrive(world, event); return false;
	case EVENT_TIMER: return proc_timer(world, event);
	case EVENT_NOTICE: call_notice(world, event); break;
	case EVENT_CLIENT: client_step(world, event->a, event->serial); break;
	case EVENT_FAULT: fault_next(world); break;
	case EVENT_MEND: fault_mend(world, event); break;
	case EVENT_SNAPSHOT: take_snapshot(world, event); break;
	case EVENT_PHASE: next_phase(world); break;
	case EVENT_TRIAL: trial_step(world, event); break;
	case EVENT_WATCH: order_watch(world); break;
	}
	return true;
}

/* When the last redlockd had its last master voting again. */
static void note_recovery(struct world *world)
{
	if (world->recovered_at != 0 || !is_recovered(world))
		return;
	uint64_t took_us = world->now - world->healed_at;
	uint64_t beyond_us = took_us > quarantine_of(world) ? took_us - quarantine_of(world) : 0;
	world->recovered_at = world->now;
	if (beyond_us > world->figures->slowest_recovery_us)
		world->figures->slowest_recovery_us = beyond_us;
	TELL(world, "all masters vote again");
}

bool world_run(struct world *world, uint64_t seed, struct figures *figures, void (*tell_line)(const char *line))
{
	world->telling = tell_line != NULL;
	world->tell = tell_line;
	init(world, seed, figures);
	while (!world->over && !world->failed) {
		struct event *event = event_pop(world);
		assert(event);
		figures->events++;
		bool reply = event->kind == EVENT_ANSWERS;
		if (happen(world, event))
			event_free(world, event);
		if (reply && world->phase == PHASE_HEALING)
			note_recovery(world);
	}
	for (unsigned p = 0; p < world->config.procs; p++)
		if (world->procs[p].up)
			proc_end(world, p, false);
	figures->seeds++;
	figures->simulated_us += world->now;
	return !world->failed;
}
