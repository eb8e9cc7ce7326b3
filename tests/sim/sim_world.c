/* SPDX-License-Identifier: MIT */
/* What happens in the world: see sim_world.h. The upper half stands for the daemon (server/leases/lease_op.c). */
#include "sim_world.h"

#include <assert.h>
#include <string.h>

enum { TICK_US = 1, TIMEOUT_US = 2, DRIFT_US = 1, START_US = 100, WAIT_US = 1 << 30, LONG_US = 1000000 };

void sim_init(struct sim_world *world, const struct sim_config *config)
{
	struct redlock_params params = {
		.kind = REDLOCK_ACQUIRE,
		.masters = SIM_MASTERS,
		.tries = config->tries > 0 ? config->tries : 1,
		.ttl_us = (config->useful_ticks > 0 ? config->useful_ticks : 3U) + DRIFT_US,
		.drift_us = DRIFT_US,
		.master_timeout_us = TIMEOUT_US,
		.retry_min_us = 1,
		.retry_max_us = 1,
		.wait_us = config->attempts > 0 ? WAIT_US : 0,
	};
	memset(world, 0, sizeof *world);
	for (unsigned o = 0; o < SIM_OPS; o++) {
		struct redlock_params its = params;
		if (config->extends && o != 1) {
			its.kind = REDLOCK_EXTEND;
			its.ttl_us = LONG_US; /* else there is no time for a repair */
		}
		redlock_init(&world->ops[o].core, &its, 0);
		world->ops[o].now_us = START_US;
	}
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		uint8_t number = config->buckets[i] > 0 ? config->buckets[i] : 5;
		world->masters[i] = sim_master_new(config->floors[i], (uint8_t[]){number, number, number});
	}
	world->wiped = SIM_MASTERS;
	world->drops_left = config->drops;
	world->troubles_left = config->troubles;
	if (config->extends)
		sim_extend_init(world, config);
}

/* ---- what the core wants sent ---- */

struct sim_told {
	unsigned count;
	struct redlock_event events[2 * SIM_QUEUE];
};

static void tell_later(struct sim_told *told, unsigned master, const struct sim_command *command,
		       enum redlock_vote vote)
{
	assert(told->count < sizeof told->events / sizeof *told->events);
	told->events[told->count++] = (struct redlock_event){
		.kind = REDLOCK_REPLY,
		.master = (uint8_t)master,
		.attempt = command->attempt,
		.round = command->round,
		.script = (enum redlock_script)command->script,
		.vote = vote,
	};
}

static void send_command(struct sim_link *link, unsigned master, struct sim_command command, struct sim_told *told)
{
	bool is_release = command.script == REDLOCK_SCRIPT_RELEASE;
	if (command.epoch == 0) { /* MASTER_REFUSED: there is no key of it */
		tell_later(told, master, &command, REDLOCK_VOTE_QUARANTINED);
		return;
	}
	command.silent |= link->state != SIM_UP;
	if (link->state == SIM_GONE && is_release)
		link->excused = true;
	if (link->state == SIM_UP || (link->state == SIM_HUNG && is_release)) {
		assert(link->command_count < SIM_QUEUE);
		link->commands[link->command_count++] = command;
	}
	if (link->state != SIM_UP)
		tell_later(told, master, &command, REDLOCK_VOTE_UNSENT);
}

/* A new try: what the last one held and raised says nothing of this one. */
static void note_attempt(struct sim_world *world, unsigned o)
{
	struct sim_op *op = &world->ops[o];
	op->before = 0;
	for (unsigned other = 0; other < SIM_OPS; other++)
		if (other != o && world->ops[other].done && world->ops[other].outcome == REDLOCK_OK)
			op->before |= (uint8_t)(1U << other);
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		for (unsigned other = 0; other < SIM_OPS && op->turn[i] != 0; other++)
			if (world->ops[other].turn[i] > op->turn[i])
				world->ops[other].turn[i]--;
		op->epochs[i] = sim_master(world->masters[i])->epoch;
		op->turn[i] = 0;
		op->told = false;
		op->increased[i] = 0;
	}
}

static void take_result(struct sim_world *world, struct sim_op *op, const struct redlock_result *result)
{
	if (op->done)
		world->violated |= SIM_ONCE;
	assert(result->fence < UINT8_MAX);
	op->done = true;
	op->outcome = (uint8_t)result->outcome;
	op->fence = result->outcome == REDLOCK_OK ? (uint8_t)result->fence : 0;
}

static void step(struct sim_world *world, unsigned o, const struct redlock_event *event, struct sim_told *told)
{
	struct sim_op *op = &world->ops[o];
	struct redlock_output out;
	uint16_t attempt = op->core.attempt;
	if (event->kind == REDLOCK_REPLY)
		op->pending--;
	redlock_step(&op->core, event, &out);
	if (op->core.attempt != attempt)
		note_attempt(world, o);
	assert(out.script == REDLOCK_SCRIPT_NONE || out.fence < UINT8_MAX);
	struct sim_command command = {.script = (uint8_t)out.script,
				      .attempt = (uint8_t)out.attempt,
				      .round = (uint8_t)out.round,
				      .fence = (uint8_t)out.fence,
				      .entry = (uint8_t)out.entry,
				      .tokenless = out.tokenless};
	for (unsigned i = 0; i < SIM_MASTERS && out.script != REDLOCK_SCRIPT_NONE; i++) {
		if (!redlock_has(out.to, i))
			continue;
		op->pending++;
		command.epoch = op->epochs[i];
		command.repair = out.repair;
		command.seen = out.repair ? op->gone[i] : 0;
		send_command(&op->links[i], i, command, told);
	}
	if (out.script == REDLOCK_SCRIPT_RAISE)
		op->now_us += TICK_US; /* a round takes time: so their number is bounded */
	if (out.done)
		take_result(world, op, &out.result);
	if (out.finished != (op->done && op->pending == 0) || (out.finished && op->finished))
		world->violated |= SIM_ONCE;
	op->finished |= out.finished;
}

/* One event and all that follows from it at once, as op_drive() in server/leases/lease.c. */
void sim_drive(struct sim_world *world, unsigned o, struct redlock_event *event)
{
	struct sim_told told = {.count = 0};
	event->now_us = world->ops[o].now_us;
	step(world, o, event, &told);
	for (unsigned i = 0; i < told.count; i++) {
		told.events[i].now_us = world->ops[o].now_us;
		step(world, o, &told.events[i], &told);
	}
}

/* ---- replies ---- */

void sim_send(struct sim_world *world, unsigned o, unsigned master, const struct sim_command *command)
{
	struct sim_told unused = {.count = 0};
	send_command(&world->ops[o].links[master], master, *command, &unused);
}

static void deliver(struct sim_world *world, unsigned o, unsigned master)
{
	struct sim_op *op = &world->ops[o];
	struct sim_link *link = &op->links[master];
	assert(link->reply_count > 0);
	struct sim_reply reply = link->replies[0];
	memmove(link->replies, link->replies + 1, --link->reply_count * sizeof *link->replies);
	memset(&link->replies[link->reply_count], 0, sizeof *link->replies);
	if (reply.vote == REDLOCK_VOTE_GONE)
		op->gone[master] = reply.fence;
	struct redlock_event event = {
		.kind = REDLOCK_REPLY,
		.master = (uint8_t)master,
		.attempt = reply.attempt,
		.round = reply.round,
		.script = (enum redlock_script)reply.script,
		.vote = (enum redlock_vote)reply.vote,
		.fence = reply.script == REDLOCK_SCRIPT_EXTEND ? SIM_LEASE_FENCE : reply.fence,
		.holder = reply.holder,
		.elsewhere = reply.elsewhere,
		.ttl_us = op->core.params.ttl_us,
		.remaining_us = SIM_KEY_TTL_MS * 1000,
	};
	sim_drive(world, o, &event);
}

/* Only to be counted. What one that waits hears after its grant may make it leave the queue there. */
static bool is_dead(const struct sim_op *op, const struct sim_reply *reply)
{
	bool may_leave = op->arrival != 0 && op->done && op->outcome == REDLOCK_OK &&
			 reply->script == REDLOCK_SCRIPT_ACQUIRE;
	if (sim_is_extension(op))
		return reply->script == REDLOCK_SCRIPT_ACQUIRE;
	return reply->attempt != op->core.attempt || (!sim_is_open(op) && !may_leave);
}

/* Replies that can only be counted are handed over at once: that changes nothing for anybody else, so that other orders
 * need not be looked at. */
static void deliver_dead_replies(struct sim_world *world, unsigned o)
{
	struct sim_op *op = &world->ops[o];
	for (unsigned i = 0; i < SIM_MASTERS; i++)
		while (op->links[i].reply_count > 0 && is_dead(op, &op->links[i].replies[0]))
			deliver(world, o, i);
}

/* ---- the masters ---- */

/* `before`: the largest number of its buckets before that. */
static void note_granted(struct sim_world *world, unsigned o, unsigned master, const struct sim_command *command,
			 uint8_t before)
{
	struct sim_op *op = &world->ops[o];
	bool acquire = command->script == REDLOCK_SCRIPT_ACQUIRE;
	if (command->attempt != op->core.attempt || command->script == REDLOCK_SCRIPT_RELEASE || sim_is_extension(op))
		return;
	if (acquire && op->turn[master] == 0) {
		uint8_t turn = 1;
		for (unsigned other = 0; other < SIM_OPS; other++)
			turn = (uint8_t)(turn + (world->ops[other].turn[master] != 0));
		op->turn[master] = turn;
	}
	if (before < command->fence)
		op->increased[master] = command->fence;
}

static void execute(struct sim_world *world, const struct sim_config *config, unsigned o, unsigned master,
		    const struct sim_command *command, struct sim_reply *ret_reply)
{
	struct sim_request request = {
		.script = command->script,
		.names = sim_names(config, o),
		.token = sim_is_extension(&world->ops[o]) ? sim_token(0, 1) : sim_token(o, command->attempt),
		.epoch = command->epoch,
		.kind = (uint8_t)sim_lease_kind(config, o),
		.keeps = command->keeps,
		.repair = command->repair,
	};
	if (command->late) {
		*ret_reply = (struct sim_reply){
			command->script, command->attempt, command->round, REDLOCK_VOTE_FAILED, 0, 0, false};
		return;
	}
	if (command->script != REDLOCK_SCRIPT_RELEASE)
		request.fence = command->fence;
	if (command->script == REDLOCK_SCRIPT_ACQUIRE)
		request.slot = sim_slot(config, command->attempt);
	request.most = request.kind != SIM_EXCLUSIVE ? sim_most(config) : 0;
	enum redlock_vote vote = REDLOCK_VOTE_FAILED;
	uint8_t before = 0;
	sim_queue_entry(world, config, o, command, &request);
	request.arrival = command->repair ? command->seen : request.arrival;
	FOR_EACH_KEY (key, request.names) {
		uint8_t number = sim_master(world->masters[master])->numbers[config->sets ? key : 0];
		before = number > before ? number : before;
	}
	const struct sim_effect *effect = sim_master_run(world->masters[master], &request);
	world->masters[master] = effect->state;
	switch (effect->code) { /* as master_reply_map() */
	case 1: vote = REDLOCK_VOTE_GRANTED; break;
	case 2: vote = command->script == REDLOCK_SCRIPT_RAISE ? REDLOCK_VOTE_STALE : REDLOCK_VOTE_QUEUED; break;
	case 0: vote = REDLOCK_VOTE_HELD; break;
	case -1: vote = REDLOCK_VOTE_GONE; break;
	case -3: vote = REDLOCK_VOTE_QUARANTINED; break;
	}
	if (vote == REDLOCK_VOTE_GRANTED)
		note_granted(world, o, master, command, before);
	if (config->extends)
		sim_extend_note(world, o, master, command, vote);
	sim_queue_note_notification(world, config, master, effect);
	*ret_reply = (struct sim_reply){command->script,  command->attempt,
					command->round,   (uint8_t)vote,
					effect->old,      effect->is_several ? SIM_SHARED_HOLDER : effect->holder,
					effect->elsewhere};
}

static struct sim_command shift(struct sim_command *commands, uint8_t *count)
{
	assert(*count > 0);
	struct sim_command command = commands[0];
	memmove(commands, commands + 1, --*count * sizeof *commands);
	memset(&commands[*count], 0, sizeof *commands);
	return command;
}

static void execute_next(struct sim_world *world, const struct sim_config *config, unsigned o, unsigned master)
{
	struct sim_link *link = &world->ops[o].links[master];
	struct sim_command command = shift(link->commands, &link->command_count);
	struct sim_reply reply;
	execute(world, config, o, master, &command, &reply);
	if (command.silent)
		return;
	assert(link->reply_count < SIM_QUEUE);
	link->replies[link->reply_count++] = reply;
}

static void execute_stale(struct sim_world *world, const struct sim_config *config, unsigned o, unsigned master)
{
	struct sim_link *link = &world->ops[o].links[master];
	struct sim_command command = shift(link->stale, &link->stale_count);
	struct sim_reply reply;
	execute(world, config, o, master, &command, &reply);
}

/* A command of a decided operation to a master that was wiped since is refused and deletes nothing: at once, too. */
static void execute_dead_commands(struct sim_world *world, const struct sim_config *config)
{
	for (unsigned o = 0; o < SIM_OPS && world->wiped < SIM_MASTERS; o++) {
		struct sim_link *link = &world->ops[o].links[world->wiped];
		while (world->ops[o].done && link->command_count > 0 && link->commands[0].epoch == SIM_EPOCH)
			execute_next(world, config, o, world->wiped);
	}
}

/* ---- troubles ---- */

/* The connection is lost with all that is in it; the core is told FAILED for all that it waits for. */
static void lose(struct sim_world *world, unsigned o, unsigned master, enum sim_kind how)
{
	struct sim_link *link = &world->ops[o].links[master], old = *link;
	struct sim_told told = {.count = 0};
	link->command_count = link->reply_count = 0;
	memset(link->commands, 0, sizeof link->commands);
	memset(link->replies, 0, sizeof link->replies);
	link->state = how == SIM_LOSE_FOR_GOOD ? SIM_GONE : SIM_UP;
	link->excused = old.excused || how == SIM_LOSE_LATE;
	for (unsigned i = 0; i < old.reply_count; i++) {
		struct sim_command asked = {.script = old.replies[i].script,
					    .attempt = old.replies[i].attempt,
					    .round = old.replies[i].round};
		tell_later(&told, master, &asked, REDLOCK_VOTE_FAILED);
	}
	for (unsigned i = 0; i < old.command_count; i++) {
		link->excused |= old.commands[i].script == REDLOCK_SCRIPT_RELEASE;
		if (!old.commands[i].silent)
			tell_later(&told, master, &old.commands[i], REDLOCK_VOTE_FAILED);
	}
	if (how == SIM_LOSE_LATE) {
		memcpy(link->stale, old.commands, sizeof link->stale);
		link->stale_count = old.command_count;
	}
	for (unsigned i = 0; i < told.count; i++)
		sim_drive(world, o, &told.events[i]);
}

/* ---- events ---- */

/* The holder gives its lock back: the real core's release says where to. Nobody needs what it answers. */
static void release(struct sim_world *world, const struct sim_config *config, unsigned o)
{
	struct sim_op *op = &world->ops[o];
	struct redlock core;
	struct redlock_output out;
	struct redlock_params params = op->core.params;
	struct redlock_event event = {.kind = REDLOCK_START, .now_us = op->now_us};
	struct sim_told unused = {.count = 0};
	params.kind = REDLOCK_RELEASE;
	params.wait_us = 0;
	redlock_init(&core, &params, 0);
	redlock_step(&core, &event, &out);
	for (unsigned i = 0; i < SIM_MASTERS; i++) {
		struct sim_command command = {.script = (uint8_t)out.script,
					      .attempt = (uint8_t)op->core.attempt,
					      .silent = true,
					      .keeps = config->keeps,
					      .epoch = op->epochs[i]};
		if (redlock_has(out.to, i))
			send_command(&op->links[i], i, command, &unused);
	}
	op->released = true;
}

static bool can_be_troubled(const struct sim_world *world, const struct sim_config *config,
			    const struct sim_event *event)
{
	const struct sim_op *op = &world->ops[event->op];
	const struct sim_link *link = &op->links[event->master];
	bool open = sim_is_open(op) || sim_is_between(op);
	if (world->troubles_left == 0 || link->state == SIM_GONE)
		return false;
	switch ((enum sim_kind)event->kind) {
	case SIM_DOWN: return op->core.state == REDLOCK_IDLE;
	case SIM_HANG: return open && link->state == SIM_UP;
	case SIM_LOSE: return open || (op->done && link->command_count > 0);
	case SIM_LOSE_LATE: return config->linger && link->command_count > 0 && link->stale_count == 0;
	default: return open;
	}
}

bool sim_can(const struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	const struct sim_op *op = &world->ops[event->op];
	const struct sim_link *link = &op->links[event->master];
	bool between = sim_is_between(op);
	if (config->extends && (sim_extend_is_its(event) || !sim_extend_may(world, config, event)))
		return sim_extend_is_its(event) && sim_extend_can(world, config, event);
	switch ((enum sim_kind)event->kind) {
	case SIM_START: return op->core.state == REDLOCK_IDLE && config->guesses[event->arg] > 0;
	case SIM_EXECUTE: return link->command_count > 0;
	case SIM_DELIVER: return link->reply_count > 0;
	case SIM_STALE: return link->stale_count > 0;
	case SIM_TIMER:
		if (op->core.state == REDLOCK_WAITING && !sim_queue_can_wake_up(world, config, event->op))
			return false;
		return redlock_deadline_us(&op->core) != REDLOCK_NEVER &&
		       (between ? config->guesses[event->arg] > 0 : event->arg == 0);
	case SIM_CANCEL: return (sim_is_open(op) || between) && sim_queue_may_leave(config, op);
	case SIM_RELEASE: return op->done && op->outcome == REDLOCK_OK && !op->released;
	case SIM_LATE:
		return config->late && sim_is_open(op) && op->core.state != REDLOCK_LEAVING && sim_has_validity(op);
	case SIM_DROP: return world->drops_left > 0 && sim_event_token(world, config, event) != 0;
	case SIM_DOWN:
	case SIM_HANG:
	case SIM_LOSE:
	case SIM_LOSE_FOR_GOOD:
	case SIM_LOSE_LATE: return can_be_troubled(world, config, event);
	case SIM_WIPE:
	case SIM_RUN_OUT:
	case SIM_EXPIRE:
	case SIM_SURVEY:
	case SIM_WRITE_EPOCH: return config->wipes > 0 && sim_wipe_can(world, config, event);
	case SIM_NOTIFY:
	case SIM_END: return config->attempts > 0 && sim_queue_can(world, config, event);
	case SIM_KINDS: break;
	}
	return false;
}

static void apply_timer(struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	struct sim_op *op = &world->ops[event->op];
	struct redlock_event timer = {.kind = REDLOCK_TIMER, .fence = config->guesses[event->arg]};
	if (op->now_us < redlock_deadline_us(&op->core))
		op->now_us = redlock_deadline_us(&op->core);
	sim_drive(world, event->op, &timer);
}

static void apply_trouble(struct sim_world *world, const struct sim_event *event)
{
	struct sim_link *link = &world->ops[event->op].links[event->master];
	world->troubles_left--;
	if (event->kind == SIM_DOWN)
		link->state = SIM_GONE;
	else if (event->kind == SIM_HANG)
		link->state = SIM_HUNG;
	else
		lose(world, event->op, event->master, (enum sim_kind)event->kind);
}

static void apply_event(struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	struct redlock_event start = {.kind = REDLOCK_START, .fence = config->guesses[event->arg]};
	switch ((enum sim_kind)event->kind) {
	case SIM_START:
		sim_queue_begin(world, config, event->op, config->guesses[event->arg]);
		sim_drive(world, event->op, &start);
		break;
	case SIM_EXECUTE: execute_next(world, config, event->op, event->master); break;
	case SIM_DELIVER: deliver(world, event->op, event->master); break;
	case SIM_STALE: execute_stale(world, config, event->op, event->master); break;
	case SIM_TIMER: apply_timer(world, config, event); break;
	case SIM_CANCEL: sim_drive(world, event->op, &(struct redlock_event){.kind = REDLOCK_CANCEL}); break;
	case SIM_RELEASE: release(world, config, event->op); break;
	case SIM_LATE:
	case SIM_RUN_OUT: world->ops[event->op].now_us = sim_useful_until_us(&world->ops[event->op]); break;
	case SIM_WIPE: sim_wipe(world, event->master); break;
	case SIM_NOTIFY:
	case SIM_END: sim_queue_apply(world, config, event); break;
	case SIM_SURVEY: sim_wipe_survey(world, event->master); break;
	case SIM_WRITE_EPOCH: sim_wipe_write_epoch(world, event->master); break;
	case SIM_DROP:
	case SIM_EXPIRE:
		world->drops_left = (uint8_t)(world->drops_left - (event->kind == SIM_DROP));
		world->masters[event->master] = sim_master_drop(world->masters[event->master],
								sim_event_key(config, event),
								sim_event_token(world, config, event));
		break;
	default: apply_trouble(world, event); break;
	}
}

void sim_apply(struct sim_world *world, const struct sim_config *config, const struct sim_event *event)
{
	assert(sim_can(world, config, event));
	if (config->extends && sim_extend_is_its(event))
		sim_extend_apply(world, config, event);
	else
		apply_event(world, config, event);
	execute_dead_commands(world, config);
	for (unsigned o = 0; o < SIM_OPS; o++)
		deliver_dead_replies(world, o);
	sim_check(world, config);
}
