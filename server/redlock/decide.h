/* When the votes of an attempt decide it, and what they mean. Private to the core. */
#ifndef REDLOCK_DECIDE_H
#define REDLOCK_DECIDE_H

#include "redlock.h"

enum redlock_verdict {
	REDLOCK_UNDECIDED, /* wait for more votes or the deadline */
	REDLOCK_RETRY,     /* acquire: nobody won and there are tries left */
	REDLOCK_DECISION   /* *ret_result is the answer */
};

/* Looks at the ballots that are in. *ret_result is written only with REDLOCK_DECISION. */
enum redlock_verdict redlock_decide(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result);

/* The answers of an acquisition whose fence was settled by RAISE: OK if validity is left, NO_QUORUM if not. */
void redlock_decide_fenced(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result);
/* … and of one whose fence could not be settled, tries used up: NO_QUORUM. */
void redlock_decide_unfenced(const struct redlock *op, struct redlock_result *ret_result);

#endif
