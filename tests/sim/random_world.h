/* The world of the seeded simulator (sim_random): several processes that stand for redlockd, each with the real core
 * and the real guard, modelled masters, a network, clocks, clients, and a nemesis. One seed is one history, the same
 * with any compiler: there are only integers, and one source of random numbers (random_queue.c).
 *
 *   random_client.c ─ operations ─► random_daemon.c ─ commands ─► random_net.c ─► random_node.c (model_master.c)
 *        ▲  leases                    │ ▲ │ votes   ◄─ replies ─┘                   │ notifications
 *   random_check.c ◄──────────────────┘ │ └─ random_waiters.c ◄─────────── random_notifications.c
 *   random_order.c ◄────────────────────┘ waiters               random_fault.c makes faults in all of them
 *
 * Times are µs. `world->now` is true time, which no part of the world knows: each process has a steady clock and a time
 * of day, each master a time of day, and all of them run a little fast or slow (CLOCK_PPM). tests/sim/README.md says
 * what is modelled and checked. */
#ifndef RANDOM_WORLD_H
#define RANDOM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model_master.h"
#include "server/redlock/guard/guard.h"
#include "server/redlock/redlock.h"

enum {
	PROCS = 3,
	NODES = 5, /* masters at most */
	CLIENTS = 8,
	OPS = 48,       /* of one process, at a time */
	REQUESTS = 64,  /* under way on one connection */
	PENDING = 64,   /* releases owed to one master */
	EVENTS = 8192,  /* that are to come */
	SPOKES = 512,   /* of 16 ms */
	TOKENS = 16384, /* drawn in one history */
	LEASES = 4096,
	CUTS = 16,       /* connections lost, of which something may still be under way */
	CLOCK_PPM = 500, /* so two clocks part by 0.1 % at most */
	ACTIVE = 64
};

#define NEVER UINT64_MAX
#define NONE UINT16_MAX
#define MS UINT64_C(1000)
#define SECOND UINT64_C(1000000)
#define DAY_BEGAN_US UINT64_C(1700000000000000) /* the time of day when a history begins */

/* ---- what is to happen ---- */

enum event_kind {
	EVENT_COMMAND,   /* arrives at a master */
	EVENT_REPLY,     /* arrives at a process */
	EVENT_OP_TIMER,  /* proc; a: which operation, serial */
	EVENT_CONNECT,   /* proc, node; serial: of the link */
	EVENT_HANDSHAKE, /* proc, node; serial: its time is up */
	EVENT_HEARTBEAT, /* proc, node; serial: of the connection */
	EVENT_GUARD,     /* proc: guard_deadline_us() has passed, or a second */
	EVENT_CLIENT,    /* a: the client takes its next step, if serial is still its own */
	EVENT_FAULT,     /* the nemesis */
	EVENT_MEND,      /* a: what, proc, node: the end of a fault; serial */
	EVENT_SNAPSHOT,  /* node: an image is taken */
	EVENT_PHASE,
	EVENT_QUEUE,     /* proc: says again that it lives; serial: since it began to */
	EVENT_SUBSCRIBE, /* arrives at a master, over the second connection */
	EVENT_HEARD,     /* arrives at a process, over the second connection; what: enum heard */
	EVENT_TRIAL,     /* a: what the trial of the queue does next, serial */
	EVENT_WATCH      /* checks that a free lock is granted to a waiter */
};

/* The contents of a message. The first six are those of enum redlock_script. */
enum what {
	WHAT_HANDSHAKE = 6,
	WHAT_HEARTBEAT,
	WHAT_READ,
	WHAT_QUARANTINE,
	WHAT_FENCES,
	WHAT_WRITE_EPOCH,
	WHAT_RESET,
	WHAT_ALIVE,
	WHAT_ALIVE_ANEW
};
enum heard { HEARD_SUBSCRIBED, HEARD_CALL, HEARD_RESET };

struct answer {
	struct model_reply script;
	uint64_t run_id;    /* handshake */
	uint32_t client_id; /* handshake */
	uint32_t evicted;   /* INFO: handshake, heartbeat */
	bool evicts;        /* likewise: the policy is not noeviction */
};

/* A master publishes whose turn it is. */
struct notification {
	struct model_entry entry;
	uint8_t key;
	uint16_t lease; /* whose release it was; NONE. For the checks */
};

struct event {
	uint8_t kind, proc, node, what;
	bool retimed;
	uint16_t next;        /* in a list of those held up; NONE */
	uint16_t incarnation; /* of the master that the connection was made to */
	uint16_t a;
	uint32_t serial; /* messages: the connection's */
	uint32_t number; /* messages: which one of the connection */
	uint64_t key;    /* its time and its number */
	/* true time. Replies: when it was carried out. Commands: when at the latest it should be; 0: no matter */
	uint64_t run_at;
	union {
		struct model_command command;
		struct answer answer;
		struct notification notification;
	} u;
};

struct queued {
	uint64_t key;
	uint16_t slot;
};

/* ---- clocks ---- */

struct clock {
	uint64_t from, base; /* it showed `base` at true time `from` */
	int32_t ppm;
};

/* ---- masters ---- */

struct node {
	struct model_master model;
	struct model_master images[2]; /* what a disk, or an image of the machine, has: image() is the newer one */
	uint8_t newer;
	uint64_t image_at, older_at;
	uint32_t next_client_id, image_client_id, older_client_id;
	struct clock clock;
	bool up, stopped, evicts;
	uint16_t incarnation;
	uint32_t serial;     /* of the stop, crash or policy that is to be mended */
	uint64_t started_us; /* by its own clock: its uptime counts from there */
	uint64_t jumped_us;  /* sum of the jumps forward */
	uint64_t jumped_back_us;
	uint64_t told_ttl_us; /* the longest lease that anybody told it of since it lost its memory */
	/* true time when its epoch was last written without anybody's word of the longest lease, and what was known
	 * then */
	uint64_t short_at, short_ttl_us;
	uint64_t jump_at, back_at; /* true time of the last jump, of the last one back; 0: none */
	uint64_t rolled_at;        /* true time of the last roll-back; 0: none */
};

/* ---- processes ---- */

enum link_state { LINK_DOWN, LINK_HANDSHAKE, LINK_UP };

/* One command under way. */
struct request {
	uint64_t sent_us; /* by the process's clock */
	uint64_t token, epoch;
	uint16_t op; /* NONE: owed, or not an operation's */
	uint16_t attempt, round;
	uint8_t what, key;
	bool pending;     /* from an earlier connection */
	bool forgettable; /* nobody minds if it is lost */
	uint64_t latest;  /* true time: carried out later, it is late; 0: never */
	struct model_entry entry;
	uint32_t wait_ms;
};

struct pending {
	uint64_t token, until_us;
	struct model_entry entry;
	uint32_t wait_ms;
	uint8_t key;
};

struct held {
	uint16_t first, last; /* NONE */
};

/* The second connection to a master, on which the process hears its notifications. */
struct ear {
	bool up;
	uint32_t serial;     /* of the connection */
	uint32_t beside;     /* the first connection, beside which it was opened: its serial */
	bool listening;      /* the process knows that it is subscribed */
	uint64_t tried_us;   /* when it was opened, by the process's clock */
	uint32_t subscribed; /* the serial for which the master has subscribed it; 0: none */
	uint16_t incarnation;
	uint64_t there_at, back_at;
	struct held there, back;
};

struct link {
	enum link_state state;
	bool hung, heartbeat_out, heartbeat_due, evicts, knows_evicted;
	uint32_t serial; /* of the connection; each has another */
	uint32_t sent;   /* messages to the master */
	uint32_t timer;  /* which heartbeat event is meant */
	uint16_t incarnation;
	uint32_t evicted; /* as INFO said last */
	uint32_t backoff_ms;
	uint8_t first_command, request_count, first_pending, pending_count;
	uint64_t there_at, back_at; /* nothing sent from now on arrives before */
	uint64_t stale_at;
	bool block_there, block_back;
	uint32_t block_serial;
	struct held there, back; /* what a partition, or a stopped receiver, holds up */
	/* of a lost connection no more than this many messages are carried out */
	uint32_t cut_serial[CUTS], cut_number[CUTS];
	uint8_t next_cut;
	struct request requests[REQUESTS];
	struct pending pending[PENDING];
	/* For the checks alone. */
	uint64_t clock_since; /* its clock is known to the process since; NEVER */
	bool ahead_unseen;    /* its clock jumped forward, and no answer was read since */
	/* its clock was forward and back again between two answers; true time when that was over; 0: never */
	uint64_t hidden_at;
	uint64_t info_at; /* when the last INFO that was read was carried out */
	uint64_t seen_run_id;
	uint32_t seen_beat, seen_client_id;
	uint64_t saw_rolled; /* the last roll-back that the process could see; true time */
	struct ear ear;
};

/* A redlockd's sight of a master when it read the master's vote: see random_check.c. */
struct sight {
	uint64_t info_at, saw_rolled, clock_since, hidden_at;
	uint64_t jumped_us, back_us; /* the master's sums */
	uint64_t run_at;             /* when the master gave the vote */
	int64_t slack_us;            /* how far a jump may go unseen */
};

struct op {
	struct redlock core;
	uint32_t serial; /* 0: free */
	uint8_t key, client;
	enum redlock_kind kind;
	bool timer_due, done, finished, wanted;
	bool waits;
	uint8_t cause;                 /* the event that the core is stepped with */
	uint32_t missed_notifications; /* as of the process when its entry was sure last */
	uint16_t attempt, reached;
	uint64_t came_at;  /* true time */
	uint64_t timer_at; /* true time of the event that was asked for last; NEVER */
	uint64_t token;
	uint64_t began; /* true time: this attempt */
	uint64_t ttl_ms;
	uint16_t unsent_count;
	uint16_t lease; /* extend, release: which; NONE */
	/* Of one that waits, for the checks alone; true times. */
	uint64_t wait_end;  /* when its wait is over */
	uint64_t raised_at; /* when it sent a RAISE last */
	/* since when it stands in the queue of a master, or has the lock there; 0: it does not */
	uint64_t joined_at[NODES];
	/* when it heard last, and first, that the lock goes by, since its last attempt; 0: it did not */
	uint64_t passed_at, passed_first_at;
	uint32_t overtaken, outrun; /* by how many who came later: while it waited in the queue; in all */
	uint16_t notified_by;       /* the newest lease whose release notified it since its last attempt; NONE */
	uint16_t notified_on;       /* bit i: master i did so, for that release */
	bool notified;              /* by anybody, since its last attempt */
	struct redlock_event unsent[2 * NODES];
	struct sight sights[NODES]; /* of those whose votes were read */
};

/* Those who wait at one process for one resource, as they came. */
struct waiters {
	uint16_t ops[OPS];
	uint8_t count;
};

struct proc {
	bool up, paused;
	uint32_t serial; /* of the pause or crash that is to be mended */
	uint32_t run;    /* which run of the program */
	struct clock clock;
	uint64_t latest_us;    /* before its time of day was set */
	int64_t wall_us;       /* time of day − steady clock */
	int64_t wall_ahead_us; /* by so much it is wrong from the beginning */
	uint64_t looked_us, round_us;
	uint64_t fence_clock;
	uint64_t max_ttl_us; /* the longest lease that it gives */
	struct guard guard;
	uint64_t guard_at;            /* the event that was asked for; NEVER */
	uint64_t early[NODES][NODES]; /* with a mutation: the fences at the restart */
	struct held timers;           /* that wait for the end of a pause */
	struct link links[NODES];
	struct op ops[OPS];
	uint16_t free_ops[OPS], free_count;
	/* Waiting: random_waiters.c. */
	uint64_t replica;      /* its id in the queues: a new one after each start */
	bool queue_open;       /* somebody waits here */
	uint32_t queue_serial; /* which EVENT_LINE is meant */
	uint16_t waiting;
	/* how often a master may have dropped entries, or its notifications were missed */
	uint32_t missed_notifications;
	uint64_t continued_at; /* true time */
	struct waiters queues[MODEL_KEYS];
};

/* ---- clients and leases ---- */

enum client_state { CLIENT_THINKS, CLIENT_ACQUIRES, CLIENT_HOLDS, CLIENT_EXTENDS, CLIENT_RELEASES };

struct client {
	enum client_state state;
	uint32_t serial;
	uint8_t key;
	uint16_t lease;
	uint8_t extensions; /* yet to do */
	uint8_t proc;       /* that works for it */
	uint16_t op;
	uint32_t op_serial;
};

struct lease {
	uint64_t token, fence;
	uint64_t began, ok, until; /* true time; `until`: the latest on any clock within its bounds; cut by a release */
	uint64_t ttl_us;           /* the longest that it was given or extended for */
	uint64_t allowance_us;     /* what its validity had taken off for clocks that part and jump */
	uint16_t next;             /* of the same key, older; NONE */
	uint8_t key, proc;
	uint16_t quorum;            /* bit i: master i's vote was counted */
	struct sight sights[NODES]; /* of those votes */
	bool excused;               /* it overlaps with another one, for a reason that is excused */
	uint32_t woke;              /* the operation that its release made try at once; 0: none */
};

/* The trail of a token, for the checks. */
struct trail {
	uint8_t key, proc;
	bool leased;
	uint16_t op;
	uint32_t op_serial; /* whose attempt it is */
	uint16_t lease;
	uint64_t began;            /* true time */
	uint64_t set_at[NODES];    /* true time; 0: never set there */
	uint64_t jumped_us[NODES]; /* the master's sum when it was set there */
	uint64_t back_us[NODES];
	uint64_t evicted_at[NODES], deleted_at[NODES];
	uint64_t released_at[NODES]; /* a release of this very token took it away */
};

enum phase { PHASE_FAULTS, PHASE_HEALING, PHASE_SERVING, PHASE_SERVED, PHASE_ALONE, PHASE_TOGETHER, PHASE_QUEUE };

/* Kinds of histories. */
enum profile {
	PROFILE_ANY,
	PROFILE_RACE,   /* guesses for fences are all too low, keys are deleted by hand, attempts overlap */
	PROFILE_FLIGHT, /* a master comes back empty while attempts are under way; times of day far apart */
	PROFILE_REUSE,  /* connections break all the time, operations try often */
	PROFILE_EDGE,   /* long leases that nobody gives back, a fast network, and many who wait for their end */
	PROFILE_BOUNDS, /* redlockd that give leases of different lengths, masters that all forget */
	PROFILE_QUEUE,  /* many who wait in one queue, and hardly a fault */
	PROFILES
};

struct config {
	enum profile profile;
	uint8_t nodes, procs, clients, keys;
	bool one_bucket, to_the_end;
	uint8_t victims; /* the first so many masters are what faults of masters hit */
	uint64_t max_ttl_us, timeout_us, margin_us;
	/* unlike: each redlockd has another --max-ttl-ms, and a new one each time that it starts */
	bool bootstrap, unlike;
	uint32_t tries, retry_min_us, retry_max_us;
	uint32_t delay_us, jitter_us, straggler; /* the network: least, spread, one of `straggler` is late */
	uint32_t straggler_us;
	uint32_t fault_every_us;
	uint32_t faults;        /* bit i: enum fault i may happen */
	uint64_t fault_time_us; /* how long the first phase is */
	uint32_t think_us;
	uint32_t burst; /* of 8: faults that follow the last one at once */
	uint64_t max_hold_ms;
	uint32_t waits;   /* of 8 acquisitions so many wait */
	uint64_t wait_us; /* for so long at most */
	bool smooth;      /* no message is late by much, and hardly anything ever fails */
	uint64_t deaf_us; /* how long notifications may be missed then */
};

enum fault {
	FAULT_LOSE,
	FAULT_PARTITION,
	FAULT_ONE_WAY,
	FAULT_STOP,
	FAULT_CRASH,
	FAULT_CRASH_KEPT,
	FAULT_FLUSH,
	FAULT_EVICT,
	FAULT_EVICT_HASH,
	FAULT_POLICY,
	FAULT_FORWARD,
	FAULT_BACK,
	FAULT_DAY,
	FAULT_PROC_CRASH,
	FAULT_PROC_PAUSE,
	FAULT_ROLL_BACK,
	FAULT_SLOW,
	FAULT_ALL_CRASH,
	FAULT_DELETE,
	FAULT_FORGET,
	FAULT_FLIGHT,
	FAULT_DEAF,
	FAULT_FREEZE,
	FAULTS
};

/* Those that go back to what a server was. */
#define SNAPSHOT_FAULTS (1U << FAULT_CRASH_KEPT | 1U << FAULT_ROLL_BACK | 1U << FAULT_ALL_CRASH)

enum excuse {
	/* overlaps */
	EXCUSE_JUMP_UNSEEN,
	EXCUSE_JUMP_SMALL,
	EXCUSE_ROLLED_UNSEEN,
	EXCUSE_EVICTED_UNSEEN,
	EXCUSE_DELETED,
	EXCUSE_TTL_UNKNOWN,
	EXCUSE_FENCE_CLOCKED,
	EXCUSE_FENCE_ROLLED, /* order of fences */
	EXCUSES
};

struct figures {
	uint64_t seeds, simulated_us, events, operations, leases, extensions, rounds, quarantines, epoch_written,
		clocked, bad_epochs, late, jumps_seen, proc_restarts, late_jumps;
	uint64_t faults[FAULTS], excused[EXCUSES], outcomes[8];
	uint64_t waiters, granted_waiting, notified, passed, missed_notifications, stale_entries, overtakes,
		most_overtakes, outruns, most_outruns, wait_ends, slowest_wake_us;
	uint64_t fullest_events, fullest_requests, fullest_ops, slowest_recovery_us;
};

struct world {
	uint64_t random, now, hash;
	struct config config;
	struct node nodes[NODES];
	struct proc procs[PROCS];
	struct client clients[CLIENTS];
	bool healing, over, clocks_wrong;
	bool late_jump; /* a small jump of a clock was found only after the healing */
	enum phase phase;
	uint32_t operations;
	uint64_t healed_at, recovered_at, clocked_at, served_by;
	uint64_t next_run_id;
	uint32_t next_serial, next_token, lease_count;
	uint16_t newest[MODEL_KEYS]; /* lease of each key; NONE */
	uint64_t top_fence[MODEL_KEYS];
	uint16_t active[MODEL_KEYS][ACTIVE];
	uint8_t active_count[MODEL_KEYS];
	uint32_t slow; /* the network's delays are so many times as long */
	uint32_t tests_ok, tests_due;
	uint8_t trial_key;
	uint64_t calm_at;                /* since then all is well, and fallbacks have had their time; NEVER */
	uint64_t free_since[MODEL_KEYS]; /* nobody has it on a majority, and somebody waits for it; 0: not so */
	bool failed;
	const char *only; /* what a violation must begin with to count; NULL: all do */
	char failure[240];
	struct figures *figures;
	bool telling;
	void (*tell)(const char *line);
	/* The queue: random_queue.c. */
	struct queued heap[EVENTS];
	uint32_t heap_count, event_number, on_wheel;
	uint64_t spoke, spokes_used[SPOKES / 64];
	uint16_t spokes[SPOKES];
	uint16_t free_events[EVENTS], free_event_count, used_events;
	struct event events[EVENTS];
	struct lease leases[LEASES];
	struct trail trails[TOKENS];
};

#include "random_functions.h"

#endif
