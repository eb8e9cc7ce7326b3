/* The calls of lease.h and leases.h: how an operation begins, is given up and is answered. What happens to it in
 * between is in lease.c, what is special about one that waits in lease_line.c. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum {
	FLUSH_EVERY = 16,
	BUSY_PER_MS = 2, /* operations for each ms of --master-timeout-ms: a tenth of what a machine of our day does */
	BUSY_MIN = 64
};

struct leases *leases_new(uv_loop_t *loop, const struct options *options, struct masters *masters,
			  struct metrics *metrics)
{
	struct leases *leases = calloc(1, sizeof *leases);
	if (!leases)
		return NULL;
	leases->loop = loop;
	leases->options = options;
	leases->masters = masters;
	leases->metrics = metrics;
	metrics_set(&metrics->waiters_limit, options->max_waiters);
	/* the timers of listings belong to the loop from then on */
	if (lease_queues_init(leases) && lease_list_init(leases))
		return leases;
	free(leases);
	return NULL;
}

/* ---- beginning ---- */

static void fill_params(const struct leases *leases, const struct lease_request *request,
			struct redlock_params *ret_params)
{
	static const enum redlock_kind kinds[LEASE_OPERATIONS] = {REDLOCK_ACQUIRE, REDLOCK_EXTEND, REDLOCK_RELEASE,
								  REDLOCK_INSPECT, REDLOCK_INSPECT};
	const struct options *options = leases->options;
	uint64_t ttl_us = request->ttl_ms * UINT64_C(1000);
	*ret_params = (struct redlock_params){
		.kind = kinds[request->call],
		.masters = (uint8_t)masters_count(leases->masters),
		.tries = (uint16_t)options->retry_count,
		.ttl_us = ttl_us,
		.drift_us = (uint64_t)((double)ttl_us * options->drift_factor) + options->drift_ms * UINT64_C(1000) +
			    LEASE_ROUNDING_US,
		.master_timeout_us = options->master_timeout_ms * UINT64_C(1000),
		.retry_min_us = options->retry_min_ms * UINT64_C(1000),
		.retry_max_us = options->retry_max_ms * UINT64_C(1000),
		.wait_us = request->call == LEASE_ACQUIRE ? request->wait_ms * UINT64_C(1000) : 0,
	};
}

struct lease_op *lease_op_begin(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				void *arg)
{
	struct lease_op *op = lease_op_new(leases);
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
	op->queued = false;
	op->finished = false;
	op->notified_us = 0;
	op->crowded = op->held_noted = op->held_back = op->busy = false;
	op->force = NULL;
	memcpy(op->token, request->token, sizeof op->token);
	if (done)
		leases->waiting++;
	return op;
}

void lease_op_refuse_draining(struct lease_op *op, uint64_t now_us)
{
	op->answer = (struct lease_answer){.status = LEASE_DRAINING, .retry_after_ms = op->leases->options->drain_ms};
	lease_op_answered(op, now_us);
}

/* One that may have to wait goes into the line, or does not wait at all where too many do. False where memory is
 * short. */
static bool queue_up(struct lease_op *op)
{
	if (op->core.params.wait_us == 0)
		return true;
	op->crowded = lease_queue_is_full(op->leases, &op->request);
	if (!op->crowded)
		return lease_queue_enter(op);
	op->core.params.wait_us = 0;
	return true;
}

/* Nothing was sent, and nobody will be told. */
static void op_forget(struct lease_op *op)
{
	op->leases->waiting -= op->done != NULL;
	op->done = NULL;
	op->finished = true;
	lease_op_recycle(op);
}

static void flush(struct leases *leases)
{
	leases->unflushed = 0;
	masters_flush(leases->masters);
}

static void start(struct lease_op *op, uint64_t now_us)
{
	struct leases *leases = op->leases;
	struct redlock_event start = {.kind = REDLOCK_START, .now_us = now_us, .fence = lease_fence_guess(leases)};
	uint64_t held_us = now_us - op->began_us, *wait_us = &op->core.params.wait_us;
	if (*wait_us > 0)
		*wait_us = *wait_us > held_us ? *wait_us - held_us : 1;
	start.behind = op->line && op->queue_prev;
	lease_op_drive(op, &start);
	/* a burst must not keep its first commands until its last request is read */
	if (++leases->unflushed >= FLUSH_EVERY)
		flush(leases);
}

/* ---- bursts ---- */

/* Thousands of operations that go to the masters at once run into --master-timeout-ms, and make the masters count as
 * hung: the time of each counts from its start, however many lie before it in the sockets, the masters' or ours. So no
 * more are under way than are surely answered within that time. */
static bool may_start(const struct leases *leases)
{
	size_t bound = leases->options->master_timeout_ms * (size_t)BUSY_PER_MS;
	return leases->busy < (bound > BUSY_MIN ? bound : BUSY_MIN);
}

static void hold_back(struct lease_op *op)
{
	struct leases *leases = op->leases;
	if (!leases->held_first)
		flush(leases); /* those under way: many requests may be read before the round is over */
	op->held_back = true;
	op->held_next = NULL;
	*(leases->held_last ? &leases->held_last->held_next : &leases->held_first) = op;
	leases->held_last = op;
	metrics_add(&leases->metrics->queued, 1);
}

static void start_held_back(struct leases *leases)
{
	bool any = leases->held_first != NULL;
	while (leases->held_first && may_start(leases)) {
		struct lease_op *op = leases->held_first;
		leases->held_first = op->held_next;
		if (!leases->held_first)
			leases->held_last = NULL;
		op->held_back = false;
		metrics_add(&leases->metrics->queued, (uint64_t)-1);
		if (op->finished) /* given up meanwhile */
			lease_op_recycle(op);
		else
			start(op, clock_now_us());
	}
	if (any)
		flush(leases);
}

/* ---- calls ---- */

static struct lease_op *submit(struct leases *leases, const struct lease_request *request, bool thorough,
			       lease_done_fn *done, void *arg)
{
	assert(request->resource_len >= 1 && request->resource_len <= LEASE_RESOURCE_MAX);
	assert(request->owner_len <= LEASE_OWNER_MAX);
	struct lease_op *op = lease_op_begin(leases, request, done, arg);
	if (!op)
		return NULL;
	op->core.params.wait_for_all = thorough;
	if (leases->draining && request->call == LEASE_ACQUIRE) {
		op->finished = true;
		lease_op_refuse_draining(op, op->began_us);
		return op;
	}
	if (!queue_up(op)) {
		op_forget(op);
		return NULL;
	}
	if (leases->held_first || !may_start(leases))
		hold_back(op);
	else
		start(op, op->began_us);
	return op;
}

struct lease_op *lease_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
			      void *arg)
{
	return request->call == LEASE_FORCE ? lease_force_submit(leases, request, done, arg)
					    : submit(leases, request, false, done, arg);
}

struct lease_op *lease_submit_thorough(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				       void *arg)
{
	assert(request->call == LEASE_INSPECT);
	return submit(leases, request, true, done, arg);
}

bool lease_op_seen_on(const struct lease_op *op, uint16_t masters)
{
	for (unsigned i = 0; i < op->core.params.masters; i++)
		if (redlock_has(masters, i) && redlock_has(op->core.answered, i) &&
		    op->core.ballots[i].vote == REDLOCK_VOTE_HELD)
			return true;
	return false;
}

/* Without memory for an operation the masters get the release, each as soon as it takes it, and nobody counts the
 * votes. */
void lease_release_unheard(struct leases *leases, const struct lease_request *request)
{
	assert(request->call == LEASE_RELEASE);
	if (lease_submit(leases, request, NULL, NULL))
		return;
	char command[LEASE_COMMAND_MAX], token[LEASE_TOKEN_LEN + 1] = "";
	memcpy(token, request->token, LEASE_TOKEN_LEN);
	struct lease_command what = {.script = REDLOCK_SCRIPT_RELEASE, .token = token};
	size_t len = lease_command_format(leases->options, request, &what, command, sizeof command);
	for (size_t i = 0; i < masters_count(leases->masters); i++)
		masters_pend_release(leases->masters, i, command, len);
}

void lease_give_back(struct leases *leases, const char *resource, size_t resource_len,
		     const char token[LEASE_TOKEN_LEN])
{
	struct lease_request request = {.call = LEASE_RELEASE, .resource_len = (uint16_t)resource_len};
	assert(resource_len >= 1 && resource_len <= LEASE_RESOURCE_MAX);
	memcpy(request.resource, resource, resource_len);
	memcpy(request.token, token, sizeof request.token);
	metrics_add(&leases->metrics->given_back, 1);
	lease_release_unheard(leases, &request);
}

void lease_cancel(struct lease_op *op)
{
	assert(op->done);
	op->done = NULL;
	op->leases->waiting--;
	if (op->force) {
		lease_force_cancel(op);
	} else if (op->held_back && op->request.call == LEASE_RELEASE) {
		return; /* it is carried out, whoever hears of it: as if it were on its way */
	} else if (!op->queued) {
		struct redlock_event cancel = {.kind = REDLOCK_CANCEL, .now_us = clock_now_us()};
		lease_op_drive(op, &cancel);
	} else if (op->request.call == LEASE_ACQUIRE && op->answer.status == LEASE_OK) {
		lease_give_back(op->leases, op->request.resource, op->request.resource_len, op->answer.token);
	}
}

/* ---- the worker's side ---- */

bool leases_pump(struct leases *leases)
{
	leases->unflushed = 0;
	start_held_back(leases);
	lease_queues_publish(leases);
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
		lease_op_recycle(op);
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
	metrics_set(&leases->metrics->draining, 1);
	lease_queues_drain(leases);
}

size_t leases_waiting(const struct leases *leases)
{
	return leases->waiting;
}

void leases_close(struct leases *leases)
{
	lease_queues_drain(leases);
	while (leases_pump(leases))
		;
	lease_list_close(leases);
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
	lease_queues_free(leases);
	free(leases);
}
