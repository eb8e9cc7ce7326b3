/* A process's connections to the masters: what server/masters/masters.c, master_link.c and master_handshake.c do,
 * without their sockets.
 *
 *   handshake  first on a connection; after its answer the pending releases, then the actions of the guard
 *   heartbeat  once a second epoch.lua and INFO in one
 *   hung       the oldest command has waited for longer than the timeout: nothing new is sent but what must stay in
 *              order */
#include <assert.h>

#include "random_world.h"

enum { BACKOFF_MIN_MS = 50, BACKOFF_MAX_MS = 1000, HANDSHAKE_MS = 1000, HEARTBEAT_MS = 1000 };

static struct link *link_of(struct world *world, unsigned proc, unsigned node)
{
	return &world->procs[proc].links[node];
}

static struct event *timer_new(struct world *world, enum event_kind kind, unsigned proc, unsigned node, uint32_t serial)
{
	struct event *event = event_new(world, kind);
	event->proc = (uint8_t)proc;
	event->node = (uint8_t)node;
	event->serial = serial;
	return event;
}

static void arm_heartbeat(struct world *world, unsigned proc, unsigned node, uint64_t after_us)
{
	struct link *link = link_of(world, proc, node);
	struct event *event = timer_new(world, EVENT_HEARTBEAT, proc, node, ++link->timer);
	event_push(world, event, world->now + proc_true_after(&world->procs[proc], after_us));
}

/* ---- connecting ---- */

static void try_later(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = link_of(world, proc, node);
	uint64_t after_us = link->backoff_ms * MS / 2 + below(world, link->backoff_ms * MS / 2);
	link->backoff_ms = link->backoff_ms * 2 < BACKOFF_MAX_MS ? link->backoff_ms * 2 : BACKOFF_MAX_MS;
	event_push(world, timer_new(world, EVENT_CONNECT, proc, node, link->serial), world->now + after_us);
}

void link_start(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = link_of(world, proc, node);
	link->serial = ++world->next_serial;
	link->state = LINK_DOWN;
	link->backoff_ms = BACKOFF_MIN_MS;
	link->clock_since = NEVER;
	link->seen_run_id = 0;
	link->saw_rolled = link->hidden_at = 0;
	link->ahead_unseen = false;
	link->knows_evicted = false;
	link->evicts = false;
	link->pending_count = link->request_count = 0;
	event_push(world, timer_new(world, EVENT_CONNECT, proc, node, link->serial),
		   world->now + 1 + below(world, 5 * MS));
}

void link_connect(struct world *world, unsigned proc, unsigned node, uint32_t serial)
{
	struct link *link = link_of(world, proc, node);
	if (link->serial != serial || link->state != LINK_DOWN)
		return;
	if (!world->nodes[node].up || link->block_there || link->block_back) {
		try_later(world, proc, node);
		return;
	}
	struct request request = {.sent_us = proc_now(world, &world->procs[proc]), .op = NONE, .what = WHAT_HANDSHAKE};
	struct model_command nothing = {.key = 0};
	link->serial = ++world->next_serial;
	link->incarnation = world->nodes[node].incarnation;
	link->state = LINK_HANDSHAKE;
	link->hung = link->heartbeat_out = link->heartbeat_due = false;
	link->first_command = link->request_count = 0;
	link->there_at = link->back_at = world->now;
	link_push(world, proc, node, &request, &nothing);
	event_push(world, timer_new(world, EVENT_HANDSHAKE, proc, node, link->serial), world->now + HANDSHAKE_MS * MS);
}

void link_handshake_over(struct world *world, unsigned proc, unsigned node, uint32_t serial)
{
	struct link *link = link_of(world, proc, node);
	if (link->serial == serial && link->state == LINK_HANDSHAKE)
		link_lost(world, proc, node, false);
}

/* ---- what is owed ---- */

static void pending_push(struct link *link, const struct pending *pending)
{
	if (link->pending_count < PENDING)
		link->pending[link->pending_count++] = *pending;
}

static bool pending_send(struct world *world, unsigned proc, unsigned node, const struct pending *pending)
{
	struct request request = {.sent_us = proc_now(world, &world->procs[proc]),
				  .token = pending->token,
				  .op = NONE,
				  .what = REDLOCK_SCRIPT_RELEASE,
				  .key = pending->key,
				  .pending = true,
				  .entry = pending->entry,
				  .wait_ms = pending->wait_ms};
	struct model_command command = {.key = pending->key,
					.token = pending->token,
					.epoch = MODEL_ANY_EPOCH,
					.entry = pending->entry,
					.wait_ms = pending->wait_ms};
	return link_push(world, proc, node, &request, &command);
}

void link_pend(struct world *world, unsigned proc, unsigned node, const struct request *request)
{
	struct proc *process = &world->procs[proc];
	struct link *link = &process->links[node];
	struct pending pending = {request->token, proc_now(world, process) + world->config.max_ttl_us, request->entry,
				  request->wait_ms, request->key};
	if (link->state != LINK_UP || !pending_send(world, proc, node, &pending))
		pending_push(link, &pending);
}

static void send_pending(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = link_of(world, proc, node);
	uint64_t now_us = proc_now(world, &world->procs[proc]);
	unsigned count = link->pending_count;
	struct pending pending[PENDING];
	for (unsigned i = 0; i < count; i++)
		pending[i] = link->pending[i];
	link->pending_count = 0;
	for (unsigned i = 0; i < count; i++)
		if (pending[i].until_us > now_us && !pending_send(world, proc, node, &pending[i]))
			pending_push(link, &pending[i]);
}

/* ---- the end of a connection ---- */

/* An entry that is to be kept is taken again by the next attempt. */
static void pend_lost(struct world *world, unsigned proc, unsigned node, struct request request)
{
	if (request.wait_ms > 0 && !request.pending) {
		request.entry = (struct model_entry){0};
		request.wait_ms = 0;
	}
	if (request.token != 0 || request.entry.replica != 0)
		link_pend(world, proc, node, &request);
}

/* Every command under way is told to be lost, in order. */
static void drop_requests(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = link_of(world, proc, node);
	while (link->request_count > 0) {
		struct request request = link->requests[link->first_command];
		link->first_command = (uint8_t)((link->first_command + 1) % REQUESTS);
		link->request_count--;
		if (request.what == REDLOCK_SCRIPT_RELEASE && !request.forgettable)
			pend_lost(world, proc, node, request);
		if (request.op != NONE)
			op_vote(world, proc, &request, node, REDLOCK_VOTE_FAILED, NULL);
	}
}

void link_lost(struct world *world, unsigned proc, unsigned node, bool hard)
{
	struct link *link = link_of(world, proc, node);
	bool was_up = link->state == LINK_UP;
	if (link->state == LINK_DOWN)
		return;
	TELL(world, "p%u: connection to master %u is gone", proc, node);
	net_cut(world, proc, node, hard);
	link->state = LINK_DOWN;
	link->hung = false;
	link->timer++;
	if (was_up)
		guarding_event(world, proc, node, GUARD_LOST);
	drop_requests(world, proc, node);
	try_later(world, proc, node);
}

/* ---- sending ---- */

bool link_push(struct world *world, unsigned proc, unsigned node, const struct request *request,
	       const struct model_command *command)
{
	struct link *link = link_of(world, proc, node);
	assert(link->state != LINK_DOWN);
	if (link->request_count == REQUESTS)
		return false;
	link->requests[(link->first_command + link->request_count++) % REQUESTS] = *request;
	if (link->request_count > world->figures->fullest_requests)
		world->figures->fullest_requests = link->request_count;
	struct event *event = event_new(world, EVENT_COMMAND);
	event->what = request->what;
	event->run_at = request->latest;
	event->u.command = *command;
	net_send(world, proc, node, event);
	return true;
}

static bool is_behind(const struct world *world, const struct link *link, uint64_t when_us)
{
	const struct request *oldest = &link->requests[link->first_command];
	return link->request_count > 0 && when_us > oldest->sent_us &&
	       when_us - oldest->sent_us >= world->config.timeout_us;
}

static enum sent sendable(struct world *world, unsigned proc, unsigned node)
{
	struct proc *process = &world->procs[proc];
	struct link *link = &process->links[node];
	if (link->state != LINK_UP)
		return SENT_NOT;
	if (!link->hung && is_behind(world, link, process->looked_us))
		link->hung = true;
	if (link->hung)
		return SENT_NOT;
	return guard_may_vote(&process->guard, node) && !link->evicts ? SENT : SENT_QUARANTINED;
}

bool link_is_reachable(const struct link *link)
{
	return link->state == LINK_UP && !link->hung;
}

/* A key that is set after the end of the lease could bring it back to life. */
static uint64_t useful_us(const struct world *world, const struct request *request, const struct model_command *command)
{
	uint64_t ttl_us = command->ttl_ms * MS, timeout_us = world->config.timeout_us;
	if (request->what != REDLOCK_SCRIPT_ACQUIRE || ttl_us - drift_of(world, ttl_us) >= timeout_us)
		return timeout_us;
	return ttl_us - drift_of(world, ttl_us);
}

/* A lock script: with the epoch, and the master's own time until which anybody cares. */
enum sent link_send(struct world *world, unsigned proc, unsigned node, const struct request *request,
		    struct model_command *command)
{
	struct proc *process = &world->procs[proc];
	struct request mine = *request;
	enum sent sent = sendable(world, proc, node);
	if (sent != SENT)
		return sent;
	mine.sent_us = proc_now(world, process);
	mine.epoch = process->guard.masters[node].epoch;
	command->epoch = mine.epoch;
	command->deadline_us = guard_master_time_us(&process->guard, node,
						    mine.sent_us + useful_us(world, request, command));
	uint64_t there_us = clock_read(&world->nodes[node].clock, world->now); /* which nobody knows */
	mine.latest = world->now + (command->deadline_us > there_us ? command->deadline_us - there_us : 0);
	return link_push(world, proc, node, &mine, command) ? SENT : SENT_NOT;
}

void link_note_silence(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = link_of(world, proc, node);
	if (link->state == LINK_UP && is_behind(world, link, proc_now(world, &world->procs[proc])))
		link->hung = true;
}

/* ---- heartbeat ---- */

static void send_heartbeat(struct world *world, unsigned proc, unsigned node)
{
	struct proc *process = &world->procs[proc];
	struct link *link = &process->links[node];
	struct request request = {.sent_us = proc_now(world, process), .op = NONE, .what = WHAT_HEARTBEAT};
	struct model_command command = {.digest = process->guard.params.digest,
					.ttl_ms = guard_longest_us(&process->guard) / 1000};
	command.evicted = link->evicted + 1;
	command.compared = link->knows_evicted;
	link->heartbeat_out = link_push(world, proc, node, &request, &command);
	link->heartbeat_due = false;
}

void link_heartbeat(struct world *world, unsigned proc, unsigned node, uint32_t serial)
{
	struct proc *process = &world->procs[proc];
	struct link *link = &process->links[node];
	if (link->timer != serial || link->state != LINK_UP)
		return;
	proc_round(world, process);
	if (!link->heartbeat_out) {
		send_heartbeat(world, proc, node);
		arm_heartbeat(world, proc, node, world->config.timeout_us + MS);
		return;
	}
	if (!link->heartbeat_due) {
		link->heartbeat_due = true;
		arm_heartbeat(world, proc, node, MS);
		return;
	}
	link->heartbeat_due = false;
	link_note_silence(world, proc, node);
	uint64_t behind_us = link->request_count > 0
				     ? proc_now(world, process) - link->requests[link->first_command].sent_us
				     : 0;
	if (link->hung && behind_us > world->config.max_ttl_us)
		link_lost(world, proc, node, false);
	else
		arm_heartbeat(world, proc, node, HEARTBEAT_MS * MS);
}

/* ---- replies ---- */

/* Reads INFO: whether keys may be dropped, and whether some were since the last time on this connection. */
static void judge_info(struct world *world, unsigned proc, const struct event *event)
{
	struct link *link = link_of(world, proc, event->node);
	const struct answer *answer = &event->u.answer;
	bool grew = link->knows_evicted && answer->evicted > link->evicted;
	link->evicts = answer->evicts;
	link->evicted = answer->evicted;
	link->info_at = event->run_at;
	if (grew)
		guarding_event(world, proc, event->node, GUARD_DROPPED_KEYS);
}

static void take_handshake(struct world *world, unsigned proc, const struct event *event)
{
	unsigned node = event->node;
	struct link *link = link_of(world, proc, node);
	link->state = LINK_UP;
	link->backoff_ms = BACKOFF_MIN_MS;
	link->knows_evicted = false;
	judge_info(world, proc, event);
	guarding_connected(world, proc, node, &event->u.answer);
	guarding_pump(world, proc);
	send_pending(world, proc, node);
	arm_heartbeat(world, proc, node, HEARTBEAT_MS * MS);
}

/* From the first element of the reply to a vote. What a master that may not vote any more says does not count, though
 * it was asked when it might: it may have been carried out after whatever it was that quarantined it. */
static enum redlock_vote map_reply(struct world *world, unsigned proc, unsigned node, const struct request *request,
				   const struct model_reply *reply)
{
	const struct guard_master *master = &world->procs[proc].guard.masters[node];
	switch (reply->code) {
	case -2: world->figures->late++; return REDLOCK_VOTE_FAILED;
	case -3:
		world->figures->bad_epochs++;
		guarding_mismatch(world, proc, node, request->epoch);
		return REDLOCK_VOTE_QUARANTINED;
	case -4: return REDLOCK_VOTE_FAILED;
	default: break;
	}
	if (master->state != GUARD_VOTING || master->epoch != request->epoch)
		return REDLOCK_VOTE_FAILED;
	switch (reply->code) {
	case 1: return REDLOCK_VOTE_GRANTED;
	case 2: return request->what == REDLOCK_SCRIPT_ACQUIRE ? REDLOCK_VOTE_QUEUED : REDLOCK_VOTE_BEHIND;
	case 0: return REDLOCK_VOTE_HELD;
	default: return REDLOCK_VOTE_GONE;
	}
}

static void take_vote(struct world *world, unsigned proc, const struct request *request, const struct event *event)
{
	const struct model_reply *reply = &event->u.answer.script;
	if (request->op != NONE && reply->code == 1 && request->what != REDLOCK_SCRIPT_RAISE)
		check_counted(world, proc, event, &world->procs[proc].ops[request->op]);
	enum guard_clock clock = guarding_time(world, proc, request->sent_us, event);
	if (request->pending) {
		if (clock != GUARD_CLOCK_STEADY)
			guarding_pump(world, proc);
		return;
	}
	enum redlock_vote vote = map_reply(world, proc, event->node, request, reply);
	if (clock == GUARD_CLOCK_JUMPED_FORWARD)
		vote = REDLOCK_VOTE_FAILED;
	if (clock != GUARD_CLOCK_STEADY)
		guarding_pump(world, proc);
	op_vote(world, proc, request, event->node, vote, reply);
}

void link_reply(struct world *world, struct event *event)
{
	struct proc *process = &world->procs[event->proc];
	struct link *link = &process->links[event->node];
	proc_round(world, process);
	trace(world, world->now, (uint64_t)event->what << 32 | (uint64_t)event->proc << 16 | event->node, 1);
	if (event->what == WHAT_RESET) {
		link_lost(world, event->proc, event->node, true);
		return;
	}
	if (event->what == WHAT_ALIVE) {
		queue_forgotten(world, event->proc, event->node);
		return;
	}
	assert(link->request_count > 0);
	struct request request = link->requests[link->first_command];
	assert(request.what == event->what);
	link->first_command = (uint8_t)((link->first_command + 1) % REQUESTS);
	link->request_count--;
	if (link->hung && !is_behind(world, link, proc_now(world, process)))
		link->hung = false;
	if (request.what == WHAT_HANDSHAKE) {
		take_handshake(world, event->proc, event);
	} else if (request.what <= REDLOCK_SCRIPT_INSPECT) {
		take_vote(world, event->proc, &request, event);
	} else {
		if (request.what == WHAT_HEARTBEAT) {
			link->heartbeat_out = false;
			judge_info(world, event->proc, event);
			arm_heartbeat(world, event->proc, event->node, HEARTBEAT_MS * MS);
		}
		guarding_answer(world, event->proc, event->node, &request, event);
	}
}
