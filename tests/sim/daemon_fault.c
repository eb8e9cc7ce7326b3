/* SPDX-License-Identifier: MIT */
/* The nemesis: makes random faults, and mends them. daemon_shape.c chooses the kinds of faults of a history. */
#include <assert.h>
#include <string.h>

#include "daemon_world.h"

/* ---- mending ---- */

enum mend {
	MEND_UNBLOCK,
	MEND_CONTINUE,
	MEND_START,
	MEND_PROC_START,
	MEND_PROC_CONTINUE,
	MEND_PROC_END,
	MEND_POLICY,
	MEND_SLOW,
	MEND_CRASH, /* the second step of a fault */
	MEND_STOP   /* the third */
};

static void mend_after(struct world *world, enum mend mend, unsigned proc, unsigned node, uint32_t serial,
		       uint64_t after_us)
{
	struct event *event = event_new(world, EVENT_MEND);
	event->a = (uint16_t)mend;
	event->proc = (uint8_t)proc;
	event->node = (uint8_t)node;
	event->serial = serial;
	event_push(world, event, world->now + after_us);
}

static void start_node(struct world *world, unsigned index)
{
	if (!world->nodes[index].up)
		node_start(world, index);
}

static void continue_node(struct world *world, unsigned index)
{
	if (!world->nodes[index].stopped)
		return;
	TELL(world, "master %u: goes on", index);
	world->nodes[index].stopped = false;
	net_flow(world, PROCS, index);
}

static void continue_proc(struct world *world, unsigned index)
{
	if (!world->procs[index].paused)
		return;
	TELL(world, "p%u: goes on", index);
	proc_continue(world, index);
}

static void start_proc(struct world *world, unsigned index)
{
	if (world->procs[index].up)
		return;
	TELL(world, "p%u: started", index);
	world->figures->proc_restarts++;
	proc_start(world, index, false);
}

/* The end of a drain. */
static void end_proc(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	if (!proc->up || !proc->draining)
		return;
	continue_proc(world, index);
	TELL(world, "p%u: ends", index);
	proc_end(world, index, true);
	proc->serial = ++world->next_serial;
	mend_after(world, MEND_PROC_START, index, 0, proc->serial, 1 + below(world, 300 * MS));
}

static void crash_when_voted(struct world *world, unsigned index, uint32_t tries);
static void stop(struct world *world, unsigned index, uint64_t for_us);

/* Of the last fault that `event` could mend. */
static uint32_t serial_now(const struct world *world, const struct event *event)
{
	const struct proc *proc = &world->procs[event->proc];
	switch ((enum mend)event->a) {
	case MEND_UNBLOCK: return proc->links[event->node].block_serial;
	case MEND_CONTINUE:
	case MEND_START: return world->nodes[event->node].serial;
	case MEND_PROC_START:
	case MEND_PROC_CONTINUE:
	case MEND_PROC_END: return proc->serial;
	default: return event->serial;
	}
}

void fault_mend(struct world *world, const struct event *event)
{
	if (event->serial != serial_now(world, event) || (world->healing && event->a >= MEND_CRASH))
		return;
	switch ((enum mend)event->a) {
	case MEND_UNBLOCK: net_unblock(world, event->proc, event->node); break;
	case MEND_CONTINUE: continue_node(world, event->node); break;
	case MEND_START: start_node(world, event->node); break;
	case MEND_PROC_START: start_proc(world, event->proc); break;
	case MEND_PROC_CONTINUE: continue_proc(world, event->proc); break;
	case MEND_PROC_END: end_proc(world, event->proc); break;
	case MEND_POLICY: world->nodes[event->node].evicts = false; break;
	case MEND_SLOW: world->slow = 1; break;
	case MEND_CRASH: crash_when_voted(world, event->node, event->serial); break;
	case MEND_STOP: stop(world, event->node, 4 * SECOND); break;
	}
}

/* A clock that went back is set right: until then locks last longer there. One that is ahead may stay so. */
static void set_right(struct world *world, unsigned index)
{
	uint64_t clock_us = clock_read(&world->nodes[index].clock, world->now);
	uint64_t right_us = DAY_BEGAN_US + world->now;
	if (clock_us + 100 * MS < right_us) {
		TELL(world, "master %u: its clock is set right, forward by %llu ms", index,
		     (unsigned long long)((right_us - clock_us) / MS));
		node_jump(world, index, (int64_t)(right_us - clock_us));
	}
	if (world->nodes[index].back_at != 0)
		node_drop_lasting(world, index);
}

/* The second phase: all that is wrong ends now. */
void fault_heal(struct world *world)
{
	world->healing = true;
	world->healed_at = world->now;
	world->slow = 1;
	TELL(world, "everything heals");
	for (unsigned i = 0; i < world->config.nodes; i++) {
		world->nodes[i].evicts = false;
		set_right(world, i);
		start_node(world, i);
		continue_node(world, i);
	}
	for (unsigned p = 0; p < world->config.procs; p++) {
		continue_proc(world, p);
		end_proc(world, p);
		start_proc(world, p);
		for (unsigned i = 0; i < world->config.nodes; i++)
			net_unblock(world, p, i);
	}
	client_retire(world);
}

/* ---- faults ---- */

static void block(struct world *world, unsigned proc, unsigned node, bool there, bool back, uint64_t for_us)
{
	struct link *link = &world->procs[proc].links[node];
	link->block_there |= there;
	link->block_back |= back;
	link->block_serial = ++world->next_serial;
	mend_after(world, MEND_UNBLOCK, proc, node, link->block_serial, for_us);
	TELL(world, "p%u and master %u: %s%s cut for %llu ms", proc, node, there ? "there " : "", back ? "back" : "",
	     (unsigned long long)(for_us / MS));
}

/* One pair, all of a master or all of a redlockd. */
static void partition(struct world *world, bool one_way)
{
	unsigned proc = (unsigned)below(world, world->config.procs),
		 node = (unsigned)below(world, world->config.victims);
	uint64_t for_us = spread(world, 5 * MS, 3 * SECOND), how = below(world, 3);
	bool there = !one_way || one_of(world, 2);
	for (unsigned p = 0; p < world->config.procs; p++)
		for (unsigned i = 0; i < world->config.nodes; i++)
			if ((p == proc || how == 1) && (i == node || how == 2))
				block(world, p, i, there, !one_way || !there, for_us);
}

static void stop(struct world *world, unsigned index, uint64_t for_us)
{
	struct node *node = &world->nodes[index];
	if (node->stopped || !node->up)
		return;
	node->stopped = true;
	node->serial = ++world->next_serial;
	mend_after(world, MEND_CONTINUE, 0, index, node->serial, for_us);
	TELL(world, "master %u: stopped for %llu ms", index, (unsigned long long)(for_us / MS));
}

static void crash(struct world *world, unsigned index, unsigned memory, uint64_t for_us)
{
	struct node *node = &world->nodes[index];
	static const char *const how[] = {"empty", "with its data", "without the last of its data"};
	if (!node->up)
		return;
	if (world->config.durable)
		memory = node_durable_memory(world, index, memory);
	node->stopped = false;
	TELL(world, "master %u: crashes, and will be back %s in %llu ms", index, how[memory],
	     (unsigned long long)(for_us / MS));
	node_crash(world, index, memory);
	node->serial = ++world->next_serial;
	mend_after(world, MEND_START, 0, index, node->serial, for_us);
}

static void crash_kept(struct world *world, unsigned index)
{
	unsigned memory = 1 + (unsigned)below(world, 2);
	crash(world, index, memory, spread(world, MS, 800 * MS));
}

static void crash_all(struct world *world)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		unsigned memory = one_of(world, 2) ? 0 : 1 + (unsigned)below(world, 2);
		crash(world, i, memory, spread(world, MS, 400 * MS));
	}
}

static bool has_only_vote(const struct call *call, unsigned index)
{
	const struct redlock *core = &call->op->core;
	return core->answered == 1U << index && core->ballots[index].vote == REDLOCK_VOTE_GRANTED;
}

/* As soon as an attempt of p0 has its vote and no other. */
static void crash_when_voted(struct world *world, unsigned index, uint32_t tries)
{
	bool voted = tries == 0;
	for (unsigned i = 0; i < CALLS && !voted; i++) {
		const struct call *call = &world->calls[i];
		voted = call->used && call->proc == 0 && call->op && call->operation == LEASE_ACQUIRE &&
			has_only_vote(call, index);
	}
	if (!voted)
		mend_after(world, MEND_CRASH, 0, index, tries - 1, MS);
	else
		crash(world, index, 0, spread(world, MS, 5 * MS));
}

/* A master comes back empty while an attempt of p0 has its vote and waits for the next one's, which comes late and
 * stands still from then on; the third is cut off until the quarantine is over. Or these two tell others of the leases
 * that are out, while that vote is still on its way. */
static void crash_in_flight(struct world *world, unsigned index)
{
	uint64_t quarantine_us = world->config.max_ttl_us + world->config.margin_us;
	uint64_t late_us = 140 * MS + below(world, 60 * MS), cut_us = quarantine_us + 100 * MS + below(world, 600 * MS);
	block(world, 0, (index + 1) % 3, true, false, late_us);
	if (!world->config.witnesses)
		mend_after(world, MEND_STOP, 0, (index + 1) % 3, 0, late_us + 50 * MS);
	for (unsigned p = 0; p < (world->config.witnesses ? 1 : world->config.procs); p++)
		block(world, p, (index + 2) % 3, true, true, cut_us);
	mend_after(world, MEND_CRASH, 0, index, 50, 1);
}

static void flush(struct world *world, unsigned index)
{
	if (!world->nodes[index].up)
		return;
	TELL(world, "master %u: FLUSHALL", index);
	node_sync(world, index);
	node_forget(world, index);
	store_clear(world->nodes[index].server.store);
}

static void crash_proc(struct world *world, unsigned index);
static void pause_proc(struct world *world, unsigned index);

/* All but one redlockd forget, too, and that one may say late what it knows. */
static void leave_one(struct world *world)
{
	unsigned knows = (unsigned)below(world, world->config.procs);
	for (unsigned p = 0; p < world->config.procs; p++)
		if (world->procs[p].options.max_ttl_ms > world->procs[knows].options.max_ttl_ms)
			knows = p;
	for (unsigned p = 0; p < world->config.procs; p++)
		if (p != knows)
			crash_proc(world, p);
	if (!one_of(world, 4))
		pause_proc(world, knows);
}

/* At about the same time; nothing is stored any more. */
static void forget_all(struct world *world)
{
	bool flushes = one_of(world, 2);
	if (world->config.unlike && !one_of(world, 4))
		leave_one(world);
	for (unsigned i = 0; i < world->config.nodes; i++)
		if (flushes)
			flush(world, i);
		else
			crash(world, i, 0, spread(world, MS, 200 * MS));
}

static void evict(struct world *world, unsigned index, bool hash)
{
	struct node *node = &world->nodes[index];
	if (!node->up || node->stopped)
		return;
	if (!node->evicts) { /* only a server that is set so does it */
		node->evicts = true;
		mend_after(world, MEND_POLICY, 0, index, 0, spread(world, MS, 2 * SECOND));
	}
	TELL(world, "master %u: evicts %s", index, hash ? "its hash" : "a key");
	if (!hash) {
		node_drop(world, index, (unsigned)below(world, world->config.keys), true);
		return;
	}
	node_sync(world, index);
	node_forget(world, index);
	node->server.evicted += node_remove(node, "redlockd:master");
}

static void delete (struct world *world, unsigned index)
{
	unsigned key = (unsigned)below(world, world->config.keys);
	if (world->nodes[index].up)
		node_drop(world, index, key, false);
	TELL(world, "master %u: somebody deletes r%u", index, key);
}

static void change_policy(struct world *world, unsigned index)
{
	TELL(world, "master %u: may evict keys", index);
	world->nodes[index].evicts = true;
	mend_after(world, MEND_POLICY, 0, index, 0, spread(world, MS, 3 * SECOND));
}

static void jump(struct world *world, unsigned index, int sign)
{
	uint64_t by_us = one_of(world, 3) ? spread(world, 500, 20 * MS) : spread(world, 5 * MS, 40 * SECOND);
	TELL(world, "master %u: its clock jumps %s by %llu us", index, sign > 0 ? "forward" : "back",
	     (unsigned long long)by_us);
	node_jump(world, index, sign * (int64_t)by_us);
}

static void set_day(struct world *world)
{
	struct proc *proc = &world->procs[below(world, world->config.procs)];
	uint64_t by_us = one_of(world, 2) ? 2 * SECOND + below(world, 3 * SECOND) : spread(world, MS, 7200 * SECOND);
	bool forward = one_of(world, 2);
	proc->wall_us += forward ? (int64_t)by_us : -(int64_t)by_us;
	world->clocks_wrong = true;
	TELL(world, "p%u: its time of day is set %s by %llu ms", (unsigned)(proc - world->procs),
	     forward ? "forward" : "back", (unsigned long long)(by_us / MS));
}

/* From now on all guesses are behind what was given, and by too much to be learned. */
static void set_day_right(struct world *world)
{
	struct proc *proc = &world->procs[0];
	proc->wall_us -= proc->wall_ahead_us;
	proc->wall_ahead_us = 0;
	TELL(world, "p0: its time of day is set right");
}

static void crash_proc(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	if (!proc->up)
		return;
	TELL(world, "p%u: crashes", index);
	proc_end(world, index, false);
	proc->serial = ++world->next_serial;
	mend_after(world, MEND_PROC_START, index, 0, proc->serial, spread(world, MS, 800 * MS));
}

static void pause_proc(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	uint64_t for_us = world->config.profile == PROFILE_BOUNDS ? SECOND + below(world, 4 * SECOND)
								  : spread(world, MS, 2 * SECOND);
	if (!proc->up || proc->paused || proc->draining)
		return;
	TELL(world, "p%u: stands still for %llu ms", index, (unsigned long long)(for_us / MS));
	proc->paused = true;
	proc->serial = ++world->next_serial;
	mend_after(world, MEND_PROC_CONTINUE, index, 0, proc->serial, for_us);
}

/* SIGTERM */
static void drain_proc(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	if (!proc->up || proc->paused || proc->draining)
		return;
	TELL(world, "p%u: drains", index);
	proc_drain(world, index);
	proc->serial = ++world->next_serial;
	mend_after(world, MEND_PROC_END, index, 0, proc->serial, spread(world, MS, 2 * SECOND));
}

static void flush_scripts(struct world *world, unsigned index)
{
	TELL(world, "master %u: SCRIPT FLUSH", index);
	world->nodes[index].scripts = 0;
}

static void roll_back(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	if (!node->up || node->images[node->newer ^ 1].at == 0)
		return;
	TELL(world, "master %u: an image of %llu ms ago is put back", index,
	     (unsigned long long)((world->now - node->images[node->newer ^ 1].at) / MS));
	node_roll_back(world, index, one_of(world, 2));
}

static void go_slow(struct world *world)
{
	world->slow = (uint32_t)spread(world, 2, 30);
	mend_after(world, MEND_SLOW, 0, 0, 0, spread(world, 20 * MS, SECOND));
	TELL(world, "the network is slow");
}

/* For good. */
static void freeze(struct world *world)
{
	for (unsigned i = 0; i < world->config.nodes / 2U; i++) {
		TELL(world, "master %u: freezes", i);
		world->nodes[i].stopped = true;
	}
	world->config.faults &= ~(1U << FAULT_FREEZE);
}

/* Notifications are missed until it listens again. */
static void go_deaf(struct world *world, unsigned proc)
{
	for (unsigned i = 0; i < world->config.nodes; i++)
		net_lose(world, proc, i, false, true, false);
}

/* One of the two connections, or both. A process that stands still notices later. */
static void lose(struct world *world, unsigned proc, unsigned node)
{
	uint64_t which = below(world, 4);
	bool hard = one_of(world, 3);
	net_lose(world, proc, node, which != 1, which != 0, hard);
}

static void do_fault(struct world *world, enum fault fault)
{
	unsigned proc = (unsigned)below(world, world->config.procs),
		 node = (unsigned)below(world, world->config.victims);
	world->figures->faults[fault]++;
	trace(world, world->now, fault, (uint64_t)proc << 8 | node);
	switch (fault) {
	case FAULT_LOSE: lose(world, proc, node); break;
	case FAULT_PARTITION: partition(world, false); break;
	case FAULT_ONE_WAY: partition(world, true); break;
	case FAULT_STOP: stop(world, node, spread(world, MS, 3 * SECOND)); break;
	case FAULT_CRASH: crash(world, node, 0, spread(world, MS, 800 * MS)); break;
	case FAULT_CRASH_KEPT: crash_kept(world, node); break;
	case FAULT_FLUSH: flush(world, node); break;
	case FAULT_EVICT: evict(world, node, false); break;
	case FAULT_EVICT_HASH: evict(world, node, true); break;
	case FAULT_POLICY: change_policy(world, node); break;
	case FAULT_FORWARD: jump(world, node, 1); break;
	case FAULT_BACK: jump(world, node, -1); break;
	case FAULT_DAY: set_day(world); break;
	case FAULT_PROC_CRASH: crash_proc(world, proc); break;
	case FAULT_PROC_PAUSE: pause_proc(world, proc); break;
	case FAULT_PROC_DRAIN: drain_proc(world, proc); break;
	case FAULT_SCRIPTS: flush_scripts(world, node); break;
	case FAULT_ROLL_BACK: roll_back(world, node); break;
	case FAULT_SLOW: go_slow(world); break;
	case FAULT_ALL_CRASH: crash_all(world); break;
	case FAULT_DELETE: delete (world, node); break;
	case FAULT_FORGET: forget_all(world); break;
	case FAULT_FLIGHT: crash_in_flight(world, node); break;
	case FAULT_DEAF: go_deaf(world, proc); break;
	case FAULT_FREEZE: freeze(world); break;
	case FAULTS: assert(false);
	}
}

void fault_any(struct world *world)
{
	unsigned left = (unsigned)below(world, (uint64_t)__builtin_popcount(world->config.faults));
	for (unsigned i = 0; i < FAULTS; i++)
		if ((world->config.faults & (1U << i)) != 0 && left-- == 0) {
			do_fault(world, (enum fault)i);
			return;
		}
}

void fault_next(struct world *world)
{
	if (world->healing || shape_rolls(world))
		return;
	if (world->config.faults != 0 && !world->config.smooth)
		order_trouble(world);
	if (world->config.faults != 0)
		fault_any(world);
	if (world->procs[0].wall_ahead_us > 0 && world->config.profile == PROFILE_RACE)
		set_day_right(world);
	bool at_once = below(world, 8) < world->config.burst;
	uint64_t after_us = at_once ? spread(world, 100, 20 * MS) : 1 + below(world, 2 * world->config.fault_every_us);
	event_push(world, event_new(world, EVENT_FAULT), world->now + after_us);
}
