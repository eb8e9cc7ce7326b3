/* The world of the seeded simulator (sim_random): several processes that stand for redlockd, each with the real core and the real
 * guard, modelled masters, a network, clocks, clients, and a nemesis. One seed is one history; the same seed gives the same one with
 * any compiler: there are only integers, and one source of numbers (random_queue.c).
 *
 *   random_client.c ─ calls ─► random_daemon.c ─ commands ─► random_net.c ─► random_node.c (model_master.c)
 *        ▲  leases                  │ votes    ◄─ replies ─┘
 *   random_check.c ◄────────────────┘         random_fault.c troubles all of them
 *
 * Times are µs. `world->now` is true time, which nobody in the world can see: each process has a steady clock and a time of day, each
 * master a time of day, all of which run a little fast or slow (CLOCK_PPM). tests/sim/README.md says what is modelled and checked. */
#ifndef RANDOM_WORLD_H
#define RANDOM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard.h"
#include "model_master.h"
#include "redlock.h"

enum {
	PROCS = 3,
	NODES = 5,       /* masters at most */
	CLIENTS = 8,
	OPS = 48,        /* of one process, at a time */
	CALLS = 64,      /* under way on one connection */
	OWED = 64,       /* releases owed to one master */
	EVENTS = 8192,   /* that are to come */
	TOKENS = 8192,   /* drawn in one history */
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
	EVENT_GREETING,  /* proc, node; serial: its time is up */
	EVENT_HEARTBEAT, /* proc, node; serial: of the connection */
	EVENT_GUARD,     /* proc: guard_deadline_us() has passed, or a second */
	EVENT_CLIENT,    /* a: the client takes its next step, if serial is still its own */
	EVENT_FAULT,     /* the nemesis */
	EVENT_MEND,      /* a: what, proc, node: the end of a fault; serial */
	EVENT_SNAPSHOT,  /* node: an image is taken */
	EVENT_PHASE
};

/* What a message carries. The first six are those of enum redlock_script. */
enum what { WHAT_GREET = 6, WHAT_HEARTBEAT, WHAT_READ, WHAT_BAR, WHAT_FENCES, WHAT_CERTIFY, WHAT_RESET };

struct answer {
	struct model_reply script;
	uint64_t run_id;    /* greeting */
	uint32_t client_id; /* greeting */
	uint32_t evicted;   /* INFO: greeting, heartbeat */
	bool evicts;        /* likewise: the policy is not noeviction */
};

struct event {
	uint8_t kind, proc, node, what;
	bool retimed;
	uint16_t next;        /* in a list of those held up; NONE */
	uint16_t incarnation; /* of the master that the connection was made to */
	uint16_t a;
	uint32_t serial;      /* messages: the connection's */
	uint32_t number;      /* messages: which one of the connection */
	uint64_t run_at;      /* true time. Replies: when it was carried out. Commands: when at the latest it should be; 0: no matter */
	union {
		struct model_command command;
		struct answer answer;
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
	struct model_master image, older; /* what a disk, or an image of the machine, has */
	uint64_t image_at, older_at;
	uint32_t next_client_id, image_client_id, older_client_id;
	struct clock clock;
	bool up, stopped, evicts;
	uint16_t incarnation;
	uint32_t serial;      /* of the stop, crash or policy that is to be mended */
	uint64_t started_us;  /* by its own clock: its uptime counts from there */
	uint64_t jumped_us;   /* sum of the jumps forward */
	uint64_t jumped_back_us;
	uint64_t jump_at, back_at; /* true time of the last jump, of the last one back; 0: none */
	uint64_t rolled_at;   /* true time of the last roll-back; 0: none */
};

/* ---- processes ---- */

enum link_state { LINK_DOWN, LINK_GREETING, LINK_UP };

/* One command under way. */
struct call {
	uint64_t sent_us; /* by the process's clock */
	uint64_t token, certificate;
	uint16_t op;      /* NONE: owed, or not an operation's */
	uint16_t attempt, round;
	uint8_t what, key;
	bool owed;
	uint64_t latest; /* true time: carried out later, it is late; 0: never */
};

struct owed {
	uint64_t token, until_us;
	uint8_t key;
};

struct held {
	uint16_t first, last; /* NONE */
};

struct link {
	enum link_state state;
	bool hung, heartbeat_out, heartbeat_due, evicts, knows_evicted;
	uint32_t serial;  /* of the connection; each has another */
	uint32_t sent;    /* messages to the master */
	uint32_t timer;   /* which heartbeat event is meant */
	uint16_t incarnation;
	uint32_t evicted; /* as INFO said last */
	uint32_t backoff_ms;
	uint8_t first_call, call_count, first_owed, owed_count;
	uint64_t there_at, back_at; /* nothing sent from now on arrives before */
	uint64_t stale_at;
	bool block_there, block_back;
	uint32_t block_serial;
	struct held there, back; /* what a partition, or a stopped receiver, holds up */
	uint32_t cut_serial[CUTS], cut_number[CUTS]; /* of a lost connection no more than this many messages are carried out */
	uint8_t next_cut;
	struct call calls[CALLS];
	struct owed owed[OWED];
	/* For the checks alone. */
	uint64_t clock_since; /* its clock is known to the process since; NEVER */
	bool ahead_unseen;    /* its clock jumped forward, and no answer was read since */
	uint64_t hidden_at;   /* its clock was forward and back again between two answers; true time when that was over; 0: never */
	uint64_t info_at;     /* when the last INFO that was read was carried out */
	uint64_t seen_run_id;
	uint32_t seen_beat, seen_client_id;
	uint64_t saw_rolled;  /* the last roll-back that the process could see; true time */
};

/* What a redlockd had seen of a master when it read the master's vote: see random_check.c. */
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
	uint16_t attempt, reached;
	uint64_t timer_at; /* true time of the event that was asked for last; NEVER */
	uint64_t token;
	uint64_t began;    /* true time: this attempt */
	uint64_t ttl_ms;
	uint16_t unsent_count;
	uint16_t lease;    /* extend, release: which; NONE */
	struct redlock_event unsent[2 * NODES];
	struct sight sights[NODES]; /* of those whose votes were read */
};

struct proc {
	bool up, paused;
	uint32_t serial;  /* of the pause or crash that is to be mended */
	uint32_t run;     /* which run of the program */
	struct clock clock;
	uint64_t latest_us; /* before its time of day was set */
	int64_t wall_us;  /* time of day − steady clock */
	int64_t wall_ahead_us; /* by so much it is wrong from the beginning */
	uint64_t looked_us, round_us;
	uint64_t fence_clock;
	struct guard guard;
	uint64_t guard_at; /* the event that was asked for; NEVER */
	uint64_t early[NODES][NODES]; /* planted: the fences at the restart */
	struct held timers; /* that wait for the end of a pause */
	struct link links[NODES];
	struct op ops[OPS];
	uint16_t free_ops[OPS], free_count;
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
	uint64_t allowance_us;     /* what its validity had taken off for clocks that part and jump */
	uint16_t next;             /* of the same key, older; NONE */
	uint8_t key, proc;
	uint16_t quorum;           /* bit i: master i's vote was counted */
	struct sight sights[NODES]; /* of those votes */
	bool excused;              /* it overlaps with another one, for a reason that is excused */
};

/* What is known of a token, for the checks. */
struct trail {
	uint8_t key;
	bool leased;
	uint16_t lease;
	uint64_t began;              /* true time */
	uint64_t set_at[NODES];      /* true time; 0: never set there */
	uint64_t jumped_us[NODES];   /* the master's sum when it was set there */
	uint64_t back_us[NODES];
	uint64_t evicted_at[NODES], deleted_at[NODES];
	uint64_t released_at[NODES]; /* a release of this very token took it away */
};

/* Kinds of histories. */
enum profile {
	PROFILE_ANY,
	PROFILE_RACE,   /* guesses for fences are all too low, keys are deleted by hand, attempts overlap */
	PROFILE_FLIGHT, /* a master comes back empty while attempts are under way; times of day far apart */
	PROFILE_REUSE,  /* connections break all the time, calls try often */
	PROFILE_EDGE,   /* long leases that nobody gives back, a fast network, and many who wait for their end */
	PROFILES
};

struct config {
	enum profile profile;
	uint8_t nodes, procs, clients, keys;
	bool one_bucket, to_the_end;
	uint8_t victims;        /* the first so many masters are what faults of masters hit */
	uint64_t max_ttl_us, timeout_us, margin_us;
	bool bootstrap;
	uint32_t tries, retry_min_us, retry_max_us;
	uint32_t delay_us, jitter_us, straggler; /* the network: least, spread, one of `straggler` is late */
	uint32_t straggler_us;
	uint32_t fault_every_us;
	uint32_t faults;        /* bit i: enum fault i may happen */
	uint64_t fault_time_us; /* how long the first phase is */
	uint32_t think_us;
	uint32_t burst;         /* of 8: faults that follow the last one at once */
	uint64_t max_hold_ms;
};

enum fault {
	FAULT_LOSE, FAULT_PARTITION, FAULT_ONE_WAY, FAULT_STOP, FAULT_CRASH, FAULT_CRASH_KEPT, FAULT_FLUSH, FAULT_EVICT, FAULT_EVICT_HASH, FAULT_POLICY,
	FAULT_FORWARD, FAULT_BACK, FAULT_DAY, FAULT_PROC_CRASH, FAULT_PROC_PAUSE, FAULT_ROLL_BACK, FAULT_SLOW, FAULT_ALL_CRASH, FAULT_DELETE, FAULT_FLIGHT, FAULTS
};

enum excuse {
	EXCUSE_JUMP_UNSEEN, EXCUSE_JUMP_SMALL, EXCUSE_ROLLED_UNSEEN, EXCUSE_EVICTED_UNSEEN, EXCUSE_DELETED, /* overlaps */
	EXCUSE_FENCE_CLOCKED, EXCUSE_FENCE_ROLLED, /* order of fences */
	EXCUSES
};

struct figures {
	uint64_t seeds, simulated_us, events, calls, leases, extensions, rounds, bars, certified, clocked, bad_certificates, late, jumps_seen, proc_restarts, late_jumps;
	uint64_t faults[FAULTS], excused[EXCUSES], outcomes[8];
	uint64_t fullest_events, fullest_calls, fullest_ops, slowest_recovery_us;
};

struct world {
	uint64_t random, now, hash;
	struct config config;
	struct node nodes[NODES];
	struct proc procs[PROCS];
	struct client clients[CLIENTS];
	bool healing, testing, over, clocks_wrong;
	bool late_jump;                  /* a small jump of a clock was found only after the healing */
	unsigned phase;
	uint32_t calls;
	uint64_t healed_at, recovered_at, clocked_at;
	uint64_t next_run_id;
	uint32_t next_serial, next_token, lease_count;
	uint16_t newest[MODEL_KEYS];     /* lease of each key; NONE */
	uint64_t top_fence[MODEL_KEYS];
	uint16_t active[MODEL_KEYS][ACTIVE];
	uint8_t active_count[MODEL_KEYS];
	uint32_t slow;                   /* the network's delays are so many times as long */
	uint32_t tests_ok;
	bool failed;
	const char *only;                /* what a violation must begin with to count; NULL: all do */
	char failure[240];
	struct figures *figures;
	bool telling;
	void (*tell)(const char *line);
	/* The queue: random_queue.c. */
	struct queued heap[EVENTS];
	uint32_t heap_count, event_number;
	uint16_t free_events[EVENTS], free_event_count, used_events;
	struct event events[EVENTS];
	struct lease leases[LEASES];
	struct trail trails[TOKENS];
};

/* ---- random_queue.c ---- */

void queue_init(struct world *world);
/* A new event, all zero but for its kind; to be filled in and pushed. */
struct event *event_new(struct world *world, enum event_kind kind);
void event_push(struct world *world, struct event *event, uint64_t at);
struct event *event_pop(struct world *world); /* moves `now` on; NULL: nothing is to come */
void event_free(struct world *world, struct event *event);
/* splitmix64. */
static inline uint64_t draw(struct world *world)
{
	uint64_t z = (world->random += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* 0 … bound−1; bound > 0. */
static inline uint64_t below(struct world *world, uint64_t bound)
{
	return bound <= UINT32_MAX ? (draw(world) >> 32) * bound >> 32 : draw(world) % bound;
}

static inline bool one_of(struct world *world, uint32_t chances)
{
	return below(world, chances) == 0;
}

uint64_t spread(struct world *world, uint64_t least, uint64_t most); /* small ones more often: every size has its turn */
static inline uint64_t clock_read(const struct clock *clock, uint64_t now)
{
	int64_t passed = (int64_t)(now - clock->from);
	return clock->base + (uint64_t)(passed + passed * clock->ppm / 1000000);
}

void clock_shift(struct clock *clock, uint64_t now, int64_t by_us);
void trace(struct world *world, uint64_t a, uint64_t b, uint64_t c);
void tell(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define TELL(world, ...) do { if ((world)->telling) tell((world), __VA_ARGS__); } while (0)
void fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- random_net.c ---- */

void net_init(struct world *world);
void net_send(struct world *world, unsigned proc, unsigned node, struct event *event);  /* a command, over the present connection */
void net_answer(struct world *world, const struct event *command, struct event *reply); /* a reply, over the connection of the command */
void net_reset(struct world *world, unsigned proc, unsigned node);                      /* the master's end of the connection is gone */
void net_cut(struct world *world, unsigned proc, unsigned node, bool hard);             /* the process's end is gone; hard: with all that is in it */
void net_arrive(struct world *world, struct event *event);                              /* EVENT_COMMAND, EVENT_REPLY */
void net_flow_to_node(struct world *world, unsigned node);                              /* it runs again */
void net_flow_to_proc(struct world *world, unsigned proc);
void net_unblock(struct world *world, unsigned proc, unsigned node);

/* ---- random_node.c ---- */

void node_init(struct world *world, unsigned node);
void node_command(struct world *world, struct event *event);
void node_crash(struct world *world, unsigned node, unsigned memory); /* 0: none; 1: all; 2: but for the last writes */
void node_start(struct world *world, unsigned node);
void node_roll_back(struct world *world, unsigned node, bool clock_too);
void node_snapshot(struct world *world, unsigned node);
void node_jump(struct world *world, unsigned node, int64_t by_us);
void node_evict(struct world *world, unsigned node, unsigned key);
void node_delete(struct world *world, unsigned node, unsigned key); /* by hand */
void node_sync(struct world *world, unsigned node); /* model.now_us is now */

/* ---- random_daemon.c ---- */

void proc_start(struct world *world, unsigned proc, bool bootstrap);
void proc_crash(struct world *world, unsigned proc);
uint64_t proc_now(const struct world *world, const struct proc *proc);
uint64_t proc_wall(const struct world *world, const struct proc *proc);
void proc_round(struct world *world, struct proc *proc); /* once more round its loop */
bool proc_timer(struct world *world, struct event *event); /* false: kept until the pause ends */
void proc_continue(struct world *world, unsigned proc);
uint64_t proc_true_after(const struct proc *proc, uint64_t us); /* how long `us` of its clock take */
struct op *op_begin(struct world *world, unsigned proc, enum redlock_kind kind, unsigned key, uint64_t ttl_ms, uint64_t token);
void op_start(struct world *world, unsigned proc, struct op *op);
void op_cancel(struct world *world, unsigned proc, struct op *op);
void op_vote(struct world *world, unsigned proc, const struct call *call, unsigned node, enum redlock_vote vote, const struct model_reply *reply);
void op_timer(struct world *world, unsigned proc, struct event *event);
uint64_t drift_of(const struct world *world, uint64_t ttl_us);

/* ---- random_link.c ---- */

enum sent { SENT, SENT_NOT, SENT_BARRED };
void link_start(struct world *world, unsigned proc, unsigned node);
void link_connect(struct world *world, unsigned proc, unsigned node, uint32_t serial);
void link_greeting_over(struct world *world, unsigned proc, unsigned node, uint32_t serial);
void link_heartbeat(struct world *world, unsigned proc, unsigned node, uint32_t serial);
void link_lost(struct world *world, unsigned proc, unsigned node, bool hard);
void link_reply(struct world *world, struct event *event);
void link_note_silence(struct world *world, unsigned proc, unsigned node);
bool link_push(struct world *world, unsigned proc, unsigned node, const struct call *call, const struct model_command *command);
enum sent link_send(struct world *world, unsigned proc, unsigned node, const struct call *call, struct model_command *command);
void link_owe(struct world *world, unsigned proc, unsigned node, uint64_t token, unsigned key);

/* ---- random_guard.c ---- */

void guarding_pump(struct world *world, unsigned proc);
void guarding_tick(struct world *world, unsigned proc);
void guarding_connected(struct world *world, unsigned proc, unsigned node, const struct answer *answer);
void guarding_event(struct world *world, unsigned proc, unsigned node, enum guard_event_kind kind);
void guarding_answer(struct world *world, unsigned proc, unsigned node, const struct call *call, const struct event *event);
enum guard_clock guarding_time(struct world *world, unsigned proc, uint64_t sent_us, const struct event *event);
void guarding_mismatch(struct world *world, unsigned proc, unsigned node, uint64_t certificate);

/* ---- random_client.c ---- */

void clients_init(struct world *world);
void client_step(struct world *world, unsigned client, uint32_t serial);
void client_answer(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void client_forsaken(struct world *world, unsigned client); /* its redlockd is gone */
void client_retire(struct world *world);

/* ---- random_fault.c ---- */

void config_draw(struct world *world);
void fault_next(struct world *world);
void fault_mend(struct world *world, const struct event *event);
void fault_heal(struct world *world);
const char *fault_name(enum fault fault);

/* ---- random_check.c ---- */

void check_init(struct world *world);
void check_set(struct world *world, const struct event *event, const struct model_reply *reply);
void check_looked(struct world *world, unsigned proc, unsigned node, uint64_t run_at); /* an answer that carried the time was read */
void check_jumped(struct world *world, unsigned node, int64_t by_us);
void check_jump_seen(struct world *world, unsigned proc, unsigned node, enum guard_clock clock);
void check_counted(struct world *world, unsigned proc, const struct event *event, struct op *op); /* before guard_time() */
void test_answer(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void check_granted(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void check_extended(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result);
void check_released(struct world *world, uint16_t lease); /* from now on nobody relies on it */
void check_nothing_left(struct world *world);
const char *excuse_name(enum excuse excuse);

/* ---- random_run.c ---- */

/* Plays one seed; true if nothing is violated. `tell`: NULL, or gets the story. */
bool world_run(struct world *world, uint64_t seed, struct figures *figures, void (*tell)(const char *line));

#endif
