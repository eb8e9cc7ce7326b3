/* Between the guard and the network: carries out the guard's actions and reports what became of them. */
#include <assert.h>

#include "random_world.h"

/* ---- mutations here ---- */

/* As a daemon would that takes the server's word for how long it has been up. */
static void believe_uptime(struct world *world, struct proc *proc, unsigned node)
{
	struct guard_master *master = &proc->guard.masters[node];
	uint64_t clock_us = clock_read(&world->nodes[node].clock, world->now);
	uint64_t now_us = proc_now(world, proc);
	uint64_t uptime_us = clock_us > world->nodes[node].started_us
				     ? (clock_us - world->nodes[node].started_us) / SECOND * SECOND
				     : 0;
	if (master->state != GUARD_WAITING || (master->reason != GUARD_RESTARTED && master->reason != GUARD_NO_EPOCH))
		return;
	if (uptime_us > now_us - master->since_us)
		master->since_us = now_us > uptime_us ? now_us - uptime_us : 0;
}

/* As a guard would that asks the others when it quarantines a master, not after the wait. */
static void survey_early(struct world *world, struct proc *proc, unsigned node)
{
	for (unsigned j = 0; j < world->config.nodes; j++) {
		proc->early[node][j] = 0;
		for (unsigned bucket = 0; bucket < MODEL_BUCKETS; bucket++) {
			uint64_t number = model_number(&world->nodes[j].model, bucket);
			proc->early[node][j] = number > proc->early[node][j] ? number : proc->early[node][j];
		}
	}
}

static uint64_t early_fence(const struct world *world, const struct proc *proc, unsigned told_by, uint64_t fence)
{
	for (unsigned i = 0; i < world->config.nodes; i++)
		if (proc->guard.masters[i].state == GUARD_RECOVERING && proc->early[i][told_by] < fence)
			fence = proc->early[i][told_by];
	return fence;
}

/* ---- events ---- */

static void tell_state(struct world *world, unsigned proc, unsigned node, enum guard_state before)
{
	static const char *const names[] = {"absent",      "asked",      "voting",     "quarantined",
					    "quarantined", "recovering", "certifying", "foreign"};
	const struct guard_master *master = &world->procs[proc].guard.masters[node];
	if (master->state == before)
		return;
	TELL(world, "p%u: master %u is %s%s%s", proc, node, names[master->state],
	     master->reason != GUARD_NO_REASON ? ": " : "", guard_reason_name(master->reason));
}

static void take(struct world *world, unsigned proc, struct guard_event *event)
{
	struct proc *process = &world->procs[proc];
	struct guard_master *master = &process->guard.masters[event->master];
	enum guard_state before = master->state;
	event->now_us = proc_now(world, process);
	guard_event(&process->guard, event);
	if (master->state == before)
		return;
	trace(world, world->now, (uint64_t)master->state << 16 | proc << 8 | event->master, master->reason);
	tell_state(world, proc, event->master, before);
	if (master->state != GUARD_WAITING)
		return;
	world->figures->quarantines++;
	if (MUTATED(MUTATION_QUARANTINE_BY_UPTIME))
		believe_uptime(world, process, event->master);
	if (MUTATED(MUTATION_RECOVERY_EARLY))
		survey_early(world, process, event->master);
}

void guarding_event(struct world *world, unsigned proc, unsigned node, enum guard_event_kind kind)
{
	struct guard_event event = {.kind = kind, .master = (uint8_t)node};
	take(world, proc, &event);
	guarding_pump(world, proc);
}

void guarding_mismatch(struct world *world, unsigned proc, unsigned node, uint64_t epoch)
{
	struct guard_event event = {.kind = GUARD_MISMATCH, .master = (uint8_t)node, .epoch = epoch};
	take(world, proc, &event);
	guarding_pump(world, proc);
}

void guarding_connected(struct world *world, unsigned proc, unsigned node, const struct answer *answer)
{
	struct link *link = &world->procs[proc].links[node];
	struct guard_event event = {.kind = GUARD_CONNECTED,
				    .master = (uint8_t)node,
				    .run_id = answer->run_id,
				    .client_id = answer->client_id};
	if (link->seen_run_id != answer->run_id)
		link->seen_beat = 0;
	else if (answer->client_id <= link->seen_client_id)
		link->saw_rolled = world->now;
	link->seen_run_id = answer->run_id;
	link->seen_client_id = answer->client_id;
	take(world, proc, &event);
	if (!world->procs[proc].guard.masters[node].has_clock)
		link->clock_since = NEVER;
}

enum guard_clock guarding_time(struct world *world, unsigned proc, uint64_t sent_us, const struct event *event)
{
	unsigned node = event->node;
	struct proc *process = &world->procs[proc];
	struct guard_master *master = &process->guard.masters[node];
	enum guard_state before = master->state;
	if (!master->has_clock)
		process->links[node].clock_since = world->now;
	check_looked(world, proc, node, event->run_at);
	enum guard_clock clock = guard_time(&process->guard, node, sent_us, proc_now(world, process),
					    event->u.answer.script.now_us);
	if (clock == GUARD_CLOCK_STEADY)
		return clock;
	world->figures->jumps_seen++;
	check_jump_seen(world, proc, node, clock);
	TELL(world, "p%u: the clock of master %u jumped by %lld us", proc, node, (long long)master->jump_us);
	tell_state(world, proc, node, before);
	return clock;
}

static void note_beat(struct world *world, struct link *link, uint64_t beat)
{
	if (beat <= link->seen_beat)
		link->saw_rolled = world->now;
	link->seen_beat = (uint32_t)beat;
}

/* Dropped while nobody looked: the master's own note of the number is older than what INFO says. */
static bool dropped_unseen(const struct link *link, const struct model_reply *reply)
{
	return !link->knows_evicted && reply->evicted != 0 && link->evicted + 1 > reply->evicted;
}

static void take_epoch(struct world *world, unsigned proc, unsigned node, const struct model_reply *reply)
{
	struct link *link = &world->procs[proc].links[node];
	struct guard_event event = {.kind = GUARD_EPOCH,
				    .master = (uint8_t)node,
				    .beat = reply->beat,
				    .epoch = reply->epoch,
				    .epoch_run_id = reply->run_id,
				    .cluster = reply->cluster,
				    .digest = reply->digest,
				    .ttl_us = reply->ttl_ms * MS,
				    .marker = reply->marker,
				    .marker_run_id = reply->marker_run_id,
				    .kept = reply->kept,
				    .clocked_us = reply->clocked_us};
	note_beat(world, link, reply->beat);
	struct guard_event dropped = {.kind = GUARD_DROPPED_KEYS, .master = (uint8_t)node};
	if (dropped_unseen(link, reply))
		take(world, proc, &dropped); /* first: the epoch is read in its light */
	link->knows_evicted = true;
	take(world, proc, &event);
}

void guarding_answer(struct world *world, unsigned proc, unsigned node, const struct request *request,
		     const struct event *event)
{
	const struct model_reply *reply = &event->u.answer.script;
	struct proc *process = &world->procs[proc];
	struct guard_event told = {.master = (uint8_t)node, .done = reply->code == 1};
	guarding_time(world, proc, request->sent_us, event);
	switch (request->what) {
	case WHAT_HEARTBEAT:
	case WHAT_READ: take_epoch(world, proc, node, reply); break;
	case WHAT_QUARANTINE:
		told.kind = GUARD_QUARANTINED;
		told.marker = reply->marker;
		told.kept = reply->kept;
		told.ttl_us = reply->ttl_ms * MS;
		take(world, proc, &told);
		break;
	case WHAT_FENCES:
		told.kind = GUARD_FENCES;
		told.fence = MUTATED(MUTATION_RECOVERY_EARLY) ? early_fence(world, process, node, reply->fence)
							      : reply->fence;
		told.ttl_us = reply->ttl_ms * MS;
		take(world, proc, &told);
		break;
	default:
		assert(request->what == WHAT_WRITE_EPOCH);
		told.kind = GUARD_EPOCH_WRITTEN;
		take(world, proc, &told);
	}
	guarding_pump(world, proc);
}

/* ---- actions ---- */

static bool carry_out(struct world *world, unsigned proc, unsigned node, const struct guard_action *action)
{
	static const uint8_t whats[] = {0, WHAT_READ, WHAT_QUARANTINE, WHAT_FENCES, WHAT_WRITE_EPOCH};
	struct proc *process = &world->procs[proc];
	const struct guard *guard = &process->guard;
	struct request request = {.sent_us = proc_now(world, process), .op = NONE, .what = whats[action->kind]};
	struct model_command command = {
		.epoch = action->epoch,
		.marker = action->marker,
		.run_id = guard->masters[node].run_id,
		.cluster = action->cluster,
		.digest = guard->params.digest,
		.fence = action->fence,
		.kept = action->kept,
		.clocked = action->clocked,
		.deadline_us = guard_master_time_us(guard, node, request.sent_us + SECOND),
		.ttl_ms = (action->kind == GUARD_READ ? guard_longest_us(guard) : action->ttl_us) / MS};
	if (action->kind == GUARD_SURVEY)
		command.bucket = command.last_bucket = action->slice;
	if (action->kind == GUARD_READ) {
		command.evicted = process->links[node].evicted + 1;
		command.compared = process->links[node].knows_evicted;
	}
	return process->links[node].state == LINK_UP && link_push(world, proc, node, &request, &command);
}

static void arm(struct world *world, unsigned proc)
{
	struct proc *process = &world->procs[proc];
	uint64_t deadline_us = guard_deadline_us(&process->guard), now_us = proc_now(world, process);
	if (deadline_us == REDLOCK_NEVER)
		return;
	uint64_t at = world->now + (deadline_us > now_us ? proc_true_after(process, deadline_us - now_us) + 1 : MS);
	if (at >= process->guard_at)
		return;
	struct event *event = event_new(world, EVENT_GUARD);
	event->proc = (uint8_t)proc;
	event->serial = process->run;
	process->guard_at = at;
	event_push(world, event, at);
}

void guarding_pump(struct world *world, unsigned proc)
{
	struct proc *process = &world->procs[proc];
	for (unsigned i = 0; i < world->config.nodes; i++) {
		struct guard_action action;
		for (;;) {
			enum guard_state before = process->guard.masters[i].state;
			guard_next(&process->guard, i, proc_now(world, process), proc_wall(world, process), &action);
			tell_state(world, proc, i, before);
			if (action.kind == GUARD_NOTHING)
				break;
			if (!carry_out(world, proc, i, &action)) {
				struct guard_event failed = {
					.kind = GUARD_FAILED, .action = action.kind, .master = (uint8_t)i};
				take(world, proc, &failed);
			}
		}
	}
	arm(world, proc);
}

/* Once a second, and when the guard says so. */
void guarding_tick(struct world *world, unsigned proc)
{
	struct proc *process = &world->procs[proc];
	if (process->guard_at != NEVER && process->guard_at > world->now)
		return; /* another event was asked for since */
	proc_round(world, process);
	struct event *event = event_new(world, EVENT_GUARD);
	event->proc = (uint8_t)proc;
	event->serial = process->run;
	process->guard_at = world->now + SECOND;
	event_push(world, event, process->guard_at);
	guarding_pump(world, proc);
}
