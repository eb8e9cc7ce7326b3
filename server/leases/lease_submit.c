/* How operations of the core start and are given up: at once, or held back in a burst. A forced release, which is made
 * of several of them, is in lease_force.c. */
#include <assert.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum {
	FLUSH_EVERY = 16,
	/* operations for each ms of --master-timeout-ms: a tenth of the throughput of a present-day machine */
	BUSY_PER_MS = 2,
	BUSY_MIN = 64
};

/* ---- starting ---- */

/* A request that may have to wait enters its queue, or does not wait at all if too many do. False where memory is
 * short. */
static bool enter_queue(struct lease_op *op)
{
	if (op->core.params.wait_us == 0)
		return true;
	op->crowded = lease_queue_is_full(op->leases, &op->request);
	if (!op->crowded)
		return lease_queue_enter(op);
	op->core.params.wait_us = 0;
	return true;
}

/* Nothing was sent, and there will be no answer. */
static void forget(struct lease_op *op)
{
	(void)lease_op_forget_caller(op);
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
	uint64_t held_back_us = now_us - op->began_us, *wait_us = &op->core.params.wait_us;
	assert(!op->held_back && now_us >= op->began_us);
	if (*wait_us > 0)
		*wait_us = *wait_us > held_back_us ? *wait_us - held_back_us : 1;
	start.behind = op->queue && op->queue_prev;
	lease_op_dispatch(op, &start);
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
	assert(!op->held_back);
	if (!leases->backlog_first)
		flush(leases); /* those under way: many requests may be read before the round is over */
	op->held_back = true;
	op->backlog_next = NULL;
	*(leases->backlog_last ? &leases->backlog_last->backlog_next : &leases->backlog_first) = op;
	leases->backlog_last = op;
	metrics_add(&leases->metrics->queued, 1);
}

void lease_submit_backlog(struct leases *leases)
{
	bool any = leases->backlog_first != NULL;
	while (leases->backlog_first && may_start(leases)) {
		struct lease_op *op = leases->backlog_first;
		assert(op->held_back);
		leases->backlog_first = op->backlog_next;
		if (!leases->backlog_first)
			leases->backlog_last = NULL;
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

/* ---- submitting and cancelling ---- */

struct lease_op *lease_submit_op(struct leases *leases, const struct lease_request *request, bool wait_for_all,
				 lease_done_fn *done, void *arg)
{
	assert(request->operation != LEASE_FORCE);
	assert(!wait_for_all || request->operation == LEASE_INSPECT);
	struct lease_op *op = lease_op_begin(leases, request, done, arg);
	if (!op)
		return NULL;
	op->core.params.wait_for_all = wait_for_all;
	if (leases->draining && request->operation == LEASE_ACQUIRE) {
		op->finished = true;
		lease_op_reject_draining(op, op->began_us);
		return op;
	}
	if (!enter_queue(op)) {
		forget(op);
		return NULL;
	}
	if (leases->backlog_first || !may_start(leases))
		hold_back(op);
	else
		start(op, op->began_us);
	return op;
}

/* Without memory for an operation each master gets the release as soon as it is there, and the votes do not count. */
void lease_release_detached(struct leases *leases, const struct lease_request *request)
{
	assert(request->operation == LEASE_RELEASE);
	if (lease_submit_op(leases, request, false, NULL, NULL))
		return;
	char bytes[LEASE_COMMAND_MAX], token[LEASE_TOKEN_LEN + 1] = "";
	memcpy(token, request->token, LEASE_TOKEN_LEN);
	struct lease_command command = {.script = REDLOCK_SCRIPT_RELEASE, .token = token};
	size_t len = lease_command_format(leases->options, request, &command, bytes, sizeof bytes);
	for (size_t i = 0; i < masters_count(leases->masters); i++)
		masters_keep_release(leases->masters, i, bytes, len);
}

void lease_release_abandoned(struct leases *leases, const char *resource, size_t resource_len,
			     const char token[LEASE_TOKEN_LEN])
{
	struct lease_request request = {.operation = LEASE_RELEASE, .resource_len = (uint16_t)resource_len};
	assert(resource_len >= 1 && resource_len <= LEASE_RESOURCE_MAX);
	memcpy(request.resource, resource, resource_len);
	memcpy(request.token, token, sizeof request.token);
	metrics_add(&leases->metrics->abandoned, 1);
	lease_release_detached(leases, &request);
}

void lease_submit_cancel(struct lease_op *op)
{
	assert(!op->force);
	(void)lease_op_forget_caller(op);
	if (op->held_back && op->request.operation == LEASE_RELEASE)
		return; /* it is carried out without a caller, like one whose commands are under way */
	if (!op->answer_waits) {
		struct redlock_event cancel = {.kind = REDLOCK_CANCEL, .now_us = clock_now_us()};
		lease_op_dispatch(op, &cancel);
	} else if (op->request.operation == LEASE_ACQUIRE && op->answer.status == LEASE_OK) {
		lease_release_abandoned(op->leases, op->request.resource, op->request.resource_len, op->answer.token);
	}
}
