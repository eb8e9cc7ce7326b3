/* The trials after everything has healed: each resource is acquired alone, by all redlockd at once, and by a queue of
 * waiters. Grants are released again; random_run.c checks that all were granted, random_order.c in which order. */
#include <assert.h>

#include "random_world.h"

enum { TRIAL = CLIENTS + 1, WAITERS = 6, WAIT_US = 3000000 };

/* Steps of the trial of the queue. */
enum step { STEP_WAIT, STEP_TRY, STEP_LEAVE, STEP_GIVE_UP, STEP_RELEASE };

static struct op *begin(struct world *world, unsigned proc, enum redlock_kind kind, unsigned key, uint64_t token)
{
	struct op *op = op_begin(world, proc, kind, key, kind == REDLOCK_ACQUIRE ? world->config.max_ttl_us / MS : 0,
				 token);
	assert(op);
	op->client = TRIAL;
	return op;
}

static void acquire(struct world *world, unsigned proc, unsigned key)
{
	op_start(world, proc, begin(world, proc, REDLOCK_ACQUIRE, key, 0));
}

void trial_alone(struct world *world)
{
	TELL(world, "each resource is acquired once");
	for (unsigned key = 0; key < world->config.keys; key++)
		acquire(world, key % world->config.procs, key);
	world->tests_due = world->config.keys;
}

void trial_together(struct world *world)
{
	TELL(world, "each resource is acquired by all at once");
	for (unsigned key = 0; key < world->config.keys; key++)
		for (unsigned p = 0; p < world->config.procs; p++)
			acquire(world, p, key);
}

/* ---- the queue ---- */

static void step_after(struct world *world, enum step step, unsigned proc, uint32_t serial, uint64_t after_us)
{
	struct event *event = event_new(world, EVENT_TRIAL);
	event->a = (uint16_t)step;
	event->proc = (uint8_t)proc;
	event->serial = serial;
	event_push(world, event, world->now + after_us);
}

/* At any redlockd, within `most_us`. */
static void step_anywhere(struct world *world, enum step step, uint64_t most_us)
{
	unsigned proc = (unsigned)below(world, world->config.procs);
	step_after(world, step, proc, 0, 1 + below(world, most_us));
}

/* Some who wait until it is their turn, one who tries without waiting, and one who goes away again. */
void trial_queue(struct world *world)
{
	world->trial_key = (uint8_t)below(world, world->config.keys);
	world->tests_ok = 0;
	world->tests_due = WAITERS;
	TELL(world, "%u wait in the queue for r%u", WAITERS, world->trial_key);
	for (unsigned i = 0; i < WAITERS; i++)
		step_anywhere(world, STEP_WAIT, 15 * MS);
	step_anywhere(world, STEP_TRY, 100 * MS);
	step_anywhere(world, STEP_LEAVE, 15 * MS);
}

static void wait_in_queue(struct world *world, unsigned proc, bool leaves)
{
	struct op *op = begin(world, proc, REDLOCK_ACQUIRE, world->trial_key, 0);
	op->wanted = leaves; /* tells it from the others */
	op_wait(op, WAIT_US);
	if (leaves)
		step_after(world, STEP_GIVE_UP, proc, op->serial, 1 + below(world, 100 * MS));
	op_start(world, proc, op);
}

static void give_up(struct world *world, unsigned proc, uint32_t serial)
{
	for (unsigned i = 0; i < OPS; i++) {
		struct op *op = &world->procs[proc].ops[i];
		if (op->serial != serial || op->done)
			continue;
		TELL(world, "one of p%u gives up waiting", proc);
		op_cancel(world, proc, op);
	}
}

static void release(struct world *world, unsigned proc, uint16_t lease)
{
	check_released(world, lease);
	op_start(world, proc,
		 begin(world, proc, REDLOCK_RELEASE, world->leases[lease].key, world->leases[lease].token));
}

void trial_step(struct world *world, const struct event *event)
{
	switch ((enum step)event->a) {
	case STEP_WAIT: wait_in_queue(world, event->proc, false); break;
	case STEP_TRY: acquire(world, event->proc, world->trial_key); break;
	case STEP_LEAVE: wait_in_queue(world, event->proc, true); break;
	case STEP_GIVE_UP: give_up(world, event->proc, event->serial); break;
	case STEP_RELEASE: release(world, event->proc, (uint16_t)event->serial); break;
	}
}

void trial_answer(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result)
{
	if (op->kind != REDLOCK_ACQUIRE || result->outcome != REDLOCK_OK)
		return;
	uint16_t lease = world->trails[op->token].lease;
	if (world->phase != PHASE_QUEUE) {
		world->tests_ok++;
		release(world, proc, lease);
		return;
	}
	world->tests_ok += op->waits && !op->wanted;
	step_after(world, STEP_RELEASE, proc, lease, 1 + below(world, 10 * MS));
}
