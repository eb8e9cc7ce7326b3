/* A forced release: an operator releases a lock without its token.
 *
 *     inspect all masters ─► a lease, or a possible one ─► RELEASE with its token ─► answer
 *              │             another program's key: NOT_OWNER
 *              │             no key: EXPIRED
 *              └─ left-overs ─► pause ─► inspect again ─► those still there: RELEASE ─► answer
 *
 * Each release compares the token that the inspection saw, so it never harms a newcomer, however late it arrives.
 *
 * Every token that has a majority, or may have one with the masters that did not answer, is released: it may be the
 * lease. Otherwise a token is an attempt under way, or a left-over of a dead redlockd or of an ended lease. An attempt
 * may become a lease that came after the inspection: it is left alone. A left-over belongs to nobody, but several of
 * them can keep everybody out. Time tells them apart: a master rejects acquisitions older than --master-timeout-ms, so
 * a token that was there before the pause and has no majority after it never gets one.
 *
 * The caller's operation is not run by the core: it stands for the operations that do the work until it is answered. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum { PAUSE_EXTRA_MS = 100 }; /* more than the drift of the clocks and the age of the loop's time */

struct lease_force {
	struct lease_op *op;   /* the caller's */
	struct lease_op *look; /* the inspection under way, or NULL */
	bool left_over;        /* the targets are left-overs: none is a lease */
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
	assert(op->force == force && !force->look);
	op->answer = *answer;
	op->answer.waited_ms = (uint32_t)((now_us - op->began_us) / 1000);
	op->force = NULL;
	free(force);
	lease_op_answered(op, now_us);
}

/* Nothing is deleted: no master has granted anything. */
static void reject(struct lease_force *force, const struct lease_answer *look, enum lease_status status)
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

/* Which answer counts if several tokens are released: the largest. */
static unsigned weight(enum lease_status status)
{
	return status == LEASE_OK ? 3 : status == LEASE_NO_QUORUM ? 2 : status == LEASE_NOT_OWNER ? 1 : 0;
}

static void note_released(struct force_target *target, const struct lease_answer *answer)
{
	struct lease_force *force = target->force;
	struct lease_answer one = *answer;
	assert(force->awaited > 0 && !target->release);
	if (force->left_over && one.status == LEASE_EXPIRED)
		one.status = LEASE_OK; /* there was no majority to release: all of the left-over is gone */
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
	request.operation = LEASE_RELEASE;
	force->answer = (struct lease_answer){.status = LEASE_EXPIRED};
	for (unsigned i = 0; i < count; i++) { /* the last one may free `force` */
		struct force_target *target = &force->targets[i];
		memcpy(request.token, target->token, sizeof request.token);
		target->release = lease_submit_op(force->op->leases, &request, false, on_released, target);
		if (!target->release)
			note_released(target, &no_answer);
	}
}

/* ---- the result of an inspection ---- */

static bool voted(const struct lease_op *look, unsigned i, enum redlock_vote vote)
{
	return redlock_has(look->core.answered, i) && look->core.ballots[i].vote == vote;
}

/* The answer of master i if a token of redlockd's holds the resource there; else NULL. */
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

/* True if a token has a majority, or may have one with the masters that did not answer. */
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
		assert(force->count < REDLOCK_MASTERS_MAX);
		target = &force->targets[force->count++];
		*target = (struct force_target){.force = force, .holder = sight->holder};
		memcpy(target->token, sight->token, sizeof target->token);
		/* not every master has the last number of a lease: the largest is its fence */
	} else if (sight->holder.fence > target->holder.fence) {
		target->holder.fence = sight->holder.fence;
	}
}

/* The targets are the tokens that the inspection saw: those that may be a lease, or all. */
static void gather(struct lease_force *force, const struct lease_op *look, bool all)
{
	force->count = 0;
	for (unsigned i = 0; i < look->core.params.masters; i++) {
		const struct lease_sight *sight = find_ours(look, i);
		if (sight && (all || may_be_lease(look, sight->token)))
			note_target(force, sight);
	}
}

/* Keeps the targets that are still there after the pause. */
static void keep_seen(struct lease_force *force, const struct lease_op *look)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < force->count; i++)
		if (count_seen(look, force->targets[i].token) > 0)
			force->targets[kept++] = force->targets[i];
	force->count = kept;
}

/* ---- inspecting ---- */

/* True if one holder has a majority, or may have one with the masters that did not answer. */
static bool may_have_majority(const struct lease_answer *look)
{
	const struct redlock_votes *votes = &look->votes;
	return look->held && votes->granted + votes->failed + votes->quarantined >= votes->needed;
}

static void on_pause_over(uv_timer_t *timer);

static void handle_first_look(struct lease_force *force, const struct lease_op *look, const struct lease_answer *answer)
{
	gather(force, look, false);
	if (force->count > 0) {
		release(force);
		return;
	}
	gather(force, look, true);
	if (may_have_majority(answer)) { /* of a key that redlockd did not write */
		reject(force, answer, LEASE_NOT_OWNER);
	} else if (force->count == 0) {
		reject(force, answer, answer->held ? LEASE_NOT_OWNER : LEASE_EXPIRED);
	} else {
		force->left_over = true;
		uv_timer_start(&force->op->timer, on_pause_over,
			       UINT64_C(2) * force->op->leases->options->master_timeout_ms + PAUSE_EXTRA_MS, 0);
	}
}

/* A holder that has, or may have, a majority only now came after the request: nobody held the lock then. */
static void handle_second_look(struct lease_force *force, const struct lease_op *look,
			       const struct lease_answer *answer)
{
	keep_seen(force, look);
	if (may_have_majority(answer) || force->count == 0)
		reject(force, answer, LEASE_EXPIRED);
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
		handle_first_look(force, look, answer);
	else
		handle_second_look(force, look, answer);
}

static void begin_look(struct lease_force *force)
{
	struct lease_request request = force->op->request;
	assert(!force->look);
	request.operation = LEASE_INSPECT;
	force->look = lease_submit_op(force->op->leases, &request, true, on_looked, force);
	if (force->look)
		return;
	const struct lease_answer no_answer = make_no_answer(force);
	finish(force, &no_answer);
}

static void on_pause_over(uv_timer_t *timer)
{
	struct lease_op *op = timer->data;
	assert(op->force && op->force->left_over);
	begin_look(op->force);
}

/* ---- submitting and cancelling ---- */

struct lease_op *lease_force_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				    void *arg)
{
	assert(request->operation == LEASE_FORCE);
	struct lease_force *force = calloc(1, sizeof *force);
	struct lease_op *op = force ? lease_op_begin(leases, request, done, arg) : NULL;
	if (!op) {
		free(force);
		return NULL;
	}
	op->finished = true; /* the core does not run it */
	op->force = force;
	force->op = op;
	begin_look(force);
	return op;
}

void lease_force_cancel(struct lease_op *op)
{
	struct lease_force *force = op->force;
	assert(force && force->op == op);
	(void)lease_op_forget_caller(op);
	uv_timer_stop(&op->timer);
	if (force->look)
		lease_submit_cancel(force->look);
	for (unsigned i = 0; i < force->count; i++)
		if (force->targets[i].release)
			/* its commands are under way, and are carried out all the same */
			lease_submit_cancel(force->targets[i].release);
	free(force);
	op->force = NULL;
	lease_op_recycle(op);
}
