/* All held leases of one worker, as the worker sees them. What the HTTP side calls is in hold.h. */
#ifndef HOLDS_H
#define HOLDS_H

#include "hold.h"
#include "server/metrics/metrics.h"

struct uv_loop_s;

/* NULL where memory is short. All arguments outlive it. */
struct holds *holds_new(struct uv_loop_s *loop, struct leases *leases, struct metrics *metrics);

/* From now on every hold, also one that is made yet, is renewed once more and ends with HOLD_DRAINING. */
void holds_drain(struct holds *holds);

/* When all are dropped: closes the timers. Run the loop until it is empty, then holds_free(). */
void holds_close(struct holds *holds);
void holds_free(struct holds *holds);

#endif
