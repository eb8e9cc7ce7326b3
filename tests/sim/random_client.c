/* Clients of the simulator: they acquire, extend, release, keep a lease for longer than it is valid, die, stop waiting,
 * and extend through one redlockd what they acquired through another. random_check.c compares what they know of their
 * leases with the promise. */
#include <assert.h>

#include "random_world.h"

static void step_after(struct world *world, unsigned index, uint64_t after_us)
{
	struct client *client = &world->clients[index];
	struct event *event = event_new(world, EVENT_CLIENT);
	event->a = (uint16_t)index;
	event->serial = ++client->serial;
	event_push(world, event, world->now + after_us);
}

static void think(struct world *world, unsigned index, bool hasty)
{
	world->clients[index].state = CLIENT_THINKS;
	if (hasty && (world->config.to_the_end || one_of(world, 2)))
		step_after(world, index, spread(world, 200, 64 * MS));
	else
		step_after(world, index, world->config.think_us / 4 + below(world, world->config.think_us));
}

void clients_init(struct world *world)
{
	for (unsigned i = 0; i < world->config.clients; i++) {
		world->clients[i] = (struct client){.lease = NONE};
		step_after(world, i, 10 * MS + below(world, 200 * MS));
	}
}

/* Some redlockd that is there; PROCS: none. */
static unsigned choose_proc(struct world *world, unsigned first)
{
	for (unsigned i = 0; i < world->config.procs; i++) {
		unsigned proc = (first + i) % world->config.procs;
		if (world->procs[proc].up && !world->procs[proc].paused)
			return proc;
	}
	return PROCS;
}

static uint64_t choose_ttl_ms(struct world *world)
{
	uint64_t longest_ms = world->config.max_ttl_us / MS;
	return one_of(world, 2) ? longest_ms : spread(world, 100, longest_ms);
}

/* Calls a redlockd; false if there is none. */
static struct op *submit(struct world *world, unsigned index, enum redlock_kind kind, uint64_t ttl_ms,
			 unsigned *ret_proc)
{
	struct client *client = &world->clients[index];
	unsigned any = (unsigned)below(world, world->config.procs);
	/* At the end nothing may be left by a release that overtakes the last of its acquisition. */
	unsigned proc = choose_proc(world, world->healing && kind == REDLOCK_RELEASE ? world->leases[client->lease].proc
										     : any);
	uint64_t token = kind == REDLOCK_ACQUIRE ? 0 : world->leases[client->lease].token;
	struct op *op = proc < PROCS ? op_begin(world, proc, kind, client->key, ttl_ms, token) : NULL;
	if (!op)
		return NULL;
	op->client = (uint8_t)index;
	op->wanted = true;
	op->lease = kind == REDLOCK_ACQUIRE ? NONE : client->lease;
	client->proc = (uint8_t)proc;
	client->op = (uint16_t)(op - world->procs[proc].ops);
	client->op_serial = op->serial;
	client->serial++;
	*ret_proc = proc;
	return op;
}

static void acquire(struct world *world, unsigned index)
{
	struct client *client = &world->clients[index];
	unsigned proc;
	client->key = (uint8_t)below(world, world->config.keys);
	struct op *op = submit(world, index, REDLOCK_ACQUIRE, choose_ttl_ms(world), &proc);
	if (!op) {
		think(world, index, false);
		return;
	}
	client->state = CLIENT_ACQUIRES;
	uint64_t wait_us = below(world, 8) < world->config.waits ? spread(world, 10 * MS, world->config.wait_us) : 0;
	if (wait_us > 0)
		op_wait(op, wait_us);
	if (one_of(world, wait_us > 0 ? 5 : 16)) /* it goes away, sooner or later */
		step_after(world, index, spread(world, 100, wait_us > 60 * MS ? wait_us : 60 * MS));
	op_start(world, proc, op);
}

/* Nobody waits for the answer to this one. */
static void extend_too(struct world *world, uint16_t lease)
{
	unsigned proc = choose_proc(world, (unsigned)below(world, world->config.procs));
	struct op *op = proc < PROCS ? op_begin(world, proc, REDLOCK_EXTEND, world->leases[lease].key,
						choose_ttl_ms(world), world->leases[lease].token)
				     : NULL;
	if (!op)
		return;
	op->lease = lease;
	op_start(world, proc, op);
}

static void extend(struct world *world, unsigned index)
{
	struct client *client = &world->clients[index];
	unsigned proc;
	client->extensions--;
	if (one_of(world, 6))
		extend_too(world, client->lease);
	struct op *op = submit(world, index, REDLOCK_EXTEND, choose_ttl_ms(world), &proc);
	if (!op) {
		think(world, index, false);
		return;
	}
	client->state = CLIENT_EXTENDS;
	op_start(world, proc, op);
}

static void release(struct world *world, unsigned index)
{
	struct client *client = &world->clients[index];
	unsigned proc;
	check_released(world, client->lease);
	struct op *op = submit(world, index, REDLOCK_RELEASE, 0, &proc);
	if (!op) {
		think(world, index, false);
		return;
	}
	client->state = CLIENT_RELEASES;
	op_start(world, proc, op);
}

/* It has the lock, or had it: for a moment, until shortly before or after its end, or it never comes back. */
static void hold(struct world *world, unsigned index)
{
	struct client *client = &world->clients[index];
	const struct lease *lease = &world->leases[client->lease];
	uint64_t left_us = lease->until > world->now ? lease->until - world->now : 1;
	client->state = CLIENT_HOLDS;
	if (world->healing) {
		step_after(world, index, 1 + below(world, 50 * MS));
		return;
	}
	switch (world->config.to_the_end ? 1 : below(world, 8)) {
	case 0: think(world, index, false); break;
	case 1: step_after(world, index, left_us + spread(world, 1, 300 * MS)); break;
	case 2: step_after(world, index, left_us); break;
	default:
		step_after(world, index,
			   world->config.waits >= 4 ? spread(world, 100, 100 + left_us) : 1 + below(world, left_us));
		break;
	}
}

void client_step(struct world *world, unsigned index, uint32_t serial)
{
	struct client *client = &world->clients[index];
	if (client->serial != serial)
		return;
	switch (client->state) {
	case CLIENT_THINKS:
		if (!world->healing)
			acquire(world, index);
		break;
	case CLIENT_ACQUIRES: {
		struct op *op = &world->procs[client->proc].ops[client->op];
		bool paused = world->procs[client->proc].paused;
		if (op->serial == client->op_serial && !op->done && !paused) {
			TELL(world, "client %u: gives up waiting", index);
			op_cancel(world, client->proc, op);
			think(world, index, false);
		}
		break;
	}
	case CLIENT_HOLDS:
		if (client->extensions > 0 && !world->healing)
			extend(world, index);
		else
			release(world, index);
		break;
	case CLIENT_EXTENDS:
	case CLIENT_RELEASES: break;
	}
}

void client_answer(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result)
{
	(void)proc;
	if (op->client > CLIENTS) {
		trial_answer(world, proc, op, result);
		return;
	}
	if (!op->wanted)
		return;
	unsigned index = op->client;
	struct client *client = &world->clients[index];
	assert(client->op_serial == op->serial);
	if (op->kind == REDLOCK_ACQUIRE && result->outcome == REDLOCK_OK) {
		client->lease = world->trails[op->token].lease;
		client->extensions = one_of(world, 2) ? (uint8_t)below(world, 4) : 0;
		hold(world, index);
	} else if (op->kind == REDLOCK_EXTEND && (result->outcome == REDLOCK_OK || one_of(world, 2))) {
		hold(world, index);
	} else {
		think(world, index, result->outcome == REDLOCK_LOCKED || result->outcome == REDLOCK_SPLIT);
	}
}

void client_forsaken(struct world *world, unsigned index)
{
	if (index < CLIENTS)
		think(world, index, false);
}

bool clients_busy(const struct world *world)
{
	for (unsigned i = 0; i < world->config.clients; i++)
		if (world->clients[i].state != CLIENT_THINKS)
			return true;
	return false;
}

/* The second phase: what is held is given back, nothing new is begun. */
void client_retire(struct world *world)
{
	for (unsigned i = 0; i < world->config.clients; i++)
		if (world->clients[i].state == CLIENT_HOLDS)
			step_after(world, i, 1 + below(world, 50 * MS));
}
