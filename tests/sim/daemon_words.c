/* SPDX-License-Identifier: MIT */
/* The commands that the daemon sends: their arguments are kept for the store of the master, and what the checks have to
 * know of them is read. The layout of each is that of its script (server/scripts/). What redlockd tries before a
 * master's first vote (server/masters/master_check.c) gets the answers of a healthy server, but touches nothing. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon_world.h"

static struct world *parsing; /* for the deadlines of the command that is parsed */

/* ---- names ---- */

static char names[2][KEYS][24]; /* of the resources; [1]: all of one bucket */
static unsigned buckets[2][KEYS];
static char bucket_texts[2][KEYS][TEXT_DECIMAL_MAX];

/* The names of the second kind are searched for, once. */
void words_init(void)
{
	for (unsigned key = 0; key < KEYS; key++) {
		snprintf(names[0][key], sizeof *names[0], "r%u", key);
		buckets[0][key] = masters_bucket(names[0][key], strlen(names[0][key]));
		for (unsigned n = 0; key > 0 || n == 0; n++) {
			snprintf(names[1][key], sizeof *names[1], "s%u-%u", key, n);
			buckets[1][key] = masters_bucket(names[1][key], strlen(names[1][key]));
			if (key == 0 || buckets[1][key] == buckets[1][0])
				break;
		}
		for (unsigned kind = 0; kind < 2; kind++)
			snprintf(bucket_texts[kind][key], TEXT_DECIMAL_MAX, "%u", buckets[kind][key]);
	}
}

const char *key_name(const struct world *world, unsigned key)
{
	assert(key < KEYS);
	return names[world->config.one_bucket][key];
}

/* KEYS: none of them. */
unsigned key_find(const struct world *world, const char *bytes, size_t len)
{
	unsigned key = len >= 2 ? (unsigned)(bytes[1] - '0') : KEYS;
	if (key >= KEYS || strlen(key_name(world, key)) != len || memcmp(key_name(world, key), bytes, len) != 0)
		return KEYS;
	return key;
}

uint32_t names_find(const struct world *world, const struct lease_request *request)
{
	size_t len;
	const char *at = request->resource, *end = at + request->resource_len, *name;
	uint32_t found = 0;
	while (text_line(&at, end, &name, &len)) {
		unsigned key = key_find(world, name, len);
		assert(key < KEYS);
		found |= UINT32_C(1) << key;
	}
	return found;
}

static bool is(const struct transport_word *word, const char *text)
{
	size_t len = strlen(text);
	return word->len == len && memcmp(word->bytes, text, len) == 0;
}

/* The arguments, for the store: of a script without its name, `keys` of them in front. */
static void keep(struct command *command, size_t keys, size_t argc, const struct transport_word *words)
{
	size_t size = sizeof *command->sent + argc * (sizeof(char *) + sizeof(size_t)), at = size;
	for (size_t i = 0; i < argc; i++)
		size += words[i].len;
	struct sent *sent = memory_alloc(size);
	char *bytes = (char *)sent;
	*sent = (struct sent){keys, argc, (const char **)(void *)(sent + 1), NULL};
	sent->lens = (size_t *)(void *)(sent->argv + argc);
	for (size_t i = 0; i < argc; at += words[i++].len) {
		sent->argv[i] = memcpy(bytes + at, words[i].bytes, words[i].len);
		sent->lens[i] = words[i].len;
	}
	command->sent = sent;
}

/* ---- scripts ---- */

/* From when on it is late, in true time, which nobody knows. */
static void set_deadline(struct command *command, const struct transport_connection *connection,
			 const struct transport_word *word)
{
	const struct node *node = &parsing->nodes[connection->node];
	uint64_t there_us = clock_read(&node->clock, parsing->now), deadline_us = field_decimal(word);
	if (deadline_us < UINT64_C(9999999999999999))
		command->latest = parsing->now + (deadline_us > there_us ? deadline_us - there_us : 0);
}

/* The resources of each operation: `first` of `count` words. */
static void find_names(struct script_request *request, const struct transport_word *first, size_t count)
{
	for (size_t i = 0; i < count; i++)
		request->names |= UINT32_C(1) << key_find(parsing, first[i].bytes, first[i].len);
	assert(request->names >> KEYS == 0);
	request->key = first_key(request->names);
	if (count == 1)
		request->names = 0;
}

/* Arguments of each operation. */
static const uint8_t widths[REDLOCK_SCRIPT_INSPECT + 1] = {
	[REDLOCK_SCRIPT_ACQUIRE] = 6, [REDLOCK_SCRIPT_RAISE] = 3,   [REDLOCK_SCRIPT_EXTEND] = 5,
	[REDLOCK_SCRIPT_RELEASE] = 3, [REDLOCK_SCRIPT_INSPECT] = 2,
};

static void parse_operation(struct script_request *request, unsigned script, const struct transport_word *argv)
{
	if (script != REDLOCK_SCRIPT_INSPECT)
		request->token = field_token(&argv[0]);
	if (script == REDLOCK_SCRIPT_ACQUIRE || script == REDLOCK_SCRIPT_EXTEND)
		request->ttl_ms = field_decimal(&argv[1]);
	switch (script) {
	case REDLOCK_SCRIPT_ACQUIRE:
		request->fence = field_decimal(&argv[4]);
		field_wait(&argv[5], request);
		break;
	case REDLOCK_SCRIPT_RAISE: request->fence = field_decimal(&argv[2]); break;
	case REDLOCK_SCRIPT_EXTEND: field_note(&argv[2], request); break;
	case REDLOCK_SCRIPT_RELEASE:
		field_wait(&argv[1], request);
		request->ttl_ms = field_decimal(&argv[2]); /* keep_ms */
		break;
	default: assert(script == REDLOCK_SCRIPT_INSPECT);
	}
}

/* A command for leases: the checks take an operation of a batch for a command of its own. */
static void parse_lease_script(struct command *command, const struct transport_connection *connection, size_t count,
			       size_t keys, const struct transport_word *words)
{
	const struct transport_word *shared = words + 3 + keys, *argv = shared + 4, *name = words + 3;
	unsigned script = command->kind;
	size_t operations = (count - 3 - keys - 4) / widths[script], resources = (keys - 1) / operations;
	assert(count == 3 + keys + 4 + operations * widths[script] && keys == 1 + operations * resources);
	for (size_t i = 0; i < operations; i++, argv += widths[script], name += resources) {
		struct command *at = command;
		if (i > 0) {
			at = command_new(parsing);
			at->kind = (uint8_t)script;
			command->also = (uint16_t)(at - parsing->commands);
		}
		at->request.any_epoch = shared[0].bytes[0] == '-';
		find_names(&at->request, name, resources);
		set_deadline(at, connection, &shared[1]);
		parse_operation(&at->request, script, argv);
		command = at;
	}
	parsing->figures->batched += operations > 1;
}

/* A slice is cut down to the buckets that the resources have, or to its first one: all others of the 16,384 are empty,
 * and to look at each would take most of the simulator's time. */
static void cut_slice(struct command *command)
{
	const char **argv = command->sent->argv + command->sent->keys;
	size_t *lens = command->sent->lens + command->sent->keys;
	const char(*its)[TEXT_DECIMAL_MAX] = bucket_texts[parsing->config.one_bucket];
	struct transport_word bounds[] = {{argv[1], lens[1]}, {argv[2], lens[2]}};
	uint64_t from = field_decimal(&bounds[0]), to = field_decimal(&bounds[1]);
	unsigned first = KEYS, last = KEYS;
	for (unsigned key = 0; key < KEYS; key++) {
		unsigned bucket = buckets[parsing->config.one_bucket][key];
		if (bucket < from || bucket > to)
			continue;
		first = first == KEYS || bucket < buckets[parsing->config.one_bucket][first] ? key : first;
		last = last == KEYS || bucket > buckets[parsing->config.one_bucket][last] ? key : last;
	}
	argv[1] = first == KEYS ? argv[1] : its[first];
	argv[2] = first == KEYS ? argv[1] : its[last];
	for (unsigned i = 1; i <= 2; i++)
		lens[i] = first == KEYS ? lens[1] : strlen(argv[i]);
}

static void parse_guard_script(struct command *command, const struct transport_connection *connection,
			       const struct transport_word *argv)
{
	struct script_request *request = &command->request;
	switch ((enum guard_script)command->kind) {
	case REDLOCK_SCRIPT_EPOCH: request->ttl_ms = field_decimal(&argv[1]); break;
	case REDLOCK_SCRIPT_QUARANTINE: request->ttl_ms = field_decimal(&argv[4]); break;
	case REDLOCK_SCRIPT_FENCES: cut_slice(command); break;
	case REDLOCK_SCRIPT_EPOCH_WRITE:
		request->ttl_ms = field_decimal(&argv[4]);
		request->fence = field_decimal(&argv[5]);
		request->clocked = argv[6].bytes[0] == '1';
		set_deadline(command, connection, &argv[8]);
		break;
	default: assert(false);
	}
}

/* A script on the keys of a check: each answers 1 but for an inspection and for the second acquisitions. */
static void parse_trial(struct command *command, unsigned script, const struct transport_word *argv)
{
	char last = script == REDLOCK_SCRIPT_ACQUIRE ? argv[4].bytes[LEASE_TOKEN_LEN - 1] : '1';
	bool is_second = last == '2' || last == '5';
	command->kind = COMMAND_TRIAL;
	command->script = (uint8_t)script;
	command->code = script != REDLOCK_SCRIPT_INSPECT && !is_second;
}

/* By its address: the daemon sends the bytes of its table. */
static unsigned find_script(const struct transport_word *word, bool with_source)
{
	for (unsigned i = REDLOCK_SCRIPT_ACQUIRE; i < SCRIPTS_COUNT; i++)
		if (word->bytes == (with_source ? scripts[i].source : scripts[i].sha1))
			return i;
	return 0;
}

static void parse_script(struct command *command, const struct transport_connection *connection, size_t count,
			 const struct transport_word *words)
{
	bool with_source = words[0].len == 4;
	unsigned script = find_script(&words[1], with_source);
	size_t keys = (size_t)field_decimal(&words[2]);
	const struct transport_word *argv = words + 3 + keys;
	assert(3 + keys <= count);
	if (script == 0 && with_source) { /* of a check: return 1, and the one that makes its hash */
		command->kind = COMMAND_NUMBER;
		command->code = 1;
	} else if (script == 0) {
		command->kind = COMMAND_ERROR;
		command->text = "NOSCRIPT No matching script. Please use EVAL.";
	} else if (strncmp(words[3].bytes, "redlockd:check:", 15) == 0) {
		parse_trial(command, script, argv);
	} else {
		command->kind = (uint8_t)script;
		command->script = (uint8_t)(with_source ? 0 : script);
		keep(command, keys, count - 3, words + 3);
		if (script <= REDLOCK_SCRIPT_INSPECT)
			parse_lease_script(command, connection, count, keys, words);
		else
			parse_guard_script(command, connection, argv);
	}
}

/* ---- everything else ---- */

static void parse_set(struct command *command, size_t count, const struct transport_word *words)
{
	static const char alive[] = "redlockd:alive:";
	if (words[1].len != sizeof alive - 1 + 16 || memcmp(words[1].bytes, alive, sizeof alive - 1) != 0)
		return;
	command->kind = COMMAND_ALIVE;
	command->only_if_there = count == 6;
	keep(command, 0, count, words);
}

/* Not a trial of the command. */
static bool is_read(size_t count, const struct transport_word words[])
{
	return (is(&words[0], "ZRANGEBYSCORE") && count >= 7) ||
	       (is(&words[0], "HMGET") && !is(&words[1], "redlockd:master"));
}

struct command *words_parse(struct world *world, const struct transport_connection *connection, size_t count,
			    const struct transport_word words[])
{
	struct command *command = command_new(world);
	parsing = world;
	assert(count >= 1);
	if (is(&words[0], "EVALSHA") || is(&words[0], "EVAL")) {
		parse_script(command, connection, count, words);
	} else if (is(&words[0], "SET")) {
		parse_set(command, count, words);
	} else if (is(&words[0], "INFO")) {
		command->kind = COMMAND_INFO;
	} else if (is(&words[0], "CONFIG")) {
		command->kind = COMMAND_CONFIG;
	} else if (is(&words[0], "CLIENT") && is(&words[1], "ID")) {
		command->kind = COMMAND_CLIENT_ID;
	} else if (is(&words[0], "SCRIPT")) {
		command->kind = COMMAND_LOAD;
		command->script = (uint8_t)find_script(&words[2], true);
	} else if (is(&words[0], "SCAN")) {
		command->kind = COMMAND_SCAN;
		command->only_if_there = count == 4; /* of a check */
	} else if (is_read(count, words)) {
		command->kind = COMMAND_READ; /* what an inspection leaves out */
		keep(command, 0, count, words);
	} else if (is(&words[0], "HSET")) {
		command->kind = COMMAND_ERROR;
		command->text = "ERR wrong number of arguments for 'hset' command";
	} else if (is(&words[0], "HINCRBY")) {
		command->kind = COMMAND_ERROR;
		command->text = "ERR value is not an integer or out of range";
	}
	return command;
}
