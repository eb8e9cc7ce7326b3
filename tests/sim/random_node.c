/* A master of the simulator: the model of the scripts (model_master.c), and a server around it with a clock, numbers of
 * connections, a disk, images of the machine, and crashes. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "random_world.h"

static struct model_master *image(struct node *node)
{
	return &node->images[node->newer];
}

static struct model_master *older(struct node *node)
{
	return &node->images[node->newer ^ 1];
}

void node_init(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	memset(node, 0, sizeof *node);
	int32_t ppm = (int32_t)below(world, 2 * CLOCK_PPM + 1) - CLOCK_PPM;
	node->clock = (struct clock){.base = DAY_BEGAN_US + below(world, 20 * MS), .ppm = ppm};
	node->up = true;
	node->incarnation = 1;
	node->next_client_id = 3;
	node->model.server_run_id = ++world->next_run_id * UINT64_C(0x9e3779b97f4a7c15);
	node->started_us = node->clock.base;
	node_snapshot(world, index);
	node_snapshot(world, index);
}

void node_sync(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	node->model.now_us = clock_read(&node->clock, world->now);
}

/* ---- commands ---- */

static void run_script(struct node *node, const struct event *event, struct model_reply *ret)
{
	struct model_master *model = &node->model;
	const struct model_command *command = &event->u.command;
	switch (event->what) {
	case REDLOCK_SCRIPT_ACQUIRE: model_acquire(model, command, ret); break;
	case REDLOCK_SCRIPT_RAISE: model_raise(model, command, ret); break;
	case REDLOCK_SCRIPT_EXTEND: model_extend(model, command, ret); break;
	case REDLOCK_SCRIPT_RELEASE: model_release(model, command, ret); break;
	case REDLOCK_SCRIPT_INSPECT: model_inspect(model, command, ret); break;
	case WHAT_HEARTBEAT:
	case WHAT_READ: model_epoch(model, command, ret); break;
	case WHAT_QUARANTINE: model_quarantine(model, command, ret); break;
	case WHAT_FENCES: model_fences(model, command, ret); break;
	default: assert(event->what == WHAT_WRITE_EPOCH); model_write_epoch(model, command, ret);
	}
}

static void note_epoch_written(struct world *world, const struct event *event)
{
	struct node *node = &world->nodes[event->node];
	world->figures->epoch_written++;
	if (!event->u.command.clocked)
		return;
	if (node->told_ttl_us < world->config.max_ttl_us) {
		node->short_at = world->now;
		node->short_ttl_us = node->told_ttl_us;
	}
	world->clocked_at = world->now;
	world->figures->clocked++;
}

/* Each of these carries the longest lease that its sender knows of: where it is kept, nobody waits for less. */
static void note_told(struct world *world, const struct event *event, const struct model_reply *reply)
{
	struct node *node = &world->nodes[event->node];
	bool reads = event->what == WHAT_HEARTBEAT || event->what == WHAT_READ,
	     writes = event->what == WHAT_QUARANTINE || event->what == WHAT_WRITE_EPOCH;
	bool kept = reads ? reply->epoch != 0 || reply->marker != 0 : writes && reply->code == 1;
	if (kept && event->u.command.ttl_ms * MS > node->told_ttl_us)
		node->told_ttl_us = event->u.command.ttl_ms * MS;
}

static void give_info(const struct node *node, struct answer *answer)
{
	answer->evicted = node->model.server_evicted;
	answer->evicts = node->evicts;
}

static void handshake(struct node *node, struct answer *answer)
{
	memset(answer, 0, sizeof *answer);
	answer->run_id = node->model.server_run_id;
	answer->client_id = node->next_client_id++;
	answer->script.now_us = node->model.now_us;
	give_info(node, answer);
}

static void tell_command(struct world *world, const struct event *event, const struct model_reply *reply)
{
	static const char *const names[] = {"?",         "acquire",   "raise", "extend", "release", "inspect",
					    "handshake", "heartbeat", "epoch", "bar",    "fences",  "write_epoch"};
	const struct model_command *command = &event->u.command;
	const char *stale = event->serial != world->procs[event->proc].links[event->node].serial
				    ? " (of a lost connection)"
				    : "";
	char entry[80] = "";
	if (event->what <= REDLOCK_SCRIPT_RELEASE && command->entry.replica != 0)
		snprintf(entry, sizeof entry, ", %s %llu",
			 command->wait_ms > 0 ? "waits since" : "leaves the queue, waited since",
			 (unsigned long long)command->entry.arrival);
	if (event->what <= REDLOCK_SCRIPT_INSPECT)
		tell(world, "master %u: %s r%u token %llu fence %llu from p%u%s -> %d%s", event->node,
		     names[event->what], command->key, (unsigned long long)command->token,
		     (unsigned long long)command->fence, event->proc, entry, reply->code, stale);
	else if (event->what != WHAT_HEARTBEAT && event->what != WHAT_READ)
		tell(world, "master %u: %s from p%u fence %llu%s -> %d%s", event->node, names[event->what], event->proc,
		     (unsigned long long)(event->what == WHAT_FENCES ? reply->fence : command->fence),
		     command->clocked ? " clocked" : "", reply->code, stale);
}

/* Publishes the notification of a reply. Only a release that ends a lease may wake a waiter. */
static void after_lock_script(struct world *world, const struct event *event, const struct model_reply *reply)
{
	const struct trail *trail = &world->trails[event->u.command.token];
	struct notification notification = {
		.entry = reply->notified, .key = (uint8_t)event->u.command.key, .lease = NONE};
	order_after(world, event);
	if (reply->notified.replica == 0)
		return;
	if (event->what == REDLOCK_SCRIPT_RELEASE && reply->has_value && trail->leased)
		notification.lease = trail->lease;
	ear_publish(world, event->node, &notification);
}

static bool is_running(const struct world *world, uint64_t replica)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		if (world->procs[p].replica == replica)
			return true;
	return false;
}

static bool is_waiting(struct world *world, unsigned key, struct model_entry entry)
{
	for (unsigned p = 0; p < world->config.procs; p++)
		if (world->procs[p].replica == entry.replica)
			return queue_find(world, p, key, entry.arrival) != NULL;
	return false;
}

/* The model has bounds that Redis has not: where a clock that went back keeps the dead for too long, or connections
 * break all the time and leaves are lost with them, those that nobody waits for go for want of room. */
static void make_room(struct world *world, struct model_master *model)
{
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (!is_running(world, model->alive[i].replica))
			memset(&model->alive[i], 0, sizeof model->alive[i]);
	for (unsigned key = 0; key < MODEL_KEYS; key++) {
		struct model_queue *queue = &model->queues[key];
		uint32_t kept = 0;
		for (uint32_t i = 0; i < queue->count; i++)
			if (is_waiting(world, key, queue->entries[i]))
				queue->entries[kept++] = queue->entries[i];
		memset(&queue->entries[kept], 0, (queue->count - kept) * sizeof *queue->entries);
		queue->count = kept;
	}
}

static bool is_crowded(const struct model_master *model)
{
	bool crowded = model->alive[MODEL_REPLICAS - 1].replica != 0;
	for (unsigned key = 0; key < MODEL_KEYS; key++)
		crowded |= model->queues[key].count + 1 >= MODEL_ENTRIES;
	return crowded;
}

/* Answered only where it was not known: see random_waiters.c. */
static void hear_alive(struct world *world, const struct event *event)
{
	struct node *node = &world->nodes[event->node];
	bool only_if_there = event->what == WHAT_ALIVE;
	node_sync(world, event->node);
	if (is_crowded(&node->model))
		make_room(world, &node->model);
	if (model_alive_set(&node->model, event->u.command.entry.replica, REDLOCK_ALIVE_US / MS, only_if_there) ||
	    !only_if_there)
		return;
	TELL(world, "master %u: does not know that p%u lives", event->node, event->proc);
	net_answer(world, event, event_new(world, EVENT_REPLY));
}

void node_command(struct world *world, struct event *event)
{
	if (event->what >= WHAT_ALIVE) {
		hear_alive(world, event);
		return;
	}
	struct node *node = &world->nodes[event->node];
	struct event *reply = event_new(world, EVENT_REPLY);
	struct answer *answer = &reply->u.answer;
	node_sync(world, event->node);
	if (event->what == WHAT_HANDSHAKE) {
		handshake(node, answer);
	} else {
		order_before(world, event);
		if (event->u.command.entry.replica != 0 && is_crowded(&node->model))
			make_room(world, &node->model);
		run_script(node, event, &answer->script);
		note_told(world, event, &answer->script);
		if (event->what == WHAT_HEARTBEAT)
			give_info(node, answer);
		else if (event->what == WHAT_WRITE_EPOCH && answer->script.code == 1)
			note_epoch_written(world, event);
		else if (event->what <= REDLOCK_SCRIPT_RELEASE)
			check_set(world, event, &answer->script);
	}
	if (world->telling)
		tell_command(world, event, &answer->script);
	if (event->what == REDLOCK_SCRIPT_ACQUIRE || event->what == REDLOCK_SCRIPT_RELEASE)
		after_lock_script(world, event, &answer->script);
	trace(world, world->now, (uint64_t)event->what << 32 | (uint64_t)event->proc << 16 | event->node,
	      (uint64_t)answer->script.code ^ answer->script.old << 8);
	net_answer(world, event, reply);
}

/* ---- what happens to a server ---- */

void node_snapshot(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	node_sync(world, index);
	node->newer ^= 1;
	node->older_at = node->image_at;
	node->older_client_id = node->image_client_id;
	*image(node) = node->model;
	node->image_at = world->now;
	node->image_client_id = node->next_client_id;
}

static void drop_connections(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	node->incarnation++;
	for (unsigned p = 0; p < world->config.procs; p++)
		if (world->procs[p].up && world->procs[p].links[index].state != LINK_DOWN)
			net_reset(world, p, index);
	for (unsigned p = 0; p < world->config.procs; p++)
		ear_reset(world, p, index);
}

void node_forget(struct world *world, unsigned index)
{
	world->nodes[index].told_ttl_us = 0;
}

void node_crash(struct world *world, unsigned index, unsigned memory)
{
	struct node *node = &world->nodes[index];
	const struct model_master data = memory == 2 ? *image(node) : node->model;
	node_sync(world, index);
	if (memory != 1)
		node_forget(world, index);
	model_restart(&node->model, memory == 0 ? NULL : &data, ++world->next_run_id * UINT64_C(0x9e3779b97f4a7c15));
	node_sync(world, index);
	node->up = false;
	node->next_client_id = 3;
	drop_connections(world, index);
}

void node_start(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	node->up = true;
	node_sync(world, index);
	node->started_us = node->model.now_us;
	node_snapshot(world, index); /* an image of the machine from before would have another run_id */
	node_snapshot(world, index);
	net_flow_to_node(world, index); /* what was held up for the server before */
}

static void set_clock_back(struct world *world, struct node *node, uint64_t then_us)
{
	uint64_t now_us = clock_read(&node->clock, world->now);
	if (now_us > then_us)
		node->jumped_back_us += now_us - then_us;
	node->clock = (struct clock){.from = world->now, .base = then_us, .ppm = node->clock.ppm};
	node->back_at = node->jump_at = world->now;
	check_jumped(world, (unsigned)(node - world->nodes), (int64_t)(then_us - now_us));
}

/* The machine goes on from an image: everything is as it was then. Its clock, too, unless somebody sets it. */
void node_roll_back(struct world *world, unsigned index, bool clock_too)
{
	struct node *node = &world->nodes[index];
	uint64_t then_us = older(node)->now_us;
	node_sync(world, index);
	node_forget(world, index);
	node->model = *older(node);
	node->next_client_id = node->older_client_id;
	if (clock_too)
		set_clock_back(world, node, then_us);
	node_sync(world, index);
	*image(node) = *older(node);
	node->image_at = node->older_at;
	node->rolled_at = world->now;
	drop_connections(world, index);
}

void node_jump(struct world *world, unsigned index, int64_t by_us)
{
	struct node *node = &world->nodes[index];
	clock_shift(&node->clock, world->now, by_us);
	world->clocks_wrong = true;
	if (by_us > 0)
		node->jumped_us += (uint64_t)by_us;
	else
		node->jumped_back_us += (uint64_t)-by_us;
	node->jump_at = world->now;
	if (by_us < 0)
		node->back_at = world->now;
	check_jumped(world, index, by_us);
	model_clock_set(&node->model, clock_read(&node->clock, world->now));
}

void node_evict(struct world *world, unsigned index, unsigned key)
{
	struct node *node = &world->nodes[index];
	node_sync(world, index);
	uint64_t token = model_token(&node->model, key);
	model_evict_key(&node->model, key);
	if (token != 0)
		world->trails[token].evicted_at[index] = world->now;
}

void node_delete(struct world *world, unsigned index, unsigned key)
{
	struct node *node = &world->nodes[index];
	node_sync(world, index);
	uint64_t token = model_token(&node->model, key);
	model_drop(&node->model, key);
	if (token != 0)
		world->trails[token].deleted_at[index] = world->now;
}
