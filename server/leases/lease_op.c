/* An operation under way: carries out the core's actions and feeds replies and timers back as events.
 *
 *   lease_submit ─► core START ─► actions ─► masters_send … replies, timers ─► core ─► done
 *   ─► leases_dispatch ─► caller
 *
 * The core is never stepped from within a step: a command that could not be sent becomes a vote in `unsent`, which
 * lease_op_dispatch() hands over when the step is done. Answers wait in a list until leases_dispatch(), so that no
 * callback runs within the call that asked. An operation whose answer is given lives on until its last reply is in.
 * Then it is kept for reuse, with its timer. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

static_assert((int)LEASE_FORCE == (int)METRICS_FORCE && (int)LEASE_TOO_MANY == (int)METRICS_TOO_MANY,
	      "the metrics count by the same numbers");

enum { ROUNDS_LATE_MAX = 50 }; /* of the loop, each of which reads some 300 answers of each master */

static void on_timer(uv_timer_t *timer);
static void on_reply(void *arg, const struct master_reply *reply);

/* ---- operations and their memory ---- */

static struct lease_op *op_new(struct leases *leases)
{
	struct lease_op *op = leases->spare;
	if (op) {
		leases->spare = op->next;
		op->next = NULL;
		return op;
	}
	op = calloc(1, sizeof *op + masters_count(leases->masters) * sizeof *op->seen);
	if (!op || uv_timer_init(leases->loop, &op->timer) != 0) {
		free(op);
		return NULL;
	}
	op->timer.data = op;
	op->leases = leases;
	op->all_next = leases->all;
	leases->all = op;
	return op;
}

void lease_op_recycle(struct lease_op *op)
{
	if (!op->finished || op->answer_waits || op->held_back)
		return;
	assert(!op->queue && !op->done);
	op->next = op->leases->spare;
	op->leases->spare = op;
}

static void fill_params(const struct leases *leases, const struct lease_request *request,
			struct redlock_params *ret_params)
{
	const struct options *options = leases->options;
	uint64_t ttl_us = request->ttl_ms * UINT64_C(1000);
	*ret_params = (struct redlock_params){
		/* a forced release has operations of its own that the core carries out */
		.kind = request->operation == LEASE_FORCE ? REDLOCK_INSPECT : (enum redlock_kind)request->operation,
		.masters = (uint8_t)masters_count(leases->masters),
		.tries = (uint16_t)options->retry_count,
		.ttl_us = ttl_us,
		.drift_us = (uint64_t)((double)ttl_us * options->drift_factor) + options->drift_ms * UINT64_C(1000) +
			    LEASE_ROUNDING_US,
		.master_timeout_us = options->master_timeout_ms * UINT64_C(1000),
		.retry_min_us = options->retry_min_ms * UINT64_C(1000),
		.retry_max_us = options->retry_max_ms * UINT64_C(1000),
		.wait_us = request->operation == LEASE_ACQUIRE ? request->wait_ms * UINT64_C(1000) : 0,
	};
}

struct lease_op *lease_op_begin(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				void *arg)
{
	assert(request->resource_len >= 1 && request->resource_len <= LEASE_RESOURCE_MAX);
	assert(request->owner_len <= LEASE_OWNER_MAX);
	struct lease_op *op = op_new(leases);
	if (!op)
		return NULL;
	struct redlock_params params;
	fill_params(leases, request, &params);
	redlock_init(&op->core, &params, random_number());
	op->request = *request;
	op->done = done;
	op->arg = arg;
	op->began_us = clock_now_us();
	op->attempt = 0;
	op->reached = 0;
	op->notified_us = 0;
	op->finished = op->answer_waits = false;
	op->crowded = op->hold_time_noted = op->held_back = op->busy = false;
	op->force = NULL;
	memcpy(op->token, request->token, sizeof op->token);
	if (done)
		leases->waiting++;
	return op;
}

lease_done_fn *lease_op_forget_caller(struct lease_op *op)
{
	lease_done_fn *done = op->done;
	assert(!done || op->leases->waiting > 0);
	op->leases->waiting -= done != NULL;
	op->done = NULL;
	return done;
}

bool lease_op_seen_on(const struct lease_op *op, uint16_t masters)
{
	assert(op->request.operation == LEASE_INSPECT);
	for (unsigned i = 0; i < op->core.params.masters; i++)
		if (redlock_has(masters, i) && redlock_has(op->core.answered, i) &&
		    op->core.ballots[i].vote == REDLOCK_VOTE_HELD)
			return true;
	return false;
}

/* ---- commands under way ---- */

static void ref_recycle(struct leases *leases, struct lease_ref *ref)
{
	ref->next = leases->spare_refs;
	leases->spare_refs = ref;
}

static struct lease_ref *ref_new(struct lease_op *op, const struct redlock_output *out, uint8_t master)
{
	struct leases *leases = op->leases;
	struct lease_ref *ref = leases->spare_refs;
	if (ref)
		leases->spare_refs = ref->next;
	else if (!(ref = malloc(sizeof *ref)))
		return NULL;
	*ref = (struct lease_ref){.op = op,
				  .attempt = out->attempt,
				  .round = out->round,
				  .script = out->script,
				  .master = master,
				  .entry = out->entry,
				  .tokenless = out->tokenless,
				  .fence = out->fence};
	memcpy(ref->token, op->token, sizeof ref->token);
	return ref;
}

/* ---- what the core wants sent ---- */

static void note_unsent(struct lease_op *op, uint8_t master, const struct redlock_output *out, enum master_sent sent)
{
	assert(sent != MASTER_SENT);
	assert(op->unsent_count < sizeof op->unsent / sizeof *op->unsent);
	op->unsent[op->unsent_count++] = (struct lease_unsent){
		.master = master,
		.attempt = out->attempt,
		.round = out->round,
		.script = (uint8_t)out->script,
		.vote = sent == MASTER_REFUSED ? REDLOCK_VOTE_QUARANTINED : REDLOCK_VOTE_UNSENT,
	};
}

/* A release that cannot be sent now, of a key or an entry that may be there, is sent when the master is back. */
static bool is_pending(const struct lease_op *op, uint8_t master, const struct redlock_output *out)
{
	bool may_be_there = op->request.operation == LEASE_RELEASE || redlock_has(op->reached, master) ||
			    (out->entry == REDLOCK_ENTRY_LEAVE && redlock_has(op->core.joined, master));
	return out->script == REDLOCK_SCRIPT_RELEASE && may_be_there;
}

/* The bytes of one command, for all masters alike. Returns their number. */
static size_t command_write(const struct lease_op *op, const struct lease_ref *ref, bool with_source, char *ret_bytes,
			    size_t size)
{
	char entry[LEASE_ENTRY_MAX] = "";
	uint64_t now_us = clock_now_us(), end_us = op->core.wait_end_us;
	uint64_t left_ms = end_us > now_us ? (end_us - now_us) / 1000 + 1 : 1;
	if (ref->entry != REDLOCK_ENTRY_NONE)
		lease_command_write_entry(op->leases, op->core.arrival, ref->entry == REDLOCK_ENTRY_KEEP ? left_ms : 0,
					  entry);
	struct lease_command command = {.script = ref->script,
					.token = ref->tokenless ? "" : ref->token,
					.entry = entry,
					.fence = ref->fence,
					.with_source = with_source};
	return lease_command_format(op->leases->options, &op->request, &command, ret_bytes, size);
}

/* A lock set after the attempt's last moment could bring an ended lease back: an extension would find it. */
static uint64_t useful_until_us(const struct lease_op *op, enum redlock_script script)
{
	return script == REDLOCK_SCRIPT_ACQUIRE ? redlock_deadline_us(&op->core) : REDLOCK_NEVER;
}

static enum master_sent send_to(struct lease_op *op, const struct redlock_output *out, uint8_t master, char *command,
				size_t len)
{
	assert(master < masters_count(op->leases->masters));
	struct leases *leases = op->leases;
	struct lease_ref *ref = ref_new(op, out, master);
	enum master_sent sent = MASTER_UNSENT;
	if (ref)
		sent = masters_send(leases->masters, master, out->script, command, len,
				    useful_until_us(op, out->script), on_reply, ref);
	if (sent == MASTER_SENT) {
		op->reached |= (uint16_t)(1U << master);
		return sent;
	}
	if (ref)
		ref_recycle(leases, ref);
	if (is_pending(op, master, out))
		masters_keep_release(leases->masters, master, command, len);
	return sent;
}

/* One command, the same bytes for all masters; a new token for each new attempt to acquire. Not inlined: the end of one
 * waiter begins the next one's attempt (exit_queue), and the bytes must not lie on the stack of that recursion. */
static __attribute__((noinline)) void send_out(struct lease_op *op, const struct redlock_output *out)
{
	struct leases *leases = op->leases;
	if (out->attempt != op->attempt) {
		op->attempt = out->attempt;
		op->reached = 0;
		if (op->request.operation == LEASE_ACQUIRE)
			random_token(op->token);
		if (out->attempt > 1 && op->core.params.wait_us == 0) /* a waiter tries again for other reasons */
			metrics_add(&leases->metrics->split_retries, 1);
	}
	char command[LEASE_COMMAND_MAX];
	struct lease_ref what = {
		.script = out->script, .entry = out->entry, .tokenless = out->tokenless, .fence = out->fence};
	memcpy(what.token, op->token, sizeof what.token);
	size_t len = command_write(op, &what, false, command, sizeof command);
	for (uint8_t i = 0; i < op->core.params.masters; i++) {
		if (!redlock_has(out->to, i))
			continue;
		enum master_sent sent = send_to(op, out, i, command, len);
		if (sent != MASTER_SENT)
			note_unsent(op, i, out, sent);
	}
}

/* ---- stepping the core ---- */

/* A wait has figures of its own (lease_queue.c). A request that may wait, and is decided by its first attempt, counts
 * as not waiting. */
static bool was_decided_at_once(const struct lease_op *op)
{
	enum lease_status status = op->answer.status;
	return op->core.params.wait_us == 0 ||
	       (op->attempt <= 1 && (status == LEASE_OK || status == LEASE_NO_QUORUM || status == LEASE_TOO_MANY));
}

void lease_op_answered(struct lease_op *op, uint64_t now_us)
{
	struct leases *leases = op->leases;
	struct metrics *metrics = leases->metrics;
	assert(!op->answer_waits && op->answer.status < LEASE_STATUS_COUNT);
	metrics_add(&metrics->outcomes[op->request.operation][op->answer.status], 1);
	if (was_decided_at_once(op))
		histogram_observe(&metrics->latency[op->request.operation], now_us - op->began_us);
	op->answer_waits = true;
	op->next = NULL;
	if (leases->done_last)
		leases->done_last->next = op;
	else
		leases->done_first = op;
	leases->done_last = op;
}

void lease_op_reject_draining(struct lease_op *op, uint64_t now_us)
{
	op->answer = (struct lease_answer){.status = LEASE_DRAINING, .retry_after_ms = op->leases->options->drain_ms};
	lease_op_answered(op, now_us);
}

static void exit_queue(struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	uint64_t remaining_us;
	struct lease_op *next = lease_queue_exit(op, result, now_us, &remaining_us);
	if (next)
		lease_op_dispatch_first(next, now_us, remaining_us);
}

static void handle_result(struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	if (op->queue)
		exit_queue(op, result, now_us);
	if (result->outcome == REDLOCK_CANCELLED)
		return;
	lease_answer_make(op, result, now_us, &op->answer);
	metrics_add(&op->leases->metrics->fence_rounds, result->rounds);
	lease_fence_learn(op->leases, result->fence); /* given by RAISE: the next guess is beyond it */
	lease_op_answered(op, now_us);
}

static void op_step(struct lease_op *op, const struct redlock_event *event)
{
	struct redlock_output out;
	redlock_step(&op->core, event, &out);
	if (out.script != REDLOCK_SCRIPT_NONE)
		send_out(op, &out);
	if (out.done)
		handle_result(op, &out.result, event->now_us);
	op->finished = out.finished;
}

static void arm_timer(struct lease_op *op, uint64_t now_us)
{
	uint64_t deadline_us = redlock_deadline_us(&op->core);
	op->rounds_late = 0;
	if (deadline_us == REDLOCK_NEVER)
		uv_timer_stop(&op->timer);
	else
		uv_timer_start(&op->timer, on_timer, deadline_us > now_us ? (deadline_us - now_us) / 1000 + 1 : 0, 0);
}

static void note_busy(struct lease_op *op)
{
	enum redlock_state state = op->core.state;
	bool busy = state == REDLOCK_VOTING || state == REDLOCK_RAISING || state == REDLOCK_LEAVING;
	if (busy != op->busy)
		op->leases->busy += busy ? 1 : (size_t)-1;
	op->busy = busy;
}

void lease_op_dispatch(struct lease_op *op, const struct redlock_event *event)
{
	uint64_t before_us = redlock_deadline_us(&op->core);
	assert(!op->finished && op->unsent_count == 0);
	op_step(op, event);
	for (size_t i = 0; i < op->unsent_count; i++) {
		const struct lease_unsent *unsent = &op->unsent[i];
		struct redlock_event vote = {.kind = REDLOCK_REPLY,
					     .now_us = event->now_us,
					     .master = unsent->master,
					     .attempt = unsent->attempt,
					     .round = unsent->round,
					     .script = (enum redlock_script)unsent->script,
					     .vote = (enum redlock_vote)unsent->vote};
		op_step(op, &vote);
	}
	op->unsent_count = 0;
	/* after TIMER also for the same deadline: the timer has fired */
	if (redlock_deadline_us(&op->core) != before_us || event->kind == REDLOCK_TIMER)
		arm_timer(op, event->now_us);
	note_busy(op);
	lease_op_recycle(op);
}

void lease_op_dispatch_first(struct lease_op *op, uint64_t now_us, uint64_t remaining_us)
{
	struct redlock_event event = {.kind = REDLOCK_FIRST, .now_us = now_us, .remaining_us = remaining_us};
	assert(op->queue);
	op->missed_notifications = op->leases->missed_notifications;
	lease_op_dispatch(op, &event);
}

static void note_silent_masters(struct lease_op *op)
{
	for (size_t i = 0; i < op->core.params.masters; i++)
		masters_note_silence(op->leases->masters, i);
}

/* After a stall of this process answers lie unread: libuv runs timers before it reads, and a round reads no more than
 * 16 KiB of each master. */
static bool may_be_unread(const struct lease_op *op)
{
	const struct redlock *core = &op->core;
	unsigned known = core->state == REDLOCK_RAISING
				 ? core->raised | core->behind | core->failed | (unsigned)~core->asked
				 : core->answered;
	bool unread = op->rounds_late == 0;
	for (unsigned i = 0; i < core->params.masters && op->busy && op->rounds_late < ROUNDS_LATE_MAX && !unread; i++)
		unread = !(known & 1U << i) && masters_have_unread(op->leases->masters, i);
	return unread;
}

static void on_timer(uv_timer_t *timer)
{
	struct lease_op *op = timer->data;
	if (may_be_unread(op)) {
		op->rounds_late++;
		uv_timer_start(timer, on_timer, 1, 0); /* 0 would run in this very pass over the timers */
		return;
	}
	op->rounds_late = 0;
	struct redlock_event event = {
		.kind = REDLOCK_TIMER, .now_us = clock_now_us(), .fence = lease_fence_guess(op->leases)};
	if (redlock_wants(&op->core, op->attempt, op->core.round))
		note_silent_masters(op);
	if (event.now_us < redlock_deadline_us(&op->core))
		arm_timer(op, event.now_us); /* libuv's clock is a little ahead of ours */
	else
		lease_op_dispatch(op, &event);
}

/* ---- replies ---- */

/* NOSCRIPT: nothing was carried out. Sent again with the source if it still matters; a release always does. */
static bool send_again(struct lease_ref *ref)
{
	struct lease_op *op = ref->op;
	struct leases *leases = op->leases;
	if (ref->script != REDLOCK_SCRIPT_RELEASE && !redlock_wants(&op->core, ref->attempt, ref->round))
		return false;
	char command[LEASE_COMMAND_SOURCE_MAX];
	size_t len = command_write(op, ref, true, command, sizeof command);
	return masters_send(leases->masters, ref->master, ref->script, command, len, useful_until_us(op, ref->script),
			    on_reply, ref) == MASTER_SENT;
}

/* The connection went away with a release under way, or it could not be sent again: it becomes pending. An entry that
 * is to be kept is written again by the next attempt. */
static void pend_lost_release(const struct lease_ref *ref)
{
	struct leases *leases = ref->op->leases;
	char command[LEASE_COMMAND_MAX];
	struct lease_ref what = *ref;
	assert(ref->script == REDLOCK_SCRIPT_RELEASE);
	if (what.entry == REDLOCK_ENTRY_KEEP)
		what.entry = REDLOCK_ENTRY_NONE;
	size_t len = command_write(ref->op, &what, false, command, sizeof command);
	masters_keep_release(leases->masters, ref->master, command, len);
}

static void note_sight(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply,
		       struct redlock_event *event)
{
	struct lease_sight *sight = &op->seen[ref->master];
	bool has_value = reply->vote == REDLOCK_VOTE_HELD ||
			 (reply->vote == REDLOCK_VOTE_GRANTED && ref->script == REDLOCK_SCRIPT_EXTEND);
	if (!has_value || !redlock_wants(&op->core, ref->attempt, ref->script == REDLOCK_SCRIPT_RAISE ? 0 : ref->round))
		return;
	sight->id = lease_answer_read_holder(reply->value, reply->value_len, &sight->holder);
	if (sight->holder.known)
		memcpy(sight->token, reply->value, sizeof sight->token);
	event->holder = sight->id;
	event->fence = sight->holder.fence;
	event->other_library = !sight->holder.known;
}

/* How long a released lease was held, by the clock of the master that answers first. */
static void note_hold_time(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply)
{
	uint64_t bound_ms = op->leases->options->max_hold_ms, now_ms = reply->time_us / 1000;
	if (op->request.operation != LEASE_RELEASE || ref->script != REDLOCK_SCRIPT_RELEASE ||
	    reply->vote != REDLOCK_VOTE_GRANTED || op->hold_time_noted)
		return;
	uint64_t until_ms = lease_answer_hold_until_ms(reply->value, reply->value_len);
	if (until_ms < bound_ms || bound_ms == 0 || now_ms < until_ms - bound_ms)
		return;
	op->hold_time_noted = true;
	histogram_observe(&op->leases->metrics->held, (now_ms - (until_ms - bound_ms)) * 1000);
}

static void on_reply(void *arg, const struct master_reply *reply)
{
	struct lease_ref *ref = arg;
	struct lease_op *op = ref->op;
	assert(!op->finished);
	if (reply->no_script && send_again(ref))
		return;
	if ((reply->lost || reply->no_script) && ref->script == REDLOCK_SCRIPT_RELEASE)
		pend_lost_release(ref);
	struct redlock_event event = {
		.kind = REDLOCK_REPLY,
		.now_us = clock_now_us(),
		.master = ref->master,
		.attempt = ref->attempt,
		.round = ref->round,
		.script = ref->script,
		.vote = reply->vote,
		.fence = reply->fence,
		.ttl_us = ref->script == REDLOCK_SCRIPT_EXTEND ? reply->ttl_us : op->core.params.ttl_us,
		.remaining_us = reply->remaining_us,
		.waiters = reply->waiters,
	};
	lease_fence_learn(op->leases, reply->fence);
	note_sight(op, ref, reply, &event);
	note_hold_time(op, ref, reply);
	ref_recycle(op->leases, ref);
	lease_op_dispatch(op, &event);
}
