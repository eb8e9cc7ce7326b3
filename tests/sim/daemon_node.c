/* SPDX-License-Identifier: MIT */
/* A master of the simulator: a store that runs the real scripts, and a server around it with a clock, numbers of
 * connections, a disk, images of the machine, and crashes. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon_world.h"

enum { PUBLISHED = 64, TOKEN_WORDS = 2 };

/* What a script publishes while it runs. */
static struct store_text *published[PUBLISHED];
static size_t published_count;

static struct server *image(struct node *node)
{
	return &node->images[node->newer];
}

static struct server *older(struct node *node)
{
	return &node->images[node->newer ^ 1];
}

/* Becomes a copy. */
static void assign(struct server *server, const struct server *from)
{
	struct store *store = store_copy(from->store);
	store_free(server->store);
	*server = *from;
	server->store = store;
}

static void on_published(void *arg, const char *channel, size_t channel_len, const char *text, size_t len)
{
	(void)arg, (void)channel, (void)channel_len;
	assert(published_count < PUBLISHED);
	published[published_count++] = store_text_new(text, len);
}

void node_init(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	store_free(node->server.store);
	store_free(node->images[0].store);
	store_free(node->images[1].store);
	memset(node, 0, sizeof *node);
	int32_t ppm = (int32_t)below(world, 2 * CLOCK_PPM + 1) - CLOCK_PPM;
	node->clock = (struct clock){.base = DAY_BEGAN_US + below(world, 20 * MS), .ppm = ppm};
	node->up = true;
	node->incarnation = 1;
	node->server = (struct server){.store = store_new(on_published, NULL),
				       .run_id = ++world->next_run_id * UINT64_C(0x9e3779b97f4a7c15),
				       .next_client_id = 3};
	node->started_us = node->clock.base;
	node_snapshot(world, index);
	node_snapshot(world, index);
}

static void set_time(struct node *node, uint64_t now_us)
{
	node->server.now_us = now_us;
	store_set_time(node->server.store, now_us);
}

void node_sync(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	set_time(node, clock_read(&node->clock, world->now));
}

/* ---- commands ---- */

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

static void note_epoch_written(struct world *world, unsigned index, unsigned proc, const struct command *command)
{
	struct node *node = &world->nodes[index];
	for (unsigned i = 0; i < world->config.nodes; i++)
		node->clocks_since[i] = world->procs[proc].links[i].clock_since;
	world->figures->epoch_written++;
	world->figures->shortened += world->now < node->marked_at + world->config.max_ttl_us;
	node->voted_at = world->now;
	note_clocked(world, node, command);
	check_votes_again(world, index);
}

/* Each of these carries the longest lease that its sender knows of: where it is kept, nobody waits for less. */
static void note_told(struct node *node, const struct command *command)
{
	const struct script_answer *answer = &command->answer;
	bool reads = command->kind == COMMAND_EPOCH,
	     writes = command->kind == REDLOCK_SCRIPT_QUARANTINE || command->kind == REDLOCK_SCRIPT_EPOCH_WRITE;
	bool kept = reads ? answer->epoch != 0 || answer->marker != 0 : writes && answer->code == 1;
	if (kept && command->request.ttl_ms * MS > node->told_ttl_us)
		node->told_ttl_us = command->request.ttl_ms * MS;
}

/* The other resources of a set. */
static const char *others_told(uint32_t names)
{
	static char told[4 * KEYS];
	char *at = told;
	*at = '\0';
	FOR_EACH_KEY (key, names & (names - 1))
		at += sprintf(at, "+r%u", key);
	return told;
}

static void tell_command(struct world *world, const struct transport_connection *connection,
			 const struct command *command)
{
	static const char *const scripts_told[] = {"?",       "acquire", "raise",      "extend", "release",
						   "inspect", "epoch",   "quarantine", "fences", "write_epoch"};
	const struct script_request *request = &command->request;
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
		store_text_ref(notification->text);
		net_back(world, event);
	}
}

/* Passes on what the script of a command published about its resources. Only a release that ends a lease may wake a
 * waiter. */
static void publish_of(struct world *world, unsigned node, const struct command *command)
{
	const struct trail *trail = &world->trails[command->request.token];
	bool releases = command->kind == REDLOCK_SCRIPT_RELEASE && command->answer.code == 1 && trail->leased;
	uint32_t names = command->request.names != 0 ? command->request.names : UINT32_C(1) << command->request.key;
	for (size_t i = 0; i < published_count; i++) {
		struct notification notification = {.text = published[i], .lease = releases ? trail->lease : NONE};
		if (!published[i])
			continue;
		field_notification(world, published[i], &notification);
		if (!(names >> notification.key & 1))
			continue;
		names &= ~(UINT32_C(1) << notification.key); /* at most one for each */
		world->figures->runs += notification.last != 0;
		publish(world, node, &notification);
		store_text_unref(published[i]);
		published[i] = NULL;
	}
}

/* On any key. */
static bool has_token(const struct node *node, const struct script_request *request)
{
	FOR_EACH_KEY (key, request->names)
		if (request->token != 0 && node_has_token(node, key, request->token))
			return true;
	return false;
}

/* After a command, or an operation of a batch. `had`: of a set: some key had its token before. */
static void after_script(struct world *world, const struct transport_connection *connection,
			 const struct command *command, bool had)
{
	bool queues = command->kind == REDLOCK_SCRIPT_ACQUIRE || command->kind == REDLOCK_SCRIPT_RELEASE;
	note_told(&world->nodes[connection->node], command);
	if (command->kind == REDLOCK_SCRIPT_EPOCH_WRITE && command->answer.code == 1)
		note_epoch_written(world, connection->node, connection->proc, command);
	else if (command->kind <= REDLOCK_SCRIPT_RELEASE)
		check_set(world, connection->node, command, had);
	if (command->kind <= REDLOCK_SCRIPT_RELEASE && command->kind != REDLOCK_SCRIPT_RAISE)
		check_remembers(world, connection, command);
	check_repaired(world, connection->node, command);
	if (world->telling)
		tell_command(world, connection, command);
	if (queues)
		order_after(world, connection, command);
	if (queues || command->kind == REDLOCK_SCRIPT_EXTEND)
		publish_of(world, connection->node, command);
	trace(world, world->now, (uint64_t)command->kind << 32 | (uint64_t)connection->proc << 16 | connection->node,
	      (uint64_t)command->answer.code ^ command->answer.old << 8);
}

static void carry_out(struct world *world, const struct transport_connection *connection, struct command *command)
{
	struct node *node = &world->nodes[connection->node];
	const struct sent *sent = command->sent;
	bool had = has_token(node, &command->request); /* no operation of a batch is on a set */
	uint64_t marker = command->kind == REDLOCK_SCRIPT_QUARANTINE ? server_number(&node->server, "marker", 16) : 0;
	for (struct command *part = command; part; part = command_part(world, part->also)) {
		part->run_at = world->now;
		order_before(world, connection, part);
	}
	published_count = 0;
	command->reply = store_run_script(node->server.store, command->kind, sent->keys, sent->argc, sent->argv,
					  sent->lens);
	reply_read(world, command);
	if (command->kind == REDLOCK_SCRIPT_QUARANTINE && server_number(&node->server, "marker", 16) != marker)
		node->marked_at = world->now;
	for (struct command *part = command; part; part = command_part(world, part->also))
		after_script(world, connection, part, had);
	for (size_t i = 0; i < published_count; i++)
		store_text_unref(published[i]);
}

static void lock_or_guard(struct world *world, const struct transport_connection *connection, struct command *command)
{
	struct node *node = &world->nodes[connection->node];
	command->no_script = command->script != 0 && !(node->scripts >> command->script & 1);
	world->figures->no_script += command->no_script;
	if (command->no_script)
		return;
	node->scripts |= (uint16_t)(1U << command->kind); /* EVAL loads it */
	carry_out(world, connection, command);
}

static void other_command(struct world *world, const struct transport_connection *connection, struct command *command)
{
	struct node *node = &world->nodes[connection->node];
	const struct server *server = &node->server;
	const struct sent *sent = command->sent;
	if (sent)
		command->reply = store_command(server->store, sent->argc, sent->argv, sent->lens);
	switch (command->kind) {
	case COMMAND_INFO:
		command->run_id = server->run_id;
		command->evicted = server->evicted;
		command->evicts = node->evicts;
		if (server->now_us > node->started_us)
			command->uptime_s = (server->now_us - node->started_us) / SECOND;
		break;
	case COMMAND_CLIENT_ID: command->client_id = node->server.next_client_id++; break;
	case COMMAND_TRIAL:
		check_pending(world, connection);
		node->scripts |= (uint16_t)(1U << command->script); /* EVAL loads it */
		break;
	case COMMAND_LOAD: node->scripts |= (uint16_t)(1U << command->script); break;
	case COMMAND_ALIVE: command->code = command->reply->type != REDIS_REPLY_NIL; break;
	case COMMAND_SCAN:
		for (unsigned key = 0; key < world->config.keys && !command->only_if_there; key++)
			command->code |= node_token(node, key, 0) != 0 ? 1 << key : 0;
		break;
	default: break;
	}
}

/* All releases of a batch were sent, also where the master has lost the script. */
static void note_tried(struct world *world, const struct transport_connection *connection,
		       const struct command *command)
{
	for (const struct command *part = command; part; part = command_part(world, part->also))
		world->trails[part->request.token].tried |= (uint16_t)(1U << connection->node);
}

static void run(struct world *world, const struct transport_connection *connection, struct command *command)
{
	command->run_at = world->now;
	if (command->kind == REDLOCK_SCRIPT_RELEASE)
		note_tried(world, connection, command);
	if (command->kind > COMMAND_OK && command->kind < SCRIPTS_COUNT)
		lock_or_guard(world, connection, command);
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
	assign(image(node), &node->server);
	image(node)->at = world->now;
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
		if (memory == 2 && (link->seen_run_id != node->server.run_id ||
				    link->seen_beat <= server_number(&node->images[node->newer], "beat", 10)))
			memory = 1;
	}
	return memory;
}

void node_crash(struct world *world, unsigned index, unsigned memory)
{
	struct node *node = &world->nodes[index];
	if (memory != 1)
		node_forget(world, index);
	if (memory == 2)
		assign(&node->server, image(node));
	else if (memory == 0)
		store_clear(node->server.store);
	node->server.run_id = ++world->next_run_id * UINT64_C(0x9e3779b97f4a7c15);
	node->server.evicted = 0;
	node->server.next_client_id = 3;
	node_sync(world, index);
	store_sweep(node->server.store);
	node->up = false;
	node->scripts = 0;
	drop_connections(world, index);
}

void node_start(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	node->up = true;
	node_sync(world, index);
	node->started_us = node->server.now_us;
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
	assign(&node->server, older(node));
	if (clock_too)
		set_clock_back(world, node, then_us);
	node_sync(world, index);
	assign(image(node), older(node));
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
	node_sync(world, index);
	store_sweep(node->server.store);
}

void node_drop(struct world *world, unsigned index, unsigned key, bool evicts)
{
	struct node *node = &world->nodes[index];
	node_sync(world, index);
	uint64_t token;
	for (unsigned i = 0; (token = node_token(node, key, i)) != 0; i++) {
		struct trail *trail = &world->trails[token];
		*(evicts ? &trail->evicted_at[index] : &trail->deleted_at[index]) = world->now;
	}
	bool was_there = node_remove(node, key_name(world, key));
	if (!evicts)
		return;
	node->evicted_at = world->now;
	node->server.evicted += was_there;
}

/* The operator's part, whom redlockd warns: expiries set while the clock was ahead last too long once it is set
 * back. */
void node_drop_lasting(struct world *world, unsigned index)
{
	struct node *node = &world->nodes[index];
	const struct config *config = &world->config;
	node_sync(world, index);
	uint64_t now_us = node->server.now_us, lease_ends_ms = (now_us + config->max_ttl_us) / MS + 1;
	for (unsigned key = 0; key < KEYS; key++) {
		const struct store_key *found = store_peek(node->server.store, key_name(world, key),
							   strlen(key_name(world, key)));
		if (found && found->expires_ms > lease_ends_ms)
			node_drop(world, index, key, false);
	}
	node_remove_lasting(node, "redlockd:queue:", (now_us + config->wait_us + REDLOCK_ALIVE_US) / MS + 1);
	node_remove_lasting(node, "redlockd:alive:", now_us / MS + LEASE_PLACE_KEPT_MS + 1);
}
