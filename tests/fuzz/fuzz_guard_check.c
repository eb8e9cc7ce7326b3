/* What must hold for the guard after each event of fuzz_guard.c. */
#include "fuzz_guard.h"

uint64_t quarantine_us(const struct world *world)
{
	uint64_t ttl_us = world->params.max_ttl_us;
	return ttl_us + ttl_us / 1000 * world->params.drift_ppm / 1000 + world->params.margin_us;
}

uint16_t voters(const struct world *world)
{
	uint16_t set = 0;
	for (unsigned i = 0; i < world->params.masters; i++)
		set |= (uint16_t)(guard_may_vote(&world->guard, i) << i);
	return set;
}

void check_skips(struct world *world)
{
	for (unsigned i = 0; i < world->params.masters; i++) {
		struct server *server = &world->servers[i];
		bool skip = world->guard.masters[i].skip;
		MUST(!skip || server->skips || (world->params.bootstrap && !world->seen_any),
		     "master %u waits for nothing", i);
		if (skip && !server->skips)
			server->skip_marker = server->seen_marker;
		server->skips = skip;
	}
}

void check_votes(const struct world *world, uint16_t before, unsigned i, bool fits)
{
	uint16_t now = voters(world);
	MUST((now & ~before & ~(1U << i)) == 0, "%x vote after an event of master %u, %x did", now, i, before);
	MUST(!redlock_has(now, i) || redlock_has(before, i) || fits, "master %u votes without an epoch", i);
	for (unsigned j = 0; j < world->params.masters; j++) {
		const struct server *server = &world->servers[j];
		bool known = server->connected && server->trusted != 0;
		MUST(!redlock_has(now, j) || (known && world->guard.masters[j].epoch == server->trusted),
		     "master %u votes by another epoch", j);
	}
}

static void check_survey(const struct world *world, unsigned i, const struct guard_action *action)
{
	const struct guard_master *guarded = &world->guard.masters[i];
	unsigned told = 0, needed = world->params.masters - redlock_majority(world->params.masters) + 1U;
	for (unsigned j = 0; j < world->params.masters; j++) {
		const struct server *other = &world->servers[j];
		if (j == i || !redlock_has(guarded->surveyed, j))
			continue;
		MUST(other->told_us >= guarded->recovery_us,
		     "fences of master %u that it told before the quarantine was over", j);
		MUST(action->fence >= other->told_fence, "a floor of %llu below that of master %u",
		     (unsigned long long)action->fence, j);
		told++;
	}
	MUST(action->clocked || told >= needed, "a floor by %u masters of %u", told, needed);
	MUST(action->fence < REDLOCK_FENCE_LIMIT, "a floor of %llu", (unsigned long long)action->fence);
}

/* N-Q+1 of them, each when no command from before the quarantine was under way any more. */
static bool others_tell_of_the_end(const struct world *world, unsigned i)
{
	const struct server *server = &world->servers[i];
	unsigned told = 0;
	for (unsigned j = 0; j < world->params.masters; j++)
		told += j != i && server->ends_us[j] != 0 && server->ends_us[j] <= world->now_us;
	return told >= world->params.masters - redlock_majority(world->params.masters) + 1U;
}

static void check_write_epoch(const struct world *world, unsigned i, const struct guard_action *action)
{
	const struct server *server = &world->servers[i];
	const struct guard_master *guarded = &world->guard.masters[i];
	MUST(action->marker != 0 && action->marker == server->seen_marker && action->cluster != 0,
	     "epoch_written by another marker");
	MUST(action->ttl_us >= world->params.max_ttl_us, "a longest lease of %llu", (unsigned long long)action->ttl_us);
	if (guarded->skip) {
		MUST(action->marker == server->skip_marker,
		     "another quarantine is left out than the one of the beginning");
		return;
	}
	bool is_short = !world->params.waits_longest && others_tell_of_the_end(world, i);
	MUST(is_short || world->now_us >= server->since_us + quarantine_us(world), "a quarantine of %llu us",
	     (unsigned long long)(world->now_us - server->since_us));
	/* A gap in the heartbeats makes the wait begin anew, but what was asked before it still counts: the marker was
	 * there all the time. */
	MUST(is_short || guarded->recovery_us >= server->marked_us + quarantine_us(world),
	     "asked %llu us after the quarantine began",
	     (unsigned long long)(guarded->recovery_us - server->marked_us));
	if (guarded->memory != GUARD_MEMORY_KEPT)
		check_survey(world, i, action);
}

void check_action(const struct world *world, unsigned i, const struct guard_action *action)
{
	const struct server *server = &world->servers[i];
	switch (action->kind) {
	case GUARD_NOTHING:
	case GUARD_READ: break;
	case GUARD_QUARANTINE:
		MUST(action->marker != 0 && !guard_may_vote(&world->guard, i), "quarantined, and votes");
		MUST(action->takes_over == server->other, "takes over what is ours, or quarantines what is not");
		MUST(!server->other || (world->params.bootstrap && world->now_us >= server->still_us + STILL_US),
		     "another version's hash is taken over");
		break;
	case GUARD_SURVEY:
		MUST(action->epoch != 0 && (action->epoch == server->trusted || action->epoch == server->seen_marker),
		     "asked for fences");
		break;
	case GUARD_WRITE_EPOCH: check_write_epoch(world, i, action); break;
	}
}
