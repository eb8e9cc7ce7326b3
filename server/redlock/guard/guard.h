/* The restart guard: which masters may vote, as a pure state machine. One `struct guard` is one worker's view of all
 * masters.
 *
 * A master that lost its memory must not vote until every lease that it may have forgotten has run out. Each master
 * holds a epoch (a random number, with the run_id of the server that it was written for); every script compares it.
 * Where the epoch does not fit, the master is quarantined: a marker is written there, the longest lease is waited out
 * on our own clock over one unbroken connection, the largest fence of N−Q+1 other masters is asked for, and the marker
 * becomes the new epoch by compare-and-set.
 *
 *                 epoch fits
 *   ABSENT ─► ASKING ──────────────────────────────────────────► VOTING ─┐ another epoch, clock jumped,
 *               │ none, or another server's                              ▼ evicted, rolled back
 *               └────────────────────────────────────────────────► MARKING ── QUARANTINE ──► WAITING
 *                                                     VOTING ◄── WRITE_EPOCH ── RECOVERING ◄─────────────────┘
 *
 * No clock, no I/O, no heap, as in the core (redlock.h). The caller's duties:
 *   - guard_event() for what happened; then guard_next() for each master until it says NONE, each action carried out
 *     and answered by exactly one event of its kind, or FAILED. Again once a second and when guard_deadline_us() has
 *     passed.
 *   - READ also once a second by itself on every connection (the heartbeat).
 *   - guard_time() with the TIME of every answer, before anything else is made of the answer.
 *   - Commands to a master are sent over one connection in order; when it breaks, LOST.
 *
 * Nothing here looks at a master's uptime: that is wall-clock time, and the jump that drops locks also makes an uptime
 * look old. All times are microseconds. Sources: the specification's "Safety arguments" (crash recovery, delayed
 * restarts), and docs/architecture.md. */
#ifndef REDLOCK_GUARD_H
#define REDLOCK_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "server/redlock/redlock.h"

enum guard_state {
	GUARD_ABSENT,        /* no connection */
	GUARD_ASKING,        /* connected; its epoch is not read yet */
	GUARD_VOTING,        /* it has an epoch that fits: scripts carry it */
	GUARD_MARKING,       /* is to be quarantined: QUARANTINE is to be sent or under way */
	GUARD_WAITING,       /* quarantined: the longest lease is waited out */
	GUARD_RECOVERING,    /* the wait is over: other masters' fences are asked for */
	GUARD_WRITING_EPOCH, /* WRITE_EPOCH is under way */
	/* with the epoch of another cluster or other settings: never voting, nothing is written there */
	GUARD_FOREIGN
};

/* Why a master is quarantined. */
enum guard_reason {
	GUARD_NO_REASON,
	GUARD_NO_EPOCH,      /* none when the connection began */
	GUARD_RESTARTED,     /* the epoch was written for another server (run_id) */
	GUARD_BAD_EPOCH,     /* a script found another one or none: flushed, evicted, exchanged */
	GUARD_CLOCK_FORWARD, /* its clock jumped forward: locks ran out early */
	GUARD_EVICTED,       /* it dropped keys for want of memory */
	GUARD_ROLLED_BACK,   /* its heartbeat or its client ids went backwards: an older image of the machine */
	GUARD_OTHER_DIGEST,  /* with the epoch of another number of masters or buckets */
	GUARD_OTHER_CLUSTER
};

struct guard_params {
	uint8_t masters;     /* N */
	uint64_t max_ttl_us; /* the longest lease that this process gives */
	/* of the longest lease, added when it is waited out: its drift, as far as it grows with the lease */
	uint32_t drift_ppm;
	uint64_t margin_us; /* … and the rest: the constant part of the drift + 2 s */
	uint16_t slices;    /* in so many SURVEYs a master tells its fences; 0: one */
	uint64_t digest;    /* of what all replicas must agree on */
	bool bootstrap;     /* where no master has an epoch the cluster is new: nothing to wait for */
	uint64_t seed;      /* for markers and the cluster id: random, different in every process and worker */
};

enum guard_event_kind {
	GUARD_CONNECTED,     /* run_id, client_id: a new connection, all of its server said */
	GUARD_EPOCH,         /* the answer to READ, or of the heartbeat: the epoch's members */
	GUARD_QUARANTINED,   /* the answer to QUARANTINE: done; if so marker, kept, ttl_us */
	GUARD_FENCES,        /* the answer to SURVEY: done (false: another epoch); if so fence, ttl_us */
	GUARD_EPOCH_WRITTEN, /* the answer to WRITE_EPOCH: done */
	/* action: it was answered by an error, or could not be sent: tried again at the next heartbeat */
	GUARD_FAILED,
	GUARD_MISMATCH,     /* a script said: another epoch than `epoch`, which it carried */
	GUARD_DROPPED_KEYS, /* evicted_keys grew */
	GUARD_UNUSABLE,     /* it answers, but cannot be used, and no epoch was seen there. Also without a connection */
	GUARD_LOST          /* the connection is gone */
};

enum guard_action_kind {
	GUARD_NOTHING,
	GUARD_READ,       /* epoch.lua */
	GUARD_QUARANTINE, /* quarantine.lua: epoch (as read; 0: none), marker, kept, ttl_us */
	GUARD_SURVEY,     /* fences.lua: epoch (or the marker), slice: which one of params.slices */
	GUARD_WRITE_EPOCH /* epoch_write.lua: marker, cluster, ttl_us, fence (the floor), clocked */
};

/* No lease is longer. What is waited for where a marker does not say how long leases are: one of an older version. */
#define GUARD_TTL_MAX_US UINT64_C(86400000000)

/* 0 stands for "none" in epoch, cluster, marker and marker_run_id, and for "not known" in ttl_us. */
struct guard_event {
	enum guard_event_kind kind;
	uint8_t master;
	uint64_t now_us; /* our own clock; never goes backwards */
	uint64_t run_id, client_id;
	uint64_t beat;
	uint64_t epoch, epoch_run_id, cluster, digest, ttl_us;
	uint64_t marker, marker_run_id;
	uint64_t clocked_us; /* EPOCH: when its floor was last made of clocks, in the master's own time; 0: never */
	bool kept;
	bool done;
	uint64_t fence;
	enum guard_action_kind action; /* FAILED; READ where it was the heartbeat's */
};

struct guard_action {
	enum guard_action_kind kind;
	uint64_t epoch, marker, cluster, ttl_us, fence;
	uint16_t slice;
	bool kept, clocked;
};

enum guard_clock { GUARD_CLOCK_STEADY, GUARD_CLOCK_JUMPED_FORWARD, GUARD_CLOCK_JUMPED_BACK };

struct guard_master {
	enum guard_state state;
	enum guard_reason reason;    /* unless VOTING, ABSENT or ASKING */
	enum guard_action_kind busy; /* under way */
	bool again;                  /* FAILED: nothing more until the next heartbeat */
	bool seen;                   /* run_id, client_id, beat are of an earlier connection or this one */
	enum guard_reason found;     /* CLOCK_FORWARD, EVICTED, ROLLED_BACK: found, and not yet dealt with */
	bool lost;                   /* it forgot fences, as far as anybody knows; stays over a broken connection */
	bool kept;                   /* its buckets are all there though it is quarantined */
	bool clocks;                 /* WRITING_EPOCH: its floor rests on clocks */
	bool skip;                   /* bootstrap: nothing to wait for */
	/* UNUSABLE, and neither connected nor read since: a new cluster begins without it */
	bool unusable;
	bool read; /* its epoch was read on this connection */
	uint64_t run_id, client_id, beat;
	uint64_t epoch;          /* VOTING: what scripts carry; ASKING: what did not fit, 0: nothing so far */
	uint64_t gone_epoch;     /* was trusted under this run_id, and was found gone; 0: none */
	uint64_t chosen_cluster; /* WRITING_EPOCH: that it is with the epoch of, if it is */
	uint64_t cluster;        /* as read, also where the epoch is gone; 0: it never had one */
	uint64_t void_epoch;     /* MARKING: the one that QUARANTINE takes away */
	uint64_t marker;
	uint64_t ttl_us;       /* the longest lease, as it says */
	bool ttl_unknown;      /* it has a marker, and says nothing beside it */
	uint64_t since_us;     /* WAITING: from when the wait counts */
	uint64_t heard_us;     /* the last answer to READ */
	uint64_t recovery_us;  /* RECOVERING: since when */
	uint64_t survey_us;    /* when the first SURVEY of all slices was sent to it … */
	uint64_t survey_epoch; /* … and with which epoch or marker: with another one it begins anew */
	uint64_t survey_top;   /* the largest fence of the slices told so far */
	uint64_t told_us;      /* when it told a slice last */
	uint16_t slice;        /* which one is next */
	uint16_t surveyed;     /* RECOVERING: bit j: master j told its fences since recovery_us */
	uint64_t lost_us;      /* lost: since when, as far as we know */
	/* when its floor was last made of clocks, on our clock; 0: never, or before we knew it */
	uint64_t clocked_us;
	uint64_t top; /* the largest of them */
	bool has_clock;
	int64_t ahead_min_us, ahead_max_us; /* its clock − our clock lies between */
	uint64_t clock_us;                  /* … as of then */
	int64_t jump_us;                    /* the last jump found */
};

struct guard {
	struct guard_params params;
	uint64_t random;
	bool bootstrap_open; /* --bootstrap was given and no epoch was seen so far */
	struct guard_master masters[REDLOCK_MASTERS_MAX];
};

/* Makes *guard ready, all masters ABSENT. */
void guard_init(struct guard *guard, const struct guard_params *params);

/* Takes in what happened. */
void guard_event(struct guard *guard, const struct guard_event *event);

/* What is to be sent to master i now; it counts as under way from then on. `wall_us`: the time of day, for a floor that
 * must rest on clocks. Writes all of *ret_action. */
void guard_next(struct guard *guard, unsigned i, uint64_t now_us, uint64_t wall_us, struct guard_action *ret_action);

/* The longest lease that anybody gives, as far as is known: what READ and the heartbeat carry. */
uint64_t guard_longest_us(const struct guard *guard);

/* Compares the TIME that an answer of master i carried with all before it. The command was sent at sent_us, the answer
 * read at now_us. Forward: what the answer says must not count, and the master is quarantined. */
enum guard_clock guard_time(struct guard *guard, unsigned i, uint64_t sent_us, uint64_t now_us, uint64_t master_us);

/* Master i's own time when ours is at_us, at the latest; 0: not known yet. For deadlines: never too early. */
uint64_t guard_master_time_us(const struct guard *guard, unsigned i, uint64_t at_us);

/* True if master i may vote, as far as its memory is concerned. */
bool guard_may_vote(const struct guard *guard, unsigned i);

/* Quarantined: how long at least until it may vote; 0: what is missing is not time. */
uint64_t guard_quarantine_left_us(const struct guard *guard, unsigned i, uint64_t now_us);

/* RECOVERING: how many more masters must tell their fences; 0: enough did. */
unsigned guard_fences_missing(const struct guard *guard, unsigned i);

/* True while something is to be sent or under way that takes no longer than a few round trips. */
bool guard_in_motion(const struct guard *guard, unsigned i);

/* When guard_next() may say something new without any event, or REDLOCK_NEVER. */
uint64_t guard_deadline_us(const struct guard *guard);

/* "restarted", "bad-epoch", …: static. */
const char *guard_reason_name(enum guard_reason reason);

#endif
