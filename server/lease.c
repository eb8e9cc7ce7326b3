/* Operations under way: carries out what the core says and tells it what became of it. See lease.h and leases.h.
 *
 *   lease_submit ─► core START ─► actions ─► masters_send … replies, timers ─► core ─► done ─► leases_pump ─► caller
 *
 * The core is never stepped from within a step: what a master could not be asked becomes a vote in `unsent`, which
 * op_drive() hands over when the step is done. Answers wait in a list until leases_pump(), so that no caller is called
 * back from within its own call. An operation whose answer is given lives on until its last reply is in. */
#include "lease.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "lease_internal.h"
#include "token.h"

enum { FLUSH_EVERY = 64 };

static void on_timer(uv_timer_t *timer);
static void on_reply(void *arg, const struct master_reply *reply);

struct leases *leases_new(uv_loop_t *loop, const struct options *options, struct masters *masters, struct metrics *metrics)
{
	struct leases *leases = calloc(1, sizeof *leases);
	if (!leases)
		return NULL;
	leases->loop = loop;
	leases->options = options;
	leases->masters = masters;
	leases->metrics = metrics;
	return leases;
}

/* ---- operations and their memory ---- */

static struct lease_op *op_new(struct leases *leases)
{
	struct lease_op *op = leases->spare;
	if (op) {
		leases->spare = op->next;
		op->next = NULL;
		return op;
	}
	op = calloc(1, sizeof *op);
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

static void op_recycle_if_over(struct lease_op *op)
{
	if (!op->finished || op->queued)
		return;
	op->next = op->leases->spare;
	op->leases->spare = op;
}

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
	*ref = (struct lease_ref){ .op = op, .attempt = out->attempt, .round = out->round, .script = out->script, .master = master, .fence = out->fence };
	memcpy(ref->token, op->token, sizeof ref->token);
	return ref;
}

/* ---- what the core wants sent ---- */

static void note_unsent(struct lease_op *op, uint8_t master, const struct redlock_output *out, enum master_sent sent)
{
	assert(sent != MASTER_SENT);
	assert(op->unsent_count < sizeof op->unsent / sizeof *op->unsent);
	op->unsent[op->unsent_count++] = (struct redlock_event){
		.kind = REDLOCK_REPLY,
		.master = master,
		.attempt = out->attempt,
		.round = out->round,
		.script = out->script,
		.vote = sent == MASTER_REFUSED ? REDLOCK_VOTE_BARRED : REDLOCK_VOTE_UNSENT,
	};
}

/* A release that cannot be sent now, for a key that may be there: it is sent when the master is back. */
static bool is_owed(const struct lease_op *op, uint8_t master, enum redlock_script script)
{
	return script == REDLOCK_SCRIPT_RELEASE && (op->request.call == LEASE_RELEASE || redlock_has(op->reached, master));
}

static enum master_sent send_to(struct lease_op *op, const struct redlock_output *out, uint8_t master, char *command, size_t len)
{
	struct leases *leases = op->leases;
	struct lease_ref *ref = command ? ref_new(op, out, master) : NULL;
	if (!ref)
		return MASTER_UNSENT;
	enum master_sent sent = masters_send(leases->masters, master, out->script, command, len, on_reply, ref);
	if (sent == MASTER_SENT) {
		op->reached |= (uint16_t)(1U << master);
		return sent;
	}
	ref_recycle(leases, ref);
	if (is_owed(op, master, out->script))
		masters_owe_release(leases->masters, master, command, len);
	return sent;
}

/* One command, the same bytes for all masters; a new token for each new attempt to acquire. */
static void send_out(struct lease_op *op, const struct redlock_output *out)
{
	struct leases *leases = op->leases;
	if (out->attempt != op->attempt) {
		op->attempt = out->attempt;
		op->reached = 0;
		if (op->request.call == LEASE_ACQUIRE)
			token_draw(op->token);
		if (out->attempt > 1)
			metrics_add(&leases->metrics->split_retries, 1);
	}
	size_t len = 0;
	struct lease_command what = { .script = out->script, .token = op->token, .fence = out->fence };
	char *command = lease_command_format(leases->options, &op->request, &what, &len);
	for (uint8_t i = 0; i < op->core.params.masters; i++) {
		if (!redlock_has(out->to, i))
			continue;
		enum master_sent sent = send_to(op, out, i, command, len);
		if (sent != MASTER_SENT)
			note_unsent(op, i, out, sent);
	}
	if (command)
		lease_command_free(command);
}

/* ---- driving the core ---- */

static void queue_answer(struct lease_op *op, uint64_t now_us)
{
	struct leases *leases = op->leases;
	struct metrics *metrics = leases->metrics;
	metrics_add(&metrics->outcomes[op->request.call][op->answer.status], 1);
	histogram_observe(&metrics->latency[op->request.call], now_us - op->began_us);
	op->queued = true;
	op->next = NULL;
	if (leases->done_last)
		leases->done_last->next = op;
	else
		leases->done_first = op;
	leases->done_last = op;
}

static void take_result(struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	if (result->outcome == REDLOCK_CANCELLED)
		return;
	lease_answer_make(op, result, now_us, &op->answer);
	metrics_add(&op->leases->metrics->fence_rounds, result->rounds);
	lease_fence_learn(op->leases, result->fence); /* given by RAISE: the next guess is beyond it */
	op->holder_id = result->holder;
	queue_answer(op, now_us);
}

static void op_step(struct lease_op *op, const struct redlock_event *event)
{
	struct redlock_output out;
	redlock_step(&op->core, event, &out);
	if (out.script != REDLOCK_SCRIPT_NONE)
		send_out(op, &out);
	if (out.done)
		take_result(op, &out.result, event->now_us);
	op->finished = out.finished;
}

static void arm_timer(struct lease_op *op, uint64_t now_us)
{
	uint64_t deadline_us = redlock_deadline_us(&op->core);
	op->timer_due = false;
	if (deadline_us == REDLOCK_NEVER)
		uv_timer_stop(&op->timer);
	else
		uv_timer_start(&op->timer, on_timer, deadline_us > now_us ? (deadline_us - now_us) / 1000 + 1 : 0, 0);
}

/* One event and all that follows from it at once. The operation may be over afterwards: do not touch it again. */
static void op_drive(struct lease_op *op, const struct redlock_event *event)
{
	uint64_t before_us = redlock_deadline_us(&op->core);
	op_step(op, event);
	for (size_t i = 0; i < op->unsent_count; i++) {
		struct redlock_event unsent = op->unsent[i];
		unsent.now_us = event->now_us;
		op_step(op, &unsent);
	}
	op->unsent_count = 0;
	if (redlock_deadline_us(&op->core) != before_us)
		arm_timer(op, event->now_us);
	op_recycle_if_over(op);
}

static void note_silent_masters(struct lease_op *op)
{
	for (size_t i = 0; i < op->core.params.masters; i++)
		masters_note_silence(op->leases->masters, i);
}

static void on_timer(uv_timer_t *timer)
{
	struct lease_op *op = timer->data;
	if (!op->timer_due) { /* libuv runs timers before it reads: once more round, since answers may lie unread if we stood still */
		op->timer_due = true;
		uv_timer_start(timer, on_timer, 1, 0); /* 0 would run in this very pass over the timers */
		return;
	}
	op->timer_due = false;
	struct redlock_event event = { .kind = REDLOCK_TIMER, .now_us = clock_now_us(), .fence = lease_fence_guess(op->leases) };
	if (redlock_wants(&op->core, op->attempt, op->core.round))
		note_silent_masters(op);
	if (event.now_us < redlock_deadline_us(&op->core))
		arm_timer(op, event.now_us); /* libuv's clock is a little ahead of ours */
	else
		op_drive(op, &event);
}

/* ---- replies ---- */

/* NOSCRIPT: nothing was carried out. Sent again with the source if it still matters; a release always does. */
static bool send_again(struct lease_ref *ref)
{
	struct lease_op *op = ref->op;
	struct leases *leases = op->leases;
	if (ref->script != REDLOCK_SCRIPT_RELEASE && !redlock_wants(&op->core, ref->attempt, ref->round))
		return false;
	size_t len = 0;
	struct lease_command what = { .script = ref->script, .token = ref->token, .fence = ref->fence, .with_source = true };
	char *command = lease_command_format(leases->options, &op->request, &what, &len);
	if (!command)
		return false;
	enum master_sent sent = masters_send(leases->masters, ref->master, ref->script, command, len, on_reply, ref);
	lease_command_free(command);
	return sent == MASTER_SENT;
}

/* The connection went away with a release under way: it is owed. */
static void owe_lost_release(const struct lease_ref *ref)
{
	struct leases *leases = ref->op->leases;
	size_t len = 0;
	struct lease_command what = { .script = REDLOCK_SCRIPT_RELEASE, .token = ref->token };
	char *command = lease_command_format(leases->options, &ref->op->request, &what, &len);
	if (!command)
		return;
	masters_owe_release(leases->masters, ref->master, command, len);
	lease_command_free(command);
}

static void note_sight(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply, struct redlock_event *event)
{
	struct lease_sight *sight = &op->seen[ref->master];
	bool tells = reply->vote == REDLOCK_VOTE_HELD || (reply->vote == REDLOCK_VOTE_GRANTED && ref->script == REDLOCK_SCRIPT_EXTEND);
	if (!tells || !redlock_wants(&op->core, ref->attempt, 0))
		return;
	sight->id = lease_sight_read(reply->value, reply->value_len, &sight->holder);
	event->holder = sight->id;
	event->fence = sight->holder.fence;
}

static void on_reply(void *arg, const struct master_reply *reply)
{
	struct lease_ref *ref = arg;
	struct lease_op *op = ref->op;
	if (reply->no_script && send_again(ref))
		return;
	if (reply->lost && ref->script == REDLOCK_SCRIPT_RELEASE)
		owe_lost_release(ref);
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
	};
	lease_fence_learn(op->leases, reply->fence);
	note_sight(op, ref, reply, &event);
	ref_recycle(op->leases, ref);
	op_drive(op, &event);
}

/* ---- calls ---- */

static void fill_params(const struct leases *leases, const struct lease_request *request, struct redlock_params *ret_params)
{
	static const enum redlock_kind kinds[] = { REDLOCK_ACQUIRE, REDLOCK_EXTEND, REDLOCK_RELEASE, REDLOCK_INSPECT };
	const struct options *options = leases->options;
	uint64_t ttl_us = request->ttl_ms * UINT64_C(1000);
	*ret_params = (struct redlock_params){
		.kind = kinds[request->call],
		.masters = (uint8_t)masters_count(leases->masters),
		.tries = (uint16_t)options->retry_count,
		.ttl_us = ttl_us,
		.drift_us = (uint64_t)((double)ttl_us * options->drift_factor) + options->drift_ms * UINT64_C(1000) + LEASE_ROUNDING_US,
		.master_timeout_us = options->master_timeout_ms * UINT64_C(1000),
		.retry_min_us = options->retry_min_ms * UINT64_C(1000),
		.retry_max_us = options->retry_max_ms * UINT64_C(1000),
	};
}

static struct lease_op *op_begin(struct leases *leases, const struct lease_request *request, lease_done_fn *done, void *arg)
{
	struct lease_op *op = op_new(leases);
	if (!op)
		return NULL;
	struct redlock_params params;
	fill_params(leases, request, &params);
	redlock_init(&op->core, &params, token_random());
	op->request = *request;
	op->done = done;
	op->arg = arg;
	op->began_us = clock_now_us();
	op->attempt = 0;
	op->reached = 0;
	op->queued = false;
	op->finished = false;
	memcpy(op->token, request->token, sizeof op->token);
	if (done)
		leases->waiting++;
	return op;
}

static void refuse_draining(struct lease_op *op)
{
	op->answer = (struct lease_answer){ .status = LEASE_DRAINING, .retry_after_ms = op->leases->options->drain_ms };
	op->finished = true;
	queue_answer(op, op->began_us);
}

static struct lease_op *submit(struct leases *leases, const struct lease_request *request, bool thorough, lease_done_fn *done, void *arg)
{
	assert(request->resource_len >= 1 && request->resource_len <= LEASE_RESOURCE_MAX);
	assert(request->owner_len <= LEASE_OWNER_MAX);
	struct lease_op *op = op_begin(leases, request, done, arg);
	if (!op)
		return NULL;
	op->core.params.wait_for_all = thorough;
	if (leases->draining && request->call == LEASE_ACQUIRE) {
		refuse_draining(op);
		return op;
	}
	struct redlock_event start = { .kind = REDLOCK_START, .now_us = op->began_us, .fence = lease_fence_guess(leases) };
	op_drive(op, &start);
	if (++leases->unflushed >= FLUSH_EVERY) { /* a burst must not keep its first commands until its last request is read */
		leases->unflushed = 0;
		masters_flush(leases->masters);
	}
	return op;
}

struct lease_op *lease_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done, void *arg)
{
	return submit(leases, request, false, done, arg);
}

struct lease_op *lease_submit_thorough(struct leases *leases, const struct lease_request *request, lease_done_fn *done, void *arg)
{
	assert(request->call == LEASE_INSPECT);
	return submit(leases, request, true, done, arg);
}

bool lease_op_seen_on(const struct lease_op *op, uint16_t masters)
{
	for (unsigned i = 0; i < op->core.params.masters; i++)
		if (redlock_has(masters, i) && redlock_has(op->core.answered, i) && op->core.ballots[i].vote == REDLOCK_VOTE_HELD &&
		    op->core.ballots[i].holder == op->holder_id)
			return true;
	return false;
}

void lease_give_back(struct leases *leases, const char *resource, size_t resource_len, const char token[LEASE_TOKEN_LEN])
{
	struct lease_request request = { .call = LEASE_RELEASE, .resource_len = (uint16_t)resource_len };
	assert(resource_len >= 1 && resource_len <= LEASE_RESOURCE_MAX);
	memcpy(request.resource, resource, resource_len);
	memcpy(request.token, token, sizeof request.token);
	metrics_add(&leases->metrics->given_back, 1);
	(void)lease_submit(leases, &request, NULL, NULL); /* without memory for it the key runs out by itself */
}

void lease_cancel(struct lease_op *op)
{
	assert(op->done);
	op->done = NULL;
	op->leases->waiting--;
	if (!op->queued) {
		struct redlock_event cancel = { .kind = REDLOCK_CANCEL, .now_us = clock_now_us() };
		op_drive(op, &cancel);
	} else if (op->request.call == LEASE_ACQUIRE && op->answer.status == LEASE_OK) {
		lease_give_back(op->leases, op->request.resource, op->request.resource_len, op->answer.token);
	}
}

/* ---- the worker's side ---- */

bool leases_pump(struct leases *leases)
{
	leases->unflushed = 0;
	bool any = lease_list_begin_new(leases) || leases->done_first || leases->list_answered;
	leases->list_answered = false;
	while (leases->done_first) {
		struct lease_op *op = leases->done_first;
		leases->done_first = op->next;
		if (!leases->done_first)
			leases->done_last = NULL;
		op->queued = false;
		lease_done_fn *done = op->done;
		op->done = NULL;
		if (done) {
			leases->waiting--;
			done(op->arg, &op->answer);
		}
		op_recycle_if_over(op);
	}
	atomic_store_explicit(&leases->metrics->in_flight, leases->waiting, memory_order_relaxed);
	return any;
}

bool lease_draining(const struct leases *leases)
{
	return leases->draining;
}

void leases_drain(struct leases *leases)
{
	leases->draining = true;
}

size_t leases_waiting(const struct leases *leases)
{
	return leases->waiting;
}

void leases_close(struct leases *leases)
{
	while (leases_pump(leases))
		;
	for (struct lease_op *op = leases->all; op; op = op->all_next)
		uv_close((uv_handle_t *)&op->timer, NULL);
}

void leases_free(struct leases *leases)
{
	while (leases->all) {
		struct lease_op *next = leases->all->all_next;
		free(leases->all);
		leases->all = next;
	}
	while (leases->spare_refs) {
		struct lease_ref *next = leases->spare_refs->next;
		free(leases->spare_refs);
		leases->spare_refs = next;
	}
	free(leases);
}
