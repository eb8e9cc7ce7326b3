/* A master of the simulator: the model of the scripts (model_master.c), and a server around it with a clock, numbers of
 * connections, a disk, images of the machine, and crashes. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon_world.h"

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

static void run_script(struct node *node, struct command *command)
{
	struct model_master *model = &node->model;
	const struct model_command *request = &command->request;
	struct model_reply *ret = &command->answer;
	bool set = request->names != 0;
	switch (command->kind) {
	case REDLOCK_SCRIPT_ACQUIRE:
		(set                                ? model_acquire_set
		 : request->kind != MODEL_EXCLUSIVE ? model_acquire_shared
						    : model_acquire)(model, request, ret);
		break;
	case REDLOCK_SCRIPT_RAISE: (set ? model_raise_set : model_raise)(model, request, ret); break;
	case REDLOCK_SCRIPT_EXTEND: (set ? model_extend_set : model_extend)(model, request, ret); break;
	case REDLOCK_SCRIPT_RELEASE: (set ? model_release_set : model_release)(model, request, ret); break;
	case REDLOCK_SCRIPT_INSPECT: model_inspect(model, request, ret); break;
	case COMMAND_EPOCH: model_epoch(model, request, ret); break;
	case REDLOCK_SCRIPT_QUARANTINE: model_quarantine(model, request, ret); break;
	case REDLOCK_SCRIPT_FENCES: model_fences(model, request, ret); break;
	default: assert(command->kind == REDLOCK_SCRIPT_EPOCH_WRITE); model_write_epoch(model, request, ret);
	}
}

static void note_clocked(struct world *world, struct node *node, const struct command *command)
{
	if (!command->request.clocked)
		return;
	if (node->told_ttl_us < world->config.max_ttl_us) {
		node->short_at = world->now;
		node->short_ttl_us = node->told_ttl_us;
	}
	world->clocked_at = world->now;
	world->figures->clocked++;
}

static void note_epoch_written(struct world *world, unsigned index, const struct command *command)
{
	struct node *node = &world->nodes[index];
	world->figures->epoch_written++;
	world->figures->shortened += world->now < node->marked_at + world->config.max_ttl_us;
	node->voted_at = world->now;
	note_clocked(world, node, command);
	check_votes_again(world, index);
}

/* Each of these carries the longest lease that its sender knows of: where it is kept, nobody waits for less. */
static void note_told(struct node *node, const struct command *command)
{
	const struct model_reply *answer = &command->answer;
	bool reads = command->kind == COMMAND_EPOCH,
	     writes = command->kind == REDLOCK_SCRIPT_QUARANTINE || command->kind == REDLOCK_SCRIPT_EPOCH_WRITE;
	bool kept = reads ? answer->epoch != 0 || answer->marker != 0 : writes && answer->code == 1;
	if (kept && command->request.ttl_ms * MS > node->told_ttl_us)
		node->told_ttl_us = command->request.ttl_ms * MS;
}

/* The other resources of a set. */
static const char *others_told(uint32_t names)
{
	static char told[4 * MODEL_KEYS];
	char *at = told;
	*at = '\0';
	MODEL_FOR_EACH_KEY (key, names & (names - 1))
		at += sprintf(at, "+r%u", key);
	return told;
}

static void tell_command(struct world *world, const struct transport_connection *connection,
			 const struct command *command)
{
	static const char *const scripts_told[] = {"?",       "acquire", "raise",      "extend", "release",
						   "inspect", "epoch",   "quarantine", "fences", "write_epoch"};
	const struct model_command *request = &command->request;
	const char *stale = connection->state == CONNECTION_CLOSED ? " (of a lost connection)" : "";
	char entry[80] = "";
	if (command->kind <= REDLOCK_SCRIPT_RELEASE && request->entry.replica != 0)
		snprintf(entry, sizeof entry, ", %s %llu",
			 request->wait_ms > 0 ? "waits since" : "leaves the queue, waited since",
			 (unsigned long long)request->entry.arrival);
	if (command->kind <= REDLOCK_SCRIPT_INSPECT)
		tell(world, "master %u: %s r%u%s token %llu fence %llu from p%u%s -> %d%s", connection->node,
		     scripts_told[command->kind], request->key, others_told(request->names),
		     (unsigned long long)request->token, (unsigned long long)request->fence, connection->proc, entry,
		     command->answer.code, stale);
	else if (command->kind != COMMAND_EPOCH)
		tell(world, "master %u: %s from p%u fence %llu%s -> %d%s", connection->node,
		     scripts_told[command->kind], connection->proc,
		     (unsigned long long)(command->kind == REDLOCK_SCRIPT_FENCES ? command->answer.fence
										 : request->fence),
		     request->clocked ? " clocked" : "", command->answer.code, stale);
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
	return call_waiting(world, key, entry) != NULL;
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

/* To all that have subscribed. */
static void publish(struct world *world, unsigned node, const struct notification *notification)
{
	TELL(world, "master %u: calls %llu of %016llx for r%u", node, (unsigned long long)notification->entry.arrival,
	     (unsigned long long)notification->entry.replica, notification->key);
	for (unsigned i = 0; i < world->used_connections; i++) {
		struct transport_connection *connection = &world->connections[i];
		if (connection->state != CONNECTION_OPEN || connection->node != node || !connection->subscribed ||
		    connection->incarnation != world->nodes[node].incarnation)
			continue;
		struct event *event = net_message(world, connection, EVENT_MESSAGE);
		event->notification = *notification;
		net_back(world, event);
	}
}

/* Only a release that ends a lease may wake a waiter. */
static void after_lock_script(struct world *world, const struct transport_connection *connection,
			      const struct command *command)
{
	const struct trail *trail = &world->trails[command->request.token];
	struct notification notification = {.lease = NONE};
	order_after(world, connection, command);
	if (command->kind == REDLOCK_SCRIPT_RELEASE && command->answer.code == 1 && trail->leased)
		notification.lease = trail->lease;
	for (unsigned key = 0; key < MODEL_KEYS; key++) {
		notification.entry = command->answer.notified[key];
		notification.free = (uint8_t)command->answer.free[key];
		notification.key = (uint8_t)key;
		notification.last = command->answer.last[key];
		world->figures->runs += notification.last != 0;
		if (notification.entry.replica != 0)
			publish(world, connection->node, &notification);
	}
}

/* On any key. */
static bool has_token(const struct node *node, const struct model_command *request)
{
	MODEL_FOR_EACH_KEY (key, request->names)
		if (request->token != 0 && model_has_token(&node->model, key, request->token))
			return true;
	return false;
}

static void lock_or_guard(struct world *world, const struct transport_connection *connection, struct command *command)
{
	struct node *node = &world->nodes[connection->node];
	if (command->script != 0 && !(node->scripts >> command->script & 1)) {
		command->no_script = true;
		world->figures->no_script++;
		return;
	}
	node->scripts |= (uint16_t)(1U << command->kind); /* EVAL loads it */
	order_before(world, connection, command);
	if (command->request.entry.replica != 0 && is_crowded(&node->model))
		make_room(world, &node->model);
	bool had = has_token(node, &command->request);
	uint64_t marker = node->model.marker;
	run_script(node, command);
	if (node->model.marker != marker && node->model.marker != 0)
		node->marked_at = world->now;
	note_told(node, command);
	if (command->kind == REDLOCK_SCRIPT_EPOCH_WRITE && command->answer.code == 1)
		note_epoch_written(world, connection->node, command);
	else if (command->kind <= REDLOCK_SCRIPT_RELEASE)
		check_set(world, connection->node, command, had);
	if (command->kind == REDLOCK_SCRIPT_ACQUIRE || command->kind == REDLOCK_SCRIPT_EXTEND)
		check_remembers(world, connection, command);
	if (world->telling)
		tell_command(world, connection, command);
	if (command->kind == REDLOCK_SCRIPT_ACQUIRE || command->kind == REDLOCK_SCRIPT_RELEASE)
		after_lock_script(world, connection, command);
	trace(world, world->now, (uint64_t)command->kind << 32 | (uint64_t)connection->proc << 16 | connection->node,
	      (uint64_t)command->answer.code ^ command->answer.old << 8);
}

static void other_command(struct world *world, const struct transport_connection *connection, struct command *command)
{
	struct node *node = &world->nodes[connection->node];
	switch (command->kind) {
	case COMMAND_INFO:
		command->run_id = node->model.server_run_id;
		command->evicted = node->model.server_evicted;
		command->evicts = node->evicts;
		if (node->model.now_us > node->started_us)
			command->uptime_s = (node->model.now_us - node->started_us) / SECOND;
		break;
	case COMMAND_CLIENT_ID: command->client_id = node->next_client_id++; break;
	case COMMAND_TRIAL:
		check_pending(world, connection);
		node->scripts |= (uint16_t)(1U << command->script); /* EVAL loads it */
		break;
	case COMMAND_LOAD: node->scripts |= (uint16_t)(1U << command->script); break;
	case COMMAND_ALIVE:
		if (is_crowded(&node->model))
			make_room(world, &node->model);
		command->code = model_alive_set(&node->model, command->request.entry.replica, REDLOCK_ALIVE_US / MS,
						command->only_if_there) ||
				!command->only_if_there;
		break;
	case COMMAND_SCAN:
		for (unsigned key = 0; key < world->config.keys && !command->only_if_there; key++)
			command->code |= model_token(&node->model, key) != 0 ? 1 << key : 0;
		break;
	case COMMAND_READ:
		command->answer = (struct model_reply){0};
		model_shared_list(&node->model, &node->model.keys[command->request.key], UINT64_MAX, &command->answer);
		break;
	default: break;
	}
}

/* All releases of a batch were sent, also where the master has lost the script. */
static void note_tried(struct world *world, const struct transport_connection *connection,
		       const struct command *command)
{
	for (const struct command *part = command;; part = &world->commands[part->also]) {
		world->trails[part->request.token].tried |= (uint16_t)(1U << connection->node);
		if (part->also == NONE)
			break;
	}
}

static void run(struct world *world, const struct transport_connection *connection, struct command *command)
{
	command->run_at = world->now;
	if (command->kind == REDLOCK_SCRIPT_RELEASE)
		note_tried(world, connection, command);
	if (command->kind > COMMAND_OK && command->kind < SCRIPTS_COUNT)
		for (struct command *part = command;; part = &world->commands[part->also]) {
			part->run_at = world->now;
			lock_or_guard(world, connection, part);
			if (part->also == NONE || part->no_script)
				break;
		}
	else
		other_command(world, connection, command);
}

/* The commands of one message, from `slot` on. NONE: SUBSCRIBE. */
void node_commands(struct world *world, struct transport_connection *connection, uint16_t slot)
{
	node_sync(world, connection->node);
	if (connection->is_second) {
		connection->subscribed = true;
		net_back(world, net_message(world, connection, EVENT_MESSAGE));
		return;
	}
	struct event *answers = net_message(world, connection, EVENT_ANSWERS);
	answers->a = slot;
	for (uint16_t at = slot; at != NONE; at = world->commands[at].next)
		run(world, connection, &world->commands[at]);
	net_back(world, answers);
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
	net_reset_all(world, index);
}

void node_forget(struct world *world, unsigned index)
{
	world->nodes[index].told_ttl_us = 0;
}

/* An image is older for each redlockd that may let the master keep its epoch, and each has seen the evictions. */
unsigned node_durable_memory(const struct world *world, unsigned index, unsigned memory)
{
	const struct node *node = &world->nodes[index];
	for (unsigned p = 0; p < world->config.procs; p++) {
		const struct link *link = &world->procs[p].links[index];
		if (!world->procs[p].up || link->seen_run_id == 0)
			continue;
		if (memory > 0 && node->evicted_at != 0 && link->info_at <= node->evicted_at)
			return 0;
		if (memory == 2 && (link->seen_run_id != node->model.server_run_id ||
				    link->seen_beat <= node->images[node->newer].beat))
			memory = 1;
	}
	return memory;
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
	node->scripts = 0;
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
	net_flow(world, PROCS, index); /* what was held up for the server before */
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

void node_drop(struct world *world, unsigned index, unsigned key, bool evicts)
{
	struct node *node = &world->nodes[index];
	node_sync(world, index);
	uint64_t token;
	for (unsigned i = 0; (token = model_token_of(&node->model, key, i)) != 0; i++) {
		struct trail *trail = &world->trails[token];
		*(evicts ? &trail->evicted_at[index] : &trail->deleted_at[index]) = world->now;
	}
	if (evicts)
		node->evicted_at = world->now;
	(evicts ? model_evict_key : model_drop)(&node->model, key);
}

static void drop_lasting_queues(struct world *world, struct model_master *model)
{
	uint64_t longest_ms = (model->now_us + world->config.wait_us + REDLOCK_ALIVE_US) / MS + 1;
	for (unsigned key = 0; key < MODEL_KEYS; key++)
		if (model->queues[key].expires_ms > longest_ms)
			memset(&model->queues[key], 0, sizeof model->queues[key]);
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (model->alive[i].expires_ms > (model->now_us + REDLOCK_ALIVE_US) / MS + 1)
			memset(&model->alive[i], 0, sizeof model->alive[i]);
	for (unsigned i = 0; i < MODEL_PLACES; i++)
		if (model->keepers[i].expires_ms > model->now_us / MS + LEASE_PLACE_KEPT_MS + 1)
			memset(&model->keepers[i], 0, sizeof model->keepers[i]);
}

/* The operator's part, whom redlockd warns: expiries set while the clock was ahead last too long once it is set
 * back. */
void node_drop_lasting(struct world *world, unsigned index)
{
	struct model_master *model = &world->nodes[index].model;
	node_sync(world, index);
	for (unsigned key = 0; key < MODEL_KEYS; key++)
		if (model_token(model, key) != 0 &&
		    model->keys[key].expires_ms > (model->now_us + world->config.max_ttl_us) / MS + 1)
			node_drop(world, index, key, false);
	drop_lasting_queues(world, model);
}
