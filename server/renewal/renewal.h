/* SPDX-License-Identifier: MIT */
/* Decides when a held lease is extended, and when its holder must have ended. A pure state machine of times
 * (CLOCK_BOOTTIME) and answers, for held connections of the daemon and for `redlockctl run`.
 *
 *   0        1/3 of the validity                        end              kill      deadline
 *   |-----------|----------------------------------------|-----------------|----------|
 *   sent        ASK; if that fails: a pause, ASK ...     END               KILL       somebody else may
 *                                                        |<- notice ------>|<-margin->| hold the lock
 *
 * An extension moves all times: they count from before its request was sent. It never brings the deadline nearer. */
#ifndef RENEWAL_H
#define RENEWAL_H

#include <stdbool.h>
#include <stdint.h>

struct renewal_config {
	uint64_t ttl_us;    /* requested each time */
	uint64_t notice_us; /* between RENEWAL_END and RENEWAL_KILL; the daemon has none */
	uint64_t margin_us; /* the holder must have ended this long before the deadline */
};

enum renewal_state {
	RENEWAL_IDLE,    /* until next_us */
	RENEWAL_ASKING,  /* a request is under way */
	RENEWAL_PAUSING, /* a request has failed; the next one is sent at next_us */
	RENEWAL_ENDING,  /* the holder was asked to end; it must have ended at kill_us */
	RENEWAL_KILLING
};

enum renewal_why {
	RENEWAL_WHY_NONE,
	RENEWAL_WHY_LOST,        /* by an answer: somebody else holds it, or nobody */
	RENEWAL_WHY_UNREACHABLE, /* it could not be extended in time */
	RENEWAL_WHY_BOUND,       /* it can be extended no further: --max-hold-ms */
	RENEWAL_WHY_LATE,        /* not tried in time: the machine slept, or this process was stopped */
	RENEWAL_WHY_REQUESTED,   /* by the holder or its user */
	RENEWAL_WHY_DRAINING     /* renewal_drain() was called; the lease goes on without being extended */
};

/* RENEWAL_ASK: request an extension by ttl_us, then report its result. */
enum renewal_action { RENEWAL_NOTHING, RENEWAL_ASK, RENEWAL_END, RENEWAL_KILL };

struct renewal {
	struct renewal_config config;
	enum renewal_state state;
	enum renewal_why why;
	bool bounded;         /* the last extension gave less than asked for */
	uint64_t deadline_us; /* the validity ends */
	uint64_t sent_us;     /* asking: since when */
	uint64_t next_us, kill_us;
	uint64_t drain_us; /* when RENEWAL_WHY_DRAINING ends it at the latest; UINT64_MAX: never */
};

/* The lease was granted with `validity_us` from `sent_us`; both that and its end may be past. */
void renewal_init(struct renewal *renewal, const struct renewal_config *config, uint64_t sent_us, uint64_t validity_us);

/* The events. Each returns the next action; only renewal_time() returns RENEWAL_ASK. The results of a request follow
 * RENEWAL_ASK; after RENEWAL_END they are ignored. `ttl_us` and `validity_us` count from the request of the
 * extension. */
enum renewal_action renewal_time(struct renewal *renewal, uint64_t now_us);
enum renewal_action renewal_extended(struct renewal *renewal, uint64_t ttl_us, uint64_t validity_us, uint64_t now_us);
enum renewal_action renewal_failed(struct renewal *renewal, uint64_t pause_us, uint64_t now_us);
/* RENEWAL_WHY_LOST or RENEWAL_WHY_REQUESTED. */
enum renewal_action renewal_finish(struct renewal *renewal, enum renewal_why why, uint64_t now_us);

/* The latest time for the next renewal_time(). */
uint64_t renewal_next_us(const struct renewal *renewal, uint64_t now_us);

/* The pause after a failure. A caller that can ask another server pauses less. */
uint64_t renewal_pause_us(const struct renewal *renewal);

/* The service is shutting down: asks once more at once, and ends after the answer, or after a while without one.
 * `fresh`: the lease was just granted, so it does not ask. The caller then calls renewal_time(). */
void renewal_drain(struct renewal *renewal, uint64_t now_us, bool fresh);

bool renewal_is_over(const struct renewal *renewal);

/* When RENEWAL_END is due, and RENEWAL_KILL. */
uint64_t renewal_end_us(const struct renewal *renewal);
uint64_t renewal_kill_us(const struct renewal *renewal);

#endif
