/* SPDX-License-Identifier: MIT */
/* Leases that are kept for a while after their release (keep_ms), in one history of KEEPS_EVERY.
 *
 *   overlap  from the answer to the release on, the lease counts as one that is valid does (daemon_check.c): nobody
 *            else gets what it had, for keep_ms since the release came, less the drift of clocks.
 *   dead     its token extends nothing any more, and no majority releases anything for it. An acquisition that comes
 *            late may leave its key on a minority; a release of that is answered as if it might be the lease.
 *
 * None of this draws from the random numbers of the history: histories without it stay the same. */
#include <assert.h>
#include <string.h>

#include "daemon_world.h"

/* A number for the token. */
static uint64_t draw(uint64_t token)
{
	uint64_t state = token;
	return redlock_random(&state);
}

static uint64_t number_of(const char digits[RANDOM_TOKEN_LEN])
{
	return hex_number(digits + RANDOM_TOKEN_LEN - 16);
}

/* Of the token under which a lease is kept. */
static uint64_t kept_number(uint64_t token)
{
	char digits[RANDOM_TOKEN_LEN], kept[SHA1_HEX_LEN];
	token_write(token, digits);
	store_sha1hex(digits, sizeof digits, kept);
	return number_of(kept);
}

uint64_t token_read(const struct world *world, const char digits[RANDOM_TOKEN_LEN])
{
	uint64_t number = number_of(digits);
	if (number >= TOKEN_ZERO)
		return number - TOKEN_ZERO;
	for (unsigned i = 0; i < world->kept_count; i++)
		if (world->kept[i].number == number)
			return world->kept[i].token;
	return 0;
}

bool kept_is_asked(const struct world *world, uint64_t token)
{
	for (unsigned i = 0; i < world->kept_count; i++)
		if (world->kept[i].token == token)
			return true;
	return false;
}

void kept_choose(struct world *world, struct call *call)
{
	uint64_t drawn = draw(call->token), longest_ms = world->procs[call->proc].options.max_ttl_ms;
	assert(call->operation == LEASE_RELEASE);
	if (!world->config.keeps || world->healing || drawn % 2 == 0 || world->kept_count == KEPT)
		return;
	call->request.keep_ms = (uint32_t)(1 + (drawn >> 8) % longest_ms);
	world->kept[world->kept_count].token = call->token;
	world->kept[world->kept_count++].number = kept_number(call->token);
}

void kept_try(struct world *world, uint16_t index)
{
	struct lease *lease = index < world->lease_count ? &world->leases[index] : NULL;
	if (!lease || !lease->kept || lease->tried)
		return;
	lease->tried = true;
	uint64_t drawn = draw(lease->token) >> 32;
	unsigned proc = (unsigned)(drawn % world->config.procs);
	enum lease_operation operation = drawn >> 8 & 1 ? LEASE_EXTEND : LEASE_RELEASE;
	if (!world->procs[proc].up || world->procs[proc].paused)
		return;
	struct call *call = call_begin(world, proc, operation, lease->names, world->config.max_ttl_us / MS, index);
	if (call)
		call_start(world, call);
}

/* True if the answer to its old holder has a majority, without the masters that were rolled back since it was kept. */
static bool is_alive(const struct world *world, const struct lease *lease, uint16_t quorum)
{
	for (unsigned i = 0; i < world->config.nodes; i++)
		if (world->nodes[i].rolled_at >= lease->kept_at)
			quorum &= (uint16_t) ~(1U << i);
	return __builtin_popcount(quorum) > world->config.nodes / 2;
}

void kept_released(struct world *world, const struct call *call, const struct redlock *core)
{
	struct lease *lease = &world->leases[call->lease];
	uint64_t keep_us = call->request.keep_ms * MS, allowance_us = keep_us / 100 + 2 * MS;
	if (lease->kept && is_alive(world, lease, check_counted(core, world)))
		fail(world, "dead: token %llu is released again, while it is kept", (unsigned long long)lease->token);
	if (keep_us <= allowance_us || call->came_at + keep_us - allowance_us <= world->now)
		return;
	lease->kept = true;
	lease->kept_at = world->now;
	world->figures->kept++;
	if (check_is_forced_since(world, lease->names, call->came_at))
		return;
	lease->until = call->came_at + keep_us - allowance_us;
	lease->ttl_us = keep_us > lease->ttl_us ? keep_us : lease->ttl_us;
	/* From now on it counts the masters that keep it, and no vote of its last extension. */
	lease->quorum = lease->round = check_counted(core, world);
	memcpy(lease->round_at, world->trails[lease->token].released_at, sizeof lease->round_at);
	TELL(world, "token %llu is kept on r%u until %llu ms", (unsigned long long)lease->token, lease->key,
	     (unsigned long long)(lease->until / MS));
	check_make_active(world, call->lease);
}

bool kept_extended(struct world *world, const struct call *call, uint16_t quorum)
{
	const struct lease *lease = &world->leases[call->lease];
	if (lease->kept && call->came_at >= lease->kept_at && is_alive(world, lease, quorum))
		fail(world, "dead: token %llu is extended, while it is kept", (unsigned long long)lease->token);
	return lease->kept;
}
