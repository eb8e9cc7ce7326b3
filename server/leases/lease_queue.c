/* The requests of this worker that wait (wait_ms), by resource and in the order of their arrival.
 *
 * The masters keep the order over all replicas (server/scripts/acquire.lua). These queues tell which operation of this
 * worker a notification is for, and which one is the first for its resource: only that one watches the holder's time.
 * An operation is in a queue from START until it is answered or given up. A queue is made with its first waiter and
 * freed with its last one. Nothing here drives an operation: see lease_op.c and leases.c. */
#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum { PUBLISH_MS = 250 }; /* the shortest time between two updates of /stats */

static_assert((int)LEASE_RESOURCE_MAX == (int)STATS_RESOURCE_MAX, "/stats has room for each name");
static_assert((int)LEASE_OWNER_MAX == (int)STATS_OWNER_MAX, "/stats has room for each owner");

struct lease_queue {
	struct lease_name name;
	LIST_ENTRY(lease_queue) entry;
	struct lease_ops waiters;
	size_t count;
	char bytes[]; /* of the name */
};

int lease_name_compare(const void *a, const void *b)
{
	const struct lease_name *one = a, *other = b;
	if (one->resource_len != other->resource_len)
		return one->resource_len < other->resource_len ? -1 : 1;
	return memcmp(one->resource, other->resource, one->resource_len);
}

static struct lease_queue *queue_find(const struct leases *leases, const char *resource, size_t len)
{
	assert(len >= 1 && len <= LEASE_RESOURCE_MAX);
	const struct lease_name name = {resource, len};
	struct lease_queue *const *node = tfind(&name, &leases->queues.by_name, lease_name_compare);
	return node ? *node : NULL;
}

/* ---- looking up ---- */

bool lease_queue_is_full(const struct leases *leases, const struct lease_request *request)
{
	const struct lease_queue *queue = queue_find(leases, request->resource, request->resource_len);
	return metrics_waiters() >= leases->options->max_waiters ||
	       (queue && queue->count >= leases->options->max_waiters_per_resource);
}

struct lease_op *lease_queue_find(const struct leases *leases, const char *resource, size_t len, uint64_t arrival)
{
	struct lease_op *op = lease_queue_find_first(leases, resource, len);
	while (op && op->core.arrival != arrival)
		op = TAILQ_NEXT(op, queue_entry);
	return op;
}

struct lease_op *lease_queue_find_first(const struct leases *leases, const char *resource, size_t len)
{
	const struct lease_queue *queue = queue_find(leases, resource, len);
	return queue ? TAILQ_FIRST(&queue->waiters) : NULL;
}

void lease_queues_visit_first(const struct leases *leases, void (*visit)(struct lease_op *first))
{
	for (struct lease_queue *queue = LIST_FIRST(&leases->queues.all), *next; queue; queue = next) {
		next = LIST_NEXT(queue, entry); /* a visit may end the last wait in this queue alone */
		visit(TAILQ_FIRST(&queue->waiters));
	}
}

/* ---- entering and leaving ---- */

static struct lease_queue *queue_new(struct lease_queues *queues, const struct lease_request *request)
{
	struct lease_queue *queue = memory_zeroed(1, sizeof *queue + request->resource_len);
	queue->name.resource = memcpy(queue->bytes, request->resource, request->resource_len);
	queue->name.resource_len = request->resource_len;
	TAILQ_INIT(&queue->waiters);
	LIST_INSERT_HEAD(&queues->all, queue, entry);
	if (!tsearch(queue, &queues->by_name, lease_name_compare))
		memory_exhausted("queue");
	return queue;
}

void lease_queues_listen(struct leases *leases, bool more)
{
	size_t *listeners = &leases->queues.listeners;
	assert(more || *listeners > 0);
	*listeners += more ? 1 : (size_t)-1;
	if (*listeners == 0)
		masters_stop_notifications(leases->masters);
	else if (more && *listeners == 1)
		masters_start_notifications(leases->masters);
}

static void count_waiter(struct leases *leases, bool more)
{
	struct lease_queues *queues = &leases->queues;
	assert(more || queues->waiters > 0);
	queues->waiters += more ? 1 : (size_t)-1;
	queues->changed = true;
	metrics_set(&leases->metrics->waiters, queues->waiters);
	const struct lease_op *oldest = TAILQ_FIRST(&queues->by_age);
	metrics_set(&leases->metrics->waiting_since_us, oldest ? oldest->began_us : 0);
	lease_queues_listen(leases, more);
}

void lease_queue_enter(struct lease_op *op)
{
	struct leases *leases = op->leases;
	const struct lease_op *newest = TAILQ_LAST(&leases->queues.by_age, lease_ops);
	struct lease_queue *queue = queue_find(leases, op->request.resource, op->request.resource_len);
	assert(!op->queue && (!newest || newest->began_us <= op->began_us));
	op->queue = queue ? queue : queue_new(&leases->queues, &op->request);
	op->queue->count++;
	op->missed_notifications = leases->missed_notifications;
	TAILQ_INSERT_TAIL(&op->queue->waiters, op, queue_entry);
	TAILQ_INSERT_TAIL(&leases->queues.by_age, op, age_entry);
	count_waiter(leases, true);
}

static void note_wait(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	struct metrics *metrics = op->leases->metrics;
	enum metrics_wait how = result->outcome == REDLOCK_OK          ? METRICS_WAIT_GRANTED
				: result->outcome == REDLOCK_CANCELLED ? METRICS_WAIT_CANCELLED
								       : METRICS_WAIT_TIMEOUT;
	if (result->tries <= 1 && (how == METRICS_WAIT_GRANTED || result->outcome == REDLOCK_NO_QUORUM))
		return; /* decided by the first attempt: it did not wait */
	assert(now_us >= op->began_us && now_us >= op->notified_us);
	histogram_observe(&metrics->wait[how], now_us - op->began_us);
	if (how == METRICS_WAIT_GRANTED && op->notified_us != 0)
		histogram_observe(&metrics->handover, now_us - op->notified_us);
}

/* How long until the next one may try by itself: until the lease that was just given ends, or as the one before it
 * knew; at once if notifications may have been missed since the next one entered. */
static uint64_t remaining_us(const struct lease_op *op, const struct lease_op *next,
			     const struct redlock_result *result, uint64_t now_us)
{
	uint64_t free_us = op->core.free_us;
	if (next->missed_notifications != op->leases->missed_notifications)
		return 0;
	if (result->outcome == REDLOCK_OK)
		return result->ttl_us;
	return free_us == REDLOCK_NEVER ? REDLOCK_NEVER : free_us > now_us ? free_us - now_us : 0;
}

struct lease_op *lease_queue_exit(struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
				  uint64_t *ret_remaining_us)
{
	struct lease_queue *queue = op->queue;
	struct lease_op *next = TAILQ_FIRST(&queue->waiters) == op ? TAILQ_NEXT(op, queue_entry) : NULL;
	assert(queue->count > 0);
	op->queue = NULL;
	note_wait(op, result, now_us);
	TAILQ_REMOVE(&op->leases->queues.by_age, op, age_entry);
	TAILQ_REMOVE(&queue->waiters, op, queue_entry);
	if (--queue->count == 0) {
		assert(TAILQ_EMPTY(&queue->waiters));
		tdelete(queue, &op->leases->queues.by_name, lease_name_compare);
		LIST_REMOVE(queue, entry);
		free(queue);
	}
	count_waiter(op->leases, false);
	if (next)
		*ret_remaining_us = remaining_us(op, next, result, now_us);
	return next;
}

/* ---- for /stats, which sorts them ---- */

static void list_first(const struct lease_queue *queue, struct stats_resource *one)
{
	const struct lease_op *op = TAILQ_FIRST(&queue->waiters);
	assert(op && one->first_count == 0);
	for (; op && one->first_count < STATS_FIRST; op = TAILQ_NEXT(op, queue_entry)) {
		struct stats_waiter *waiter = &one->first[one->first_count++];
		waiter->began_us = op->began_us;
		waiter->owner_len = op->request.owner_len;
		memcpy(waiter->owner, op->request.owner, waiter->owner_len);
	}
}

void lease_queues_publish(struct leases *leases)
{
	struct lease_queues *queues = &leases->queues;
	struct stats_resource list[STATS_TOP];
	size_t count = 0, least = 0; /* which one is the shortest, if there are STATS_TOP */
	uint64_t now_ms = queues->changed ? clock_now_us() / 1000 : 0;
	if (!queues->changed || now_ms - queues->published_ms < PUBLISH_MS)
		return;
	for (const struct lease_queue *queue = LIST_FIRST(&queues->all); queue; queue = LIST_NEXT(queue, entry)) {
		if (count == STATS_TOP && queue->count <= list[least].count)
			continue;
		struct stats_resource *one = &list[count < STATS_TOP ? count++ : least];
		*one = (struct stats_resource){.len = (uint16_t)queue->name.resource_len,
					       .count = (uint32_t)queue->count,
					       .oldest_us = TAILQ_FIRST(&queue->waiters)->began_us};
		memcpy(one->name, queue->bytes, queue->name.resource_len);
		list_first(queue, one);
		for (size_t i = 0; i < count; i++)
			least = list[i].count < list[least].count ? i : least;
	}
	stats_note_queues(leases->metrics, list, count);
	queues->changed = false;
	queues->published_ms = now_ms;
}
