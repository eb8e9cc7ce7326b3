/* Counting the ballots of one attempt. Private to the core: pure functions over `struct redlock`. */
#ifndef REDLOCK_TALLY_H
#define REDLOCK_TALLY_H

#include "redlock.h"

struct redlock_tally {
	uint8_t needed;
	uint8_t granted;
	uint8_t held;   /* refused: another token holds it */
	uint8_t queued; /* refused: it is somebody else's turn */
	uint8_t gone;   /* refused: nobody holds it */
	uint8_t failed; /* error, lost or unsent */
	uint8_t quarantined;
	uint8_t pending;    /* no answer yet */
	uint64_t best;      /* the holder that the most masters named; of equals the one named first */
	uint8_t best_votes; /* 0: no master named any */
};

/* Counts what is in so far. */
struct redlock_tally redlock_tally_count(const struct redlock *op);

/* Masters that answered: granted, held, queued or gone. */
uint8_t redlock_tally_answered(const struct redlock_tally *tally);
/* Masters that gave no opinion and could be on anybody's side. */
uint8_t redlock_tally_unknown(const struct redlock_tally *tally);

/* The shortest ttl among the masters that granted. Only if one did. */
uint64_t redlock_tally_shortest_ttl_us(const struct redlock *op);

/* How many µs until enough of the keys that refused us have run out for a majority to be free (acquire): after
 * `needed − granted` more masters, or after the last that refused if that is not enough. */
uint64_t redlock_tally_free_after_us(const struct redlock *op, const struct redlock_tally *tally);

/* True if a holder that is not redlockd's may be what is in the way: its release notifies nobody. False where a
 * majority names one of ours. */
bool redlock_tally_is_foreign(const struct redlock *op);

/* How many µs until a majority may be free, whoever holds the others (inspection). Masters of which nothing is known
 * may be free before that. Only if one holds it. */
uint64_t redlock_tally_kept_for_us(const struct redlock *op, const struct redlock_tally *tally);

/* Inspection: as many waiters as a majority knows of, or as the one that knows the fewest where fewer answered. */
uint32_t redlock_tally_waiters(const struct redlock *op, const struct redlock_tally *tally);

/* The number of the best holder: the largest that a master named, since a RAISE may not have reached all; 0:
 * unknown. */
uint64_t redlock_tally_holder_fence(const struct redlock *op, const struct redlock_tally *tally);
/* The number of a lease that was extended: the largest among the masters that extended it. A majority knows the number
 * that was settled, so a majority of extensions names it, and no larger one was ever tried by the attempt that won. */
uint64_t redlock_tally_lease_fence(const struct redlock *op);

#endif
