/* The waiters of one process, as server/leases/lease_queue.c and server/masters/master_notification.c handle them: the
 * first one for each resource and those that follow; signs of life on each master every QUEUE_TICK_US while somebody
 * waits; notifications (random_notifications.c), which go to the waiter that is named, or as PASSED to the first one
 * here. */
#include <assert.h>

#include "random_world.h"

#define QUEUE_TICK_US (300 * MS)

/* ---- alive ---- */

/* Half of all events would be these and their answers: mostly they take no time, and only the answer that says
 * something is sent. */
static void say_alive(struct world *world, unsigned proc, unsigned node, enum what what)
{
	struct event *event = event_new(world, EVENT_COMMAND);
	event->what = (uint8_t)what;
	event->run_at = 0;
	event->u.command.entry.replica = world->procs[proc].replica;
	if (!net_send_at_once(world, proc, node, event))
		net_send(world, proc, node, event);
}

static void say_everywhere(struct world *world, unsigned proc, enum what what)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		if (!link_is_reachable(&world->procs[proc].links[i]))
			continue;
		say_alive(world, proc, i, what);
		ear_open(world, proc, i);
	}
}

static void arm_tick(struct world *world, unsigned proc)
{
	struct proc *process = &world->procs[proc];
	struct event *event = event_new(world, EVENT_QUEUE);
	event->proc = (uint8_t)proc;
	event->serial = process->queue_serial;
	event_push(world, event, world->now + proc_true_after(process, QUEUE_TICK_US));
}

void queue_tick(struct world *world, unsigned proc, uint32_t serial)
{
	struct proc *process = &world->procs[proc];
	if (process->queue_serial != serial || !process->queue_open)
		return;
	proc_round(world, process);
	say_everywhere(world, proc, WHAT_ALIVE);
	arm_tick(world, proc);
}

/* It had run out, or the master has forgotten it. */
void queue_forgotten(struct world *world, unsigned proc, unsigned node)
{
	if (!world->procs[proc].queue_open)
		return;
	TELL(world, "p%u: master %u does not know any more that it lives", proc, node);
	say_alive(world, proc, node, WHAT_ALIVE_ANEW);
	queue_missed(world, proc);
}

/* ---- who waits ---- */

void queue_start(struct world *world, unsigned proc)
{
	struct proc *process = &world->procs[proc];
	process->replica = (uint64_t)process->run << 4 | (proc + 1);
	process->queue_open = false;
	process->queue_serial = ++world->next_serial;
	process->waiting = 0;
	process->missed_notifications = 0;
	for (unsigned key = 0; key < MODEL_KEYS; key++)
		process->queues[key].count = 0;
}

static void count_waiter(struct world *world, unsigned proc, int by)
{
	struct proc *process = &world->procs[proc];
	process->waiting = (uint16_t)(process->waiting + by);
	if (process->waiting == 0) {
		process->queue_open = false;
	} else if (by > 0 && process->waiting == 1) {
		process->queue_open = true;
		process->queue_serial = ++world->next_serial;
		say_everywhere(world, proc, WHAT_ALIVE_ANEW);
		arm_tick(world, proc);
	}
}

void queue_join(struct world *world, unsigned proc, struct op *op, struct redlock_event *start)
{
	struct proc *process = &world->procs[proc];
	struct waiters *queue = &process->queues[op->key];
	assert(queue->count < OPS);
	start->behind = queue->count > 0;
	queue->ops[queue->count++] = (uint16_t)(op - process->ops);
	op->missed_notifications = process->missed_notifications;
	count_waiter(world, proc, 1);
}

static void tell_first(struct world *world, unsigned proc, struct op *op, uint64_t remaining_us)
{
	struct proc *process = &world->procs[proc];
	struct redlock_event first = {
		.kind = REDLOCK_FIRST, .now_us = proc_now(world, process), .remaining_us = remaining_us};
	op->missed_notifications = process->missed_notifications;
	op->passed_at = 0;
	op_drive(world, proc, op, &first);
}

/* The first of each queue tries at once, which creates its entry again; the others do so when they become the
 * first. */
void queue_missed(struct world *world, unsigned proc)
{
	struct proc *process = &world->procs[proc];
	process->missed_notifications++;
	world->figures->missed_notifications++;
	for (unsigned key = 0; key < world->config.keys; key++)
		if (process->queues[key].count > 0)
			tell_first(world, proc, &process->ops[process->queues[key].ops[0]], 0);
}

/* When the one behind may try by itself: the lease that was just given runs out, or what the one before it knew. */
static uint64_t remaining_us(const struct world *world, const struct proc *process, const struct op *op,
			     const struct op *next, const struct redlock_result *result)
{
	uint64_t free_us = redlock_free_us(&op->core), now_us = proc_now(world, process);
	if (next->missed_notifications != process->missed_notifications)
		return 0;
	if (result->outcome == REDLOCK_OK)
		return result->ttl_us;
	return free_us == REDLOCK_NEVER ? REDLOCK_NEVER : free_us > now_us ? free_us - now_us : 0;
}

void queue_leave(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result)
{
	struct proc *process = &world->procs[proc];
	struct waiters *queue = &process->queues[op->key];
	uint16_t index = (uint16_t)(op - process->ops);
	unsigned at = 0;
	while (queue->ops[at] != index)
		at++;
	assert(at < queue->count);
	queue->count--;
	for (unsigned i = at; i < queue->count; i++)
		queue->ops[i] = queue->ops[i + 1];
	count_waiter(world, proc, -1);
	if (at > 0 || queue->count == 0)
		return;
	struct op *next = &process->ops[queue->ops[0]];
	tell_first(world, proc, next, remaining_us(world, process, op, next, result));
}

struct op *queue_find(struct world *world, unsigned proc, unsigned key, uint64_t arrival)
{
	struct proc *process = &world->procs[proc];
	const struct waiters *queue = &process->queues[key];
	for (unsigned i = 0; i < queue->count; i++)
		if (process->ops[queue->ops[i]].core.arrival == arrival)
			return &process->ops[queue->ops[i]];
	return NULL;
}

/* ---- notifications ---- */

/* The operation that is notified has ended: its entry must be removed, or all behind it wait in vain. */
static void drop_stale_entry(struct world *world, unsigned proc, unsigned node, const struct notification *notification)
{
	struct request request = {.op = NONE,
				  .what = REDLOCK_SCRIPT_RELEASE,
				  .key = notification->key,
				  .pending = true,
				  .forgettable = true};
	struct model_command command = {.key = notification->key, .entry = notification->entry};
	world->figures->stale_entries++;
	TELL(world, "p%u: nobody waits here for r%u since %llu any more", proc, notification->key,
	     (unsigned long long)notification->entry.arrival);
	link_send(world, proc, node, &request, &command);
}

static void wake(struct world *world, unsigned proc, unsigned node, const struct notification *notification)
{
	struct proc *process = &world->procs[proc];
	struct op *op = queue_find(world, proc, notification->key, notification->entry.arrival);
	if (!op) {
		drop_stale_entry(world, proc, node, notification);
		return;
	}
	struct redlock_event event = {.kind = REDLOCK_NOTIFIED,
				      .now_us = proc_now(world, process),
				      .master = (uint8_t)node,
				      .fence = fence_guess(world, process)};
	world->figures->notified++;
	order_notified(op, node, notification);
	TELL(world, "p%u: hears from master %u that it is the turn of its %llu for r%u", proc, node,
	     (unsigned long long)notification->entry.arrival, notification->key);
	op_drive(world, proc, op, &event);
}

void queue_heard(struct world *world, unsigned proc, unsigned node, const struct notification *notification)
{
	struct proc *process = &world->procs[proc];
	const struct waiters *queue = &process->queues[notification->key];
	proc_round(world, process);
	if (notification->entry.replica == process->replica) {
		wake(world, proc, node, notification);
	} else if (queue->count > 0) {
		struct op *op = &process->ops[queue->ops[0]];
		struct redlock_event event = {
			.kind = REDLOCK_PASSED, .now_us = proc_now(world, process), .master = (uint8_t)node};
		world->figures->passed++;
		order_passed(world, op, node);
		op_drive(world, proc, op, &event);
	}
}
