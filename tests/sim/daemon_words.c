/* The words of a command that the daemon sends become a command of the modelled master. The layout of each is that of
 * its script (server/scripts/). What redlockd tries before a master's first vote (server/masters/master_check.c) gets
 * the answers of a healthy server, but touches nothing. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon_world.h"

static struct world *parsing; /* for the deadlines of the command that is parsed */

/* ---- names ---- */

static char names[2][MODEL_KEYS][24]; /* of the resources; [1]: all of one bucket */
static unsigned buckets[2][MODEL_KEYS];

/* The names of the second kind are searched for, once. */
void words_init(void)
{
	for (unsigned key = 0; key < MODEL_KEYS; key++) {
		snprintf(names[0][key], sizeof *names[0], "r%u", key);
		buckets[0][key] = masters_bucket(names[0][key], strlen(names[0][key]));
		for (unsigned n = 0; key > 0 || n == 0; n++) {
			snprintf(names[1][key], sizeof *names[1], "s%u-%u", key, n);
			buckets[1][key] = masters_bucket(names[1][key], strlen(names[1][key]));
			if (key == 0 || buckets[1][key] == buckets[1][0])
				break;
		}
	}
}

const char *key_name(const struct world *world, unsigned key)
{
	assert(key < MODEL_KEYS);
	return names[world->config.one_bucket][key];
}

/* MODEL_KEYS: none of them. */
unsigned key_find(const struct world *world, const char *bytes, size_t len)
{
	unsigned key = len >= 2 ? (unsigned)(bytes[1] - '0') : MODEL_KEYS;
	if (key >= MODEL_KEYS || strlen(key_name(world, key)) != len || memcmp(key_name(world, key), bytes, len) != 0)
		return MODEL_KEYS;
	return key;
}

uint32_t names_find(const struct world *world, const struct lease_request *request)
{
	size_t len;
	const char *at = request->resource, *end = at + request->resource_len, *name;
	uint32_t found = 0;
	while (text_line(&at, end, &name, &len)) {
		unsigned key = key_find(world, name, len);
		assert(key < MODEL_KEYS);
		found |= UINT32_C(1) << key;
	}
	return found;
}

static unsigned bucket_of(const struct world *world, unsigned key)
{
	return world->config.one_bucket ? 0 : key;
}

static bool is(const struct transport_word *word, const char *text)
{
	size_t len = strlen(text);
	return word->len == len && memcmp(word->bytes, text, len) == 0;
}

/* ---- scripts ---- */

/* From when on it is late, in true time, which nobody knows. */
static void set_deadline(struct command *command, const struct transport_connection *connection,
			 const struct transport_word *word)
{
	const struct node *node = &parsing->nodes[connection->node];
	uint64_t there_us = clock_read(&node->clock, parsing->now), deadline_us = field_decimal(word);
	command->request.deadline_us = deadline_us;
	if (deadline_us < UINT64_C(9999999999999999))
		command->latest = parsing->now + (deadline_us > there_us ? deadline_us - there_us : 0);
}

/* The resources of each operation: `first` of `count` words. Returns whether it is a set. */
static bool find_names(struct model_command *request, const struct transport_word *first, size_t count)
{
	for (size_t i = 0; i < count; i++)
		request->names |= UINT32_C(1) << key_find(parsing, first[i].bytes, first[i].len);
	assert(request->names >> MODEL_KEYS == 0);
	request->key = first_key(request->names);
	if (count > 1)
		return true;
	request->names = 0;
	return false;
}

/* Those of the resources, in their order, with a comma between each two. */
static void check_buckets(struct model_command *request, const struct transport_word *word)
{
	const char *at = word->bytes, *end = at + word->len;
	uint32_t keys = request->names != 0 ? request->names : UINT32_C(1) << request->key;
	MODEL_FOR_EACH_KEY (key, keys) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		struct transport_word bucket = {at, (size_t)((comma ? comma : end) - at)};
		assert(field_decimal(&bucket) == buckets[parsing->config.one_bucket][key]);
		request->buckets[key] = (uint8_t)bucket_of(parsing, key);
		at = comma ? comma + 1 : end;
	}
	assert(at == end);
	request->bucket = bucket_of(parsing, request->key);
}

/* Arguments of each operation. */
static const uint8_t widths[REDLOCK_SCRIPT_INSPECT + 1] = {
	[REDLOCK_SCRIPT_ACQUIRE] = 6, [REDLOCK_SCRIPT_RAISE] = 3,   [REDLOCK_SCRIPT_EXTEND] = 4,
	[REDLOCK_SCRIPT_RELEASE] = 2, [REDLOCK_SCRIPT_INSPECT] = 2,
};

static void parse_operation(struct model_command *request, unsigned script, const struct transport_word *argv)
{
	if (script != REDLOCK_SCRIPT_INSPECT)
		request->token = field_token(&argv[0]);
	switch (script) {
	case REDLOCK_SCRIPT_ACQUIRE:
		request->ttl_ms = field_decimal(&argv[1]);
		field_label(request, &argv[2]);
		check_buckets(request, &argv[3]);
		request->fence = field_decimal(&argv[4]);
		field_entry(&argv[5], request);
		break;
	case REDLOCK_SCRIPT_RAISE:
		check_buckets(request, &argv[1]);
		request->fence = field_decimal(&argv[2]);
		break;
	case REDLOCK_SCRIPT_EXTEND:
		request->ttl_ms = field_decimal(&argv[1]);
		field_note(&argv[2], request);
		check_buckets(request, &argv[3]);
		break;
	case REDLOCK_SCRIPT_RELEASE: field_entry(&argv[1], request); break;
	default:
		assert(script == REDLOCK_SCRIPT_INSPECT);
		request->ttl_ms = field_decimal(&argv[0]);
		request->most = field_decimal(&argv[1]);
	}
}

/* "until_s hold_ms", or nothing */
static void parse_bounds(struct model_command *request, const struct transport_word *word)
{
	const char *blank = memchr(word->bytes, ' ', word->len);
	if (!blank)
		return;
	struct transport_word until_s = {word->bytes, (size_t)(blank - word->bytes)},
			      hold_ms = {blank + 1, word->len - until_s.len - 1};
	request->until_s = field_decimal(&until_s);
	request->max_hold_ms = field_decimal(&hold_ms);
}

/* A command for leases: an operation of a batch becomes a command of its own. */
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
		struct model_command *request = &at->request;
		bool is_set = find_names(request, name, resources);
		request->epoch = field_epoch(&shared[0]);
		set_deadline(at, connection, &shared[1]);
		assert(is_set == (shared[2].len > 0 && shared[2].bytes[0] >= '0' && shared[2].bytes[0] <= '9'));
		field_mode(request, &shared[2]);
		parse_bounds(request, &shared[3]);
		parse_operation(request, script, argv);
		command = at;
	}
	parsing->figures->batched += operations > 1;
}

/* Of the slice those buckets that the resources have. A floor counts as well, whatever the slice: of one without any
 * the model is asked for the first one, which can only make the number larger. */
static void parse_slice(struct model_command *request, const struct transport_word *argv)
{
	uint64_t first = field_decimal(&argv[1]), last = field_decimal(&argv[2]);
	unsigned from = MODEL_BUCKETS, to = 0;
	for (unsigned key = 0; key < MODEL_KEYS; key++) {
		unsigned number = buckets[parsing->config.one_bucket][key], at = bucket_of(parsing, key);
		if (number < first || number > last)
			continue;
		from = at < from ? at : from;
		to = at > to ? at : to;
	}
	request->bucket = from < MODEL_BUCKETS ? from : 0;
	request->last_bucket = from < MODEL_BUCKETS ? to : 0;
}

static void parse_guard_script(struct command *command, const struct transport_connection *connection,
			       const struct transport_word *argv)
{
	struct model_command *request = &command->request;
	switch ((enum guard_script)command->kind) {
	case REDLOCK_SCRIPT_EPOCH:
		request->digest = field_hex(&argv[0]);
		request->ttl_ms = field_decimal(&argv[1]);
		request->evicted = argv[2].len > 0 ? (uint32_t)field_decimal(&argv[2]) + 1 : 0;
		request->compared = argv[3].bytes[0] == '1';
		request->timeout_ms = (uint32_t)field_decimal(&argv[4]);
		request->run_id = field_hex(&argv[5]);
		request->epoch = argv[6].len > 0 ? field_hex(&argv[6]) : 0;
		request->deadline_us = field_decimal(&argv[7]);
		break;
	case REDLOCK_SCRIPT_QUARANTINE:
		request->epoch = argv[0].len > 0 ? field_hex(&argv[0]) : 0;
		request->marker = field_hex(&argv[1]);
		request->run_id = field_hex(&argv[2]);
		request->kept = argv[3].bytes[0] == '1';
		request->ttl_ms = field_decimal(&argv[4]);
		request->digest = field_hex(&argv[5]);
		request->takes_over = argv[6].len > 0;
		request->taken = request->takes_over ? field_hex(&argv[6]) : 0;
		break;
	case REDLOCK_SCRIPT_FENCES:
		request->epoch = field_hex(&argv[0]);
		parse_slice(request, argv);
		break;
	case REDLOCK_SCRIPT_EPOCH_WRITE:
		request->marker = field_hex(&argv[0]);
		request->run_id = field_hex(&argv[1]);
		request->cluster = field_hex(&argv[2]);
		request->digest = field_hex(&argv[3]);
		request->ttl_ms = field_decimal(&argv[4]);
		request->fence = field_decimal(&argv[5]);
		request->clocked = argv[6].bytes[0] == '1';
		request->timeout_ms = (uint32_t)field_decimal(&argv[7]);
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
	command->request.entry.replica = hex_number(words[1].bytes + sizeof alive - 1);
}

/* Not a trial of the command. */
static bool is_read(size_t count, const struct transport_word words[])
{
	return (is(&words[0], "ZRANGEBYSCORE") && count == 7) ||
	       (is(&words[0], "HMGET") && !is(&words[1], "redlockd:master"));
}

/* What an inspection leaves out: the key is that of the holders, or that of the resource. */
static void parse_read(struct command *command, size_t count, const struct transport_word words[])
{
	static const char holders[] = "redlockd:holders:";
	bool of_values = is(&words[0], "HMGET");
	size_t skip = of_values ? sizeof holders - 1 : 0;
	assert(words[1].len > skip && memcmp(words[1].bytes, holders, skip) == 0);
	command->kind = COMMAND_READ;
	command->request.key = key_find(parsing, words[1].bytes + skip, words[1].len - skip);
	assert(command->request.key < MODEL_KEYS && (!of_values || count - 2 <= NODES * MODEL_HOLDERS));
	for (size_t i = 2; of_values && i < count; i++)
		command->tokens[command->token_count++] = (uint16_t)field_token(&words[i]);
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
		parse_read(command, count, words);
	} else if (is(&words[0], "HSET")) {
		command->kind = COMMAND_ERROR;
		command->text = "ERR wrong number of arguments for 'hset' command";
	} else if (is(&words[0], "HINCRBY")) {
		command->kind = COMMAND_ERROR;
		command->text = "ERR value is not an integer or out of range";
	}
	return command;
}
