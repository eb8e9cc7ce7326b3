/* SPDX-License-Identifier: MIT */
/* The restart guard: which masters may vote, as a pure state machine (no clock, no I/O, no heap). One `struct guard` is
 * one worker's view of all masters.
 *
 *                 epoch fits
 *   ABSENT ─► ASKING ──────────────────────────────────────────► VOTING ─┐ another epoch, clock jumped,
 *               │ none, or another server's                              ▼ evicted, rolled back
 *               └────────────────────────────────────────────────► MARKING ── QUARANTINE ──► WAITING
 *                                                     VOTING ◄── WRITE_EPOCH ── RECOVERING ◄─────────────────┘
 *
 * A master that lost its memory must not vote until every lease that it may have forgotten has run out. Each master
 * holds an epoch (a random number, and the run_id of the server that it was written for), which every script compares.
 * A master whose epoch does not fit is quarantined: QUARANTINE writes a marker there. The guard waits out the longest
 * lease on our own clock, over one unbroken connection, and collects the largest fence of N−Q+1 other masters. Then
 * WRITE_EPOCH turns the marker into the new epoch by compare-and-set. The uptime of a master is never used: it is
 * wall-clock time, and a jump of the clock that drops locks also makes the uptime look long.
 *
 * All times are microseconds. Sources: the specification's "Safety arguments" (crash recovery, delayed restarts), and
 * docs/contributing/architecture.md. */
#ifndef REDLOCK_GUARD_H
#define REDLOCK_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "server/redlock/redlock.h"

enum guard_state {
	GUARD_ABSENT,        /* no connection */
	GUARD_ASKING,        /* connected; READ is to be sent or under way */
	GUARD_VOTING,        /* its epoch fits, and scripts carry it */
	GUARD_MARKING,       /* QUARANTINE is to be sent or under way */
	GUARD_WAITING,       /* quarantined: the longest lease is waited out */
	GUARD_RECOVERING,    /* quarantined: the wait is over, the fences of other masters are collected */
	GUARD_WRITING_EPOCH, /* quarantined: WRITE_EPOCH is under way */
	GUARD_REJECTED /* of another cluster or with other settings: it never votes, and nothing is written there */
};

/* Why a master is quarantined or rejected. */
enum guard_reason {
	GUARD_NO_REASON,
	GUARD_NO_EPOCH,      /* no epoch when the connection began */
	GUARD_RESTARTED,     /* its epoch was written for another server (run_id) */
	GUARD_BAD_EPOCH,     /* a script found another one or none: flushed, evicted, exchanged */
	GUARD_CLOCK_FORWARD, /* its clock jumped forward: locks ran out early */
	GUARD_EVICTED,       /* it dropped keys to free memory */
	/* its heartbeat or its client ids went backwards: an older image of the machine; or it was replaced and came
	 * back */
	GUARD_ROLLED_BACK,
	GUARD_NOT_DURABLE,  /* durable masters: it may forget what it answered, by its settings or its replicas */
	GUARD_OTHER_DIGEST, /* REJECTED: another version or number of masters; quarantined if taken over */
	GUARD_OTHER_CLUSTER /* REJECTED, or quarantined if the other cluster was made at the same time as ours */
};

struct guard_params {
	uint8_t masters;     /* N */
	uint64_t max_ttl_us; /* the longest lease that this process gives */
	uint32_t drift_ppm;  /* a quarantine lasts for the longest lease + this part of it + margin_us */
	uint64_t margin_us;  /* the constant part of the drift + 2 s */
	uint64_t timeout_us; /* how long a command of this process may be under way */
	bool waits_longest;  /* a quarantine always lasts for the longest lease: other libraries give leases, too */
	uint16_t slices;     /* how many SURVEYs it takes to read all fences of a master; 0: one */
	uint64_t digest;     /* of the settings that all replicas must share; not 0 */
	bool durable;        /* a master that restarts with all that it answered keeps its epoch */
	bool bootstrap;      /* the cluster is new if no master has an epoch; hashes of others are taken over */
	uint64_t seed;       /* for markers and the cluster id: random, different in every process and worker */
};

enum guard_event_kind {
	GUARD_CONNECTED,   /* run_id, client_id: a new connection, after its handshake */
	GUARD_EPOCH,       /* the answer to READ, or of the heartbeat: all members of the epoch */
	GUARD_QUARANTINED, /* the answer to QUARANTINE: done; if so marker, kept, ttl_us */
	/* the answer to SURVEY: done (false: another epoch); if so fence, ttl_us, leases_us, timeout_us */
	GUARD_FENCES,
	GUARD_EPOCH_WRITTEN, /* the answer to WRITE_EPOCH: done */
	GUARD_FAILED,        /* `action` failed or could not be sent: tried again after the next heartbeat */
	GUARD_MISMATCH,      /* a script found another epoch than `epoch`, which it carried */
	GUARD_DROPPED_KEYS,  /* evicted_keys grew */
	GUARD_WEAKENED,      /* durable masters: what it answers from now on may be lost */
	GUARD_UNUSABLE, /* it answers, but cannot be used, and no epoch was seen there; also without a connection */
	GUARD_LOST      /* the connection is lost */
};

enum guard_action_kind {
	GUARD_NOTHING,
	GUARD_READ,       /* epoch.lua: epoch (to keep; 0: none) */
	GUARD_QUARANTINE, /* quarantine.lua: epoch (as read; 0: none), marker, kept, ttl_us; takes_over, digest */
	GUARD_SURVEY,     /* fences.lua: epoch (or the marker), slice: one of params.slices */
	GUARD_WRITE_EPOCH /* epoch_write.lua: marker, cluster, ttl_us, fence (the floor), clocked */
};

/* In place of an action under way: one has failed, and the next one waits for the heartbeat. */
enum { GUARD_HELD_BACK = GUARD_WRITE_EPOCH + 1 };

/* Whether a master remembers its fences. This outlasts a connection, except for KEPT.
 *
 *   COMPLETE ── quarantined, its buckets are all there ──► KEPT ── connected again, or it votes ──► COMPLETE
 *     └──────── quarantined, they may be gone ───────────► LOST ── it votes ──────────────────────► COMPLETE
 *
 * Each further quarantine of ours leads to KEPT or LOST again. A marker that is only read does not lead from LOST to
 * KEPT: it may come from an older image. */
enum guard_memory { GUARD_MEMORY_COMPLETE, GUARD_MEMORY_KEPT, GUARD_MEMORY_LOST };

/* How many replaced servers are remembered. */
enum { GUARD_FORMER_MAX = 32 };

/* No lease is longer. If an older version wrote a marker without a longest lease, this is waited out. */
#define GUARD_TTL_MAX_US UINT64_C(86400000000)

/* A master may carry out a command this long after its deadline: its clock is not known more exactly. */
#define GUARD_LATE_US UINT64_C(250000)

/* 0 stands for "none" in epoch, cluster, marker and marker_run_id, and for "not known" in ttl_us. The members below
 * now_us are what a master answered: any value must be expected. */
struct guard_event {
	enum guard_event_kind kind;
	uint8_t master;
	uint64_t now_us; /* our own clock; never goes backwards */
	uint64_t run_id, client_id;
	uint64_t beat;
	uint64_t epoch, epoch_run_id, cluster, digest, ttl_us;
	uint64_t marker, marker_run_id;
	uint64_t clocked_us; /* EPOCH: when its floor was last made of clocks, by the master's clock; 0: never */
	bool kept;
	bool done;
	uint64_t fence;
	uint64_t leases_us;            /* how long the leases that it granted may still last, by its clock */
	uint64_t timeout_us;           /* the longest timeout of any redlockd that used it */
	enum guard_action_kind action; /* FAILED; READ for the heartbeat */
};

struct guard_action {
	enum guard_action_kind kind;
	uint64_t epoch, marker, cluster, ttl_us, fence;
	uint64_t digest; /* takes_over: of the hash that is replaced, as read; 0: it has none */
	uint16_t slice;
	bool kept, clocked, takes_over;
};

enum guard_clock { GUARD_CLOCK_STEADY, GUARD_CLOCK_JUMPED_FORWARD, GUARD_CLOCK_JUMPED_BACK };

/* The state of a durable master when the connection over which it voted was lost. After a restart it must still have
 * it. epoch 0: it did not vote, or has been quarantined since. */
struct guard_last {
	uint64_t epoch, beat, pace;
	bool has_clock;
	int64_t ahead_max_us; /* as in struct guard_master */
	uint64_t clock_us;
};

struct guard_master {
	enum guard_state state;
	enum guard_reason reason; /* unless VOTING, ABSENT or ASKING */
	unsigned busy;            /* the action under way (enum guard_action_kind), or HELD_BACK */
	enum guard_memory memory;
	bool seen; /* run_id, client_id, beat are known, of this connection or an earlier one */
	/* CLOCK_FORWARD, EVICTED, ROLLED_BACK, NOT_DURABLE: a hazard for which it must be quarantined */
	enum guard_reason hazard;
	struct guard_last last; /* ABSENT, ASKING */
	bool keeps;             /* ASKING: it has restarted, and READ lets it keep its epoch */
	bool clocks;            /* WRITING_EPOCH: its floor is made of clocks */
	bool skip;              /* bootstrap: nothing to wait for */
	bool unusable;          /* UNUSABLE, and neither connected nor read since: bootstrap goes on without it */
	bool read;              /* its epoch was read on this connection */
	uint64_t run_id, client_id, beat;
	uint64_t connected_us;
	uint64_t pace;       /* heartbeats of all redlockd in a second */
	uint64_t member;     /* the run_id of the server that voted here last, or was to vote after its quarantine */
	uint64_t epoch;      /* VOTING: what scripts carry; ASKING: the one that did not fit; 0: none */
	uint64_t gone_epoch; /* was trusted under this run_id, and has disappeared; 0: none */
	uint64_t chosen_cluster; /* WRITING_EPOCH: the cluster that the epoch names */
	uint64_t cluster;        /* as read, also if the epoch is gone; 0: it never had one */
	uint64_t void_epoch;     /* MARKING: the epoch that QUARANTINE replaces */
	uint64_t marker;
	uint64_t ttl_us;      /* the longest lease that is stored there */
	bool ttl_unknown;     /* it has a marker, and no longest lease beside it */
	uint64_t since_us;    /* WAITING: from when the wait counts */
	uint64_t heard_us;    /* the last answer to READ */
	uint64_t recovery_us; /* RECOVERING: since when */
	uint64_t timeout_us;  /* the longest timeout of any redlockd, as it reported last; 0: not known */
	/* WAITING, RECOVERING: the epoch under which master i reported its leases (0: it did not), and when they end */
	uint64_t reported_epoch[REDLOCK_MASTERS_MAX], reported_end_us[REDLOCK_MASTERS_MAX];
	uint64_t remembers_s;  /* VOTING: `leases` in its hash is at least this */
	uint64_t asked_us;     /* when SURVEY was sent last */
	uint64_t survey_us;    /* when the first SURVEY of its present round of slices was sent */
	uint64_t survey_epoch; /* the epoch or marker that it carried: with another one the round begins again */
	uint64_t survey_top;   /* the largest fence of the slices reported so far */
	uint64_t reported_us;  /* when it reported a slice last */
	uint16_t slice;        /* the next one of the round */
	uint16_t surveyed;     /* RECOVERING: bit j: master j reported its fences since recovery_us */
	uint64_t top;          /* RECOVERING: the largest of those fences */
	uint64_t lost_us;      /* LOST: since when, as far as is known */
	uint64_t clocked_us;   /* when its floor was last made of clocks, by our clock; 0: never, or not known */
	bool has_clock;
	int64_t ahead_min_us, ahead_max_us; /* its clock − our clock was between these */
	uint64_t clock_us;                  /* when it was, by our clock */
	int64_t jump_us;                    /* the last jump found */
	uint64_t back_us;                   /* when its clock was last found to have gone back; 0: never */
	/* OTHER_DIGEST: digest and heartbeat as read last; since when nobody has counted a heartbeat there */
	uint64_t other_digest, other_beat, still_us;
	bool other_runs; /* OTHER_DIGEST: a redlockd counts heartbeats there */
};

struct guard {
	struct guard_params params;
	uint64_t random;
	bool bootstrap_open; /* params.bootstrap, and no epoch and no other digest was seen so far */
	bool take_over_open; /* params.bootstrap, and no epoch of our digest was seen so far */
	/* The run_id of each server that another one replaced. If it comes back in any place, it has missed leases that
	 * count the votes of the other one. */
	uint64_t former[GUARD_FORMER_MAX];
	unsigned former_next;
	struct guard_master masters[REDLOCK_MASTERS_MAX];
};

/* Makes *guard ready, all masters ABSENT. */
void guard_init(struct guard *guard, const struct guard_params *params);

/* Handles one event. The caller reports each answer as one event of its kind or FAILED, the heartbeat of every
 * connection once a second as EPOCH, and a broken connection as LOST. The commands to a master are sent in order, over
 * one connection. */
void guard_event(struct guard *guard, const struct guard_event *event);

/* The next action to send to master i; it counts as under way from then on. The caller asks for each master after each
 * event, and once a second, until the answer is NOTHING. `wall_us`: the time of day, for a floor that must be made of
 * clocks. Writes all of *ret_action. */
void guard_next(struct guard *guard, unsigned i, uint64_t now_us, uint64_t wall_us, struct guard_action *ret_action);

/* The longest lease that any process gives, as far as is known: READ and the heartbeat carry it. */
uint64_t guard_longest_us(const struct guard *guard);

/* Compares the TIME that an answer of master i carried with all before it, before the answer is used. The command was
 * sent at sent_us, the answer read at now_us. JUMPED_FORWARD: the answer must not be used, and the master is
 * quarantined. */
enum guard_clock guard_time(struct guard *guard, unsigned i, uint64_t sent_us, uint64_t now_us, uint64_t master_us);

/* The latest time that the clock of master i may show when ours shows at_us; 0: not known yet. */
uint64_t guard_master_time_us(const struct guard *guard, unsigned i, uint64_t at_us);

/* Returns the deadline, in the time of master i, of a command that must not be carried out after at_us. It has passed
 * by at_us + GUARD_LATE_US. 0: the clock of the master is not known yet. */
uint64_t guard_deadline_us(const struct guard *guard, unsigned i, uint64_t at_us);

/* Master i votes for a lease of ttl_us in a command with this deadline. Returns the second of its own time, rounded up,
 * until which it must remember that a lease may last. 0: it remembers that already. */
uint64_t guard_leases_until_s(const struct guard *guard, unsigned i, uint64_t deadline_us, uint64_t ttl_us);

/* Master i, which is VOTING, has voted for a lease in a command that made it remember until_s. */
void guard_leases_remember(struct guard *guard, unsigned i, uint64_t until_s);

bool guard_may_vote(const struct guard *guard, unsigned i);

/* Quarantined: the shortest time until it may vote; 0: it waits for something other than time. */
uint64_t guard_quarantine_left_us(const struct guard *guard, unsigned i, uint64_t now_us);

/* RECOVERING: how many more masters must report their fences; 0: none. */
unsigned guard_fences_missing(const struct guard *guard, unsigned i);

/* REJECTED for its digest: true if a redlockd of that digest runs there. */
bool guard_other_runs(const struct guard *guard, unsigned i);

/* REJECTED for its digest: true while --bootstrap waits to see whether a redlockd of that digest runs there. */
bool guard_other_is_watched(const struct guard *guard, unsigned i);

/* True while its state is expected to change within a few round trips, or within a few seconds (--bootstrap, a hash of
 * another version). */
bool guard_in_motion(const struct guard *guard, unsigned i);

/* "restarted", "bad-epoch", …: a static string. */
const char *guard_reason_name(enum guard_reason reason);

#endif
