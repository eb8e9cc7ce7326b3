/* When the votes of an attempt decide it, and what the decision is. Private to the core. */
#ifndef REDLOCK_DECIDE_H
#define REDLOCK_DECIDE_H

#include "redlock.h"

enum redlock_verdict {
	REDLOCK_UNDECIDED, /* more votes, or the deadline, are needed */
	REDLOCK_RETRY,     /* acquire: nobody won, and another attempt may follow */
	REDLOCK_DECISION   /* *ret_result is the answer */
};

/* Evaluates the ballots that are in. *ret_result is written only with REDLOCK_DECISION. */
enum redlock_verdict redlock_decide(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result);

/* The result of an acquisition whose fence was settled by RAISE: OK if validity is left, else NO_QUORUM. */
void redlock_decide_fenced(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result);
/* The result of one whose fence could not be settled, with no tries left: NO_QUORUM. */
void redlock_decide_unfenced(const struct redlock *op, struct redlock_result *ret_result);

#endif
