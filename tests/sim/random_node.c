/* A master of the simulator: the model of the scripts (model_master.c), and a server around it: a clock, connections' numbers, a disk,
 * images of the machine, crashes. */
#include <assert.h>
#include <string.h>

#include "random_world.h"

void node_init(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	memset(node, 0, sizeof *node);
	int32_t ppm = (int32_t)below(world, 2 * CLOCK_PPM + 1) - CLOCK_PPM;
	node->clock = (struct clock){ .base = DAY_BEGAN_US + below(world, 20 * MS), .ppm = ppm };
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
	case WHAT_READ: model_certificate(model, command, ret); break;
	case WHAT_BAR: model_bar(model, command, ret); break;
	case WHAT_FENCES: model_fences(model, command, ret); break;
	default: assert(event->what == WHAT_CERTIFY); model_certify(model, command, ret);
	}
}

static void note_certified(struct world *world, const struct event *event)
{
	world->figures->certified++;
	if (!event->u.command.clocked)
		return;
	world->clocked_at = world->now;
	world->figures->clocked++;
}

static void give_info(const struct node *node, struct answer *answer)
{
	answer->evicted = node->model.server_evicted;
	answer->evicts = node->evicts;
}

static void greet(struct node *node, struct answer *answer)
{
	memset(answer, 0, sizeof *answer);
	answer->run_id = node->model.server_run_id;
	answer->client_id = node->next_client_id++;
	answer->script.now_us = node->model.now_us;
	give_info(node, answer);
}

static void tell_command(struct world *world, const struct event *event, const struct model_reply *reply)
{
	static const char *const names[] = { "?", "acquire", "raise", "extend", "release", "inspect", "greeting", "heartbeat", "certificate", "bar", "fences",
					     "certify" };
	const struct model_command *command = &event->u.command;
	const char *stale = event->serial != world->procs[event->proc].links[event->node].serial ? " (of a lost connection)" : "";
	if (event->what <= REDLOCK_SCRIPT_INSPECT)
		tell(world, "master %u: %s r%u token %llu fence %llu from p%u -> %d%s", event->node, names[event->what], command->key,
		     (unsigned long long)command->token, (unsigned long long)command->fence, event->proc, reply->code, stale);
	else if (event->what != WHAT_HEARTBEAT && event->what != WHAT_READ)
		tell(world, "master %u: %s from p%u fence %llu%s -> %d%s", event->node, names[event->what], event->proc,
		     (unsigned long long)(event->what == WHAT_FENCES ? reply->fence : command->fence), command->clocked ? " clocked" : "", reply->code, stale);
}

void node_command(struct world *world, struct event *event)
{
	struct node *node = &world->nodes[event->node];
	struct event *reply = event_new(world, EVENT_REPLY);
	struct answer *answer = &reply->u.answer;
	node_sync(world, event->node);
	if (event->what == WHAT_GREET) {
		greet(node, answer);
	} else {
		run_script(node, event, &answer->script);
		if (event->what == WHAT_HEARTBEAT)
			give_info(node, answer);
		else if (event->what == WHAT_CERTIFY && answer->script.code == 1)
			note_certified(world, event);
		else if (event->what <= REDLOCK_SCRIPT_RELEASE)
			check_set(world, event, &answer->script);
	}
	if (world->telling)
		tell_command(world, event, &answer->script);
	trace(world, world->now, (uint64_t)event->what << 32 | (uint64_t)event->proc << 16 | event->node, (uint64_t)answer->script.code ^ answer->script.old << 8);
	net_answer(world, event, reply);
}

/* ---- what happens to a server ---- */

void node_snapshot(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	node_sync(world, index);
	node->older = node->image;
	node->older_at = node->image_at;
	node->older_client_id = node->image_client_id;
	node->image = node->model;
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
}

void node_crash(struct world *world, unsigned index, unsigned memory)
{
	struct node *node = &world->nodes[index];
	const struct model_master data = memory == 2 ? node->image : node->model;
	node_sync(world, index);
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
}

static void set_clock_back(struct world *world, struct node *node, uint64_t then_us)
{
	uint64_t now_us = clock_read(&node->clock, world->now);
	if (now_us > then_us)
		node->jumped_back_us += now_us - then_us;
	node->clock = (struct clock){ .from = world->now, .base = then_us, .ppm = node->clock.ppm };
	node->back_at = node->jump_at = world->now;
	check_jumped(world, (unsigned)(node - world->nodes), (int64_t)(then_us - now_us));
}

/* The machine goes on from an image: everything is as it was then. Its clock, too, unless somebody sets it. */
void node_roll_back(struct world *world, unsigned index, bool clock_too)
{
	struct node *node = &world->nodes[index];
	uint64_t then_us = node->older.now_us;
	node_sync(world, index);
	node->model = node->older;
	node->next_client_id = node->older_client_id;
	if (clock_too)
		set_clock_back(world, node, then_us);
	node_sync(world, index);
	node->image = node->older;
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
