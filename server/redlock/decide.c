/* SPDX-License-Identifier: MIT */
/* The decision on one attempt. It is made as soon as the votes received leave only one answer. So it does not wait for
 * a hung master whose vote cannot change it.
 *
 * The rules are at decide_acquire(), decide_owned(), decide_rest() and decide_inspect(). A holder "may have a majority"
 * if it has one together with the masters whose state is unknown (failed, quarantined). While one may, the answer is
 * never that nobody holds the lock. */
#include <assert.h>

#include "redlock_internal.h"

/* ---- the rules ---- */

/* Acquire:
 *   majority granted, validity > 0                      OK (step 3 and 4)
 *   majority granted, no validity left                  NO_QUORUM: too late
 *   one other holder has a majority                     LOCKED, but see below
 *   no majority possible, nor for any one holder:
 *     fewer than a majority answered                    NO_QUORUM
 *     it is the turn of another waiter                  LOCKED
 *     tries left                                        another attempt after a random pause
 *     another holder may have a majority                LOCKED, but see below
 *     else                                              SPLIT
 * Slots: if another slot may be free on a majority and tries are left, another attempt follows at once instead of
 * LOCKED. */
static int decide_acquire(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->state == REDLOCK_VOTING);
	bool has_tries = redlock_is_waiter(op) || op->attempt < op->params.tries;
	if (tally->granted >= tally->needed)
		return REDLOCK_OK;
	bool elsewhere = redlock_tally_is_elsewhere(tally);
	if (tally->best_votes >= tally->needed)
		return elsewhere && has_tries ? REDLOCK_RETRY : REDLOCK_LOCKED;
	if (tally->granted + tally->pending >= tally->needed)
		return REDLOCK_UNDECIDED;
	if (tally->pending > 0 && tally->queued == 0 && tally->best_votes + tally->pending >= tally->needed)
		return REDLOCK_UNDECIDED; /* LOCKED or SPLIT */
	if (tally->answered < tally->needed && tally->answered + tally->pending >= tally->needed)
		return REDLOCK_UNDECIDED; /* NO_QUORUM or SPLIT */
	if (tally->answered < tally->needed)
		return REDLOCK_NO_QUORUM;
	if (tally->queued > 0)
		return REDLOCK_LOCKED;
	bool may_be_held = tally->best_votes > 0 && tally->best_votes + tally->unknown >= tally->needed;
	if (redlock_is_waiter(op) ? !may_be_held || elsewhere : has_tries)
		return REDLOCK_RETRY;
	return may_be_held ? REDLOCK_LOCKED : REDLOCK_SPLIT;
}

/* The end of a wait: finds out who holds the lock now. The earlier attempts have shown that it is held, or that it is
 * another waiter's turn. */
static int decide_leaving(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(redlock_is_waiter(op));
	assert(op->state == REDLOCK_LEAVING);
	if (tally->best_votes < tally->needed && tally->pending > 0)
		return REDLOCK_UNDECIDED;
	return tally->answered < tally->needed ? REDLOCK_NO_QUORUM : REDLOCK_LOCKED;
}

/* Extend and release, all votes are in, no majority of any kind:
 *   fewer than a majority answered                      NO_QUORUM
 *   this token may have had a majority                  release: OK; extend, and a release that keeps: NO_QUORUM
 *   others may have a majority                          NOT_OWNER
 *   else                                                EXPIRED */
static int decide_rest(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(tally->pending == 0);
	assert(tally->granted < tally->needed);
	assert(tally->held < tally->needed);
	assert(tally->gone < tally->needed);
	if (tally->answered < tally->needed)
		return REDLOCK_NO_QUORUM;
	/* The lease may have had its majority until now. After a release too few masters are left for a majority. After
	 * an extension it is unknown whether a majority extended, and likewise whether one keeps the lock. */
	if (tally->granted > 0 && tally->granted + tally->unknown >= tally->needed)
		return op->params.kind == REDLOCK_RELEASE && !op->params.keeps ? REDLOCK_OK : REDLOCK_NO_QUORUM;
	bool may_be_held = tally->held > 0 && tally->held + tally->unknown >= tally->needed;
	return may_be_held ? REDLOCK_NOT_OWNER : REDLOCK_EXPIRED;
}

/* Extend and release:
 *   majority extended, validity > 0                     OK, else NO_QUORUM
 *   majority released                                   OK
 *   a majority says that others hold it                 NOT_OWNER
 *   a majority says that nobody holds it                EXPIRED
 *   all votes are in                                    see decide_rest() */
static int decide_owned(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(op->params.kind == REDLOCK_EXTEND || op->params.kind == REDLOCK_RELEASE);
	assert(op->state == REDLOCK_VOTING);
	if (tally->granted >= tally->needed)
		return REDLOCK_OK;
	if (tally->held >= tally->needed)
		return REDLOCK_NOT_OWNER;
	if (tally->gone >= tally->needed)
		return REDLOCK_EXPIRED;
	return tally->pending > 0 ? REDLOCK_UNDECIDED : decide_rest(op, tally);
}

/* Inspect:
 *   a majority names one holder                         OK, held
 *   a majority is free                                  OK, free
 *   all votes are in, fewer than a majority free        OK, held; NO_QUORUM if too few answered
 * So "held" means that an acquisition could not win a majority now, whoever the holders are. */
static int decide_inspect(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(op->params.kind == REDLOCK_INSPECT);
	assert(op->state == REDLOCK_VOTING);
	bool is_clear = tally->best_votes >= tally->needed || tally->gone >= tally->needed;
	if (tally->pending > 0 && (op->params.wait_for_all || !is_clear))
		return REDLOCK_UNDECIDED;
	return tally->answered < tally->needed ? REDLOCK_NO_QUORUM : REDLOCK_OK;
}

/* ---- the result ---- */

static struct redlock_votes count_votes(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(tally->needed == redlock_majority(op->params.masters));
	bool inspects = op->params.kind == REDLOCK_INSPECT;
	struct redlock_votes votes = {
		.needed = tally->needed,
		.granted = inspects ? tally->best_votes : tally->granted,
		.refused = (uint8_t)(tally->answered - (inspects ? tally->best_votes : tally->granted)),
		.failed = tally->failed,
		.quarantined = tally->quarantined,
		.masters = op->params.masters,
	};
	assert(votes.granted + votes.refused + votes.failed + votes.quarantined <= votes.masters);
	return votes;
}

/* A lease that a majority gave. Steps 3 and 4: validity = ttl − elapsed − drift, counted from the start of this
 * attempt. None left: NO_QUORUM. */
static void conclude_lease(const struct redlock *op, const struct redlock_tally *tally, uint64_t now_us,
			   struct redlock_result *result)
{
	assert(tally->granted >= tally->needed);
	assert(now_us >= op->start_us);
	uint64_t ttl_us = redlock_tally_shortest_ttl_us(op);
	uint64_t spent_us = now_us - op->start_us + op->params.drift_us;
	if (spent_us >= ttl_us) {
		result->outcome = REDLOCK_NO_QUORUM;
		return;
	}
	result->ttl_us = ttl_us;
	result->validity_us = ttl_us - spent_us;
	result->fence = op->fence;
	/* A majority stores the settled fence, so one of the masters that extended names it. None names a larger one:
	 * the attempt that won never tried it. */
	if (op->params.kind == REDLOCK_EXTEND) {
		result->fence = redlock_tally_highest_fence(op, redlock_tally_voted(op, REDLOCK_VOTE_GRANTED));
		result->waiters = redlock_tally_waiters(op, tally);
	}
	assert(result->validity_us > 0);
	assert(result->validity_us <= op->params.ttl_us);
}

static void conclude(const struct redlock *op, const struct redlock_tally *tally, enum redlock_outcome outcome,
		     uint64_t now_us, struct redlock_result *ret_result)
{
	assert(op->attempt > 0);
	assert(outcome != REDLOCK_CANCELLED);
	struct redlock_result result = {
		.outcome = outcome,
		.votes = count_votes(op, tally),
		.tries = op->attempt,
		.rounds = op->round,
		.ttl_us = op->params.ttl_us,
		.holder = tally->best,
	};
	if (tally->best_votes > 0) /* the largest, since a RAISE may not have reached all masters */
		result.holder_fence = redlock_tally_highest_fence(op, redlock_tally_named(op, tally->best));
	if (outcome == REDLOCK_OK && op->params.kind == REDLOCK_INSPECT) {
		result.waiters = redlock_tally_waiters(op, tally);
		result.held = tally->held > 0 && tally->gone < tally->needed;
		assert(!result.held || tally->best_votes > 0);
		if (result.held)
			result.remaining_us = redlock_tally_kept_for_us(op, tally);
	} else if (outcome == REDLOCK_OK && op->params.kind != REDLOCK_RELEASE) {
		conclude_lease(op, tally, now_us, &result);
	} else if (outcome == REDLOCK_OK && op->params.keeps && now_us - op->start_us > op->params.master_timeout_us) {
		result.outcome =
			REDLOCK_NO_QUORUM; /* a quarantine waits for no later votes (docs/explanation/proofs.md) */
	}
	result.has_holder = result.held || (result.outcome != REDLOCK_OK && tally->best_votes > 0);
	if (result.outcome == REDLOCK_LOCKED)
		result.retry_after_us = redlock_tally_free_after_us(op, tally);
	else if (result.outcome == REDLOCK_SPLIT || result.outcome == REDLOCK_NO_QUORUM)
		result.retry_after_us = op->params.retry_max_us;
	*ret_result = result;
}

void redlock_decide_fence(const struct redlock *op, bool is_settled, uint64_t now_us, struct redlock_result *ret_result)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->state == REDLOCK_RAISING || (op->state == REDLOCK_VOTING && !is_settled));
	struct redlock_tally tally = redlock_tally_count(op);
	conclude(op, &tally, is_settled ? REDLOCK_OK : REDLOCK_NO_QUORUM, now_us, ret_result);
}

int redlock_decide(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result)
{
	static int (*const rules[])(const struct redlock *, const struct redlock_tally *) = {
		[REDLOCK_ACQUIRE] = decide_acquire,
		[REDLOCK_EXTEND] = decide_owned,
		[REDLOCK_RELEASE] = decide_owned,
		[REDLOCK_INSPECT] = decide_inspect,
	};
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_LEAVING);
	assert(op->params.kind <= REDLOCK_INSPECT);
	struct redlock_tally tally = redlock_tally_count(op);
	int decided = op->state == REDLOCK_LEAVING ? decide_leaving(op, &tally) : rules[op->params.kind](op, &tally);
	if (decided >= 0)
		conclude(op, &tally, (enum redlock_outcome)decided, now_us, ret_result);
	return decided;
}
