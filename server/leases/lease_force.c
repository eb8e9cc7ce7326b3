/* SPDX-License-Identifier: MIT */
/* A forced release: an operator releases a lock without its token.
 *
 *     inspect all masters ─► a lease, or a possible one ─► RELEASE with its token ─► answer
 *              └──────────── another program's key, or another fence: NOT_OWNER; nobody's: EXPIRED
 *
 * The release compares the token that the inspection saw, so it never harms a newcomer, however late it arrives.
 *
 * Every token that has a majority, or may have one with the masters that did not answer, is released: it may be the
 * lease. So are all leases that hold the resource together, unless the request names the fence of one. Any other token
 * belongs to an attempt under way, or is left over from a dead redlockd or an ended lease. An attempt may become a
 * lease that came after the inspection, and a left-over token expires by itself: both are left alone. A lease on
 * several resources is released on all of them, so that no master holds a part of it.
 *
 * The core runs the inspection for the caller's operation. The answer then comes from the releases, which are
 * operations of their own. They are carried out even if the caller cancels its operation. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

struct lease_force {
	struct lease_op *op;        /* the caller's; NULL: cancelled */
	struct lease_answer answer; /* of the releases so far */
	struct lease_holders *several;
	size_t awaited, count; /* releases under way, and all */
	struct force_target {
		struct lease_force *force;
		struct lease_holder holder; /* its memory is that of `op` or `several` */
		char token[LEASE_TOKEN_LEN];
	} targets[]; /* of REDLOCK_MASTERS_MAX, and of `several` */
};

/* ---- the releases ---- */

static void finish_force(struct lease_force *force)
{
	struct lease_op *op = force->op;
	uint64_t now_us = clock_now_us();
	if (op) {
		lease_answer_set(&op->answer, &force->answer);
		if (op->answer.status == LEASE_OK && op->request.fence == 0 && op->leases->options->log_leases)
			op->answer.several = lease_several_share(force->several);
		op->answer.waited_ms = (uint32_t)((now_us - op->began_us) / 1000);
		assert(op->follow_up == &force->op);
		op->follow_up = NULL;
		lease_op_answered(op, now_us);
	}
	lease_answer_fini(&force->answer);
	lease_several_free(force->several);
	free(force);
}

/* Ranks of the answers: if several tokens are released, the largest counts. */
static unsigned weight(enum lease_status status)
{
	return status == LEASE_OK ? 3 : status == LEASE_NO_QUORUM ? 2 : status == LEASE_NOT_OWNER ? 1 : 0;
}

static void on_released(void *arg, const struct lease_answer *answer)
{
	const struct force_target *target = arg;
	struct lease_force *force = target->force;
	assert(force->awaited > 0);
	if (force->op && weight(answer->status) >= weight(force->answer.status)) {
		struct lease_answer ours = *answer;
		if (answer->status != LEASE_NOT_OWNER)
			ours.holder = target->holder;
		lease_answer_set(&force->answer, &ours);
	}
	if (--force->awaited == 0)
		finish_force(force);
}

static void release_targets(struct lease_force *force)
{
	struct lease_request request = force->op->request;
	assert(force->count > 0);
	request.operation = LEASE_RELEASE;
	force->awaited = force->count;
	force->answer = (struct lease_answer){.status = LEASE_EXPIRED};
	for (size_t i = 0; i < force->count; i++) {
		const struct lease_holder *holder = &force->targets[i].holder;
		bool is_set = holder->set_count > 0;
		memcpy(request.token, force->targets[i].token, sizeof request.token);
		request.set_count = holder->set_count;
		request.resource = is_set ? holder->owner + holder->owner_len + holder->caller_len +
						    holder->metadata_len
					  : force->op->request.resource;
		request.resource_len = is_set ? holder->names_len : force->op->request.resource_len;
		(void)lease_submit(force->op->leases, &request, on_released, &force->targets[i]);
	}
}

/* ---- the result of the inspection ---- */

/* The answer of master i if one token of redlockd's holds the resource there, and nothing else; else NULL. */
static const struct lease_sight *find_ours(const struct lease_op *look, unsigned i)
{
	const struct lease_sight *sight = &look->seen[i];
	bool ours = lease_op_voted(look, i, REDLOCK_VOTE_HELD) && sight->holder.known && !sight->several;
	return ours ? sight : NULL;
}

/* True if a token has a majority, or may have one with the masters that did not answer. */
static bool may_be_lease(const struct lease_op *look, const char token[LEASE_TOKEN_LEN])
{
	unsigned masters = 0;
	for (unsigned i = 0; i < look->core.params.masters; i++) {
		const struct lease_sight *sight = find_ours(look, i);
		masters += sight ? memcmp(sight->token, token, LEASE_TOKEN_LEN) == 0
				 : !lease_op_voted(look, i, REDLOCK_VOTE_HELD) &&
					   !lease_op_voted(look, i, REDLOCK_VOTE_GONE);
	}
	return masters >= redlock_majority(look->core.params.masters);
}

static void add_target(struct lease_force *force, const struct lease_holder *holder, const char token[LEASE_TOKEN_LEN])
{
	struct force_target *target = &force->targets[force->count++];
	*target = (struct force_target){.force = force, .holder = *holder};
	memcpy(target->token, token, sizeof target->token);
}

static void merge_target(struct lease_force *force, const struct lease_sight *sight)
{
	struct force_target *target = force->targets, *end = target + force->count;
	while (target < end && memcmp(target->token, sight->token, LEASE_TOKEN_LEN) != 0)
		target++;
	if (target == end)
		add_target(force, &sight->holder, sight->token);
	else if (sight->holder.fence > target->holder.fence) /* not every master has the last number of a lease */
		target->holder.fence = sight->holder.fence;
}

/* Keeps only the target with this fence. True if there were others, which are not released. */
static bool spare_other_fences(struct lease_force *force, uint64_t fence)
{
	size_t found = force->count;
	assert(fence < REDLOCK_FENCE_LIMIT);
	force->count = 0;
	for (size_t i = 0; i < found; i++)
		if (fence == 0 || force->targets[i].holder.fence == fence)
			force->targets[force->count++] = force->targets[i];
	return force->count < found;
}

/* The targets are the tokens that the inspection saw and that may be a lease. False: the inspection saw no token of
 * redlockd's. */
static bool gather_targets(struct lease_force *force)
{
	bool any = force->several != NULL;
	for (uint32_t i = 0; any && i < force->several->listed; i++)
		add_target(force, &force->several->list[i].holder, force->several->list[i].token);
	for (unsigned i = 0; i < force->op->core.params.masters; i++) {
		const struct lease_sight *sight = find_ours(force->op, i);
		if (sight && may_be_lease(force->op, sight->token))
			merge_target(force, sight);
		any = any || sight;
	}
	return any;
}

bool lease_force_release(struct lease_op *op)
{
	struct lease_answer look = op->answer;
	struct redlock_votes *votes = &look.votes;
	assert(op->request.operation == LEASE_FORCE && !op->follow_up);
	if (look.status != LEASE_OK)
		return false;
	struct lease_holders *several = op->answer.several; /* taken */
	op->answer.several = NULL;
	size_t targets = REDLOCK_MASTERS_MAX + (several ? several->listed : 0);
	struct lease_force *force = memory_zeroed(1, sizeof *force + targets * sizeof *force->targets);
	force->op = op;
	force->several = several;
	bool any = gather_targets(force), spared = spare_other_fences(force, op->request.fence);
	if (force->count > 0) {
		op->follow_up = &force->op;
		release_targets(force);
		return true;
	}
	struct lease_holder holder = spared ? force->targets[0].holder : (struct lease_holder){.known = false};
	/* One holder has a majority, or may have one with the masters that did not answer, or redlockd wrote no key. */
	bool other = look.held &&
		     (spared || !any || votes->granted + votes->failed + votes->quarantined >= votes->needed);
	votes->refused = (uint8_t)(votes->refused + votes->granted);
	votes->granted = 0; /* nothing is deleted */
	lease_answer_set(&op->answer, &(struct lease_answer){.status = other ? LEASE_NOT_OWNER : LEASE_EXPIRED,
							     .votes = *votes,
							     .holder = holder,
							     .waited_ms = look.waited_ms});
	lease_several_free(several);
	free(force);
	return false;
}
