/* The rounds that make a fence. Private to the core.
 *
 * A fence is valid if and only if a majority of masters each executed, while holding this attempt's token, a strict
 * increase of the resource's bucket to exactly that number. Two valid fences share a master, and there one increase
 * came after the other: so they differ and are ordered, without any clock. */
#ifndef REDLOCK_FENCE_H
#define REDLOCK_FENCE_H

#include "redlock.h"

enum redlock_round { REDLOCK_ROUND_OPEN, REDLOCK_ROUND_WON, REDLOCK_ROUND_BEHIND, REDLOCK_ROUND_LOST };

/* True if a majority granted the acquire with a number below the guess before it: the guess is the fence, in one
 * round. */
bool redlock_fence_guess_holds(const struct redlock *op);

/* Takes note of what a reply says of the numbers, and in RAISING of its round. */
void redlock_fence_note(struct redlock *op, const struct redlock_event *event);

/* Where the current round of RAISE stands: WON by a majority; BEHIND: not, but with a higher number it may be; LOST. */
enum redlock_round redlock_fence_count(const struct redlock *op);

/* Begins the next round, one above all that was seen, with a deadline of its own. Returns the masters to which RAISE
 * goes: all that granted or may have. 0: no time is left, or no numbers. */
uint16_t redlock_fence_next_round(struct redlock *op, uint64_t now_us);

/* The deadline of a round: whoever was silent counts as failed. */
void redlock_fence_close_round(struct redlock *op);

#endif
