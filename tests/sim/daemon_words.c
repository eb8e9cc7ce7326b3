/* The words of a command that the daemon sends become a command of the modelled master. The layout of each is that of
 * its script (server/scripts/). What redlockd tries before a master's first vote (server/masters/master_check.c) gets
 * the answers of a healthy server, but touches nothing. */
#include <assert.h>
#include <endian.h>
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
	const char *at = lease_request_names(request, &len), *end = at + len, *name;
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

/* ---- numbers ---- */

static uint64_t decimal(const struct transport_word *word)
{
	uint64_t number = 0;
	bool good = true;
	for (size_t i = 0; i < word->len; i++) {
		good &= word->bytes[i] >= '0' && word->bytes[i] <= '9';
		number = number * 10 + (uint64_t)(word->bytes[i] - '0');
	}
	assert(good);
	return number;
}

/* Eight digits at a time, a byte each: the values, then those of two, of four and of all beside each other. */
static uint64_t hex_half(const char digits[8])
{
	uint64_t number;
	memcpy(&number, digits, sizeof number);
	number = be64toh(number);
	number = (number & 0x0f0f0f0f0f0f0f0f) + 9 * (number >> 6 & 0x0101010101010101);
	number = (number | number >> 4) & 0x00ff00ff00ff00ff;
	number = (number | number >> 8) & 0x0000ffff0000ffff;
	return (uint32_t)(number | number >> 16);
}

uint64_t hex_number(const char digits[16])
{
	return hex_half(digits) << 32 | hex_half(digits + 8);
}

/* Of a longer one the first 16 digits. */
static uint64_t hex(const struct transport_word *word)
{
	assert(word->len >= 16);
	return hex_number(word->bytes);
}

/* None, where redlockd knows of none yet, is another one than any that a master has. */
static uint64_t epoch(const struct transport_word *word)
{
	uint64_t number = word->bytes[0] == '-' ? MODEL_ANY_EPOCH : hex(word);
	return number != 0 ? number : MODEL_ANY_EPOCH - 1;
}

/* 40 digits, of which the last 16 count. */
static uint64_t token(const struct transport_word *word)
{
	assert(word->len == 0 || word->len == LEASE_TOKEN_LEN);
	return word->len > 0 ? hex_number(word->bytes + LEASE_TOKEN_LEN - 16) : 0;
}

/* "replica:arrival wait_ms", "replica+arrival wait_ms" or "replica#arrival:most wait_ms" */
static void parse_entry(const struct transport_word *word, struct model_command *command)
{
	if (word->len == 0)
		return;
	const char *blank = memchr(word->bytes, ' ', word->len);
	assert(blank && blank >= word->bytes + 33);
	struct transport_word arrival = {word->bytes + 17, 16},
			      wait_ms = {blank + 1, word->len - (size_t)(blank + 1 - word->bytes)};
	command->entry = (struct model_entry){.arrival = decimal(&arrival), .replica = hex_number(word->bytes)};
	command->wait_ms = (uint32_t)decimal(&wait_ms);
	command->entry.kind = word->bytes[16] == '+' ? MODEL_PLUS : word->bytes[16] == '#' ? MODEL_SLOT : 0;
	if (command->entry.kind != MODEL_SLOT)
		return;
	struct transport_word most = {word->bytes + 34, (size_t)(blank - word->bytes - 34)};
	command->entry.most = (uint32_t)decimal(&most);
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
	uint64_t there_us = clock_read(&node->clock, parsing->now), deadline_us = decimal(word);
	command->request.deadline_us = deadline_us;
	if (deadline_us < UINT64_C(9999999999999999))
		command->latest = parsing->now + (deadline_us > there_us ? deadline_us - there_us : 0);
}

/* token, ttl, longest hold, label: the same for a set */
static void parse_lease(struct model_command *request, const struct transport_word *argv)
{
	request->token = token(&argv[0]);
	request->ttl_ms = decimal(&argv[1]);
	request->max_hold_ms = decimal(&argv[2]);
	const char *colon = memchr(argv[3].bytes, ':', argv[3].len);
	struct transport_word owner = {colon + 1, argv[3].len - (size_t)(colon + 1 - argv[3].bytes)};
	request->noted = colon > argv[3].bytes ? hex_number(argv[3].bytes + 1) : 0;
	request->owner = owner.len > 0 ? decimal(&owner) : 0;
}

static void parse_acquire(struct command *command, const struct transport_connection *connection,
			  const struct transport_word *argv)
{
	struct model_command *request = &command->request;
	parse_lease(request, argv);
	assert(decimal(&argv[4]) == buckets[parsing->config.one_bucket][request->key]);
	request->bucket = bucket_of(parsing, request->key);
	request->fence = decimal(&argv[5]);
	parse_entry(&argv[6], request);
	request->epoch = epoch(&argv[7]);
	set_deadline(command, connection, &argv[8]);
}

/* acquire_shared.lua, acquire_set.lua: how many leases at once, and of which kind. */
static void parse_kind(struct model_command *request, const struct transport_word *argv)
{
	request->most = decimal(&argv[0]);
	if (argv[1].len == 0)
		return;
	struct transport_word slot = {argv[1].bytes + 1, argv[1].len - 1};
	request->kind = argv[1].bytes[0] == '+' ? MODEL_PLUS : MODEL_SLOT;
	request->slot = request->kind == MODEL_SLOT ? (uint32_t)decimal(&slot) : 0;
}

/* "fence:key" */
static void parse_note(const struct transport_word *word, struct model_command *request)
{
	if (word->len == 0)
		return;
	struct transport_word fence = {word->bytes, word->len - 17};
	request->fence = decimal(&fence);
	request->noted = hex_number(word->bytes + fence.len + 1);
}

static void parse_extend(struct command *command, const struct transport_connection *connection,
			 const struct transport_word *argv)
{
	struct model_command *request = &command->request;
	request->token = token(&argv[0]);
	request->ttl_ms = decimal(&argv[1]);
	parse_note(&argv[2], request);
	request->epoch = epoch(&argv[3]);
	set_deadline(command, connection, &argv[4]);
}

static void parse_lock_script(struct command *command, const struct transport_connection *connection,
			      const struct transport_word *argv)
{
	struct model_command *request = &command->request;
	switch (command->kind) {
	case REDLOCK_SCRIPT_ACQUIRE: parse_acquire(command, connection, argv); break;
	case REDLOCK_SCRIPT_RAISE:
		request->token = token(&argv[0]);
		request->bucket = bucket_of(parsing, request->key);
		request->fence = decimal(&argv[2]);
		request->epoch = epoch(&argv[3]);
		set_deadline(command, connection, &argv[4]);
		break;
	case REDLOCK_SCRIPT_EXTEND: parse_extend(command, connection, argv); break;
	case REDLOCK_SCRIPT_RELEASE:
		request->token = token(&argv[0]);
		parse_entry(&argv[1], request);
		request->epoch = epoch(&argv[2]);
		break;
	default:
		assert(command->kind == REDLOCK_SCRIPT_INSPECT);
		request->ttl_ms = decimal(&argv[0]);
		request->most = decimal(&argv[1]);
		request->epoch = epoch(&argv[2]);
	}
}

/* The buckets of a set, in the order of its keys. */
static void parse_buckets(struct model_command *request, const struct transport_word *argv)
{
	MODEL_FOR_EACH_KEY (key, request->names) {
		assert(decimal(argv++) == buckets[parsing->config.one_bucket][key]);
		request->buckets[key] = (uint8_t)bucket_of(parsing, key);
	}
}

/* The names, sorted, with a line feed between each two. */
static void check_names(const struct model_command *request, const struct transport_word *word)
{
	const char *at = word->bytes, *name;
	size_t len;
	MODEL_FOR_EACH_KEY (key, request->names)
		assert(text_line(&at, word->bytes + word->len, &name, &len) && key_find(parsing, name, len) == key);
	assert(at >= word->bytes + word->len);
}

static void parse_set_script(struct command *command, const struct transport_connection *connection,
			     const struct transport_word *argv)
{
	struct model_command *request = &command->request;
	switch (command->kind) {
	case REDLOCK_SCRIPT_ACQUIRE:
		parse_lease(request, argv);
		request->fence = decimal(&argv[4]);
		parse_entry(&argv[5], request);
		request->epoch = epoch(&argv[6]);
		set_deadline(command, connection, &argv[7]);
		check_names(request, &argv[8]);
		parse_kind(request, argv + 9);
		parse_buckets(request, argv + 11);
		break;
	case REDLOCK_SCRIPT_RAISE:
		request->token = token(&argv[0]);
		request->fence = decimal(&argv[1]);
		request->epoch = epoch(&argv[2]);
		set_deadline(command, connection, &argv[3]);
		parse_buckets(request, argv + 4);
		break;
	case REDLOCK_SCRIPT_EXTEND:
		parse_extend(command, connection, argv);
		check_names(request, &argv[5]);
		break;
	default:
		assert(command->kind == REDLOCK_SCRIPT_RELEASE);
		request->token = token(&argv[0]);
		parse_entry(&argv[1], request);
		request->epoch = epoch(&argv[2]);
		check_names(request, &argv[4]);
	}
}

/* It becomes the command for one resource, with the names of several. */
static void parse_set_command(struct command *command, const struct transport_connection *connection, size_t keys,
			      const struct transport_word *words)
{
	command->kind = (uint8_t)(command->kind - REDLOCK_SCRIPT_ACQUIRE_SET + REDLOCK_SCRIPT_ACQUIRE);
	for (size_t i = 0; i + 1 < keys; i++)
		command->request.names |= UINT32_C(1) << key_find(parsing, words[3 + i].bytes, words[3 + i].len);
	assert(command->request.names >> MODEL_KEYS == 0 && is_set(command->request.names));
	command->request.key = first_key(command->request.names);
	parse_set_script(command, connection, words + 3 + keys);
}

/* Of the slice those buckets that the resources have. A floor counts as well, whatever the slice: of one without any
 * the model is asked for the first one, which can only make the number larger. */
static void parse_slice(struct model_command *request, const struct transport_word *argv)
{
	uint64_t first = decimal(&argv[1]), last = decimal(&argv[2]);
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
		request->digest = hex(&argv[0]);
		request->ttl_ms = decimal(&argv[1]);
		request->evicted = argv[2].len > 0 ? (uint32_t)decimal(&argv[2]) + 1 : 0;
		request->compared = argv[3].bytes[0] == '1';
		request->timeout_ms = (uint32_t)decimal(&argv[4]);
		break;
	case REDLOCK_SCRIPT_QUARANTINE:
		request->epoch = argv[0].len > 0 ? hex(&argv[0]) : 0;
		request->marker = hex(&argv[1]);
		request->run_id = hex(&argv[2]);
		request->kept = argv[3].bytes[0] == '1';
		request->ttl_ms = decimal(&argv[4]);
		break;
	case REDLOCK_SCRIPT_FENCES:
		request->epoch = hex(&argv[0]);
		parse_slice(request, argv);
		break;
	case REDLOCK_SCRIPT_EPOCH_WRITE:
		request->marker = hex(&argv[0]);
		request->run_id = hex(&argv[1]);
		request->cluster = hex(&argv[2]);
		request->digest = hex(&argv[3]);
		request->ttl_ms = decimal(&argv[4]);
		request->fence = decimal(&argv[5]);
		request->clocked = argv[6].bytes[0] == '1';
		request->timeout_ms = (uint32_t)decimal(&argv[7]);
		set_deadline(command, connection, &argv[8]);
		break;
	default: assert(false);
	}
}

/* A script on the keys of a check: each answers 1 but for an inspection and for the second acquisitions. */
static void parse_trial(struct command *command, unsigned script, const struct transport_word *argv)
{
	char second = script == REDLOCK_SCRIPT_ACQUIRE ? '2' : script == REDLOCK_SCRIPT_ACQUIRE_SHARED ? '5' : '\0';
	bool is_second = second != '\0' && argv[0].bytes[LEASE_TOKEN_LEN - 1] == second;
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

static void parse_batch(struct command *command, const struct transport_connection *connection, size_t keys,
			const struct transport_word *words)
{
	const struct transport_word *argv = words + 3 + keys;
	struct command *at = command;
	for (size_t i = 0; i + 1 < keys; i++, argv += 9) {
		if (i > 0) {
			struct command *more = command_new(parsing);
			more->kind = command->kind;
			at->also = (uint16_t)(more - parsing->commands);
			at = more;
		}
		at->request.key = key_find(parsing, words[3 + i].bytes, words[3 + i].len);
		assert(at->request.key < MODEL_KEYS);
		parse_lock_script(at, connection, argv);
	}
	parsing->figures->batched += keys > 2;
}

/* The last argument, which may be left out. */
static void parse_until(struct command *command, unsigned script, size_t keys, size_t count,
			const struct transport_word *words)
{
	size_t others = 0;
	switch (script) {
	case REDLOCK_SCRIPT_ACQUIRE: others = 9 * (keys - 1); break;
	case REDLOCK_SCRIPT_EXTEND: others = 5; break;
	case REDLOCK_SCRIPT_ACQUIRE_SHARED: others = 11; break;
	case REDLOCK_SCRIPT_ACQUIRE_SET: others = 11 + keys - 1; break;
	case REDLOCK_SCRIPT_EXTEND_SET: others = 6; break;
	default: return;
	}
	assert(count == 3 + keys + others || count == 4 + keys + others);
	if (count == 3 + keys + others)
		return;
	for (struct command *each = command;; each = &parsing->commands[each->also]) {
		each->request.until_s = decimal(&words[count - 1]);
		if (each->also == NONE)
			break;
	}
}

static void parse_script(struct command *command, const struct transport_connection *connection, size_t count,
			 const struct transport_word *words)
{
	bool with_source = words[0].len == 4;
	unsigned script = find_script(&words[1], with_source);
	size_t keys = (size_t)decimal(&words[2]);
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
		if (script == REDLOCK_SCRIPT_ACQUIRE_SHARED) {
			command->kind = REDLOCK_SCRIPT_ACQUIRE;
			parse_batch(command, connection, keys, words);
			parse_kind(&command->request, argv + 9);
		} else if (script >= REDLOCK_SCRIPT_ACQUIRE_SET)
			parse_set_command(command, connection, keys, words);
		else if (script <= REDLOCK_SCRIPT_INSPECT)
			parse_batch(command, connection, keys, words);
		else
			parse_guard_script(command, connection, argv);
		parse_until(command, script, keys, count, words);
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
	} else if (is(&words[0], "CLIENT") && is(&words[1], "ID")) {
		command->kind = COMMAND_CLIENT_ID;
	} else if (is(&words[0], "SCRIPT")) {
		command->kind = COMMAND_LOAD;
		command->script = (uint8_t)find_script(&words[2], true);
	} else if (is(&words[0], "SCAN")) {
		command->kind = COMMAND_SCAN;
		command->only_if_there = count == 4; /* of a check */
	} else if (is(&words[0], "HSET")) {
		command->kind = COMMAND_ERROR;
		command->text = "ERR wrong number of arguments for 'hset' command";
	} else if (is(&words[0], "HINCRBY")) {
		command->kind = COMMAND_ERROR;
		command->text = "ERR value is not an integer or out of range";
	}
	return command;
}
