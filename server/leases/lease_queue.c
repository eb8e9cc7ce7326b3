/* The requests of this worker that wait (wait_ms), by resource and in the order of their arrival.
 *
 * The masters keep the order over all replicas (server/scripts/acquire.lua). These queues tell which operation of this
 * worker a notification is for, and which one is the first for its resource: only that one watches the holder's time.
 * An operation is in a queue from START until it is answered or given up. A queue is made with its first waiter and
 * freed with its last one. Nothing here drives an operation: see lease_op.c and lease_notification.c. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum {
	CHAINS = LEASE_QUEUE_CHAINS, /* of the table of queues */
	PUBLISH_MS = 250             /* the shortest time between two updates of /stats */
};

static_assert((int)LEASE_RESOURCE_MAX == (int)STATS_RESOURCE_MAX, "/stats has room for each name");

struct lease_queue {
	struct lease_queue *next; /* in its chain */
	struct lease_op *first, *last;
	size_t count;
	uint16_t resource_len;
	char resource[LEASE_RESOURCE_MAX];
};

struct lease_queues {
	size_t waiters;
	struct lease_op *oldest, *newest; /* of all that wait */
	struct stats_worker *stats;
	bool changed;           /* since the last update of /stats … */
	uint64_t published_ms;  /* … at this time of the loop */
	struct siphash_key key; /* callers choose the names, and must not be able to put all into one chain */
	struct lease_queue *chains[CHAINS];
};

unsigned lease_queue_chain(const struct leases *leases, const char *resource, size_t len)
{
	return (unsigned)(siphash(&leases->queues->key, resource, len) % CHAINS);
}

static struct lease_queue **queue_find(const struct leases *leases, const char *resource, size_t len)
{
	assert(len >= 1 && len <= LEASE_RESOURCE_MAX);
	struct lease_queue **at = &leases->queues->chains[lease_queue_chain(leases, resource, len)];
	while (*at && ((*at)->resource_len != len || memcmp((*at)->resource, resource, len) != 0))
		at = &(*at)->next;
	return at;
}

bool lease_queues_init(struct leases *leases)
{
	assert(!leases->queues);
	leases->queues = calloc(1, sizeof *leases->queues);
	if (!leases->queues)
		return false;
	leases->queues->stats = stats_worker_of(leases->metrics);
	leases->queues->key = (struct siphash_key){random_number(), random_number()};
	return true;
}

void lease_queues_free(struct leases *leases)
{
	if (leases->queues)
		assert(leases->queues->waiters == 0);
	free(leases->queues);
	leases->queues = NULL;
}

/* ---- looking up ---- */

bool lease_queue_is_full(const struct leases *leases, const struct lease_request *request)
{
	const struct lease_queue *queue = *queue_find(leases, request->resource, request->resource_len);
	return metrics_waiters() >= leases->options->max_waiters ||
	       (queue && queue->count >= leases->options->max_waiters_per_resource);
}

struct lease_op *lease_queue_find(const struct leases *leases, const char *resource, size_t len, uint64_t arrival)
{
	const struct lease_queue *queue = *queue_find(leases, resource, len);
	struct lease_op *op = queue ? queue->first : NULL;
	while (op && op->core.arrival != arrival)
		op = op->queue_next;
	return op;
}

struct lease_op *lease_queue_find_first(const struct leases *leases, const char *resource, size_t len)
{
	const struct lease_queue *queue = *queue_find(leases, resource, len);
	return queue ? queue->first : NULL;
}

void lease_queues_visit_first(const struct leases *leases, void (*visit)(struct lease_op *first))
{
	for (size_t i = 0; i < CHAINS; i++)
		for (struct lease_queue *queue = leases->queues->chains[i], *next; queue; queue = next) {
			next = queue->next; /* a visit may end the last wait in this queue, and in no other one */
			visit(queue->first);
		}
}

struct lease_op *lease_queues_find_any(const struct leases *leases)
{
	for (size_t i = 0; i < CHAINS; i++)
		if (leases->queues->chains[i])
			return leases->queues->chains[i]->last; /* the last one: no other one becomes the first */
	return NULL;
}

/* ---- entering and leaving ---- */

static struct lease_queue *queue_new(const struct lease_request *request)
{
	struct lease_queue *queue = calloc(1, sizeof *queue);
	if (!queue)
		return NULL;
	queue->resource_len = request->resource_len;
	memcpy(queue->resource, request->resource, request->resource_len);
	return queue;
}

/* All waiters in the order of their arrival: the first one has waited longest. */
static void age_insert(struct lease_queues *queues, struct lease_op *op)
{
	assert(!queues->newest || queues->newest->began_us <= op->began_us);
	op->older = queues->newest;
	op->newer = NULL;
	*(queues->newest ? &queues->newest->newer : &queues->oldest) = op;
	queues->newest = op;
}

static void age_remove(struct lease_queues *queues, struct lease_op *op)
{
	assert(op->older || queues->oldest == op);
	assert(op->newer || queues->newest == op);
	*(op->older ? &op->older->newer : &queues->oldest) = op->newer;
	*(op->newer ? &op->newer->older : &queues->newest) = op->older;
}

static void count_waiter(struct leases *leases, bool more)
{
	struct lease_queues *queues = leases->queues;
	assert(more || queues->waiters > 0);
	queues->waiters += more ? 1 : (size_t)-1;
	queues->changed = true;
	metrics_set(&leases->metrics->waiters, queues->waiters);
	metrics_set(&leases->metrics->waiting_since_us, queues->oldest ? queues->oldest->began_us : 0);
	if (queues->waiters == 0)
		masters_stop_notifications(leases->masters);
	else if (more && queues->waiters == 1)
		masters_start_notifications(leases->masters);
}

bool lease_queue_enter(struct lease_op *op)
{
	struct leases *leases = op->leases;
	struct lease_queue **at = queue_find(leases, op->request.resource, op->request.resource_len);
	struct lease_queue *queue = *at ? *at : queue_new(&op->request);
	assert(!op->queue);
	if (!queue)
		return false;
	*at = queue;
	op->queue = queue;
	op->queue_next = NULL;
	op->queue_prev = queue->last;
	*(queue->last ? &queue->last->queue_next : &queue->first) = op;
	queue->last = op;
	queue->count++;
	op->missed_notifications = leases->missed_notifications;
	age_insert(leases->queues, op);
	count_waiter(leases, true);
	return true;
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
	uint64_t free_us = redlock_free_us(&op->core);
	if (next->missed_notifications != op->leases->missed_notifications)
		return 0;
	if (result->outcome == REDLOCK_OK)
		return result->ttl_us;
	return free_us == REDLOCK_NEVER ? REDLOCK_NEVER : free_us > now_us ? free_us - now_us : 0;
}

struct lease_op *lease_queue_exit(struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
				  uint64_t *ret_remaining_us)
{
	struct leases *leases = op->leases;
	struct lease_queue *queue = op->queue;
	struct lease_op *next = queue->first == op ? op->queue_next : NULL;
	assert(queue->count > 0);
	*(op->queue_prev ? &op->queue_prev->queue_next : &queue->first) = op->queue_next;
	*(op->queue_next ? &op->queue_next->queue_prev : &queue->last) = op->queue_prev;
	op->queue = NULL;
	note_wait(op, result, now_us);
	if (--queue->count == 0) {
		struct lease_queue **at = queue_find(leases, queue->resource, queue->resource_len);
		assert(*at == queue && !queue->first && !queue->last);
		*at = queue->next;
		free(queue);
	}
	age_remove(leases->queues, op);
	count_waiter(leases, false);
	if (next)
		*ret_remaining_us = remaining_us(op, next, result, now_us);
	return next;
}

/* ---- for /stats ---- */

/* Inserts a queue among those with most waiters, of which there are `count` so far. Returns their new number. */
static size_t insert_by_count(const struct lease_queue *top[STATS_TOP], size_t count, const struct lease_queue *queue)
{
	size_t at = count;
	assert(count <= STATS_TOP);
	while (at > 0 && top[at - 1]->count < queue->count)
		at--;
	if (at == STATS_TOP)
		return count;
	size_t last = count < STATS_TOP ? count : STATS_TOP - 1;
	memmove(top + at + 1, top + at, (last - at) * sizeof *top);
	top[at] = queue;
	return last + 1;
}

static size_t find_longest(const struct lease_queues *queues, const struct lease_queue *ret_top[STATS_TOP])
{
	size_t count = 0;
	for (size_t i = 0; i < CHAINS; i++)
		for (const struct lease_queue *queue = queues->chains[i]; queue; queue = queue->next)
			count = insert_by_count(ret_top, count, queue);
	return count;
}

void lease_queues_publish(struct leases *leases)
{
	struct lease_queues *queues = leases->queues;
	if (!queues->changed || uv_now(leases->loop) - queues->published_ms < PUBLISH_MS)
		return;
	const struct lease_queue *top[STATS_TOP];
	struct stats_resource list[STATS_TOP];
	size_t count = find_longest(queues, top);
	for (size_t i = 0; i < count; i++) {
		list[i] = (struct stats_resource){.len = top[i]->resource_len,
						  .count = (uint32_t)top[i]->count,
						  .oldest_us = top[i]->first->began_us};
		memcpy(list[i].name, top[i]->resource, top[i]->resource_len);
	}
	stats_note_queues(queues->stats, list, count);
	queues->changed = false;
	queues->published_ms = uv_now(leases->loop);
}
