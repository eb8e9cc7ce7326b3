/* All operations of one worker: the functions of leases.h that begin, end and hand out answers for all of them, and
 * that tell a forced release from an operation of the core. */
#include "leases.h"

#include <assert.h>
#include <stdlib.h>

#include "lease_internal.h"
#include "server/base/base.h"

/* ---- one operation ---- */

struct lease_op *lease_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
			      void *arg)
{
	return request->operation == LEASE_FORCE ? lease_force_submit(leases, request, done, arg)
						 : lease_submit_op(leases, request, false, done, arg);
}

void lease_cancel(struct lease_op *op)
{
	assert(op->done);
	if (op->force)
		lease_force_cancel(op);
	else
		lease_submit_cancel(op);
}

bool lease_draining(const struct leases *leases)
{
	return leases->draining;
}

/* ---- all of them ---- */

struct leases *leases_new(uv_loop_t *loop, const struct options *options, struct masters *masters,
			  struct metrics *metrics)
{
	assert(masters_count(masters) >= 1 && masters_count(masters) <= REDLOCK_MASTERS_MAX);
	struct leases *leases = calloc(1, sizeof *leases);
	if (!leases)
		return NULL;
	leases->loop = loop;
	leases->options = options;
	leases->masters = masters;
	leases->metrics = metrics;
	metrics_set(&metrics->waiters_limit, options->max_waiters);
	/* the timers of listings belong to the loop from then on */
	if (lease_queues_init(leases) && lease_list_init(leases)) {
		lease_notification_listen(leases);
		return leases;
	}
	free(leases);
	return NULL;
}

static struct lease_op *pop_answered(struct leases *leases)
{
	struct lease_op *op = leases->done_first;
	assert(op->answer_waits);
	leases->done_first = op->next;
	if (!leases->done_first)
		leases->done_last = NULL;
	op->answer_waits = false;
	return op;
}

bool leases_dispatch(struct leases *leases)
{
	leases->unflushed = 0;
	lease_submit_backlog(leases);
	lease_queues_publish(leases);
	bool any = lease_list_begin_new(leases) || leases->done_first || leases->list_answered;
	leases->list_answered = false;
	while (leases->done_first) {
		struct lease_op *op = pop_answered(leases);
		lease_done_fn *done = lease_op_forget_caller(op);
		if (done)
			done(op->arg, &op->answer);
		lease_op_recycle(op);
	}
	metrics_set(&leases->metrics->in_flight, leases->waiting);
	return any;
}

/* Answers all that wait in a queue with LEASE_DRAINING. */
static void drain_waiters(struct leases *leases)
{
	struct lease_op *op;
	while ((op = lease_queues_find_any(leases))) {
		uint64_t now_us = clock_now_us();
		struct redlock_event cancel = {.kind = REDLOCK_CANCEL, .now_us = now_us};
		lease_op_reject_draining(op, now_us);
		lease_op_dispatch(op, &cancel);
		assert(!op->queue);
	}
}

void leases_drain(struct leases *leases)
{
	leases->draining = true;
	metrics_set(&leases->metrics->draining, 1);
	drain_waiters(leases);
}

size_t leases_waiting(const struct leases *leases)
{
	return leases->waiting;
}

void leases_close(struct leases *leases)
{
	drain_waiters(leases);
	while (leases_dispatch(leases))
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
