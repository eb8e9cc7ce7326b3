/* A process that stands for redlockd: its clocks, and its operations as server/leases/lease.c and lease_fence.c carry
 * them out. It handles one event at once; while it is paused nothing reaches it (random_net.c, proc_timer()). */
#include <assert.h>
#include <string.h>

#include "random_world.h"

enum { ROUNDING_US = 999 };

#define FENCE_AHEAD_MAX_US (3600 * SECOND)

/* ---- clocks ---- */

uint64_t proc_now(const struct world *world, const struct proc *proc)
{
	uint64_t steady_us = clock_read(&proc->clock, world->now);
	if (!MUTATED(MUTATION_WALL_CLOCK))
		return steady_us;
	uint64_t wall_us = steady_us + (uint64_t)proc->wall_us;
	return wall_us > proc->latest_us ? wall_us : proc->latest_us;
}

uint64_t proc_wall(const struct world *world, const struct proc *proc)
{
	return clock_read(&proc->clock, world->now) + (uint64_t)proc->wall_us;
}

uint64_t proc_true_after(const struct proc *proc, uint64_t us)
{
	return (uint64_t)((int64_t)us - (int64_t)us * proc->clock.ppm / 1000000);
}

/* Between two rounds the loop has read what had arrived by the first. */
void proc_round(struct world *world, struct proc *proc)
{
	uint64_t now_us = proc_now(world, proc);
	if (now_us == proc->round_us)
		return;
	proc->looked_us = proc->round_us;
	proc->round_us = now_us;
}

/* ---- start and end ---- */

uint64_t drift_of(const struct world *world, uint64_t ttl_us)
{
	(void)world;
	return MUTATED(MUTATION_NO_DRIFT) ? ROUNDING_US : ttl_us / 100 + 2 * MS + ROUNDING_US;
}

static void guard_start(struct world *world, struct proc *proc, bool bootstrap)
{
	static const uint64_t bounds_us[] = {300 * MS, SECOND};
	const struct config *config = &world->config;
	proc->max_ttl_us = config->unlike && !one_of(world, 3) ? bounds_us[below(world, 2)] : config->max_ttl_us;
	struct guard_params params = {.masters = config->nodes,
				      .max_ttl_us = proc->max_ttl_us,
				      .drift_ppm = 10001,
				      .margin_us = config->margin_us,
				      .slices = MODEL_BUCKETS,
				      .digest = 0xd1,
				      .bootstrap = bootstrap,
				      .seed = random_u64(world)};
	guard_init(&proc->guard, &params);
	proc->guard_at = NEVER;
}

void proc_start(struct world *world, unsigned index, bool bootstrap)
{
	struct proc *proc = &world->procs[index];
	proc->up = true;
	proc->run++;
	proc->latest_us = 0;
	proc->paused = false;
	proc->timers = (struct held){NONE, NONE};
	proc->fence_clock = 0;
	proc->looked_us = proc->round_us = proc_now(world, proc);
	proc->free_count = 0;
	for (unsigned i = OPS; i-- > 0;) {
		proc->ops[i].serial = 0;
		proc->free_ops[proc->free_count++] = (uint16_t)i;
	}
	proc->continued_at = world->now;
	queue_start(world, index);
	net_flow_to_proc(world, index); /* what was held up for the run before */
	guard_start(world, proc, bootstrap);
	for (unsigned i = 0; i < world->config.nodes; i++)
		link_start(world, index, i);
	guarding_tick(world, index);
}

void proc_crash(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	proc->up = false;
	for (uint16_t slot = proc->timers.first; slot != NONE;) {
		struct event *event = &world->events[slot];
		slot = event->next;
		event_free(world, event);
	}
	for (unsigned i = 0; i < world->config.nodes; i++) {
		struct link *link = &proc->links[i];
		if (link->state != LINK_DOWN)
			net_cut(world, index, i, false);
		link->state = LINK_DOWN;
		link->serial = ++world->next_serial;
		link->timer++;
		ear_drop(world, index, i);
	}
	queue_start(world, index);
	for (unsigned i = 0; i < OPS; i++) {
		struct op *op = &proc->ops[i];
		if (op->serial != 0 && op->wanted && !op->done)
			client_forsaken(world, op->client);
		op->serial = 0;
	}
}

static void keep_timer(struct world *world, struct proc *proc, struct event *event)
{
	uint16_t slot = (uint16_t)(event - world->events);
	event->next = NONE;
	if (proc->timers.first == NONE)
		proc->timers.first = slot;
	else
		world->events[proc->timers.last].next = slot;
	proc->timers.last = slot;
}

static void run_timer(struct world *world, struct event *event)
{
	switch (event->kind) {
	case EVENT_OP_TIMER: op_timer(world, event->proc, event); break;
	case EVENT_CONNECT: link_connect(world, event->proc, event->node, event->serial); break;
	case EVENT_HANDSHAKE: link_handshake_over(world, event->proc, event->node, event->serial); break;
	case EVENT_HEARTBEAT: link_heartbeat(world, event->proc, event->node, event->serial); break;
	case EVENT_QUEUE: queue_tick(world, event->proc, event->serial); break;
	default: assert(event->kind == EVENT_GUARD); guarding_tick(world, event->proc);
	}
}

bool proc_timer(struct world *world, struct event *event)
{
	struct proc *proc = &world->procs[event->proc];
	if (!proc->up)
		return true;
	if (proc->paused) {
		keep_timer(world, proc, event);
		return false;
	}
	if (event->kind == EVENT_GUARD && event->serial != proc->run)
		return true;
	run_timer(world, event);
	return true;
}

/* libuv runs timers before it reads. */
void proc_continue(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	uint16_t slot = proc->timers.first;
	proc->paused = false;
	proc->continued_at = world->now;
	proc->timers = (struct held){NONE, NONE};
	proc_round(world, proc);
	while (slot != NONE) {
		struct event *event = &world->events[slot];
		slot = event->next;
		if (proc_timer(world, event))
			event_free(world, event);
	}
	net_flow_to_proc(world, index);
}

/* ---- guesses for fences ---- */

uint64_t fence_guess(struct world *world, struct proc *proc)
{
	uint64_t now = proc_wall(world, proc);
	bool ahead = proc->fence_clock > now && proc->fence_clock - now > FENCE_AHEAD_MAX_US;
	proc->fence_clock = now > proc->fence_clock || ahead ? now : proc->fence_clock + 1;
	return proc->fence_clock;
}

static void fence_learn(struct world *world, struct proc *proc, uint64_t fence)
{
	if (fence > proc->fence_clock && fence < proc_wall(world, proc) + FENCE_AHEAD_MAX_US)
		proc->fence_clock = fence;
}

/* ---- operations ---- */

static uint64_t token_random(struct world *world, unsigned proc, const struct op *op)
{
	assert(world->next_token + 1 < TOKENS);
	uint64_t token = ++world->next_token;
	world->trails[token] = (struct trail){.key = op->key,
					      .proc = (uint8_t)proc,
					      .op = (uint16_t)(op - world->procs[proc].ops),
					      .op_serial = op->serial,
					      .began = world->now};
	return token;
}

static void note_unsent(struct op *op, unsigned node, const struct redlock_output *out, enum sent sent)
{
	assert(op->unsent_count < sizeof op->unsent / sizeof *op->unsent);
	op->unsent[op->unsent_count++] = (struct redlock_event){
		.kind = REDLOCK_REPLY,
		.master = (uint8_t)node,
		.attempt = out->attempt,
		.round = out->round,
		.script = out->script,
		.vote = sent == SENT_QUARANTINED ? REDLOCK_VOTE_QUARANTINED : REDLOCK_VOTE_UNSENT};
}

static void new_attempt(struct world *world, unsigned proc, struct op *op, const struct redlock_output *out)
{
	op->attempt = out->attempt;
	op->reached = 0;
	op->began = world->now;
	if (op->waits)
		order_attempt(world, proc, op);
	if (op->kind != REDLOCK_ACQUIRE || (MUTATED(MUTATION_ONE_TOKEN) && op->token != 0))
		return;
	op->token = token_random(world, proc, op);
}

/* A release that cannot be sent now, for a key or an entry that may be there: it is sent when the master is back. */
static bool is_pending(const struct op *op, unsigned node, const struct redlock_output *out)
{
	bool may_be_there = op->kind == REDLOCK_RELEASE || redlock_has(op->reached, node) ||
			    (out->entry == REDLOCK_ENTRY_LEAVE && redlock_has(op->core.joined, node));
	return out->script == REDLOCK_SCRIPT_RELEASE && may_be_there;
}

static void send_out(struct world *world, unsigned proc, struct op *op, const struct redlock_output *out)
{
	const struct config *config = &world->config;
	if (out->attempt != op->attempt)
		new_attempt(world, proc, op, out);
	if (out->script == REDLOCK_SCRIPT_RAISE)
		op->raised_at = world->now;
	struct request request = {.token = out->tokenless ? 0 : op->token,
				  .op = (uint16_t)(op - world->procs[proc].ops),
				  .attempt = out->attempt,
				  .round = out->round,
				  .what = (uint8_t)out->script,
				  .key = op->key};
	if (out->entry != REDLOCK_ENTRY_NONE)
		request.entry = (struct model_entry){op->core.arrival, world->procs[proc].replica};
	if (out->entry == REDLOCK_ENTRY_KEEP)
		request.wait_ms = (uint32_t)(out->wait_left_us / MS + 1);
	struct model_command command = {.key = op->key,
					.token = request.token,
					.entry = request.entry,
					.wait_ms = request.wait_ms,
					.ttl_ms = op->ttl_ms,
					.max_hold_ms = config->max_hold_ms,
					.owner = 1,
					.fence = out->fence,
					.bucket = config->one_bucket ? 0 : op->key};
	for (unsigned i = 0; i < config->nodes; i++) {
		if (!redlock_has(out->to, i))
			continue;
		enum sent sent = link_send(world, proc, i, &request, &command);
		if (sent == SENT)
			op->reached |= (uint16_t)(1U << i);
		else
			note_unsent(op, i, out, sent);
		if (sent != SENT && is_pending(op, i, out))
			link_pend(world, proc, i, &request);
	}
}

static void take_result(struct world *world, unsigned proc, struct op *op, const struct redlock_result *result)
{
	op->done = true;
	trace(world, world->now, (uint64_t)result->outcome << 8 | proc, result->fence);
	world->figures->outcomes[result->outcome]++;
	world->figures->rounds += result->rounds;
	if (result->outcome == REDLOCK_OK && op->kind == REDLOCK_ACQUIRE)
		order_granted(world, proc, op);
	if (op->waits) {
		order_done(world, proc, op, result);
		queue_leave(world, proc, op, result);
	}
	if (result->outcome == REDLOCK_CANCELLED)
		return;
	fence_learn(world, &world->procs[proc], result->fence);
	if (result->outcome == REDLOCK_OK && op->kind == REDLOCK_ACQUIRE) {
		check_granted(world, proc, op, result);
	} else if (result->outcome == REDLOCK_OK && op->kind == REDLOCK_EXTEND) {
		check_extended(world, proc, op, result);
	}
	client_answer(world, proc, op, result);
}

static void op_step(struct world *world, unsigned proc, struct op *op, const struct redlock_event *event)
{
	struct redlock_output out;
	op->cause = (uint8_t)event->kind;
	redlock_step(&op->core, event, &out);
	if (out.script != REDLOCK_SCRIPT_NONE)
		send_out(world, proc, op, &out);
	if (out.done)
		take_result(world, proc, op, &out.result);
	op->finished = out.finished;
}

static void arm_timer(struct world *world, unsigned proc, struct op *op, uint64_t after_us)
{
	struct event *event = event_new(world, EVENT_OP_TIMER);
	event->proc = (uint8_t)proc;
	event->a = (uint16_t)(op - world->procs[proc].ops);
	event->serial = op->serial;
	op->timer_at = world->now + proc_true_after(&world->procs[proc], after_us) + 1;
	event_push(world, event, op->timer_at);
}

static void arm_for_deadline(struct world *world, unsigned proc, struct op *op, uint64_t now_us)
{
	uint64_t deadline_us = redlock_deadline_us(&op->core);
	op->timer_due = false;
	op->timer_at = NEVER;
	if (deadline_us != REDLOCK_NEVER)
		arm_timer(world, proc, op, deadline_us > now_us ? deadline_us - now_us + MS : 0);
}

void op_drive(struct world *world, unsigned proc, struct op *op, const struct redlock_event *event)
{
	uint64_t before_us = redlock_deadline_us(&op->core);
	op_step(world, proc, op, event);
	for (unsigned i = 0; i < op->unsent_count; i++) {
		struct redlock_event unsent = op->unsent[i];
		unsent.now_us = event->now_us;
		op_step(world, proc, op, &unsent);
	}
	op->unsent_count = 0;
	if (redlock_deadline_us(&op->core) != before_us || event->kind == REDLOCK_TIMER) /* that one is used up */
		arm_for_deadline(world, proc, op, event->now_us);
	if (op->finished && op->serial != 0) {
		struct proc *process = &world->procs[proc];
		op->serial = 0;
		process->free_ops[process->free_count++] = (uint16_t)(op - process->ops);
	}
}

void op_timer(struct world *world, unsigned proc, struct event *event)
{
	struct proc *process = &world->procs[proc];
	struct op *op = &process->ops[event->a];
	proc_round(world, process);
	if (op->serial != event->serial || op->timer_at == NEVER || op->timer_at > world->now)
		return;
	if (!op->timer_due) { /* once more round the loop: answers may lie unread */
		op->timer_due = true;
		arm_timer(world, proc, op, MS);
		return;
	}
	struct redlock_event timer = {
		.kind = REDLOCK_TIMER, .now_us = proc_now(world, process), .fence = fence_guess(world, process)};
	op->timer_due = false;
	if (redlock_wants(&op->core, op->attempt, op->core.round))
		for (unsigned i = 0; i < world->config.nodes; i++)
			link_note_silence(world, proc, i);
	if (timer.now_us < redlock_deadline_us(&op->core))
		arm_for_deadline(world, proc, op, timer.now_us);
	else
		op_drive(world, proc, op, &timer);
}

void op_vote(struct world *world, unsigned proc, const struct request *request, unsigned node, enum redlock_vote vote,
	     const struct model_reply *reply)
{
	struct proc *process = &world->procs[proc];
	struct op *op = &process->ops[request->op];
	struct redlock_event event = {.kind = REDLOCK_REPLY,
				      .now_us = proc_now(world, process),
				      .master = (uint8_t)node,
				      .attempt = request->attempt,
				      .round = request->round,
				      .script = (enum redlock_script)request->what,
				      .vote = vote,
				      .ttl_us = op->core.params.ttl_us};
	assert(op->serial != 0);
	if (vote == REDLOCK_VOTE_HELD || vote == REDLOCK_VOTE_QUEUED) {
		event.remaining_us = reply->remaining_ms < 0 ? REDLOCK_NEVER : (uint64_t)reply->remaining_ms * MS;
		event.holder = reply->value.token;
		event.fence = reply->value.fence;
	} else if (vote == REDLOCK_VOTE_BEHIND ||
		   (vote == REDLOCK_VOTE_GRANTED && request->what == REDLOCK_SCRIPT_ACQUIRE)) {
		event.fence = reply->old;
		fence_learn(world, process, reply->old);
	} else if (vote == REDLOCK_VOTE_GRANTED && request->what == REDLOCK_SCRIPT_EXTEND) {
		event.fence = reply->value.fence;
		event.holder = reply->value.token;
		event.ttl_us = reply->ttl_ms * MS;
	}
	op_drive(world, proc, op, &event);
}

/* ---- operations ---- */

struct op *op_begin(struct world *world, unsigned proc, enum redlock_kind kind, unsigned key, uint64_t ttl_ms,
		    uint64_t token)
{
	const struct config *config = &world->config;
	struct proc *process = &world->procs[proc];
	if (process->free_count == 0)
		return NULL;
	struct op *op = &process->ops[process->free_ops[--process->free_count]];
	if (ttl_ms * MS > process->max_ttl_us)
		ttl_ms = process->max_ttl_us / MS;
	struct redlock_params params = {.kind = kind,
					.masters = config->nodes,
					.tries = (uint16_t)config->tries,
					.ttl_us = ttl_ms * MS,
					.drift_us = drift_of(world, ttl_ms * MS),
					.master_timeout_us = config->timeout_us,
					.retry_min_us = config->retry_min_us,
					.retry_max_us = config->retry_max_us};
	memset((char *)op + sizeof op->core, 0, offsetof(struct op, unsent) - sizeof op->core);
	redlock_init(&op->core, &params, random_u64(world));
	op->serial = ++world->next_serial;
	op->kind = kind;
	op->key = (uint8_t)key;
	op->ttl_ms = ttl_ms;
	op->token = token;
	op->lease = NONE;
	op->client = CLIENTS;
	op->timer_at = NEVER;
	op->notified_by = NONE;
	world->figures->operations++;
	world->operations++;
	uint64_t busy = OPS - (uint64_t)process->free_count;
	if (busy > world->figures->fullest_ops)
		world->figures->fullest_ops = busy;
	return op;
}

/* Before it starts. */
void op_wait(struct op *op, uint64_t wait_us)
{
	op->core.params.wait_us = wait_us;
	op->waits = wait_us > 0;
}

void op_start(struct world *world, unsigned proc, struct op *op)
{
	struct proc *process = &world->procs[proc];
	struct redlock_event start = {
		.kind = REDLOCK_START, .now_us = proc_now(world, process), .fence = fence_guess(world, process)};
	proc_round(world, process);
	op->came_at = world->now;
	if (op->waits) {
		order_begin(world, proc, op);
		queue_join(world, proc, op, &start);
	}
	op_drive(world, proc, op, &start);
}

void op_cancel(struct world *world, unsigned proc, struct op *op)
{
	struct redlock_event cancel = {.kind = REDLOCK_CANCEL, .now_us = proc_now(world, &world->procs[proc])};
	op->wanted = false;
	if (!op->done)
		op_drive(world, proc, op, &cancel);
}
