/* When a held lease is renewed and when it counts as lost: the rules without timers and masters. Pure.
 *
 *      new ─► resting ──next_us──► renewing ──answered OK──► resting …          told: renewed
 *                ▲                    │ no quorum: a short pause, while validity is left
 *                └────────────────────┤
 *                                     └ not the owner, expired ─► over          told: lost
 *      validity at its end, in any of them ─► over                              told: lost
 *      draining: one more renewal at once, whatever its result ─► over          told: draining (or lost)
 *
 * Time is an argument: CLOCK_BOOTTIME in µs. */
#ifndef HOLD_PLAN_H
#define HOLD_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "leases.h"

#define HOLD_NEVER UINT64_MAX

enum {
	HOLD_RENEWALS_PER_TTL = 3,
	HOLD_PAUSES_PER_TTL = 10,       /* after a renewal that too few masters answered … */
	HOLD_PAUSE_MAX_US = 1000000,    /* … but at most this: a master that is back is found soon */
	HOLD_EARLY_US = 1000,           /* less validity than this is none: the holder cannot be told in time */
	HOLD_DRAIN_PATIENCE_US = 500000 /* a drain waits at most this long for the last renewal */
};

struct hold_plan {
	uint64_t ttl_us;         /* requested each time */
	uint64_t until_us;       /* the validity ends */
	uint64_t next_us;        /* resting: when it is renewed */
	uint64_t sent_us;        /* renewing: since when */
	uint64_t drain_until_us; /* draining: when the holder is told at the latest */
	bool renewing;
	bool doubtful; /* the last renewal had no quorum */
	bool bounded;  /* the last renewal gave less than asked for: the lease is near --max-hold-ms */
	bool draining;
	bool over;
};

/* The next step of the caller. */
enum hold_action {
	HOLD_DO_NOTHING,
	HOLD_DO_RENEW, /* request an extension by ttl_us, then call hold_plan_answered() */
	HOLD_TELL_RENEWED,
	HOLD_TELL_LOST,    /* over; *ret_code says why */
	HOLD_TELL_DRAINING /* over; the lease goes on without being renewed */
};

/* The lease was granted at `granted_us` and is valid until `until_us`; both may be past. */
void hold_plan_init(struct hold_plan *plan, uint64_t granted_us, uint64_t until_us, uint64_t ttl_us);

/* When to call hold_plan_timer(); HOLD_NEVER when the hold is over. */
uint64_t hold_plan_timer_us(const struct hold_plan *plan);

/* If the lease is lost, *ret_code is LEASE_EXPIRED, LEASE_NOT_OWNER or LEASE_NO_QUORUM. */
enum hold_action hold_plan_timer(struct hold_plan *plan, uint64_t now_us, enum lease_status *ret_code);
enum hold_action hold_plan_answered(struct hold_plan *plan, uint64_t now_us, const struct lease_answer *answer,
				    enum lease_status *ret_code);

/* The service is shutting down: the timer is due. `fresh`: the lease was only just granted, so that nothing is gained
 * by renewing it. */
void hold_plan_drain(struct hold_plan *plan, uint64_t now_us, bool fresh);

/* True if hold_plan_timer() would renew now. hold_plan_postpone() puts that off. */
bool hold_plan_renews(const struct hold_plan *plan, uint64_t now_us);
void hold_plan_postpone(struct hold_plan *plan, uint64_t until_us);

#endif
