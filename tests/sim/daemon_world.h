/* SPDX-License-Identifier: MIT */
/* The world of the seeded simulator (sim_random): several redlockd, each with the daemon's own leases and masters over
 * another implementation of server/transport/transport.h, masters that run the real scripts (store.h), a network,
 * clocks, clients, and a nemesis. One seed is one history, to the byte: time is virtual, and there is one source of
 * random numbers (daemon_queue.c).
 *
 *   daemon_client.c ─► daemon_face.c ─► server/leases ─► server/masters ─► daemon_transport.c ─► daemon_net.c
 *        ▲ answers ◄───────┘                                                ▲ daemon_reply.c        │ daemon_words.c
 *   daemon_check.c, daemon_order.c: the checks                          └──── daemon_node.c ◄───┘ (store.c)
 *   daemon_fault.c, daemon_shape.c: faults in all of them
 *
 * Times are µs. `world->now` is true time, which no part of the world knows: each process has a steady clock and a time
 * of day, each master a time of day, all a little fast or slow (CLOCK_PPM). See tests/sim/README.md. */
#ifndef DAEMON_WORLD_H
#define DAEMON_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/leases/lease_internal.h"
#include "server/masters/master_internal.h"
#include "server/redlock/guard/guard.h"
#include "server/scripts/scripts.h"
#include "server/transport/transport.h"
#include "store_internal.h"

enum {
	PROCS = 3,
	NODES = 5,   /* masters at most */
	KEYS = 10,   /* resources at most */
	HOLDERS = 8, /* of one resource at most */
	CLIENTS = 10,
	CALLS = 64,      /* requests of clients, at a time */
	EVENTS = 8192,   /* that are to come */
	COMMANDS = 8192, /* on their way, or without their answer */
	CONNECTIONS = 1024,
	TIMERS = 2048,
	TOKENS = 16384, /* of one history */
	KEPT = 64,      /* leases that are kept after their release (daemon_kept.c) */
	LEASES = 4096,
	CLOCK_PPM = 500, /* so two clocks drift apart by at most 0.1 % */
	ACTIVE = 64
};

#define NEVER UINT64_MAX
#define NONE UINT16_MAX
#define MS UINT64_C(1000)
#define SECOND UINT64_C(1000000)
#define TOKEN_ZERO UINT64_C(0xffffffffffff0000) /* the last 16 digits of a token, less its number */
#define DAY_BEGAN_US UINT64_C(1700000000000000) /* the time of day when a history begins */

#include "daemon_command.h"

/* ---- events ---- */

enum event_kind {
	EVENT_CONNECT,   /* arrives at a master; connection */
	EVENT_CONNECTED, /* arrives at a process */
	EVENT_COMMANDS,  /* arrive at a master; a: the first of them */
	EVENT_ANSWERS,   /* arrive at a process; a: the first command */
	EVENT_MESSAGE,   /* arrives at a process */
	EVENT_RESET,     /* arrives at a process: the master's end of the connection is gone */
	EVENT_TIMER,     /* a: which, serial */
	EVENT_CLIENT,    /* a: the client takes its next step, if serial is still its own */
	EVENT_NOTICE,    /* a: the process notices that the client of a call has left; serial: of the call */
	EVENT_FAULT,     /* the nemesis */
	EVENT_MEND,      /* a: what, proc, node: the end of a fault; serial */
	EVENT_SNAPSHOT,  /* node: an image is taken */
	EVENT_PHASE,
	EVENT_TRIAL, /* a: the next step of the trial of the queue, serial */
	EVENT_WATCH  /* checks that a free lock is granted to a waiter */
};

struct event {
	uint8_t kind, proc, node;
	bool retimed;
	uint16_t a, connection;
	STAILQ_ENTRY(event) entry; /* of those that are held up */
	uint32_t serial;           /* messages: the connection's */
	uint64_t key;              /* its time and its number */
	struct notification notification;
};

struct queued {
	uint64_t key;
	uint16_t slot;
};

STAILQ_HEAD(held, event);

/* ---- clocks ---- */

struct clock {
	uint64_t from, base; /* it showed `base` at true time `from` */
	int32_t ppm;
};

/* ---- masters ---- */

/* A server, or its state in an image of the machine. */
struct server {
	struct store *store;
	uint64_t now_us, run_id;
	uint32_t evicted, next_client_id;
	uint64_t at; /* of an image: when it was taken, in true time */
};

struct node {
	struct server server;
	struct server images[2]; /* states on a disk or in an image of the machine; image() is the newer one */
	uint8_t newer;
	struct clock clock;
	bool up, stopped, evicts;
	uint16_t incarnation, scripts; /* scripts: bit i: script i is loaded */
	uint32_t serial;               /* of the stop, crash or policy that is to be mended */
	uint64_t started_us;           /* by its own clock: its uptime counts from there */
	uint64_t jumped_us;            /* sum of the jumps forward */
	uint64_t jumped_back_us;
	uint64_t told_ttl_us; /* the longest lease that was written there since it lost its memory */
	/* true time when its epoch was last written without the longest lease, and the longest one known then */
	uint64_t short_at, short_ttl_us;
	/* true times: of the last jump, jump back, roll-back, marker, epoch that was written, eviction; 0: none */
	uint64_t jump_at, back_at, rolled_at, marked_at, voted_at, evicted_at;
	uint64_t clocks_since[NODES]; /* of the others, known to the process that wrote its epoch; true time */
};

/* ---- connections ---- */

enum connection_state { CONNECTION_FREE, CONNECTION_CONNECTING, CONNECTION_OPEN, CONNECTION_CLOSED };

struct transport_connection {
	uint8_t state; /* as the process knows it */
	uint8_t proc, node;
	bool accepted, subscribed; /* by the master */
	bool in_callback, ending;
	bool dirty; /* commands wait for transport_flush() */
	bool is_second;
	uint16_t incarnation; /* of the master that accepted it */
	uint16_t next_dirty;
	uint16_t messages; /* on their way */
	uint32_t serial;
	uint32_t sent, cut;                 /* closed: no command after this one is carried out */
	STAILQ_HEAD(, command) waiting;     /* commands without their answer */
	uint16_t first_unsent, last_unsent; /* commands that wait for the flush */
	uint64_t there_at, back_at;         /* nothing sent from now on arrives earlier */
	uint64_t stale_at, made_at;
	struct held there, back; /* held by a partition or a stopped receiver */
	const struct transport_events *events;
	void *arg;
	bool subscribes;
};

struct transport_timer {
	uint8_t proc;
	transport_timer_fn *fire;
	void *arg;
	uint64_t due;       /* true time; NEVER */
	uint64_t queued_at; /* the event that is to come; NEVER */
	uint32_t serial;    /* of that event */
	uint16_t next_free;
};

/* A process and a master. */
struct link {
	bool block_there, block_back;
	uint32_t block_serial;
	/* For the checks alone. */
	uint64_t clock_since; /* its clock is known to the process since; NEVER */
	bool ahead_unseen;    /* its clock jumped forward, and no answer was read since */
	/* its clock was forward and back again between two answers; true time when that was over; 0: never */
	uint64_t hidden_at;
	uint64_t info_at; /* when the last INFO that was read was carried out */
	uint64_t seen_run_id, seen_beat;
	uint32_t seen_client_id;
	uint64_t saw_rolled; /* the last roll-back that the process could see; true time */
	uint64_t jumps[2];   /* of its clock that the process has noticed */
	uint64_t dead_at;    /* when the process last did not count as alive there; true time, to 50 ms */
};

/* A redlockd's sight of a master when it read the master's vote: see daemon_check.c. */
struct sight {
	uint64_t info_at, saw_rolled, clock_since, hidden_at;
	uint64_t jumped_us, back_us; /* the master's sums */
	uint64_t run_at;             /* when the master gave the vote */
	int64_t slack_us;            /* the largest jump that can stay unnoticed */
};

/* ---- processes ---- */

enum cause { CAUSE_TIMER, CAUSE_REPLY, CAUSE_MESSAGE, CAUSE_OTHER };

struct proc {
	bool up, paused, draining;
	uint32_t serial; /* of the pause or crash that is to be mended */
	uint32_t run;    /* which run of the program */
	struct clock clock;
	int64_t wall_us;       /* time of day − steady clock */
	int64_t wall_ahead_us; /* its error from the beginning */
	uint64_t replica;      /* its id in the queues */
	uint64_t continued_at; /* true time */
	struct held timers;    /* that wait for the end of a pause */
	struct options options;
	struct metrics *metrics;
	struct masters *masters;
	struct leases *leases;
	struct holds *holds;
	uint8_t voting; /* masters, when its leases were dispatched last */
	struct link links[NODES];
};

/* ---- requests ---- */

/* One request of a client, as the HTTP side of redlockd has it. */
struct call {
	bool used, waits, held;
	bool left; /* its client has left */
	uint8_t proc, client;
	uint8_t key;         /* of a set the first */
	uint32_t names;      /* all its keys, a bit each */
	char resources[160]; /* of a set, as the request has them */
	enum lease_operation operation;
	uint32_t serial;
	struct lease_op *op;           /* under way; NULL: answered */
	struct lease_listing *listing; /* likewise */
	struct hold *hold;
	struct lease_request request;
	uint16_t lease; /* extend, release, hold: which; NONE */
	uint64_t token;
	bool plain;         /* of the trial: one that is counted */
	uint64_t own_since; /* it has waited for a lease of its own key since then, true time; 0: it does not */
	/* For the checks alone; true times. */
	uint64_t came_at, wait_end;
	uint64_t began;     /* this attempt */
	uint64_t raised_at; /* when it sent a RAISE last */
	/* since when it is in the queue of a master, or has the lock there; 0: it is not */
	uint64_t joined_at[NODES];
	/* when another waiter was notified, last and first, since its last attempt; 0: never */
	uint64_t passed_at, passed_first_at;
	uint32_t overtaken, outrun; /* by how many later requests: while it waited in the queue; in all */
	uint16_t notified_by;       /* the newest lease whose release notified it since its last attempt; NONE */
	uint8_t notified_key;       /* the key of that lease */
	uint16_t notified_on;       /* bit i: master i did so, for that release */
	bool notified;              /* by anybody, since its last attempt */
	uint16_t notifiers;         /* bit i: by master i */
};

/* ---- clients and leases ---- */

enum client_state { CLIENT_THINKS, CLIENT_ACQUIRES, CLIENT_HOLDS, CLIENT_STREAMS, CLIENT_EXTENDS, CLIENT_RELEASES };

struct client {
	enum client_state state;
	uint32_t serial;
	uint32_t names; /* of the resources that it asks for */
	uint16_t lease;
	uint8_t extensions; /* yet to do */
	uint16_t call;      /* NONE */
	uint32_t call_serial;
	uint64_t asked;       /* the last Idempotency-Key; 0: none yet */
	uint16_t mode, slots; /* of enum lease_mode */
};

struct lease {
	uint64_t token, fence;
	uint64_t began, ok, until; /* true time; `until`: the latest on any clock within its bounds; cut by a release */
	uint64_t ttl_us;           /* the longest that it was given or extended for */
	uint64_t allowance_us;     /* the part of its validity that was subtracted for clocks that drift and jump */
	uint16_t next[KEYS];       /* of the same key, older; NONE */
	uint8_t key, proc;
	uint16_t slot, mode;        /* of enum lease_mode */
	uint32_t names;             /* as in struct call */
	uint16_t quorum, round;     /* bit i: master i's vote was counted; in the round that gave `until` */
	struct sight sights[NODES]; /* of those votes */
	uint64_t round_at[NODES];   /* when it voted in that; true time */
	bool unread, ran_out;       /* its client left before it read the answer; it ended before its release */
	bool excused;               /* it overlaps with another one, for a reason that is excused */
	bool tried;                 /* somebody has tried to go on with its token since then */
	bool kept;                  /* it was released, and is kept until `until` (daemon_kept.c) */
	uint64_t kept_at;           /* when that was answered; true time */
	uint32_t woke[KEYS];        /* the call that its release of a key made try at once; 0: none */
};

/* The trail of a token, for the checks. */
struct trail {
	uint8_t proc;
	uint32_t names; /* of its keys, a bit each */
	bool leased;
	uint64_t asked; /* the Idempotency-Key of the acquisition; 0: none */
	uint16_t call;  /* NONE: the call has ended */
	uint32_t call_serial;
	uint16_t lease;
	uint64_t began;            /* true time */
	uint64_t set_at[NODES];    /* true time; 0: never set there */
	uint64_t jumped_us[NODES]; /* the master's sum when it was set there */
	uint64_t back_us[NODES];
	uint64_t evicted_at[NODES], deleted_at[NODES];
	uint64_t released_at[NODES]; /* when a release of this token removed it */
	uint64_t given_at;           /* when process `given_by`, in that run, got its release; 0: not yet */
	uint8_t given_by;
	uint32_t given_run;
	uint16_t tried;             /* bit i: a release arrived at master i */
	struct sight sights[NODES]; /* of the votes that were read */
};

enum phase { PHASE_FAULTS, PHASE_HEALING, PHASE_SERVING, PHASE_SERVED, PHASE_ALONE, PHASE_TOGETHER, PHASE_QUEUE };

/* Kinds of histories. */
enum profile {
	PROFILE_ANY,
	PROFILE_RACE,   /* guesses for fences are all too low, keys are deleted by hand, attempts overlap */
	PROFILE_FLIGHT, /* a master comes back empty while attempts are under way; times of day far apart */
	PROFILE_REUSE,  /* connections break all the time, operations try often */
	PROFILE_EDGE,   /* long leases that nobody releases, a fast network, and many waiters */
	PROFILE_BOUNDS, /* redlockd that give leases of different lengths, masters that all forget */
	PROFILE_QUEUE,  /* many waiters in one queue, and hardly a fault */
	PROFILE_MEMORY, /* long leases, and masters that lose their memory one after the other */
	PROFILE_TABLE,  /* philosophers: each waits for its own resource and its neighbour's, all the time */
	PROFILES,
	PROFILE_ROLLING = PROFILES /* not chosen at random: masters restart in turn, and no renewed lease may be lost */
};

struct config {
	enum profile profile;
	uint8_t nodes, procs, clients, keys;
	bool one_bucket, to_the_end, witnesses; /* FLIGHT: others reach the master that is cut off from p0 */
	uint8_t victims;                        /* faults of masters hit only the first so many */
	uint64_t max_ttl_us, timeout_us, margin_us;
	/* unlike: each redlockd has another --max-ttl-ms, and a new one each time that it starts */
	bool bootstrap, unlike, durable, hasty;
	uint32_t tries, retry_min_us, retry_max_us;
	uint32_t delay_us, jitter_us, straggler; /* the network: least, spread, one of `straggler` is late */
	uint32_t straggler_us;
	uint32_t fault_every_us;
	uint32_t faults;        /* bit i: enum fault i may happen */
	uint64_t fault_time_us; /* how long the first phase is */
	uint32_t think_us;
	uint32_t burst; /* of 8: faults that follow the last one at once */
	uint64_t max_hold_ms;
	uint32_t waits; /* how many of 8 acquisitions wait */
	uint32_t holds; /* likewise: hold */
	uint32_t keyed; /* likewise: Idempotency-Key */
	uint32_t sets;  /* likewise: on several resources */
	uint32_t modes; /* likewise: shared, or on a slot */
	uint32_t max_shared;
	bool operators;   /* locks are forced, inspected and listed */
	bool keeps;       /* some releases have keep_ms */
	uint64_t wait_us; /* the longest wait */
	bool smooth;      /* no message is late by much, and hardly anything ever fails */
	uint64_t deaf_us; /* how long notifications may be missed then */
};

/* The kinds of faults, with their names for people. */
#define FAULTS_ALL(X)                                                                                              \
	X(LOSE, "connection lost"), X(PARTITION, "partition"), X(ONE_WAY, "one-way partition"),                    \
		X(STOP, "master stopped"), X(CRASH, "master crashed, empty"),                                      \
		X(CRASH_KEPT, "master crashed, data kept"), X(FLUSH, "flushed"), X(EVICT, "key evicted"),          \
		X(EVICT_HASH, "hash evicted"), X(POLICY, "policy changed"), X(FORWARD, "clock forward"),           \
		X(BACK, "clock back"), X(DAY, "time of day of a redlockd"), X(PROC_CRASH, "redlockd crashed"),     \
		X(PROC_PAUSE, "redlockd paused"), X(PROC_DRAIN, "redlockd drained"),                               \
		X(ROLL_BACK, "machine rolled back"), X(SLOW, "network slow"), X(ALL_CRASH, "all masters crashed"), \
		X(DELETE, "key deleted by hand"), X(FORGET, "all masters forgot"), X(SCRIPTS, "scripts flushed"),  \
		X(FLIGHT, "restart with attempts under way"), X(DEAF, "second connections lost"),                  \
		X(FREEZE, "minority of masters frozen")

#define FAULT_OF(name, text) FAULT_##name
enum fault { FAULTS_ALL(FAULT_OF), FAULTS };

/* Faults that restore an earlier state of a server. */
#define SNAPSHOT_FAULTS (1U << FAULT_CRASH_KEPT | 1U << FAULT_ROLL_BACK | 1U << FAULT_ALL_CRASH)

/* The reasons for which an overlap is excused, or an order of fences. */
#define EXCUSES_ALL(X)                                                                                                 \
	X(JUMP_UNSEEN, "jump not to be seen"), X(JUMP_SMALL, "jump too small to be seen"),                             \
		X(ROLLED_UNSEEN, "roll-back not to be seen"), X(EVICTED_UNSEEN, "eviction before the next heartbeat"), \
		X(DELETED, "key deleted by hand"), X(TTL_UNKNOWN, "longest lease known to nobody that was there"),     \
		X(FENCE_CLOCKED, "order of fences over a floor from wrong clocks"),                                    \
		X(FENCE_ROLLED, "order of fences over a roll-back not to be seen")

#define EXCUSE_OF(name, text) EXCUSE_##name
enum excuse { EXCUSES_ALL(EXCUSE_OF), EXCUSES };

#define NAME_OF(name, text) text

/* What a run counts, printed with these names. */
#define FIGURES_OF_LEASES(X)                                                                                       \
	X(operations), X(commands), X(batched), X(leases), X(extensions), X(rounds), X(shared), X(slots),          \
		X(shared_together), X(slots_together), X(runs), X(keyed), X(keyed_again), X(sets), X(sets_waited), \
		X(longest_set_wait_us), X(holds), X(holds_lost), X(rolled), X(renewed), X(drained), X(abandoned),  \
		X(left), X(forced), X(listed), X(kept), X(repaired)
#define FIGURES_OF_MASTERS(X)                                                                             \
	X(quarantines), X(epoch_written), X(shortened), X(clocked), X(bad_epochs), X(late), X(no_script), \
		X(jumps_seen), X(late_jumps), X(proc_restarts), X(slowest_recovery_us)
#define FIGURES_OF_WAITERS(X)                                                                          \
	X(waiters), X(granted_waiting), X(wait_ends), X(notified), X(passed), X(missed_notifications), \
		X(stale_entries), X(overtakes), X(most_overtakes), X(outruns), X(most_outruns), X(slowest_wake_us)

#define FIGURE(name) name
struct figures {
	uint64_t seeds, simulated_us, held_us, events, faults[FAULTS], excused[EXCUSES], outcomes[LEASE_STATUS_COUNT];
	uint64_t FIGURES_OF_LEASES(FIGURE), FIGURES_OF_MASTERS(FIGURE), FIGURES_OF_WAITERS(FIGURE);
};

struct world {
	uint64_t random, now, hash;
	struct config config;
	struct node nodes[NODES];
	struct proc procs[PROCS];
	struct client clients[CLIENTS];
	struct call calls[CALLS];
	bool healing, over, clocks_wrong, watched /* the next look at all queues is due */;
	bool late_jump; /* a small jump of a clock was found only after the healing */
	enum phase phase;
	uint64_t healed_at, recovered_at, clocked_at, served_by, settled_at, rolled_at;
	uint64_t next_run_id;
	uint32_t operations, next_serial, next_token, lease_count;
	struct {
		uint64_t number, token; /* of the token under which it is kept; its own */
	} kept[KEPT];
	unsigned kept_count;
	uint16_t newest[KEYS]; /* lease of each key; NONE */
	uint64_t top_fence[KEYS];
	uint16_t active[KEYS][ACTIVE];
	uint8_t active_count[KEYS];
	uint8_t forcing[KEYS];    /* forced releases under way */
	uint64_t forced_at[KEYS]; /* when the last one ended */
	uint32_t slow;            /* the network's delays are so many times as long */
	uint32_t tests_ok, tests_due;
	uint8_t trial_key;
	uint64_t calm_at; /* since then all is well, and fallbacks have had their time; NEVER */
	/* since when nobody has it, or the other resources of its first waiter, on a majority; 0: somebody has */
	uint64_t free_since[KEYS];
	bool failed;
	const char *only; /* only violations that begin with this count; NULL: all */
	char failure[240];
	struct figures *figures;
	bool telling;
	void (*tell)(const char *line);
	/* Which process runs, and why: daemon_proc.c. */
	unsigned current; /* PROCS: none */
	uint64_t here_us; /* its steady clock */
	enum cause cause;
	const void *cause_arg; /* TIMER: of the timer; REPLY, MESSAGE: the call */
	bool muted;            /* the process sends nothing any more */
	uint16_t dirty;        /* connections with something to flush */
	/* The queue: daemon_queue.c. */
	struct queued heap[EVENTS];
	uint32_t heap_count, event_number;
	uint16_t free_events[EVENTS], free_event_count, used_events;
	uint16_t free_commands[COMMANDS], free_command_count, used_commands;
	uint16_t free_connections[CONNECTIONS], free_connection_count, used_connections;
	uint16_t first_free_timer, used_timers;
	struct event events[EVENTS];
	struct command commands[COMMANDS];
	struct transport_connection connections[CONNECTIONS];
	struct transport_timer timers[TIMERS];
	struct lease leases[LEASES];
	struct trail trails[TOKENS];
};

extern struct world world_of_all; /* the only one, since the daemon's functions have no such argument */

#include "daemon_functions.h"

#endif
