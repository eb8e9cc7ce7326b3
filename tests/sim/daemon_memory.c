/* SPDX-License-Identifier: MIT */
/* What must hold when a master votes again: no lease is valid, or is given later, that counts a vote of it from before
 * its quarantine. And before: a master that votes for a lease remembers an end that is no earlier. */
#include <assert.h>

#include "daemon_world.h"

/* No redlockd that was there knew that a lease can last so long, and the masters of its round had lost their memory. */
static bool was_too_long(struct world *world, const struct lease *lease)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		const struct node *node = &world->nodes[i];
		if (!redlock_has(lease->round, i) || node->short_at < lease->round_at[i] ||
		    node->short_ttl_us >= lease->ttl_us)
			continue;
		world->figures->excused[EXCUSE_TTL_UNKNOWN]++;
		return true;
	}
	return false;
}

/* The clocks of those that were to remember the lease jumped, and neither the process that asked them for its end nor
 * another one could see that. The others of its round are too few: N - Q + 1 of those asked may not be among them. */
static bool was_jump_unseen(struct world *world, const struct lease *lease, unsigned index)
{
	const struct trail *trail = &world->trails[lease->token];
	uint16_t round = lease->round;
	for (unsigned i = 0; i < world->config.nodes; i++) {
		const struct node *node = &world->nodes[i];
		if (i != index && world->nodes[index].clocks_since[i] > lease->round_at[i] &&
		    node->jump_at > node->marked_at && node->jumped_us > trail->jumped_us[i])
			round &= (uint16_t) ~(1U << i);
	}
	if (__builtin_popcount(round) >= world->config.nodes / 2 + 1)
		return false;
	world->figures->excused[EXCUSE_JUMP_UNSEEN]++;
	return true;
}

static bool is_early_excused(struct world *world, const struct lease *lease, unsigned index)
{
	return was_too_long(world, lease) || was_jump_unseen(world, lease, index);
}

/* The end of a quarantine, however short it was. */
void check_votes_again(struct world *world, unsigned index)
{
	const struct node *node = &world->nodes[index];
	for (unsigned key = 0; key < world->config.keys; key++) {
		for (unsigned i = 0; i < world->active_count[key]; i++) {
			const struct lease *lease = &world->leases[world->active[key][i]];
			if (lease->until <= world->now || !redlock_has(lease->round, index) ||
			    lease->round_at[index] >= node->marked_at || is_early_excused(world, lease, index))
				continue;
			fail(world,
			     "memory: master %u votes again while the lease of token %llu on r%u, which counts its "
			     "vote of %llu ms before the quarantine, is valid for another %llu us",
			     index, (unsigned long long)lease->token, key,
			     (unsigned long long)((node->marked_at - lease->round_at[index]) / MS),
			     (unsigned long long)(lease->until - world->now));
		}
	}
}

/* The answer to an ACQUIRE or EXTEND, or to a RELEASE that keeps. Without an epoch there is no restart guard. Until the
 * next heartbeat redlockd does not know that an older image was put back. */
void check_remembers(struct world *world, const struct transport_connection *connection, const struct command *command)
{
	unsigned index = connection->node;
	const struct node *node = &world->nodes[index];
	uint64_t ends_us = node->server.now_us + command->request.ttl_ms * MS;
	bool rolled = world->procs[connection->proc].links[index].saw_rolled < node->rolled_at;
	bool keeps_nothing = command->kind == REDLOCK_SCRIPT_RELEASE && command->request.ttl_ms == 0;
	if (command->answer.code != 1 || command->request.any_epoch || keeps_nothing)
		return;
	uint64_t leases_s = server_number(&node->server, "leases", 10);
	if (leases_s * SECOND >= ends_us)
		return;
	if (rolled)
		world->figures->excused[EXCUSE_ROLLED_UNSEEN]++;
	else
		fail(world, "memory: master %u votes for a lease until %llu and remembers %llu s", index,
		     (unsigned long long)ends_us, (unsigned long long)leases_s);
}

/* A repaired key ends no later than the lease does: a majority has extended that, so other masters have it for at least
 * as long, unless they lost it, or keep it for a shorter time. Clocks that jump make the times differ. */
void check_repaired(struct world *world, unsigned index, const struct command *command)
{
	const struct script_request *request = &command->request;
	unsigned key = request->names != 0 ? first_key(request->names) : request->key, have = 0, longer = 0;
	if (!request->is_repair || command->answer.code != 1 || world->clocks_wrong ||
	    kept_is_asked(world, request->token))
		return;
	for (unsigned i = 0; i < world->config.nodes; i++) {
		if (i == index)
			continue;
		node_sync(world, i);
		uint64_t left_ms = node_left_ms(&world->nodes[i], key, request->token);
		have += left_ms > 0;
		longer += left_ms > 0 && left_ms + left_ms / 100 + 2 >= request->ttl_ms;
	}
	world->figures->repaired++;
	if (have >= world->config.nodes / 2U + 1 && longer == 0)
		fail(world,
		     "outlives: the repaired key of token %llu on r%u of master %u lasts for %llu ms, longer than "
		     "all others",
		     (unsigned long long)request->token, key, index, (unsigned long long)request->ttl_ms);
}

void check_set_end(struct world *world, struct lease *lease, uint64_t until)
{
	uint64_t before = lease->until > world->now ? lease->until : world->now;
	world->figures->held_us += (until > world->now ? until : world->now) - before; /* may be less than before */
	lease->until = until;
}

/* Nor is one given that counts a vote from before, when the master votes again. */
void check_round(struct world *world, struct lease *lease, uint16_t votes, const struct trail *trail)
{
	lease->round = votes;
	for (unsigned i = 0; i < NODES; i++)
		lease->round_at[i] = trail->sights[i].run_at;
	for (unsigned i = 0; i < world->config.nodes; i++) {
		const struct node *node = &world->nodes[i];
		if (redlock_has(votes, i) && lease->round_at[i] < node->marked_at && node->voted_at > node->marked_at &&
		    !is_early_excused(world, lease, i))
			fail(world,
			     "memory: the lease of token %llu on r%u counts the vote of master %u from before its "
			     "quarantine, "
			     "and the master votes again",
			     (unsigned long long)lease->token, lease->key, i);
	}
}
