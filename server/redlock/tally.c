/* SPDX-License-Identifier: MIT */
/* Counting the ballots of one attempt: pure functions over `struct redlock`. */
#include <assert.h>
#include <stddef.h>

#include "redlock_internal.h"

uint8_t redlock_majority(uint8_t masters)
{
	assert(masters >= 1);
	assert(masters <= REDLOCK_MASTERS_MAX);
	return (uint8_t)(masters / 2 + 1);
}

bool redlock_tally_is_majority(const struct redlock *op, uint16_t set)
{
	assert((set & ~redlock_all_masters(op)) == 0);
	return __builtin_popcount(set) >= redlock_majority(op->params.masters);
}

uint16_t redlock_tally_voted(const struct redlock *op, enum redlock_vote vote)
{
	uint16_t set = 0;
	assert(vote <= REDLOCK_VOTE_QUEUED);
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(op->answered, i) && op->ballots[i].vote == vote)
			set |= (uint16_t)(1U << i);
	assert((set & ~op->answered) == 0);
	return set;
}

uint16_t redlock_tally_named(const struct redlock *op, uint64_t holder)
{
	uint16_t held = redlock_tally_voted(op, REDLOCK_VOTE_HELD), set = 0;
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(held, i) && op->ballots[i].holder == holder)
			set |= (uint16_t)(1U << i);
	assert((set & ~held) == 0);
	return set;
}

static void find_best_holder(const struct redlock *op, struct redlock_tally *tally)
{
	uint16_t held = redlock_tally_voted(op, REDLOCK_VOTE_HELD);
	assert(tally->held > 0);
	assert(tally->best_votes == 0);
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (!redlock_has(held, i))
			continue;
		uint8_t votes = (uint8_t)__builtin_popcount(redlock_tally_named(op, op->ballots[i].holder));
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
		case REDLOCK_VOTE_STALE: break; /* never a ballot: the answer to a RAISE */
		case REDLOCK_VOTE_QUEUED: tally.queued++; break;
		case REDLOCK_VOTE_HELD:
			tally.held++;
			tally.elsewhere += op->ballots[i].elsewhere;
			break;
		case REDLOCK_VOTE_GONE: tally.gone++; break;
		case REDLOCK_VOTE_FAILED:
		case REDLOCK_VOTE_UNSENT: tally.failed++; break;
		case REDLOCK_VOTE_QUARANTINED: tally.quarantined++; break;
		}
	}
	if (tally.held > 0)
		find_best_holder(op, &tally);
	tally.answered = (uint8_t)(tally.granted + tally.held + tally.queued + tally.gone);
	tally.unknown = (uint8_t)(tally.failed + tally.quarantined + tally.pending);
	assert(tally.answered + tally.unknown == op->params.masters);
	assert(tally.best_votes <= tally.held && tally.elsewhere <= tally.held);
	return tally;
}

bool redlock_tally_is_elsewhere(const struct redlock_tally *tally)
{
	assert(tally->elsewhere <= tally->held);
	assert(tally->needed > 0);
	return tally->elsewhere > 0 && tally->held - tally->elsewhere < tally->needed;
}

uint64_t redlock_tally_highest_fence(const struct redlock *op, uint16_t set)
{
	uint64_t fence = 0;
	assert((set & ~op->answered) == 0);
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(set, i) && op->ballots[i].fence > fence)
			fence = op->ballots[i].fence;
	return fence;
}

uint64_t redlock_tally_shortest_ttl_us(const struct redlock *op)
{
	assert(op->params.kind == REDLOCK_ACQUIRE || op->params.kind == REDLOCK_EXTEND);
	uint16_t granted = redlock_tally_voted(op, REDLOCK_VOTE_GRANTED);
	uint64_t shortest = op->params.ttl_us;
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(granted, i) && op->ballots[i].ttl_us < shortest)
			shortest = op->ballots[i].ttl_us;
	assert(shortest <= op->params.ttl_us);
	return shortest;
}

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

/* Writes the ascending list of how long the key still lasts on each master of the set; for NEVER `never_us`. */
static size_t sort_remaining(const struct redlock *op, uint16_t set, uint64_t never_us,
			     uint64_t ret_us[REDLOCK_MASTERS_MAX])
{
	size_t count = 0;
	assert((set & ~op->answered) == 0);
	for (unsigned i = 0; i < op->params.masters; i++) {
		uint64_t us = op->ballots[i].remaining_us;
		if (redlock_has(set, i))
			insert_sorted(ret_us, count++, us == REDLOCK_NEVER ? never_us : us);
	}
	assert(count == (size_t)__builtin_popcount(set));
	return count;
}

uint64_t redlock_tally_free_after_us(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	uint16_t refused = redlock_tally_voted(op, REDLOCK_VOTE_HELD) | redlock_tally_voted(op, REDLOCK_VOTE_QUEUED);
	uint64_t remaining[REDLOCK_MASTERS_MAX];
	size_t count = sort_remaining(op, refused, op->params.ttl_us, remaining);
	assert(count == (size_t)tally->held + tally->queued);
	if (count == 0)
		return 0;
	size_t missing = tally->granted < tally->needed ? (size_t)(tally->needed - tally->granted) : 1;
	return remaining[missing <= count ? missing - 1 : count - 1];
}

bool redlock_tally_is_other_library(const struct redlock *op)
{
	assert(op->params.wait_us > 0);
	uint16_t held = redlock_tally_voted(op, REDLOCK_VOTE_HELD);
	struct redlock_tally tally = redlock_tally_count(op);
	bool other_library = false, ours = false;
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (!redlock_has(held, i))
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
	size_t count = sort_remaining(op, redlock_tally_voted(op, REDLOCK_VOTE_HELD), REDLOCK_NEVER, remaining);
	size_t blocking = (size_t)op->params.masters + 1 - tally->needed;
	assert(count >= 1 && blocking >= 1);
	return remaining[count > blocking ? count - blocking : 0];
}

uint32_t redlock_tally_waiters(const struct redlock *op, const struct redlock_tally *tally)
{
	assert(op->params.kind == REDLOCK_INSPECT || op->params.kind == REDLOCK_EXTEND);
	uint16_t reported = redlock_tally_voted(op, REDLOCK_VOTE_GRANTED);
	if (op->params.kind == REDLOCK_INSPECT)
		reported = redlock_tally_voted(op, REDLOCK_VOTE_HELD) | redlock_tally_voted(op, REDLOCK_VOTE_GONE);
	uint64_t waiters[REDLOCK_MASTERS_MAX] = {0};
	size_t count = 0;
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(reported, i))
			insert_sorted(waiters, count++, op->ballots[i].waiters);
	size_t unknown = op->params.masters - count;
	if (count == 0)
		return 0;
	return (uint32_t)waiters[count - (tally->needed > unknown ? tally->needed - unknown : 1)];
}
