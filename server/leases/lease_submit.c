/* SPDX-License-Identifier: MIT */
/* How operations start and are cancelled: at once, or held back in a burst. */
#include <assert.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum {
	FLUSH_EVERY = 16,
	FLUSH_MORE_EVERY = 32, /* as many as a command to a master takes */
	/* operations for each ms of --master-timeout-ms: a tenth of the throughput of a present-day machine */
	BUSY_PER_MS = 2,
	BUSY_MIN = 64
};

/* ---- starting ---- */

static void flush(struct leases *leases)
{
	leases->unflushed = 0;
	masters_flush(leases->masters);
}

/* The first waiter tries right after the release, in the same round trip, instead of one later when it is notified. The
 * masters keep the order of the queue: if another replica's waiter is the next, this one is refused and keeps
 * waiting. */
static void try_after_release(struct lease_op *next, uint64_t now_us)
{
	struct redlock_event timer = {
		.kind = REDLOCK_TIMER, .now_us = now_us, .fence = lease_fence_guess(next->leases)};
	if (next->wait.notified_us == 0)
		next->wait.notified_us = now_us;
	lease_op_dispatch_first(next, now_us, 0);
	if (next->wait.entries && next->core.state == REDLOCK_WAITING)
		lease_op_dispatch(next, &timer);
}

static void start_op(struct lease_op *op, uint64_t now_us)
{
	struct leases *leases = op->leases;
	struct redlock_event start = {.kind = REDLOCK_START, .now_us = now_us, .fence = lease_fence_guess(leases)};
	uint64_t held_back_us = now_us - op->began_us, *wait_us = &op->core.params.wait_us;
	assert(op->state == LEASE_OP_RUNNING && now_us >= op->began_us);
	if (*wait_us > 0)
		*wait_us = *wait_us > held_back_us ? *wait_us - held_back_us : 1;
	start.has_earlier = lease_queue_has_earlier(op);
	struct lease_op *next = NULL;
	if (op->request.operation == LEASE_RELEASE && op->request.keep_ms == 0 && !lease_place_is_asked_for(op))
		next = lease_queue_next(leases, &op->request, now_us);
	lease_op_dispatch(op, &start);
	if (next && next->wait.entries)
		try_after_release(next, now_us);
	/* a burst must not keep its first commands until its last request is read */
	if (++leases->unflushed >= (op->request.more ? FLUSH_MORE_EVERY : FLUSH_EVERY))
		flush(leases);
}

/* ---- bursts ---- */

/* Thousands of operations that go to the masters at once would exceed --master-timeout-ms and make the masters count as
 * hung: the time of each counts from its start, even while others lie before it in the sockets. So only as many are
 * under way as are surely answered within that time. */
static bool may_start(const struct leases *leases)
{
	size_t bound = leases->options->master_timeout_ms * (size_t)BUSY_PER_MS;
	return leases->busy < (bound > BUSY_MIN ? bound : BUSY_MIN);
}

/* The next to start. Extensions go first: if they waited for many acquisitions, their leases would end. */
static struct lease_op *first_held_back(const struct leases *leases)
{
	struct lease_op *extension = TAILQ_FIRST(&leases->ops[LEASE_OP_HELD_BACK_EXTENSION]);
	return extension ? extension : TAILQ_FIRST(&leases->ops[LEASE_OP_HELD_BACK]);
}

static void hold_back(struct lease_op *op)
{
	struct leases *leases = op->leases;
	bool extension = op->request.operation == LEASE_EXTEND;
	if (!first_held_back(leases))
		flush(leases); /* those under way: many requests may be read before the round is over */
	lease_op_enter(op, extension ? LEASE_OP_HELD_BACK_EXTENSION : LEASE_OP_HELD_BACK);
}

void lease_submit_backlog(struct leases *leases)
{
	struct lease_op *op = first_held_back(leases);
	bool any = op != NULL;
	for (; op && may_start(leases); op = first_held_back(leases)) {
		lease_op_enter(op, LEASE_OP_RUNNING);
		start_op(op, clock_now_us());
	}
	if (any)
		flush(leases);
}

/* ---- submitting and cancelling ---- */

void lease_op_reject_draining(struct lease_op *op, uint64_t now_us)
{
	op->answer = (struct lease_answer){.status = LEASE_DRAINING, .retry_after_ms = op->leases->options->drain_ms};
	lease_op_answered(op, now_us);
}

static void dispatch_earlier(struct lease_op *passed)
{
	lease_op_dispatch(passed, &(struct redlock_event){.kind = REDLOCK_EARLIER, .now_us = clock_now_us()});
}

struct lease_op *lease_op_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				 void *arg)
{
	assert(!request->wait_for_all || request->operation == LEASE_INSPECT);
	struct lease_op *op = lease_op_begin(leases, request, done, arg);
	if (leases->draining && request->operation == LEASE_ACQUIRE) {
		lease_op_reject_draining(op, op->began_us);
		return op;
	}
	if (op->core.params.wait_us > 0 && lease_queue_is_full(leases, request))
		op->core.params.wait_us = 0; /* it does not wait at all if too many do */
	if (op->core.params.wait_us > 0)
		lease_queue_enter(op);
	if (op->wait.entries && request->arrival > 0)
		lease_queue_visit_passed(op, dispatch_earlier);
	if (first_held_back(leases) || !may_start(leases))
		hold_back(op);
	else
		start_op(op, op->began_us);
	return op;
}

void lease_release_abandoned(struct leases *leases, const struct lease_request *acquired,
			     const char token[LEASE_TOKEN_LEN])
{
	struct lease_request request = *acquired;
	assert(acquired->operation == LEASE_ACQUIRE);
	request.operation = LEASE_RELEASE;
	request.wait_ms = 0;
	request.key = 0;
	request.caller_len = request.metadata_len = 0;
	memcpy(request.token, token, sizeof request.token);
	metrics_add(&leases->metrics->abandoned, 1);
	(void)lease_op_submit(leases, &request, NULL, NULL);
}

void lease_op_cancel(struct lease_op *op)
{
	assert(op->caller.done);
	(void)lease_op_forget_caller(op);
	if (op->follow_up) { /* releases that are under way are still carried out */
		*op->follow_up = NULL;
		op->follow_up = NULL;
		lease_op_linger(op);
		return;
	}
	if (op->state == LEASE_OP_HELD_BACK && op->request.operation == LEASE_RELEASE)
		return; /* it is carried out without a caller, like one whose commands are under way */
	if (op->state != LEASE_OP_ANSWERED) {
		struct redlock_event cancel = {.kind = REDLOCK_CANCEL, .now_us = clock_now_us()};
		lease_op_dispatch(op, &cancel);
	} else if (op->request.operation == LEASE_ACQUIRE && op->answer.status == LEASE_OK && !op->answer.confirmed) {
		lease_release_abandoned(op->leases, &op->request, op->answer.token);
	}
}
