/* SPDX-License-Identifier: MIT */
/* What a redlockd sees of its masters, for the checks: noted when an answer or a notification is handed over, before
 * the daemon acts on it. */
#include <stdlib.h>
#include <string.h>

#include "daemon_world.h"

/* A clock that went forward and back between two answers is as it was: no answer can show it. */
void check_jumped(struct world *world, unsigned index, int64_t by_us)
{
	for (unsigned p = 0; p < world->config.procs; p++) {
		struct link *link = &world->procs[p].links[index];
		if (by_us > 0)
			link->ahead_unseen = true;
		else if (link->ahead_unseen)
			link->hidden_at = world->now;
	}
}

static const struct guard_master *guarded(const struct world *world, unsigned proc, unsigned node)
{
	return &world->procs[proc].masters->guard.masters[node];
}

/* Clocks that only run unlike within their bounds raise no alarm. A jump of a few ms may be found late, when an answer
 * is fast enough to show it. */
static void check_jump_seen(struct world *world, unsigned proc, unsigned node, bool forward)
{
	int64_t jump_us = guarded(world, proc, node)->jump_us;
	TELL(world, "p%u: the clock of master %u jumped by %lld us", proc, node, (long long)jump_us);
	world->figures->jumps_seen++;
	if (world->nodes[node].jump_at == 0)
		fail(world, "false alarm: p%u sees the clock of master %u jump by %lld us", proc, node,
		     (long long)jump_us);
	if (!world->healing || !forward || jump_us >= 50000)
		return;
	world->late_jump = true;
	order_trouble(world); /* until all masters vote again */
}

/* How large a jump forward could be at most that a vote read now would not show. */
static int64_t slack_of(const struct world *world, unsigned proc, unsigned index)
{
	const struct node *node = &world->nodes[index];
	const struct guard_master *master = guarded(world, proc, index);
	uint64_t now_us = proc_now(world, &world->procs[proc]);
	int64_t parted = (int64_t)((now_us - master->clock_us) / 1000);
	int64_t ahead = (int64_t)(clock_read(&node->clock, world->now) - now_us);
	return master->ahead_max_us + parted + (int64_t)MS - ahead;
}

static void note_vote(struct world *world, unsigned proc, unsigned index, const struct command *command)
{
	const struct node *node = &world->nodes[index];
	const struct link *link = &world->procs[proc].links[index];
	if (command->answer.code != 1 || command->kind == REDLOCK_SCRIPT_RAISE || command->request.token == 0)
		return;
	world->trails[command->request.token].sights[index] = (struct sight){
		link->info_at,     link->saw_rolled,
		link->clock_since, link->hidden_at,
		node->jumped_us,   node->jumped_back_us,
		command->run_at,   node->jumped_us != 0 ? slack_of(world, proc, index) : 0};
}

static void note_script(struct world *world, unsigned proc, unsigned index, const struct command *command)
{
	struct link *link = &world->procs[proc].links[index];
	if (!guarded(world, proc, index)->has_clock)
		link->clock_since = world->now;
	if (command->kind == COMMAND_EPOCH) {
		bool counted = command->answer.epoch == 0 || command->answer.run_id == link->seen_run_id;
		if (command->answer.beat < link->seen_beat + counted)
			link->saw_rolled = world->now;
		link->seen_beat = command->answer.beat;
	}
	if (command->kind <= REDLOCK_SCRIPT_RELEASE)
		note_vote(world, proc, index, command);
	world->figures->bad_epochs += command->answer.code == -3;
	if (command->run_at >= world->nodes[index].jump_at)
		link->ahead_unseen = false;
}

static void note_info(struct link *link, const struct command *command)
{
	link->info_at = command->run_at;
	if (link->seen_run_id == command->run_id)
		return;
	link->seen_run_id = command->run_id;
	link->seen_beat = link->seen_client_id = 0;
}

static void note_missed(struct world *world, unsigned proc)
{
	world->figures->missed_notifications++;
	order_first(world, proc, (UINT32_C(1) << world->config.keys) - 1);
}

/* Those that wait may try when a master votes again. */
void sight_of_quorum(struct world *world, unsigned index)
{
	struct proc *proc = &world->procs[index];
	struct quorum_status quorum;
	masters_quorum(proc->masters, &quorum);
	if (quorum.voting > proc->voting)
		note_missed(world, index);
	proc->voting = quorum.voting;
}

void sight_before(struct world *world, const struct transport_connection *connection, const struct command *command)
{
	struct link *link = &world->procs[connection->proc].links[connection->node];
	if (command->kind == COMMAND_INFO) {
		note_info(link, command);
	} else if (command->kind == COMMAND_CLIENT_ID) {
		if (command->client_id <= link->seen_client_id)
			link->saw_rolled = world->now;
		link->seen_client_id = command->client_id;
	} else if (command->kind == COMMAND_ALIVE && !command->code) {
		note_missed(world, connection->proc);
	} else if (command->kind > COMMAND_OK && command->kind < SCRIPTS_COUNT && !command->no_script) {
		for (const struct command *part = command; part; part = command_part(world, part->also))
			note_script(world, connection->proc, connection->node, part);
		const struct trail *trail = &world->trails[command->request.token];
		if (command->request.token != 0 && trail->call != NONE)
			world->cause_arg = &world->calls[trail->call];
	}
}

/* Has it noticed that the clock jumped? */
void sight_after(struct world *world, const struct transport_connection *connection, const struct command *command)
{
	struct proc *proc = &world->procs[connection->proc];
	if (command->kind == COMMAND_OK || command->kind >= SCRIPTS_COUNT)
		return;
	for (unsigned back = 0; back < 2; back++) {
		uint64_t jumps = metrics_load(&proc->metrics->masters[connection->node].clock_jumps[back]);
		uint64_t *known = &proc->links[connection->node].jumps[back];
		if (jumps != *known)
			check_jump_seen(world, connection->proc, connection->node, !back);
		*known = jumps;
	}
}

/* A command is about to be sent. */
void sight_sent(struct world *world, const struct command *command)
{
	const struct trail *trail = &world->trails[command->request.token];
	if (command->kind != REDLOCK_SCRIPT_RAISE || trail->call == NONE)
		return;
	struct call *call = &world->calls[trail->call];
	if (call->used && call->serial == trail->call_serial)
		call->raised_at = world->now;
}

struct lease_op *first_of(const struct world *world, unsigned proc, unsigned key)
{
	const char *name = key_name(world, key);
	const struct masters_notification other = {.resource = name, .resource_len = strlen(name)};
	struct lease_waiter *waiters;
	bool any = lease_queue_list(world->procs[proc].leases, &other, &waiters) > 0;
	struct lease_op *first = any ? waiters[0].op : NULL;
	free(waiters);
	return first;
}

/* Another shared one that a message notifies, too. */
static bool is_up_to_last(const struct call *call, const struct notification *notification)
{
	return call->request.mode == LEASE_SHARED && call->op->core.arrival <= notification->last;
}

static void notify_up_to_last(struct world *world, const struct transport_connection *connection,
			      const struct notification *notification)
{
	for (unsigned i = 0; i < CALLS; i++) {
		struct call *call = &world->calls[i];
		if (!call->used || !call->waits || !call->op || call->proc != connection->proc ||
		    !(call->names >> notification->key & 1) || !is_up_to_last(call, notification))
			continue;
		order_notified(call, connection->node, notification);
		world->figures->notified++;
	}
}

void notification_before(struct world *world, const struct transport_connection *connection,
			 const struct notification *notification)
{
	const struct proc *proc = &world->procs[connection->proc];
	if (!notification->text) {
		note_missed(world, connection->proc);
		return;
	}
	world->cause = CAUSE_MESSAGE;
	world->cause_arg = NULL;
	if (notification->entry.arrival == 0)
		return; /* it names no waiter */
	if (notification->last != 0)
		notify_up_to_last(world, connection, notification);
	if (notification->entry.replica != proc->replica) {
		const struct lease_op *first = first_of(world, connection->proc, notification->key);
		struct call *call = first && first->caller.done ? call_of(world, first->caller.arg) : NULL;
		if (call && is_up_to_last(call, notification))
			return;
		world->figures->passed += call != NULL;
		if (call)
			order_passed(world, call, &first->core, connection->node);
		return;
	}
	struct call *call = call_waiting(world, notification->key, notification->entry);
	world->figures->stale_entries += call == NULL;
	world->figures->notified += call != NULL;
	world->cause = CAUSE_MESSAGE;
	world->cause_arg = call;
	if (call)
		order_notified(call, connection->node, notification);
}

/* ---- places in queues ---- */

bool sight_has_place(const struct world *world, unsigned key)
{
	for (unsigned i = 0; i < world->config.nodes; i++) {
		const struct node *node = &world->nodes[i];
		const struct store_key *queue = node_queue(node, key);
		size_t at = 0;
		while (queue && at < queue->count && !node_is_alive(node, node_entry(queue, at).replica))
			at++;
		if (queue && at < queue->count && entry_is_place(node_entry(queue, at)))
			return true;
	}
	return false;
}

bool sight_is_left(const struct node *node, const struct store_key *queue)
{
	for (size_t i = 0; i < queue->count; i++)
		if (!entry_is_place(node_entry(queue, i)) || node_is_alive(node, node_entry(queue, i).replica))
			return true;
	return false;
}
