/* SPDX-License-Identifier: MIT */
/* What must hold at every step.
 *
 *   exclusion  no two leases on one resource are valid at once. A lease counts from its answer until its validity is
 *              over on the slowest clock that is allowed, or until its holder asks for its release, also if the holder
 *              is dead.
 *   fences     the fences of one resource are all different, and a later holder has a larger one.
 *   stable     an extension keeps the fence of its lease; no lease comes back to life after another one was given.
 *   kept       no release removes a key that a lease counts on, unless its holder asked for it.
 *   pending    a release that was asked for is sent to each master, however many connections are lost before.
 *   in time    no command is carried out after its deadline.
 *   nothing left, progress: at the end, see daemon_run.c
 *
 * Some faults break an assumption of the promise and cannot be detected in time by the redlockd that counts the vote.
 * Only what follows from those is excused: is_excused() finds for each master the fault that removed the key of the old
 * lease and why it could not be detected; the remaining votes must be too few for a majority. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon_world.h"

const char *excuse_name(enum excuse excuse)
{
	static const char *const names[] = {EXCUSES_ALL(NAME_OF)};
	return names[excuse];
}

void check_init(struct world *world)
{
	world->lease_count = 0;
	world->next_token = 0;
	world->kept_count = 0;
	for (unsigned i = 0; i < KEYS; i++) {
		world->newest[i] = NONE;
		world->top_fence[i] = 0;
		world->forcing[i] = 0;
		world->forced_at[i] = 0;
		world->active_count[i] = 0;
	}
}

/* ---- what masters do ---- */

static void check_late(struct world *world, unsigned index, const struct command *command)
{
	const struct node *node = &world->nodes[index];
	const struct trail *trail = &world->trails[command->request.token];
	if (command->latest == 0 || world->now <= command->latest + 50 * MS)
		return;
	if (node->back_at > trail->began)
		return; /* its clock does not know how late it is */
	fail(world, "late: master %u carries out a command of token %llu %llu ms after its time", index,
	     (unsigned long long)command->request.token, (unsigned long long)((world->now - command->latest) / MS));
}

static void note_released(struct world *world, unsigned index, const struct command *command, struct trail *trail)
{
	const struct lease *lease = &world->leases[trail->lease];
	trail->released_at[index] = world->now;
	if (trail->leased && lease->until > world->now && !lease->kept)
		fail(world, "kept: master %u deletes r%u for token %llu, whose lease is valid and was not given back",
		     index, lease->key, (unsigned long long)command->request.token);
}

/* After a script a master has all keys of a set, or, after its release, none. Unless some were lost before. */
static void check_whole(struct world *world, unsigned index, const struct command *command)
{
	const struct node *node = &world->nodes[index];
	const struct script_request *request = &command->request;
	bool releases = command->kind == REDLOCK_SCRIPT_RELEASE;
	unsigned has = 0;
	FOR_EACH_KEY (key, request->names)
		has += request->token != 0 && node_has_token(node, key, request->token);
	if (request->names != 0 && !kept_is_asked(world, request->token) &&
	    has != (releases ? 0U : (unsigned)__builtin_popcount(request->names)))
		fail(world, "part: master %u has %u keys of the set of token %llu after its %s", index, has,
		     (unsigned long long)request->token, releases ? "release" : "acquisition or extension");
}

void check_set(struct world *world, unsigned index, const struct command *command, bool had)
{
	const struct node *node = &world->nodes[index];
	struct trail *trail = &world->trails[command->request.token];
	if (command->kind == REDLOCK_SCRIPT_RELEASE) {
		/* of a set, part of which was lost before, it deletes the rest whatever it answers */
		if (command->answer.code == 1 || had)
			note_released(world, index, command, trail);
		check_whole(world, index, command);
		return;
	}
	if (command->answer.code != 1)
		return;
	check_whole(world, index, command);
	check_late(world, index, command);
	if (command->kind == REDLOCK_SCRIPT_RAISE)
		return;
	/* A repair that ends before the lease does restores nothing: its holder relies on more. */
	bool falls_short = command->request.is_repair && trail->leased &&
			   world->leases[trail->lease].until > world->now + command->request.ttl_ms * MS;
	if ((command->kind == REDLOCK_SCRIPT_ACQUIRE && !falls_short) || trail->set_at[index] == 0) {
		trail->set_at[index] = world->now;
		trail->jumped_us[index] = node->jumped_us;
		trail->back_us[index] = node->jumped_back_us;
	}
}

void check_given(struct world *world, unsigned proc, uint64_t token)
{
	struct trail *trail = &world->trails[token];
	if (trail->given_at != 0)
		return;
	trail->given_at = world->now;
	trail->given_by = (uint8_t)proc;
	trail->given_run = world->procs[proc].run;
}

/* What a process was to release before it made this connection must have been sent first. */
void check_pending(struct world *world, const struct transport_connection *connection)
{
	const struct proc *proc = &world->procs[connection->proc];
	unsigned key = 0, at = 0;
	while (key < world->config.keys) {
		uint64_t token = node_token(&world->nodes[connection->node], key, at++);
		const struct trail *trail = &world->trails[token];
		if (token == 0) {
			key++;
			at = 0;
			continue;
		}
		bool was_to = trail->given_at != 0 && trail->given_at < connection->made_at &&
			      trail->given_by == connection->proc && trail->given_run == proc->run;
		if (was_to && !redlock_has(trail->tried, connection->node) &&
		    world->now < trail->given_at + proc->options.max_ttl_ms * UINT64_C(990))
			fail(world, "pending: token %llu lies on r%u of master %u, and p%u has not sent its release",
			     (unsigned long long)token, key, connection->node, connection->proc);
	}
}

/* ---- excuses ---- */

/* Why the vote of a master, which had set the old lease's key, could be given to the new one. EXCUSES: it could not. */
static enum excuse is_excused(const struct world *world, const struct lease *old, unsigned index,
			      const struct sight *sight)
{
	const struct node *node = &world->nodes[index];
	const struct trail *trail = &world->trails[old->token];
	uint64_t set_at = trail->set_at[index];
	if (sight->run_at < set_at) /* in the same microsecond: what came between tells */
		return EXCUSES;
	if (trail->evicted_at[index] >= set_at && sight->info_at < trail->evicted_at[index])
		return EXCUSE_EVICTED_UNSEEN;
	if (trail->deleted_at[index] >= set_at)
		return EXCUSE_DELETED;
	if (node->rolled_at >= set_at && sight->saw_rolled < node->rolled_at)
		return EXCUSE_ROLLED_UNSEEN;
	if (node->short_at >= set_at && node->short_ttl_us < old->ttl_us)
		return EXCUSE_TTL_UNKNOWN;
	if (sight->jumped_us <= trail->jumped_us[index])
		return EXCUSES;
	if (sight->clock_since > set_at || sight->hidden_at > set_at)
		return EXCUSE_JUMP_UNSEEN;
	int64_t jumped = (int64_t)(sight->jumped_us - trail->jumped_us[index]),
		back = (int64_t)(sight->back_us - trail->back_us[index]);
	if (sight->slack_us + jumped - back <= (int64_t)old->allowance_us)
		return EXCUSES;
	/* back and forward again since it was heard last, or just small */
	return jumped > 100000 ? EXCUSE_JUMP_UNSEEN : EXCUSE_JUMP_SMALL;
}

/* Why, without the votes that are excused, there would not have been a majority for the new one. */
static enum excuse why_both(const struct world *world, const struct lease *old, uint16_t quorum,
			    const struct sight sights[NODES])
{
	enum excuse why = EXCUSES;
	for (unsigned i = 0; i < world->config.nodes; i++) {
		if (!redlock_has(quorum, i) || world->trails[old->token].set_at[i] == 0)
			continue;
		enum excuse excuse = is_excused(world, old, i, &sights[i]);
		if (excuse == EXCUSES)
			continue;
		why = excuse;
		quorum &= (uint16_t) ~(1U << i);
	}
	return __builtin_popcount(quorum) >= world->config.nodes / 2 + 1 ? EXCUSES : why;
}

/* Two leases at once. Which one a master set first need not be the one that was answered first. */
static bool is_pair_excused(struct world *world, struct lease *lease, struct lease *other, uint16_t quorum,
			    const struct sight sights[NODES])
{
	if (lease->excused && other->excused)
		return true;
	enum excuse why = why_both(world, other, quorum, sights);
	if (why == EXCUSES)
		why = why_both(world, lease, other->quorum, other->sights);
	if (why == EXCUSES)
		return false;
	world->figures->excused[why]++;
	lease->excused = other->excused = true;
	TELL(world, "excused: %s", excuse_name(why));
	return true;
}

/* ---- exclusion ---- */

static void forget_over(struct world *world, unsigned key)
{
	uint8_t kept = 0;
	for (unsigned i = 0; i < world->active_count[key]; i++)
		if (world->leases[world->active[key][i]].until > world->now)
			world->active[key][kept++] = world->active[key][i];
	world->active_count[key] = kept;
}

static bool is_active(const struct world *world, uint16_t index, unsigned key)
{
	for (unsigned i = 0; i < world->active_count[key]; i++)
		if (world->active[key][i] == index)
			return true;
	return false;
}

void check_make_active(struct world *world, uint16_t index)
{
	FOR_EACH_KEY (key, world->leases[index].names) {
		if (is_active(world, index, key))
			continue;
		assert(world->active_count[key] < ACTIVE);
		world->active[key][world->active_count[key]++] = index;
	}
}

/* The operator takes the lock away: from now on nobody relies on it. */
static void forget_all(struct world *world, unsigned key)
{
	for (unsigned i = 0; i < world->active_count[key]; i++)
		check_set_end(world, &world->leases[world->active[key][i]], 0);
}

void check_force(struct world *world, unsigned key)
{
	world->forcing[key]++;
	world->figures->forced++;
	forget_all(world, key);
}

void check_forced(struct world *world, unsigned key)
{
	assert(world->forcing[key] > 0);
	world->forcing[key]--;
	world->forced_at[key] = world->now;
	forget_all(world, key);
}

/* Both may hold a resource at once. */
static bool may_share(const struct lease *a, const struct lease *b)
{
	return a->mode == b->mode && (a->mode == LEASE_SHARED || (a->mode == LEASE_SLOT && a->slot != b->slot));
}

static void check_alone_on(struct world *world, struct lease *lease, unsigned key, uint16_t quorum,
			   const struct sight sights[NODES])
{
	forget_over(world, key);
	for (unsigned i = 0; i < world->active_count[key]; i++) {
		struct lease *other = &world->leases[world->active[key][i]];
		bool together = other != lease && may_share(lease, other);
		world->figures->shared_together += together && lease->mode == LEASE_SHARED;
		world->figures->slots_together += together && lease->mode == LEASE_SLOT;
		if (other == lease || together || is_pair_excused(world, lease, other, quorum, sights))
			continue;
		fail(world, "overlap: token %llu has r%u while the lease of token %llu is valid for another %llu us",
		     (unsigned long long)lease->token, key, (unsigned long long)other->token,
		     (unsigned long long)(other->until - world->now));
	}
}

static void check_alone(struct world *world, struct lease *lease, uint16_t quorum, const struct sight sights[NODES])
{
	FOR_EACH_KEY (key, lease->names)
		check_alone_on(world, lease, key, quorum, sights);
}

/* ---- fences ---- */

static bool is_order_excused(struct world *world, const struct lease *old, unsigned proc, uint16_t quorum)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		uint64_t rolled_at = world->nodes[i].rolled_at;
		if (!redlock_has(quorum, i) || rolled_at <= old->began ||
		    world->procs[proc].links[i].saw_rolled >= rolled_at)
			continue;
		world->figures->excused[EXCUSE_FENCE_ROLLED]++;
		return true;
	}
	if (!world->clocks_wrong || world->clocked_at <= old->began)
		return false;
	world->figures->excused[EXCUSE_FENCE_CLOCKED]++;
	return true;
}

static void check_fence(struct world *world, const struct lease *lease, unsigned key, unsigned proc)
{
	if (lease->fence > world->top_fence[key]) {
		world->top_fence[key] = lease->fence;
		return;
	}
	for (uint16_t i = lease->next[key]; i != NONE && !world->failed; i = world->leases[i].next[key]) {
		const struct lease *old = &world->leases[i];
		bool same = old->fence == lease->fence, inverted = old->ok <= lease->began && old->fence > lease->fence;
		if ((!same && !inverted) || is_order_excused(world, old, proc, lease->quorum))
			continue;
		fail(world, "fences: token %llu has %s number %llu than token %llu before it, %llu, on r%u",
		     (unsigned long long)lease->token, same ? "the same" : "a smaller",
		     (unsigned long long)lease->fence, (unsigned long long)old->token, (unsigned long long)old->fence,
		     key);
	}
}

/* ---- leases ---- */

uint16_t check_counted(const struct redlock *core, const struct world *world)
{
	uint16_t votes = 0;
	for (unsigned i = 0; i < world->config.nodes; i++)
		if (redlock_has(core->answered, i) && core->ballots[i].vote == REDLOCK_VOTE_GRANTED)
			votes |= (uint16_t)(1U << i);
	return core->round > 0 ? core->raised : votes;
}

/* A vote that a release of the same token has undone does not carry a lease. */
static void check_kept(struct world *world, const struct lease *lease)
{
	const struct trail *trail = &world->trails[lease->token];
	for (unsigned i = 0; i < world->config.nodes; i++)
		if (redlock_has(lease->quorum, i) && trail->released_at[i] > trail->set_at[i])
			fail(world,
			     "kept: the lease of token %llu on r%u counts master %u, where its own release took it "
			     "away",
			     (unsigned long long)lease->token, lease->key, i);
}

/* The latest end on a clock within its bounds. */
static uint64_t end_of(const struct world *world, uint64_t validity_ms)
{
	uint64_t told_us = validity_ms * MS;
	return world->now + told_us + told_us * CLOCK_PPM / 1000000 + 1;
}

/* An operator takes one of them away, or has done so since. */
bool check_is_forced_since(const struct world *world, uint32_t names, uint64_t since)
{
	FOR_EACH_KEY (key, names)
		if (world->forcing[key] > 0 || world->forced_at[key] >= since)
			return true;
	return false;
}

static void note_set(struct world *world, const struct call *call)
{
	uint64_t waited_us = world->now - call->came_at;
	world->figures->sets++;
	world->figures->sets_waited += call->waits;
	if (call->waits && is_smooth(world) && waited_us > world->figures->longest_set_wait_us)
		world->figures->longest_set_wait_us = waited_us;
}

void check_granted(struct world *world, struct call *call, const struct redlock *core,
		   const struct lease_answer *answer)
{
	assert(world->lease_count < LEASES);
	uint16_t index = (uint16_t)world->lease_count++;
	struct lease *lease = &world->leases[index];
	struct trail *trail = &world->trails[call->token];
	*lease = (struct lease){.token = call->token,
				.fence = answer->fence,
				.began = trail->began,
				.ok = world->now,
				.key = call->key,
				.names = call->names,
				.mode = (uint16_t)call->request.mode,
				.slot = answer->slot,
				.proc = call->proc,
				.quorum = check_counted(core, world)};
	memcpy(lease->sights, trail->sights, sizeof lease->sights);
	check_set_end(world, lease, end_of(world, answer->validity_ms));
	lease->ttl_us = call->request.ttl_ms * MS;
	lease->allowance_us = call->request.ttl_ms * MS / 100 + MS - call->request.ttl_ms;
	call->lease = index;
	FOR_EACH_KEY (key, call->names) {
		lease->next[key] = world->newest[key];
		world->newest[key] = index;
	}
	trail->leased = true;
	trail->lease = index;
	world->figures->leases++;
	if (is_set(call->names))
		note_set(world, call);
	world->figures->shared += lease->mode == LEASE_SHARED;
	world->figures->slots += lease->mode == LEASE_SLOT;
	if (answer->mode != lease->mode || (lease->mode == LEASE_SLOT && lease->slot >= call->request.slots))
		fail(world, "mode: token %llu is given in another mode, or on slot %u of %u",
		     (unsigned long long)call->token, lease->slot, call->request.slots);
	TELL(world, "p%u: token %llu has r%u until %llu.%03llu ms, fence %llu", call->proc,
	     (unsigned long long)call->token, call->key, (unsigned long long)(lease->until / MS),
	     (unsigned long long)(lease->until % MS), (unsigned long long)lease->fence);
	if (answer->validity_ms == 0 || answer->validity_ms >= call->request.ttl_ms)
		fail(world, "validity: token %llu is given %u ms of %u ms", (unsigned long long)call->token,
		     answer->validity_ms, call->request.ttl_ms);
	FOR_EACH_KEY (key, lease->names)
		check_fence(world, lease, key, call->proc);
	if (check_is_forced_since(world, lease->names, lease->began)) {
		check_set_end(world, lease, 0); /* it may have been taken away before it was given */
		return;
	}
	check_kept(world, lease);
	check_round(world, lease, lease->quorum, trail);
	check_alone(world, lease, lease->quorum, lease->sights);
	check_make_active(world, index);
}

/* Newer leases of the same key: given while this one was thought to be gone. */
static void check_not_revived(struct world *world, struct lease *lease, unsigned key, uint16_t quorum,
			      const struct sight sights[NODES])
{
	for (uint16_t i = world->newest[key]; i != NONE && &world->leases[i] != lease; i = world->leases[i].next[key]) {
		struct lease *newer = &world->leases[i];
		bool forced = check_is_forced_since(world, newer->names, newer->began);
		if (newer->ok < lease->ok || forced || may_share(lease, newer) ||
		    is_pair_excused(world, lease, newer, quorum, sights))
			continue;
		fail(world, "revived: token %llu is extended on r%u after token %llu was given it",
		     (unsigned long long)lease->token, key, (unsigned long long)newer->token);
	}
}

void check_extended(struct world *world, struct call *call, const struct lease_op *op, uint32_t validity_ms,
		    uint64_t fence)
{
	struct lease *lease = &world->leases[call->lease];
	const struct trail *trail = &world->trails[lease->token];
	uint16_t quorum = check_counted(&op->core, world);
	uint64_t until = end_of(world, validity_ms);
	world->figures->extensions++;
	if (kept_extended(world, call, quorum))
		return;
	if (fence != lease->fence && !is_order_excused(world, lease, call->proc, quorum))
		fail(world, "stable: token %llu had fence %llu, extended %llu", (unsigned long long)lease->token,
		     (unsigned long long)lease->fence, (unsigned long long)fence);
	TELL(world, "p%u: token %llu is extended on r%u until %llu ms", call->proc, (unsigned long long)lease->token,
	     lease->key, (unsigned long long)(until / MS));
	if (lease->until == 0 || check_is_forced_since(world, lease->names, world->now))
		return; /* given back in the meantime: its holder does not rely on it */
	FOR_EACH_KEY (key, lease->names)
		check_not_revived(world, lease, key, quorum, trail->sights);
	if (until <= lease->until)
		return; /* says less than an older one */
	check_set_end(world, lease, until);
	check_round(world, lease, quorum, trail);
	if (op->request.ttl_ms * MS > lease->ttl_us)
		lease->ttl_us = op->request.ttl_ms * MS;
	check_alone(world, lease, quorum, trail->sights);
	check_make_active(world, call->lease);
}

void check_released(struct world *world, uint16_t index)
{
	struct lease *lease = &world->leases[index];
	lease->ran_out = lease->until != 0 && lease->until <= world->now;
	check_set_end(world, lease, 0);
}

/* ---- the end ---- */

void check_nothing_left(struct world *world)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		node_sync(world, i);
		for (unsigned key = 0; key < world->config.keys; key++) {
			uint64_t token = node_token(&world->nodes[i], key, 0);
			if (token != 0)
				fail(world, "left behind: token %llu lies on r%u of master %u",
				     (unsigned long long)token, key, i);
		}
	}
}
