/* SPDX-License-Identifier: MIT */
/* server/transport/transport.h in virtual time: the timers and the process's end of its connections. What the daemon
 * sends becomes commands of the masters at once (daemon_words.c), and leaves with the next flush; answers
 * become replies of hiredis when they are handed over (daemon_reply.c). */
#include <assert.h>
#include <string.h>

#include "daemon_world.h"

static struct world *const world = &world_of_all;

static unsigned current(void)
{
	assert(world->current < PROCS);
	return world->current;
}

/* ---- timers ---- */

struct transport_timer *transport_timer_new(struct uv_loop_s *loop, transport_timer_fn *fire, void *arg)
{
	uint16_t slot = world->first_free_timer;
	(void)loop;
	if (slot != NONE)
		world->first_free_timer = world->timers[slot].next_free;
	else
		slot = world->used_timers++;
	assert(slot < TIMERS);
	struct transport_timer *timer = &world->timers[slot];
	timer->proc = (uint8_t)current();
	timer->fire = fire;
	timer->arg = arg;
	timer->due = timer->queued_at = NEVER;
	timer->serial++;
	return timer;
}

static void timer_push(struct transport_timer *timer)
{
	struct event *event = event_new(world, EVENT_TIMER);
	event->proc = timer->proc;
	event->a = (uint16_t)(timer - world->timers);
	event->serial = ++timer->serial;
	timer->queued_at = timer->due > world->now ? timer->due : world->now;
	event_push(world, event, timer->queued_at);
}

/* The loop counts in whole ms, from its last look at the clock. An event that comes too early is asked for once more,
 * so that a timer that is moved back again and again costs nothing. */
void transport_timer_start(struct transport_timer *timer, uint64_t delay_ms)
{
	const struct proc *proc = &world->procs[current()];
	uint64_t now_us = world->here_us, due_us = (now_us / 1000 + delay_ms) * 1000;
	assert(timer->proc == world->current && timer->fire);
	timer->due = world->now + 1 + (due_us > now_us ? proc_true_after(proc, due_us - now_us) : 0);
	if (timer->queued_at == NEVER || timer->queued_at > timer->due)
		timer_push(timer);
}

void transport_timer_stop(struct transport_timer *timer)
{
	timer->due = NEVER;
}

void transport_timer_free(struct transport_timer *timer)
{
	timer->due = timer->queued_at = NEVER;
	timer->serial++;
	timer->fire = NULL;
	timer->next_free = world->first_free_timer;
	world->first_free_timer = (uint16_t)(timer - world->timers);
}

/* EVENT_TIMER: false where it is not meant any more. */
bool transport_timer_is_due(const struct event *event)
{
	struct transport_timer *timer = &world->timers[event->a];
	if (timer->serial != event->serial)
		return false;
	timer->queued_at = NEVER;
	if (timer->due == NEVER)
		return false;
	if (timer->due > world->now) {
		timer_push(timer);
		return false;
	}
	return true;
}

void transport_timer_fire(const struct event *event)
{
	struct transport_timer *timer = &world->timers[event->a];
	if (timer->due > world->now || !timer->fire)
		return; /* stopped meanwhile: the event was held up by a pause */
	timer->due = NEVER;
	world->cause = CAUSE_TIMER;
	world->cause_arg = timer->arg;
	trace(world, world->now, EVENT_TIMER, event->a);
	timer->fire(timer->arg);
}

/* ---- connections: opening and closing ---- */

struct transport_connection *transport_connect(struct uv_loop_s *loop, const struct address *address, unsigned attempt,
					       const struct transport_connection *beside,
					       const struct transport_events *events, void *arg)
{
	unsigned proc = current(), node = address->port;
	(void)loop, (void)attempt;
	assert(node < world->config.nodes && (!beside || beside->node == node));
	struct transport_connection *connection = connection_new(world, proc, node);
	connection->is_second = beside != NULL;
	connection->events = events;
	connection->arg = arg;
	connection->there_at = connection->back_at = world->now;
	net_there(world, net_message(world, connection, EVENT_CONNECT));
	return connection;
}

unsigned transport_address_count(const struct transport_connection *connection)
{
	(void)connection;
	return 0;
}

bool transport_is_resolving(const struct transport_connection *connection)
{
	(void)connection;
	return false;
}

bool transport_is_in_tls_handshake(const struct transport_connection *connection)
{
	(void)connection;
	return false;
}

static struct command *shift_waiting(struct transport_connection *connection)
{
	struct command *command = STAILQ_FIRST(&connection->waiting);
	STAILQ_REMOVE_HEAD(&connection->waiting, waiting);
	command->waits = false;
	return command;
}

static void drop_unsent(struct transport_connection *connection)
{
	uint16_t slot = connection->first_unsent;
	connection->first_unsent = connection->last_unsent = NONE;
	commands_drop(world, slot);
}

/* Every command without an answer gets none. */
static void drain(struct transport_connection *connection)
{
	drop_unsent(connection);
	while (!STAILQ_EMPTY(&connection->waiting)) {
		command_free(world, shift_waiting(connection));
		connection->events->answered(connection->arg, NULL);
		drop_unsent(connection);
	}
}

void transport_close(struct transport_connection *connection)
{
	if (connection->state == CONNECTION_CLOSED)
		return;
	bool graceful = !world->muted && !connection->ending;
	if (!connection->ending) {
		connection->state = CONNECTION_CLOSED;
		net_cut(world, connection, false);
		if (graceful && world->procs[connection->proc].draining)
			connection->cut = connection->sent;
	}
	connection->state = CONNECTION_CLOSED;
	if (connection->in_callback || connection->ending)
		return;
	connection->in_callback = true;
	drain(connection);
	connection->in_callback = false;
	connection_free(world, connection);
}

/* It ends by itself. */
static void end(struct transport_connection *connection, bool hard)
{
	connection->ending = true;
	net_cut(world, connection, hard);
	drain(connection);
	bool told = connection->state != CONNECTION_CLOSED;
	connection->state = CONNECTION_CLOSED;
	TELL(world, "p%u: %sconnection to master %u is gone", connection->proc,
	     connection->is_second ? "the second " : "", connection->node);
	if (told)
		connection->events->ended(connection->arg, "connection: closed", TRANSPORT_LOST);
	drain(connection);
	connection->ending = false;
	connection_free(world, connection);
}

void transport_lose(struct world *of, struct transport_connection *connection, bool hard)
{
	proc_enter(of, connection->proc);
	end(connection, hard);
	proc_leave(of);
}

/* ---- sending ---- */

static void make_dirty(struct transport_connection *connection)
{
	if (connection->dirty)
		return;
	connection->dirty = true;
	connection->next_dirty = world->dirty;
	world->dirty = (uint16_t)(connection - world->connections);
}

void transport_send(struct transport_connection *connection, size_t count, const struct transport_word words[])
{
	assert(connection->proc == current() && connection->state != CONNECTION_FREE && !connection->is_second);
	struct command *command = words_parse(world, connection, count, words);
	uint16_t slot = (uint16_t)(command - world->commands);
	sight_sent(world, command);
	world->figures->commands++;
	command->waits = true;
	STAILQ_INSERT_TAIL(&connection->waiting, command, waiting);
	if (connection->state == CONNECTION_CLOSED || connection->ending)
		return;
	command->number = ++connection->sent;
	command->travels = true;
	if (connection->last_unsent == NONE)
		connection->first_unsent = slot;
	else
		world->commands[connection->last_unsent].next = slot;
	connection->last_unsent = slot;
	make_dirty(connection);
}

void transport_subscribe(struct transport_connection *connection, const char *channel)
{
	assert(connection->proc == current() && connection->is_second && channel);
	connection->subscribes = true;
	make_dirty(connection);
}

static void send_commands(struct transport_connection *connection, uint16_t first)
{
	struct event *event = net_message(world, connection, EVENT_COMMANDS);
	event->a = first;
	net_there(world, event);
}

static bool subscribes(const struct transport_connection *connection)
{
	return connection->subscribes && connection->sent == 0;
}

static __attribute__((noinline)) void flush(struct transport_connection *connection)
{
	uint16_t first = connection->first_unsent;
	if (subscribes(connection)) {
		connection->sent = 1;
		send_commands(connection, NONE);
	}
	if (first == NONE)
		return;
	connection->first_unsent = connection->last_unsent = NONE;
	uint16_t rest = world->commands[first].next;
	if (rest != NONE && one_of(world, 8)) { /* in two pieces */
		world->commands[first].next = NONE;
		send_commands(connection, first);
		first = rest;
	}
	send_commands(connection, first);
}

/* At the end of a round every master is flushed: most have nothing to send. */
void transport_flush(struct transport_connection *connection)
{
	bool some = connection->first_unsent != NONE || subscribes(connection);
	if (some && connection->state == CONNECTION_OPEN && !connection->ending)
		flush(connection);
}

void transport_flush_all(void)
{
	while (world->dirty != NONE) {
		struct transport_connection *connection = &world->connections[world->dirty];
		world->dirty = connection->next_dirty;
		connection->dirty = false;
		if (!world->muted)
			transport_flush(connection);
	}
}

bool transport_has_unread(const struct transport_connection *connection)
{
	return !STAILQ_EMPTY(&connection->back) && !world->procs[connection->proc].links[connection->node].block_back;
}

/* ---- arriving ---- */

static void hand_over_answers(struct transport_connection *connection, uint16_t slot)
{
	for (; slot != NONE && connection->state != CONNECTION_CLOSED; slot = world->commands[slot].next) {
		struct command *command = shift_waiting(connection);
		assert(command == &world->commands[slot]);
		world->cause = CAUSE_REPLY;
		world->cause_arg = NULL;
		sight_before(world, connection, command);
		connection->events->answered(connection->arg, reply_make(command));
		sight_after(world, connection, command);
	}
}

void transport_arrive(struct world *of, struct transport_connection *connection, const struct event *event)
{
	bool nested = world->current != PROCS;
	if (!nested)
		proc_enter(of, connection->proc);
	world->cause = CAUSE_OTHER;
	trace(world, world->now, (uint64_t)event->kind << 32 | (uint64_t)event->proc << 16 | event->node, event->a);
	if (event->kind == EVENT_RESET) {
		end(connection, true);
	} else {
		connection->in_callback = true;
		if (event->kind == EVENT_CONNECTED) {
			connection->state = CONNECTION_OPEN;
			connection->events->connected(connection->arg);
			make_dirty(connection);
		} else if (event->kind == EVENT_ANSWERS) {
			hand_over_answers(connection, event->a);
		} else {
			notification_before(world, connection, &event->notification);
			connection->events->answered(connection->arg, reply_make_message(&event->notification));
		}
		connection->in_callback = false;
		if (connection->state == CONNECTION_CLOSED)
			drain(connection);
	}
	if (!nested)
		proc_leave(of);
}
