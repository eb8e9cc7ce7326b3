/* SPDX-License-Identifier: MIT */
/* An operation under way: carries out the core's actions and feeds replies and timers back as events.
 *
 *   lease_submit ─► core START ─► actions ─► masters_send … replies, timers ─► core ─► done
 *   ─► leases_dispatch ─► caller
 *
 * The core is never stepped from within a step: a command that could not be sent waits in `unsent`, and
 * lease_op_dispatch() hands its vote over when the step is done. Answers wait in a list until leases_dispatch(), so
 * that no callback runs within the call that asked. An answered operation lives on until its last reply is in, and is
 * then kept for reuse. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

static_assert((int)LEASE_RESOURCE_MAX == (int)MASTERS_RESOURCE_MAX, "a command has room for each name");
static_assert((int)LEASE_FORCE == (int)METRICS_FORCE && (int)LEASE_TOO_MANY == (int)METRICS_TOO_MANY,
	      "the metrics count by the same numbers");
static_assert((int)LEASE_SLOT + 1 == (int)METRICS_MODES, "and by these");

enum { ROUNDS_LATE_MAX = 50 }; /* of the loop, each of which reads some 300 answers of each master */

static void on_op_timer(void *arg);
static void on_reply(void *arg, const struct master_reply *reply);

/* ---- operations and their memory ---- */

static struct lease_op *op_new(struct leases *leases)
{
	struct lease_op *op = TAILQ_LAST(&leases->ops[LEASE_OP_SPARE], lease_ops);
	if (op)
		return op;
	op = memory_zeroed(1, sizeof *op + masters_count(leases->masters) * sizeof *op->seen);
	op->timer = transport_timer_new(leases->loop, on_op_timer, op);
	op->leases = leases;
	STAILQ_INIT(&op->attempt.unsent);
	op->all_next = leases->all;
	leases->all = op;
	TAILQ_INSERT_TAIL(&leases->ops[LEASE_OP_SPARE], op, entry);
	return op;
}

#define TO(state) (uint8_t)(1U << LEASE_OP_##state)
static const uint8_t transitions[LEASE_OP_STATES] = {
	[LEASE_OP_SPARE] = TO(RUNNING),
	[LEASE_OP_HELD_BACK] = TO(RUNNING) | TO(ANSWERED) | TO(LINGERING),
	[LEASE_OP_HELD_BACK_EXTENSION] = TO(RUNNING) | TO(ANSWERED) | TO(LINGERING),
	[LEASE_OP_RUNNING] = TO(HELD_BACK) | TO(HELD_BACK_EXTENSION) | TO(ANSWERED) | TO(LINGERING),
	[LEASE_OP_ANSWERED] = TO(LINGERING),
	[LEASE_OP_LINGERING] = TO(SPARE),
};
#undef TO

static bool is_held_back(enum lease_op_state state)
{
	return state == LEASE_OP_HELD_BACK || state == LEASE_OP_HELD_BACK_EXTENSION;
}

void lease_op_enter(struct lease_op *op, enum lease_op_state state)
{
	struct leases *leases = op->leases;
	assert(state < LEASE_OP_STATES && (transitions[op->state] & 1U << state) != 0);
	if (is_held_back(state) != is_held_back(op->state))
		metrics_add(&leases->metrics->queued, is_held_back(state) ? 1 : (uint64_t)-1);
	TAILQ_REMOVE(&leases->ops[op->state], op, entry);
	TAILQ_INSERT_TAIL(&leases->ops[state], op, entry);
	op->state = state;
}

/* If a drain has rejected the operation, its core has not even started. */
static void recycle(struct lease_op *op)
{
	bool over = op->core.outstanding == 0 && (op->core.state == REDLOCK_DECIDED || op->core.state == REDLOCK_IDLE);
	if (op->state != LEASE_OP_LINGERING || !over)
		return;
	assert(!op->wait.entries && !op->caller.done);
	lease_below_update(op);
	free((char *)op->request.resource);
	op->request.resource = NULL;
	lease_answer_fini(&op->answer);
	free(op->slot.taken);
	op->slot.taken = NULL;
	for (size_t i = 0; i < op->core.params.masters; i++)
		lease_sight_fini(&op->seen[i]);
	lease_op_enter(op, LEASE_OP_SPARE);
}

void lease_op_linger(struct lease_op *op)
{
	lease_op_enter(op, LEASE_OP_LINGERING);
	recycle(op);
}

uint64_t lease_op_drift_us(const struct options *options, uint64_t ttl_us)
{
	return (uint64_t)((double)ttl_us * options->drift_factor) + options->drift_ms * UINT64_C(1000) +
	       LEASE_ROUNDING_US;
}

struct lease_op *lease_op_begin(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				void *arg)
{
	assert(request->resource_len >= 1 && request->set_count <= LEASE_SET_MAX);
	assert(request->resource_len <= (request->set_count > 0 ? LEASE_NAMES_MAX : LEASE_RESOURCE_MAX));
	assert(request->owner_len <= LEASE_OWNER_MAX);
	const struct options *options = leases->options;
	uint64_t ttl_us = request->ttl_ms * UINT64_C(1000);
	const struct redlock_params params = {
		/* a forced release begins with an inspection: lease_force.c */
		.kind = request->operation == LEASE_FORCE ? REDLOCK_INSPECT : (enum redlock_kind)request->operation,
		.masters = (uint8_t)masters_count(leases->masters),
		.tries = (uint16_t)options->retry_count,
		.ttl_us = ttl_us,
		.drift_us = lease_op_drift_us(options, ttl_us),
		.master_timeout_us = options->master_timeout_ms * UINT64_C(1000),
		.retry_min_us = options->retry_min_ms * UINT64_C(1000),
		.retry_max_us = options->retry_max_ms * UINT64_C(1000),
		.keeps = request->keep_ms > 0,
		.wait_for_all = request->wait_for_all || request->operation == LEASE_FORCE,
		.wait_us = request->operation == LEASE_ACQUIRE ? request->wait_ms * UINT64_C(1000) : 0,
		.arrival = request->arrival,
	};
	struct lease_op *op = op_new(leases);
	redlock_init(&op->core, &params, random_number());
	op->request = *request;
	op->label.len = 0;
	if (request->operation == LEASE_ACQUIRE)
		lease_value_write_label(op);
	op->request.resource = memory_copy(request->resource, request->resource_len);
	op->caller.done = done;
	op->caller.arg = arg;
	op->began_us = clock_now_us();
	op->attempt.number = op->attempt.reached = 0;
	op->replies = (struct lease_op_replies){0};
	op->wait = (struct lease_op_wait){0};
	op->slot = (struct lease_op_slot){0};
	op->key = (struct lease_op_key){0};
	op->share = (struct lease_op_share){0};
	if (request->operation == LEASE_ACQUIRE && request->mode == LEASE_SLOT)
		op->slot.taken = memory_zeroed(request->slots, 1);
	lease_op_enter(op, LEASE_OP_RUNNING);
	memcpy(op->attempt.token, request->token, sizeof op->attempt.token);
	if (done && !request->unasked)
		leases->waiting++;
	return op;
}

lease_done_fn *lease_op_forget_caller(struct lease_op *op)
{
	lease_done_fn *done = op->caller.done;
	bool waits = done && !op->request.unasked;
	assert(!waits || op->leases->waiting > 0);
	op->leases->waiting -= waits;
	op->caller.done = NULL;
	return done;
}

/* ---- commands under way ---- */

static struct lease_ref *ref_new(struct lease_op *op, const struct redlock_output *out, uint8_t master,
				 const struct master_script *command)
{
	struct lease_refs *spare = &op->leases->spare_refs;
	struct lease_ref *ref = STAILQ_FIRST(spare);
	if (ref)
		STAILQ_REMOVE_HEAD(spare, entry);
	else
		ref = memory_alloc(sizeof *ref);
	ref->op = op;
	ref->attempt = out->attempt;
	ref->round = out->round;
	ref->master = master;
	ref->command = *command;
	if (command->token)
		ref->command.token = memcpy(ref->token, command->token, sizeof ref->token);
	return ref;
}

static struct redlock_event reply_event(const struct lease_ref *ref, enum redlock_vote vote, uint64_t now_us)
{
	return (struct redlock_event){.kind = REDLOCK_REPLY,
				      .now_us = now_us,
				      .master = ref->master,
				      .attempt = ref->attempt,
				      .round = ref->round,
				      .script = ref->command.script,
				      .vote = vote};
}

/* ---- commands of the core ---- */

/* True if a release that cannot be sent now must follow when the master is back: a key or an entry may be there. */
static bool is_pending(const struct lease_op *op, uint8_t master, const struct redlock_output *out)
{
	bool may_be_there = (op->request.operation == LEASE_RELEASE && !lease_place_is_asked_for(op)) ||
			    redlock_has(op->attempt.reached, master) ||
			    (out->entry == REDLOCK_ENTRY_LEAVE && redlock_has(op->core.joined, master));
	return out->script == REDLOCK_SCRIPT_RELEASE && may_be_there;
}

struct master_script lease_op_command(const struct lease_op *op, const struct redlock_output *out)
{
	const struct lease_request *request = &op->request;
	bool releases = out->script == REDLOCK_SCRIPT_RELEASE;
	struct master_script command = {.script = out->script,
					.set_count = request->set_count,
					.resource = request->resource,
					.resource_len = request->resource_len,
					.label = op->label.bytes,
					.label_len = op->label.len,
					.token = out->tokenless ? NULL : op->attempt.token,
					.ttl_ms = releases ? request->keep_ms : request->ttl_ms,
					.fence = out->script == REDLOCK_SCRIPT_EXTEND ? request->fence : out->fence,
					.key = request->key,
					.wanted = request->hold};
	lease_mode_write(op, &command);
	if (request->set_count == 0)
		command.bucket = masters_bucket(request->resource, request->resource_len);
	if (out->entry != REDLOCK_ENTRY_NONE)
		command.entry = (struct master_entry){.arrival = op->core.arrival, .of_set = request->set_count > 0};
	if (out->entry == REDLOCK_ENTRY_KEEP)
		command.entry.wait_ms = out->wait_left_us / 1000 + 1;
	return command;
}

/* The last moment of a command. A lock that is set later could bring an ended lease back: an extension would find it.
 * The guard also relies on the end of each round (guard_leases.c). */
static uint64_t useful_until_us(const struct lease_op *op, enum redlock_script script)
{
	if (op->core.state == REDLOCK_DECIDED && op->core.repair_to != 0)
		return op->core.repair_until_us;
	return script >= REDLOCK_SCRIPT_RELEASE ? REDLOCK_NEVER : redlock_deadline_us(&op->core);
}

static void not_sent(struct lease_op *op, struct lease_ref *ref, enum redlock_vote vote)
{
	ref->vote = vote;
	STAILQ_INSERT_TAIL(&op->attempt.unsent, ref, entry);
}

static void send_to(struct lease_op *op, const struct redlock_output *out, uint8_t master,
		    const struct master_script *command)
{
	struct masters *masters = op->leases->masters;
	struct lease_ref *ref = ref_new(op, out, master, command);
	assert(master < masters_count(masters));
	enum master_sent sent = masters_send(masters, master, &ref->command, useful_until_us(op, out->script), on_reply,
					     ref);
	if (sent == MASTER_SENT) {
		op->attempt.reached |= (uint16_t)(1U << master);
		return;
	}
	not_sent(op, ref, sent == MASTER_REFUSED ? REDLOCK_VOTE_QUARANTINED : REDLOCK_VOTE_UNSENT);
	if (is_pending(op, master, out))
		masters_keep_release(masters, master, command, false);
}

/* A new token for each new attempt to acquire. */
static void send_out(struct lease_op *op, const struct redlock_output *out)
{
	struct leases *leases = op->leases;
	if (out->attempt != op->attempt.number) {
		op->attempt.number = out->attempt;
		op->attempt.reached = 0;
		if (op->request.operation == LEASE_ACQUIRE)
			random_token(op->attempt.token);
		if (op->slot.taken)
			lease_mode_choose_slot(op);
		if (out->attempt > 1 && op->core.params.wait_us == 0) /* a waiter tries again for other reasons */
			metrics_add(&leases->metrics->split_retries, 1);
	}
	struct master_script command = lease_op_command(op, out);
	lease_place_write(op, out, &command);
	for (uint8_t i = 0; i < op->core.params.masters; i++)
		if (redlock_has(out->to, i))
			send_to(op, out, i, &command);
}

static void send_repair(struct lease_op *op, const struct redlock_output *out)
{
	struct master_script command = lease_op_command(op, out);
	for (uint8_t i = 0; i < op->core.params.masters; i++) {
		if (!redlock_has(out->to, i))
			continue;
		if (lease_repair_write(op, out, i, &command))
			send_to(op, out, i, &command);
		else
			not_sent(op, ref_new(op, out, i, &command), REDLOCK_VOTE_UNSENT);
	}
}

/* ---- stepping the core ---- */

/* True if the first attempt decided the request: then it did not wait. Waits have metrics of their own
 * (lease_queue.c). */
static bool was_decided_at_once(const struct lease_op *op)
{
	enum lease_status status = op->answer.status;
	return op->core.params.wait_us == 0 ||
	       (op->attempt.number <= 1 &&
		(status == LEASE_OK || status == LEASE_NO_QUORUM || status == LEASE_TOO_MANY));
}

void lease_op_answered(struct lease_op *op, uint64_t now_us)
{
	struct metrics *metrics = op->leases->metrics;
	assert(op->answer.status < LEASE_STATUS_COUNT);
	if (lease_place_is_asked_for(op) || op->request.unasked) {
		lease_op_enter(op, LEASE_OP_ANSWERED);
		return;
	}
	metrics_add(&metrics->outcomes[op->request.operation][op->answer.status], 1);
	if (was_decided_at_once(op))
		histogram_observe(&metrics->latency[op->request.operation], now_us - op->began_us);
	if (op->request.operation == LEASE_ACQUIRE && op->answer.status == LEASE_OK)
		metrics_add(&metrics->granted[op->request.mode], 1);
	lease_op_enter(op, LEASE_OP_ANSWERED);
}

static void handle_result(struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	if (op->wait.entries) {
		struct lease_op *next;
		lease_queue_exit(op, result, now_us);
		while ((next = lease_queue_take_first(op->leases)))
			lease_op_dispatch_first(next, now_us, next->wait.first_us);
	}
	if (result->outcome == REDLOCK_CANCELLED) {
		if (op->state != LEASE_OP_ANSWERED) /* a drain has rejected it */
			lease_op_enter(op, LEASE_OP_LINGERING);
		return;
	}
	struct lease_answer answer;
	lease_answer_make(op, result, now_us, &answer);
	lease_answer_set(&op->answer, &answer);
	lease_several_free(answer.several);
	metrics_add(&op->leases->metrics->fence_rounds, result->rounds);
	lease_fence_learn(op->leases, result->fence); /* given by RAISE: the next guess is beyond it */
	bool looks = op->request.operation == LEASE_FORCE || op->request.operation == LEASE_INSPECT;
	if (!looks || !op->leases->complete(op))
		lease_op_answered(op, now_us);
}

static void op_step(struct lease_op *op, const struct redlock_event *event)
{
	struct redlock_output out;
	redlock_step(&op->core, event, &out);
	if (out.repair)
		send_repair(op, &out);
	else if (out.script != REDLOCK_SCRIPT_NONE)
		send_out(op, &out);
	if (out.done)
		handle_result(op, &out.result, event->now_us);
}

static void arm_op_timer(struct lease_op *op, uint64_t now_us)
{
	uint64_t deadline_us = redlock_deadline_us(&op->core);
	op->rounds_late = 0;
	if (deadline_us == REDLOCK_NEVER)
		transport_timer_stop(op->timer);
	else
		transport_timer_start(op->timer, deadline_us > now_us ? (deadline_us - now_us) / 1000 + 1 : 0);
}

/* True while the core waits for the masters. */
static bool is_busy(const struct lease_op *op)
{
	enum redlock_state state = op->core.state;
	return state == REDLOCK_VOTING || state == REDLOCK_RAISING || state == REDLOCK_LEAVING;
}

void lease_op_dispatch(struct lease_op *op, const struct redlock_event *event)
{
	uint64_t before_us = redlock_deadline_us(&op->core);
	bool was_busy = is_busy(op);
	struct lease_ref *ref;
	assert(op->state != LEASE_OP_SPARE && STAILQ_EMPTY(&op->attempt.unsent));
	op_step(op, event);
	while ((ref = STAILQ_FIRST(&op->attempt.unsent))) {
		struct redlock_event vote = reply_event(ref, ref->vote, event->now_us);
		STAILQ_REMOVE_HEAD(&op->attempt.unsent, entry);
		STAILQ_INSERT_HEAD(&op->leases->spare_refs, ref, entry);
		op_step(op, &vote);
	}
	/* after TIMER also for the same deadline: the timer has fired */
	if (redlock_deadline_us(&op->core) != before_us || event->kind == REDLOCK_TIMER)
		arm_op_timer(op, event->now_us);
	if (is_busy(op) != was_busy)
		op->leases->busy += was_busy ? (size_t)-1 : 1;
	if (op->key.after_event && op->key.after_event(op, event->now_us))
		return;
	recycle(op);
}

void lease_op_dispatch_first(struct lease_op *op, uint64_t now_us, uint64_t remaining_us)
{
	struct redlock_event event = {.kind = REDLOCK_FIRST, .now_us = now_us, .remaining_us = remaining_us};
	assert(op->wait.entries);
	op->wait.missed_notifications = op->leases->missed_notifications;
	lease_op_dispatch(op, &event);
}

/* After a stall of this process answers lie unread: libuv runs timers before it reads, and a round reads no more than
 * 16 KiB of each master. */
static bool may_be_unread(const struct lease_op *op)
{
	const struct redlock *core = &op->core;
	unsigned known = core->state == REDLOCK_RAISING
				 ? core->raised | core->stale | core->failed | (unsigned)~core->asked
				 : core->answered;
	bool unread = op->rounds_late == 0;
	for (unsigned i = 0; i < core->params.masters && is_busy(op) && op->rounds_late < ROUNDS_LATE_MAX && !unread;
	     i++)
		unread = !(known & 1U << i) && masters_have_unread(op->leases->masters, i);
	return unread;
}

static void on_op_timer(void *arg)
{
	struct lease_op *op = arg;
	if (op->core.state == REDLOCK_IDLE) {
		op->key.after_event(op, clock_now_us());
		return;
	}
	if (may_be_unread(op)) {
		op->rounds_late++;
		transport_timer_start(op->timer, 1); /* 0 would run in this very pass over the timers */
		return;
	}
	op->rounds_late = 0;
	struct redlock_event event = {
		.kind = REDLOCK_TIMER, .now_us = clock_now_us(), .fence = lease_fence_guess(op->leases)};
	bool silent = redlock_wants(&op->core, op->attempt.number, op->core.round);
	for (size_t i = 0; silent && i < op->core.params.masters; i++)
		masters_check_silence(op->leases->masters, i);
	if (event.now_us < redlock_deadline_us(&op->core))
		arm_op_timer(op, event.now_us); /* libuv's clock is a little ahead of ours */
	else
		lease_op_dispatch(op, &event);
}

/* ---- replies ---- */

/* NOSCRIPT: nothing was carried out. Sends the command again, once, with the source, if it still matters; a release
 * always does. */
static bool send_again(struct lease_ref *ref)
{
	struct lease_op *op = ref->op;
	enum redlock_script script = ref->command.script;
	if (ref->command.with_source ||
	    (script != REDLOCK_SCRIPT_RELEASE && !redlock_wants(&op->core, ref->attempt, ref->round)))
		return false;
	ref->command.with_source = true;
	return masters_send(op->leases->masters, ref->master, &ref->command, useful_until_us(op, script), on_reply,
			    ref) == MASTER_SENT;
}

/* The connection went away with a release under way, or the master refused it: it becomes pending. An entry that is to
 * be kept is written again by the next attempt. */
static void pend_release(const struct lease_ref *ref, bool refused)
{
	struct master_script command = ref->command;
	assert(command.script == REDLOCK_SCRIPT_RELEASE);
	if (command.entry.wait_ms > 0)
		command.entry = (struct master_entry){0};
	masters_keep_release(ref->op->leases->masters, ref->master, &command, refused);
}

static void on_reply(void *arg, const struct master_reply *reply)
{
	struct lease_ref *ref = arg;
	struct lease_op *op = ref->op;
	assert(op->core.outstanding > 0);
	if (reply->no_script && send_again(ref))
		return;
	if (ref->command.script == REDLOCK_SCRIPT_RELEASE && master_reply_is_error(reply) &&
	    !lease_place_is_asked_for(op))
		pend_release(ref, !reply->lost);
	struct redlock_event event = reply_event(ref, reply->vote, clock_now_us());
	event.fence = reply->fence;
	event.ttl_us = event.script == REDLOCK_SCRIPT_EXTEND ? reply->ttl_us : op->core.params.ttl_us;
	event.remaining_us = reply->remaining_us;
	event.waiters = reply->waiters;
	lease_fence_learn(op->leases, reply->fence);
	lease_sight_store(op, ref, reply, &event);
	lease_sight_observe_hold_time(op, ref, reply);
	lease_place_read(op, ref, reply);
	if (op->request.operation == LEASE_EXTEND && reply->vote == REDLOCK_VOTE_GRANTED)
		op->replies.extended |= (uint16_t)(1U << ref->master);
	if (ref->command.repair && reply->vote == REDLOCK_VOTE_GRANTED)
		metrics_add(&op->leases->metrics->repairs, 1);
	if (ref->command.repair && (reply->vote == REDLOCK_VOTE_HELD || reply->vote == REDLOCK_VOTE_QUEUED))
		op->replies.is_overtaken = true;
	STAILQ_INSERT_HEAD(&op->leases->spare_refs, ref, entry);
	lease_op_dispatch(op, &event);
}
