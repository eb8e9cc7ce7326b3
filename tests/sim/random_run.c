/* One history: its beginning, its loop, and its end.
 *
 *   faults     clients work, the nemesis works; what random_check.c checks holds throughout
 *   healing    nothing more goes wrong, clients give back what they hold, bars run out
 *   tests      RECOVERY_US after the healing each redlockd has each master voting, and no key is left. Then each resource is acquired, once
 *              alone, once by all redlockd at once; what is not given as a lease must have left nothing behind */
#include <assert.h>
#include <string.h>

#include "random_world.h"

enum { TESTER = CLIENTS + 1, FIRST_FAULT_US = 1500000, SNAPSHOT_US = 600000, TEST_US = 250000, CALLS_MIN = 200, MORE_US = 500000 };

/* From the healing on, beyond the longest lease + its drift + 2 s: a connection is tried again within 1 s, or the greeting of the
 * last attempt must first time out (1 s); the next heartbeat (1 s) may find what bars; those who remember too little are given
 * 2 s; and a redlockd that waited sees with its next heartbeat (1 s) that another one has certified. */
#define SLACK_US (4000 * MS)

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
	proc->clock = (struct clock){ .base = 10 * SECOND + below(world, 1000 * SECOND), .ppm = ppm };
	proc->wall_us = (int64_t)(DAY_BEGAN_US + below(world, 20 * MS) - proc->clock.base);
	bool ahead = index == 0 && (world->config.profile == PROFILE_RACE || world->config.profile == PROFILE_FLIGHT);
	proc->wall_ahead_us = ahead ? (int64_t)(7200 * SECOND) : 0;
	proc->wall_us += proc->wall_ahead_us;
	world->clocks_wrong |= ahead;
	proc->run = 0;
	proc->serial = 0;
	proc_start(world, index, world->config.bootstrap);
}

static void init(struct world *world, uint64_t seed, struct figures *figures)
{
	world->random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	world->now = 0;
	world->hash = UINT64_C(0xcbf29ce484222325);
	world->figures = figures;
	world->healing = world->late_jump = world->testing = world->over = world->clocks_wrong = world->failed = false;
	world->phase = 0;
	world->calls = 0;
	world->healed_at = world->recovered_at = world->clocked_at = 0;
	world->next_run_id = 0;
	world->next_serial = 0;
	world->slow = 1;
	world->tests_ok = 0;
	queue_init(world);
	check_init(world);
	config_draw(world);
	net_init(world);
	for (unsigned i = 0; i < world->config.nodes; i++) {
		node_init(world, i);
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
static uint64_t bar_of(const struct world *world)
{
	return world->config.max_ttl_us + world->config.max_ttl_us / 100 + world->config.margin_us;
}

static bool is_recovered(const struct world *world)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		for (unsigned i = 0; i < world->config.nodes; i++)
			if (!guard_may_vote(&world->procs[p].guard, i) || world->procs[p].links[i].hung)
				return false;
	return true;
}

static void check_voting(struct world *world)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		for (unsigned i = 0; i < world->config.nodes; i++)
			if (!guard_may_vote(&world->procs[p].guard, i) || world->procs[p].links[i].hung)
				fail(world, "progress: p%u has master %u not voting (state %d, %s) %llu ms after the healing", p, i,
				     (int)world->procs[p].guard.masters[i].state, guard_reason_name(world->procs[p].guard.masters[i].reason),
				     (unsigned long long)((world->now - world->healed_at) / MS));
}

static void test_acquire(struct world *world, unsigned proc, unsigned key)
{
	struct op *op = op_begin(world, proc, REDLOCK_ACQUIRE, key, world->config.max_ttl_us / MS, 0);
	assert(op);
	op->client = TESTER;
	op_start(world, proc, op);
}

/* An answer to one of our own: what is granted is given back at once. */
void test_answer(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result)
{
	if (op->kind != REDLOCK_ACQUIRE || result->outcome != REDLOCK_OK)
		return;
	uint64_t token = op->token;
	unsigned key = op->key;
	world->tests_ok++;
	check_released(world, world->trails[token].lease);
	struct op *release = op_begin(world, proc, REDLOCK_RELEASE, key, 0, token);
	assert(release);
	release->client = TESTER;
	op_start(world, proc, release);
}

static void test_alone(struct world *world)
{
	TELL(world, "each resource is acquired once");
	for (unsigned key = 0; key < world->config.keys; key++)
		test_acquire(world, key % world->config.procs, key);
}

static void test_together(struct world *world)
{
	TELL(world, "each resource is acquired by all at once");
	for (unsigned key = 0; key < world->config.keys; key++)
		for (unsigned p = 0; p < world->config.procs; p++)
			test_acquire(world, p, key);
}

static void next_phase(struct world *world)
{
	const struct config *config = &world->config;
	switch (world->phase++) {
	case 0:
		if (world->calls < CALLS_MIN) {
			world->phase--;
			push_phase(world, MORE_US);
			return;
		}
		fault_heal(world);
		push_phase(world, bar_of(world) + SLACK_US);
		return;
	case 1:
		if (!is_recovered(world) && world->late_jump) { /* its bar began late: once more as long */
			world->late_jump = false;
			world->figures->late_jumps++;
			world->phase--;
			push_phase(world, bar_of(world) + SLACK_US);
			return;
		}
		check_voting(world);
		check_nothing_left(world);
		world->testing = true;
		test_alone(world);
		break;
	case 2:
		if (world->tests_ok != config->keys)
			fail(world, "progress: %u of %u resources could be acquired", world->tests_ok, config->keys);
		check_nothing_left(world);
		test_together(world);
		break;
	default:
		check_nothing_left(world);
		world->over = true;
		return;
	}
	push_phase(world, TEST_US);
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
	case EVENT_COMMAND:
	case EVENT_REPLY: net_arrive(world, event); return false;
	case EVENT_OP_TIMER:
	case EVENT_CONNECT:
	case EVENT_GREETING:
	case EVENT_HEARTBEAT:
	case EVENT_GUARD: return proc_timer(world, event);
	case EVENT_CLIENT: client_step(world, event->a, event->serial); break;
	case EVENT_FAULT: fault_next(world); break;
	case EVENT_MEND: fault_mend(world, event); break;
	case EVENT_SNAPSHOT: take_snapshot(world, event); break;
	case EVENT_PHASE: next_phase(world); break;
	}
	return true;
}

/* When the last redlockd had its last master voting again. */
static void note_recovery(struct world *world)
{
	if (world->recovered_at != 0 || !is_recovered(world))
		return;
	uint64_t took_us = world->now - world->healed_at;
	uint64_t beyond_us = took_us > bar_of(world) ? took_us - bar_of(world) : 0;
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
		bool reply = event->kind == EVENT_REPLY;
		if (happen(world, event))
			event_free(world, event);
		if (reply && world->phase == 1)
			note_recovery(world);
	}
	if (world->used_events > figures->fullest_events)
		figures->fullest_events = world->used_events;
	figures->seeds++;
	figures->simulated_us += world->now;
	return !world->failed;
}
