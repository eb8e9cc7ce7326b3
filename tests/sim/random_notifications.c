/* The second connection of each process to each master, which carries the notifications. It has delays of its own, so
 * notifications and answers arrive in any order. Faults of the first connection apply to it as well (random_net.c), and
 * it may be lost alone. */
#include <assert.h>

#include "random_world.h"

#define OPENING_US SECOND

static struct ear *ear_of(struct world *world, unsigned proc, unsigned node)
{
	return &world->procs[proc].links[node].ear;
}

static struct event *event_for(struct world *world, enum event_kind kind, unsigned proc, unsigned node)
{
	struct event *event = event_new(world, kind);
	event->proc = (uint8_t)proc;
	event->node = (uint8_t)node;
	event->serial = ear_of(world, proc, node)->serial;
	return event;
}

/* ---- the process's end ---- */

void ear_open(struct world *world, unsigned proc, unsigned node)
{
	const struct proc *process = &world->procs[proc];
	const struct link *link = &process->links[node];
	struct ear *ear = ear_of(world, proc, node);
	uint64_t now_us = proc_now(world, process);
	if (ear->up && ear->beside == link->serial && (ear->listening || now_us < ear->tried_us + OPENING_US))
		return;
	ear->up = true;
	ear->listening = false;
	ear->tried_us = now_us;
	ear->serial = ++world->next_serial;
	ear->beside = link->serial;
	ear->incarnation = world->nodes[node].incarnation;
	ear->there_at = ear->back_at = world->now;
	struct event *event = event_for(world, EVENT_SUBSCRIBE, proc, node);
	event->incarnation = ear->incarnation;
	event_push(world, event, net_in_order(world, &ear->there_at));
}

void ear_drop(struct world *world, unsigned proc, unsigned node)
{
	ear_of(world, proc, node)->up = false;
}

static void hear(struct world *world, const struct event *event)
{
	struct ear *ear = ear_of(world, event->proc, event->node);
	if (!ear->up || ear->serial != event->serial)
		return;
	trace(world, world->now, (uint64_t)event->what << 32 | (uint64_t)event->proc << 16 | event->node, 2);
	switch ((enum heard)event->what) {
	case HEARD_SUBSCRIBED:
		TELL(world, "p%u: hears what master %u calls from now on", event->proc, event->node);
		ear->listening = true;
		queue_missed(world, event->proc);
		break;
	case HEARD_CALL: queue_heard(world, event->proc, event->node, &event->u.notification); break;
	case HEARD_RESET:
		TELL(world, "p%u: does not hear master %u any more", event->proc, event->node);
		ear->up = false; /* the next tick opens another one */
	}
}

/* ---- the master's end ---- */

static struct event *send_back(struct world *world, unsigned proc, unsigned node, enum heard what)
{
	struct event *event = event_for(world, EVENT_HEARD, proc, node);
	event->what = (uint8_t)what;
	event_push(world, event, net_in_order(world, &ear_of(world, proc, node)->back_at));
	return event;
}

void ear_reset(struct world *world, unsigned proc, unsigned node)
{
	if (ear_of(world, proc, node)->up)
		send_back(world, proc, node, HEARD_RESET);
}

static void take_subscription(struct world *world, const struct event *event)
{
	struct ear *ear = ear_of(world, event->proc, event->node);
	const struct node *node = &world->nodes[event->node];
	if (!ear->up || ear->serial != event->serial)
		return;
	if (!node->up || node->incarnation != event->incarnation) {
		ear_reset(world, event->proc, event->node);
		return;
	}
	ear->subscribed = ear->serial;
	send_back(world, event->proc, event->node, HEARD_SUBSCRIBED);
}

void ear_publish(struct world *world, unsigned node, const struct notification *notification)
{
	TELL(world, "master %u: calls %llu of p%llu for r%u", node, (unsigned long long)notification->entry.arrival,
	     (unsigned long long)(notification->entry.replica % 16 - 1), notification->key);
	for (unsigned p = 0; p < world->config.procs; p++) {
		const struct ear *ear = ear_of(world, p, node);
		const struct proc *process = &world->procs[p];
		if (process->replica != notification->entry.replica && process->queues[notification->key].count == 0)
			continue; /* nobody there would take notice */
		if (ear->up && ear->subscribed == ear->serial && ear->incarnation == world->nodes[node].incarnation)
			send_back(world, p, node, HEARD_CALL)->u.notification = *notification;
	}
}

/* ---- on the way ---- */

bool ear_arrive(struct world *world, struct event *event)
{
	const struct link *link = &world->procs[event->proc].links[event->node];
	struct ear *ear = ear_of(world, event->proc, event->node);
	bool there = event->kind == EVENT_SUBSCRIBE;
	struct held *held = there ? &ear->there : &ear->back;
	bool is_blocked = there ? link->block_there || world->nodes[event->node].stopped
				: link->block_back || world->procs[event->proc].paused;
	if (is_blocked || held->first != NONE) {
		net_hold(world, held, event);
		return false;
	}
	if (there)
		take_subscription(world, event);
	else
		hear(world, event);
	return true;
}

static void let_go(struct world *world, struct held *held)
{
	uint16_t slot = held->first;
	*held = (struct held){NONE, NONE};
	while (slot != NONE) {
		struct event *event = &world->events[slot];
		slot = event->next;
		if (ear_arrive(world, event))
			event_free(world, event);
	}
}

void ear_flow(struct world *world, unsigned proc, unsigned node)
{
	struct ear *ear = ear_of(world, proc, node);
	if (ear->there.first != NONE)
		let_go(world, &ear->there);
	if (ear->back.first != NONE)
		let_go(world, &ear->back);
}
