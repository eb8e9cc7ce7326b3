/* A tiny world: two acquire operations with two tokens on three modelled masters, and every interleaving of it.
 *
 * A master is one key with an expiry. Between an operation and a master lies a wire: commands are carried out in the
 * order in which they were sent, their replies are delivered in that order, and nothing else is ordered. A reply may be
 * lost (the core is then told FAILED, the command is carried out all the same, sooner or later), and time may pass.
 *
 * world_search() walks depth-first through all that can happen, one event at a time, and passes over states in which it
 * has been before, so that all interleavings are covered without walking each one. It checks: never two operations with
 * valid leases; an OK has its key on a majority at that moment; at the end no key of a failed operation is left. */
#ifndef REDLOCK_WORLD_H
#define REDLOCK_WORLD_H

#include <stdlib.h>

#include "redlock_driver.h"

enum { WORLD_OPS = 2, WORLD_MASTERS = 3, WORLD_COMMANDS = 2 };
enum { WORLD_TTL_US = 100, WORLD_DRIFT_US = 10, WORLD_TIMEOUT_US = 60, WORLD_TICK_US = 55 };
enum { WORLD_SEEN_MAX = 1 << 22 };

/* From one operation to one master: commands [0, executed) were carried out, [0, replied) have been answered. */
struct world_wire {
	unsigned asked, executed, replied;
	enum redlock_script scripts[WORLD_COMMANDS];
	struct redlock_event replies[WORLD_COMMANDS];
};

struct world {
	uint64_t now_us;
	unsigned ticks, losses; /* how many may still come */
	struct redlock ops[WORLD_OPS];
	bool started[WORLD_OPS], done[WORLD_OPS], ok[WORLD_OPS], finished[WORLD_OPS];
	uint64_t valid_until_us[WORLD_OPS];
	struct world_wire wires[WORLD_OPS][WORLD_MASTERS];
	struct {
		unsigned token; /* 0: free; else the operation + 1 */
		uint64_t expires_us;
	} masters[WORLD_MASTERS];
};

struct world_search {
	bool alike;                 /* states that differ only in the order of the masters are one: six times fewer */
	uint64_t *seen;             /* a hash set of states */
	uint64_t states, ends;      /* how many were seen; how many of them were the end of it all */
	uint64_t ok[WORLD_OPS + 1]; /* ends with so many OK */
};

static inline void world_mix(uint64_t *hash, uint64_t value)
{
	*hash = (*hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	*hash ^= *hash >> 29;
}

static inline int world_compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* What one operation knows of a master, and what is under way between the two. Votes do not matter once it is done. */
static inline void world_mix_wire(uint64_t *hash, const struct world *world, unsigned o, unsigned m)
{
	const struct world_wire *wire = &world->wires[o][m];
	const struct redlock *op = &world->ops[o];

	world_mix(hash, wire->asked * 64 + wire->executed * 8 + wire->replied);
	if (world->done[o])
		return;
	world_mix(hash, (op->sent >> m & 1u) + 2 * (op->answered >> m & 1u));
	if ((op->answered >> m & 1) != 0)
		world_mix(hash, op->ballots[m].holder * 8 + op->ballots[m].vote);
	for (unsigned i = wire->replied; i < wire->executed; i++)
		world_mix(hash, wire->replies[i].holder * 8 + wire->replies[i].vote);
}

static inline uint64_t world_hash(const struct world *world, bool alike)
{
	uint64_t hash = 1, parts[WORLD_MASTERS];

	for (unsigned m = 0; m < WORLD_MASTERS; m++) {
		parts[m] = world->masters[m].token;
		world_mix(&parts[m], world->masters[m].expires_us);
		for (unsigned o = 0; o < WORLD_OPS; o++)
			world_mix_wire(&parts[m], world, o, m);
	}
	if (alike)
		qsort(parts, WORLD_MASTERS, sizeof parts[0], world_compare);
	for (unsigned m = 0; m < WORLD_MASTERS; m++)
		world_mix(&hash, parts[m]);
	world_mix(&hash, world->now_us);
	world_mix(&hash, world->ticks * 16 + world->losses);
	for (unsigned o = 0; o < WORLD_OPS; o++) {
		world_mix(&hash, (uint64_t)world->ops[o].state * 65536 + world->ops[o].outstanding);
		world_mix(&hash, (uint64_t)(world->started[o] + 2 * world->done[o] + 4 * world->ok[o] +
					    8 * world->finished[o]));
		world_mix(&hash, world->done[o] ? 0 : world->ops[o].start_us);
		world_mix(&hash, world->valid_until_us[o] > world->now_us ? world->valid_until_us[o] : 0);
	}
	return hash != 0 ? hash : 1;
}

static inline void world_init(struct world *world, unsigned ticks, unsigned losses)
{
	struct redlock_params params = {
		.kind = REDLOCK_ACQUIRE,
		.masters = WORLD_MASTERS,
		.tries = 1,
		.ttl_us = WORLD_TTL_US,
		.drift_us = WORLD_DRIFT_US,
		.master_timeout_us = WORLD_TIMEOUT_US,
	};

	memset(world, 0, sizeof *world);
	world->now_us = 1000;
	world->ticks = ticks;
	world->losses = losses;
	for (unsigned o = 0; o < WORLD_OPS; o++)
		redlock_init(&world->ops[o], &params, o);
}

static inline void world_grant(struct world *world, unsigned o, const struct redlock_result *result)
{
	unsigned keys = 0;

	for (unsigned m = 0; m < WORLD_MASTERS; m++)
		keys += world->masters[m].token == o + 1 &&
			world->masters[m].expires_us >= world->now_us + result->validity_us;
	MUST(keys > WORLD_MASTERS / 2, "OK, and %u of %u masters have the key for as long", keys, WORLD_MASTERS);
	MUST(!world->ok[1 - o] || world->valid_until_us[1 - o] <= world->now_us, "two holders at one time");
	world->ok[o] = true;
	world->valid_until_us[o] = world->now_us + result->validity_us;
}

static inline void world_step(struct world *world, unsigned o, struct redlock_event *event)
{
	struct redlock_output out;

	event->now_us = world->now_us;
	redlock_step(&world->ops[o], event, &out);
	for (unsigned m = 0; m < WORLD_MASTERS; m++) {
		struct world_wire *wire = &world->wires[o][m];

		if ((out.to >> m & 1) == 0)
			continue;
		MUST(wire->asked < WORLD_COMMANDS, "more than an acquire and a release");
		wire->scripts[wire->asked++] = out.script;
	}
	MUST(!out.done || !world->done[o], "done twice");
	world->done[o] = world->done[o] || out.done;
	world->finished[o] = out.finished;
	if (out.done && out.result.outcome == REDLOCK_OK)
		world_grant(world, o, &out.result);
}

/* The master carries out the next command of a wire. */
static inline void world_execute(struct world *world, unsigned o, unsigned m)
{
	struct world_wire *wire = &world->wires[o][m];
	enum redlock_script script = wire->scripts[wire->executed];
	struct redlock_event *reply = &wire->replies[wire->executed++];

	*reply = (struct redlock_event){.kind = REDLOCK_REPLY, .master = (uint8_t)m, .attempt = 1, .script = script};
	if (script == REDLOCK_SCRIPT_ACQUIRE && world->masters[m].token == 0) {
		world->masters[m].token = o + 1;
		world->masters[m].expires_us = world->now_us + WORLD_TTL_US;
		reply->vote = REDLOCK_VOTE_GRANTED;
		reply->ttl_us = WORLD_TTL_US;
	} else if (script == REDLOCK_SCRIPT_RELEASE && world->masters[m].token == o + 1) {
		world->masters[m].token = 0;
		world->masters[m].expires_us = 0;
		reply->vote = REDLOCK_VOTE_GRANTED;
	} else if (world->masters[m].token == 0) {
		reply->vote = REDLOCK_VOTE_GONE;
	} else {
		reply->vote = REDLOCK_VOTE_HELD;
		reply->holder = world->masters[m].token;
		reply->remaining_us = WORLD_TTL_US;
	}
}

static inline void world_deliver(struct world *world, unsigned o, unsigned m, bool lost)
{
	struct world_wire *wire = &world->wires[o][m];
	struct redlock_event event = {
		.kind = REDLOCK_REPLY, .master = (uint8_t)m, .attempt = 1, .script = wire->scripts[wire->replied]};

	if (!lost)
		event = wire->replies[wire->replied];
	else
		event.vote = REDLOCK_VOTE_FAILED;
	wire->replied++;
	world_step(world, o, &event);
}

/* Time passes; keys run out. */
static inline void world_tick(struct world *world)
{
	world->ticks--;
	world->now_us += WORLD_TICK_US;
	for (unsigned m = 0; m < WORLD_MASTERS; m++) {
		if (world->masters[m].expires_us > world->now_us)
			continue;
		world->masters[m].token = 0;
		world->masters[m].expires_us = 0;
	}
}

static inline void world_walk(struct world_search *search, const struct world *world);

/* Everything that can happen next between one operation and one master; returns how many such things there are. */
static inline unsigned world_walk_wire(struct world_search *search, const struct world *world, unsigned o, unsigned m)
{
	const struct world_wire *wire = &world->wires[o][m];
	unsigned moves = 0;
	struct world next;

	if (wire->executed < wire->asked) {
		next = *world;
		world_execute(&next, o, m);
		world_walk(search, &next);
		moves++;
	}
	if (wire->replied < wire->executed) {
		next = *world;
		world_deliver(&next, o, m, false);
		world_walk(search, &next);
		moves++;
	}
	if (wire->replied < wire->asked && world->losses > 0) {
		next = *world;
		next.losses--;
		world_deliver(&next, o, m, true);
		world_walk(search, &next);
	}
	return moves;
}

/* The operation's own events: its start, and its timer when it is due. */
static inline unsigned world_walk_op(struct world_search *search, const struct world *world, unsigned o)
{
	struct redlock_event event = {.kind = world->started[o] ? REDLOCK_TIMER : REDLOCK_START, .fence = 1000};
	struct world next = *world;

	if (world->started[o] && redlock_deadline_us(&world->ops[o]) > world->now_us)
		return 0;
	next.started[o] = true;
	world_step(&next, o, &event);
	world_walk(search, &next);
	return 1;
}

static inline void world_check_end(struct world_search *search, const struct world *world)
{
	search->ends++;
	search->ok[world->ok[0] + world->ok[1]]++;
	for (unsigned o = 0; o < WORLD_OPS; o++) {
		MUST(world->done[o] && world->finished[o], "everything is delivered and operation %u is not finished",
		     o);
		for (unsigned m = 0; m < WORLD_MASTERS && !world->ok[o]; m++)
			MUST(world->masters[m].token != o + 1, "a failed operation left its key on master %u", m);
	}
}

/* Notes a state; false if it is not new. */
static inline bool world_note(struct world_search *search, const struct world *world)
{
	uint64_t hash = world_hash(world, search->alike), at = hash % WORLD_SEEN_MAX;

	for (; search->seen[at] != 0; at = (at + 1) % WORLD_SEEN_MAX) {
		if (search->seen[at] == hash)
			return false;
	}
	search->seen[at] = hash;
	search->states++;
	MUST(search->states < WORLD_SEEN_MAX / 2, "more states than there is room for");
	return true;
}

static inline void world_walk(struct world_search *search, const struct world *world)
{
	unsigned moves = 0;

	if (!world_note(search, world))
		return;
	for (unsigned o = 0; o < WORLD_OPS; o++) {
		moves += world_walk_op(search, world, o);
		for (unsigned m = 0; m < WORLD_MASTERS; m++)
			moves += world_walk_wire(search, world, o, m);
	}
	if (world->ticks > 0) {
		struct world next = *world;

		world_tick(&next);
		world_walk(search, &next);
	}
	if (moves == 0)
		world_check_end(search, world);
}

/* Walks through all that can happen with so many ticks of the clock and so many lost replies. */
static inline struct world_search world_search(unsigned ticks, unsigned losses, bool alike)
{
	struct world_search search = {.alike = alike, .seen = calloc(WORLD_SEEN_MAX, sizeof(uint64_t))};
	struct world world;

	ck_assert_ptr_nonnull(search.seen);
	world_init(&world, ticks, losses);
	world_walk(&search, &world);
	free(search.seen);
	search.seen = NULL;
	return search;
}

#endif
