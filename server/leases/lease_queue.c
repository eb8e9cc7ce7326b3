/* Requests of this worker that wait (wait_ms), by resource and in the order in which they came.
 *
 * The order over all replicas is kept by the masters (server/scripts/acquire.lua); here is who of us waits for what, so
 * that a master's call finds its waiter, and so that only the first of a resource looks after the holder's time. An
 * operation is in a line from START until it is answered or given up. Lines are made with their first waiter and freed
 * with their last one. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"

enum {
	CHAINS = LEASE_QUEUE_CHAINS, /* of the table of lines */
	PUBLISH_MS = 250             /* how often /stats gets to know of changes at most */
};

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
	uint64_t missed_notifications;    /* how often a master may have dropped places, or its calls were missed */
	struct stats_worker *stats;
	bool changed;           /* since they were told to it … */
	uint64_t published_ms;  /* … at this time of the loop */
	struct siphash_key key; /* whoever asks chooses the names, and must not choose all in one chain */
	struct lease_queue *chains[CHAINS];
};

unsigned lease_queue_chain(const struct leases *leases, const char *resource, size_t len)
{
	return (unsigned)(siphash(&leases->lines->key, resource, len) % CHAINS);
}

static struct lease_queue **find(struct leases *leases, const char *resource, size_t len)
{
	struct lease_queue **at = &leases->lines->chains[lease_queue_chain(leases, resource, len)];
	while (*at && ((*at)->resource_len != len || memcmp((*at)->resource, resource, len) != 0))
		at = &(*at)->next;
	return at;
}

/* ---- what the masters say ---- */

static void ignore_reply(void *arg, const struct master_reply *reply)
{
	(void)arg;
	(void)reply;
}

/* A master calls one of ours who is not here any more: its place has to go, or all behind it wait for nobody. */
static void drop_stale_entry(struct leases *leases, const struct queue_notification *call)
{
	struct lease_request request = {.call = LEASE_RELEASE, .resource_len = (uint16_t)call->resource_len};
	char place[LEASE_ENTRY_MAX], command[LEASE_COMMAND_MAX];
	memcpy(request.resource, call->resource, call->resource_len);
	lease_entry_write(leases, call->arrival, 0, place);
	struct lease_command what = {.script = REDLOCK_SCRIPT_RELEASE, .token = "", .place = place};
	size_t len = lease_command_format(leases->options, &request, &what, command, sizeof command);
	masters_send(leases->masters, call->master, REDLOCK_SCRIPT_RELEASE, command, len, REDLOCK_NEVER, ignore_reply,
		     NULL);
}

static void wake(struct leases *leases, const struct lease_queue *line, const struct queue_notification *call)
{
	struct lease_op *op = line ? line->first : NULL;
	while (op && op->core.arrival != call->arrival)
		op = op->queue_next;
	if (!op) { /* often a call that comes late; then its place is gone, and the leave finds nothing */
		drop_stale_entry(leases, call);
		return;
	}
	struct redlock_event event = {.kind = REDLOCK_NOTIFIED,
				      .now_us = clock_now_us(),
				      .master = call->master,
				      .fence = lease_fence_guess(leases)};
	if (op->notified_us == 0)
		op->notified_us = event.now_us;
	lease_op_drive(op, &event);
}

static void on_notified(void *arg, const struct queue_notification *call)
{
	struct leases *leases = arg;
	if (call->resource_len > LEASE_RESOURCE_MAX)
		return;
	struct lease_queue *line = *find(leases, call->resource, call->resource_len);
	if (call->ours) {
		wake(leases, line, call);
	} else if (line) {
		struct redlock_event event = {.kind = REDLOCK_PASSED, .now_us = clock_now_us(), .master = call->master};
		lease_op_drive(line->first, &event);
	}
}

static void tell_first(struct lease_op *op, uint64_t now_us, uint64_t remaining_us)
{
	struct redlock_event event = {.kind = REDLOCK_FIRST, .now_us = now_us, .remaining_us = remaining_us};
	op->missed_notifications = op->leases->lines->missed_notifications;
	lease_op_drive(op, &event);
}

/* The first of each line tries at once, which puts it in its place again; the others do so when they become the
 * first. */
static void on_missed(void *arg)
{
	struct leases *leases = arg;
	leases->lines->missed_notifications++;
	for (size_t i = 0; i < CHAINS; i++)
		for (struct lease_queue *line = leases->lines->chains[i]; line; line = line->next)
			tell_first(line->first, clock_now_us(), 0);
}

/* ---- coming and going ---- */

bool lease_queues_init(struct leases *leases)
{
	leases->lines = calloc(1, sizeof *leases->lines);
	if (!leases->lines)
		return false;
	leases->lines->stats = stats_worker_of(leases->metrics);
	leases->lines->key = (struct siphash_key){random_number(), random_number()};
	masters_queue_listen(leases->masters,
			     &(struct queue_events){.called = on_notified, .missed = on_missed, .arg = leases});
	return true;
}

void lease_queues_free(struct leases *leases)
{
	if (leases->lines)
		assert(leases->lines->waiters == 0);
	free(leases->lines);
}

bool lease_queue_is_full(struct leases *leases, const struct lease_request *request)
{
	const struct lease_queue *line = *find(leases, request->resource, request->resource_len);
	return metrics_waiters() >= leases->options->max_waiters ||
	       (line && line->count >= leases->options->max_waiters_per_resource);
}

static struct lease_queue *queue_new(const struct lease_request *request)
{
	struct lease_queue *line = calloc(1, sizeof *line);
	if (!line)
		return NULL;
	line->resource_len = request->resource_len;
	memcpy(line->resource, request->resource, request->resource_len);
	return line;
}

/* In the order in which they came: so the first one has waited longest. */
static void age_enter(struct lease_queues *lines, struct lease_op *op)
{
	assert(!lines->newest || lines->newest->began_us <= op->began_us);
	op->older = lines->newest;
	op->newer = NULL;
	*(lines->newest ? &lines->newest->newer : &lines->oldest) = op;
	lines->newest = op;
}

static void age_exit(struct lease_queues *lines, struct lease_op *op)
{
	*(op->older ? &op->older->newer : &lines->oldest) = op->newer;
	*(op->newer ? &op->newer->older : &lines->newest) = op->older;
}

static void count_waiter(struct leases *leases, bool more)
{
	struct lease_queues *lines = leases->lines;
	lines->waiters += more ? 1 : (size_t)-1;
	lines->changed = true;
	metrics_set(&leases->metrics->waiters, lines->waiters);
	metrics_set(&leases->metrics->waiting_since_us, lines->oldest ? lines->oldest->began_us : 0);
	if (lines->waiters == 0)
		masters_queue_shut(leases->masters);
	else if (more && lines->waiters == 1)
		masters_queue_open(leases->masters);
}

bool lease_queue_enter(struct lease_op *op)
{
	struct leases *leases = op->leases;
	struct lease_queue **at = find(leases, op->request.resource, op->request.resource_len);
	struct lease_queue *line = *at ? *at : queue_new(&op->request);
	if (!line)
		return false;
	*at = line;
	op->line = line;
	op->queue_next = NULL;
	op->queue_prev = line->last;
	*(line->last ? &line->last->queue_next : &line->first) = op;
	line->last = op;
	line->count++;
	op->missed_notifications = leases->lines->missed_notifications;
	age_enter(leases->lines, op);
	count_waiter(leases, true);
	return true;
}

static void note_wait(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	struct metrics *metrics = op->leases->metrics;
	enum metrics_wait how = result->outcome == REDLOCK_OK          ? METRICS_WAIT_GRANTED
				: result->outcome == REDLOCK_CANCELLED ? METRICS_WAIT_GONE
								       : METRICS_WAIT_TIMEOUT;
	if (result->tries <= 1 && (how == METRICS_WAIT_GRANTED || result->outcome == REDLOCK_NO_QUORUM))
		return; /* decided at once: nobody waited */
	histogram_observe(&metrics->wait[how], now_us - op->began_us);
	if (how == METRICS_WAIT_GRANTED && op->notified_us != 0)
		histogram_observe(&metrics->handover, now_us - op->notified_us);
}

/* When the one behind may try by itself: the lease that was just given runs out, or what the one before it knew. */
static uint64_t remaining_us(const struct lease_op *op, const struct lease_op *next,
			     const struct redlock_result *result, uint64_t now_us)
{
	uint64_t free_us = redlock_free_us(&op->core);
	if (next->missed_notifications != op->leases->lines->missed_notifications)
		return 0;
	if (result->outcome == REDLOCK_OK)
		return result->ttl_us;
	return free_us == REDLOCK_NEVER ? REDLOCK_NEVER : free_us > now_us ? free_us - now_us : 0;
}

void lease_queue_exit(struct lease_op *op, const struct redlock_result *result, uint64_t now_us)
{
	struct leases *leases = op->leases;
	struct lease_queue *line = op->line;
	struct lease_op *next = line->first == op ? op->queue_next : NULL;
	assert(line->count > 0);
	*(op->queue_prev ? &op->queue_prev->queue_next : &line->first) = op->queue_next;
	*(op->queue_next ? &op->queue_next->queue_prev : &line->last) = op->queue_prev;
	op->line = NULL;
	note_wait(op, result, now_us);
	if (--line->count == 0) {
		struct lease_queue **at = find(leases, line->resource, line->resource_len);
		*at = line->next;
		free(line);
	}
	age_exit(leases->lines, op);
	count_waiter(leases, false);
	if (next)
		tell_first(next, now_us, remaining_us(op, next, result, now_us));
}

static struct lease_op *any_waiter(const struct leases *leases)
{
	for (size_t i = 0; i < CHAINS; i++)
		if (leases->lines->chains[i])
			return leases->lines->chains[i]->last; /* from behind: nobody becomes the first on the way */
	return NULL;
}

void lease_queues_drain(struct leases *leases)
{
	struct lease_op *op;
	while ((op = any_waiter(leases))) {
		uint64_t now_us = clock_now_us();
		struct redlock_event cancel = {.kind = REDLOCK_CANCEL, .now_us = now_us};
		lease_op_refuse_draining(op, now_us);
		lease_op_drive(op, &cancel);
		assert(!op->line);
	}
}

/* ---- for /stats ---- */

/* Puts a line to its place among those with most waiters, of which there are `count` so far. Returns how many there are
 * now. */
static size_t insert_by_count(const struct lease_queue *top[STATS_TOP], size_t count, const struct lease_queue *line)
{
	size_t at = count;
	while (at > 0 && top[at - 1]->count < line->count)
		at--;
	if (at == STATS_TOP)
		return count;
	size_t last = count < STATS_TOP ? count : STATS_TOP - 1;
	memmove(top + at + 1, top + at, (last - at) * sizeof *top);
	top[at] = line;
	return last + 1;
}

static size_t find_longest(const struct lease_queues *lines, const struct lease_queue *ret_top[STATS_TOP])
{
	size_t count = 0;
	for (size_t i = 0; i < CHAINS; i++)
		for (const struct lease_queue *line = lines->chains[i]; line; line = line->next)
			count = insert_by_count(ret_top, count, line);
	return count;
}

void lease_queues_publish(struct leases *leases)
{
	struct lease_queues *lines = leases->lines;
	if (!lines->changed || uv_now(leases->loop) - lines->published_ms < PUBLISH_MS)
		return;
	const struct lease_queue *top[STATS_TOP];
	struct stats_resource list[STATS_TOP];
	size_t count = find_longest(lines, top);
	for (size_t i = 0; i < count; i++) {
		list[i] = (struct stats_resource){.len = top[i]->resource_len,
						  .count = (uint32_t)top[i]->count,
						  .oldest_us = top[i]->first->began_us};
		memcpy(list[i].name, top[i]->resource, top[i]->resource_len);
	}
	stats_note_queues(lines->stats, list, count);
	lines->changed = false;
	lines->published_ms = uv_now(leases->loop);
}
