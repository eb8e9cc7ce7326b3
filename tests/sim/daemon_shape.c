/* SPDX-License-Identifier: MIT */
/* The random shape of a history: how many masters and clients, how fast a network, how long leases, which faults.
 *
 * Each history has a few kinds of faults, since all of them at once would hide one another. About one history in six
 * is made for a situation that is rare otherwise (enum profile). */
#include <string.h>

#include "daemon_world.h"

static void random_network(struct world *world, struct config *config)
{
	static const uint32_t delays[] = {20, 100, 500, 2000}, jitters[] = {50, 300, 1500, 8000};
	config->delay_us = delays[below(world, 4)];
	config->jitter_us = jitters[below(world, 4)];
	config->straggler = one_of(world, 2) ? 8 : 50;
	config->straggler_us = (uint32_t)(one_of(world, 2) ? 2 * config->timeout_us : config->timeout_us / 2);
}

const char *fault_name(enum fault fault)
{
	static const char *const names[] = {FAULTS_ALL(NAME_OF)};
	return names[fault];
}

#define FAULT(name) (1U << FAULT_##name)

/* Faults of all kinds, a few in each history. */
static void random_any(struct world *world, struct config *config)
{
	static const uint8_t nodes[] = {1, 3, 3, 3, 3, 3, 3, 5};
	static const uint32_t ttls_ms[] = {300, 300, 500, 500, 500, 1000, 1000, 4000},
			      timeouts_ms[] = {50, 50, 100, 200};
	static const uint32_t waits[] = {0, 1, 2, 4, 6, 8, 8, 8};
	static const uint64_t waits_us[] = {300 * MS,   SECOND,     SECOND,     3 * SECOND,
					    3 * SECOND, 3 * SECOND, 6 * SECOND, 12 * SECOND};
	config->nodes = nodes[below(world, 8)];
	config->max_ttl_us = ttls_ms[below(world, 8)] * MS;
	config->timeout_us = timeouts_ms[below(world, 4)] * MS;
	config->waits = waits[below(world, 8)];
	config->wait_us = waits_us[below(world, 8)];
	config->tries = (uint32_t)(1 + below(world, 3));
	config->retry_min_us = (uint32_t)(one_of(world, 2) ? MS : 20 * MS);
	if (config->waits > 0 && config->wait_us > SECOND)
		config->retry_min_us = 20 * MS; /* those who wait and find no quorum try again and again */
	config->think_us = (uint32_t)((100 + below(world, 350)) * MS);
	config->fault_every_us = (uint32_t)((80 + below(world, 1100)) * MS);
	config->burst = (uint32_t)below(world, 6);
	config->fault_time_us = 3 * SECOND + below(world, 5 * SECOND);
	config->faults = (uint32_t)(random_u64(world) & random_u64(world)) &
			 (FAULT(FLIGHT) - 1); /* that one needs three masters */
	config->victims = config->nodes;
	if (!one_of(world, 3)) /* the same few each time: the others go on, and there is a majority mostly */
		config->victims = (uint8_t)(config->nodes / 2 + (config->nodes == 1));
	random_network(world, config);
}

static void make_race(struct world *world, struct config *config)
{
	config->nodes = config->victims = 3;
	config->keys = 1;
	config->clients = 8;
	config->faults = FAULT(DELETE);
	config->burst = 7;
	config->fault_every_us = 10 * MS;
	config->fault_time_us = 700 * MS + below(world, 700 * MS);
	config->think_us = 20 * MS;
	config->jitter_us = 8000;
	config->waits = (uint32_t)below(world, 2); /* who waits does not race */
}

static void make_flight(struct world *world, struct config *config)
{
	config->nodes = config->victims = 3;
	config->keys = 3;
	config->clients = 5;
	config->one_bucket = false;
	config->witnesses = one_of(world, 2);
	config->max_ttl_us = config->witnesses ? 2 * SECOND : 300 * MS;
	config->timeout_us = 200 * MS;
	config->fault_every_us = 100 * SECOND; /* one fault: a second one could excuse what follows from it */
	config->burst = 0;
	config->waits = (uint32_t)below(world, 2);
	config->faults = FAULT(FLIGHT);
	config->delay_us = 20; /* others read all fences before the late vote */
	config->jitter_us = (uint32_t)(50 + below(world, 250));
	config->straggler_us = 500;
	config->think_us = 20 * MS;
	config->fault_time_us = 4 * SECOND;
}

static void make_reuse(struct world *world, struct config *config)
{
	(void)world;
	config->nodes = config->victims = 3;
	config->keys = 1;
	config->clients = 8;
	config->max_ttl_us = 300 * MS;
	config->timeout_us = 50 * MS;
	config->faults = FAULT(LOSE) | FAULT(ONE_WAY);
	config->burst = 4;
	config->fault_every_us = 60 * MS;
	config->fault_time_us = 2 * SECOND;
	config->think_us = 60 * MS;
	config->tries = 6;
	config->retry_min_us = 20 * MS;
	config->jitter_us = 8000;
}

static void make_edge(struct world *world, struct config *config)
{
	config->nodes = config->victims = 3;
	config->clients = 3;
	config->keys = 1;
	config->max_ttl_us = 2 * SECOND;
	config->to_the_end = true;
	config->smooth = config->bootstrap = true;
	config->faults = 0;
	config->fault_time_us = 5 * SECOND;
	config->delay_us = 20;
	config->jitter_us = (uint32_t)(1 + below(world, 100));
	config->straggler_us = 100;
}

/* Long leases of some, short ones of others, and nothing but the running redlockd to know of the long ones. */
static void make_bounds(struct world *world, struct config *config)
{
	config->keys = 1;
	config->to_the_end = !one_of(world, 3);
	config->max_ttl_us = 5 * SECOND;
	config->faults = FAULT(FORGET) | FAULT(PROC_CRASH) | FAULT(PROC_PAUSE) | FAULT(PROC_DRAIN) |
			 (one_of(world, 2) ? FAULT(LOSE) | FAULT(CRASH) | FAULT(STOP) : FAULT(DAY));
	config->fault_every_us = (uint32_t)((200 + below(world, 1500)) * MS);
	config->fault_time_us = 8 * SECOND + below(world, 8 * SECOND);
	config->think_us = 100 * MS;
	config->waits = (uint32_t)below(world, 4);
	config->wait_us = 3 * SECOND;
}

/* A queue, and no faults but of those that it must not mind. */
static void make_line(struct world *world, struct config *config)
{
	config->clients = 8;
	config->keys = 1;
	config->faults = 0;
	config->fault_time_us = 4 * SECOND;
	config->think_us = 40 * MS;
	config->straggler_us = (uint32_t)(config->timeout_us > 80 * MS ? 20 * MS : config->timeout_us / 4);
	config->waits = 6 + (uint32_t)below(world, 3);
	config->wait_us = 4 * SECOND;
	config->smooth = config->bootstrap = true;
	if (one_of(world, 4)) {
		config->faults = FAULT(FREEZE);
	} else if (one_of(world, 3)) {
		config->faults = FAULT(DEAF);
		config->fault_every_us = 300 * MS;
		config->deaf_us = 400 * MS; /* until the next tick opens another one */
	}
}

static void make_table(struct world *world, struct config *config)
{
	make_line(world, config);
	config->clients = config->keys = (uint8_t)(2 + below(world, KEYS - 1));
	config->waits = 8;
	config->think_us = 2 * MS;
	config->sets = 8;
}

/* One master after the other forgets, and leases that are out last for seconds. */
static void make_memory(struct world *world, struct config *config)
{
	static const uint32_t ttls_ms[] = {1000, 2000, 4000, 6000};
	config->nodes = config->victims = one_of(world, 4) ? 5 : 3;
	config->max_ttl_us = ttls_ms[below(world, 4)] * MS;
	config->to_the_end = one_of(world, 2);
	config->faults = FAULT(CRASH) | FAULT(FLUSH) | FAULT(EVICT_HASH);
	if (one_of(world, 2))
		config->faults |= (uint32_t)random_u64(world) &
				  (FAULT(LOSE) | FAULT(PARTITION) | FAULT(ONE_WAY) | FAULT(STOP) | FAULT(CRASH_KEPT) |
				   FAULT(FORWARD) | FAULT(BACK) | FAULT(PROC_PAUSE) | FAULT(PROC_CRASH) |
				   FAULT(SCRIPTS));
	config->fault_every_us = (uint32_t)((300 + below(world, 2000)) * MS);
	config->burst = (uint32_t)below(world, 3);
	config->fault_time_us = 8 * SECOND + below(world, 8 * SECOND);
	config->think_us = (uint32_t)((20 + below(world, 100)) * MS);
	config->waits = (uint32_t)below(world, 3);
}

static void make_rolling(struct world *world, struct config *config)
{
	config->nodes = config->victims = one_of(world, 3) ? 5 : 3;
	config->clients = (uint8_t)(2 + below(world, 5));
	config->keys = (uint8_t)(1 + below(world, config->clients));
	config->max_ttl_us = (500 + below(world, 2000)) * MS;
	config->timeout_us = 100 * MS;
	config->straggler_us = 20 * (uint32_t)MS;
	config->faults = FAULT(CRASH) | FAULT(CRASH_KEPT) | FAULT(FLUSH);
	config->fault_every_us = 25 * MS; /* it is looked for so often whether it is time */
	config->hasty = one_of(world, 2);
	config->burst = 0;
	config->fault_time_us = 15 * SECOND + below(world, 20 * SECOND);
	config->waits = (uint32_t)below(world, 8);
}

static void (*const makers[PROFILES + 1])(struct world *world, struct config *config) = {
	[PROFILE_RACE] = make_race,   [PROFILE_FLIGHT] = make_flight, [PROFILE_REUSE] = make_reuse,
	[PROFILE_EDGE] = make_edge,   [PROFILE_BOUNDS] = make_bounds, [PROFILE_QUEUE] = make_line,
	[PROFILE_TABLE] = make_table, [PROFILE_MEMORY] = make_memory, [PROFILE_ROLLING] = make_rolling,
};

/* They crash, and come back with all that they had, without anything, or as an older image. */
static void make_durable(struct config *config)
{
	config->durable = true;
	config->faults &= ~FAULT(ROLL_BACK);
	if (config->profile == PROFILE_ANY || config->profile == PROFILE_MEMORY)
		config->faults |= FAULT(CRASH_KEPT) | FAULT(ALL_CRASH);
}

void config_random(struct world *world, bool is_rolling, bool is_durable)
{
	struct config *config = &world->config;
	memset(config, 0, sizeof *config);
	config->profile = (enum profile)(one_of(world, 5) ? below(world, PROFILES) : PROFILE_ANY);
	if (is_rolling)
		config->profile = PROFILE_ROLLING;
	config->procs = (uint8_t)(2 + below(world, 2));
	config->clients = (uint8_t)(3 + below(world, 4));
	config->keys = (uint8_t)(1 + below(world, 3));
	config->one_bucket = one_of(world, 2);
	config->margin_us = 2 * SECOND + 2 * MS;
	config->bootstrap = !one_of(world, 8);
	random_any(world, config);
	if (makers[config->profile])
		makers[config->profile](world, config);
	config->holds = one_of(world, 2) ? 0 : (uint32_t)(1 + below(world, 4));
	config->operators = !config->smooth && one_of(world, 6);
	config->unlike = config->profile == PROFILE_BOUNDS || (config->max_ttl_us > 3 * SECOND && one_of(world, 4));
	config->retry_max_us = config->retry_min_us * (uint32_t)(1 + below(world, 4));
	config->max_shared = (uint32_t)(2 + below(world, HOLDERS - 1));
	config->modes = one_of(world, 2) ? (uint32_t)(1 + below(world, 8)) : 0;
	config->keyed = one_of(world, 3) ? (uint32_t)(1 + below(world, 8)) : 0;
	if (config->profile == PROFILE_TABLE)
		config->keyed = 0; /* another's key would be a request for its place */
	else if (config->keys > 1 && config->profile != PROFILE_FLIGHT && one_of(world, 2))
		config->sets = (uint32_t)(1 + below(world, 6));
	config->max_hold_ms = one_of(world, 3) ? 2 * config->max_ttl_us / MS : 0;
	if (is_rolling) { /* nothing else ends a lease */
		config->max_hold_ms = 0;
		config->max_shared = HOLDERS; /* room for all: where others took it, a lease lacks that vote */
		config->operators = config->unlike = false;
	}
	if (config->hasty) { /* attempts that get the key of a master that has returned are in the way of its repair */
		config->keys = config->clients;
		config->sets = config->keyed = 0;
	}
	if (is_durable)
		make_durable(config);
}

/* As `redlockctl health --restart-safe` says it: all masters vote, and no lease that was extended lacks a vote. A hasty
 * operator looks at the votes alone. */
static bool is_restart_safe(const struct world *world)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		if (world->procs[p].leases->below.count > 0 && !world->config.hasty)
			return false;
	return is_recovered(world);
}

enum { RENEWALS_MAX = 15, RECOVERY_US = 8000000, HASTE_US = 300000, NOTICED_US = 1500000 };

/* ROLLING: the next fault comes when a restart has been safe for as long as a lease lasts, since settled_at (NEVER: it
 * is not): each lease was renewed twice since. That must come, after a quarantine and some renewals. A hasty operator
 * leaves time for a few commands alone, once the last fault must have been noticed: redlockd itself has repaired each
 * lease at the return. */
bool shape_rolls(struct world *world)
{
	uint64_t max_ttl_us = world->config.max_ttl_us;
	if (world->config.profile != PROFILE_ROLLING)
		return false;
	if (!is_restart_safe(world) || world->now < world->rolled_at + NOTICED_US) {
		world->settled_at = NEVER;
	} else if (world->settled_at == NEVER) {
		world->settled_at = world->now;
	} else if (world->now - world->settled_at >= (world->config.hasty ? HASTE_US : max_ttl_us)) {
		order_trouble(world);
		fault_any(world);
		world->figures->rolled++;
		world->settled_at = NEVER;
		world->rolled_at = world->now;
	}
	if (world->settled_at == NEVER &&
	    world->now - world->rolled_at > RECOVERY_US + max_ttl_us + RENEWALS_MAX * max_ttl_us / 3)
		fail(world, "renewed: leases lack a vote, %llu ms after one master failed",
		     (unsigned long long)((world->now - world->rolled_at) / MS));
	event_push(world, event_new(world, EVENT_FAULT), world->now + world->config.fault_every_us);
	return true;
}
