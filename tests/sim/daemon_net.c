/* SPDX-License-Identifier: MIT */
/* The network of the simulator: ordered connections and their faults.
 *
 * A connection keeps the order of its messages, each way; messages of different connections arrive in any order. A
 * partition, or a receiver that stands still, delays all; a message is lost only with its connection. When the end of
 * the process closes, commands on their way may still be carried out, up to some command, and late. When the master
 * dies, commands that it had not read are lost. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon_world.h"

/* ---- memory ---- */

struct command *command_new(struct world *world)
{
	uint16_t slot = world->free_command_count > 0 ? world->free_commands[--world->free_command_count]
						      : world->used_commands++;
	assert(slot < COMMANDS);
	struct command *command = &world->commands[slot];
	memset(command, 0, sizeof *command);
	command->next = command->also = NONE;
	return command;
}

void command_free(struct world *world, struct command *command)
{
	if (command->waits || command->travels)
		return;
	free(command->sent);
	free(command->reply);
	command->sent = NULL;
	command->reply = NULL;
	for (uint16_t slot = (uint16_t)(command - world->commands); slot != NONE; slot = world->commands[slot].also)
		world->free_commands[world->free_command_count++] = slot;
}

void commands_init(struct world *world)
{
	for (unsigned i = 0; i < world->used_commands; i++) {
		free(world->commands[i].sent);
		free(world->commands[i].reply);
		world->commands[i].sent = NULL;
		world->commands[i].reply = NULL;
	}
	world->free_command_count = world->used_commands = 0;
}

void commands_drop(struct world *world, uint16_t slot)
{
	while (slot != NONE) {
		struct command *command = &world->commands[slot];
		slot = command->next;
		command->travels = false;
		command_free(world, command);
	}
}

struct transport_connection *connection_new(struct world *world, unsigned proc, unsigned node)
{
	uint16_t slot = world->free_connection_count > 0 ? world->free_connections[--world->free_connection_count]
							 : world->used_connections++;
	assert(slot < CONNECTIONS);
	struct transport_connection *connection = &world->connections[slot];
	*connection = (struct transport_connection){.state = CONNECTION_CONNECTING,
						    .proc = (uint8_t)proc,
						    .node = (uint8_t)node,
						    .next_dirty = NONE,
						    .serial = ++world->next_serial,
						    .made_at = world->now,
						    .first_unsent = NONE,
						    .last_unsent = NONE};
	STAILQ_INIT(&connection->waiting);
	STAILQ_INIT(&connection->there);
	STAILQ_INIT(&connection->back);
	return connection;
}

/* Closed, and nothing of it is on its way any more. */
void connection_free(struct world *world, struct transport_connection *connection)
{
	if (connection->state != CONNECTION_CLOSED || connection->messages > 0 || connection->in_callback ||
	    connection->ending)
		return;
	connection->state = CONNECTION_FREE;
	world->free_connections[world->free_connection_count++] = (uint16_t)(connection - world->connections);
}

/* ---- sending ---- */

/* How long a message takes. */
static uint64_t delay(struct world *world)
{
	const struct config *config = &world->config;
	uint64_t delay_us = (config->delay_us + below(world, config->jitter_us)) * world->slow;
	if (!world->healing && one_of(world, config->straggler))
		delay_us += spread(world, 1 + config->straggler_us / 64, 1 + config->straggler_us);
	return delay_us;
}

struct event *net_message(struct world *world, struct transport_connection *connection, enum event_kind kind)
{
	struct event *event = event_new(world, kind);
	event->connection = (uint16_t)(connection - world->connections);
	event->a = NONE;
	event->serial = connection->serial;
	event->proc = connection->proc;
	event->node = connection->node;
	connection->messages++;
	return event;
}

static void send_in_order(struct world *world, struct event *event, uint64_t *last_at)
{
	uint64_t at = world->now + delay(world);
	if (at < *last_at)
		at = *last_at;
	*last_at = at;
	event_push(world, event, at);
}

void net_there(struct world *world, struct event *event)
{
	send_in_order(world, event, &world->connections[event->connection].there_at);
}

void net_back(struct world *world, struct event *event)
{
	send_in_order(world, event, &world->connections[event->connection].back_at);
}

void net_reset(struct world *world, struct transport_connection *connection)
{
	if (connection->state != CONNECTION_CLOSED)
		net_back(world, net_message(world, connection, EVENT_RESET));
}

/* The process's end is closed: of what is under way some, all or none is still carried out. */
void net_cut(struct world *world, struct transport_connection *connection, bool hard)
{
	uint32_t sent = connection->sent;
	connection->cut = 0;
	if (!hard)
		connection->cut = one_of(world, 3) ? sent - (uint32_t)below(world, 1 + (sent < 8 ? sent : 8)) : sent;
}

/* ---- arriving ---- */

static void message_free(struct world *world, struct event *event)
{
	struct transport_connection *connection = &world->connections[event->connection];
	assert(connection->messages > 0 && connection->serial == event->serial);
	connection->messages--;
	event_free(world, event);
	connection_free(world, connection);
}

/* What was cut off goes; false: nothing is left. */
static bool cut_off(struct world *world, const struct transport_connection *connection, struct event *event)
{
	uint16_t *at = &event->a;
	if (connection->state != CONNECTION_CLOSED)
		return true;
	while (*at != NONE && world->commands[*at].number <= connection->cut)
		at = &world->commands[*at].next;
	commands_drop(world, *at);
	*at = NONE;
	return event->a != NONE;
}

/* The sender's kernel is patient: what was sent before the end may come late. */
static bool is_retimed(struct world *world, struct transport_connection *connection, struct event *event)
{
	if (connection->state != CONNECTION_CLOSED || event->retimed || !one_of(world, 2))
		return false;
	uint64_t at = world->now + spread(world, 1, 2 * SECOND);
	event->retimed = true;
	connection->stale_at = at > connection->stale_at ? at : connection->stale_at;
	event_push(world, event, connection->stale_at);
	return true;
}

static void take_connection(struct world *world, struct transport_connection *connection)
{
	const struct node *node = &world->nodes[connection->node];
	connection->accepted = node->up;
	connection->incarnation = node->incarnation;
	if (!node->up)
		net_reset(world, connection);
	else if (connection->state != CONNECTION_CLOSED)
		net_back(world, net_message(world, connection, EVENT_CONNECTED));
}

static void reach_node(struct world *world, struct event *event)
{
	struct transport_connection *connection = &world->connections[event->connection];
	const struct node *node = &world->nodes[event->node];
	if (event->kind == EVENT_CONNECT) {
		take_connection(world, connection);
	} else if (!node->up || node->incarnation != connection->incarnation) {
		if (node->up)
			net_reset(world, connection);
		commands_drop(world, event->a);
	} else if (!cut_off(world, connection, event)) {
		/* nothing is left */
	} else if (is_retimed(world, connection, event)) {
		return;
	} else {
		node_commands(world, connection, event->a);
	}
	message_free(world, event);
}

static void reach_proc(struct world *world, struct event *event)
{
	struct transport_connection *connection = &world->connections[event->connection];
	if (connection->state != CONNECTION_CLOSED)
		transport_arrive(world, connection, event);
	if (event->kind == EVENT_ANSWERS)
		commands_drop(world, event->a);
	message_free(world, event);
}

static bool is_there(const struct event *event)
{
	return event->kind == EVENT_CONNECT || event->kind == EVENT_COMMANDS;
}

void net_arrive(struct world *world, struct event *event)
{
	struct transport_connection *connection = &world->connections[event->connection];
	const struct link *link = &world->procs[event->proc].links[event->node];
	assert(connection->serial == event->serial);
	if (is_there(event)) {
		bool stands = world->nodes[event->node].stopped && event->kind == EVENT_COMMANDS;
		if (link->block_there || stands || !STAILQ_EMPTY(&connection->there))
			STAILQ_INSERT_TAIL(&connection->there, event, entry);
		else
			reach_node(world, event);
	} else if (link->block_back || world->procs[event->proc].paused || !STAILQ_EMPTY(&connection->back)) {
		STAILQ_INSERT_TAIL(&connection->back, event, entry);
	} else {
		reach_proc(world, event);
	}
}

static void let_go(struct world *world, struct held *held)
{
	struct held all = STAILQ_HEAD_INITIALIZER(all);
	struct event *event;
	STAILQ_CONCAT(&all, held);
	while ((event = STAILQ_FIRST(&all))) {
		STAILQ_REMOVE_HEAD(&all, entry);
		net_arrive(world, event);
	}
}

static void flow_connection(struct world *world, struct transport_connection *connection)
{
	const struct link *link = &world->procs[connection->proc].links[connection->node];
	if (!STAILQ_EMPTY(&connection->there) && !link->block_there && !world->nodes[connection->node].stopped)
		let_go(world, &connection->there);
	if (!STAILQ_EMPTY(&connection->back) && !link->block_back && !world->procs[connection->proc].paused)
		let_go(world, &connection->back);
}

/* NODES, PROCS: all. Connections are read in any order. */
void net_flow(struct world *world, unsigned proc, unsigned node)
{
	unsigned count = world->used_connections, first = count > 0 ? (unsigned)below(world, count) : 0;
	for (unsigned i = 0; i < count; i++) {
		struct transport_connection *connection = &world->connections[(first + i) % count];
		if (connection->state != CONNECTION_FREE && (proc == PROCS || connection->proc == proc) &&
		    (node == NODES || connection->node == node))
			flow_connection(world, connection);
	}
}

void net_unblock(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = &world->procs[proc].links[node];
	link->block_there = link->block_back = false;
	net_flow(world, proc, node);
}

/* One of the two connections of a process to a master, or both. A process that stands still notices it later. */
void net_lose(struct world *world, unsigned proc, unsigned node, bool first, bool second, bool hard)
{
	for (unsigned i = 0; i < world->used_connections; i++) {
		struct transport_connection *connection = &world->connections[i];
		if (connection->state == CONNECTION_FREE || connection->state == CONNECTION_CLOSED ||
		    connection->proc != proc || connection->node != node || !(connection->is_second ? second : first))
			continue;
		if (world->procs[proc].paused || connection->is_second)
			net_reset(world, connection);
		else
			transport_lose(world, connection, hard);
	}
}

/* All that the master had accepted before. */
void net_reset_all(struct world *world, unsigned node)
{
	for (unsigned i = 0; i < world->used_connections; i++) {
		struct transport_connection *connection = &world->connections[i];
		if (connection->state != CONNECTION_FREE && connection->node == node && connection->accepted)
			net_reset(world, connection);
	}
}
