/* What must hold for waiters, besides exclusion.
 *
 *   overtake  no grant before a waiter that came earlier and was queued on a majority of masters when the attempt
 *             began; nor, at one process, before one that came earlier to it. With faults at most OVERTAKEN_MAX grants
 *             pass the same waiter.
 *   wake-up   while a resource is free on a majority of masters and somebody waits, a grant follows within WAKE_US.
 *   herd      a release causes at most one attempt at once, by the waiter that a majority of masters notifies (one
 *             that fewer notify tries a timeout later). Waiters passed over try a second later at the earliest.
 *   wait      a waiter is answered at most two timeouts after the end of its wait.
 *   queue     a waiter keeps its entry wherever it was refused; at the end no entry is left.
 *
 * All but "wait" count only while no fault is in force or has effects; "wake-up" and "herd" only while no message is
 * much delayed either (a second connection may be lost then, and a minority of masters may stand still). The entries
 * are read from the masters: there is no model of the queue here. */
#include <assert.h>

#include "random_world.h"

enum {
	WATCH_US = 50000,
	WAKE_US = 300000,
	OVERTAKEN_MAX = 8,
	OUTRUN_US = 100000,
	OUTRUN_MAX = 64,
	SETTLED_US = 1500000 /* each redlockd knows by then which epochs the others have written */
};

bool is_calm(const struct world *world)
{
	return world->now >= world->calm_at;
}

bool is_smooth(const struct world *world)
{
	return is_calm(world) && (world->healing || (world->config.smooth && world->now >= SETTLED_US));
}

static void push_watch(struct world *world, uint64_t after_us)
{
	event_push(world, event_new(world, EVENT_WATCH), world->now + after_us);
}

void order_init(struct world *world)
{
	world->calm_at = 0;
	for (unsigned key = 0; key < MODEL_KEYS; key++)
		world->free_since[key] = 0;
	if (world->config.smooth)
		push_watch(world, WATCH_US);
}

void order_trouble(struct world *world)
{
	world->calm_at = NEVER;
}

void order_calm(struct world *world, uint64_t after_us)
{
	if (world->calm_at == NEVER)
		world->calm_at = world->now + after_us;
	if (!world->config.smooth)
		push_watch(world, after_us);
}

/* ---- entries ---- */

static bool is_of(const struct world *world, uint64_t token, const struct op *op)
{
	return token != 0 && world->trails[token].op_serial == op->serial;
}

/* In the queue of a master, or with the lock there. */
static bool stands_on(const struct world *world, unsigned proc, const struct op *op, unsigned node)
{
	const struct model_master *model = &world->nodes[node].model;
	const struct model_queue *queue = model_waiting(model, op->key);
	for (unsigned i = 0; queue && i < queue->count; i++)
		if (queue->entries[i].arrival == op->core.arrival &&
		    queue->entries[i].replica == world->procs[proc].replica)
			return true;
	return is_of(world, model_token(model, op->key), op);
}

static struct op *op_of(struct world *world, const struct event *event)
{
	const struct model_command *command = &event->u.command;
	bool has_entry = event->what == REDLOCK_SCRIPT_ACQUIRE || event->what == REDLOCK_SCRIPT_RELEASE;
	if (!has_entry || command->entry.replica == 0 || command->entry.replica != world->procs[event->proc].replica)
		return NULL;
	return queue_find(world, event->proc, command->key, command->entry.arrival);
}

void order_before(struct world *world, const struct event *event)
{
	struct op *op = op_of(world, event);
	if (op && op->joined_at[event->node] != 0 && !stands_on(world, event->proc, op, event->node))
		op->joined_at[event->node] = 0;
}

void order_after(struct world *world, const struct event *event)
{
	struct op *op = op_of(world, event);
	if (op && op->joined_at[event->node] == 0 && stands_on(world, event->proc, op, event->node))
		op->joined_at[event->node] = world->now;
}

static bool is_majority(const struct world *world, unsigned masters)
{
	return masters >= world->config.nodes / 2U + 1;
}

/* On a majority, since before `since`. */
static bool stands_since(const struct world *world, unsigned proc, const struct op *op, uint64_t since)
{
	unsigned masters = 0;
	for (unsigned i = 0; i < world->config.nodes; i++)
		masters += op->joined_at[i] != 0 && op->joined_at[i] < since && stands_on(world, proc, op, i);
	return is_majority(world, masters);
}

static bool is_waiting(const struct op *op)
{
	return op->core.state != REDLOCK_LEAVING && op->core.state != REDLOCK_DECIDED;
}

/* ---- beginning and end of a wait ---- */

void order_begin(struct world *world, unsigned proc, struct op *op)
{
	op->wait_end = world->now + proc_true_after(&world->procs[proc], op->core.params.wait_us);
	world->figures->waiters++;
	TELL(world, "p%u: one waits for r%u for %llu ms", proc, op->key,
	     (unsigned long long)(op->core.params.wait_us / MS));
}

/* An attempt that is under way when the wait is over is brought to its end, and then the masters are asked who has the
 * lock. */
static void check_wait(struct world *world, unsigned proc, const struct op *op)
{
	const struct config *config = &world->config;
	uint64_t from = op->wait_end > world->procs[proc].continued_at ? op->wait_end : world->procs[proc].continued_at;
	uint64_t until = from + 2 * config->timeout_us + 10 * MS;
	if (op->raised_at >= op->wait_end)
		until += op->ttl_ms * MS;
	if (world->now > until)
		fail(world, "wait: one of p%u is answered %llu ms after the end of its wait for r%u", proc,
		     (unsigned long long)((world->now - op->wait_end) / MS), op->key);
}

void order_done(struct world *world, unsigned proc, const struct op *op, const struct redlock_result *result)
{
	world->figures->granted_waiting += result->outcome == REDLOCK_OK && result->tries > 1;
	world->figures->wait_ends += op->core.round == 1 && result->outcome == REDLOCK_LOCKED;
	check_wait(world, proc, op);
}

unsigned order_waiting(const struct world *world)
{
	unsigned waiting = 0;
	for (unsigned p = 0; p < world->config.procs; p++)
		waiting += world->procs[p].waiting;
	return waiting;
}

/* ---- herd ---- */

void order_notified(struct op *op, unsigned node, const struct notification *notification)
{
	op->passed_at = 0;
	op->notified = true;
	if (notification->lease == NONE || (op->notified_by != NONE && notification->lease < op->notified_by))
		return;
	if (notification->lease != op->notified_by)
		op->notified_on = 0;
	op->notified_by = notification->lease;
	op->notified_on |= (uint16_t)(1U << node);
}

/* To one that the master told of a holder, and that was not called by such a one. */
void order_passed(const struct world *world, struct op *op, unsigned node)
{
	const struct redlock *core = &op->core;
	if (core->state != REDLOCK_WAITING || core->paused || core->again || (core->notified & core->held_by) != 0 ||
	    !redlock_has(core->held_by, node))
		return;
	op->passed_at = world->now;
	if (op->passed_first_at == 0)
		op->passed_first_at = world->now;
}

/* On a clock within its bounds. */
static bool is_over(const struct world *world, uint64_t since, uint64_t us)
{
	return world->now >= since + us - us / 1000;
}

void order_attempt(struct world *world, unsigned proc, struct op *op)
{
	bool at_once = is_majority(world, (unsigned)__builtin_popcount(op->notified_on));
	struct lease *lease = op->notified_by != NONE && at_once ? &world->leases[op->notified_by] : NULL;
	uint64_t passed_at = op->passed_at, first_at = op->passed_first_at;
	const struct proc *process = &world->procs[proc];
	bool by_itself = op->cause == REDLOCK_TIMER && !op->notified && !op->core.paused;
	if (by_itself && op->core.attempt > 1 && process->queues[op->key].ops[0] != (uint16_t)(op - process->ops))
		fail(world, "herd: one of p%u tries to get r%u by itself, though it is not the first there", proc,
		     op->key);
	op->notified_by = NONE;
	op->notified = false;
	op->notified_on = 0;
	op->passed_at = op->passed_first_at = 0;
	if (!is_smooth(world))
		return;
	if (lease && lease->woke == 0)
		lease->woke = op->serial;
	if (lease && lease->woke != op->serial)
		fail(world, "herd: one of p%u tries to get r%u because of a release that another one was called for",
		     proc, op->key);
	bool is_patient = is_over(world, passed_at, REDLOCK_ALIVE_US) ||
			  is_over(world, first_at, REDLOCK_PASSED_MAX_US);
	if (!lease && passed_at != 0 && !is_patient)
		fail(world, "herd: one of p%u tries to get r%u %llu ms after it went by", proc, op->key,
		     (unsigned long long)((world->now - passed_at) / MS));
}

/* A dead holder never releases: waiters that were passed over try when their patience is over. */
static uint64_t patience(const struct world *world, unsigned key)
{
	uint16_t newest = world->newest[key];
	return newest == NONE || world->leases[newest].until == 0 ? 0 : REDLOCK_ALIVE_US;
}

/* ---- overtaking ---- */

static void overtake(struct world *world, unsigned proc, struct op *op, unsigned by_proc, const struct op *by)
{
	world->figures->overtakes++;
	if (++op->overtaken > world->figures->most_overtakes)
		world->figures->most_overtakes = op->overtaken;
	TELL(world, "overtaken: one of p%u who waits for r%u since %llu", proc, op->key,
	     (unsigned long long)op->core.arrival);
	if (is_calm(world) || op->overtaken > OVERTAKEN_MAX)
		fail(world,
		     "overtake: r%u is given to token %llu of p%u%s, before one of p%u who waits since %llu (passed by "
		     "%u times)",
		     op->key, (unsigned long long)by->token, by_proc, by->waits ? "" : ", who does not wait", proc,
		     (unsigned long long)op->core.arrival, op->overtaken);
}

/* Counts the grants to later waiters, wherever their entries were. */
static void count_outrun(struct world *world, struct op *op, const struct op *by)
{
	if (by->came_at < op->came_at + OUTRUN_US)
		return;
	world->figures->outruns++;
	if (++op->outrun > world->figures->most_outruns)
		world->figures->most_outruns = op->outrun;
	if (op->outrun > OUTRUN_MAX)
		fail(world, "overtake: %u who came later are given r%u before one who waits since %llu", op->outrun,
		     op->key, (unsigned long long)op->core.arrival);
}

/* Checks the waiters that came earlier and were in the queue when this attempt began. */
static void check_queue(struct world *world, unsigned proc, struct waiters *queue, unsigned by_proc,
			const struct op *by)
{
	struct proc *process = &world->procs[proc];
	bool before = true;
	for (unsigned i = 0; i < queue->count; i++) {
		struct op *op = &process->ops[queue->ops[i]];
		bool earlier = !by->waits || op->core.arrival < by->core.arrival;
		before &= op != by;
		if (op == by || !is_waiting(op) || op->core.state == REDLOCK_IDLE)
			continue;
		count_outrun(world, op, by);
		bool came_before = proc == by_proc && by->waits && before && is_smooth(world);
		if (came_before || (earlier && stands_since(world, proc, op, by->began)))
			overtake(world, proc, op, by_proc, by);
	}
}

/* Before it leaves the queue itself. */
void order_granted(struct world *world, unsigned proc, const struct op *op)
{
	uint64_t free_since = world->free_since[op->key];
	if (patience(world, op->key) == 0 && free_since != 0 &&
	    world->now - free_since > world->figures->slowest_wake_us)
		world->figures->slowest_wake_us = world->now - free_since;
	world->free_since[op->key] = 0;
	for (unsigned p = 0; p < world->config.procs; p++)
		check_queue(world, p, &world->procs[p].queues[op->key], proc, op);
}

/* ---- wake-ups ---- */

/* Nobody has it there, nor is it about to be given back: an attempt under way may have set it for a moment. */
static bool is_free_on(struct world *world, unsigned node, unsigned key)
{
	node_sync(world, node);
	uint64_t token = model_token(&world->nodes[node].model, key);
	const struct trail *trail = &world->trails[token];
	if (token == 0)
		return true;
	const struct op *op = &world->procs[trail->proc].ops[trail->op];
	return !trail->leased && op->serial == trail->op_serial && !op->done;
}

static bool is_free(struct world *world, unsigned key)
{
	unsigned masters = 0;
	for (unsigned i = 0; i < world->config.nodes; i++)
		masters += !world->nodes[i].stopped && is_free_on(world, i, key);
	return is_majority(world, masters);
}

/* A waiter that sleeps has its entry wherever it was refused. */
static void check_entry(struct world *world, unsigned proc, const struct op *op)
{
	if (op->core.state != REDLOCK_WAITING || world->now < op->began + 2 * world->config.timeout_us + 100 * MS)
		return;
	for (unsigned i = 0; i < world->config.nodes; i++)
		if (redlock_has(op->core.joined, i) && !world->nodes[i].stopped && !stands_on(world, proc, op, i))
			fail(world, "queue: one of p%u who waits for r%u since %llu has lost its entry on master %u",
			     proc, op->key, (unsigned long long)op->core.arrival, i);
}

static void check_entries(struct world *world, unsigned key)
{
	for (unsigned p = 0; p < world->config.procs; p++) {
		const struct waiters *queue = &world->procs[p].queues[key];
		for (unsigned i = 0; i < queue->count; i++)
			check_entry(world, p, &world->procs[p].ops[queue->ops[i]]);
	}
}

static bool is_waited_for(const struct world *world, unsigned key)
{
	for (unsigned p = 0; p < world->config.procs; p++) {
		const struct waiters *queue = &world->procs[p].queues[key];
		for (unsigned i = 0; i < queue->count; i++) {
			const struct op *op = &world->procs[p].ops[queue->ops[i]];
			if (is_waiting(op) && stands_since(world, p, op, world->now))
				return true;
		}
	}
	return false;
}

static void watch_key(struct world *world, unsigned key)
{
	uint64_t *since = &world->free_since[key];
	if (!is_waited_for(world, key) || !is_free(world, key))
		*since = 0;
	else if (*since == 0)
		*since = world->now;
	else if (world->now - *since >
		 WAKE_US + world->config.timeout_us + world->config.deaf_us + patience(world, key))
		fail(world,
		     "wake-up: r%u is free on a majority since %llu ms, somebody waits for it, and nobody is granted",
		     key, (unsigned long long)((world->now - *since) / MS));
}

void order_watch(struct world *world)
{
	for (unsigned key = 0; key < world->config.keys && is_smooth(world); key++) {
		watch_key(world, key);
		check_entries(world, key);
	}
	push_watch(world, WATCH_US);
}

/* ---- the end ---- */

/* A master that knows of no wait looks at no queue: what its eviction of the hash left there runs out unseen. */
void order_check_queue_empty(struct world *world, unsigned key)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		const struct model_master *model = &world->nodes[i].model;
		node_sync(world, i);
		const struct model_queue *queue = model->waited_us > model->now_us ? model_waiting(model, key) : NULL;
		if (queue)
			fail(world, "queue: %u are left in the queue of master %u for r%u, the first since %llu",
			     queue->count, i, key, (unsigned long long)queue->entries[0].arrival);
	}
}
