/* SPDX-License-Identifier: MIT */
/* See sim_master.h. */
#include "sim_master.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "server/scripts/scripts.h"
#include "state_set.h"
#include "store_internal.h"

enum { WORDS_MAX = 16, WORD_MAX = 128, WAIT_MS = 1000, ALIVE_MS = 1000000, FIRST_SIZE = 1 << 10 };

#define HASH_NAME "redlockd:master"
#define NO_DEADLINE "9999999999999999"
#define ANY_EPOCH "----------------"

struct state {
	struct store *store;
	struct store_text *form; /* all that the store has, in an order of its own: two states differ in it */
	struct sim_master master;
};

static struct state *states;
static struct sim_effect *effects;
static uint32_t state_count, effect_count;
/* Of the form of each state: the state + 1; of each state and request: the effect + 1. */
static struct state_set forms, requests;
/* Whom the script that runs notifies. */
static uint8_t notified, notified_up_to;

/* ---- commands ---- */

struct arguments {
	size_t count;
	const char *at[WORDS_MAX];
	size_t lens[WORDS_MAX];
	char text[WORDS_MAX][WORD_MAX];
};

static void add(struct arguments *args, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct arguments *args, const char *format, ...)
{
	va_list list;
	assert(args->count < WORDS_MAX);
	char *text = args->text[args->count];
	va_start(list, format);
	int len = vsnprintf(text, WORD_MAX, format, list);
	va_end(list);
	assert(len >= 0 && len < WORD_MAX);
	args->at[args->count] = text;
	args->lens[args->count++] = (size_t)len;
}

static void run_command(struct store *store, const struct arguments *args)
{
	redisReply *reply = store_command(store, args->count, args->at, args->lens);
	assert(reply->type != REDIS_REPLY_ERROR);
	free(reply);
}

static bool is_set(const struct sim_request *request)
{
	return __builtin_popcount(request->names) > 1;
}

/* lib/master.lua */
static void add_mode(struct arguments *args, const struct sim_request *request)
{
	char count[16] = "", kind[16] = "";
	if (is_set(request))
		snprintf(count, sizeof count, "%d", __builtin_popcount(request->names));
	if (request->script == REDLOCK_SCRIPT_ACQUIRE && request->kind == SIM_PLUS)
		snprintf(kind, sizeof kind, "+ %u", request->most);
	if (request->script == REDLOCK_SCRIPT_ACQUIRE && request->kind == SIM_SLOT)
		snprintf(kind, sizeof kind, "#%u %u", request->slot, request->most);
	add(args, "%s%s%s", count, count[0] && kind[0] ? " " : "", kind);
}

/* lib/queue.lua */
static void add_entry(struct arguments *args, const struct sim_request *request)
{
	char most[16] = "";
	if (request->repair) {
		snprintf(most, sizeof most, "%u", request->arrival);
		add(args, "!0 %s", request->arrival > 0 ? most : "");
		return;
	}
	if (request->waiter == 0) {
		add(args, "%s", "");
		return;
	}
	if (request->kind != SIM_EXCLUSIVE)
		snprintf(most, sizeof most, "%c%u", is_set(request) ? ';' : ':', request->most);
	add(args, "%016x%c%016u%s %u", request->waiter, ":+#"[request->kind], request -> arrival, most,
	    request -> leaves ? 0 : WAIT_MS);
}

static void add_buckets(struct arguments *args, const struct sim_request *request)
{
	char text[WORD_MAX] = "0";
	size_t len = 0;
	FOR_EACH_KEY (key, is_set(request) ? request->names : 0)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%u", len > 0 ? "," : "", key);
	add(args, "%s", text);
}

static void add_operation(struct arguments *args, const struct sim_request *request)
{
	if (request->token != 0)
		add(args, "%040x", request->token);
	else
		add(args, "%s", "");
	if (request->script == REDLOCK_SCRIPT_ACQUIRE) {
		add(args, "%u", SIM_KEY_TTL_MS);
		add(args, ":"); /* neither a key nor an owner */
	}
	if (request->script == REDLOCK_SCRIPT_EXTEND) {
		add(args, "%u", SIM_KEY_TTL_MS);
		add(args, "%s", ""); /* no note */
	}
	if (request->script != REDLOCK_SCRIPT_RELEASE)
		add_buckets(args, request);
	if (request->script == REDLOCK_SCRIPT_ACQUIRE || request->script == REDLOCK_SCRIPT_RAISE)
		add(args, "%u", request->fence);
	if (request->script == REDLOCK_SCRIPT_ACQUIRE || request->script == REDLOCK_SCRIPT_RELEASE)
		add_entry(args, request);
	if (request->script == REDLOCK_SCRIPT_RELEASE)
		add(args, "%u", request->keeps ? SIM_KEY_TTL_MS : 0);
	if (request->script == REDLOCK_SCRIPT_EXTEND)
		add(args, "%s", ""); /* nobody asks for waiters */
}

/* Returns how many of the arguments are keys. */
static size_t write_script(struct arguments *args, const struct sim_request *request)
{
	args->count = 0;
	FOR_EACH_KEY (key, request->names)
		add(args, "%c", 'a' + key);
	add(args, HASH_NAME);
	size_t keys = args->count;
	if (request->epoch == 0)
		add(args, ANY_EPOCH);
	else
		add(args, "%016x", request->epoch);
	add(args, NO_DEADLINE);
	add_mode(args, request);
	add(args, "%s", ""); /* no bounds */
	add_operation(args, request);
	return keys;
}

/* "entry key", "entry@slot key" or "entry>arrival key" */
static void on_notified(void *arg, const char *channel, size_t channel_len, const char *text, size_t len)
{
	const char *last = memchr(text, '>', len);
	(void)arg, (void)channel, (void)channel_len;
	notified |= (uint8_t)(1U << (strtoul(text, NULL, 16) - 1));
	uint8_t up_to = last ? (uint8_t)strtoul(last + 1, NULL, 10) : 0;
	notified_up_to = up_to > notified_up_to ? up_to : notified_up_to;
}

/* ---- states ---- */

static int compare_keys(const void *a, const void *b)
{
	return strcmp((*(struct store_key *const *)a)->name->bytes, (*(struct store_key *const *)b)->name->bytes);
}

static int compare_items(const void *a, const void *b)
{
	const struct store_item *one = a, *other = b;
	return strcmp(one->name->bytes, other->name->bytes);
}

static void write_items(struct text *text, const struct store_key *key)
{
	struct store_item sorted[64];
	assert(key->count <= sizeof sorted / sizeof *sorted);
	memcpy(sorted, key->items, key->count * sizeof *sorted);
	qsort(sorted, key->count, sizeof *sorted, compare_items);
	for (size_t i = 0; i < key->count; i++)
		text_printf(text, "%s=%s=%.0f\n", sorted[i].name->bytes, sorted[i].value ? sorted[i].value->bytes : "",
			    sorted[i].score);
}

static void write_form(struct text *text, const struct store *store)
{
	struct store_key *sorted[64];
	size_t count = 0;
	assert(store->count <= sizeof sorted / sizeof *sorted);
	for (size_t i = 0; i < store->slot_count; i++)
		if (store->slots[i])
			sorted[count++] = store->slots[i];
	qsort(sorted, count, sizeof *sorted, compare_keys);
	for (size_t i = 0; i < count; i++) {
		text_printf(text, "%s %d %" PRIu64 " %s\n", sorted[i]->name->bytes, sorted[i]->type,
			    sorted[i]->expires_ms, sorted[i]->string ? sorted[i]->string->bytes : "");
		if (sorted[i]->count > 0)
			write_items(text, sorted[i]);
	}
}

static const struct store_key *peek(const struct store *store, const char *prefix, unsigned key)
{
	char name[WORD_MAX];
	int len = snprintf(name, sizeof name, "%s%c", prefix, 'a' + key);
	return store_peek(store, name, (size_t)len);
}

static void look_at_key(struct sim_master *master, const struct store *store, const struct store_key *hash,
			unsigned key)
{
	const char bucket[] = {(char)('0' + key), '\0'};
	uint64_t number = store_number(hash, bucket, 10), floor = store_number(hash, "floor", 10);
	const struct store_key *found = peek(store, "", key), *queue = peek(store, "redlockd:queue:", key);
	master->numbers[key] = (uint8_t)(number > floor ? number : floor);
	master->is_several[key] = found && found->type == STORE_SORTED_SET;
	if (found && found->type == STORE_STRING)
		master->tokens[key][0] = sim_token_read(found->string->bytes);
	assert(!found || found->count <= SIM_HOLDERS);
	for (size_t i = 0; found && i < found->count; i++)
		master->tokens[key][i] = sim_token_read(found->items[i].name->bytes);
	assert(!queue || queue->count <= SIM_OPS);
	for (size_t i = 0; queue && i < queue->count; i++)
		master->queues[key][i] = (uint8_t)strtoul(queue->items[i].name->bytes, NULL, 16);
}

static void look_at(struct sim_master *master, const struct store *store)
{
	const struct store_key *hash = store_peek(store, HASH_NAME, strlen(HASH_NAME));
	memset(master, 0, sizeof *master);
	master->epoch = (uint8_t)store_number(hash, "epoch", 16);
	master->waited = store_number(hash, "waited", 10) != 0;
	for (unsigned key = 0; key < SIM_KEYS; key++)
		look_at_key(master, store, hash, key);
}

/* Makes room for one more element of an array of `count`. */
static void *make_room(void *array, uint32_t count, size_t size)
{
	if (count < FIRST_SIZE ? count > 0 : (count & (count - 1)) != 0)
		return array;
	array = realloc(array, (count > 0 ? 2 * (size_t)count : FIRST_SIZE) * size);
	if (!array)
		memory_exhausted("states");
	return array;
}

/* The number of the state that a store is in. Takes the store. */
static sim_state intern(struct store *store)
{
	struct text text;
	text_init(&text);
	write_form(&text, store);
	struct store_text *form = store_text_new(text.len > 0 ? text.bytes : "", text.len);
	text_fini(&text);
	uint64_t hash = hash_fnv1a(form->bytes, form->len);
	uint32_t *number = state_set_number(&forms, hash ^ hash >> 32);
	if (*number != 0) {
		assert(store_text_is(states[*number - 1].form, form->bytes, form->len));
		store_text_unref(form);
		store_free(store);
		return *number - 1;
	}
	states = make_room(states, state_count, sizeof *states);
	states[state_count] = (struct state){.store = store, .form = form};
	look_at(&states[state_count].master, store);
	*number = ++state_count;
	return state_count - 1;
}

const struct sim_master *sim_master(sim_state state)
{
	assert(state < state_count);
	return &states[state].master;
}

/* ---- what is remembered ---- */

enum { STATE_BITS = 22 };

/* Another number for each state and request. */
static uint64_t key_of(sim_state state, const struct sim_request *request)
{
	const uint8_t parts[][2] = {{request->script, 3},  {request->names, 3},  {request->token, 4},
				    {request->fence, 8},   {request->epoch, 2},  {request->kind, 2},
				    {request->slot, 1},    {request->most, 3},   {request->waiter, 2},
				    {request->arrival, 6}, {request->leaves, 1}, {request->repair, 1},
				    {request->keeps, 1}};
	uint64_t key = 1; /* never 0 */
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
		assert(parts[i][0] >> parts[i][1] == 0);
		key = key << parts[i][1] | parts[i][0];
	}
	assert(state >> STATE_BITS == 0);
	key = (key << STATE_BITS | state) * UINT64_C(0x9e3779b97f4a7c15);
	return key ^ key >> 29;
}

/* ---- what a script does ---- */

/* As master_reply_map() */
static void read_reply(struct sim_effect *effect, const struct sim_request *request, const redisReply *reply)
{
	assert(reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2);
	effect->code = (int8_t)reply->element[0]->integer;
	bool acquires = request->script == REDLOCK_SCRIPT_ACQUIRE, raises = request->script == REDLOCK_SCRIPT_RAISE;
	if ((acquires && effect->code == 1) || (raises && effect->code == 2))
		effect->old = (uint8_t)reply->element[2]->integer;
	if (request->script == REDLOCK_SCRIPT_EXTEND && effect->code == -1)
		effect->old = (uint8_t)strtoul(reply->element[2]->str, NULL, 10);
	if (effect->code != 0)
		return;
	const char *value = reply->element[3]->str;
	effect->is_several = value[RANDOM_TOKEN_LEN] == '+' || value[RANDOM_TOKEN_LEN] == '#';
	effect->holder = sim_token_read(value);
	if (reply->elements > 4 && reply->element[4]->type == REDIS_REPLY_STRING) {
		const redisReply *taken = reply->element[4];
		effect->elsewhere = request->slot < taken->len && taken->str[request->slot] == '1' &&
				    strchr(taken->str, '0');
	}
}

static void run_script(struct store *store, const struct sim_request *request, struct sim_effect *ret_effect)
{
	struct arguments args;
	size_t keys = write_script(&args, request);
	notified = notified_up_to = 0;
	redisReply *reply = store_run_script(store, request->script, keys, args.count, args.at, args.lens);
	read_reply(ret_effect, request, reply);
	free(reply);
	ret_effect->notified = notified;
	ret_effect->up_to = notified_up_to;
}

/* ---- what else happens to a master ---- */

/* Requests that are no scripts. */
enum { CHANGE_FLUSH = 0, CHANGE_DROP = REDLOCK_SCRIPT_INSPECT, CHANGE_EPOCH };

static void set_alive(struct store *store, unsigned op)
{
	struct arguments args = {.count = 0};
	add(&args, "SET");
	add(&args, "redlockd:alive:%016x", op + 1);
	add(&args, "%s", "");
	add(&args, "PX");
	add(&args, "%u", ALIVE_MS);
	run_command(store, &args);
}

static void write_epoch(struct store *store, const struct sim_request *request)
{
	struct arguments args = {.count = 0};
	add(&args, "HSET");
	add(&args, HASH_NAME);
	add(&args, "epoch");
	add(&args, "%016x", request->epoch);
	add(&args, "floor");
	add(&args, "%u", request->fence);
	run_command(store, &args);
}

/* One of several leases ends as by its release, but nobody is notified. */
static void drop(struct store *store, const struct sim_request *request, bool is_several)
{
	struct arguments args = {.count = 0};
	struct sim_request release = {
		.script = REDLOCK_SCRIPT_RELEASE, .names = request->names, .token = request->token};
	struct sim_effect unused;
	if (is_several) {
		run_script(store, &release, &unused);
		return;
	}
	add(&args, "DEL");
	add(&args, "%c", 'a' + __builtin_ctz(request->names));
	run_command(store, &args);
}

static struct sim_effect carry_out(sim_state state, const struct sim_request *request)
{
	struct store *store = store_copy(states[state].store);
	struct sim_effect effect = {.code = 0};
	switch (request->script) {
	case CHANGE_FLUSH: store_clear(store); break;
	case CHANGE_EPOCH: write_epoch(store, request); break;
	case CHANGE_DROP: drop(store, request, states[state].master.is_several[__builtin_ctz(request->names)]); break;
	default: run_script(store, request, &effect);
	}
	effect.state = intern(store);
	return effect;
}

const struct sim_effect *sim_master_run(sim_state state, const struct sim_request *request)
{
	uint32_t *number = state_set_number(&requests, key_of(state, request));
	if (*number == 0) {
		effects = make_room(effects, effect_count, sizeof *effects);
		effects[effect_count] = carry_out(state, request);
		*number = ++effect_count;
	}
	return &effects[*number - 1];
}

bool sim_master_has_token(const struct sim_master *master, unsigned key, uint8_t token)
{
	return memchr(master->tokens[key], token, SIM_HOLDERS) != NULL;
}

sim_state sim_master_new(uint8_t floor, const uint8_t buckets[SIM_KEYS])
{
	struct arguments args = {.count = 0};
	struct store *store = store_new(on_notified, NULL);
	if (forms.size == 0) {
		state_set_init(&forms);
		state_set_init(&requests);
	}
	write_epoch(store, &(struct sim_request){.epoch = 1, .fence = floor});
	add(&args, "HSET");
	add(&args, HASH_NAME);
	for (unsigned key = 0; key < SIM_KEYS; key++) {
		add(&args, "%u", key);
		add(&args, "%u", buckets[key]);
	}
	run_command(store, &args);
	for (unsigned o = 0; o < SIM_OPS; o++)
		set_alive(store, o);
	return intern(store);
}

sim_state sim_master_flush(sim_state state)
{
	return sim_master_run(state, &(struct sim_request){.script = CHANGE_FLUSH})->state;
}

sim_state sim_master_write_epoch(sim_state state, uint8_t epoch, uint8_t floor)
{
	return sim_master_run(state, &(struct sim_request){.script = CHANGE_EPOCH, .epoch = epoch, .fence = floor})
		->state;
}

sim_state sim_master_drop(sim_state state, unsigned key, uint8_t token)
{
	struct sim_request request = {.script = CHANGE_DROP, .names = (uint8_t)(1U << key), .token = token};
	return sim_master_run(state, &request)->state;
}
