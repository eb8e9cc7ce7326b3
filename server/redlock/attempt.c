/* One attempt of an operation: see attempt.h. The numbered steps are those of "The Redlock algorithm" in the
 * specification. */
#include "attempt.h"

#include <assert.h>

#include "state.h"
#include "tally.h"
#include "waiting.h"

enum { WHOLE_MS_US = 1000 }; /* masters round the remaining time of a key down to whole ms */

/* splitmix64: enough for a pause, which need not be secret. */
static uint64_t next_random(struct redlock *op)
{
	uint64_t z = (op->random += 0x9e3779b97f4a7c15U);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

/* ---- what is sent ---- */

enum redlock_script redlock_attempt_script(enum redlock_kind kind)
{
	switch (kind) {
	case REDLOCK_ACQUIRE: return REDLOCK_SCRIPT_ACQUIRE;
	case REDLOCK_EXTEND: return REDLOCK_SCRIPT_EXTEND;
	case REDLOCK_RELEASE: return REDLOCK_SCRIPT_RELEASE;
	case REDLOCK_INSPECT: break;
	}
	assert(kind == REDLOCK_INSPECT);
	return REDLOCK_SCRIPT_INSPECT;
}

void redlock_attempt_send(struct redlock *op, enum redlock_script script, uint16_t to, struct redlock_output *out)
{
	assert(out->script == REDLOCK_SCRIPT_NONE);
	assert(script != REDLOCK_SCRIPT_NONE);
	assert((to & ~redlock_all_masters(op)) == 0);
	assert(op->outstanding <= UINT32_MAX - REDLOCK_MASTERS_MAX); /* each has a command in memory */
	assert(script != REDLOCK_SCRIPT_RAISE || to == op->asked);
	if (to == 0)
		return;
	out->script = script;
	out->to = to;
	out->attempt = op->attempt;
	out->round = script == REDLOCK_SCRIPT_RAISE || op->state == REDLOCK_LEAVING ? op->round : 0;
	out->fence = op->fence;
	op->outstanding += (unsigned)__builtin_popcount(to);
}

static void keep_entry(const struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(out->entry == REDLOCK_ENTRY_NONE);
	if (!redlock_is_waiter(op) || out->script == REDLOCK_SCRIPT_NONE)
		return;
	assert(out->script == REDLOCK_SCRIPT_ACQUIRE || out->script == REDLOCK_SCRIPT_RELEASE);
	out->entry = REDLOCK_ENTRY_KEEP;
	out->wait_left_us = op->wait_end_us > now_us ? op->wait_end_us - now_us : 1;
}

/* How long an attempt may vote: the time that a master may take, but no longer than validity can be left. */
static uint64_t voting_time_us(const struct redlock_params *params)
{
	if (params->kind != REDLOCK_ACQUIRE && params->kind != REDLOCK_EXTEND)
		return params->master_timeout_us;
	assert(params->ttl_us > params->drift_us);
	uint64_t useful_us = params->ttl_us - params->drift_us;
	return useful_us < params->master_timeout_us ? useful_us : params->master_timeout_us;
}

/* `start_us` belongs to this attempt, not to the request. */
void redlock_attempt_begin(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out)
{
	assert(op->attempt < UINT16_MAX);
	assert(op->params.kind != REDLOCK_ACQUIRE || (guess > 0 && guess < REDLOCK_FENCE_LIMIT));
	redlock_state_set(op, REDLOCK_VOTING);
	op->attempt++;
	op->start_us = now_us;
	op->deadline_us = now_us + voting_time_us(&op->params);
	assert(op->deadline_us > now_us);
	op->answered = 0;
	op->sent = redlock_all_masters(op);
	op->round = 0;
	op->fence = guess;
	op->highest = 0;
	op->notified = 0;
	op->again = false;
	op->passed_us = 0;
	redlock_attempt_send(op, redlock_attempt_script(op->params.kind), op->sent, out);
	keep_entry(op, now_us, out);
}

/* ---- what is released ---- */

void redlock_attempt_release(struct redlock *op, struct redlock_output *out)
{
	assert(op->attempt > 0);
	assert((op->joined == 0) || redlock_is_waiter(op));
	uint16_t to = MUTATED(MUTATION_RELEASE_ANSWERED) ? op->sent & op->answered : op->sent;
	if (op->params.kind != REDLOCK_ACQUIRE || MUTATED(MUTATION_NO_RELEASE))
		return;
	redlock_attempt_send(op, REDLOCK_SCRIPT_RELEASE, to | op->joined, out);
	if (redlock_is_waiter(op) && out->script != REDLOCK_SCRIPT_NONE)
		out->entry = REDLOCK_ENTRY_LEAVE;
}

static bool is_refusal(enum redlock_vote vote)
{
	assert(vote <= REDLOCK_VOTE_QUEUED);
	return vote == REDLOCK_VOTE_HELD || vote == REDLOCK_VOTE_QUEUED;
}

/* The masters that refused this attempt: they do not have its token and never will. */
static uint16_t refused_by(const struct redlock *op)
{
	uint16_t refused = 0;
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(op->answered, i) && is_refusal(op->ballots[i].vote))
			refused |= (uint16_t)(1U << i);
	assert((refused & ~op->answered) == 0);
	return refused;
}

/* Releases what this attempt may have, and keeps the entry in the queue. */
static void release_and_keep_entry(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING);
	uint16_t to = op->sent & (uint16_t)~refused_by(op);
	if (MUTATED(MUTATION_RELEASE_ANSWERED))
		to &= op->answered;
	if (MUTATED(MUTATION_NO_RELEASE))
		return;
	redlock_attempt_send(op, REDLOCK_SCRIPT_RELEASE, to, out);
	keep_entry(op, now_us, out);
}

void redlock_attempt_leave_queue(struct redlock *op, uint16_t masters, struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(op->arrival > 0);
	redlock_attempt_send(op, REDLOCK_SCRIPT_RELEASE, masters, out);
	if (out->script == REDLOCK_SCRIPT_NONE)
		return;
	out->entry = REDLOCK_ENTRY_LEAVE;
	out->tokenless = true;
}

void redlock_attempt_leave_rest(struct redlock *op, struct redlock_output *out)
{
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING);
	assert(redlock_is_waiter(op) || op->joined == 0);
	if (!redlock_is_waiter(op))
		return;
	uint16_t to = op->joined & (uint16_t)~op->sent; /* joined by an earlier attempt, not reached by this one */
	for (unsigned i = 0; i < op->params.masters; i++)
		if (redlock_has(op->sent & op->answered, i) && op->ballots[i].vote != REDLOCK_VOTE_GRANTED)
			to |= (uint16_t)(1U << i);
	redlock_attempt_leave_queue(op, to, out);
}

/* ---- how it ends ---- */

/* "Retry on failure": a random delay desynchronises clients that try at the same time. */
static uint64_t random_pause_us(struct redlock *op)
{
	assert(op->params.retry_min_us <= op->params.retry_max_us);
	uint64_t spread_us = op->params.retry_max_us - op->params.retry_min_us;
	assert(spread_us < UINT64_MAX);
	return op->params.retry_min_us + next_random(op) % (spread_us + 1);
}

void redlock_attempt_pause(struct redlock *op, uint64_t now_us)
{
	assert(op->attempt < op->params.tries);
	assert(!redlock_is_waiter(op));
	redlock_state_set(op, REDLOCK_PAUSING);
	op->deadline_us = now_us + random_pause_us(op);
	assert(op->deadline_us >= now_us);
}

/* The masters whose notifications are news: those on which the holder was seen. A master that is free while the holder
 * has a majority elsewhere notifies after every attempt, and each notification would cause another attempt. */
static uint16_t find_held_by(const struct redlock *op, const struct redlock_result *result)
{
	uint16_t held_by = 0;
	assert(!result || result->outcome == REDLOCK_LOCKED);
	for (unsigned i = 0; result && result->has_holder && i < op->params.masters; i++)
		if (redlock_has(op->answered, i) && op->ballots[i].vote == REDLOCK_VOTE_HELD &&
		    op->ballots[i].holder == result->holder)
			held_by |= (uint16_t)(1U << i);
	assert((held_by & ~op->answered) == 0);
	return __builtin_popcount(held_by) >= redlock_majority(op->params.masters) ? held_by : redlock_all_masters(op);
}

/* When the lock may be free, as far as this attempt knows. */
static uint64_t free_at_us(struct redlock *op, uint64_t now_us, const struct redlock_result *locked)
{
	assert(!locked || locked->outcome == REDLOCK_LOCKED);
	assert(op->state == REDLOCK_WAITING);
	if (op->paused)
		return redlock_after_us(now_us, random_pause_us(op));
	if (!locked)
		return REDLOCK_NEVER;
	return redlock_after_us(now_us, redlock_after_us(locked->retry_after_us, WHOLE_MS_US));
}

/* There is no pause if another library holds the lock: no waiter of redlockd needs the chance. */
void redlock_attempt_wait(struct redlock *op, uint64_t now_us, const struct redlock_result *locked,
			  struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(op->arrival > 0);
	bool other_library = redlock_tally_is_other_library(op);
	release_and_keep_entry(op, now_us, out);
	op->held_by = find_held_by(op, locked);
	redlock_state_set(op, REDLOCK_WAITING);
	op->joined |= op->sent;
	op->paused = !locked && !other_library;
	op->free_us = free_at_us(op, now_us, locked);
	if (other_library)
		redlock_waiting_look_again(op, now_us);
	redlock_waiting_set_deadline(op, now_us);
	assert(op->deadline_us <= op->wait_end_us);
}

void redlock_attempt_begin_leaving(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(now_us >= op->wait_end_us || op->attempt == UINT16_MAX);
	redlock_state_set(op, REDLOCK_LEAVING);
	op->answered = 0;
	op->round = 1;
	op->deadline_us = now_us + op->params.master_timeout_us;
	assert(op->deadline_us > now_us);
	op->sent = redlock_all_masters(op);
	redlock_attempt_leave_queue(op, op->sent, out);
}

void redlock_attempt_finish(struct redlock *op, const struct redlock_result *result, struct redlock_output *out)
{
	assert(!out->done);
	assert(result->outcome != REDLOCK_OK || op->params.kind >= REDLOCK_RELEASE || result->validity_us > 0);
	assert(result->outcome != REDLOCK_OK || op->params.kind != REDLOCK_ACQUIRE || result->fence > 0);
	assert(result->validity_us <= op->params.ttl_us);
	assert(op->params.kind != REDLOCK_ACQUIRE || result->fence < REDLOCK_FENCE_LIMIT);
	assert(result->tries == op->attempt);
	redlock_state_set(op, REDLOCK_DECIDED);
	op->granted = result->outcome == REDLOCK_OK;
	op->deadline_us = REDLOCK_NEVER;
	out->done = true;
	out->result = *result;
}
