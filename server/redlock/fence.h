/* The rounds that make a fence. Private to the core.
 *
 * A fence is valid if and only if a majority of masters each executed, while holding this attempt's token, a strict
 * increase of the resource's bucket to exactly that number. The majorities of two valid fences share a master, and
 * there one increase came after the other. So the fences differ and are ordered, without any clock. */
#ifndef REDLOCK_FENCE_H
#define REDLOCK_FENCE_H

#include "redlock.h"

enum redlock_round { REDLOCK_ROUND_OPEN, REDLOCK_ROUND_WON, REDLOCK_ROUND_BEHIND, REDLOCK_ROUND_LOST };

/* True if on a majority the acquire increased the bucket to the guess: then the guess is the fence, in one round. */
bool redlock_fence_guess_holds(const struct redlock *op);

/* Notes the number that a reply carries, and in RAISING its vote on the round. */
void redlock_fence_note(struct redlock *op, const struct redlock_event *event);

/* The state of the current round: WON by a majority; BEHIND: not won, but a higher number may win; LOST. */
enum redlock_round redlock_fence_count(const struct redlock *op);

/* Begins the next round, with a number one above all that were seen and a deadline of its own. Returns the masters to
 * which RAISE goes: all that granted or may have. 0: no time or no numbers are left. */
uint16_t redlock_fence_next_round(struct redlock *op, uint64_t now_us);

/* The deadline of a round: masters that have not answered count as failed. */
void redlock_fence_close_round(struct redlock *op);

#endif
