/* The state machine of one operation: see redlock.h for its face.
 *
 *            START                 majority, or no majority possible
 *   IDLE ────────────► VOTING ─────────────────────────────────────────► DECIDED (late replies are
 *                       ▲  │ │ granted, but the guess was too low          ▲ ▲     still counted)
 *                       │  │ └──────────► RAISING ─────────────────────────┘ │
 *                 TIMER │  ▼ nobody won     │ lost (acquire)                │ who holds it now
 *                      PAUSING ◄────────────┘                              │
 *                      WAITING ────────────────────────────────────────► LEAVING
 *                      (in the line)          the wait is over
 *
 * Who waits (`wait_us`) goes to WAITING where others go to PAUSING or are told LOCKED; WAKE brings it back to VOTING,
 * or its timer.
 *
 * Here: events, attempts, what is sent. When an attempt is decided, and how, stands in decide.c; counting in tally.c;
 * the rounds that make a fence in fence.c; when one that waits tries again in waiting.c. The numbered steps are those
 * of "The Redlock algorithm" in the specification. */
#include "redlock.h"

#include <assert.h>
#include <string.h>

#include "decide.h"
#include "fence.h"
#include "tally.h"
#include "waiting.h"

/* Masters tell what is left of a key in whole ms, rounded down. */
enum { WHOLE_MS_US = 1000 };

void redlock_init(struct redlock *op, const struct redlock_params *params, uint64_t seed)
{
	bool leases = params->kind == REDLOCK_ACQUIRE || params->kind == REDLOCK_EXTEND;
	assert(params->masters >= 1 && params->masters <= REDLOCK_MASTERS_MAX);
	assert(!leases || params->ttl_us > params->drift_us);
	assert(params->kind != REDLOCK_ACQUIRE || params->tries >= 1);
	assert(params->retry_min_us <= params->retry_max_us);
	assert(params->wait_us == 0 || params->kind == REDLOCK_ACQUIRE);
	memset(op, 0, sizeof *op);
	op->params = *params;
	op->state = REDLOCK_IDLE;
	op->random = seed;
	op->deadline_us = op->free_us = REDLOCK_NEVER;
}

uint64_t redlock_deadline_us(const struct redlock *op)
{
	return op->deadline_us;
}

bool redlock_wants(const struct redlock *op, uint16_t attempt, uint16_t round)
{
	enum redlock_state state = round == 0 ? REDLOCK_VOTING : REDLOCK_RAISING;
	return (op->state == state || op->state == REDLOCK_LEAVING) && op->attempt == attempt && op->round == round;
}

uint64_t redlock_free_us(const struct redlock *op)
{
	return op->free_us;
}

static bool is_waiter(const struct redlock *op)
{
	return op->params.wait_us > 0;
}

/* splitmix64: enough for a pause; nothing secret hangs on it. */
static uint64_t next_random(struct redlock *op)
{
	uint64_t z = (op->random += 0x9e3779b97f4a7c15U);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

static uint16_t all_masters(const struct redlock *op)
{
	return (uint16_t)((1U << op->params.masters) - 1U);
}

static void send_to(struct redlock *op, struct redlock_output *out, enum redlock_script script, uint16_t to)
{
	assert(out->script == REDLOCK_SCRIPT_NONE);
	assert((to & ~all_masters(op)) == 0);
	if (to == 0)
		return;
	out->script = script;
	out->to = to;
	out->attempt = op->attempt;
	out->round = script == REDLOCK_SCRIPT_RAISE || op->state == REDLOCK_LEAVING ? op->round : 0;
	out->fence = op->fence;
	op->outstanding = (uint16_t)(op->outstanding + __builtin_popcount(to));
}

static enum redlock_script first_script(enum redlock_kind kind)
{
	switch (kind) {
	case REDLOCK_ACQUIRE: return REDLOCK_SCRIPT_ACQUIRE;
	case REDLOCK_EXTEND: return REDLOCK_SCRIPT_EXTEND;
	case REDLOCK_RELEASE: return REDLOCK_SCRIPT_RELEASE;
	case REDLOCK_INSPECT: break;
	}
	return REDLOCK_SCRIPT_INSPECT;
}

/* How long an attempt may vote: for as long as a master may take, and not past the point where no validity is left. */
static uint64_t voting_time_us(const struct redlock_params *params)
{
	uint64_t time_us = params->master_timeout_us;
	if (params->kind == REDLOCK_ACQUIRE || params->kind == REDLOCK_EXTEND) {
		uint64_t useful_us = params->ttl_us - params->drift_us;
		if (useful_us < time_us)
			time_us = useful_us;
	}
	return time_us;
}

static void keep_entry(const struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	if (!is_waiter(op) || out->script == REDLOCK_SCRIPT_NONE)
		return;
	out->place = REDLOCK_ENTRY_KEEP;
	out->wait_left_us = op->wait_end_us > now_us ? op->wait_end_us - now_us : 1;
}

/* Steps 1 and 2: note the time, ask all masters at once. `start_us` belongs to this attempt, not to the request. */
static void begin_attempt(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out)
{
	assert(op->state == REDLOCK_IDLE || op->state == REDLOCK_PAUSING || op->state == REDLOCK_WAITING);
	assert(op->attempt < UINT16_MAX);
	assert(op->params.kind != REDLOCK_ACQUIRE || (guess > 0 && guess < REDLOCK_FENCE_LIMIT));
	op->state = REDLOCK_VOTING;
	op->attempt++;
	op->start_us = now_us;
	op->deadline_us = now_us + voting_time_us(&op->params);
	op->answered = 0;
	op->sent = all_masters(op);
	op->round = 0;
	op->fence = guess;
	op->highest = 0;
	op->notified = 0;
	op->again = false;
	op->passed_us = 0;
	send_to(op, out, first_script(op->params.kind), op->sent);
	keep_entry(op, now_us, out);
}

static void finish(struct redlock *op, const struct redlock_result *result, struct redlock_output *out)
{
	assert(op->state != REDLOCK_DECIDED);
	assert(result->outcome != REDLOCK_OK || op->params.kind >= REDLOCK_RELEASE || result->validity_us > 0);
	op->state = REDLOCK_DECIDED;
	op->granted = result->outcome == REDLOCK_OK;
	op->deadline_us = REDLOCK_NEVER;
	out->done = true;
	out->result = *result;
}

/* Step 5: unlock all instances, also those that refused or were silent. Only masters to which nothing was sent are
 * left out: nothing can have happened there. The place in the line is given up with it, wherever there may be one. */
static void give_back(struct redlock *op, struct redlock_output *out)
{
	uint16_t to = MUTATED(MUTATION_RELEASE_ANSWERED) ? op->sent & op->answered : op->sent;
	if (op->params.kind != REDLOCK_ACQUIRE || MUTATED(MUTATION_NO_RELEASE))
		return;
	send_to(op, out, REDLOCK_SCRIPT_RELEASE, to | op->joined);
	if (is_waiter(op) && out->script != REDLOCK_SCRIPT_NONE)
		out->place = REDLOCK_ENTRY_LEAVE;
}

static bool is_refusal(enum redlock_vote vote)
{
	return vote == REDLOCK_VOTE_HELD || vote == REDLOCK_VOTE_QUEUED;
}

/* Masters that answered this attempt and refused it: its token is not there, nor will be. */
static uint16_t refused_by(const struct redlock *op)
{
	uint16_t refused = 0;
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(op->answered, i) && is_refusal(op->ballots[i].vote))
			refused |= (uint16_t)(1U << i);
	return refused;
}

/* Gives back what an attempt of one that waits on may have, without losing the place. */
static void give_back_and_wait(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	uint16_t to = op->sent & (uint16_t)~refused_by(op);
	if (MUTATED(MUTATION_RELEASE_ANSWERED))
		to &= op->answered;
	if (MUTATED(MUTATION_NO_RELEASE))
		return;
	send_to(op, out, REDLOCK_SCRIPT_RELEASE, to);
	keep_entry(op, now_us, out);
}

/* Gives up the place on some masters, and nothing else. */
static void leave_queue(struct redlock *op, uint16_t masters, struct redlock_output *out)
{
	send_to(op, out, REDLOCK_SCRIPT_RELEASE, masters);
	if (out->script == REDLOCK_SCRIPT_NONE)
		return;
	out->place = REDLOCK_ENTRY_LEAVE;
	out->tokenless = true;
}

/* Granted: where the attempt was refused or nobody knows, the place may still be there. Those that have not answered
 * are looked at when they do. */
static void leave_where_not_granted(struct redlock *op, struct redlock_output *out)
{
	uint16_t to = op->joined & (uint16_t)~op->sent; /* joined by an earlier attempt, out of reach in this one */
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(op->sent & op->answered, i) && op->ballots[i].vote != REDLOCK_VOTE_GRANTED)
			to |= (uint16_t)(1U << i);
	if (is_waiter(op))
		leave_queue(op, to, out);
}

/* "Retry on failure": after a random delay, to desynchronise clients that try at the same time. */
static uint64_t draw_pause_us(struct redlock *op)
{
	uint64_t spread_us = op->params.retry_max_us - op->params.retry_min_us;
	return op->params.retry_min_us + next_random(op) % (spread_us + 1);
}

static void pause_attempt(struct redlock *op, uint64_t now_us)
{
	op->state = REDLOCK_PAUSING;
	op->deadline_us = now_us + draw_pause_us(op);
}

/* The masters whose calls mean something: where the holder was seen. One that is free while the holder has a majority
 * elsewhere calls at each try of anybody, and tries would follow from calls for ever. */
static uint16_t find_held_by(const struct redlock *op, const struct redlock_result *result)
{
	uint16_t held_by = 0;
	for (unsigned i = 0; result && result->has_holder && i < op->params.masters; i++)
		if (redlock_has(op->answered, i) && op->ballots[i].vote == REDLOCK_VOTE_HELD &&
		    op->ballots[i].holder == result->holder)
			held_by |= (uint16_t)(1U << i);
	return __builtin_popcount(held_by) >= redlock_majority(op->params.masters) ? held_by : all_masters(op);
}

/* The attempt is lost: back into the line, until the holder that `locked` tells of may be gone or, NULL, for a random
 * pause. Where a holder is not redlockd's the first of this process looks again before that, and nobody pauses: it is
 * no contender of ours that has to get its chance. */
static void wait_on(struct redlock *op, uint64_t now_us, const struct redlock_result *locked,
		    struct redlock_output *out)
{
	bool foreign = redlock_tally_is_foreign(op), paused = !locked && !foreign;
	give_back_and_wait(op, now_us, out);
	op->held_by = find_held_by(op, locked);
	op->state = REDLOCK_WAITING;
	op->joined |= op->sent;
	op->paused = paused;
	op->free_us = redlock_after_us(now_us, paused    ? draw_pause_us(op)
					       : !locked ? REDLOCK_NEVER
							 : redlock_after_us(locked->retry_after_us, WHOLE_MS_US));
	if (foreign)
		redlock_waiting_look_again(op, now_us);
	redlock_waiting_set_deadline(op, now_us);
}

/* The wait is over: give up the place everywhere, and hear who holds the lock now. */
static void begin_leaving(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	op->state = REDLOCK_LEAVING;
	op->answered = 0;
	op->round = 1;
	op->deadline_us = now_us + op->params.master_timeout_us;
	op->sent = all_masters(op);
	leave_queue(op, op->sent, out);
}

/* The attempt is lost in RAISING: another one if tries are left. */
static void lose_fence(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	if (is_waiter(op)) {
		wait_on(op, now_us, NULL, out);
		return;
	}
	give_back(op, out);
	if (op->attempt < op->params.tries) {
		pause_attempt(op, now_us);
		return;
	}
	struct redlock_result result;
	redlock_decide_unfenced(op, &result);
	finish(op, &result, out);
}

/* A round of RAISE, to all that may have granted. */
static void begin_round(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	uint16_t to = redlock_fence_next_round(op, now_us);
	if (to == 0)
		lose_fence(op, now_us, out);
	else
		send_to(op, out, REDLOCK_SCRIPT_RAISE, to);
}

/* The votes are counted. Whoever waits is told nothing but a grant, or that there was no quorum to stand in line
 * with. */
static void conclude_attempt(struct redlock *op, uint64_t now_us, const struct redlock_result *result,
			     struct redlock_output *out)
{
	bool is_over = op->state == REDLOCK_LEAVING || result->outcome == REDLOCK_OK ||
		       (result->outcome == REDLOCK_NO_QUORUM && op->attempt == 1);
	if (is_waiter(op) && !is_over) {
		wait_on(op, now_us, result->outcome == REDLOCK_LOCKED ? result : NULL, out);
		return;
	}
	if (result->outcome == REDLOCK_OK)
		leave_where_not_granted(op, out);
	else if (op->state != REDLOCK_LEAVING)
		give_back(op, out);
	finish(op, result, out);
}

/* What the answers to RAISE say so far. */
static void consider_round(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	struct redlock_result result;
	switch (redlock_fence_count(op)) {
	case REDLOCK_ROUND_OPEN: break;
	case REDLOCK_ROUND_WON:
		redlock_decide_fenced(op, now_us, &result);
		conclude_attempt(op, now_us, &result, out);
		break;
	case REDLOCK_ROUND_BEHIND: begin_round(op, now_us, out); break;
	case REDLOCK_ROUND_LOST: lose_fence(op, now_us, out); break;
	}
}

/* Acts on what the votes that are in say. */
static void consider(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	struct redlock_result result;
	switch (redlock_decide(op, now_us, &result)) {
	case REDLOCK_UNDECIDED: break;
	case REDLOCK_RETRY:
		if (is_waiter(op)) {
			wait_on(op, now_us, NULL, out);
			break;
		}
		give_back(op, out);
		pause_attempt(op, now_us);
		break;
	case REDLOCK_DECISION:
		if (result.outcome == REDLOCK_OK && op->params.kind == REDLOCK_ACQUIRE &&
		    !redlock_fence_guess_holds(op)) {
			begin_round(op, now_us, out);
			break;
		}
		conclude_attempt(op, now_us, &result, out);
		break;
	}
}

/* A vote on this attempt, in VOTING; in RAISING only its number still matters. */
static void take_vote(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	if (redlock_has(op->answered, event->master))
		return;
	uint16_t bit = (uint16_t)(1U << event->master);
	op->answered |= bit;
	if (event->vote == REDLOCK_VOTE_UNSENT || event->vote == REDLOCK_VOTE_QUARANTINED)
		op->sent &= (uint16_t)~bit;
	op->ballots[event->master] = (struct redlock_ballot){event->vote,   event->ttl_us, event->remaining_us,
							     event->holder, event->fence,  event->waiters,
							     event->foreign};
	redlock_fence_note(op, event);
	if (op->state != REDLOCK_RAISING)
		consider(op, event->now_us, out);
}

/* A vote that came after the grant: if it is none for this attempt the place may be left there. */
static void take_late_vote(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	bool granted = op->state == REDLOCK_DECIDED && op->granted && is_waiter(op) &&
		       redlock_has(op->sent, event->master);
	if (granted && event->vote != REDLOCK_VOTE_GRANTED && event->script == REDLOCK_SCRIPT_ACQUIRE &&
	    event->attempt == op->attempt)
		leave_queue(op, (uint16_t)(1U << event->master), out);
}

static enum redlock_script awaited_script(const struct redlock *op)
{
	return op->state == REDLOCK_LEAVING ? REDLOCK_SCRIPT_RELEASE : first_script(op->params.kind);
}

static void take_reply(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->master < op->params.masters);
	assert(op->outstanding > 0);
	op->outstanding--;
	bool open = op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING || op->state == REDLOCK_LEAVING;
	if (!open || event->attempt != op->attempt) {
		take_late_vote(op, event, out);
		return; /* of an older attempt, or after the decision: its release is already on the way behind it */
	}
	if (event->script == awaited_script(op) && (op->state != REDLOCK_LEAVING || event->round == op->round)) {
		take_vote(op, event, out);
	} else if (event->script == REDLOCK_SCRIPT_RAISE && op->state == REDLOCK_RAISING) {
		redlock_fence_note(op, event);
		if (event->round == op->round)
			consider_round(op, event->now_us, out);
	}
}

/* The deadline of an attempt: whoever was silent until now counts as failed. */
static void close_voting(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (redlock_has(op->answered, i) || MUTATED(MUTATION_SILENCE_IGNORED))
			continue;
		op->answered |= (uint16_t)(1U << i);
		op->ballots[i] = (struct redlock_ballot){.vote = REDLOCK_VOTE_FAILED};
	}
	consider(op, now_us, out);
	assert(op->state != REDLOCK_VOTING && op->state != REDLOCK_LEAVING);
}

/* The timer of one that waits: the end of the wait, or it is worth an attempt. */
static void take_waiting_timer(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out)
{
	if (now_us >= op->wait_end_us || op->attempt == UINT16_MAX)
		begin_leaving(op, now_us, out);
	else
		begin_attempt(op, now_us, guess, out);
}

static void take_timer(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	if (event->now_us < op->deadline_us)
		return; /* an early or a repeated timer */
	if (op->state == REDLOCK_VOTING || op->state == REDLOCK_LEAVING) {
		close_voting(op, event->now_us, out);
	} else if (op->state == REDLOCK_RAISING) {
		redlock_fence_close_round(op);
		consider_round(op, event->now_us, out);
	} else if (op->state == REDLOCK_PAUSING) {
		begin_attempt(op, event->now_us, event->fence, out);
	} else if (op->state == REDLOCK_WAITING) {
		take_waiting_timer(op, event->now_us, event->fence, out);
	}
}

/* A master calls: a majority of calls is worth an attempt at once. Calls that come while it votes count as well: the
 * master may have refused it before it called. */
static void take_wake(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->master < op->params.masters);
	bool first_command = (op->notified & op->held_by) == 0;
	op->notified |= (uint16_t)(1U << event->master);
	if (op->state != REDLOCK_WAITING)
		return;
	if (__builtin_popcount(op->notified) >= redlock_majority(op->params.masters))
		take_waiting_timer(op, event->now_us, event->fence, out);
	else if (first_command)
		redlock_waiting_set_deadline(op, event->now_us);
}

static void take_start(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(op->state == REDLOCK_IDLE);
	op->follows = event->behind;
	if (is_waiter(op)) {
		op->arrival = event->fence;
		op->wait_end_us = redlock_after_us(event->now_us, op->params.wait_us);
	}
	begin_attempt(op, event->now_us, event->fence, out);
}

static void take_cancel(struct redlock *op, struct redlock_output *out)
{
	if (op->state == REDLOCK_DECIDED)
		return;
	if (op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING)
		give_back(op, out);
	else if (op->state == REDLOCK_WAITING)
		leave_queue(op, op->joined, out);
	struct redlock_result result = {.outcome = REDLOCK_CANCELLED, .tries = op->attempt};
	result.votes.masters = op->params.masters;
	result.votes.needed = redlock_majority(op->params.masters);
	finish(op, &result, out);
}

void redlock_step(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	memset(out, 0, sizeof *out);
	switch (event->kind) {
	case REDLOCK_START: take_start(op, event, out); break;
	case REDLOCK_REPLY: take_reply(op, event, out); break;
	case REDLOCK_TIMER: take_timer(op, event, out); break;
	case REDLOCK_CANCEL: take_cancel(op, out); break;
	case REDLOCK_NOTIFIED: take_wake(op, event, out); break;
	case REDLOCK_PASSED: redlock_waiting_pass(op, event); break;
	case REDLOCK_FIRST: redlock_waiting_be_first(op, event); break;
	}
	out->finished = op->state == REDLOCK_DECIDED && op->outstanding == 0;
}
