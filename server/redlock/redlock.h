/* SPDX-License-Identifier: MIT */
/* The core of redlockd: Redlock as a pure state machine (no clock, no I/O, no heap).
 *
 * One `struct redlock` is one operation (acquire, extend, release or inspect) on one resource over N independent
 * masters. Events go in, actions come out. Time is a member of the event and randomness a seed, so that a test can play
 * every order of replies.
 *
 * Ownership: the caller owns all memory. Thread: any, one at a time for one operation. The caller's duties are at
 * struct redlock_event, struct redlock_output and redlock_step().
 *
 * Sources: the Redlock specification ("The Redlock algorithm", "Retry on failure", "Releasing the lock", "Extending the
 * lock"), and the project's own rules in docs/contributing/architecture.md. All times are microseconds. */
#ifndef REDLOCK_H
#define REDLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum { REDLOCK_MASTERS_MAX = 15 };

#define REDLOCK_NEVER UINT64_MAX
#define REDLOCK_FENCE_LIMIT (UINT64_C(1) << 53) /* fences stay below: Lua and JavaScript count exactly up to here */

/* Waiting. A process counts as alive on a master for this long after its last sign of life there. When it is another
 * process's turn, our waiter tries after this time without news. */
#define REDLOCK_ALIVE_MS 1000
#define REDLOCK_ALIVE_US (UINT64_C(1000) * REDLOCK_ALIVE_MS)
/* It tries after this time even if notifications for other processes go on: if two clusters share a channel, they may
 * be about another lock. */
#define REDLOCK_PASSED_MAX_US UINT64_C(5000000)
/* If another library holds the lock, nobody notifies the waiters of its release. The first waiter of a process looks
 * again after this long. It does so at most REDLOCK_LOOKS_MAX times in one wait, so that the longest wait has attempts
 * left for its own turn. */
#define REDLOCK_LOOK_AGAIN_US UINT64_C(250000)
enum { REDLOCK_LOOKS_MAX = 32768 };
/* Slots. If the slot of an attempt is held and another one may be free on a majority, the next attempt follows at once.
 * The masters may have different slots free, so this happens at most this many times in a row. */
enum { REDLOCK_HOPS_MAX = 8 };

enum redlock_kind { REDLOCK_ACQUIRE, REDLOCK_EXTEND, REDLOCK_RELEASE, REDLOCK_INSPECT };

/* The script of server/scripts/ that a master is to run. */
enum redlock_script {
	REDLOCK_SCRIPT_NONE,
	REDLOCK_SCRIPT_ACQUIRE,
	REDLOCK_SCRIPT_RAISE,
	REDLOCK_SCRIPT_EXTEND,
	REDLOCK_SCRIPT_RELEASE,
	REDLOCK_SCRIPT_INSPECT
};

/* The answer of one master, or what became of the command. */
enum redlock_vote {
	REDLOCK_VOTE_GRANTED,     /* acquired, raised, extended or released here; never for an inspection */
	REDLOCK_VOTE_HELD,        /* another token holds it here (inspection: a token holds it here) */
	REDLOCK_VOTE_GONE,        /* nobody holds it here; never for an acquisition */
	REDLOCK_VOTE_FAILED,      /* error or lost connection: the command may have been carried out or not */
	REDLOCK_VOTE_UNSENT,      /* the master is down: nothing was sent, so nothing can have happened there */
	REDLOCK_VOTE_QUARANTINED, /* the master may not vote: nothing was sent */
	REDLOCK_VOTE_STALE,       /* raise only: the token holds it here, but the bucket is not below the fence */
	REDLOCK_VOTE_QUEUED       /* acquire only: nobody holds it here, but it is the turn of another waiter */
};

enum redlock_event_kind {
	REDLOCK_START,
	REDLOCK_REPLY,
	REDLOCK_TIMER,
	REDLOCK_CANCEL,
	/* For waiters; without effect on other operations. */
	REDLOCK_NOTIFIED, /* `master` notifies this operation: it is free there, and the turn of this operation */
	REDLOCK_PASSED,   /* the same, but it is the turn of another process */
	/* This operation is now the first of this process; the lock may be free in `remaining_us`. 0: it tries at once.
	 * Also sent with 0 when a master may have lost its queue entry, its notification may have been missed, or the
	 * holder's release was just sent. */
	REDLOCK_FIRST,
	REDLOCK_LOOK,   /* this operation votes once more, whether it is the first or not */
	REDLOCK_EARLIER /* an operation of this process with an older arrival has come before this one */
};

/* The effect of a script on the entry in the queue. */
enum redlock_entry {
	REDLOCK_ENTRY_NONE, /* the operation does not wait */
	/* acquire: creates it, unless granted; release: creates it again, since a grant had removed it */
	REDLOCK_ENTRY_KEEP,
	REDLOCK_ENTRY_LEAVE /* release: removes it */
};

/* The caller sends
 *   - START once, first;
 *   - REPLY exactly once for each master in `to` of an output, for a reply, an error, a lost connection or an unsent
 *     command, also after `done`;
 *   - TIMER when redlock_deadline_us() has passed, CANCEL when nobody needs the answer any more;
 *   - if the operation waits, when a master notifies: NOTIFIED to the operation with that arrival, PASSED to all others
 *     here that wait for the resource;
 *   - if the operation waits: FIRST when it becomes the first of this process for the resource, EARLIER when it is no
 *     longer the first.
 * vote, ttl_us, remaining_us, waiters, holder and other_library are what a master answered: any value is allowed. */
struct redlock_event {
	enum redlock_event_kind kind;
	uint64_t now_us; /* never goes backwards */
	/* START, TIMER, NOTIFIED: a guess for the fence of an attempt that may begin, > 0, below
	 * REDLOCK_FENCE_LIMIT. It should be larger than any fence so far; a bad guess costs a round trip, never
	 * safety. START of a waiter: its arrival, too, unless the parameters have one. REPLY, acquire GRANTED: the
	 * largest value that the bucket or the floor had before. STALE: the value of the bucket. Extend GRANTED:
	 * the fence of the lease, as this master knows it. HELD: the fence of the holder, as this master knows it;
	 * 0: unknown. */
	uint64_t fence;
	bool has_earlier; /* START of a waiter: another operation of this process waits for the resource before it */
	uint8_t master;   /* REPLY, NOTIFIED, PASSED: 0 … masters−1 */
	/* REPLY only: */
	uint16_t attempt, round;    /* as in the output */
	enum redlock_script script; /* as in the output */
	enum redlock_vote vote;
	uint64_t ttl_us; /* acquire and extend GRANTED: the ttl that the master gave, perhaps shorter than asked for */
	/* HELD: until the key expires here; REDLOCK_NEVER: it has no expiry. QUEUED: how long the process whose turn it
	 * is counts as alive. FIRST: see there. */
	uint64_t remaining_us;
	uint32_t waiters;   /* inspect, and extend if granted: how many wait here */
	uint64_t holder;    /* HELD: identity of the token that holds it here; equal tokens, equal numbers */
	bool other_library; /* HELD: the holder is not redlockd's, so its release notifies nobody */
	bool elsewhere;     /* acquire HELD: the slot that was asked for is held here, and another one is free */
	bool wait_for_all;  /* inspect HELD: from now on as the parameter says */
};

struct redlock_params {
	enum redlock_kind kind;
	uint8_t masters;            /* N, the configured masters: 1 … REDLOCK_MASTERS_MAX */
	uint16_t tries;             /* acquire without waiting: at least 1; the other kinds always make one attempt */
	uint64_t ttl_us;            /* acquire, extend: > drift_us */
	uint64_t drift_us;          /* ttl × factor + constant, computed by the caller */
	uint64_t master_timeout_us; /* a master that is silent for longer counts as failed */
	uint64_t retry_min_us;      /* bounds of the random pause between attempts, min <= max */
	uint64_t retry_max_us;
	bool keeps;        /* release: nobody gets the lock for a while, so OK needs a majority that keeps it */
	bool wait_for_all; /* inspect: decide only when every master has answered or its time is up */
	uint64_t wait_us;  /* acquire: how long to wait in the queue; 0: not at all */
	uint64_t arrival;  /* acquire: its order in the queue, if known before START; else 0 */
};

enum redlock_outcome {
	REDLOCK_OK,        /* granted, extended, released, or inspected */
	REDLOCK_LOCKED,    /* acquire: another holder has, or may have, a majority */
	REDLOCK_NOT_OWNER, /* extend, release: another holder has, or may have, a majority */
	REDLOCK_EXPIRED,   /* extend, release: the lease has no majority any more and nobody else has */
	REDLOCK_NO_QUORUM, /* too few masters answered, or a majority too late for any validity to be left */
	REDLOCK_SPLIT,     /* acquire: nobody won, and no tries are left */
	REDLOCK_CANCELLED  /* CANCEL came before the decision */
};

/* The votes at the time of the decision (CANCELLED: none). A master that had not answered by then is in none of the
 * four numbers. */
struct redlock_votes {
	uint8_t needed;  /* the majority: masters/2 + 1 */
	uint8_t granted; /* inspection: masters on which the holder with the most votes holds it */
	uint8_t refused; /* answered otherwise */
	uint8_t failed;  /* error, lost, unsent or silent for too long */
	uint8_t quarantined;
	uint8_t masters;
};

struct redlock_result {
	enum redlock_outcome outcome;
	struct redlock_votes votes;
	uint16_t tries;        /* attempts made */
	uint16_t rounds;       /* acquire: RAISE rounds of the last attempt; 0: the guess was good */
	uint64_t fence;        /* acquire, extend, when OK: of the lease */
	uint64_t holder_fence; /* has_holder: the largest that a master named; 0: unknown */
	uint64_t ttl_us;       /* acquire, extend: the shortest ttl that the majority gave */
	uint64_t validity_us; /* acquire, extend, when OK: ttl − (now − start of this attempt) − drift, always > 0 */
	uint64_t retry_after_us; /* LOCKED: when a majority may be free; SPLIT, NO_QUORUM: the longest pause */
	bool held;               /* inspection: too few masters are known to be free for an acquisition */
	bool has_holder;         /* not OK, or held: a master named another holder */
	uint64_t holder;         /* the other token with the most votes */
	uint64_t remaining_us;   /* held: for how long; REDLOCK_NEVER: no expiry */
	uint32_t waiters;        /* inspection, extension: as many as a majority may know of */
};

/* Tells the caller what to do. Commands to one master must be carried out in the order of the outputs. `attempt`
 * changes with each new attempt: the caller generates a new token for each, and never reuses one. `done` comes as soon
 * as the votes decide. Later replies are still counted; after `finished` the operation may be freed. */
struct redlock_output {
	enum redlock_script script; /* NONE: nothing to send */
	uint16_t to;                /* bit i: send the script to master i, and report its REPLY */
	uint16_t attempt;           /* the script carries its token; counts from 1 */
	/* RAISE: of this attempt, counts from 1; RELEASE at the end of a wait, EXTEND before a repair: 1; else 0 */
	uint16_t round;
	uint64_t fence;           /* ACQUIRE: the guess; RAISE: the number to raise the bucket to */
	enum redlock_entry entry; /* ACQUIRE, RELEASE */
	bool tokenless;           /* RELEASE: removes only the queue entry, carries no token */
	uint64_t wait_left_us;    /* KEEP: how long this operation still waits, > 0 */
	/* ACQUIRE by an extension: writes the key of the lease with `fence` on `to` again, for `repair_ttl_us`, and
	 * only before `repair_until_us`. The vote of the REPLY has no effect. */
	bool repair;
	uint64_t repair_ttl_us, repair_until_us;
	bool done;     /* set once: `result` holds the answer */
	bool finished; /* done, and no reply outstanding */
	struct redlock_result result;
};

enum redlock_state {
	REDLOCK_IDLE,
	REDLOCK_VOTING,
	REDLOCK_RAISING,
	REDLOCK_PAUSING,
	REDLOCK_WAITING,
	REDLOCK_LEAVING,
	REDLOCK_DECIDED
};

/* One operation. The members are the core's own; others only read them. */
struct redlock {
	struct redlock_params params;
	enum redlock_state state;
	uint64_t random;      /* state of the generator */
	uint64_t start_us;    /* of this attempt */
	uint64_t deadline_us; /* when a TIMER event is wanted */
	uint16_t attempt;
	uint16_t sent;        /* bit i: this attempt's script may have reached master i */
	uint16_t answered;    /* bit i: `ballots[i]` holds this attempt's vote of master i */
	uint32_t outstanding; /* replies still to come, of all attempts; a hung master may have several */
	uint16_t round;       /* of RAISE, in this attempt */
	uint16_t asked;       /* bit i: this round's RAISE went to master i */
	uint16_t raised;      /* bit i: master i carried it out */
	uint16_t stale;       /* bit i: master i's bucket was not below it */
	uint16_t failed;      /* bit i: master i lost the token, or its state is unknown */
	bool granted;         /* DECIDED: OK */
	/* Extend, OK: when validity ends, and until when a repair may go on; the masters that answered GONE and get the
	 * key back, and those that have confirmed by a second extension */
	uint64_t lease_end_us, repair_until_us;
	uint16_t repair_to, confirmed;
	bool follows;      /* a waiter: another one of this process comes first */
	bool again;        /* FIRST with 0 came while it voted: another attempt is wanted at once */
	bool paused;       /* WAITING: after a split, so that others can try */
	uint8_t hops;      /* attempts in a row that were followed at once, since another slot is free */
	uint16_t joined;   /* bit i: this operation may have an entry in the queue of master i */
	uint16_t held_by;  /* WAITING: the masters whose notifications count: those that named the holder */
	uint16_t notified; /* bit i: master i has notified this operation since the attempt began */
	uint64_t arrival;  /* its order in the queue; 0: it does not wait */
	uint64_t wait_end_us;
	uint64_t passed_us; /* since when, in this wait for a turn, it was passed over; 0: not at all */
	/* A waiter: when the lock may be free, as far as it knows; REDLOCK_NEVER: unknown. `remaining_us` of FIRST for
	 * the next waiter of this process follows from it. */
	uint64_t free_us;
	uint64_t fence;   /* of this attempt: the guess, or the last RAISE's */
	uint64_t highest; /* the largest fence seen in this attempt */
	struct redlock_ballot {
		enum redlock_vote vote : 8; /* 8 bits, to keep the array small */
		bool other_library, elsewhere;
		uint32_t waiters;
		uint64_t ttl_us, remaining_us, holder, fence;
	} ballots[REDLOCK_MASTERS_MAX];
};

/* True if master i is in the set. */
static inline bool redlock_has(uint16_t set, unsigned i)
{
	return (set & (1U << i)) != 0;
}

/* Makes *op ready for START. `seed` drives the random pauses: any number, another one for each operation.
 * Takes a copy of *params; asserts that they are within their bounds. */
void redlock_init(struct redlock *op, const struct redlock_params *params, uint64_t seed);

/* Handles one event and writes what is to be done into *out (all of it, every time).
 *
 * An acquisition that is refused and may wait sleeps in WAITING, with an entry in the queue that each master keeps for
 * the resource. It tries again when a majority of masters notifies it, or when the time of the holder is up. Only the
 * first waiter of a process wakes at the holder's end, so that a dead holder wakes few. The queue decides who may try;
 * the majority alone decides who has the lock. */
void redlock_step(struct redlock *op, const struct redlock_event *event, struct redlock_output *out);

/* When the operation next wants a TIMER event, or REDLOCK_NEVER. */
uint64_t redlock_deadline_us(const struct redlock *op);

/* True while votes of this attempt and round still count: a command that was not carried out is worth sending again. */
bool redlock_wants(const struct redlock *op, uint16_t attempt, uint16_t round);

/* The majority of `masters`: ⌊N/2⌋ + 1 of the configured ones, never of those that can be reached. */
uint8_t redlock_majority(uint8_t masters);

/* The next number of a generator (splitmix64): for values that must differ but need not be secret. */
uint64_t redlock_random(uint64_t *state);

#endif
