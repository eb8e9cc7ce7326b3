/* The core of redlockd: Redlock as a pure state machine.
 *
 * One `struct redlock` is one operation (acquire, extend, release or inspect) on one resource over N independent
 * masters. Events go in, actions come out; there is no clock, no I/O and no heap in here. Time is a field of the event,
 * randomness a seed given at the start, so that a test can play every order of replies.
 *
 * The caller's duties:
 *   - START once, first. Then one REPLY for each master named in `out->to`, exactly one, whatever happens to it
 *     (a reply, an error, a lost connection, "not sent at all"), even long after `out->done`.
 *   - TIMER when redlock_deadline_us() has passed. CANCEL when nobody wants the answer any more.
 *   - `out->attempt` changes with each new try: a new token must be drawn for each (never reuse one).
 *   - START and TIMER carry a guess for the fence of an attempt that may begin with them: a number that is likely to be
 *     larger than any given so far. A bad guess costs a round trip, never safety.
 *   - Commands to one master must be carried out in the order in which they were asked for.
 *
 * Waiting (`wait_us`): a refused attempt stands in the line that each master keeps for the resource, and only whose
 * turn it is may set the lock there. The operation sleeps until a majority of masters call it (WAKE), or until the
 * holder's time is up: but for that only the first of those that this process keeps for the resource wakes, so that a
 * dead holder wakes no herd. So the caller:
 *   - says at START whether another operation of this process waits for the resource before it (`behind`), and FIRST
 *     when none does any more;
 *   - says of each refusal whether the holder is another library's (`foreign`): its release notifies nobody, so the
 *     first of this process looks again every REDLOCK_LOOK_AGAIN_US for as long as such a holder is in the way;
 *   - passes on what the masters call out: WAKE to the operation whose arrival is named, PASSED to all others here that
 *     wait for the resource.
 * The order decides who may try. Who has the lock is decided by the majority alone.
 *
 * `out->done` comes as soon as the votes that are in decide; replies that come later are still counted, and
 * `out->finished` says that none is outstanding and the operation may be thrown away.
 *
 * Sources: the Redlock specification ("The Redlock algorithm", "Retry on failure", "Releasing the lock", "Extending the
 * lock"), and the project's own rules in docs/architecture.md. All times are microseconds. */
#ifndef REDLOCK_H
#define REDLOCK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef REDLOCK_MUTATIONS
#include "mutations.h"
#else
#define MUTATED(mutation) 0
#endif

enum { REDLOCK_MASTERS_MAX = 15 };

#define REDLOCK_NEVER UINT64_MAX
#define REDLOCK_FENCE_LIMIT (UINT64_C(1) << 53) /* fences stay below: Lua and JavaScript count exactly so far */

/* Waiting: a process counts as alive on a master for so long after its last word there, and whoever hears that it is
 * another process's turn gives it so long before it tries itself. */
#define REDLOCK_ALIVE_US UINT64_C(1000000)
/* However often it hears so, it tries itself after that long: those calls may not be about its own lock (two clusters
 * that share a channel). */
#define REDLOCK_PASSED_MAX_US UINT64_C(5000000)
/* Nobody notifies us when a holder that is not redlockd's releases: the first waiter of a process looks again after
 * that long, and at most REDLOCK_LOOKS_MAX times in one wait, so that the longest wait has attempts left for its own
 * turn. */
#define REDLOCK_LOOK_AGAIN_US UINT64_C(250000)
enum { REDLOCK_LOOKS_MAX = 32768 };

enum redlock_kind { REDLOCK_ACQUIRE, REDLOCK_EXTEND, REDLOCK_RELEASE, REDLOCK_INSPECT };

/* What a master is asked to do. The value says which script of server/scripts/ is meant. */
enum redlock_script {
	REDLOCK_SCRIPT_NONE,
	REDLOCK_SCRIPT_ACQUIRE,
	REDLOCK_SCRIPT_RAISE,
	REDLOCK_SCRIPT_EXTEND,
	REDLOCK_SCRIPT_RELEASE,
	REDLOCK_SCRIPT_INSPECT
};

/* What one master said, or what became of the question. */
enum redlock_vote {
	REDLOCK_VOTE_GRANTED,     /* acquired, raised, extended or released here; never for an inspection */
	REDLOCK_VOTE_HELD,        /* another token holds it here (inspection: a token holds it here) */
	REDLOCK_VOTE_GONE,        /* nobody holds it here; never for an acquisition */
	REDLOCK_VOTE_FAILED,      /* error or lost connection: it may or may not have been carried out */
	REDLOCK_VOTE_UNSENT,      /* the master is down: nothing was sent, nothing can have happened there */
	REDLOCK_VOTE_QUARANTINED, /* the master may not vote: nothing was sent */
	REDLOCK_VOTE_BEHIND,      /* raise alone: the token holds it here, but the bucket is not below the number */
	REDLOCK_VOTE_QUEUED       /* acquire alone: nobody holds it here, but it is somebody else's turn in the line */
};

enum redlock_event_kind {
	REDLOCK_START,
	REDLOCK_REPLY,
	REDLOCK_TIMER,
	REDLOCK_CANCEL,
	/* Waiting only; without effect on an operation that does not wait. */
	REDLOCK_NOTIFIED, /* `master` says that it is free there and this operation's turn */
	REDLOCK_PASSED,   /* … and another process's turn */
	/* no operation of this process is before this one any more; the lock may be free in `remaining_us`. Also with 0
	 * whenever a master may have forgotten this operation's place or its call may have been missed: it tries at
	 * once */
	REDLOCK_FIRST
};

/* What a script does about the place in the line. */
enum redlock_entry {
	REDLOCK_ENTRY_NONE, /* the operation does not wait */
	/* acquire: takes it, unless granted; release: takes it again, as an attempt that was granted here gave it up */
	REDLOCK_ENTRY_KEEP,
	REDLOCK_ENTRY_LEAVE /* release: gives it up */
};

struct redlock_event {
	enum redlock_event_kind kind;
	uint64_t now_us; /* never goes backwards */
	/* START, TIMER, WAKE: the guess, > 0, below REDLOCK_FENCE_LIMIT; START: the arrival too, for one that waits.
	 * REPLY: see below */
	uint64_t fence;
	bool behind;    /* START of one that waits: another one of this process waits for the resource before it */
	uint8_t master; /* REPLY, WAKE, PASSED: 0 … masters−1 */
	/* REPLY only: */
	uint16_t attempt;           /* as in the output that asked */
	uint16_t round;             /* likewise */
	enum redlock_script script; /* as in the output that asked */
	enum redlock_vote vote;
	/* GRANTED, acquire and extend: the ttl that the master gave, which may be shorter than asked for */
	uint64_t ttl_us;
	/* HELD: until the key expires here; REDLOCK_NEVER: it has no expiry. QUEUED: for how long the one whose turn it
	 * is counts as alive. FIRST: as above */
	uint64_t remaining_us;
	uint32_t waiters; /* inspect: how many wait here */
	uint64_t holder;  /* HELD: identity of the token that holds it here; equal tokens, equal numbers */
	bool foreign;     /* HELD: the holder is none of redlockd's */
	/* `fence` of a REPLY. Acquire GRANTED: the largest number that the bucket or the floor held before. BEHIND: the
	 * bucket's number. Extend GRANTED: the lease's own, as this master knows it. HELD: the holder's, as this master
	 * knows it; 0: unknown. */
};

struct redlock_params {
	enum redlock_kind kind;
	uint8_t masters;            /* N, the configured masters: 1 … REDLOCK_MASTERS_MAX */
	uint16_t tries;             /* acquire: at least 1; the others always make one try */
	uint64_t ttl_us;            /* acquire, extend: > drift_us */
	uint64_t drift_us;          /* ttl × factor + constant, computed by the caller */
	uint64_t master_timeout_us; /* a master that is silent for longer counts as failed */
	uint64_t retry_min_us;      /* bounds of the random pause between tries, min <= max */
	uint64_t retry_max_us;
	bool wait_for_all; /* inspect: decide only when every master has answered or its time is up */
	/* acquire: how long to wait in the line; 0: not at all. `tries` then counts for nothing */
	uint64_t wait_us;
};

enum redlock_outcome {
	REDLOCK_OK,        /* granted, extended, released, or inspected */
	REDLOCK_LOCKED,    /* acquire: another holder has, or may have, a majority */
	REDLOCK_NOT_OWNER, /* extend, release: another holder has, or may have, a majority */
	REDLOCK_EXPIRED,   /* extend, release: the lease has no majority any more and nobody else has */
	REDLOCK_NO_QUORUM, /* too few masters answered, or a majority only too late for any validity to be left */
	REDLOCK_SPLIT,     /* acquire: nobody won, tries used up */
	REDLOCK_CANCELLED  /* CANCEL came before the decision */
};

/* Votes as counted when the decision fell (CANCELLED: none). A master that had not answered by then is in none of the
 * four. */
struct redlock_votes {
	uint8_t needed;  /* the majority: masters/2 + 1 */
	uint8_t granted; /* inspection: masters on which the holder with the most votes lies */
	uint8_t refused; /* answered otherwise */
	uint8_t failed;  /* error, lost, unsent or silent for too long */
	uint8_t quarantined;
	uint8_t masters;
};

struct redlock_result {
	enum redlock_outcome outcome;
	struct redlock_votes votes;
	uint16_t tries;        /* tries made */
	uint16_t rounds;       /* acquire: RAISE rounds of the last try; 0: the guess was good */
	uint64_t fence;        /* acquire, extend, when OK: the lease's */
	uint64_t holder_fence; /* has_holder: the largest that a master named; 0: unknown */
	uint64_t ttl_us;       /* acquire, extend: the shortest ttl that the majority gave */
	uint64_t validity_us;  /* acquire, extend, when OK: ttl − (now − start of this try) − drift, always > 0 */
	uint64_t retry_after_us; /* LOCKED: when a majority may be free; SPLIT, NO_QUORUM: the longest pause */
	/* inspection: some master holds it, and too few are known to be free for an acquisition */
	bool held;
	bool has_holder;       /* not OK, or held: a master named another holder */
	uint64_t holder;       /* the other token with the most votes */
	uint64_t remaining_us; /* held: for how long it stays so; REDLOCK_NEVER: no expiry */
	uint32_t waiters;      /* inspection: as many as a majority knows of */
};

struct redlock_output {
	enum redlock_script script; /* NONE: nothing to send */
	uint16_t to;                /* bit i: send the script to master i, and report its REPLY */
	uint16_t attempt;           /* whose token the script carries: counts from 1 */
	/* RAISE: which one of this attempt, counts from 1; RELEASE at the end of a wait: 1; else 0 */
	uint16_t round;
	uint64_t fence;           /* ACQUIRE: the guess; RAISE: the number to raise the bucket to */
	enum redlock_entry place; /* ACQUIRE, RELEASE */
	bool tokenless;           /* RELEASE: nothing but the place is given up, without a token */
	uint64_t wait_left_us;    /* KEEP: how long this operation waits yet, > 0 */
	bool done;                /* set once: `result` holds the answer */
	bool finished;            /* done, and no reply outstanding */
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

/* One operation. The members belong to the core; the caller only owns the memory. */
struct redlock {
	struct redlock_params params;
	enum redlock_state state;
	uint64_t random;      /* state of the generator */
	uint64_t start_us;    /* of this attempt */
	uint64_t deadline_us; /* when a TIMER event is wanted */
	uint16_t attempt;
	uint16_t sent;        /* bit i: this attempt's script may have reached master i */
	uint16_t answered;    /* bit i: `votes[i]` holds this attempt's vote of master i */
	uint16_t outstanding; /* replies that are still to come, of all attempts */
	uint16_t round;       /* of RAISE, in this attempt */
	uint16_t asked;       /* bit i: this round's RAISE went to master i */
	uint16_t raised;      /* bit i: master i carried it out */
	uint16_t behind;      /* bit i: master i's bucket was not below it */
	uint16_t failed;      /* bit i: master i lost the token, or nobody knows */
	bool granted;         /* DECIDED: OK */
	bool follows;         /* waiting: another one of this process comes first */
	bool again;           /* FIRST with 0 came while it voted: another attempt is wanted at once */
	bool paused;          /* WAITING: after a split, to let others try; not for the holder */
	uint16_t joined;      /* bit i: this operation may have a place in the line of master i */
	/* WAITING: the masters on which the holder was seen; all, where none had a majority. What others call is no
	 * news */
	uint16_t held_by;
	uint16_t notified; /* bit i: master i has called this operation since the attempt began */
	uint64_t arrival;  /* its place in the line; 0: it does not wait */
	uint64_t wait_end_us;
	/* when it heard first, since its last attempt, that it is another process's turn; 0: not yet */
	uint64_t passed_us;
	uint64_t free_us; /* WAITING: when the lock may be free, as far as is known; REDLOCK_NEVER: nobody knows */
	uint64_t fence;   /* the number of this attempt: the guess, or the last RAISE's */
	uint64_t highest; /* the largest number seen in this attempt */
	struct redlock_ballot {
		enum redlock_vote vote;
		uint64_t ttl_us, remaining_us, holder, fence;
		uint32_t waiters;
		bool foreign;
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

/* Carries out one event and writes what is to be done about it into *out (all of it, every time). */
void redlock_step(struct redlock *op, const struct redlock_event *event, struct redlock_output *out);

/* When the operation next wants a TIMER event, or REDLOCK_NEVER. */
uint64_t redlock_deadline_us(const struct redlock *op);

/* When the lock may be free, as far as an operation that waits or waited knows: what FIRST should tell the next one of
 * this process. */
uint64_t redlock_free_us(const struct redlock *op);

/* True while votes of this attempt and round still count: a command of it that was not carried out is worth sending
 * again. */
bool redlock_wants(const struct redlock *op, uint16_t attempt, uint16_t round);

/* The majority of `masters`: ⌊N/2⌋ + 1 of the configured ones, never of those that can be reached. */
uint8_t redlock_majority(uint8_t masters);

#endif
