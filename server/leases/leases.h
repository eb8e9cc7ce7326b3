/* All operations of one worker, as the worker sees them. What the HTTP side calls is in lease.h. */
#ifndef LEASES_H
#define LEASES_H

#include "hold.h"
#include "holds.h"
#include "lease.h"
#include "server/config/config.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"

struct uv_loop_s;

/* NULL where memory is short. All arguments outlive it. */
struct leases *leases_new(struct uv_loop_s *loop, const struct options *options, struct masters *masters,
			  struct metrics *metrics);

/* Hands out the answers that have come since the last call; true if there were any. Once per round of the loop. */
bool leases_pump(struct leases *leases);

/* From now on acquisitions are answered LEASE_DRAINING; extensions and releases go on. */
void leases_drain(struct leases *leases);

/* Operations that somebody still waits for. */
size_t leases_waiting(const struct leases *leases);

/* After masters_close(): hands out the last answers and closes the timers of all operations. Run the loop until it is
 * empty, then leases_free(). */
void leases_close(struct leases *leases);
void leases_free(struct leases *leases);

#endif
