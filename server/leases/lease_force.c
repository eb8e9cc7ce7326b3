/* A forced release: an operator takes a lock from whoever holds it, without its token.
 *
 *     look (INSPECT, all masters) ─► a lease, or what may be one ─► RELEASE with its token ─► answer
 *              │                     another program's key: NOT_OWNER
 *              │                     nothing at all: EXPIRED
 *              └─ left-overs ─► pause ─► look again ─► those still there: RELEASE ─► answer
 *
 * Two ordinary operations of the core. What is deleted is compared with the token that the look saw, so nobody is
 * harmed who came after it, however late a command is carried out: a release that is owed to a master, too. release.lua
 * calls the next one in the line.
 *
 * Released is each token that has a majority of the masters, or may have one with those that did not answer: any of
 * these may be the lease. Where there is none, tokens on fewer masters than a majority are attempts under way, or what
 * a dead redlockd or a lease that is over left behind. An attempt must be let alone: it may become a lease a moment
 * later, and that one came after the look. A left-over is nobody's, but it keeps others out where several share the
 * masters. Time tells them apart: no master carries out an acquisition that is older than --master-timeout-ms, so a
 * token that was there before the pause and has no majority after it never gets one.
 *
 * The caller's operation has no part in the core: it stands for those that do the work, until it is answered. On the
 * worker's thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum { PAUSE_EXTRA_MS = 100 }; /* clocks are not that far apart, nor is the loop's time that old */

struct lease_force {
	struct lease_op *op;   /* the caller's */
	struct lease_op *look; /* the inspection under way, or NULL */
	bool left_over;        /* what is to be released never was or is no lease */
	unsigned awaited;      /* releases under way */
	unsigned count;
	struct force_target {
		struct lease_force *force;
		struct lease_op *release; /* under way, or NULL */
		struct lease_holder holder;
		char token[LEASE_TOKEN_LEN];
	} targets[REDLOCK_MASTERS_MAX];
	struct lease_answer answer; /* of the releases so far */
};

static void finish(struct lease_force *force, const struct lease_answer *answer)
{
	struct lease_op *op = force->op;
	uint64_t now_us = clock_now_us();
	op->answer = *answer;
	op->answer.waited_ms = (uint32_t)((now_us - op->began_us) / 1000);
	op->force = NULL;
	free(force);
	lease_op_answered(op, now_us);
}

/* Nothing is deleted: no master has granted anything. */
static void refuse(struct lease_force *force, const struct lease_answer *look, enum lease_status status)
{
	struct lease_answer answer = {.status = status, .votes = look->votes};
	answer.votes.refused = (uint8_t)(answer.votes.refused + answer.votes.granted);
	answer.votes.granted = 0;
	finish(force, &answer);
}

/* Without memory for the next step: as if no master had answered. */
static struct lease_answer make_no_answer(const struct lease_force *force)
{
	uint8_t masters = force->op->core.params.masters;
	return (struct lease_answer){
		.status = LEASE_NO_QUORUM,
		.votes = {.needed = redlock_majority(masters), .failed = masters, .masters = masters},
		.retry_after_ms = force->op->leases->options->retry_max_ms,
	};
}

/* ---- the releases ---- */

/* Which answer says most, where several tokens are released. */
static unsigned weight(enum lease_status status)
{
	return status == LEASE_OK ? 3 : status == LEASE_NO_QUORUM ? 2 : status == LEASE_NOT_OWNER ? 1 : 0;
}

static void note_released(struct force_target *target, const struct lease_answer *answer)
{
	struct lease_force *force = target->force;
	struct lease_answer one = *answer;
	if (force->left_over && one.status == LEASE_EXPIRED)
		one.status = LEASE_OK; /* there was no majority to release: all there was of it is gone */
	if (one.status != LEASE_NOT_OWNER)
		one.holder = target->holder;
	if (weight(one.status) >= weight(force->answer.status))
		force->answer = one;
	if (--force->awaited == 0)
		finish(force, &force->answer);
}

static void on_released(void *arg, const struct lease_answer *answer)
{
	struct force_target *target = arg;
	target->release = NULL;
	note_released(target, answer);
}

static void release(struct lease_force *force)
{
	struct lease_request request = force->op->request;
	const struct lease_answer no_answer = make_no_answer(force);
	unsigned count = force->awaited = force->count;
	assert(count > 0);
	request.call = LEASE_RELEASE;
	force->answer = (struct lease_answer){.status = LEASE_EXPIRED};
	for (unsigned i = 0; i < count; i++) { /* the last one may finish it: do not touch it after that */
		struct force_target *target = &force->targets[i];
		memcpy(request.token, target->token, sizeof request.token);
		target->release = lease_submit(force->op->leases, &request, on_released, target);
		if (!target->release)
			note_released(target, &no_answer);
	}
}

/* ---- what a look saw ---- */

static bool voted(const struct lease_op *look, unsigned i, enum redlock_vote vote)
{
	return redlock_has(look->core.answered, i) && look->core.ballots[i].vote == vote;
}

/* What master i told, if a token of redlockd's holds it there; else NULL. */
static const struct lease_sight *find_ours(const struct lease_op *look, unsigned i)
{
	return voted(look, i, REDLOCK_VOTE_HELD) && look->seen[i].holder.known ? &look->seen[i] : NULL;
}

static unsigned count_seen(const struct lease_op *look, const char token[LEASE_TOKEN_LEN])
{
	unsigned masters = 0;
	for (unsigned i = 0; i < look->core.params.masters; i++) {
		const struct lease_sight *sight = find_ours(look, i);
		masters += sight && memcmp(sight->token, token, LEASE_TOKEN_LEN) == 0;
	}
	return masters;
}

/* Whether a token has a majority, or would have one if all masters held it that did not say what they hold. */
static bool may_be_lease(const struct lease_op *look, const char token[LEASE_TOKEN_LEN])
{
	unsigned masters = count_seen(look, token);
	for (unsigned i = 0; i < look->core.params.masters; i++)
		masters += !voted(look, i, REDLOCK_VOTE_HELD) && !voted(look, i, REDLOCK_VOTE_GONE);
	return masters >= redlock_majority(look->core.params.masters);
}

static struct force_target *find_target(struct lease_force *force, const char token[LEASE_TOKEN_LEN])
{
	for (unsigned i = 0; i < force->count; i++)
		if (memcmp(force->targets[i].token, token, LEASE_TOKEN_LEN) == 0)
			return &force->targets[i];
	return NULL;
}

static void note_target(struct lease_force *force, const struct lease_sight *sight)
{
	struct force_target *target = find_target(force, sight->token);
	if (!target) {
		target = &force->targets[force->count++];
		*target = (struct force_target){.force = force, .holder = sight->holder};
		memcpy(target->token, sight->token, sizeof target->token);
		/* not every master has the last number of a lease: the largest is its fence */
	} else if (sight->holder.fence > target->holder.fence) {
		target->holder.fence = sight->holder.fence;
	}
}

/* The tokens that a look saw: those that may be a lease, or all. */
static void gather(struct lease_force *force, const struct lease_op *look, bool all)
{
	force->count = 0;
	for (unsigned i = 0; i < look->core.params.masters; i++) {
		const struct lease_sight *sight = find_ours(look, i);
		if (sight && (all || may_be_lease(look, sight->token)))
			note_target(force, sight);
	}
}

/* Of those before the pause, the ones that are there after it. */
static void keep_seen(struct lease_force *force, const struct lease_op *look)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < force->count; i++)
		if (count_seen(look, force->targets[i].token) > 0)
			force->targets[kept++] = force->targets[i];
	force->count = kept;
}

/* ---- looking ---- */

/* Whether one holder has a majority, or may have one with those that did not answer: several that are in each other's
 * way do not. */
static bool may_have_majority(const struct lease_answer *look)
{
	const struct redlock_votes *votes = &look->votes;
	return look->held && votes->granted + votes->failed + votes->quarantined >= votes->needed;
}

static void look_again(uv_timer_t *timer);

static void take_first_look(struct lease_force *force, const struct lease_op *look, const struct lease_answer *answer)
{
	gather(force, look, false);
	if (force->count > 0) {
		release(force);
		return;
	}
	gather(force, look, true);
	if (may_have_majority(answer)) { /* by no token of ours */
		refuse(force, answer, LEASE_NOT_OWNER);
	} else if (force->count == 0) {
		refuse(force, answer, answer->held ? LEASE_NOT_OWNER : LEASE_EXPIRED);
	} else {
		force->left_over = true;
		uv_timer_start(&force->op->timer, look_again,
			       UINT64_C(2) * force->op->leases->options->master_timeout_ms + PAUSE_EXTRA_MS, 0);
	}
}

/* Whoever holds it now, or may, came after the first look: then nobody held it when this was asked for. */
static void take_second_look(struct lease_force *force, const struct lease_op *look, const struct lease_answer *answer)
{
	keep_seen(force, look);
	if (may_have_majority(answer) || force->count == 0)
		refuse(force, answer, LEASE_EXPIRED);
	else
		release(force);
}

static void on_looked(void *arg, const struct lease_answer *answer)
{
	struct lease_force *force = arg;
	const struct lease_op *look = force->look;
	force->look = NULL;
	if (answer->status != LEASE_OK)
		finish(force, answer);
	else if (!force->left_over)
		take_first_look(force, look, answer);
	else
		take_second_look(force, look, answer);
}

static void begin_look(struct lease_force *force)
{
	struct lease_request request = force->op->request;
	request.call = LEASE_INSPECT;
	force->look = lease_submit_thorough(force->op->leases, &request, on_looked, force);
	if (force->look)
		return;
	const struct lease_answer no_answer = make_no_answer(force);
	finish(force, &no_answer);
}

static void look_again(uv_timer_t *timer)
{
	struct lease_op *op = timer->data;
	begin_look(op->force);
}

/* ---- calls ---- */

struct lease_op *lease_force_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				    void *arg)
{
	assert(request->call == LEASE_FORCE);
	struct lease_force *force = calloc(1, sizeof *force);
	struct lease_op *op = force ? lease_op_begin(leases, request, done, arg) : NULL;
	if (!op) {
		free(force);
		return NULL;
	}
	op->finished = true; /* the core has no part in it */
	op->force = force;
	force->op = op;
	begin_look(force);
	return op;
}

void lease_force_cancel(struct lease_op *op)
{
	struct lease_force *force = op->force;
	uv_timer_stop(&op->timer);
	if (force->look)
		lease_cancel(force->look);
	for (unsigned i = 0; i < force->count; i++)
		if (force->targets[i].release)
			/* its commands are on their way: it is carried out all the same */
			lease_cancel(force->targets[i].release);
	free(force);
	op->force = NULL;
	lease_op_recycle(op);
}
