/* SPDX-License-Identifier: MIT */
/* The requests of this worker that wait (wait_ms), by resource and in the order of their arrival.
 *
 * The masters keep the order over all replicas (server/scripts/acquire.lua). These queues show which operation of this
 * worker a notification is for, and which one is the first for its resource: only that one wakes at the holder's end.
 * An operation is in a queue from START until it is answered or given up. A queue is made with its first waiter and
 * freed with its last one. Nothing here drives an operation: see lease_op.c and leases.c. */
#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum {
	PUBLISH_MS = 250,    /* the shortest time between two updates of /stats */
	OTHERS_US = 1000000, /* after a notification for another redlockd, which may have more waiters */
	WAVE_US = 250000,    /* after a shared grant the next shared one tries by itself, if it was not notified */
	WAVE_MAX = 16,       /* waiters that a notification concerns, as a rule */
	SETS_MAX = 16        /* shared sets that a shared waiter for one resource does not follow */
};

static_assert((int)LEASE_RESOURCE_MAX == (int)STATS_RESOURCE_MAX, "/stats has room for each name");
static_assert((int)LEASE_OWNER_MAX == (int)STATS_OWNER_MAX, "/stats has room for each owner");

struct lease_queue {
	struct lease_name name;
	LIST_ENTRY(lease_queue) entry;
	struct lease_queue_entries waiters;
	uint64_t holder;    /* of the last exclusive lease that one of it was granted; 0: none yet */
	uint64_t passed_us; /* when a waiter of another redlockd was notified last; 0: never */
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
	const char *at = request->resource, *end = at + request->resource_len, *name;
	size_t len;
	bool full = metrics_waiters() >= leases->options->max_waiters;
	while (!full && text_line(&at, end, &name, &len)) {
		const struct lease_queue *queue = queue_find(leases, name, len);
		full = queue && queue->count >= leases->options->max_waiters_per_resource;
	}
	return full;
}

static struct lease_op *first_of(const struct lease_queue *queue)
{
	return TAILQ_FIRST(&queue->waiters)->op;
}

static bool is_shared(const struct lease_queue_entry *waiter)
{
	return waiter->op->request.mode == LEASE_SHARED;
}

/* A shared waiter for one resource passes shared sets, which may wait for another resource. */
static bool entry_has_earlier(const struct lease_queue_entry *waiter)
{
	const struct lease_queue_entry *first = TAILQ_FIRST(&waiter->queue->waiters);
	for (unsigned sets = 0; sets < SETS_MAX && first != waiter && is_shared(waiter); sets++) {
		if (!is_shared(first) || first->op->request.set_count == 0)
			break;
		first = TAILQ_NEXT(first, entry);
	}
	return first != waiter;
}

bool lease_queue_has_earlier(const struct lease_op *op)
{
	size_t count = lease_request_count(&op->request);
	for (size_t i = 0; op->wait.entries && i < count; i++)
		if (entry_has_earlier(&op->wait.entries[i]))
			return true;
	return false;
}

struct lease_op *lease_queue_find(const struct leases *leases, const char *resource, size_t len, uint64_t arrival)
{
	const struct lease_queue *queue = queue_find(leases, resource, len);
	const struct lease_queue_entry *waiter = queue ? TAILQ_FIRST(&queue->waiters) : NULL;
	while (waiter && waiter->op->core.arrival != arrival)
		waiter = TAILQ_NEXT(waiter, entry);
	return waiter ? waiter->op : NULL;
}

size_t lease_queue_list(const struct leases *leases, const struct masters_notification *notification,
			struct lease_waiter **ret_waiters)
{
	struct lease_queue *queue = queue_find(leases, notification->resource, notification->resource_len);
	const struct lease_queue_entry *waiter = queue ? TAILQ_FIRST(&queue->waiters) : NULL;
	bool ours = notification->ours;
	size_t count = 0, room = 0;
	*ret_waiters = NULL;
	if (queue && !ours)
		queue->passed_us = clock_now_us();
	for (; waiter; waiter = TAILQ_NEXT(waiter, entry)) {
		uint64_t arrival = waiter->op->core.arrival;
		bool is_up_to_last = notification->last > 0 && arrival <= notification->last;
		bool is_named = ours && arrival == notification->arrival;
		bool is_first = !entry_has_earlier(waiter), is_set = waiter->op->request.set_count > 0;
		bool is_notified = is_up_to_last && is_shared(waiter) && (!is_set || is_first);
		if (!is_up_to_last && !is_first)
			break;
		if (is_named || (!is_notified && (ours || !is_first)))
			continue;
		if (count == room)
			*ret_waiters = memory_resize(*ret_waiters, (room += WAVE_MAX) * sizeof **ret_waiters);
		(*ret_waiters)[count++] = (struct lease_waiter){waiter->op, arrival, is_notified};
	}
	return count;
}

bool lease_queue_has(const struct lease_waiter *waiter)
{
	return waiter->op->wait.entries && waiter->op->core.arrival == waiter->arrival;
}

void lease_queue_visit_passed(const struct lease_op *op, void (*visit)(struct lease_op *passed))
{
	size_t count = lease_request_count(&op->request);
	for (size_t i = 0; i < count; i++)
		for (struct lease_queue_entry *next = TAILQ_NEXT(&op->wait.entries[i], entry); next;
		     next = TAILQ_NEXT(next, entry))
			if (next->op->core.state != REDLOCK_IDLE && !next->op->core.follows && entry_has_earlier(next))
				visit(next->op);
}

void lease_queues_visit_first(const struct leases *leases, void (*visit)(struct lease_op *first))
{
	for (struct lease_op *op = TAILQ_FIRST(&leases->queues.by_age), *next; op; op = next) {
		next = TAILQ_NEXT(op, wait.age_entry);
		if (op->wait.missed_notifications == leases->missed_notifications || lease_queue_has_earlier(op))
			continue;
		visit(op);
		if (next && !next->wait.entries) /* the visit may end any number of waits */
			next = TAILQ_FIRST(&leases->queues.by_age);
	}
}

/* ---- entering and leaving ---- */

static struct lease_queue *queue_new(struct lease_queues *queues, const char *resource, size_t len)
{
	struct lease_queue *queue = memory_zeroed(1, sizeof *queue + len);
	queue->name.resource = memcpy(queue->bytes, resource, len);
	queue->name.resource_len = len;
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

/* At the end, unless its arrival is an old one. Those that have not started will get a later one than all others. */
static void insert_by_arrival(struct lease_queue_entry *waiter)
{
	uint64_t arrival = waiter->op->request.arrival;
	struct lease_queue_entry *other = arrival > 0 ? TAILQ_FIRST(&waiter->queue->waiters) : NULL;
	while (other && other->op->core.arrival > 0 && other->op->core.arrival < arrival)
		other = TAILQ_NEXT(other, entry);
	if (other)
		TAILQ_INSERT_BEFORE(other, waiter, entry);
	else
		TAILQ_INSERT_TAIL(&waiter->queue->waiters, waiter, entry);
}

void lease_queue_enter(struct lease_op *op)
{
	struct leases *leases = op->leases;
	const struct lease_op *newest = TAILQ_LAST(&leases->queues.by_age, lease_ops);
	const char *at = op->request.resource, *end = at + op->request.resource_len, *name;
	size_t len, count = lease_request_count(&op->request);
	assert(!op->wait.entries && (!newest || newest->began_us <= op->began_us));
	op->wait.entries = count == 1 ? &op->wait.alone : memory_zeroed(count, sizeof *op->wait.entries);
	for (struct lease_queue_entry *waiter = op->wait.entries; text_line(&at, end, &name, &len); waiter++) {
		struct lease_queue *queue = queue_find(leases, name, len);
		waiter->op = op;
		waiter->queue = queue ? queue : queue_new(&leases->queues, name, len);
		waiter->queue->count++;
		insert_by_arrival(waiter);
	}
	op->wait.missed_notifications = leases->missed_notifications;
	lease_below_begin(leases);
	TAILQ_INSERT_TAIL(&leases->queues.by_age, op, wait.age_entry);
	count_waiter(leases, true);
}

static void observe_wait(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	struct metrics *metrics = op->leases->metrics;
	enum metrics_wait how = result->outcome == REDLOCK_OK          ? METRICS_WAIT_GRANTED
				: result->outcome == REDLOCK_CANCELLED ? METRICS_WAIT_CANCELLED
								       : METRICS_WAIT_TIMEOUT;
	if (result->tries <= 1 && (how == METRICS_WAIT_GRANTED || result->outcome == REDLOCK_NO_QUORUM))
		return; /* decided by the first attempt: it did not wait */
	assert(now_us >= op->began_us && now_us >= op->wait.notified_us);
	histogram_observe(&metrics->wait[how], now_us - op->began_us);
	if (how == METRICS_WAIT_GRANTED && op->wait.notified_us != 0)
		histogram_observe(&metrics->handover, now_us - op->wait.notified_us);
}

static bool is_about_the_same(const struct lease_request *one, const struct lease_request *other)
{
	return one->resource_len == other->resource_len &&
	       memcmp(one->resource, other->resource, one->resource_len) == 0;
}

/* The time until the next waiter may try without a notification. It is the ttl of the lease that was just granted. If
 * none was granted, it is what the waiter before it knew, provided that both wait for the same resources. It is 0 if
 * notifications may have been missed since the next waiter entered. */
static uint64_t remaining_us(const struct lease_op *op, const struct lease_op *next,
			     const struct redlock_result *result, uint64_t now_us)
{
	uint64_t free_us = op->core.free_us;
	if (next->wait.missed_notifications != op->leases->missed_notifications)
		return 0;
	/* another slot may be free before the one that was just given */
	bool slots = op->request.mode == LEASE_SLOT && next->request.mode == LEASE_SLOT;
	if (slots && result->outcome == REDLOCK_OK)
		return free_us == REDLOCK_NEVER || free_us <= now_us ? 0 : MIN(free_us - now_us, result->ttl_us);
	if (result->outcome == REDLOCK_OK && op->request.mode == LEASE_SHARED && next->request.mode == LEASE_SHARED)
		return MIN(WAVE_US, result->ttl_us);
	if (result->outcome == REDLOCK_OK)
		return result->ttl_us;
	if (free_us == REDLOCK_NEVER || !is_about_the_same(&op->request, &next->request))
		return REDLOCK_NEVER;
	return free_us > now_us ? free_us - now_us : 0;
}

static void set_first(struct lease_op *op, const struct lease_queue_entry *next, const struct redlock_result *result,
		      uint64_t now_us)
{
	struct lease_op *first = next->op;
	uint64_t within_us = remaining_us(op, first, result, now_us);
	first->wait.first_us = first->wait.may_be_first ? MIN(first->wait.first_us, within_us) : within_us;
	if (!first->wait.may_be_first)
		TAILQ_INSERT_TAIL(&op->leases->queues.first, first, wait.first_entry);
	first->wait.may_be_first = true;
}

/* Removes the entry, and marks the waiters that are the first now. */
static void leave_queue(struct lease_queue_entry *waiter, const struct redlock_result *result, uint64_t now_us)
{
	struct lease_queue *queue = waiter->queue;
	struct lease_queues *queues = &waiter->op->leases->queues;
	struct lease_queue_entry *next = TAILQ_NEXT(waiter, entry);
	assert(queue->count > 0);
	while (next && !entry_has_earlier(next))
		next = TAILQ_NEXT(next, entry);
	TAILQ_REMOVE(&queue->waiters, waiter, entry);
	if (result->outcome == REDLOCK_OK && waiter->op->request.mode == LEASE_EXCLUSIVE)
		queue->holder = lease_value_token_id(waiter->op->attempt.token);
	for (; next && !entry_has_earlier(next); next = TAILQ_NEXT(next, entry))
		set_first(waiter->op, next, result, now_us);
	if (--queue->count == 0) {
		assert(TAILQ_EMPTY(&queue->waiters));
		tdelete(queue, &queues->by_name, lease_name_compare);
		LIST_REMOVE(queue, entry);
		free(queue);
	}
}

static void forget_first(struct lease_op *op)
{
	if (op->wait.may_be_first)
		TAILQ_REMOVE(&op->leases->queues.first, op, wait.first_entry);
	op->wait.may_be_first = false;
}

void lease_queue_exit(struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	size_t count = lease_request_count(&op->request);
	observe_wait(op, result, now_us);
	TAILQ_REMOVE(&op->leases->queues.by_age, op, wait.age_entry);
	forget_first(op);
	for (size_t i = 0; i < count; i++)
		leave_queue(&op->wait.entries[i], result, now_us);
	if (op->wait.entries != &op->wait.alone)
		free(op->wait.entries);
	op->wait.entries = NULL;
	count_waiter(op->leases, false);
}

struct lease_op *lease_queue_take_first(struct leases *leases)
{
	struct lease_op *op;
	while ((op = TAILQ_FIRST(&leases->queues.first))) {
		forget_first(op);
		if (!lease_queue_has_earlier(op)) /* a set may have to wait in another queue */
			return op;
	}
	return NULL;
}

struct lease_op *lease_queue_next(const struct leases *leases, const struct lease_request *release, uint64_t now_us)
{
	const struct lease_queue *queue = release->set_count == 0
						  ? queue_find(leases, release->resource, release->resource_len)
						  : NULL;
	if (!queue || queue->holder != lease_value_token_id(release->token) || lease_queue_has_earlier(first_of(queue)))
		return NULL;
	return queue->passed_us == 0 || now_us - queue->passed_us > OTHERS_US ? first_of(queue) : NULL;
}

/* ---- for /stats, which sorts them ---- */

static void list_first(const struct lease_queue *queue, struct stats_resource *one)
{
	const struct lease_queue_entry *entry = TAILQ_FIRST(&queue->waiters);
	assert(entry && one->first_count == 0);
	for (; entry && one->first_count < STATS_FIRST; entry = TAILQ_NEXT(entry, entry)) {
		const struct lease_op *op = entry->op;
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
					       .oldest_us = first_of(queue)->began_us};
		memcpy(one->name, queue->bytes, queue->name.resource_len);
		list_first(queue, one);
		for (size_t i = 0; i < count; i++)
			least = list[i].count < list[least].count ? i : least;
	}
	stats_set_queues(leases->metrics, list, count);
	queues->changed = false;
	queues->published_ms = now_ms;
}
