/* SPDX-License-Identifier: MIT */
/* Drives the restart guard: carries out the actions of server/redlock/guard/guard.c over the connections of the
 * masters, and reports them to the log and the metrics. The state machine is in guard.c; this file only talks to Redis.
 *
 * The guard's scripts are sent with their source: once a second this costs little, and NOSCRIPT cannot happen. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum {
	SLICE = 256, /* fence buckets that are read at once, which takes a master some 200 µs */
	QUARANTINE_EXTRA_MS = 2000,
	ARGUMENTS_MAX = 14 /* of a command with a script */
};
_Static_assert(MASTER_FENCE_BUCKETS % SLICE == 0, "slices cover all buckets");

void master_guard_init(struct masters *masters)
{
	const struct options *options = masters->options;
	uint64_t ttl_us = options->max_ttl_ms * UINT64_C(1000);
	struct guard_params params = {
		.masters = (uint8_t)masters->count,
		.max_ttl_us = ttl_us,
		.drift_ppm = (uint32_t)(options->drift_factor * 1e6 + 1),
		.margin_us = (options->drift_ms + (uint64_t)QUARANTINE_EXTRA_MS) * 1000,
		.timeout_us = options->master_timeout_ms * UINT64_C(1000),
		.waits_longest = options->restart_guard == OPTIONS_GUARD_WHOLE,
		.slices = MASTER_FENCE_BUCKETS / SLICE,
		.durable = options->durable_masters,
		.digest = master_digest_of(masters->count, options->durable_masters),
		.bootstrap = options->bootstrap || options->dev,
		.seed = random_number(),
	};
	guard_init(&masters->guard, &params);
}

/* ---- the log and the metrics ---- */

static void handle_jump(struct master *master, enum guard_clock clock)
{
	assert(clock != GUARD_CLOCK_STEADY);
	bool forward = clock == GUARD_CLOCK_JUMPED_FORWARD;
	int64_t jump_us = master->all->guard.masters[master->index].jump_us;
	if (!forward)
		master->clock_back_until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
	metrics_add(&master->metrics->clock_jumps[forward ? 0 : 1], 1);
	log_begin(LOG_WARN, "clock-jump");
	log_text("master", master->link.address->shown);
	log_text("direction", forward ? "forward" : "back");
	log_num("jump_ms", jump_us / 1000);
	log_end();
}

static void store_time(struct master *master, uint64_t sent_us, uint64_t now_us, uint64_t time_us)
{
	assert(sent_us <= now_us && time_us > 0);
	enum guard_clock clock = guard_time(&master->all->guard, (unsigned)master->index, sent_us, now_us, time_us);
	if (clock != GUARD_CLOCK_STEADY)
		handle_jump(master, clock);
}

/* ---- a new cluster, and a master that answers but cannot be used ----
 *
 * --bootstrap: the operator declares that the cluster is new. A minority of the masters may answer but be unusable (a
 * wrong password, a replica, a hash of another type). The others begin without it, unless its hash shows an epoch: then
 * the cluster is not new. If redlockd may not even read the hash, the operator's declaration counts. A master that does
 * not answer may have an epoch, and is waited for (guard.c).
 *
 * The hash is read without a script, since a replica and a server that is too old refuse scripts. */

/* Errors that only an operator can correct. All others are temporary, and the server keeps its memory meanwhile. */
static bool is_lasting(enum master_error error)
{
	return error == MASTER_ERROR_AUTH || error == MASTER_ERROR_COMMAND;
}

static void dispatch(struct masters *masters);

static void report_unusable(struct master *master)
{
	if (!master->all->guard.bootstrap_open)
		return;
	master_guard_notify(master, GUARD_UNUSABLE);
	if (!master->left_out) {
		log_begin(LOG_WARN, "bootstrap-without");
		log_text("master", master->link.address->shown);
		log_end();
	}
	master->left_out = true;
	dispatch(master->all);
}

void master_guard_handle_refusal(struct master *master, enum master_error error)
{
	if (is_lasting(error))
		report_unusable(master);
}

static void on_hash_read(struct master *master, unsigned what, const redisReply *reply)
{
	(void)what;
	if (reply->type == REDIS_REPLY_ERROR) {
		bool other_type = strncmp(reply->str, "WRONGTYPE", 9) == 0;
		master_guard_handle_refusal(master,
					    other_type ? MASTER_ERROR_COMMAND : master_error_classify(reply->str));
		return;
	}
	bool empty = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		     reply->element[0]->type == REDIS_REPLY_NIL && reply->element[1]->type == REDIS_REPLY_NIL;
	if (empty)
		report_unusable(master);
}

void master_guard_inspect_hash(struct master *master)
{
	if (master->all->guard.bootstrap_open)
		master_command_send(master, on_hash_read, 0,
				    (const char *[]){"HMGET", master->all->hash_key, "epoch", "cluster", NULL});
}

/* ---- answers to the guard's scripts ---- */

/* Finds keys that were dropped while nobody was connected, by the last count, which the hash keeps. A smaller count now
 * was reset (CONFIG RESETSTAT); how far it had grown before is unknown. */
static void compare_evicted(struct master *master, const char *kept)
{
	if (!master->evicted_known && kept[0] && strtoull(kept, NULL, 10) != master->info.evicted)
		master_guard_notify(master, GUARD_DROPPED_KEYS);
	master->evicted_known = true;
}

/* The action that each event answers. */
static const enum guard_action_kind actions[] = {[GUARD_EPOCH] = GUARD_READ,
						 [GUARD_QUARANTINED] = GUARD_QUARANTINE,
						 [GUARD_FENCES] = GUARD_SURVEY,
						 [GUARD_EPOCH_WRITTEN] = GUARD_WRITE_EPOCH};

static void on_guard_answer(struct master *master, unsigned kind, const redisReply *reply)
{
	struct masters *masters = master->all;
	struct guard_event event = {.kind = kind, .master = (uint8_t)master->index, .now_us = clock_now_us()};
	uint64_t time_us;
	const char *evicted;
	assert(kind <= GUARD_EPOCH_WRITTEN && actions[kind] != GUARD_NOTHING && master->link.state == LINK_UP);
	if (!master_is_member(master))
		return; /* the guard got LOST */
	bool good = master_reply_map_guard(reply, &event, &time_us, &evicted);
	if (good) {
		store_time(master, master->answered_sent_us, event.now_us, time_us);
		if (kind == GUARD_EPOCH)
			compare_evicted(master, evicted); /* first: the guard's decision on the epoch depends on it */
	} else {
		event.kind = GUARD_FAILED;
		event.action = actions[kind];
		master_state_doubt_reply(master, reply);
		if (kind == GUARD_EPOCH)
			master_guard_inspect_hash(master);
	}
	if (master_guard_is_on(masters))
		guard_event(&masters->guard, &event);
	if (good && kind == GUARD_EPOCH) {
		master->clocked_us = event.clocked_us;
		master->time_us = time_us;
		master->member = MEMBER_READ;
	}
	dispatch(masters);
}

/* ---- sending ---- */

/* Numbers as they are in the hash. The epoch that a master must have is "" if it has none yet. */
#define HEX "%016" PRIx64 "\n"
#define DECIMAL "%" PRIu64 "\n"
#define EPOCH "%.*" PRIx64 "\n"
#define EPOCH_OF(epoch) (epoch) ? 16 : 0, (epoch)

/* A script of the guard, with its source. `format`: the arguments, each with the end of a line. */
static __attribute__((format(printf, 4, 5))) void send_guard_script(struct master *master, enum guard_script script,
								    enum guard_event_kind answer, const char *format,
								    ...)
{
	const char *argv[ARGUMENTS_MAX + 1] = {"EVAL", scripts[script].source, "1", master->all->hash_key};
	char text[ARGUMENTS_MAX * (sizeof master->info.run_id + 1)];
	va_list arguments;
	assert(master->link.state == LINK_UP);
	va_start(arguments, format);
	int len = vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	assert(len > 0 && (size_t)len < sizeof text && text[len - 1] == '\n');
	size_t count = 4;
	for (char *at = text; *at; at++) {
		assert(count < ARGUMENTS_MAX);
		argv[count++] = at;
		at = strchr(at, '\n');
		*at = '\0';
	}
	master_command_send(master, on_guard_answer, answer, argv);
}

/* In the time of this master. A later epoch would contradict other redlockd, which have decided without it by then. */
static uint64_t epoch_deadline_us(const struct master *master)
{
	uint64_t until_us = clock_now_us() + MASTER_HANDSHAKE_MS * UINT64_C(1000);
	return guard_master_time_us(&master->all->guard, (unsigned)master->index, until_us);
}

void master_guard_read(struct master *master, uint64_t kept_epoch)
{
	const struct guard *guard = &master->all->guard;
	char evicted[24] = "";
	if (master->info.run_id[0])
		snprintf(evicted, sizeof evicted, "%" PRIu64, master->info.evicted);
	send_guard_script(master, REDLOCK_SCRIPT_EPOCH, GUARD_EPOCH,
			  HEX DECIMAL "%s\n%d\n" DECIMAL "%s\n" EPOCH DECIMAL, guard->params.digest,
			  guard_longest_us(guard) / 1000, evicted, master->evicted_known,
			  (uint64_t)master->all->options->master_timeout_ms, master->info.run_id, EPOCH_OF(kept_epoch),
			  epoch_deadline_us(master));
}

static void send_quarantine(struct master *master, const struct guard_action *action)
{
	send_guard_script(master, REDLOCK_SCRIPT_QUARANTINE, GUARD_QUARANTINED,
			  EPOCH HEX "%s\n%d\n" DECIMAL HEX "%.*" PRIx64 "\n", EPOCH_OF(action->epoch), action->marker,
			  master->info.run_id, action->kept, action->ttl_us / 1000, master->all->guard.params.digest,
			  action->takes_over ? 16 : 0, action->takes_over ? action->digest : 0);
}

static void send_survey(struct master *master, const struct guard_action *action)
{
	uint64_t first = action->slice * (uint64_t)SLICE;
	assert(first + SLICE <= MASTER_FENCE_BUCKETS);
	send_guard_script(master, REDLOCK_SCRIPT_FENCES, GUARD_FENCES, EPOCH DECIMAL DECIMAL, EPOCH_OF(action->epoch),
			  first, first + SLICE - 1);
}

static void send_write_epoch(struct master *master, const struct guard_action *action)
{
	const struct masters *masters = master->all;
	send_guard_script(master, REDLOCK_SCRIPT_EPOCH_WRITE, GUARD_EPOCH_WRITTEN,
			  HEX "%s\n" HEX HEX DECIMAL DECIMAL "%d\n" DECIMAL DECIMAL, action->marker,
			  master->info.run_id, action->cluster, masters->guard.params.digest, action->ttl_us / 1000,
			  action->fence, action->clocked, (uint64_t)masters->options->master_timeout_ms,
			  epoch_deadline_us(master));
}

static void send_action(struct master *master, const struct guard_action *action)
{
	switch (action->kind) {
	case GUARD_READ: master_guard_read(master, action->epoch); break;
	case GUARD_QUARANTINE: send_quarantine(master, action); break;
	case GUARD_SURVEY: send_survey(master, action); break;
	case GUARD_WRITE_EPOCH: send_write_epoch(master, action); break;
	case GUARD_NOTHING: break;
	}
}

static void send_next(struct masters *masters)
{
	for (unsigned i = 0; master_guard_is_on(masters) && i < masters->count; i++) {
		struct guard_action action;
		if (masters->list[i].link.state != LINK_UP || !master_is_member(&masters->list[i]))
			continue;
		guard_next(&masters->guard, i, clock_now_us(), clock_wall_us(), &action);
		send_action(&masters->list[i], &action);
	}
}

/* Sends the heartbeat earlier if the guard must act before the next one. While a cluster begins they are frequent
 * anyway. */
static void schedule_early_heartbeat(struct master *master)
{
	uint64_t left_ms = master_state_guard_left_ms(master);
	if (left_ms > 0 && left_ms < MASTER_HEARTBEAT_MS && master->heartbeat == HEARTBEAT_IDLE &&
	    !master_state_is_beginning(master))
		master_link_set_timer(&master->link, left_ms);
}

/* Carries out what the guard wants done now. */
static void dispatch(struct masters *masters)
{
	send_next(masters);
	send_next(masters); /* a master may now have what it needs from another one */
	/* the answer of one master may change the state of another */
	for (size_t i = 0; i < masters->count; i++) {
		if (masters->list[i].link.state != LINK_UP)
			continue;
		master_state_report(&masters->list[i]);
		if (master_guard_is_on(masters))
			schedule_early_heartbeat(&masters->list[i]);
	}
}

/* ---- what happens to a connection ---- */

void master_guard_notify(struct master *master, enum guard_event_kind kind)
{
	struct masters *masters = master->all;
	struct guard_event event = {.kind = kind, .master = (uint8_t)master->index, .now_us = clock_now_us()};
	assert(kind == GUARD_CONNECTED || kind == GUARD_LOST || kind == GUARD_DROPPED_KEYS || kind == GUARD_WEAKENED ||
	       kind == GUARD_UNUSABLE);
	if (!master_guard_is_on(masters))
		return;
	if (kind == GUARD_CONNECTED) {
		event.run_id = master_reply_number(master->info.run_id, strlen(master->info.run_id), 16);
		event.client_id = master->client_id;
	}
	guard_event(&masters->guard, &event);
}

/* For the guard, a server that is not one of our masters (a replica, a second address of a master) counts as not
 * connected: it does not have the memory of the master. */
void master_guard_exclude(struct master *master, bool excluded)
{
	if (excluded && master_is_member(master)) {
		master->member = MEMBER_EXPELLED;
		master_guard_notify(master, GUARD_LOST);
	} else if (!excluded && master->member == MEMBER_EXPELLED) /* its epoch may have been changed meanwhile */
		master_link_fail(&master->link, "connecting: it was no master of ours for a while");
	else if (!excluded && master->member == MEMBER_UNKNOWN && master->link.state == LINK_UP) {
		master->member = MEMBER_ASKED;
		master_guard_notify(master, GUARD_CONNECTED);
		if (master_guard_is_on(master->all))
			dispatch(master->all);
		else
			master_guard_read(master, 0); /* for the clock alone */
	}
}

/* ---- answers to the scripts of the core ---- */

void master_guard_evaluate_reply(struct master *master, const struct master_command *done, uint64_t now_us,
				 struct master_reply *reply)
{
	struct masters *masters = master->all;
	const struct guard_master *guarded = &masters->guard.masters[master->index];
	if (reply->vote == REDLOCK_VOTE_FAILED && reply->error == MASTER_ERROR_LATE)
		metrics_add(&master->metrics->late, 1);
	if (reply->time_us == 0)
		return;
	store_time(master, done->sent_us, now_us, reply->time_us);
	if (!master_guard_is_on(masters))
		return;
	if (reply->vote == REDLOCK_VOTE_QUARANTINED) {
		struct guard_event event = {.kind = GUARD_MISMATCH,
					    .master = (uint8_t)master->index,
					    .now_us = now_us,
					    .epoch = done->epoch};
		guard_event(&masters->guard, &event);
	} else if (guarded->state != GUARD_VOTING || guarded->epoch != done->epoch) {
		master_reply_fail(reply,
				  MASTER_ERROR_QUARANTINED); /* since the command was sent: its vote does not count */
	} else if (done->until_s != 0 && reply->vote == REDLOCK_VOTE_GRANTED)
		guard_leases_remember(&masters->guard, (unsigned)master->index, done->until_s);
	if (guarded->state != GUARD_VOTING)
		dispatch(masters);
}
