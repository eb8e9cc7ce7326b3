/* The decision on one attempt: made as soon as the votes that are in leave only one answer, so that a hung master whose
 * vote could not change it is not waited for.
 *
 * The rules are at decide_acquire(), decide_owned(), decide_rest() and decide_inspect(). "May have" means: a majority
 * together with the masters whose state is unknown (failed, quarantined). While that is possible the answer is never
 * that nobody has it. */
#include "decide.h"

#include <assert.h>
#include <string.h>

#include "tally.h"

static struct redlock_votes count_votes(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(tally->needed == redlock_majority(op->params.masters));
	struct redlock_votes votes = {
		.needed = tally->needed,
		.granted = tally->granted,
		.refused = (uint8_t)(tally->held + tally->queued + tally->gone),
		.failed = tally->failed,
		.quarantined = tally->quarantined,
		.masters = op->params.masters,
	};
	if (op->params.kind == REDLOCK_INSPECT) {
		votes.granted = tally->best_votes;
		votes.refused = (uint8_t)(redlock_tally_answered(tally) - tally->best_votes);
	}
	assert(votes.granted + votes.refused + votes.failed + votes.quarantined <= votes.masters);
	return votes;
}

static enum redlock_verdict conclude(const struct redlock *op, const struct redlock_tally *tally,
				     enum redlock_outcome outcome, struct redlock_result *ret_result)
{
	assert(op->attempt > 0);
	assert(outcome != REDLOCK_CANCELLED);
	memset(ret_result, 0, sizeof *ret_result);
	ret_result->outcome = outcome;
	ret_result->tries = op->attempt;
	ret_result->votes = count_votes(op, tally);
	ret_result->ttl_us = op->params.ttl_us;
	ret_result->has_holder = outcome != REDLOCK_OK && tally->best_votes > 0;
	ret_result->holder = tally->best;
	ret_result->holder_fence = redlock_tally_holder_fence(op, tally);
	ret_result->rounds = op->round;
	if (outcome == REDLOCK_LOCKED)
		ret_result->retry_after_us = redlock_tally_free_after_us(op, tally);
	else if (outcome == REDLOCK_SPLIT || outcome == REDLOCK_NO_QUORUM)
		ret_result->retry_after_us = op->params.retry_max_us;
	return REDLOCK_DECISION;
}

/* Steps 3 and 4: validity = ttl − elapsed − drift, counted from the start of this attempt; it must be left. */
static enum redlock_verdict conclude_majority(const struct redlock *op, const struct redlock_tally *tally,
					      uint64_t now_us, struct redlock_result *ret_result)
{
	assert(tally->granted >= tally->needed);
	assert(now_us >= op->start_us);
	uint64_t ttl_us = redlock_tally_shortest_ttl_us(op);
	uint64_t spent_us = (MUTATED(MUTATION_NO_VALIDITY_CHECK) ? 0 : now_us - op->start_us) + op->params.drift_us;
	if (spent_us >= ttl_us)
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret_result);
	conclude(op, tally, REDLOCK_OK, ret_result);
	ret_result->ttl_us = ttl_us;
	ret_result->validity_us = ttl_us - spent_us;
	assert(ret_result->validity_us > 0);
	assert(ret_result->validity_us <= op->params.ttl_us);
	ret_result->fence = op->params.kind == REDLOCK_EXTEND ? redlock_tally_lease_fence(op) : op->fence;
	return REDLOCK_DECISION;
}

/* Acquire:
 *   majority granted, validity > 0                      OK (step 3 and 4)
 *   majority granted, no validity left                  NO_QUORUM: too late
 *   one other holder has a majority                     LOCKED
 *   no majority possible, nor for any one holder:
 *     fewer than a majority answered                    NO_QUORUM
 *     it is the turn of another waiter                  LOCKED
 *     tries left                                        another attempt after a random pause
 *     another holder may have a majority                LOCKED
 *     else                                              SPLIT */
static enum redlock_verdict decide_acquire(const struct redlock *op, const struct redlock_tally *tally, uint64_t now_us,
					   struct redlock_result *ret_result)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->state == REDLOCK_VOTING);
	if (tally->granted >= tally->needed)
		return conclude_majority(op, tally, now_us, ret_result);
	if (tally->best_votes >= tally->needed)
		return conclude(op, tally, REDLOCK_LOCKED, ret_result);
	if (tally->granted + tally->pending >= tally->needed)
		return REDLOCK_UNDECIDED;
	if (tally->pending > 0 && tally->queued == 0 && tally->best_votes + tally->pending >= tally->needed)
		return REDLOCK_UNDECIDED; /* LOCKED or SPLIT */
	if (redlock_tally_answered(tally) < tally->needed) {
		if (redlock_tally_answered(tally) + tally->pending >= tally->needed)
			return REDLOCK_UNDECIDED; /* NO_QUORUM or SPLIT */
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret_result);
	}
	if (tally->queued > 0)
		return conclude(op, tally, REDLOCK_LOCKED, ret_result);
	bool may_be_held = tally->best_votes > 0 && tally->best_votes + redlock_tally_unknown(tally) >= tally->needed;
	bool waits = op->params.wait_us > 0;
	if (waits ? !may_be_held : op->attempt < op->params.tries)
		return REDLOCK_RETRY;
	if (may_be_held)
		return conclude(op, tally, REDLOCK_LOCKED, ret_result);
	return conclude(op, tally, REDLOCK_SPLIT, ret_result);
}

/* The end of a wait: finds out who holds the lock now. That it is held, or that it is the turn of another waiter, is
 * known from the attempts before. */
static enum redlock_verdict decide_leaving(const struct redlock *op, const struct redlock_tally *tally,
					   struct redlock_result *ret_result)
{
	assert(op->params.wait_us > 0);
	assert(op->state == REDLOCK_LEAVING);
	if (tally->best_votes < tally->needed && tally->pending > 0)
		return REDLOCK_UNDECIDED;
	return conclude(op, tally, redlock_tally_answered(tally) < tally->needed ? REDLOCK_NO_QUORUM : REDLOCK_LOCKED,
			ret_result);
}

/* Extend and release, all votes are in, no majority of any kind:
 *   fewer than a majority answered                      NO_QUORUM
 *   this token may have had a majority                  release: OK, extend: NO_QUORUM
 *   others may have a majority                          NOT_OWNER
 *   else                                                EXPIRED */
static enum redlock_verdict decide_rest(const struct redlock *op, const struct redlock_tally *tally,
					struct redlock_result *ret_result)
{
	assert(tally->pending == 0);
	assert(tally->granted < tally->needed);
	assert(tally->held < tally->needed);
	assert(tally->gone < tally->needed);
	uint8_t unknown = redlock_tally_unknown(tally);
	if (redlock_tally_answered(tally) < tally->needed)
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret_result);
	if (tally->granted > 0 && tally->granted + unknown >= tally->needed) {
		/* The lease may have had its majority until now. After a release too few masters are left for one.
		 * After an extension it is unknown whether a majority extended. */
		bool released = op->params.kind == REDLOCK_RELEASE;
		return conclude(op, tally, released ? REDLOCK_OK : REDLOCK_NO_QUORUM, ret_result);
	}
	if (tally->held > 0 && tally->held + unknown >= tally->needed)
		return conclude(op, tally, REDLOCK_NOT_OWNER, ret_result);
	return conclude(op, tally, REDLOCK_EXPIRED, ret_result);
}

/* Extend and release:
 *   majority extended, validity > 0                     OK, else NO_QUORUM
 *   majority released                                   OK
 *   a majority says that others hold it                 NOT_OWNER
 *   a majority says that nobody holds it                EXPIRED
 *   all votes are in                                    see decide_rest() */
static enum redlock_verdict decide_owned(const struct redlock *op, const struct redlock_tally *tally, uint64_t now_us,
					 struct redlock_result *ret_result)
{
	assert(op->params.kind == REDLOCK_EXTEND || op->params.kind == REDLOCK_RELEASE);
	assert(op->state == REDLOCK_VOTING);
	if (tally->granted >= tally->needed)
		return op->params.kind == REDLOCK_EXTEND ? conclude_majority(op, tally, now_us, ret_result)
							 : conclude(op, tally, REDLOCK_OK, ret_result);
	if (tally->held >= tally->needed)
		return conclude(op, tally, REDLOCK_NOT_OWNER, ret_result);
	if (tally->gone >= tally->needed)
		return conclude(op, tally, REDLOCK_EXPIRED, ret_result);
	return tally->pending > 0 ? REDLOCK_UNDECIDED : decide_rest(op, tally, ret_result);
}

/* Inspect:
 *   a majority names one holder                         OK, held
 *   a majority is free                                  OK, free
 *   all votes are in, fewer than a majority free        OK, held; NO_QUORUM if too few answered
 * So "held" predicts an acquisition: no majority can be won, whoever the holders are. */
static enum redlock_verdict decide_inspect(const struct redlock *op, const struct redlock_tally *tally,
					   struct redlock_result *ret_result)
{
	assert(op->params.kind == REDLOCK_INSPECT);
	assert(op->state == REDLOCK_VOTING);
	bool is_clear = tally->best_votes >= tally->needed || tally->gone >= tally->needed;
	if (tally->pending > 0 && (op->params.wait_for_all || !is_clear))
		return REDLOCK_UNDECIDED;
	if (redlock_tally_answered(tally) < tally->needed)
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret_result);
	conclude(op, tally, REDLOCK_OK, ret_result);
	ret_result->waiters = redlock_tally_waiters(op, tally);
	ret_result->held = tally->held > 0 && tally->gone < tally->needed;
	ret_result->has_holder = ret_result->held;
	assert(!ret_result->has_holder || tally->best_votes > 0);
	if (ret_result->held)
		ret_result->remaining_us = redlock_tally_kept_for_us(op, tally);
	return REDLOCK_DECISION;
}

void redlock_decide_fenced(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->state == REDLOCK_RAISING);
	struct redlock_tally tally = redlock_tally_count(op);
	conclude_majority(op, &tally, now_us, ret_result);
}

void redlock_decide_unfenced(const struct redlock *op, struct redlock_result *ret_result)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING);
	struct redlock_tally tally = redlock_tally_count(op);
	conclude(op, &tally, REDLOCK_NO_QUORUM, ret_result);
}

enum redlock_verdict redlock_decide(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result)
{
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_LEAVING);
	struct redlock_tally tally = redlock_tally_count(op);
	if (op->state == REDLOCK_LEAVING)
		return decide_leaving(op, &tally, ret_result);
	switch (op->params.kind) {
	case REDLOCK_ACQUIRE: return decide_acquire(op, &tally, now_us, ret_result);
	case REDLOCK_EXTEND:
	case REDLOCK_RELEASE: return decide_owned(op, &tally, now_us, ret_result);
	case REDLOCK_INSPECT: break;
	}
	return decide_inspect(op, &tally, ret_result);
}
