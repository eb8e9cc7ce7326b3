/* The state machine of one operation: see redlock.h for its face.
 *
 *            START                 majority, or no majority possible
 *   IDLE ────────────► VOTING ─────────────────────────────────────────► DECIDED (late replies are
 *                       ▲  │ │ granted, but the guess was too low          ▲       still counted)
 *                       │  │ └──────────► RAISING ─────────────────────────┘
 *                 TIMER │  ▼ nobody won     │ lost (acquire)
 *                      PAUSING ◄────────────┘
 *
 * Here: events, attempts, what is sent. When an attempt is decided, and how, stands in decide.c; counting in tally.c;
 * the rounds that make a fence in fence.c.
 * The numbered steps are those of "The Redlock algorithm" in the specification. */
#include "redlock.h"

#include <assert.h>
#include <string.h>

#include "decide.h"
#include "fence.h"
#include "planted.h"
#include "tally.h"

void redlock_init(struct redlock *op, const struct redlock_params *params, uint64_t seed)
{
	bool leases = params->kind == REDLOCK_ACQUIRE || params->kind == REDLOCK_EXTEND;
	assert(params->masters >= 1 && params->masters <= REDLOCK_MASTERS_MAX);
	assert(!leases || params->ttl_us > params->drift_us);
	assert(params->kind != REDLOCK_ACQUIRE || params->tries >= 1);
	assert(params->retry_min_us <= params->retry_max_us);
	memset(op, 0, sizeof *op);
	op->params = *params;
	op->state = REDLOCK_IDLE;
	op->random = seed;
	op->deadline_us = REDLOCK_NEVER;
}

uint64_t redlock_deadline_us(const struct redlock *op)
{
	return op->deadline_us;
}

bool redlock_wants(const struct redlock *op, uint16_t attempt, uint16_t round)
{
	enum redlock_state state = round == 0 ? REDLOCK_VOTING : REDLOCK_RAISING;
	return op->state == state && op->attempt == attempt && op->round == round;
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
	out->round = script == REDLOCK_SCRIPT_RAISE ? op->round : 0;
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

/* Steps 1 and 2: note the time, ask all masters at once. `start_us` belongs to this attempt, not to the request. */
static void begin_attempt(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out)
{
	assert(op->state == REDLOCK_IDLE || op->state == REDLOCK_PAUSING);
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
	send_to(op, out, first_script(op->params.kind), op->sent);
}

static void finish(struct redlock *op, const struct redlock_result *result, struct redlock_output *out)
{
	assert(op->state != REDLOCK_DECIDED);
	assert(result->outcome != REDLOCK_OK || op->params.kind >= REDLOCK_RELEASE || result->validity_us > 0);
	op->state = REDLOCK_DECIDED;
	op->deadline_us = REDLOCK_NEVER;
	out->done = true;
	out->result = *result;
}

/* Step 5: unlock all instances, also those that refused or were silent. Only masters to which nothing was sent are
 * left out: nothing can have happened there. */
static void give_back(struct redlock *op, struct redlock_output *out)
{
	uint16_t to = PLANTED(PLANTED_RELEASE_ANSWERED) ? op->sent & op->answered : op->sent;
	if (op->params.kind == REDLOCK_ACQUIRE && !PLANTED(PLANTED_NO_RELEASE))
		send_to(op, out, REDLOCK_SCRIPT_RELEASE, to);
}

/* "Retry on failure": after a random delay, to desynchronise clients that try at the same time. */
static void pause_attempt(struct redlock *op, uint64_t now_us)
{
	uint64_t spread_us = op->params.retry_max_us - op->params.retry_min_us;
	op->state = REDLOCK_PAUSING;
	op->deadline_us = now_us + op->params.retry_min_us + next_random(op) % (spread_us + 1);
}

/* The attempt is lost in RAISING: another one if tries are left. */
static void lose_fence(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
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

/* What the answers to RAISE say so far. */
static void consider_round(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	struct redlock_result result;
	switch (redlock_fence_count(op)) {
	case REDLOCK_ROUND_OPEN:
		break;
	case REDLOCK_ROUND_WON:
		redlock_decide_fenced(op, now_us, &result);
		if (result.outcome != REDLOCK_OK)
			give_back(op, out);
		finish(op, &result, out);
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
	case REDLOCK_UNDECIDED:
		break;
	case REDLOCK_RETRY:
		give_back(op, out);
		pause_attempt(op, now_us);
		break;
	case REDLOCK_DECISION:
		if (result.outcome == REDLOCK_OK && op->params.kind == REDLOCK_ACQUIRE && !redlock_fence_guess_holds(op)) {
			begin_round(op, now_us, out);
			break;
		}
		if (result.outcome != REDLOCK_OK)
			give_back(op, out);
		finish(op, &result, out);
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
	if (event->vote == REDLOCK_VOTE_UNSENT || event->vote == REDLOCK_VOTE_BARRED)
		op->sent &= (uint16_t)~bit;
	op->ballots[event->master] = (struct redlock_ballot){ event->vote, event->ttl_us, event->remaining_us, event->holder, event->fence };
	redlock_fence_note(op, event);
	if (op->state == REDLOCK_VOTING)
		consider(op, event->now_us, out);
}

static void take_reply(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->master < op->params.masters);
	assert(op->outstanding > 0);
	op->outstanding--;
	bool open = op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING;
	if (!open || event->attempt != op->attempt)
		return; /* of an older attempt, or after the decision: its release is already on the way behind it */
	if (event->script == first_script(op->params.kind)) {
		take_vote(op, event, out);
	} else if (event->script == REDLOCK_SCRIPT_RAISE) {
		redlock_fence_note(op, event);
		if (event->round == op->round)
			consider_round(op, event->now_us, out);
	}
}

/* The deadline of an attempt: whoever was silent until now counts as failed. */
static void close_voting(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (redlock_has(op->answered, i) || PLANTED(PLANTED_SILENCE_IGNORED))
			continue;
		op->answered |= (uint16_t)(1U << i);
		op->ballots[i] = (struct redlock_ballot){ .vote = REDLOCK_VOTE_FAILED };
	}
	consider(op, now_us, out);
	assert(op->state != REDLOCK_VOTING);
}

static void take_timer(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	if (event->now_us < op->deadline_us)
		return; /* an early or a repeated timer */
	if (op->state == REDLOCK_VOTING) {
		close_voting(op, event->now_us, out);
	} else if (op->state == REDLOCK_RAISING) {
		redlock_fence_close_round(op);
		consider_round(op, event->now_us, out);
	} else if (op->state == REDLOCK_PAUSING) {
		begin_attempt(op, event->now_us, event->fence, out);
	}
}

static void take_cancel(struct redlock *op, struct redlock_output *out)
{
	if (op->state == REDLOCK_DECIDED)
		return;
	if (op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING)
		give_back(op, out);
	struct redlock_result result = { .outcome = REDLOCK_CANCELLED, .tries = op->attempt };
	result.votes.masters = op->params.masters;
	result.votes.needed = redlock_majority(op->params.masters);
	finish(op, &result, out);
}

void redlock_step(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	memset(out, 0, sizeof *out);
	switch (event->kind) {
	case REDLOCK_START:
		assert(op->state == REDLOCK_IDLE);
		begin_attempt(op, event->now_us, event->fence, out);
		break;
	case REDLOCK_REPLY: take_reply(op, event, out); break;
	case REDLOCK_TIMER: take_timer(op, event, out); break;
	case REDLOCK_CANCEL: take_cancel(op, out); break;
	}
	out->finished = op->state == REDLOCK_DECIDED && op->outstanding == 0;
}
