/* The decision over one attempt.
 *
 * An attempt is decided as soon as the votes that are in leave only one answer; nobody waits for a hung master whose
 * vote could not change it. "May have" below means: together with the masters that gave no opinion (failed,
 * quarantined) it would be a majority. What cannot be ruled out is never answered with "nobody has it".
 *
 *   acquire  majority granted, validity > 0                      OK (step 3 and 4)
 *            majority granted, no validity left                  NO_QUORUM: too late
 *            one other holder has a majority                     LOCKED
 *            no majority possible, nor for any one holder:
 *              fewer than a majority answered                    NO_QUORUM
 *              it is somebody else's turn in the line            LOCKED
 *              tries left                                        retry after a random pause
 *              another holder may have a majority                LOCKED
 *              else                                              SPLIT
 *   extend   majority extended, validity > 0                     OK, else NO_QUORUM
 *   release  majority released                                   OK
 *   both     a majority says another has it                      NOT_OWNER
 *            a majority says nobody has it                       EXPIRED
 *            all answers are in: see decide_rest()
 *   inspect  a majority names one holder                         OK, held
 *            a majority is free                                  OK, free
 *            all answers are in: fewer than a majority are free  OK, held; NO_QUORUM if too few answered
 *            So held is what an acquisition would find: whoever holds it, and however many they are, no majority is
 *            to be had. */
#include "decide.h"

#include <assert.h>
#include <string.h>

#include "tally.h"

static struct redlock_votes count_votes(const struct redlock *op, const struct redlock_tally *tally)
{
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
	return votes;
}

static enum redlock_verdict conclude(const struct redlock *op, const struct redlock_tally *tally,
				     enum redlock_outcome outcome, struct redlock_result *ret)
{
	memset(ret, 0, sizeof *ret);
	ret->outcome = outcome;
	ret->tries = op->attempt;
	ret->votes = count_votes(op, tally);
	ret->ttl_us = op->params.ttl_us;
	ret->has_holder = outcome != REDLOCK_OK && tally->best_votes > 0;
	ret->holder = tally->best;
	ret->holder_fence = redlock_tally_holder_fence(op, tally);
	ret->rounds = op->round;
	if (outcome == REDLOCK_LOCKED)
		ret->retry_after_us = redlock_tally_free_after_us(op, tally);
	else if (outcome == REDLOCK_SPLIT || outcome == REDLOCK_NO_QUORUM)
		ret->retry_after_us = op->params.retry_max_us;
	return REDLOCK_DECISION;
}

/* Steps 3 and 4: validity = ttl − elapsed − drift, counted from the start of this attempt; it must be left. */
static enum redlock_verdict conclude_majority(const struct redlock *op, const struct redlock_tally *tally,
					      uint64_t now_us, struct redlock_result *ret)
{
	assert(tally->granted >= tally->needed);
	assert(now_us >= op->start_us);
	uint64_t ttl_us = redlock_tally_shortest_ttl_us(op);
	uint64_t spent_us = (MUTATED(MUTATION_NO_VALIDITY_CHECK) ? 0 : now_us - op->start_us) + op->params.drift_us;
	if (spent_us >= ttl_us)
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret);
	conclude(op, tally, REDLOCK_OK, ret);
	ret->ttl_us = ttl_us;
	ret->validity_us = ttl_us - spent_us;
	ret->fence = op->params.kind == REDLOCK_EXTEND ? redlock_tally_lease_fence(op) : op->fence;
	return REDLOCK_DECISION;
}

static enum redlock_verdict decide_acquire(const struct redlock *op, const struct redlock_tally *tally, uint64_t now_us,
					   struct redlock_result *ret)
{
	if (tally->granted >= tally->needed)
		return conclude_majority(op, tally, now_us, ret);
	if (tally->best_votes >= tally->needed)
		return conclude(op, tally, REDLOCK_LOCKED, ret);
	if (tally->granted + tally->pending >= tally->needed)
		return REDLOCK_UNDECIDED;
	if (tally->pending > 0 && tally->queued == 0 && tally->best_votes + tally->pending >= tally->needed)
		return REDLOCK_UNDECIDED; /* locked or merely split: the pending ones will tell */
	if (redlock_tally_answered(tally) < tally->needed) {
		if (redlock_tally_answered(tally) + tally->pending >= tally->needed)
			return REDLOCK_UNDECIDED; /* no quorum or merely split */
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret);
	}
	if (tally->queued > 0)
		return conclude(op, tally, REDLOCK_LOCKED, ret);
	bool may_be_held = tally->best_votes > 0 && tally->best_votes + redlock_tally_unknown(tally) >= tally->needed;
	bool waits = op->params.wait_us > 0;
	if (waits ? !may_be_held : op->attempt < op->params.tries)
		return REDLOCK_RETRY;
	if (may_be_held)
		return conclude(op, tally, REDLOCK_LOCKED, ret);
	return conclude(op, tally, REDLOCK_SPLIT, ret);
}

/* The end of a wait: who holds it now? That somebody does, or that it was another one's turn, is known from before. */
static enum redlock_verdict decide_leaving(const struct redlock *op, const struct redlock_tally *tally,
					   struct redlock_result *ret)
{
	if (tally->best_votes < tally->needed && tally->pending > 0)
		return REDLOCK_UNDECIDED;
	return conclude(op, tally, redlock_tally_answered(tally) < tally->needed ? REDLOCK_NO_QUORUM : REDLOCK_LOCKED,
			ret);
}

/* Extend and release with all votes in and no majority of any kind: `ours` masters still had this token. */
static enum redlock_verdict decide_rest(const struct redlock *op, const struct redlock_tally *tally,
					struct redlock_result *ret)
{
	uint8_t unknown = redlock_tally_unknown(tally);
	if (redlock_tally_answered(tally) < tally->needed)
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret);
	if (tally->granted > 0 && tally->granted + unknown >= tally->needed) {
		/* The lease may have had its majority until now. Released here, too few others can still hold it for it
		 * to live on; extended here, nobody can say whether a majority is. */
		bool released = op->params.kind == REDLOCK_RELEASE;
		return conclude(op, tally, released ? REDLOCK_OK : REDLOCK_NO_QUORUM, ret);
	}
	if (tally->held > 0 && tally->held + unknown >= tally->needed)
		return conclude(op, tally, REDLOCK_NOT_OWNER, ret);
	return conclude(op, tally, REDLOCK_EXPIRED, ret);
}

static enum redlock_verdict decide_owned(const struct redlock *op, const struct redlock_tally *tally, uint64_t now_us,
					 struct redlock_result *ret)
{
	if (tally->granted >= tally->needed)
		return op->params.kind == REDLOCK_EXTEND ? conclude_majority(op, tally, now_us, ret)
							 : conclude(op, tally, REDLOCK_OK, ret);
	if (tally->held >= tally->needed)
		return conclude(op, tally, REDLOCK_NOT_OWNER, ret);
	if (tally->gone >= tally->needed)
		return conclude(op, tally, REDLOCK_EXPIRED, ret);
	return tally->pending > 0 ? REDLOCK_UNDECIDED : decide_rest(op, tally, ret);
}

static enum redlock_verdict decide_inspect(const struct redlock *op, const struct redlock_tally *tally,
					   struct redlock_result *ret)
{
	bool is_clear = tally->best_votes >= tally->needed || tally->gone >= tally->needed;
	if (tally->pending > 0 && (op->params.wait_for_all || !is_clear))
		return REDLOCK_UNDECIDED;
	if (redlock_tally_answered(tally) < tally->needed)
		return conclude(op, tally, REDLOCK_NO_QUORUM, ret);
	conclude(op, tally, REDLOCK_OK, ret);
	ret->waiters = redlock_tally_waiters(op, tally);
	ret->held = tally->held > 0 && tally->gone < tally->needed;
	ret->has_holder = ret->held;
	if (ret->held)
		ret->remaining_us = redlock_tally_kept_for_us(op, tally);
	return REDLOCK_DECISION;
}

void redlock_decide_fenced(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result)
{
	struct redlock_tally tally = redlock_tally_count(op);
	conclude_majority(op, &tally, now_us, ret_result);
}

void redlock_decide_unfenced(const struct redlock *op, struct redlock_result *ret_result)
{
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
