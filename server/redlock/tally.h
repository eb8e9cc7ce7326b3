/* Counting the ballots of one attempt. Private to the core: pure functions over `struct redlock`.
 *
 * Majorities are whole numbers of the configured masters: no floating point, no notion of "reachable" masters. */
#ifndef REDLOCK_TALLY_H
#define REDLOCK_TALLY_H

#include "redlock.h"

struct redlock_tally {
	uint8_t needed;
	uint8_t granted;
	uint8_t held;   /* refused: another token holds it */
	uint8_t queued; /* refused: it is the turn of another waiter */
	uint8_t gone;   /* refused: nobody holds it */
	uint8_t failed; /* error, lost or unsent */
	uint8_t quarantined;
	uint8_t pending;    /* no answer yet */
	uint64_t best;      /* the holder that the most masters named; of equals, the first */
	uint8_t best_votes; /* 0: no master named any */
};

/* Counts the ballots that are in. */
struct redlock_tally redlock_tally_count(const struct redlock *op);

/* Masters that answered: granted, held, queued or gone. */
uint8_t redlock_tally_answered(const struct redlock_tally *tally);
/* Masters whose state is unknown, and may be in favour of anything. */
uint8_t redlock_tally_unknown(const struct redlock_tally *tally);

/* The shortest ttl that a master granted; without a grant the ttl that was asked for. */
uint64_t redlock_tally_shortest_ttl_us(const struct redlock *op);

/* Acquire: how many µs until enough of the keys that refused us have run out for a majority, which is when
 * `needed − granted` more masters are free, or the last one that refused if those are too few. */
uint64_t redlock_tally_free_after_us(const struct redlock *op, const struct redlock_tally *tally);

/* True if a holder of another library may be what refuses us: its release notifies nobody. False if a majority names a
 * holder of redlockd's. */
bool redlock_tally_is_other_library(const struct redlock *op);

/* Inspection: how many µs until a majority may be free, whoever holds the others. Masters whose state is unknown may be
 * free earlier. Only if a master holds it. */
uint64_t redlock_tally_kept_for_us(const struct redlock *op, const struct redlock_tally *tally);

/* Inspection: as many waiters as a majority knows of; if fewer answered, the smallest number among them. */
uint32_t redlock_tally_waiters(const struct redlock *op, const struct redlock_tally *tally);

/* The fence of the best holder: the largest that a master named, since a RAISE may not have reached all; 0: unknown. */
uint64_t redlock_tally_holder_fence(const struct redlock *op, const struct redlock_tally *tally);
/* The fence of a lease that was extended: the largest among the masters that extended it. A majority knows the fence
 * that was settled, so a majority of extensions names it, and the attempt that won never tried a larger one. */
uint64_t redlock_tally_lease_fence(const struct redlock *op);

#endif
