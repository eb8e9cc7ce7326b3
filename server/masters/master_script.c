/* SPDX-License-Identifier: MIT */
/* Encodes the commands of the core's scripts, as the heads of the files in server/scripts/ describe them. A command
 * becomes arguments once, when it leaves, with the epoch and the deadline for its master.
 *
 * All scripts have one layout (server/scripts/lib/master.lua): the keys of all operations, then the hash, the arguments
 * that all operations share, and those of each. */
#include <assert.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum argument { NO_ARGUMENT, TOKEN, TTL, LABEL, BUCKETS, FENCE, ENTRY, NOTE, MOST, WANTED };
/* The arguments of each operation. */
static const uint8_t operation_arguments[][MASTER_ARGUMENTS_MAX + 1] = {
	[REDLOCK_SCRIPT_ACQUIRE] = {TOKEN, TTL, LABEL, BUCKETS, FENCE, ENTRY},
	[REDLOCK_SCRIPT_RAISE] = {TOKEN, BUCKETS, FENCE},
	[REDLOCK_SCRIPT_EXTEND] = {TOKEN, TTL, NOTE, BUCKETS, WANTED},
	[REDLOCK_SCRIPT_RELEASE] = {TOKEN, ENTRY, TTL},
	[REDLOCK_SCRIPT_INSPECT] = {TTL, MOST},
};

enum { DEADLINE_STEP_US = 1000 };
#define LATEST_US UINT64_C(9999999999999999)       /* MASTER_DIGITS digits */
static const char no_epoch[] = "----------------"; /* any: --restart-guard off */

unsigned masters_bucket(const char *resource, size_t len)
{
	uint64_t hash = hash_fnv1a(resource, len); /* folded: the same on all replicas, for ever */
	return (unsigned)((hash ^ hash >> 32) % MASTER_FENCE_BUCKETS);
}

void master_script_stamp(const struct master *master, uint64_t until_us, struct master_command *command)
{
	const struct masters *masters = master->all;
	uint64_t patience_us = clock_now_us() + masters->options->master_timeout_ms * UINT64_C(1000);
	bool is_urgent = command->script->script < REDLOCK_SCRIPT_RELEASE; /* the others are carried out however late */
	until_us = guard_deadline_us(&masters->guard, (unsigned)master->index,
				     until_us < patience_us ? until_us : patience_us);
	command->epoch = master_guard_is_on(masters) ? masters->guard.masters[master->index].epoch : 0;
	/* deadlines of one moment are the same, so that acquire.lua reads them once */
	command->deadline_us = !is_urgent || until_us == 0 || until_us >= LATEST_US
				       ? LATEST_US
				       : until_us - until_us % DEADLINE_STEP_US;
	bool grants = command->script->script == REDLOCK_SCRIPT_ACQUIRE ||
		      command->script->script == REDLOCK_SCRIPT_EXTEND;
	/* without a deadline there is no epoch either, and the master refuses the command */
	command->until_s = grants && command->epoch != 0 && command->deadline_us != LATEST_US
				   ? guard_leases_until_s(&masters->guard, (unsigned)master->index,
							  command->deadline_us,
							  command->script->ttl_ms * UINT64_C(1000))
				   : 0;
}

static struct transport_word put_bytes(struct master_arguments *arguments, const char *bytes, size_t len)
{
	char *at = arguments->text + arguments->text_len;
	assert(len <= sizeof arguments->text - arguments->text_len);
	memcpy(at, bytes, len);
	arguments->text_len += len;
	return (struct transport_word){at, len};
}

static struct transport_word put_decimal_word(struct master_arguments *arguments, uint64_t number)
{
	char *at = arguments->text + arguments->text_len;
	assert(TEXT_DECIMAL_MAX <= sizeof arguments->text - arguments->text_len);
	size_t len = text_decimal(number, at);
	arguments->text_len += len;
	return (struct transport_word){at, len};
}

/* The digits are usually those of the previous command. */
static struct transport_word put_digits(struct master_arguments *arguments, struct master_digits *last, uint64_t number,
					unsigned base)
{
	uint64_t rest = number;
	assert(base == 10 || base == 16);
	for (int i = last->digits[0] && number == last->number ? -1 : MASTER_DIGITS - 1; i >= 0; i--, rest /= base)
		last->digits[i] = "0123456789abcdef"[rest % base];
	last->number = number;
	return put_bytes(arguments, last->digits, MASTER_DIGITS);
}

/* "!hold_ms seen" */
static struct transport_word put_repair(struct master_arguments *arguments, const struct master_script *script)
{
	struct transport_word word = put_bytes(arguments, "!", 1);
	assert(script->script == REDLOCK_SCRIPT_ACQUIRE && script->buckets);
	word.len += put_decimal_word(arguments, script->hold_ms).len;
	word.len += put_bytes(arguments, " ", 1).len;
	word.len += put_bytes(arguments, script->buckets, script->buckets_len).len;
	return word;
}

/* "replica:arrival wait_ms": a queue entry, and for how long it may be needed; 0: it is removed. Of a shared lease
 * "replica+arrival:capacity …", with a semicolon if it is on a set; for a slot "replica#arrival:capacity …". After a
 * blank the key of a place follows. */
static struct transport_word put_entry(struct master_arguments *arguments, const struct masters *masters,
				       const struct master_script *script)
{
	const struct master_entry *entry = &script->entry;
	const char kind = (char)script->kind;
	struct master_digits none = {.number = 0};
	if (script->repair)
		return put_repair(arguments, script);
	if (entry->arrival == 0 && entry->place == 0)
		return (struct transport_word){"", 0};
	struct transport_word word = put_bytes(arguments, masters->replica, MASTER_REPLICA_LEN);
	word.len += put_bytes(arguments, script->kind == MASTER_EXCLUSIVE ? ":" : &kind, 1).len;
	word.len += put_digits(arguments, &none, entry->arrival, 10).len;
	if (script->kind != MASTER_EXCLUSIVE) {
		word.len += put_bytes(arguments, entry->of_set ? ";" : ":", 1).len;
		word.len += put_decimal_word(arguments, script->capacity).len;
	}
	word.len += put_bytes(arguments, " ", 1).len;
	word.len += put_decimal_word(arguments, entry->wait_ms).len;
	if (entry->place == 0)
		return word;
	none = (struct master_digits){.number = 0};
	word.len += put_bytes(arguments, " ", 1).len;
	word.len += put_digits(arguments, &none, entry->place, 16).len;
	return word;
}

/* Nothing: one lease on one resource. "count": on a set. "kind capacity", "count kind capacity": an acquisition that
 * leaves room for others; the kind is "+", or "#" and the slot. */
static struct transport_word put_script_mode(struct master_arguments *arguments, const struct master_script *script)
{
	struct transport_word word = put_bytes(arguments, "", 0);
	assert(script->kind == MASTER_EXCLUSIVE || script->capacity > 0);
	if (script->set_count > 0)
		word.len += put_decimal_word(arguments, script->set_count).len;
	if (script->script != REDLOCK_SCRIPT_ACQUIRE || script->kind == MASTER_EXCLUSIVE)
		return word;
	word.len += put_bytes(arguments, " ", script->set_count > 0).len;
	word.len += put_bytes(arguments, script->kind == MASTER_SHARED ? "+" : "#", 1).len;
	if (script->kind == MASTER_SLOT)
		word.len += put_decimal_word(arguments, script->slot).len;
	word.len += put_bytes(arguments, " ", 1).len;
	word.len += put_decimal_word(arguments, script->capacity).len;
	return word;
}

/* "fence:key", to replace those of the value; empty: they stay. */
static struct transport_word put_fence_key(struct master_arguments *arguments, const struct master_script *script)
{
	struct master_digits none = {.number = 0};
	if (script->key == 0)
		return (struct transport_word){"", 0};
	struct transport_word word = put_decimal_word(arguments, script->fence);
	word.len += put_bytes(arguments, ":", 1).len;
	word.len += put_digits(arguments, &none, script->key, 16).len;
	return word;
}

static struct transport_word put_key(struct master_arguments *arguments, const struct masters *masters,
				     const char *resource, size_t len)
{
	struct transport_word key = put_bytes(arguments, masters->options->key_prefix, masters->prefix_len);
	key.len += put_bytes(arguments, resource, len).len;
	return key;
}

/* The key of each resource. Returns the position after them. */
static struct transport_word *put_keys(struct master_arguments *arguments, const struct masters *masters,
				       const struct master_script *script, struct transport_word *word)
{
	const char *name;
	size_t len;
	if (script->set_count == 0) {
		*word++ = put_key(arguments, masters, script->resource, script->resource_len);
		return word;
	}
	for (const char *at = script->resource, *end = at + script->resource_len; text_line(&at, end, &name, &len);)
		*word++ = put_key(arguments, masters, name, len);
	return word;
}

/* The bucket of each resource, with a comma between each two. */
static struct transport_word put_buckets(struct master_arguments *arguments, const struct master_script *script)
{
	const char *name;
	size_t len;
	if (script->set_count == 0)
		return put_decimal_word(arguments, script->bucket);
	struct transport_word word = put_bytes(arguments, "", 0);
	for (const char *at = script->resource, *end = at + script->resource_len; text_line(&at, end, &name, &len);) {
		word.len += put_bytes(arguments, ",", word.len > 0).len;
		word.len += put_decimal_word(arguments, masters_bucket(name, len)).len;
	}
	return word;
}

static struct transport_word put_argument(struct master_arguments *arguments, const struct masters *masters,
					  const struct master_script *script, enum argument argument)
{
	switch (argument) {
	case TOKEN:
		return script->token ? (struct transport_word){script->token, RANDOM_TOKEN_LEN}
				     : (struct transport_word){"", 0};
	case TTL: return put_decimal_word(arguments, script->ttl_ms);
	case LABEL: return (struct transport_word){script->label, script->label_len};
	case BUCKETS: return put_buckets(arguments, script);
	case FENCE:
		assert(script->fence > 0 && script->fence < REDLOCK_FENCE_LIMIT);
		return put_decimal_word(arguments, script->fence);
	case ENTRY: return put_entry(arguments, masters, script);
	case NOTE: return put_fence_key(arguments, script);
	case MOST: return put_decimal_word(arguments, script->list_max);
	case WANTED: return (struct transport_word){"1", script->wanted};
	case NO_ARGUMENT: break;
	}
	assert(false);
	return (struct transport_word){NULL, 0};
}

/* "until_s hold_ms": the second by which all leases of the commands are over, 0 where the master knows that, and how
 * old they may get. Nothing for two zeros. */
static struct transport_word put_bounds(struct master_arguments *arguments, const struct masters *masters,
					const struct master_command *first)
{
	uint64_t until_s = 0,
		 hold_ms = first->script->script == REDLOCK_SCRIPT_ACQUIRE ? masters->options->max_hold_ms : 0;
	for (const struct master_command *command = first; command; command = STAILQ_NEXT(command, also))
		until_s = command->until_s > until_s ? command->until_s : until_s;
	if (until_s == 0 && hold_ms == 0)
		return (struct transport_word){"", 0};
	struct transport_word word = put_decimal_word(arguments, until_s);
	word.len += put_bytes(arguments, " ", 1).len;
	word.len += put_decimal_word(arguments, hold_ms).len;
	return word;
}

static struct transport_word *put_shared(struct master_arguments *arguments, struct master *master,
					 const struct master_command *first, struct transport_word *word)
{
	*word++ = master_guard_is_on(master->all) ? put_digits(arguments, &master->epoch_sent, first->epoch, 16)
						  : (struct transport_word){no_epoch, MASTER_DIGITS};
	*word++ = put_digits(arguments, &master->deadline_sent, first->deadline_us, 10);
	*word++ = put_script_mode(arguments, first->script);
	*word++ = put_bounds(arguments, master->all, first);
	return word;
}

void master_script_write(struct master *master, const struct master_command *first,
			 struct master_arguments *ret_arguments)
{
	const struct master_script *script = first->script;
	const struct script *lua = &scripts[script->script];
	struct transport_word *word = ret_arguments->arguments;
	size_t keys = 1; /* the hash */
	ret_arguments->text_len = 0;
	for (const struct master_command *command = first; command; command = STAILQ_NEXT(command, also))
		keys += command->script->set_count > 0 ? command->script->set_count : 1;
	assert(script->script <= REDLOCK_SCRIPT_INSPECT && script->set_count <= MASTERS_SET_MAX);
	assert(script->set_count == 0 || !STAILQ_NEXT(first, also));
	*word++ = script->with_source ? (struct transport_word){"EVAL", 4} : (struct transport_word){"EVALSHA", 7};
	*word++ = script->with_source ? (struct transport_word){lua->source, strlen(lua->source)}
				      : (struct transport_word){lua->sha1, sizeof lua->sha1 - 1};
	*word++ = put_decimal_word(ret_arguments, keys);
	for (const struct master_command *command = first; command; command = STAILQ_NEXT(command, also))
		word = put_keys(ret_arguments, master->all, command->script, word);
	*word++ = (struct transport_word){master->all->hash_key, master->all->hash_key_len};
	word = put_shared(ret_arguments, master, first, word);
	for (const struct master_command *command = first; command; command = STAILQ_NEXT(command, also))
		for (const uint8_t *argument = operation_arguments[script->script]; *argument; argument++)
			*word++ = put_argument(ret_arguments, master->all, command->script, *argument);
	ret_arguments->count = (size_t)(word - ret_arguments->arguments);
	assert(ret_arguments->count <= MASTER_COMMAND_ARGUMENTS_MAX);
}

/* The keys that begin with the prefix, with the characters escaped that have a meaning in a pattern. */
void master_script_write_scan(const struct masters *masters, const struct master_scan_command *scan,
			      struct master_arguments *ret_arguments)
{
	struct transport_word *word = ret_arguments->arguments;
	ret_arguments->text_len = 0;
	*word++ = (struct transport_word){"SCAN", 4};
	*word++ = put_decimal_word(ret_arguments, scan->cursor);
	*word++ = (struct transport_word){"MATCH", 5};
	*word = (struct transport_word){ret_arguments->text + ret_arguments->text_len, 0};
	for (size_t i = 0; i < masters->prefix_len + scan->prefix_len; i++) {
		const char *from = i < masters->prefix_len ? &masters->options->key_prefix[i]
							   : &scan->prefix[i - masters->prefix_len];
		if (memchr("*?[]^\\-", *from, 7))
			word->len += put_bytes(ret_arguments, "\\", 1).len;
		word->len += put_bytes(ret_arguments, from, 1).len;
	}
	word++->len += put_bytes(ret_arguments, "*", 1).len;
	*word++ = (struct transport_word){"COUNT", 5};
	*word++ = put_decimal_word(ret_arguments, scan->keys);
	ret_arguments->count = (size_t)(word - ret_arguments->arguments);
}

/* Reads the keys that lib/several.lua describes. */
void master_script_write_read(const struct masters *masters, const struct master_read_command *read,
			      struct master_arguments *ret_arguments)
{
	static const char holders[] = "redlockd:holders:";
	struct transport_word *word = ret_arguments->arguments, key;
	ret_arguments->text_len = 0;
	assert(read->count <= MASTER_READ_VALUES_MAX && read->resource_len <= MASTERS_RESOURCE_MAX);
	if (read->read == MASTER_READ_VALUES) {
		*word++ = (struct transport_word){"HMGET", 5};
		key = put_bytes(ret_arguments, masters->options->key_prefix, masters->prefix_len);
		key.len += put_bytes(ret_arguments, holders, sizeof holders - 1).len;
		key.len += put_key(ret_arguments, masters, read->resource, read->resource_len).len;
		*word++ = key;
		for (size_t i = 0; i < read->count; i++)
			*word++ = (struct transport_word){read->tokens[i], RANDOM_TOKEN_LEN};
	} else {
		*word++ = (struct transport_word){"ZRANGEBYSCORE", 13};
		*word++ = put_key(ret_arguments, masters, read->resource, read->resource_len);
		key = put_bytes(ret_arguments, "(", 1);
		key.len += put_decimal_word(ret_arguments, read->after_ms).len;
		*word++ = key;
		*word++ = (struct transport_word){"+inf", 4};
		if (read->read == MASTER_READ_LIST)
			*word++ = (struct transport_word){"WITHSCORES", 10};
		*word++ = (struct transport_word){"LIMIT", 5};
		*word++ = (struct transport_word){"0", 1};
		*word++ = put_decimal_word(ret_arguments, read->read == MASTER_READ_LIST ? MASTER_READ_LIST_MAX
											 : MASTER_READ_TOKENS_MAX);
	}
	ret_arguments->count = (size_t)(word - ret_arguments->arguments);
	assert(ret_arguments->count <= MASTER_COMMAND_ARGUMENTS_MAX);
}
