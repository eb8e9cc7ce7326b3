/* The network of the simulator: ordered connections and their faults.
 *
 * A connection keeps the order of its messages, each way; messages of different connections arrive in any order. A
 * partition, or a receiver that stands still, delays all; a message is lost only with its connection. When the end of
 * the process closes, messages on their way may still be carried out, up to some message, and late. When the master
 * dies, messages that it had not read are lost. */
#include <assert.h>

#include "random_world.h"

void net_init(struct world *world)
{
	for (unsigned p = 0; p < PROCS; p++)
		for (unsigned i = 0; i < NODES; i++)
			world->procs[p].links[i] = (struct link){.there = {NONE, NONE},
								 .back = {NONE, NONE},
								 .ear = {.there = {NONE, NONE}, .back = {NONE, NONE}}};
}

/* How long a message takes. */
static uint64_t delay(struct world *world)
{
	const struct config *config = &world->config;
	uint64_t delay_us = (config->delay_us + below(world, config->jitter_us)) * world->slow;
	if (!world->healing && one_of(world, config->straggler))
		delay_us += spread(world, 1 + config->straggler_us / 64, 1 + config->straggler_us);
	return delay_us;
}

uint64_t net_in_order(struct world *world, uint64_t *last_at)
{
	uint64_t at = world->now + delay(world);
	if (at < *last_at)
		at = *last_at;
	*last_at = at;
	return at;
}

void net_send(struct world *world, unsigned proc, unsigned node, struct event *event)
{
	struct link *link = &world->procs[proc].links[node];
	event->proc = (uint8_t)proc;
	event->node = (uint8_t)node;
	event->serial = link->serial;
	event->incarnation = link->incarnation;
	event->number = ++link->sent;
	event_push(world, event, net_in_order(world, &link->there_at));
}

void net_answer(struct world *world, const struct event *command, struct event *reply)
{
	struct link *link = &world->procs[command->proc].links[command->node];
	reply->proc = command->proc;
	reply->node = command->node;
	reply->what = command->what;
	reply->serial = command->serial;
	reply->run_at = world->now;
	event_push(world, reply, net_in_order(world, &link->back_at));
}

void net_reset(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = &world->procs[proc].links[node];
	struct event *event = event_new(world, EVENT_REPLY);
	event->proc = (uint8_t)proc;
	event->node = (uint8_t)node;
	event->what = WHAT_RESET;
	event->serial = link->serial;
	event_push(world, event, net_in_order(world, &link->back_at));
}

/* Of what is under way in the connection that is no more, some, all or none is still carried out. */
void net_cut(struct world *world, unsigned proc, unsigned node, bool hard)
{
	struct link *link = &world->procs[proc].links[node];
	uint32_t number = 0;
	if (!hard)
		number = one_of(world, 3) ? link->sent - (uint32_t)below(world, 1 + (link->sent < 8 ? link->sent : 8))
					  : link->sent;
	link->cut_serial[link->next_cut] = link->serial;
	link->cut_number[link->next_cut] = number;
	link->next_cut = (uint8_t)((link->next_cut + 1) % CUTS);
	link->sent = 0;
}

static bool was_cut(const struct link *link, const struct event *event)
{
	if (event->serial == link->serial && link->state != LINK_DOWN)
		return false;
	for (unsigned i = 0; i < CUTS; i++)
		if (link->cut_serial[i] == event->serial)
			return event->number > link->cut_number[i];
	return true;
}

/* ---- arriving ---- */

void net_hold(struct world *world, struct held *held, struct event *event)
{
	uint16_t slot = (uint16_t)(event - world->events);
	event->next = NONE;
	if (held->first == NONE)
		held->first = slot;
	else
		world->events[held->last].next = slot;
	held->last = slot;
}

static void reach_node(struct world *world, struct event *event)
{
	struct link *link = &world->procs[event->proc].links[event->node];
	const struct node *node = &world->nodes[event->node];
	bool stale = event->serial != link->serial || link->state == LINK_DOWN;
	if (was_cut(link, event)) {
		event_free(world, event);
	} else if (!node->up || node->incarnation != event->incarnation) {
		if (!stale && node->up)
			net_reset(world, event->proc, event->node);
		event_free(world, event);
	} else if (stale && !event->retimed && one_of(world, 2)) {
		uint64_t at = world->now + spread(world, 1, 2 * SECOND);
		event->retimed = true;
		link->stale_at = at > link->stale_at ? at : link->stale_at;
		event_push(world, event, link->stale_at); /* the sender's kernel is patient */
	} else {
		node_command(world, event);
		event_free(world, event);
	}
}

/* Over a connection in which nothing is under way, and nothing holds it up. */
bool net_send_at_once(struct world *world, unsigned proc, unsigned node, struct event *event)
{
	struct link *link = &world->procs[proc].links[node];
	if (world->slow > 1 || link->there_at > world->now || link->there.first != NONE || link->block_there ||
	    world->nodes[node].stopped)
		return false;
	event->proc = (uint8_t)proc;
	event->node = (uint8_t)node;
	event->serial = link->serial;
	event->incarnation = link->incarnation;
	event->number = ++link->sent;
	reach_node(world, event);
	return true;
}

static void reach_proc(struct world *world, struct event *event)
{
	const struct link *link = &world->procs[event->proc].links[event->node];
	if (event->serial == link->serial && link->state != LINK_DOWN)
		link_reply(world, event);
	event_free(world, event);
}

void net_arrive(struct world *world, struct event *event)
{
	struct link *link = &world->procs[event->proc].links[event->node];
	if (event->kind == EVENT_COMMAND) {
		if (link->block_there || world->nodes[event->node].stopped || link->there.first != NONE)
			net_hold(world, &link->there, event);
		else
			reach_node(world, event);
	} else if (link->block_back || world->procs[event->proc].paused || link->back.first != NONE) {
		net_hold(world, &link->back, event);
	} else {
		reach_proc(world, event);
	}
}

static void flow(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = &world->procs[proc].links[node];
	uint16_t slot = link->there.first;
	if (!link->block_there && !world->nodes[node].stopped) {
		link->there = (struct held){NONE, NONE};
		while (slot != NONE) {
			struct event *event = &world->events[slot];
			slot = event->next;
			reach_node(world, event);
		}
	}
	slot = link->back.first;
	if (!link->block_back && !world->procs[proc].paused) {
		link->back = (struct held){NONE, NONE};
		while (slot != NONE) {
			struct event *event = &world->events[slot];
			slot = event->next;
			reach_proc(world, event);
		}
	}
	ear_flow(world, proc, node);
}

/* Its connections are read in any order. */
void net_flow_to_node(struct world *world, unsigned node)
{
	unsigned first = (unsigned)below(world, world->config.procs);
	for (unsigned i = 0; i < world->config.procs; i++)
		flow(world, (first + i) % world->config.procs, node);
}

void net_flow_to_proc(struct world *world, unsigned proc)
{
	unsigned first = (unsigned)below(world, world->config.nodes);
	for (unsigned i = 0; i < world->config.nodes; i++)
		flow(world, proc, (first + i) % world->config.nodes);
}

void net_unblock(struct world *world, unsigned proc, unsigned node)
{
	struct link *link = &world->procs[proc].links[node];
	link->block_there = link->block_back = false;
	flow(world, proc, node);
}
