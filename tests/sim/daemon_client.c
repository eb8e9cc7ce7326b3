/* SPDX-License-Identifier: MIT */
/* Clients of the simulator: they acquire, wait, hold, extend, release, keep a lease for longer than it is valid, leave
 * in the middle of a request, die, and extend through one redlockd what they acquired through another. daemon_check.c
 * compares what they know of their leases with the promise. */
#include <assert.h>

#include "daemon_world.h"

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
	world->clients[index].call = NONE;
	if (hasty && (world->config.to_the_end || one_of(world, 2)))
		step_after(world, index, spread(world, 200, 64 * MS));
	else
		step_after(world, index, world->config.think_us / 4 + below(world, world->config.think_us));
}

void clients_init(struct world *world)
{
	for (unsigned i = 0; i < world->config.clients; i++) {
		world->clients[i] = (struct client){.lease = NONE, .call = NONE};
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
	if (world->config.profile == PROFILE_ROLLING)
		return longest_ms;
	return one_of(world, 2) ? longest_ms : spread(world, 100, longest_ms);
}

/* A request to a redlockd, after which the client is in `state`; NULL: there is none, and it thinks. */
static struct call *submit(struct world *world, unsigned index, enum lease_operation operation, uint64_t ttl_ms,
			   enum client_state state)
{
	struct client *client = &world->clients[index];
	unsigned any = world->current < PROCS ? world->current : (unsigned)below(world, world->config.procs);
	bool acquires = operation == LEASE_ACQUIRE;
	/* At the end nothing may be left by a release that overtakes the last of its acquisition. */
	unsigned proc = choose_proc(
		world, world->healing && operation == LEASE_RELEASE ? world->leases[client->lease].proc : any);
	struct call *call = proc < PROCS ? call_begin(world, proc, operation, client->names, ttl_ms,
						      acquires ? NONE : client->lease)
					 : NULL;
	if (!call) {
		think(world, index, false);
		return NULL;
	}
	call->client = (uint8_t)index;
	client->state = state;
	client->call = (uint16_t)(call - world->calls);
	client->call_serial = call->serial;
	client->serial++;
	return call;
}

/* A new key; or the same request again, its own or, as a second connection of the same caller, another client's. */
static uint64_t choose_key(struct world *world, struct client *client)
{
	const struct client *other = &world->clients[below(world, world->config.clients)];
	if (below(world, 8) >= world->config.keyed)
		return 0;
	bool again = other->asked != 0 && !one_of(world, 3);
	client->asked = again ? other->asked : redlock_random(&world->random) | 1;
	client->names = again ? other->names : client->names;
	return client->asked;
}

/* All of the resources but for one, or all, instead of one. At a table: those on both sides. */
static void choose_set(struct world *world, struct client *client)
{
	unsigned place = (unsigned)(client - world->clients), next = (place + 1) % world->config.keys;
	if (world->config.profile == PROFILE_TABLE) {
		client->names = UINT32_C(1) << place | UINT32_C(1) << next;
		return;
	}
	uint32_t all = (UINT32_C(1) << world->config.keys) - 1, left_out = client->names;
	if (below(world, 8) < world->config.sets)
		client->names = world->config.keys > 2 && !one_of(world, 4) ? all & ~left_out : all;
}

/* Not all name the same number of slots. */
static void choose_mode(struct world *world, struct client *client)
{
	enum { SLOTS_MAX = 4 };
	client->mode = LEASE_EXCLUSIVE;
	if (world->config.modes == 0 || below(world, 8) >= world->config.modes)
		return;
	client->mode = is_set(client->names) || one_of(world, 2) ? LEASE_SHARED : LEASE_SLOT;
	client->slots = (uint16_t)(one_of(world, 3) ? 1 + below(world, SLOTS_MAX) : 3);
}

static void acquire(struct world *world, unsigned index)
{
	struct client *client = &world->clients[index];
	client->names = UINT32_C(1) << (world->config.hasty ? index : below(world, world->config.keys));
	if (world->config.sets != 0)
		choose_set(world, client);
	uint64_t key = world->config.keyed != 0 ? choose_key(world, client) : 0;
	choose_mode(world, client);
	struct call *call = submit(world, index, LEASE_ACQUIRE, choose_ttl_ms(world), CLIENT_ACQUIRES);
	if (!call)
		return;
	uint64_t wait_us = below(world, 8) < world->config.waits ? spread(world, 10 * MS, world->config.wait_us) : 0;
	call->request.wait_ms = (uint32_t)(wait_us / MS);
	call->request.key = key;
	call->request.mode = client->mode;
	call->request.slots = client->mode == LEASE_SLOT ? client->slots : 0;
	if (key != 0 && client->mode != LEASE_EXCLUSIVE) /* as in api/calls/decode.c */
		call->request.key ^= (uint64_t)call->request.slots + 1;
	call->held = call->request.hold = below(world, 8) < world->config.holds;
	if (one_of(world, wait_us > 0 ? 5 : 16)) /* it goes away, sooner or later */
		step_after(world, index, spread(world, 100, wait_us > 60 * MS ? wait_us : 60 * MS));
	call_start(world, call);
}

/* Nobody waits for the answer to this one. */
static void extend_too(struct world *world, uint16_t lease)
{
	unsigned proc = choose_proc(world, (unsigned)below(world, world->config.procs));
	struct call *call = proc < PROCS ? call_begin(world, proc, LEASE_EXTEND, world->leases[lease].names,
						      choose_ttl_ms(world), lease)
					 : NULL;
	if (call)
		call_start(world, call);
}

static void extend(struct world *world, unsigned index)
{
	struct client *client = &world->clients[index];
	client->extensions--;
	if (one_of(world, 6))
		extend_too(world, client->lease);
	struct call *call = submit(world, index, LEASE_EXTEND, choose_ttl_ms(world), CLIENT_EXTENDS);
	if (call)
		call_start(world, call);
}

static void release(struct world *world, unsigned index)
{
	check_released(world, world->clients[index].lease);
	struct call *call = submit(world, index, LEASE_RELEASE, 0, CLIENT_RELEASES);
	if (!call)
		return;
	kept_choose(world, call);
	call_start(world, call);
}

/* ROLLING: a lease is lost. It must not be if it was renewed between its grant, by a majority alone perhaps, and the
 * last failure of a master. */
static void lose(struct world *world, unsigned index, const struct lease *lease)
{
	if (lease->ok + world->config.max_ttl_us / 2 <= world->rolled_at)
		fail(world, "renewed: token %llu is lost, while masters fail one at a time",
		     (unsigned long long)lease->token);
	think(world, index, false);
}

/* ROLLING: the lease is renewed when a third of it is over; soon again, where that failed. */
static void renew(struct world *world, unsigned index, bool failed)
{
	struct client *client = &world->clients[index];
	const struct lease *lease = &world->leases[client->lease];
	if (lease->until <= world->now) {
		lose(world, index, lease);
		return;
	}
	client->state = CLIENT_HOLDS;
	client->call = NONE;
	client->extensions = 1;
	world->figures->renewed++;
	step_after(world, index, failed ? 5 * MS : world->config.max_ttl_us / 3);
}

/* It has the lock, or had it: for a moment, until shortly before or after its end, or it never comes back. */
static void hold(struct world *world, unsigned index)
{
	struct client *client = &world->clients[index];
	const struct lease *lease = &world->leases[client->lease];
	uint64_t left_us = lease->until > world->now ? lease->until - world->now : 1;
	if (world->config.profile == PROFILE_ROLLING && !world->healing) {
		renew(world, index, false);
		return;
	}
	client->state = CLIENT_HOLDS;
	client->call = NONE;
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

/* Somebody looks at the locks, or takes one away. */
static void operate(struct world *world)
{
	unsigned proc = choose_proc(world, (unsigned)below(world, world->config.procs));
	unsigned key = (unsigned)below(world, world->config.keys);
	uint64_t what = below(world, 6);
	enum lease_operation operation = what == 0 ? LEASE_FORCE : LEASE_INSPECT;
	struct call *call = proc < PROCS ? call_begin(world, proc, operation, UINT32_C(1) << key, 0, NONE) : NULL;
	if (call && what == 1)
		call_list(world, call);
	else if (call)
		call_start(world, call);
}

/* Several in one round of a redlockd's loop: they leave for the masters in one command. */
static void acquire_together(struct world *world, unsigned index)
{
	unsigned proc = choose_proc(world, (unsigned)below(world, world->config.procs));
	if (proc == PROCS)
		return acquire(world, index);
	proc_enter(world, proc);
	for (unsigned i = 0; i < world->config.clients; i++)
		if (i == index || (world->clients[i].state == CLIENT_THINKS && one_of(world, 2)))
			acquire(world, i);
	proc_leave(world);
}

static struct call *present_call(struct world *world, const struct client *client)
{
	struct call *call = client->call != NONE ? &world->calls[client->call] : NULL;
	return call && call->used && call->serial == client->call_serial ? call : NULL;
}

static void leave(struct world *world, unsigned index)
{
	struct call *call = present_call(world, &world->clients[index]);
	if (!call)
		return;
	TELL(world, "client %u: leaves", index);
	call_leave(world, call);
	think(world, index, false);
}

void client_step(struct world *world, unsigned index, uint32_t serial)
{
	struct client *client = &world->clients[index];
	if (client->serial != serial)
		return;
	switch (client->state) {
	case CLIENT_THINKS:
		kept_try(world, client->lease);
		if (!world->healing && world->config.operators && one_of(world, 4))
			operate(world);
		if (!world->healing && one_of(world, 6))
			acquire_together(world, index);
		else if (!world->healing)
			acquire(world, index);
		break;
	case CLIENT_ACQUIRES:
	case CLIENT_STREAMS: leave(world, index); break;
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

static void stream(struct world *world, unsigned index)
{
	world->clients[index].state = CLIENT_STREAMS;
	if (world->config.profile != PROFILE_ROLLING || world->healing)
		step_after(world, index, world->healing ? 1 + below(world, 50 * MS) : spread(world, MS, 3 * SECOND));
}

/* ROLLING: an extension was not granted. */
static void not_renewed(struct world *world, const struct call *call, enum lease_status status)
{
	if (status == LEASE_NOT_OWNER || status == LEASE_EXPIRED)
		lose(world, call->client, &world->leases[call->lease]);
	else
		renew(world, call->client, true);
}

void client_answer(struct world *world, struct call *call, const struct lease_answer *answer)
{
	if (call->client > CLIENTS) {
		trial_answer(world, call, answer);
		return;
	}
	if (call->client == CLIENTS)
		return;
	unsigned index = call->client;
	struct client *client = &world->clients[index];
	assert(client->call_serial == call->serial);
	if (call->operation == LEASE_ACQUIRE && answer->status == LEASE_OK) {
		client->lease = call->lease;
		client->extensions = one_of(world, 2) ? (uint8_t)below(world, 4) : 0;
		if (call->hold)
			stream(world, index);
		else
			hold(world, index);
	} else if (call->operation == LEASE_EXTEND && answer->status != LEASE_OK && !world->healing &&
		   world->config.profile == PROFILE_ROLLING) {
		not_renewed(world, call, answer->status);
	} else if (call->operation == LEASE_EXTEND && (answer->status == LEASE_OK || one_of(world, 2))) {
		hold(world, index);
	} else {
		think(world, index, answer->status == LEASE_LOCKED || answer->status == LEASE_SPLIT_VOTE);
	}
}

void client_streamed(struct world *world, struct call *call, bool goes_on)
{
	if (call->client >= CLIENTS)
		return;
	if (goes_on)
		hold(world, call->client);
	else if (world->config.profile == PROFILE_ROLLING && !world->healing)
		lose(world, call->client, &world->leases[call->lease]);
	else
		think(world, call->client, true);
}

void client_forsaken(struct world *world, struct call *call)
{
	if (call->client < CLIENTS)
		think(world, call->client, false);
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
		if (world->clients[i].state == CLIENT_HOLDS || world->clients[i].state == CLIENT_STREAMS)
			step_after(world, i, 1 + below(world, 50 * MS));
}
