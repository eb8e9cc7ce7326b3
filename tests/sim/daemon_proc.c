/* SPDX-License-Identifier: MIT */
/* A process: the daemon's leases, masters and holds of one worker, as server/daemon/worker.c keeps them, and the clocks
 * and random numbers that they find there. It handles one event at once, each in a round of its loop; while it is
 * paused nothing reaches it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon_world.h"

static struct world *const world_here = &world_of_all;

/* ---- clocks and random numbers ---- */

uint64_t proc_now(const struct world *world, const struct proc *proc)
{
	return clock_read(&proc->clock, world->now);
}

uint64_t proc_wall(const struct world *world, const struct proc *proc)
{
	return proc_now(world, proc) + (uint64_t)proc->wall_us;
}

uint64_t proc_true_after(const struct proc *proc, uint64_t us)
{
	return (uint64_t)((int64_t)us - (int64_t)us * proc->clock.ppm / 1000000);
}

/* In place of server/base/clock.c and random.c. */
uint64_t clock_now_us(void)
{
	if (world_here->current == PROCS) /* before the first history, or what looks at a process from outside */
		return world_here->now;
	return world_here->here_us;
}

uint64_t clock_wall_us(void)
{
	if (world_here->current == PROCS)
		return world_here->now;
	return world_here->here_us + (uint64_t)world_here->procs[world_here->current].wall_us;
}

uint64_t random_number(void)
{
	return random_u64(world_here);
}

/* The operation whose token it is, and through it the request of a client. */
void random_token(char ret_token[RANDOM_TOKEN_LEN])
{
	struct world *world = world_here;
	const struct lease_op *op = (const void *)((uintptr_t)ret_token - offsetof(struct lease_op, attempt.token));
	assert(op->leases == world->procs[world->current].leases && world->next_token + 1 < TOKENS);
	uint64_t token = ++world->next_token;
	struct call *call = op->caller.done ? call_of(world, op->caller.arg) : NULL;
	struct trail *trail = &world->trails[token];
	*trail = (struct trail){.proc = (uint8_t)world->current, .call = NONE, .began = world->now};
	token_write(token, ret_token);
	trail->asked = op->request.key;
	trail->names = names_find(world, &op->request);
	if (!call)
		return;
	trail->call = (uint16_t)(call - world->calls);
	trail->call_serial = call->serial;
	call->began = world->now;
	if (call->waits)
		order_attempt(world, call, &op->core);
}

/* ---- rounds of the loop ---- */

/* While a process runs no time passes. */
void proc_turn_to(struct world *world, unsigned index)
{
	world->current = index;
	if (index < PROCS)
		world->here_us = proc_now(world, &world->procs[index]);
}

void proc_enter(struct world *world, unsigned index)
{
	assert(world->current == PROCS && world->procs[index].masters);
	proc_turn_to(world, index);
	world->cause = CAUSE_OTHER;
	world->cause_arg = NULL;
}

static void end_round(struct world *world)
{
	struct proc *proc = &world->procs[world->current];
	world->cause = CAUSE_OTHER;
	sight_of_quorum(world, world->current);
	while (leases_dispatch(proc->leases))
		;
	masters_begin_round(proc->masters);
	masters_flush(proc->masters);
	transport_flush_all();
}

void proc_leave(struct world *world)
{
	end_round(world);
	proc_turn_to(world, PROCS);
}

/* False: kept until the pause ends. */
bool proc_timer(struct world *world, struct event *event)
{
	struct proc *proc = &world->procs[event->proc];
	if (!transport_timer_is_due(event))
		return true;
	if (proc->paused) {
		STAILQ_INSERT_TAIL(&proc->timers, event, entry);
		return false;
	}
	proc_enter(world, event->proc);
	transport_timer_fire(event);
	proc_leave(world);
	return true;
}

/* libuv runs timers before it reads. */
void proc_continue(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	struct event *event;
	proc->paused = false;
	proc->continued_at = world->now;
	proc_enter(world, index);
	while ((event = STAILQ_FIRST(&proc->timers))) {
		STAILQ_REMOVE_HEAD(&proc->timers, entry);
		transport_timer_fire(event);
		event_free(world, event);
	}
	end_round(world);
	net_flow(world, index, NODES);
	proc_leave(world);
}

/* ---- start ---- */

static void set_options(struct world *world, struct proc *proc, bool bootstrap)
{
	static const uint32_t bounds_ms[] = {300, 1000};
	const struct config *config = &world->config;
	struct options *options = &proc->options;
	bool other = config->unlike && !one_of(world, 3);
	options->master_count = config->nodes;
	for (unsigned i = 0; i < config->nodes; i++) {
		snprintf(options->masters[i].host, sizeof options->masters[i].host, "127.0.0.1");
		options->masters[i].port = (uint16_t)i; /* daemon_transport.c */
	}
	options->min_ttl_ms = 1;
	options->max_ttl_ms = other ? bounds_ms[below(world, 2)] : (uint32_t)(config->max_ttl_us / MS);
	options->restart_guard = OPTIONS_GUARD_ON;
	options->durable_masters = config->durable;
	options->max_hold_ms = config->max_hold_ms;
	options->max_wait_ms = 60000;
	options->max_waiters = options->max_waiters_per_resource = 10000;
	options->max_shared = config->max_shared;
	options->master_timeout_ms = (uint32_t)(config->timeout_us / MS);
	options->retry_min_ms = config->retry_min_us / (uint32_t)MS;
	options->retry_max_ms = config->retry_max_us / (uint32_t)MS;
	options->retry_count = config->tries;
	options->drift_factor = 0.01;
	options->drift_ms = 2;
	options->bootstrap = bootstrap;
	options->drain_ms = 5000;
	options->workers = 1;
}

static void reset_metrics(struct metrics *metrics)
{
	memset(metrics, 0, sizeof *metrics);
	metrics->held.is_long = true;
	for (size_t i = 0; i < METRICS_WAITS; i++)
		metrics->wait[i].is_long = true;
}

void proc_start(struct world *world, unsigned index, bool bootstrap)
{
	struct proc *proc = &world->procs[index];
	assert(!proc->up && !proc->masters);
	proc->up = true;
	proc->run++;
	proc->paused = proc->draining = false;
	STAILQ_INIT(&proc->timers);
	proc->continued_at = world->now;
	for (unsigned i = 0; i < NODES; i++) {
		struct link *link = &proc->links[i];
		*link = (struct link){.block_there = link->block_there,
				      .block_back = link->block_back,
				      .block_serial = link->block_serial,
				      .clock_since = NEVER};
	}
	set_options(world, proc, bootstrap);
	proc->metrics = metrics_worker(index);
	reset_metrics(proc->metrics);
	proc_turn_to(world, index);
	struct uv_loop_s *loop = (struct uv_loop_s *)(void *)proc; /* never looked into */
	proc->masters = masters_new(loop, &proc->options, proc->metrics);
	proc->leases = leases_new(loop, &proc->options, proc->masters, proc->metrics);
	proc->holds = holds_new(loop, proc->leases, proc->metrics);
	proc->replica = hex_number(proc->masters->replica);
	proc_leave(world);
}

/* ---- end ---- */

/* SIGTERM */
void proc_drain(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	assert(proc->up && !proc->paused && !proc->draining);
	proc->draining = true;
	world->figures->drained++;
	proc_enter(world, index);
	leases_drain(proc->leases);
	holds_drain(proc->holds);
	proc_leave(world);
}

static void drop_timers(struct world *world, struct proc *proc)
{
	struct event *event;
	while ((event = STAILQ_FIRST(&proc->timers))) {
		STAILQ_REMOVE_HEAD(&proc->timers, entry);
		event_free(world, event);
	}
}

static void count_figures(struct world *world, const struct proc *proc)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		for (unsigned r = 0; r < QUARANTINE_REASON_COUNT; r++)
			world->figures->quarantines += metrics_load(&proc->metrics->masters[i].quarantines[r]);
		world->figures->late += metrics_load(&proc->metrics->masters[i].late);
	}
	world->figures->rounds += metrics_load(&proc->metrics->fence_rounds);
	world->figures->abandoned += metrics_load(&proc->metrics->abandoned);
}

/* At the end of a drain, as server/daemon/worker.c does it: what it still sends leaves. Otherwise it crashes: nothing
 * leaves any more, and what follows only gives its memory back. */
void proc_end(struct world *world, unsigned index, bool in_order)
{
	struct proc *proc = &world->procs[index];
	drop_timers(world, proc);
	proc->paused = false;
	world->muted = !in_order;
	proc_enter(world, index);
	calls_end(world, index, in_order);
	masters_flush(proc->masters);
	transport_flush_all();
	masters_close(proc->masters);
	leases_close(proc->leases);
	transport_flush_all();
	leases_free(proc->leases);
	holds_free(proc->holds);
	masters_free(proc->masters);
	proc_turn_to(world, PROCS);
	world->muted = false;
	proc->masters = NULL;
	proc->leases = NULL;
	proc->holds = NULL;
	proc->replica = 0;
	proc->up = proc->draining = false;
	count_figures(world, proc);
}
