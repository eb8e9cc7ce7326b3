/* The restart guard at work: carries out what server/redlock/guard/guard.c decides, over the connections of the
 * masters, and reports it to the log and the metrics. The state machine is there; here is only the way to Redis and
 * back.
 *
 * The guard's scripts are sent with their source: once a second that costs nothing, and NOSCRIPT cannot happen. Text of
 * Redis becomes numbers here: 16 hex digits, of a run_id the first 16. The worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum {
	SLICE = 128, /* fence buckets that are read at once */
	LAYOUT = 1,  /* of the hash */
	QUARANTINE_EXTRA_MS = 2000,
	ARGUMENTS_MAX = 12,
	DEADLINE_STEP_US = 1000,
	/* The end of each script's command is "$16\r\n", the epoch, "\r\n$16\r\n", the deadline, "\r\n". */
	DEADLINE_FROM_END = MASTER_DIGITS + 2,
	EPOCH_FROM_END = DEADLINE_FROM_END + 5 + 2 + MASTER_DIGITS,
	TAIL_LEN = EPOCH_FROM_END + 5
};
#define LATEST_US UINT64_C(9999999999999999) /* MASTER_DIGITS digits */
static const char no_epoch[] = "----------------";

/* On which all redlockd over the same masters must agree. */
static uint64_t digest_of(size_t masters)
{
	assert(masters >= 1 && masters <= OPTIONS_MASTERS_MAX);
	return (uint64_t)LAYOUT << 48 | (uint64_t)masters << 32 | MASTER_FENCE_BUCKETS;
}

void master_guard_init(struct masters *masters)
{
	const struct options *options = masters->options;
	uint64_t ttl_us = options->max_ttl_ms * UINT64_C(1000);
	struct guard_params params = {
		.masters = (uint8_t)masters->count,
		.max_ttl_us = ttl_us,
		.drift_ppm = (uint32_t)(options->drift_factor * 1e6 + 1),
		.margin_us = (options->drift_ms + (uint64_t)QUARANTINE_EXTRA_MS) * 1000,
		.slices = MASTER_FENCE_BUCKETS / SLICE,
		.digest = digest_of(masters->count),
		.bootstrap = options->bootstrap || options->dev,
		.seed = random_number(),
	};
	guard_init(&masters->guard, &params);
}

/* ---- text and numbers ---- */

static uint64_t parse_hex(const char *text, size_t len)
{
	char digits[17];
	size_t count = len < 16 ? len : 16;
	memcpy(digits, text, count);
	digits[count] = '\0';
	return strtoull(digits, NULL, 16);
}

static uint64_t run_id_number(const struct master *master)
{
	return parse_hex(master->info.run_id, strlen(master->info.run_id));
}

static const redisReply *element(const redisReply *reply, size_t i)
{
	static const redisReply none = {.type = REDIS_REPLY_NIL};
	assert(reply && reply->type == REDIS_REPLY_ARRAY);
	return i < reply->elements ? reply->element[i] : &none;
}

static uint64_t integer_at(const redisReply *reply, size_t i)
{
	const redisReply *at = element(reply, i);
	return at->type == REDIS_REPLY_INTEGER && at->integer > 0 ? (uint64_t)at->integer : 0;
}

static uint64_t hex_at(const redisReply *reply, size_t i)
{
	const redisReply *at = element(reply, i);
	return at->type == REDIS_REPLY_STRING ? parse_hex(at->str, (size_t)at->len) : 0;
}

static uint64_t decimal_at(const redisReply *reply, size_t i)
{
	const redisReply *at = element(reply, i);
	return at->type == REDIS_REPLY_STRING ? strtoull(at->str, NULL, 10) : 0;
}

/* No redlockd gives longer leases (--max-ttl-ms). A larger number in the hash is a mistake, and would quarantine a
 * master for ever. */
static uint64_t ttl_us(uint64_t ttl_ms)
{
	return ttl_ms < GUARD_TTL_MAX_US / 1000 ? ttl_ms * 1000 : GUARD_TTL_MAX_US;
}

/* ---- the log and the metrics ---- */

/* The answer of one master may change the state of another. */
static void report_all(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++)
		if (masters->list[i].link.state == LINK_UP)
			master_state_report(&masters->list[i]);
}

static void note_jump(struct master *master, enum guard_clock clock)
{
	assert(clock != GUARD_CLOCK_STEADY);
	bool forward = clock == GUARD_CLOCK_JUMPED_FORWARD;
	int64_t jump_us = master->all->guard.masters[master->index].jump_us;
	if (!forward)
		master->clock_back_until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
	metrics_add(&master->all->metrics->masters[master->index].clock_jumps[forward ? 0 : 1], 1);
	log_begin(LOG_WARN, "clock-jump");
	log_text("master", master->link.address->shown);
	log_text("direction", forward ? "forward" : "back");
	log_num("jump_ms", jump_us / 1000);
	log_end();
}

static void note_time(struct master *master, uint64_t sent_us, uint64_t now_us, uint64_t time_us)
{
	assert(sent_us <= now_us && time_us > 0);
	enum guard_clock clock = guard_time(&master->all->guard, (unsigned)master->index, sent_us, now_us, time_us);
	if (clock != GUARD_CLOCK_STEADY)
		note_jump(master, clock);
}

/* ---- a new cluster, and a master that answers but cannot be used ----
 *
 * --bootstrap: the operator says that the cluster is new. Where a minority of the masters answers but cannot be used (a
 * wrong password, a replica, a hash of another type), the others begin without it, unless its hash shows an epoch: then
 * the cluster is not new. Where redlockd may not even read the hash, the operator's word counts. A master that does not
 * answer may have an epoch, and is waited for (guard.c).
 *
 * The hash is read without a script, since a replica and a server that is too old refuse those. */

/* Only an operator can mend it. All other errors come and go, and the server remembers what it has all the while. */
static bool is_lasting(enum master_error error)
{
	return error == MASTER_ERROR_AUTH || error == MASTER_ERROR_COMMAND;
}

static void note_unusable(struct master *master)
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
	master_guard_dispatch(master->all);
}

void master_guard_note_refusal(struct master *master, enum master_error error)
{
	if (is_lasting(error))
		note_unusable(master);
}

static void on_hash_read(struct master *master, const redisReply *reply)
{
	if (!reply || master->link.state != LINK_UP)
		return;
	if (reply->type == REDIS_REPLY_ERROR) {
		bool other_type = strncmp(reply->str, "WRONGTYPE", 9) == 0;
		master_guard_note_refusal(master, other_type ? MASTER_ERROR_COMMAND
							     : master_error_classify(reply->str, (size_t)reply->len));
		return;
	}
	bool empty = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		     reply->element[0]->type == REDIS_REPLY_NIL && reply->element[1]->type == REDIS_REPLY_NIL;
	if (empty)
		note_unusable(master);
}

void master_guard_inspect_hash(struct master *master)
{
	const char *read[] = {"HMGET", master->all->hash_key, "epoch", "cluster"};
	if (master->all->guard.bootstrap_open)
		(void)master_command_send(master, on_hash_read, 4, read);
}

/* ---- answers to the guard's scripts ---- */

static void fill_epoch(const redisReply *reply, struct guard_event *event)
{
	event->beat = integer_at(reply, 2);
	event->epoch = hex_at(reply, 3);
	event->epoch_run_id = hex_at(reply, 4);
	event->cluster = hex_at(reply, 5);
	event->digest = hex_at(reply, 6);
	event->ttl_us = ttl_us(decimal_at(reply, 7));
	event->marker = hex_at(reply, 8);
	event->marker_run_id = hex_at(reply, 9);
	event->kept = decimal_at(reply, 10) == 1;
	event->clocked_us = decimal_at(reply, 11);
}

static void fill_event(const redisReply *reply, struct guard_event *event)
{
	event->done = integer_at(reply, 0) == 1;
	if (event->kind == GUARD_EPOCH) {
		fill_epoch(reply, event);
	} else if (event->kind == GUARD_QUARANTINED) {
		event->marker = hex_at(reply, 2);
		event->kept = decimal_at(reply, 3) == 1;
		event->ttl_us = ttl_us(decimal_at(reply, 4));
	} else if (event->kind == GUARD_FENCES) {
		event->fence = integer_at(reply, 2);
		event->ttl_us = ttl_us(integer_at(reply, 3));
	}
}

/* Finds keys that were dropped while nobody was connected: the hash keeps the last count. A smaller count now was set
 * back (CONFIG RESETSTAT), and how far it had grown before is not known. */
static void compare_evicted(struct master *master, const redisReply *reply)
{
	const redisReply *stored = element(reply, 12);
	bool known = stored->type == REDIS_REPLY_STRING && stored->len > 0;
	if (!master->evicted_known && known && strtoull(stored->str, NULL, 10) != master->info.evicted)
		master_guard_notify(master, GUARD_DROPPED_KEYS);
	master->evicted_known = true;
}

static enum guard_action_kind action_of(enum guard_event_kind answer)
{
	switch (answer) {
	case GUARD_EPOCH: return GUARD_READ;
	case GUARD_QUARANTINED: return GUARD_QUARANTINE;
	case GUARD_FENCES: return GUARD_SURVEY;
	case GUARD_EPOCH_WRITTEN: return GUARD_WRITE_EPOCH;
	default: return GUARD_NOTHING;
	}
}

static void handle_answer(struct master *master, const redisReply *reply, enum guard_event_kind kind)
{
	struct masters *masters = master->all;
	struct guard_event event = {.kind = kind, .master = (uint8_t)master->index, .now_us = clock_now_us()};
	assert(action_of(kind) != GUARD_NOTHING);
	if (!reply || master->link.state != LINK_UP || master->excluded)
		return; /* the guard got LOST */
	bool good = reply->type == REDIS_REPLY_ARRAY && integer_at(reply, 1) > 0;
	if (good) {
		note_time(master, master->answered_sent_us, event.now_us, integer_at(reply, 1));
		fill_event(reply, &event);
		if (kind == GUARD_EPOCH)
			compare_evicted(master, reply); /* first: the guard reads the epoch in its light */
	} else {
		event.kind = GUARD_FAILED;
		event.action = action_of(kind);
		master_state_doubt_reply(master, reply);
		if (kind == GUARD_EPOCH)
			master_guard_inspect_hash(master);
	}
	if (master_guard_is_on(masters))
		guard_event(&masters->guard, &event);
	if (good && kind == GUARD_EPOCH) {
		master->clocked_us = decimal_at(reply, 11);
		master->time_us = integer_at(reply, 1);
		master->read = true;
	}
	master_guard_dispatch(masters);
}

static void on_epoch(struct master *master, const redisReply *reply)
{
	handle_answer(master, reply, GUARD_EPOCH);
}

static void on_quarantined(struct master *master, const redisReply *reply)
{
	handle_answer(master, reply, GUARD_QUARANTINED);
}

static void on_fences(struct master *master, const redisReply *reply)
{
	handle_answer(master, reply, GUARD_FENCES);
}

static void on_epoch_written(struct master *master, const redisReply *reply)
{
	handle_answer(master, reply, GUARD_EPOCH_WRITTEN);
}

/* ---- sending ---- */

static bool send_script(struct master *master, enum guard_script script, master_answer_fn *answer, int count,
			const char *const arguments[])
{
	const char *argv[ARGUMENTS_MAX] = {"EVAL", scripts[script].source, "1", master->all->hash_key};
	assert(count + 4 <= ARGUMENTS_MAX && master->link.state == LINK_UP);
	for (int i = 0; i < count; i++)
		argv[4 + i] = arguments[i];
	return master_command_send(master, answer, 4 + count, argv);
}

bool master_guard_read(struct master *master)
{
	char digest[17], ttl_ms[24], evicted[24] = "";
	snprintf(digest, sizeof digest, "%016llx", (unsigned long long)digest_of(master->all->count));
	snprintf(ttl_ms, sizeof ttl_ms, "%llu", (unsigned long long)(guard_longest_us(&master->all->guard) / 1000));
	if (master->has_info)
		snprintf(evicted, sizeof evicted, "%llu", (unsigned long long)master->info.evicted);
	const char *arguments[] = {digest, ttl_ms, evicted, master->evicted_known ? "1" : "0"};
	return send_script(master, REDLOCK_SCRIPT_EPOCH, on_epoch, 4, arguments);
}

/* The numbers of an action, as text. */
struct action_text {
	char epoch[17], marker[17], cluster[17], digest[17], ttl_ms[24], fence[24], deadline_us[24], first[12],
		last[12];
};

static void write_hex(char ret[17], uint64_t number)
{
	snprintf(ret, 17, "%016llx", (unsigned long long)number);
}

static void write_action(const struct master *master, const struct guard_action *action, struct action_text *ret)
{
	const struct masters *masters = master->all;
	assert((action->slice + 1U) * SLICE <= MASTER_FENCE_BUCKETS);
	uint64_t until_us = clock_now_us() + MASTER_HANDSHAKE_MS * UINT64_C(1000);
	write_hex(ret->epoch, action->epoch);
	write_hex(ret->marker, action->marker);
	write_hex(ret->cluster, action->cluster);
	write_hex(ret->digest, digest_of(masters->count));
	snprintf(ret->ttl_ms, sizeof ret->ttl_ms, "%llu", (unsigned long long)(action->ttl_us / 1000));
	snprintf(ret->deadline_us, sizeof ret->deadline_us, "%llu",
		 (unsigned long long)guard_master_time_us(&masters->guard, (unsigned)master->index, until_us));
	snprintf(ret->first, sizeof ret->first, "%u", (unsigned)action->slice * SLICE);
	snprintf(ret->last, sizeof ret->last, "%u", (unsigned)action->slice * SLICE + SLICE - 1);
	snprintf(ret->fence, sizeof ret->fence, "%llu", (unsigned long long)action->fence);
}

static bool send_action(struct master *master, const struct guard_action *action)
{
	struct action_text text;
	write_action(master, action, &text);
	const char *epoch = action->epoch ? text.epoch : "";
	const char *quarantine[] = {epoch, text.marker, master->info.run_id, action->kept ? "1" : "0", text.ttl_ms};
	const char *survey[] = {epoch, text.first, text.last};
	const char *write_epoch[] = {
		text.marker, master->info.run_id,         text.cluster,    text.digest, text.ttl_ms,
		text.fence,  action->clocked ? "1" : "0", text.deadline_us};
	switch (action->kind) {
	case GUARD_READ: return master_guard_read(master);
	case GUARD_QUARANTINE: return send_script(master, REDLOCK_SCRIPT_QUARANTINE, on_quarantined, 5, quarantine);
	case GUARD_SURVEY: return send_script(master, REDLOCK_SCRIPT_FENCES, on_fences, 3, survey);
	case GUARD_WRITE_EPOCH:
		return send_script(master, REDLOCK_SCRIPT_EPOCH_WRITE, on_epoch_written, 8, write_epoch);
	case GUARD_NOTHING: break;
	}
	return true;
}

static void dispatch_to(struct masters *masters, unsigned i)
{
	struct master *master = &masters->list[i];
	assert(i < masters->count && master->link.state == LINK_UP);
	struct guard_action action;
	guard_next(&masters->guard, i, clock_now_us(), clock_wall_us(), &action);
	if (action.kind == GUARD_NOTHING || send_action(master, &action))
		return;
	struct guard_event failed = {
		.kind = GUARD_FAILED, .action = action.kind, .master = (uint8_t)i, .now_us = clock_now_us()};
	guard_event(&masters->guard, &failed);
}

void master_guard_dispatch(struct masters *masters)
{
	for (unsigned i = 0; master_guard_is_on(masters) && i < masters->count; i++)
		if (masters->list[i].link.state == LINK_UP && !masters->list[i].excluded)
			dispatch_to(masters, i);
	report_all(masters);
}

/* ---- what happens to a connection ---- */

void master_guard_notify(struct master *master, enum guard_event_kind kind)
{
	struct masters *masters = master->all;
	struct guard_event event = {.kind = kind, .master = (uint8_t)master->index, .now_us = clock_now_us()};
	assert(kind == GUARD_CONNECTED || kind == GUARD_LOST || kind == GUARD_DROPPED_KEYS || kind == GUARD_UNUSABLE);
	if (!master_guard_is_on(masters))
		return;
	if (kind == GUARD_CONNECTED) {
		event.run_id = run_id_number(master);
		event.client_id = master->client_id;
	}
	guard_event(&masters->guard, &event);
}

/* A replica, a twin and their like know nothing of what a master of ours remembers: to the guard they are not
 * connected. */
void master_guard_exclude(struct master *master, bool excluded)
{
	if (excluded == master->excluded)
		return;
	master->excluded = excluded;
	if (excluded)
		master_guard_notify(master, GUARD_LOST);
	else if (master->started) /* its epoch may have been changed meanwhile */
		master_link_fail(&master->link, "connecting: it was no master of ours for a while");
	else if (master->link.state == LINK_UP)
		master_guard_start(master);
}

void master_guard_start(struct master *master)
{
	master->read = false;
	if (master->excluded)
		return;
	assert(master->link.state == LINK_UP && master->has_info);
	master->started = true;
	master_guard_notify(master, GUARD_CONNECTED);
	if (master_guard_is_on(master->all))
		master_guard_dispatch(master->all);
	else
		master_guard_read(master); /* for the clock alone */
}

/* ---- the scripts of the core ---- */

/* As a rule the digits are those of the command before. */
static void write_digits(struct master_digits *last, char *to, uint64_t number, unsigned base)
{
	uint64_t rest = number;
	assert(base == 10 || base == 16);
	for (int i = last->digits[0] && number == last->number ? -1 : MASTER_DIGITS - 1; i >= 0; i--, rest /= base)
		last->digits[i] = "0123456789abcdef"[rest % base];
	last->number = number;
	memcpy(to, last->digits, MASTER_DIGITS);
}

/* The last two arguments of every script have MASTER_DIGITS bytes each, so that they can be written over for each
 * master: see lease_command.c. */
uint64_t master_guard_stamp(struct master *master, char *command, size_t len, uint64_t until_us)
{
	const struct masters *masters = master->all;
	const struct guard_master *guarded = &masters->guard.masters[master->index];
	assert(len > TAIL_LEN && memcmp(command + len - TAIL_LEN, "$16\r\n", 5) == 0);
	uint64_t patience_us = clock_now_us() + masters->options->master_timeout_ms * UINT64_C(1000);
	until_us = guard_master_time_us(&masters->guard, (unsigned)master->index,
					until_us < patience_us ? until_us : patience_us);
	uint64_t epoch = master_guard_is_on(masters) ? guarded->epoch : 0;
	if (master_guard_is_on(masters))
		write_digits(&master->epoch_sent, command + len - EPOCH_FROM_END, epoch, 16);
	else
		memcpy(command + len - EPOCH_FROM_END, no_epoch, MASTER_DIGITS);
	if (until_us == 0 || until_us >= LATEST_US)
		until_us = LATEST_US;
	else /* deadlines of one moment are the same, so that acquire.lua reads them once */
		until_us -= until_us % DEADLINE_STEP_US;
	write_digits(&master->deadline_sent, command + len - DEADLINE_FROM_END, until_us, 10);
	return epoch;
}

static void fail(struct master_reply *reply, enum master_error error)
{
	reply->vote = REDLOCK_VOTE_FAILED;
	reply->error = error;
}

void master_guard_evaluate_reply(struct master *master, const struct master_command *done, uint64_t now_us,
				 struct master_reply *reply)
{
	struct masters *masters = master->all;
	const struct guard_master *guarded = &masters->guard.masters[master->index];
	if (reply->late)
		metrics_add(&masters->metrics->masters[master->index].late, 1);
	if (reply->time_us == 0)
		return;
	note_time(master, done->sent_us, now_us, reply->time_us);
	if (!master_guard_is_on(masters))
		return;
	if (reply->bad_epoch) {
		struct guard_event event = {.kind = GUARD_MISMATCH,
					    .master = (uint8_t)master->index,
					    .now_us = now_us,
					    .epoch = done->epoch};
		guard_event(&masters->guard, &event);
	} else if (guarded->state != GUARD_VOTING || guarded->epoch != done->epoch) {
		fail(reply, MASTER_ERROR_QUARANTINED); /* since the command was sent: its vote does not count */
	}
	if (guarded->state != GUARD_VOTING)
		master_guard_dispatch(masters);
}
