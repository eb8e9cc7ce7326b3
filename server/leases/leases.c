/* SPDX-License-Identifier: MIT */
/* All operations of one worker: begins and ends them, hands out their answers, and passes the masters' notifications to
 * those that wait. */
#include "leases.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

/* ---- notifications of the masters, passed on to the operations that wait ----
 *
 * A master notifies the replica whose waiter is next for a free resource. Notifications can be missed (a connection
 * broke, a master dropped entries): then the first waiter of each resource tries by itself. */

/* The notified waiter is not here any more. Its entry is removed, or all waiters after it would wait in vain. */
static void drop_stale_entry(struct leases *leases, const struct masters_notification *notification)
{
	assert(notification->ours);
	unsigned bucket = masters_bucket(notification->resource, notification->resource_len);
	const struct master_script command = {
		.script = REDLOCK_SCRIPT_RELEASE,
		.resource = notification->resource,
		.resource_len = (uint16_t)notification->resource_len,
		.kind = notification->kind,
		.capacity = notification->capacity,
		.bucket = bucket,
		.entry = {.arrival = notification->arrival, .of_set = notification->of_set}};
	masters_keep_release(leases->masters, notification->master, &command, false);
}

static void notify_waiter(struct lease_op *op, const struct masters_notification *notification)
{
	struct redlock_event event = {.kind = REDLOCK_NOTIFIED,
				      .now_us = clock_now_us(),
				      .master = notification->master,
				      .fence = lease_fence_guess(op->leases)};
	if (op->wait.notified_us == 0)
		op->wait.notified_us = event.now_us;
	lease_mode_set_free(op, notification);
	lease_op_dispatch(op, &event);
}

static void on_notified(void *arg, const struct masters_notification *notification)
{
	struct leases *leases = arg;
	const char *resource = notification->resource;
	size_t len = notification->resource_len;
	assert(notification->master < masters_count(leases->masters));
	if (len > LEASE_RESOURCE_MAX)
		return;
	if (notification->ours) {
		struct lease_op *op = lease_queue_find(leases, resource, len, notification->arrival);
		if (op)
			notify_waiter(op, notification);
		else
			/* often the notification is late; then the entry is gone, and the release finds nothing */
			drop_stale_entry(leases, notification);
	}
	struct lease_waiter *waiters;
	size_t count = lease_queue_list(leases, notification, &waiters);
	for (struct lease_waiter *waiter = waiters; waiter < waiters + count; waiter++)
		if (!lease_queue_has(waiter))
			continue; /* the one before has ended its wait */
		else if (waiter->is_notified)
			notify_waiter(waiter->op, notification);
		else
			lease_op_dispatch(waiter->op, &(struct redlock_event){.kind = REDLOCK_PASSED,
									      .now_us = clock_now_us(),
									      .master = notification->master});
	free(waiters);
}

static void on_changed(void *arg, const char *resource, size_t len)
{
	if (len <= LEASE_RESOURCE_MAX)
		lease_watch_handle_change(arg, resource, len);
}

static void on_first_waiter(void *arg, uint8_t master, const char *resource, size_t len)
{
	if (len <= LEASE_RESOURCE_MAX)
		lease_wanted_handle(arg, master, resource, len);
}

static void try_now(struct lease_op *first)
{
	lease_op_dispatch_first(first, clock_now_us(), 0);
}

static void on_confirmed(void *arg, uint64_t key)
{
	lease_keyed_handle_confirmed(arg, key);
}

/* The first waiter of each resource tries at once, which writes its entry again; the others do so when they become
 * the first. */
static void on_missed(void *arg)
{
	struct leases *leases = arg;
	leases->missed_notifications++;
	lease_queues_visit_first(leases, try_now);
	lease_keyed_handle_missed(leases);
	lease_watch_handle_missed(leases);
}

/* ---- masters that return ---- */

/* When a master votes again, the leases that were extended without it (lease_below.c) are extended again, to the end
 * that they have. This repairs them (lease_repair.c) before an operator restarts the next master; their holders may
 * extend them only later. A lease gets no longer by this, and no key comes back unless a majority still has the lease.
 * A few are extended at a time, so that others do not wait. */
enum { RETURN_AT_ONCE = 16 };

static void on_extended_again(void *arg, const struct lease_answer *answer)
{
	struct leases *leases = arg;
	(void)answer; /* lease_below_update() has it */
	assert(leases->below.under_way > 0);
	leases->below.under_way--;
}

/* Does nothing if so little time is left that an extension would have no validity. */
static void extend_again(struct leases *leases, const struct lease_below_entry *entry, uint64_t now_us)
{
	uint64_t left_ms = entry->until_us > now_us ? (entry->until_us - now_us) / 1000 : 0;
	if (left_ms * 1000 <= lease_op_drift_us(leases->options, left_ms * 1000))
		return;
	struct lease_request request = {.operation = LEASE_EXTEND,
					.ttl_ms = (uint32_t)left_ms,
					.unasked = true,
					.set_count = entry->set_count,
					.resource_len = entry->resource_len,
					.resource = entry->resource};
	memcpy(request.token, entry->token, sizeof request.token);
	leases->below.under_way++;
	(void)lease_op_submit(leases, &request, on_extended_again, leases);
}

/* Waiters try again, too: a lock that too few masters could grant may be free on a majority now. */
static void handle_returns(struct leases *leases)
{
	struct lease_below *below = &leases->below;
	if (leases->draining || (below->count == 0 && TAILQ_EMPTY(&leases->queues.by_age)))
		return;
	struct quorum_status quorum;
	masters_quorum(leases->masters, &quorum);
	bool has_returned = quorum.voting > below->voting;
	below->voting = quorum.voting;
	if (has_returned) {
		below->returns++;
		on_missed(leases);
	}
	struct lease_below_entry *entry;
	while (below->under_way < RETURN_AT_ONCE && (entry = lease_below_next(below))) {
		lease_below_move_to_end(below, entry);
		entry->returns = below->returns;
		extend_again(leases, entry, clock_now_us());
	}
}

/* ---- all of them ---- */

struct leases *leases_new(struct uv_loop_s *loop, const struct options *options, struct masters *masters,
			  struct metrics *metrics)
{
	assert(masters_count(masters) >= 1 && masters_count(masters) <= REDLOCK_MASTERS_MAX);
	struct leases *leases = memory_zeroed(1, sizeof *leases);
	leases->loop = loop;
	leases->options = options;
	leases->masters = masters;
	leases->metrics = metrics;
	metrics_set(&metrics->waiters_limit, options->max_waiters);
	leases->complete = lease_details_complete;
	TAILQ_INIT(&leases->queues.by_age);
	TAILQ_INIT(&leases->queues.first);
	TAILQ_INIT(&leases->below.all);
	TAILQ_INIT(&leases->reads.queue);
	TAILQ_INIT(&leases->shares.queue);
	STAILQ_INIT(&leases->new_listings);
	STAILQ_INIT(&leases->spare_refs);
	for (size_t i = 0; i < LEASE_OP_STATES; i++)
		TAILQ_INIT(&leases->ops[i]);
	const struct masters_notification_events events = {on_notified,  on_changed, on_first_waiter,
							   on_confirmed, on_missed,  leases};
	masters_set_notification_events(masters, &events);
	return leases;
}

bool leases_dispatch(struct leases *leases)
{
	struct lease_op *op;
	leases->unflushed = 0;
	lease_submit_backlog(leases);
	lease_queues_publish(leases);
	handle_returns(leases);
	lease_below_sweep(leases);
	bool any = lease_list_begin_new(leases) || !TAILQ_EMPTY(&leases->ops[LEASE_OP_ANSWERED]) || leases->has_news;
	leases->has_news = false;
	while ((op = TAILQ_FIRST(&leases->ops[LEASE_OP_ANSWERED]))) {
		lease_done_fn *done = lease_op_forget_caller(op);
		if (done)
			done(op->caller.arg, &op->answer);
		lease_op_linger(op);
	}
	metrics_set(&leases->metrics->in_flight, leases->waiting);
	return any;
}

/* Answers all that wait in a queue with LEASE_DRAINING, the newest first, so that nobody waits after the one that is
 * removed. */
static void drain_waiters(struct leases *leases)
{
	struct lease_op *op;
	while ((op = TAILQ_LAST(&leases->queues.by_age, lease_ops))) {
		uint64_t now_us = clock_now_us();
		struct redlock_event cancel = {.kind = REDLOCK_CANCEL, .now_us = now_us};
		op->wait.drained = true;
		lease_op_reject_draining(op, now_us);
		lease_op_dispatch(op, &cancel);
		op->answer.place_kept_ms = op->wait.place_kept_ms;
		assert(!op->wait.entries && op->state == LEASE_OP_ANSWERED);
	}
}

void leases_drain(struct leases *leases)
{
	leases->draining = true;
	metrics_set(&leases->metrics->draining, 1);
	drain_waiters(leases);
	masters_flush(leases->masters); /* the answers send callers to other redlockd, which look for the places */
	lease_watch_drain(leases);
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
	assert(STAILQ_EMPTY(&leases->new_listings) && leases->listings == 0);
	for (struct lease_op *op = leases->all; op; op = op->all_next)
		transport_timer_free(op->timer);
}

void leases_free(struct leases *leases)
{
	assert(TAILQ_EMPTY(&leases->queues.by_age) && leases->queues.listeners == 0);
	while (leases->all) {
		struct lease_op *next = leases->all->all_next;
		text_fini(&leases->all->label);
		free((char *)leases->all->request.resource);
		free(leases->all);
		leases->all = next;
	}
	lease_below_free(leases);
	struct lease_ref *ref;
	while ((ref = STAILQ_FIRST(&leases->spare_refs))) {
		STAILQ_REMOVE_HEAD(&leases->spare_refs, entry);
		free(ref);
	}
	free(leases);
}
