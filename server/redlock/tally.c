/* Counting the ballots of one attempt: see tally.h. */
#include "tally.h"

#include <assert.h>
#include <stddef.h>

uint8_t redlock_majority(uint8_t masters)
{
	assert(masters >= 1);
	assert(masters <= REDLOCK_MASTERS_MAX);
	return (uint8_t)(masters / 2 + (MUTATED(MUTATION_QUORUM_HALF) ? 0 : 1));
}

static bool names_holder(const struct redlock *op, unsigned i)
{
	assert(i < op->params.masters);
	return redlock_has(op->answered, i) && op->ballots[i].vote == REDLOCK_VOTE_HELD;
}

/* The number of masters that name the same holder as master i. */
static uint8_t count_holder(const struct redlock *op, unsigned i)
{
	uint8_t votes = 0;
	assert(names_holder(op, i));
	for (unsigned j = 0; j < op->params.masters; j++)
		if (names_holder(op, j) && op->ballots[j].holder == op->ballots[i].holder)
			votes++;
	assert(votes >= 1);
	return votes;
}

static void find_best_holder(const struct redlock *op, struct redlock_tally *tally)
{
	assert(tally->held > 0);
	assert(tally->best_votes == 0);
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (!names_holder(op, i))
			continue;
		uint8_t votes = count_holder(op, i);
		if (votes > tally->best_votes) {
			tally->best_votes = votes;
			tally->best = op->ballots[i].holder;
		}
	}
	assert(tally->best_votes >= 1);
}

struct redlock_tally redlock_tally_count(const struct redlock *op)
{
	struct redlock_tally tally = {.needed = redlock_majority(op->params.masters)};
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (!redlock_has(op->answered, i)) {
			tally.pending++;
			continue;
		}
		switch (op->ballots[i].vote) {
		case REDLOCK_VOTE_GRANTED: tally.granted++; break;
		case REDLOCK_VOTE_BEHIND: break; /* never a ballot: the answer to a RAISE */
		case REDLOCK_VOTE_QUEUED: tally.queued++; break;
		case REDLOCK_VOTE_HELD: tally.held++; break;
		case REDLOCK_VOTE_GONE: tally.gone++; break;
		case REDLOCK_VOTE_FAILED:
		case REDLOCK_VOTE_UNSENT: tally.failed++; break;
		case REDLOCK_VOTE_QUARANTINED: tally.quarantined++; break;
		}
	}
	if (tally.held > 0)
		find_best_holder(op, &tally);
	assert(tally.granted + tally.held + tally.queued + tally.gone + tally.failed + tally.quarantined +
		       tally.pending ==
	       op->params.masters);
	assert(tally.best_votes <= tally.held);
	return tally;
}

uint8_t redlock_tally_answered(const struct redlock_tally *tally)
{
	int answered = tally->granted + tally->held + tally->queued + tally->gone;
	assert(answered <= REDLOCK_MASTERS_MAX);
	return (uint8_t)answered;
}

uint8_t redlock_tally_unknown(const struct redlock_tally *tally)
{
	int unknown = tally->failed + tally->quarantined + tally->pending;
	assert(unknown <= REDLOCK_MASTERS_MAX);
	return (uint8_t)unknown;
}

uint64_t redlock_tally_shortest_ttl_us(const struct redlock *op)
{
	assert(op->params.kind == REDLOCK_ACQUIRE || op->params.kind == REDLOCK_EXTEND);
	uint64_t shortest = op->params.ttl_us;
	for (unsigned i = 0; i < op->params.masters; i++) {
		const struct redlock_ballot *ballot = &op->ballots[i];
		if (redlock_has(op->answered, i) && ballot->vote == REDLOCK_VOTE_GRANTED && ballot->ttl_us < shortest)
			shortest = ballot->ttl_us;
	}
	assert(shortest <= op->params.ttl_us);
	return shortest;
}

/* Puts `value` into the ascending list of `count` values. */
static void insert_sorted(uint64_t *values, size_t count, uint64_t value)
{
	assert(count < REDLOCK_MASTERS_MAX);
	size_t at = count;
	for (; at > 0 && values[at - 1] > value; at--)
		values[at] = values[at - 1];
	values[at] = value;
	assert((at == 0 || values[at - 1] <= value));
	assert((at == count || value < values[at + 1]));
}

uint64_t redlock_tally_free_after_us(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	uint64_t remaining[REDLOCK_MASTERS_MAX];
	size_t count = 0;
	for (unsigned i = 0; i < op->params.masters; i++) {
		bool queued = redlock_has(op->answered, i) && op->ballots[i].vote == REDLOCK_VOTE_QUEUED;
		if (!names_holder(op, i) && !queued)
			continue;
		uint64_t us = op->ballots[i].remaining_us;
		insert_sorted(remaining, count++, us == REDLOCK_NEVER ? op->params.ttl_us : us);
	}
	assert(count == (size_t)tally->held + tally->queued);
	if (count == 0)
		return 0;
	size_t missing = tally->granted < tally->needed ? (size_t)(tally->needed - tally->granted) : 1;
	return remaining[missing <= count ? missing - 1 : count - 1];
}

bool redlock_tally_is_other_library(const struct redlock *op)
{
	assert(op->params.wait_us > 0);
	struct redlock_tally tally = redlock_tally_count(op);
	bool other_library = false, ours = false;
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (!names_holder(op, i))
			continue;
		other_library |= op->ballots[i].other_library;
		ours |= !op->ballots[i].other_library && op->ballots[i].holder == tally.best;
	}
	assert(tally.held > 0 || (!other_library && !ours));
	return other_library && !(ours && tally.best_votes >= tally.needed);
}

uint64_t redlock_tally_kept_for_us(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(tally->held > 0);
	uint64_t remaining[REDLOCK_MASTERS_MAX];
	size_t count = 0, blocking = (size_t)(op->params.masters - tally->needed + 1);
	for (unsigned i = 0; i < op->params.masters; i++)
		if (names_holder(op, i))
			insert_sorted(remaining, count++, op->ballots[i].remaining_us);
	assert(count == tally->held);
	assert(blocking >= 1);
	return remaining[count > blocking ? count - blocking : 0];
}

uint32_t redlock_tally_waiters(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(op->params.kind == REDLOCK_INSPECT);
	uint64_t waiters[REDLOCK_MASTERS_MAX];
	size_t count = 0;
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(op->answered, i) &&
		    (op->ballots[i].vote == REDLOCK_VOTE_HELD || op->ballots[i].vote == REDLOCK_VOTE_GONE))
			insert_sorted(waiters, count++, op->ballots[i].waiters);
	assert(count == (size_t)tally->held + tally->gone);
	if (count == 0)
		return 0;
	return (uint32_t)waiters[count > tally->needed ? count - tally->needed : 0];
}

uint64_t redlock_tally_holder_fence(const struct redlock *op, const struct redlock_tally *tally)
{
	uint64_t fence = 0;
	assert(tally->best_votes <= tally->held);
	for (unsigned i = 0; i < op->params.masters && tally->best_votes > 0; i++)
		if (names_holder(op, i) && op->ballots[i].holder == tally->best && op->ballots[i].fence > fence)
			fence = op->ballots[i].fence;
	return fence;
}

uint64_t redlock_tally_lease_fence(const struct redlock *op)
{
	uint64_t fence = 0;
	assert(op->params.kind == REDLOCK_EXTEND);
	assert(op->state == REDLOCK_VOTING);
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(op->answered, i) && op->ballots[i].vote == REDLOCK_VOTE_GRANTED &&
		    op->ballots[i].fence > fence)
			fence = op->ballots[i].fence;
	return fence;
}
