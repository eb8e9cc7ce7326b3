/* SPDX-License-Identifier: MIT */
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
 * much delayed either (second connections may be lost, a minority of masters may stand still). */
#include <string.h>

#include "daemon_world.h"

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
	world->watched = true;
	event_push(world, event_new(world, EVENT_WATCH), world->now + after_us);
}

void order_init(struct world *world)
{
	world->calm_at = 0;
	memset(world->free_since, 0, sizeof world->free_since);
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
	if (!world->watched)
		push_watch(world, after_us);
}

/* ---- entries ---- */

/* A lease of that call, or an attempt at one, is there. */
static bool has_it(const struct world *world, const struct node *node, unsigned key, const struct call *call)
{
	uint64_t token;
	for (unsigned i = 0; (token = node_token(node, key, i)) != 0; i++)
		if (world->trails[token].call_serial == call->serial)
			return true;
	return false;
}

static bool stands_in(const struct world *world, const struct call *call, const struct store_key *queue)
{
	for (size_t i = 0; queue && i < queue->count; i++) {
		struct entry entry = node_entry(queue, i);
		if (entry.arrival == call->op->core.arrival && entry.replica == world->procs[call->proc].replica)
			return true;
	}
	return false;
}

/* In the queue of a master, or, unless `strictly`, with the lock there: of a set, of all its resources. */
static bool stands_on(const struct world *world, const struct call *call, unsigned index, bool strictly)
{
	const struct node *node = &world->nodes[index];
	FOR_EACH_KEY (key, call->names)
		if (!stands_in(world, call, node_queue(node, key)) && (strictly || !has_it(world, node, key, call)))
			return false;
	return true;
}

/* An attempt at a slot keeps nobody out of the others: it stands only where its entry does. */
static bool leaves_room(const struct call *call)
{
	return call->request.mode == LEASE_SLOT;
}

static struct call *find_call(struct world *world, const struct transport_connection *connection,
			      const struct command *command)
{
	bool has_entry = command->kind == REDLOCK_SCRIPT_ACQUIRE || command->kind == REDLOCK_SCRIPT_RELEASE;
	if (!has_entry || command->request.entry.replica == 0 ||
	    command->request.entry.replica != world->procs[connection->proc].replica)
		return NULL;
	return call_waiting(world, command->request.key, command->request.entry);
}

void order_before(struct world *world, const struct transport_connection *connection, const struct command *command)
{
	struct call *call = find_call(world, connection, command);
	if (call && call->joined_at[connection->node] != 0 &&
	    !stands_on(world, call, connection->node, leaves_room(call)))
		call->joined_at[connection->node] = 0;
}

void order_after(struct world *world, const struct transport_connection *connection, const struct command *command)
{
	struct call *call = find_call(world, connection, command);
	if (call && call->joined_at[connection->node] == 0 &&
	    stands_on(world, call, connection->node, leaves_room(call)))
		call->joined_at[connection->node] = world->now;
}

static bool is_majority(const struct world *world, unsigned masters)
{
	return masters >= world->config.nodes / 2U + 1;
}

/* On a majority, since before `since`. */
static bool stands_since(const struct world *world, const struct call *call, uint64_t since)
{
	unsigned masters = 0;
	for (unsigned i = 0; i < world->config.nodes; i++)
		masters += call->joined_at[i] != 0 && call->joined_at[i] < since &&
			   stands_on(world, call, i, leaves_room(call));
	return is_majority(world, masters);
}

static bool is_waiting(const struct call *call)
{
	return call->used && call->waits && call->op && call->op->core.state != REDLOCK_LEAVING &&
	       call->op->core.state != REDLOCK_DECIDED;
}

/* ---- beginning and end of a wait ---- */

void order_begin(struct world *world, struct call *call)
{
	call->wait_end = call->came_at + proc_true_after(&world->procs[call->proc], call->request.wait_ms * MS);
	world->figures->waiters++;
	TELL(world, "p%u: one waits for r%u for %u ms, since %llu", call->proc, call->key, call->request.wait_ms,
	     (unsigned long long)call->op->core.arrival);
}

/* An attempt that is under way when the wait is over is brought to its end, and then the masters are asked who has the
 * lock. */
static void check_wait(struct world *world, const struct call *call)
{
	const struct config *config = &world->config;
	const struct proc *proc = &world->procs[call->proc];
	uint64_t from = call->wait_end > proc->continued_at ? call->wait_end : proc->continued_at;
	uint64_t until = from + 2 * config->timeout_us + 10 * MS;
	if (call->raised_at >= call->wait_end)
		until += call->request.ttl_ms * MS;
	if (world->now > until)
		fail(world, "wait: one of p%u is answered %llu ms after the end of its wait for r%u", call->proc,
		     (unsigned long long)((world->now - call->wait_end) / MS), call->key);
}

void order_done(struct world *world, const struct call *call, const struct lease_answer *answer)
{
	world->figures->granted_waiting += answer->status == LEASE_OK && call->op->core.attempt > 1;
	world->figures->wait_ends += call->op->core.round == 1 && answer->status == LEASE_LOCKED;
	if (answer->status != LEASE_DRAINING)
		check_wait(world, call);
}

unsigned order_waiting(const struct world *world)
{
	unsigned waiting = 0;
	for (unsigned i = 0; i < CALLS; i++)
		waiting += world->calls[i].used && world->calls[i].waits;
	return waiting;
}

/* ---- herd ---- */

void order_notified(struct call *op, unsigned node, const struct notification *notification)
{
	op->passed_at = 0;
	op->notified = true;
	op->notifiers |= (uint16_t)(1U << node);
	if (notification->lease == NONE || (op->notified_by != NONE && notification->lease < op->notified_by))
		return;
	if (notification->lease != op->notified_by || notification->key != op->notified_key)
		op->notified_on = 0;
	op->notified_by = notification->lease;
	op->notified_key = notification->key;
	op->notified_on |= (uint16_t)(1U << node);
}

/* To one that the master told of a holder, and that was not called by such a one. */
void order_passed(const struct world *world, struct call *op, const struct redlock *core, unsigned node)
{
	if (core->state != REDLOCK_WAITING || core->paused || core->again || (core->notified & core->held_by) != 0 ||
	    !redlock_has(core->held_by, node))
		return;
	op->passed_at = world->now;
	if (op->passed_first_at == 0)
		op->passed_first_at = world->now;
}

static bool is_over(const struct world *world, uint64_t since, uint64_t us)
{
	return world->now >= since + us - us / 1000;
}

/* The first one of a process is told so, or that a notification may have been missed: it may try. */
void order_first(struct world *world, unsigned proc, uint32_t names)
{
	FOR_EACH_KEY (key, names) {
		const struct lease_op *first = first_of(world, proc, key);
		struct call *call = first && first->caller.done ? call_of(world, first->caller.arg) : NULL;
		if (call)
			call->passed_at = 0;
	}
}

/* There, in all its queues. */
static bool is_first(const struct world *world, const struct call *call)
{
	FOR_EACH_KEY (key, call->names)
		if (first_of(world, call->proc, key) != call->op)
			return false;
	return true;
}

/* Has it become the first one because another one left? Then it tries at once. */
static bool is_by_another(const struct world *world, const struct call *call)
{
	return world->cause == CAUSE_OTHER ||
	       world->cause_arg != (world->cause == CAUSE_TIMER ? (void *)call->op : call);
}

void order_attempt(struct world *world, struct call *call, const struct redlock *core)
{
	if (world->config.modes != 0) { /* one message wakes several, and a slot may be followed by the next */
		call->notified = false;
		call->notified_by = NONE;
		return;
	}
	bool at_once = is_majority(world, (unsigned)__builtin_popcount(call->notified_on));
	struct lease *lease = call->notified_by != NONE && at_once ? &world->leases[call->notified_by] : NULL;
	uint64_t passed_at = call->passed_at, first_at = call->passed_first_at;
	/* with keys it may have been the first when it was told to try again: before one with an older place came */
	bool by_itself = world->cause == CAUSE_TIMER && !is_by_another(world, call) && !call->notified &&
			 !core->paused && world->config.keyed == 0;
	if (by_itself && core->attempt > 1 && !is_first(world, call))
		fail(world, "herd: one of p%u tries to get r%u by itself, though it is not the first there", call->proc,
		     call->key);
	bool again = world->cause == CAUSE_REPLY && world->cause_arg == call && !call->notified && !core->paused;
	call->notified_by = NONE;
	bool by_few = world->cause == CAUSE_MESSAGE && world->cause_arg == call &&
		      !is_majority(world, (unsigned)__builtin_popcount(call->notifiers));
	if (by_few && core->attempt > 1)
		fail(world, "herd: one of p%u tries to get r%u, though too few masters have notified it", call->proc,
		     call->key);
	call->notified = false;
	call->notifiers = 0;
	call->notified_on = 0;
	call->passed_at = call->passed_first_at = 0;
	if (!is_smooth(world))
		return;
	if (again && core->attempt > 1)
		fail(world, "herd: one of p%u tries to get r%u again, though nobody told it to", call->proc, call->key);
	uint32_t *woke = lease ? &lease->woke[call->notified_key] : NULL;
	if (woke && *woke == 0)
		*woke = call->serial;
	if (woke && *woke != call->serial)
		fail(world, "herd: one of p%u tries to get r%u because of a release that another one was called for",
		     call->proc, call->key);
	bool is_patient = is_over(world, passed_at, REDLOCK_ALIVE_US) ||
			  is_over(world, first_at, REDLOCK_PASSED_MAX_US) || is_by_another(world, call);
	if (!lease && passed_at != 0 && !is_patient && world->config.keyed == 0)
		fail(world, "herd: one of p%u tries to get r%u %llu ms after it went by", call->proc, call->key,
		     (unsigned long long)((world->now - passed_at) / MS));
}

/* A dead holder never releases: waiters that were passed over try when their patience is over. */
static uint64_t patience(const struct world *world, uint32_t names)
{
	if (world->config.keyed != 0 ||
	    world->config.modes != 0) /* some leases nobody releases and nobody was told of */
		return REDLOCK_ALIVE_US;
	FOR_EACH_KEY (key, names) {
		uint16_t newest = world->newest[key];
		const struct lease *lease = newest != NONE ? &world->leases[newest] : NULL;
		if (lease && (lease->until != 0 || lease->unread || lease->ran_out))
			return REDLOCK_ALIVE_US;
	}
	return 0;
}

/* ---- overtaking ---- */

static void overtake(struct world *world, struct call *call, const struct call *by)
{
	unsigned long long arrival = call->op->core.arrival;
	world->figures->overtakes++;
	if (++call->overtaken > world->figures->most_overtakes)
		world->figures->most_overtakes = call->overtaken;
	TELL(world, "overtaken: one of p%u who waits for r%u since %llu", call->proc, call->key, arrival);
	if (is_calm(world) || call->overtaken > OVERTAKEN_MAX)
		fail(world,
		     "overtake: r%u is given to token %llu of p%u%s, before one of p%u who waits since %llu (passed by "
		     "%u times)",
		     call->key, (unsigned long long)by->token, by->proc, by->waits ? "" : ", who does not wait",
		     call->proc, arrival, call->overtaken);
}

/* Counts the grants to later waiters, wherever their entries were. */
static void count_outrun(struct world *world, struct call *call, const struct call *by)
{
	if (by->came_at < call->came_at + OUTRUN_US)
		return;
	world->figures->outruns++;
	if (++call->outrun > world->figures->most_outruns)
		world->figures->most_outruns = call->outrun;
	if (call->outrun > OUTRUN_MAX)
		fail(world, "overtake: %u who came later are given r%u before one who waits since %llu", call->outrun,
		     call->key, (unsigned long long)call->op->core.arrival);
}

/* Checks those who wait, came earlier and were in the queue when the attempt of `by` began. */
void order_granted(struct world *world, const struct call *by)
{
	uint64_t free_since = world->free_since[by->key], arrival = by->op->core.arrival;
	if (patience(world, by->names) == 0 && free_since != 0 &&
	    world->now - free_since > world->figures->slowest_wake_us)
		world->figures->slowest_wake_us = world->now - free_since;
	FOR_EACH_KEY (key, by->names)
		world->free_since[key] = 0;
	for (unsigned i = 0; i < CALLS; i++) {
		struct call *call = &world->calls[i];
		if (call == by || !is_waiting(call) || (call->names & by->names) == 0 ||
		    call->op->core.state == REDLOCK_IDLE)
			continue;
		if (call->request.mode == LEASE_SHARED && by->request.mode == LEASE_SHARED)
			continue; /* they share it */
		count_outrun(world, call, by);
		bool before = call->op->core.arrival < arrival, earlier = !by->waits || before;
		/* a set has another script, which may have to be sent again */
		bool came_before = call->proc == by->proc && by->waits && before && is_smooth(world) &&
				   is_set(call->names) == is_set(by->names) &&
				   (call->request.mode == LEASE_EXCLUSIVE) == (by->request.mode == LEASE_EXCLUSIVE);
		if ((came_before && !leaves_room(call)) || (earlier && stands_since(world, call, by->began)))
			overtake(world, call, by);
	}
}

/* ---- wake-ups ---- */

/* Nobody has it there, nor is it about to be given back: an attempt under way may have set it for a moment. */
static bool is_free_on(struct world *world, unsigned node, unsigned key)
{
	node_sync(world, node);
	uint64_t token = node_token(&world->nodes[node], key, 0);
	const struct trail *trail = &world->trails[token];
	if (token == 0)
		return true;
	const struct call *call = &world->calls[trail->call == NONE ? 0 : trail->call];
	return !trail->leased && trail->call != NONE && call->serial == trail->call_serial && call->op;
}

static bool are_free_on(struct world *world, unsigned node, uint32_t names)
{
	FOR_EACH_KEY (key, names)
		if (!is_free_on(world, node, key))
			return false;
	return true;
}

static bool are_free(struct world *world, uint32_t names)
{
	unsigned masters = 0;
	for (unsigned i = 0; i < world->config.nodes; i++)
		masters += !world->nodes[i].stopped && are_free_on(world, i, names);
	return is_majority(world, masters);
}

/* Where a redlockd does not count as alive, as after the master stood still, its entries may be removed. */
static void note_dead(struct world *world)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		for (unsigned i = 0; i < world->config.nodes; i++)
			if (world->nodes[i].stopped || !world->procs[p].up ||
			    !node_is_alive(&world->nodes[i], world->procs[p].replica))
				world->procs[p].links[i].dead_at = world->now;
}

/* A waiter that sleeps has its entry wherever it was refused. */
static void check_entry(struct world *world, const struct call *call)
{
	const struct redlock *core = &call->op->core;
	if (core->state != REDLOCK_WAITING || world->now < call->began + 2 * world->config.timeout_us + 100 * MS)
		return;
	for (unsigned i = 0; i < world->config.nodes; i++)
		if (redlock_has(core->joined, i) &&
		    world->procs[call->proc].links[i].dead_at + WATCH_US < call->began &&
		    !stands_on(world, call, i, false))
			fail(world, "queue: one of p%u who waits for r%u since %llu has lost its entry on master %u",
			     call->proc, call->key, (unsigned long long)core->arrival, i);
}

static void check_entries(struct world *world, unsigned key)
{
	for (unsigned i = 0; i < CALLS; i++)
		if (is_waiting(&world->calls[i]) && world->calls[i].key == key) /* of a set the first */
			check_entry(world, &world->calls[i]);
}

/* As their entries are sorted. */
static bool is_before(const struct world *world, const struct call *a, const struct call *b)
{
	uint64_t its = a->op->core.arrival, other = b->op->core.arrival;
	return its < other || (its == other && world->procs[a->proc].replica < world->procs[b->proc].replica);
}

/* Who came first of those who stand in its queue on a majority; NULL: nobody does. */
static const struct call *first_waiter(const struct world *world, unsigned key)
{
	const struct call *first = NULL;
	for (unsigned i = 0; i < CALLS; i++) {
		const struct call *call = &world->calls[i];
		if (!is_waiting(call) || !(call->names >> key & 1) || !stands_since(world, call, world->now))
			continue;
		if (!first || is_before(world, call, first))
			first = call;
	}
	return first;
}

/* It is the first one in all its queues, and all its resources are free. */
static bool may_have_all(struct world *world, const struct call *call)
{
	FOR_EACH_KEY (key, is_set(call->names) ? call->names : 0)
		if (first_waiter(world, key) != call)
			return false;
	return are_free(world, call->names);
}

static void watch_key(struct world *world, unsigned key)
{
	uint64_t *since = &world->free_since[key];
	const struct call *first = first_waiter(world, key);
	if (!first || !may_have_all(world, first) || sight_has_place(world, key))
		*since = 0;
	else if (*since == 0)
		*since = world->now;
	else if (world->now - *since >
		 WAKE_US + world->config.timeout_us + world->config.deaf_us + patience(world, first->names))
		fail(world, "wake-up: r%u is free on a majority since %llu ms, and nobody who waits is granted", key,
		     (unsigned long long)((world->now - *since) / MS));
}

void order_watch(struct world *world)
{
	note_dead(world);
	for (unsigned i = 0; i < CALLS && is_smooth(world); i++)
		check_own(world, &world->calls[i]);
	for (unsigned key = 0; key < world->config.keys && is_smooth(world); key++) {
		watch_key(world, key);
		check_entries(world, key);
	}
	push_watch(world, WATCH_US);
}

/* ---- the end ---- */

/* A master that knows of no wait looks at no queue: what its eviction of the hash left there runs out unseen. A release
 * that waits on, sent again since its script was flushed, may come after a later grant: until its redlockd is dead. */
void order_check_queue_empty(struct world *world, unsigned key)
{
	bool scripts_flushed = world->config.faults & 1U << FAULT_SCRIPTS;
	for (unsigned i = 0; i < world->config.nodes; i++) {
		const struct node *node = &world->nodes[i];
		node_sync(world, i);
		bool waits = server_number(&node->server, "waited", 10) > node->server.now_us;
		const struct store_key *queue = waits ? node_queue(node, key) : NULL;
		bool may_be_left = scripts_flushed && queue && !node_is_alive(node, node_entry(queue, 0).replica);
		if (queue && sight_is_left(node, queue) && !may_be_left)
			fail(world, "queue: %zu are left in the queue of master %u for r%u, the first since %llu",
			     queue->count, i, key, (unsigned long long)node_entry(queue, 0).arrival);
	}
}
