/* SPDX-License-Identifier: MIT */
/* The trials after everything has healed: each resource is acquired alone, by all redlockd at once, and by a queue of
 * waiters. Grants are released again; daemon_run.c checks that all were granted, daemon_order.c in which order. */
#include <assert.h>

#include "daemon_world.h"

enum { TRIAL = CLIENTS + 1, WAITERS = 6, WAIT_US = 3000000 };

/* Steps of the trial of the queue. */
enum step { STEP_WAIT, STEP_TRY, STEP_LEAVE, STEP_GIVE_UP, STEP_RELEASE };

static struct call *begin(struct world *world, unsigned proc, enum lease_operation operation, uint32_t names,
			  uint16_t lease)
{
	struct call *call = call_begin(world, proc, operation, names,
				       operation == LEASE_ACQUIRE ? world->config.max_ttl_us / MS : 0, lease);
	assert(call);
	call->client = TRIAL;
	return call;
}

static void acquire(struct world *world, unsigned proc, unsigned key)
{
	call_start(world, begin(world, proc, LEASE_ACQUIRE, UINT32_C(1) << key, NONE));
}

void trial_alone(struct world *world)
{
	TELL(world, "each resource is acquired once");
	for (unsigned key = 0; key < world->config.keys; key++)
		acquire(world, key % world->config.procs, key);
	world->tests_ok = 0;
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
	uint32_t names = UINT32_C(1) << world->trial_key;
	if (world->config.sets != 0 && one_of(world, 2)) /* with any other ones */
		names |= (uint32_t)below(world, UINT64_C(1) << world->config.keys);
	struct call *call = begin(world, proc, LEASE_ACQUIRE, names, NONE);
	call->plain = !leaves; /* tells it from the others */
	call->request.wait_ms = WAIT_US / MS;
	if (leaves)
		step_after(world, STEP_GIVE_UP, proc, call->serial, 1 + below(world, 100 * MS));
	call_start(world, call);
}

static void give_up(struct world *world, uint32_t serial)
{
	for (unsigned i = 0; i < CALLS; i++) {
		struct call *call = &world->calls[i];
		if (!call->used || call->serial != serial || !call->op)
			continue;
		TELL(world, "one of p%u gives up waiting", call->proc);
		call_leave(world, call);
	}
}

static void release(struct world *world, unsigned proc, uint16_t lease)
{
	check_released(world, lease);
	call_start(world, begin(world, proc, LEASE_RELEASE, world->leases[lease].names, lease));
}

void trial_step(struct world *world, const struct event *event)
{
	switch ((enum step)event->a) {
	case STEP_WAIT: wait_in_queue(world, event->proc, false); break;
	case STEP_TRY: acquire(world, event->proc, world->trial_key); break;
	case STEP_LEAVE: wait_in_queue(world, event->proc, true); break;
	case STEP_GIVE_UP: give_up(world, event->serial); break;
	case STEP_RELEASE: release(world, event->proc, (uint16_t)event->serial); break;
	}
}

/* From within a round of the process: the release comes a moment later. */
void trial_answer(struct world *world, struct call *call, const struct lease_answer *answer)
{
	if (call->operation != LEASE_ACQUIRE || answer->status != LEASE_OK)
		return;
	bool queue = world->phase == PHASE_QUEUE;
	world->tests_ok += !queue || call->plain;
	step_after(world, STEP_RELEASE, call->proc, call->lease, queue ? 1 + below(world, 10 * MS) : 1);
}
