/* SPDX-License-Identifier: MIT */
/* The world of the exhaustive check: two operations (or SIM_OPS), each with the real core, three masters, and
 * a connection from each operation to each master. No time passes by itself and nothing is random: everything that may
 * happen next is an event, and sim_apply() makes it happen. A world is plain memory without pointers into itself, so
 * that a copy of it is a branch.
 *
 *   operation ── commands, in order ──► master ── replies, in order ──► operation
 *
 * sim_check.c has the checks, sim_fingerprint.c the equality of two worlds. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim_master.h"

enum {
	SIM_MASTERS = 3,
	SIM_GUESSES = 4,
	SIM_QUEUE = 10,
	SIM_SLOTS = 2,
	SIM_LEASE_FENCE = 6,
	SIM_EPOCH = 1,
	SIM_NEXT_EPOCH
};

enum sim_check {
	SIM_DISTINCT = 1 << 0,    /* two numbers given are different */
	SIM_HOLDING = 1 << 1,     /* numbers follow the order in which the lock was held */
	SIM_REAL_TIME = 1 << 2,   /* an attempt that began after another's OK gets the larger number */
	SIM_DEFINITION = 1 << 3,  /* a majority executed a strict increase to exactly the number given */
	SIM_EXCLUSION = 1 << 4,   /* never two valid at the same time; only where no lock is dropped */
	SIM_KEPT = 1 << 5,        /* the holder of the lock has its key on a majority; only if no lock is dropped */
	SIM_LEFT_BEHIND = 1 << 6, /* an operation without the lock leaves no key */
	/* `done` once, `finished` once and with the last reply; an open operation wants a TIMER */
	SIM_ONCE = 1 << 7,
	SIM_ASSERT = 1 << 8,     /* the core's own asserts */
	SIM_ENTRY_LEFT = 1 << 9, /* an operation whose wait is over leaves no entry in a queue */
	/* nobody sleeps while the lock is free and nothing is on its way; only where nothing was lost */
	SIM_FORGOTTEN = 1 << 10,
	SIM_PART = 1 << 11, /* a master has all keys of a set or none; only where no lock is dropped or runs out */
	/* a repair needs a majority that extended; once a later lease is valid, no majority extends an earlier one */
	SIM_REVIVED = 1 << 12,
	SIM_ALL = (1 << 13) - 1
};

struct sim_config {
	const char *name, *about;
	uint8_t ops;                                       /* for the program with so many operations; 0: 2 */
	uint8_t guesses[SIM_GUESSES];                      /* any of them may be the guess of any attempt; 0: no more */
	uint8_t buckets[SIM_MASTERS], floors[SIM_MASTERS]; /* a bucket of 0: 5 */
	bool late;                                         /* a process may stand still until no validity is left */
	bool two_resources;                                /* of one bucket, one for each operation */
	bool sets;                                         /* each locks two, of three; they share the one between */
	uint8_t shared;                                    /* bit o: operation o wants a shared lease */
	bool slots;    /* each wants one of two slots: A first 0 and then 1, B the other way round */
	uint8_t tries; /* of each; 0: 1 */
	/* ttl − drift: after that no validity is left; 0: 3; a silent master counts as failed after 2 */
	uint8_t useful_ticks;
	uint8_t drops;    /* how many locks masters may drop early */
	uint8_t troubles; /* how many connections may be lost, hang or be down from the start */
	uint8_t wipes;    /* 1: a master may lose its memory; leases then run out */
	bool survey;      /* … and the others may report their leases */
	bool linger;      /* a lost connection's commands may still be carried out, after newer ones */
	uint8_t attempts; /* both wait in the queue, and make so many attempts at most, together; 0: nobody waits */
	/* No waiter is cancelled, no wait ends, and none tries by itself, but that of the one that began second may. */
	bool second_leaves;
	bool keeps;         /* a lease is kept for ever after its release */
	bool extends;       /* sim_extend.c: A and C are extensions of one lease, which B wants */
	bool extends_apart; /* no timers; C begins when B has been answered, and nobody needs its answers */
};

/* The events. `op` and `master` only if named here. */
enum sim_kind {
	SIM_START,         /* op; arg: which guess */
	SIM_EXECUTE,       /* op, master: the master carries out the next command of this connection */
	SIM_DELIVER,       /* op, master: the next reply comes in */
	SIM_TIMER,         /* op; arg: which guess, where a new try begins */
	SIM_CANCEL,        /* op */
	SIM_RELEASE,       /* op: the holder releases the lock */
	SIM_LATE,          /* op: its process stood still until no validity is left */
	SIM_DROP,          /* master; arg: the key, or which of its shared leases: it is gone early */
	SIM_DOWN,          /* op, master: not connected from the start: nothing is ever sent */
	SIM_HANG,          /* op, master: nothing more is sent but the release; the connection lives on */
	SIM_LOSE,          /* op, master: the connection is lost with all that is in it, and there is a new one */
	SIM_LOSE_FOR_GOOD, /* op, master: likewise, and there is none */
	SIM_LOSE_LATE,     /* op, master: there is a new one, and what was on its way may still be carried out */
	SIM_STALE,         /* op, master: the master carries out the next command of the lost connection */
	SIM_WIPE,          /* master: it loses its keys, its numbers and its epoch */
	SIM_RUN_OUT,       /* op: no validity is left of its lease */
	SIM_EXPIRE,        /* master; arg: as for DROP, of an attempt that has no validity left */
	/* master: it reports the leases that it granted; no command from before the wipe is carried out there
	 * afterwards */
	SIM_SURVEY,
	SIM_WRITE_EPOCH, /* master: its quarantine is over: a floor and a new epoch */
	/* op, master: it gets this master's notification; arg: which guess, if a new attempt begins */
	SIM_NOTIFY,
	SIM_END, /* op: its wait is over */
	SIM_KINDS
};

struct sim_event {
	uint8_t kind, op, master, arg;
};

struct sim_command {
	uint8_t script, attempt, round, fence;
	bool silent; /* the core has its reply already */
	uint8_t epoch;
	uint8_t entry; /* of enum redlock_place */
	bool tokenless;
	bool old, late; /* sent before a master was wiped; its deadline has passed */
	bool repair;    /* ACQUIRE of an extension */
	bool keeps;     /* RELEASE of a lease, after which nobody else gets the lock */
	uint8_t seen;   /* … where the bucket had this number; 0: none */
};

struct sim_reply {
	uint8_t script, attempt, round, vote;
	uint8_t fence;  /* GRANTED to an acquire or an extension, BEHIND; GONE: the number of the bucket */
	uint8_t holder; /* HELD: the token */
	bool elsewhere; /* HELD: another slot is free */
};

enum sim_link_state { SIM_UP, SIM_HUNG, SIM_GONE };

/* One operation's connection to one master. */
struct sim_link {
	uint8_t state;
	bool excused; /* a release was lost, or acquires may come after it: a key may stay until it runs out */
	uint8_t command_count, reply_count, stale_count;
	struct sim_command commands[SIM_QUEUE], stale[SIM_QUEUE];
	struct sim_reply replies[SIM_QUEUE];
};

struct sim_op {
	struct redlock core;
	uint64_t now_us;  /* its own clock; one tick is 1 µs */
	uint16_t pending; /* replies that the core was promised */
	bool done, finished;
	uint8_t outcome;
	uint8_t fence;             /* OK: the number given */
	bool released;             /* OK, and the holder released it */
	uint8_t before;            /* bit o: operation o was answered OK before this attempt began */
	uint8_t turn[SIM_MASTERS]; /* this attempt's ACQUIRE was granted there, as which of the last ones; 0: not yet */
	uint8_t epochs[SIM_MASTERS]; /* of the masters when this attempt began; 0: none, it was quarantined */
	/* its entry in the queue: by its guess, and by who began first where these are equal; 0: it does not wait */
	uint8_t arrival;
	uint8_t notified;               /* bit i: a notification of master i is on its way */
	bool told;                      /* in SURVEY a master told of the lease of this attempt */
	uint8_t gone[SIM_MASTERS];      /* an extension: the number of the bucket that came with GONE */
	uint8_t extended_after;         /* bit i: … it was carried out on master i after the later lease was valid */
	uint8_t increased[SIM_MASTERS]; /* the last number to which this attempt strictly increased the bucket there */
	struct sim_link links[SIM_MASTERS];
};

struct sim_world {
	struct sim_op ops[SIM_OPS];
	sim_state masters[SIM_MASTERS];
	uint8_t drops_left, troubles_left;
	uint8_t extended[SIM_MASTERS]; /* bit o: extension o has moved the end of the key there */
	bool first_over;               /* the lease ended somewhere before any extension of it */
	uint8_t wiped;                 /* which master; SIM_MASTERS: none so far */
	uint8_t surveyed;              /* bit i: master i has told since */
	uint16_t violated;             /* of enum sim_check */
};

void sim_init(struct sim_world *world, const struct sim_config *config);
/* True if the event can happen now. */
bool sim_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event);
/* Lets the event happen; it must be possible. Sets world->violated. */
void sim_apply(struct sim_world *world, const struct sim_config *config, const struct sim_event *event);

/* sim_wipe.c: a master that loses its memory; the events SIM_WIPE, SIM_RUN_OUT, SIM_EXPIRE, SIM_SURVEY,
 * SIM_WRITE_EPOCH. */
void sim_wipe(struct sim_world *world, unsigned master);
void sim_wipe_survey(struct sim_world *world, unsigned master);
void sim_wipe_write_epoch(struct sim_world *world, unsigned master);
bool sim_wipe_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event);

/* sim_extend.c: extensions and repair. `note`: a command was carried out; `is_its`: the event is of this file; `may`:
 * another one may happen, if it can. */
void sim_extend_init(struct sim_world *world, const struct sim_config *config);
void sim_extend_note(struct sim_world *world, unsigned op, unsigned master, const struct sim_command *command,
		     enum redlock_vote vote);
bool sim_extend_is_its(const struct sim_event *event);
bool sim_extend_may(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event);
bool sim_extend_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event);
void sim_extend_apply(struct sim_world *world, const struct sim_config *config, const struct sim_event *event);
void sim_extend_check(struct sim_world *world, const struct sim_config *config);

/* sim_queue.c: waiters. The entry that they send, the notification of an answer, the events from SIM_NOTIFY on. */
void sim_queue_begin(struct sim_world *world, const struct sim_config *config, unsigned op, unsigned guess);
void sim_queue_entry(const struct sim_world *world, const struct sim_config *config, unsigned op,
		     const struct sim_command *command, struct sim_request *ret_request);
void sim_queue_note_notification(struct sim_world *world, const struct sim_config *config, unsigned master,
				 const struct sim_effect *effect);
bool sim_queue_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event);
bool sim_queue_may_leave(const struct sim_config *config, const struct sim_op *op);
bool sim_queue_can_wake_up(const struct sim_world *world, const struct sim_config *config, unsigned op);
void sim_queue_apply(struct sim_world *world, const struct sim_config *config, const struct sim_event *event);
void sim_queue_check(struct sim_world *world, const struct sim_config *config);

/* sim_world.c: for sim_queue.c. sim_drive() gives the core an event and carries out its output; sim_send() sends a
 * command of its process that belongs to no operation. */
void sim_drive(struct sim_world *world, unsigned op, struct redlock_event *event);
void sim_send(struct sim_world *world, unsigned op, unsigned master, const struct sim_command *command);

/* sim_check.c: sets bits of world->violated. */
void sim_check(struct sim_world *world, const struct sim_config *config);
const char *sim_check_name(unsigned check);

/* sim_fingerprint.c: equal for worlds that can only fail alike. */
uint64_t sim_fingerprint(const struct sim_world *world, const struct sim_config *config);

/* sim_story.c: prints one line for an event, and the world after it. */
void sim_tell(unsigned number, const struct sim_world *before, const struct sim_event *event,
	      const struct sim_world *after, const struct sim_config *config);

/* The token of an attempt, and back; also from the token under which its lease is kept. */
uint8_t sim_token(unsigned op, unsigned attempt);
static inline unsigned sim_token_op(uint64_t token)
{
	return (unsigned)(((token & (SIM_KEPT_TOKEN - 1)) - 1) >> 2);
}
static inline unsigned sim_token_attempt(uint64_t token)
{
	return (unsigned)((token - 1) & 3) + 1;
}

/* In place of tokens if shared leases refuse another operation: to the core, all of them are one holder. */
enum { SIM_SHARED_HOLDER = 1 + 4 * SIM_OPS };

enum { SIM_SHARED = 1 }; /* sets: the key that both lock, and its bucket; each has one of its own beside it */

/* The key that an operation locks; of a set the one that the other does not lock. */
static inline unsigned sim_key(const struct sim_config *config, unsigned op)
{
	return config->sets ? 2 * op : config->two_resources ? op : 0;
}

static inline enum sim_lease_kind sim_lease_kind(const struct sim_config *config, unsigned op)
{
	return config->slots ? SIM_SLOT : (config->shared & (1U << op)) != 0 ? SIM_PLUS : SIM_EXCLUSIVE;
}

/* How many leases of an operation's kind may hold the lock together. */
static inline uint8_t sim_most(const struct sim_config *config)
{
	return config->slots ? SIM_SLOTS : SIM_HOLDERS;
}

static inline uint8_t sim_slot(const struct sim_config *config, unsigned attempt)
{
	return config->slots ? (uint8_t)((attempt - 1) % 2) : 0;
}

/* True if a key may have several tokens. */
static inline bool sim_has_several(const struct sim_config *config)
{
	return config->shared || config->slots;
}

/* The key of DROP or EXPIRE, and the token that holds it. */
static inline unsigned sim_event_key(const struct sim_config *config, const struct sim_event *event)
{
	return sim_has_several(config) ? 0 : event->arg;
}

static inline uint8_t sim_event_token(const struct sim_world *world, const struct sim_config *config,
				      const struct sim_event *event)
{
	const struct sim_master *master = sim_master(world->masters[event->master]);
	unsigned i = sim_has_several(config) ? event->arg : 0;
	return i <= SIM_HOLDERS ? master->tokens[sim_event_key(config, event)][i] : 0;
}

/* All keys that it locks, a bit each. */
static inline uint8_t sim_names(const struct sim_config *config, unsigned op)
{
	return (uint8_t)(1U << sim_key(config, op) | (config->sets ? 1U << SIM_SHARED : 0));
}

static inline uint64_t sim_useful_until_us(const struct sim_op *op)
{
	return op->core.start_us + op->core.params.ttl_us - op->core.params.drift_us;
}

/* True while the validity of the current attempt has not run out, by the operation's own clock. */
static inline bool sim_has_validity(const struct sim_op *op)
{
	return op->now_us < sim_useful_until_us(op);
}

static inline bool sim_is_extension(const struct sim_op *op)
{
	return op->core.params.kind == REDLOCK_EXTEND;
}

/* True while votes can still change what the operation does. */
static inline bool sim_is_open(const struct sim_op *op)
{
	return op->core.state == REDLOCK_VOTING || op->core.state == REDLOCK_RAISING ||
	       op->core.state == REDLOCK_LEAVING;
}

/* True between two attempts. */
static inline bool sim_is_between(const struct sim_op *op)
{
	return op->core.state == REDLOCK_PAUSING || op->core.state == REDLOCK_WAITING;
}

#endif
