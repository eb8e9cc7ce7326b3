/* The answers of the modelled masters as hiredis reads them from a server. One at a time: each is made in the same
 * memory, and valid until the next one. */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "daemon_world.h"

enum { REPLIES = 512, TEXT = 16384 };

static struct redisReply replies[REPLIES], *pointers[REPLIES];
static char text[TEXT];
static size_t used, used_pointers, used_text;

static redisReply *reply_new(int type)
{
	assert(used < REPLIES);
	redisReply *reply = &replies[used++];
	memset(reply, 0, sizeof *reply);
	reply->type = type;
	return reply;
}

static redisReply *number(long long value)
{
	redisReply *reply = reply_new(REDIS_REPLY_INTEGER);
	reply->integer = value;
	return reply;
}

static redisReply *nil(void)
{
	return reply_new(REDIS_REPLY_NIL);
}

static redisReply *bytes(int type, const char *from, size_t len)
{
	redisReply *reply = reply_new(type);
	assert(used_text + len < TEXT);
	reply->str = memcpy(text + used_text, from, len);
	reply->str[len] = '\0';
	reply->len = len;
	used_text += len + 1;
	return reply;
}

static redisReply *string(int type, const char *from)
{
	return bytes(type, from, strlen(from));
}

static redisReply *decimal(uint64_t value)
{
	char digits[TEXT_DECIMAL_MAX];
	return bytes(REDIS_REPLY_STRING, digits, text_decimal(value, digits));
}

static void write_decimal(char to[16], uint64_t value)
{
	for (unsigned i = 16; i-- > 0; value /= 10)
		to[i] = (char)('0' + value % 10);
}

/* Eight digits at a time, as daemon_words.c reads them. */
static void write_hex(char to[16], uint64_t value)
{
	for (unsigned half = 0; half < 2; half++) {
		uint64_t digits = half ? value & UINT32_MAX : value >> 32;
		digits = (digits | digits << 16) & 0x0000ffff0000ffff;
		digits = (digits | digits << 8) & 0x00ff00ff00ff00ff;
		digits = (digits | digits << 4) & 0x0f0f0f0f0f0f0f0f;
		digits += 0x3030303030303030 + ((digits + 0x0606060606060606) >> 4 & 0x0101010101010101) * 0x27;
		digits = htobe64(digits);
		memcpy(to + half * sizeof digits, &digits, sizeof digits);
	}
}

/* 0: nothing there. */
static redisReply *hex(uint64_t value)
{
	char digits[16];
	write_hex(digits, value);
	return bytes(REDIS_REPLY_STRING, digits, value != 0 ? sizeof digits : 0);
}

void token_write(uint64_t token, char ret_token[RANDOM_TOKEN_LEN])
{
	memset(ret_token, '0', RANDOM_TOKEN_LEN - 16);
	write_hex(ret_token + RANDOM_TOKEN_LEN - 16, token);
}

static redisReply *value(const struct model_value *value)
{
	char line[LEASE_TOKEN_LEN + 3 * TEXT_DECIMAL_MAX + 24 + MODEL_KEYS * 24];
	size_t len = LEASE_TOKEN_LEN;
	if (value->token == 0)
		return string(REDIS_REPLY_STRING, "a value of another library");
	token_write(value->token, line);
	if (value->kind != MODEL_EXCLUSIVE)
		line[len++] = value->kind == MODEL_PLUS ? '+' : '#';
	if (value->kind == MODEL_SLOT)
		len += text_decimal(value->slot, line + len);
	line[len++] = value->names != 0 ? ';' : ':';
	len += text_decimal(value->hold_until_ms, line + len);
	line[len++] = ':';
	len += text_decimal(value->fence, line + len);
	line[len++] = ':';
	if (value->key != 0 && !value->noted)
		line[len++] = '?';
	if (value->key != 0)
		write_hex(line + len, value->key);
	len += value->key != 0 ? 16 : 0;
	line[len++] = ':';
	len += value->owner != 0 ? text_decimal(value->owner, line + len) : 0;
	if (value->names != 0) /* an empty caller, no metadata */
		len += (size_t)(stpcpy(line + len, "\n\n") - (line + len));
	MODEL_FOR_EACH_KEY (key, value->names) {
		line[len++] = '\n';
		len += (size_t)(stpcpy(line + len, key_name(&world_of_all, key)) - (line + len));
	}
	return bytes(REDIS_REPLY_STRING, line, len);
}

enum { ENTRY_MAX = 16 + 1 + 16 + 1 + TEXT_DECIMAL_MAX };

static redisReply *entry(struct model_entry entry)
{
	char line[ENTRY_MAX] = "";
	size_t len = 33;
	if (entry.replica == 0) /* a repair that is void */
		return bytes(REDIS_REPLY_STRING, line, 0);
	write_hex(line, entry.replica);
	line[16] = ":+#"[entry.kind];
	write_decimal(line + 17, entry.arrival);
	if (entry.kind != MODEL_EXCLUSIVE) {
		line[len++] = entry.of_set ? ';' : ':';
		len += text_decimal(entry.most, line + len);
	}
	return bytes(REDIS_REPLY_STRING, line, len);
}

static redisReply *array(size_t count, redisReply *const elements[])
{
	redisReply *reply = reply_new(REDIS_REPLY_ARRAY);
	assert(used_pointers + count <= REPLIES);
	reply->elements = count;
	reply->element = &pointers[used_pointers];
	used_pointers += count;
	memcpy(reply->element, elements, count * sizeof *elements);
	return reply;
}

#define ARRAY(...) array(sizeof((redisReply *[]){__VA_ARGS__}) / sizeof(redisReply *), (redisReply *[]){__VA_ARGS__})

/* ---- scripts ---- */

static redisReply *held(const struct model_reply *answer)
{
	return ARRAY(number(0), number((long long)answer->now_us), number(answer->remaining_ms),
		     answer->has_value ? value(&answer->value) : nil());
}

/* A digit for each slot. */
static redisReply *taken(const struct model_reply *answer)
{
	char digits[LEASE_SLOTS_MAX];
	assert(answer->slots <= sizeof digits);
	for (unsigned i = 0; i < answer->slots; i++)
		digits[i] = (char)('0' + (i < 32 && (answer->taken >> i & 1)));
	return bytes(REDIS_REPLY_STRING, digits, answer->slots);
}

static redisReply *token(uint64_t number)
{
	char digits[RANDOM_TOKEN_LEN];
	token_write(number, digits);
	return bytes(REDIS_REPLY_STRING, digits, sizeof digits);
}

/* {value or token, score, …} */
static redisReply *listed(const struct model_reply *answer)
{
	redisReply *elements[2 * MODEL_HOLDERS];
	for (uint32_t i = 0; i < answer->listed_count; i++) {
		const struct model_holder *holder = &answer->listed[i];
		elements[2 * i] = answer->tokens_alone ? token(holder->value.token) : value(&holder->value);
		elements[2 * i + 1] = decimal(holder->ends_ms);
	}
	return array(2 * answer->listed_count, elements);
}

/* What the buckets have, with a comma between each two. */
static redisReply *buckets(const struct command *command)
{
	char line[MODEL_KEYS * TEXT_DECIMAL_MAX + MODEL_KEYS];
	size_t len = 0;
	uint32_t names = command->answer.gone;
	MODEL_FOR_EACH_KEY (key, names) {
		if ((names & ((UINT32_C(1) << key) - 1)) != 0)
			line[len++] = ',';
		if (command->answer.buckets[key] != 0)
			len += text_decimal(command->answer.buckets[key], line + len);
	}
	return bytes(REDIS_REPLY_STRING, line, len);
}

static redisReply *lock_script(const struct command *command)
{
	const struct model_reply *answer = &command->answer;
	bool acquires = command->kind == REDLOCK_SCRIPT_ACQUIRE, inspects = command->kind == REDLOCK_SCRIPT_INSPECT;
	bool which = command->request.names != 0 && (acquires || command->kind == REDLOCK_SCRIPT_RELEASE);
	redisReply *code = number(answer->code), *now = number((long long)answer->now_us);
	if (answer->code == 0 && inspects && answer->value.kind != MODEL_EXCLUSIVE)
		return ARRAY(code, now, number(answer->remaining_ms), value(&answer->value), number(answer->waiters),
			     number(answer->holder_count), decimal(answer->digest_of_tokens), listed(answer));
	if (answer->code == 0 && command->request.kind != MODEL_EXCLUSIVE)
		return ARRAY(code, now, number(answer->remaining_ms), answer->has_value ? value(&answer->value) : nil(),
			     taken(answer));
	if (answer->code == 0 && inspects)
		return ARRAY(code, now, number(answer->remaining_ms), answer->has_value ? value(&answer->value) : nil(),
			     number(answer->waiters));
	if (answer->code == 0 && which)
		return ARRAY(code, now, number(answer->remaining_ms), answer->has_value ? value(&answer->value) : nil(),
			     number(answer->which));
	if (answer->code == 0)
		return held(answer);
	if (answer->code == -1 && command->kind == REDLOCK_SCRIPT_EXTEND)
		return ARRAY(code, now, buckets(command));
	if (answer->code == -1 && inspects)
		return ARRAY(code, now, number(answer->waiters));
	if (answer->code == 2 && which)
		return ARRAY(code, now, number(answer->remaining_ms), entry(answer->first), number(answer->which));
	if (answer->code == 2 && acquires)
		return ARRAY(code, now, number(answer->remaining_ms), entry(answer->first));
	if (answer->code == 2 && command->kind == REDLOCK_SCRIPT_RELEASE)
		return ARRAY(code, now, number((long long)answer->arrival));
	if (answer->code == 2 || (answer->code == 1 && acquires))
		return ARRAY(code, now, number((long long)answer->old));
	if (answer->code == 1 && command->kind == REDLOCK_SCRIPT_EXTEND)
		return ARRAY(code, now, number((long long)answer->ttl_ms), value(&answer->value));
	if (answer->code == 1 && command->kind == REDLOCK_SCRIPT_RELEASE)
		return ARRAY(code, now, value(&answer->value));
	return ARRAY(code, now);
}

/* Too late, or with another epoch: one answer to all. A release is carried out nevertheless. */
static redisReply *batch(const struct command *command)
{
	redisReply *elements[MASTER_BATCH_MAX + 1];
	size_t count = 1;
	elements[0] = number((long long)command->answer.now_us);
	if (command->kind != REDLOCK_SCRIPT_RELEASE && (command->answer.code == -2 || command->answer.code == -3))
		return lock_script(command);
	for (;; command = &world_of_all.commands[command->also]) {
		const struct model_reply *answer = &command->answer;
		if (command->kind == REDLOCK_SCRIPT_ACQUIRE && answer->code == 1)
			elements[count++] = number((long long)answer->old);
		else if (command->kind == REDLOCK_SCRIPT_RELEASE && answer->code == 1)
			elements[count++] = value(&answer->value);
		else
			elements[count++] = lock_script(command);
		if (command->also == NONE)
			return array(count, elements);
	}
}

static redisReply *guard_script(const struct command *command)
{
	const struct model_reply *a = &command->answer;
	redisReply *code = number(a->code), *now = number((long long)a->now_us);
	if (command->kind == REDLOCK_SCRIPT_QUARANTINE && a->code == 1)
		return ARRAY(code, now, hex(a->marker), decimal(a->kept),
			     a->ttl_ms != 0 ? decimal(a->ttl_ms) : string(REDIS_REPLY_STRING, ""));
	if (command->kind == REDLOCK_SCRIPT_FENCES && a->code == 1)
		return ARRAY(code, now, number((long long)a->fence), number((long long)a->ttl_ms),
			     number((long long)a->leases), number((long long)a->timeout_ms));
	if (command->kind != REDLOCK_SCRIPT_EPOCH)
		return ARRAY(code, now);
	redisReply *none = string(REDIS_REPLY_STRING, "");
	return ARRAY(code, now, number((long long)a->beat), hex(a->epoch), hex(a->run_id), hex(a->cluster),
		     hex(a->digest), a->ttl_ms != 0 ? decimal(a->ttl_ms) : none, hex(a->marker), hex(a->marker_run_id),
		     a->marker != 0 ? decimal(a->kept) : none, a->clocked_us != 0 ? decimal(a->clocked_us) : none,
		     a->evicted != 0 ? decimal(a->evicted - 1) : none);
}

/* ---- everything else ---- */

static redisReply *info(const struct command *command)
{
	char lines[600] = "redis_version:7.0.15\r\nrun_id:", *at = lines + strlen(lines);
	write_hex(at, command->run_id);
	at = stpcpy(at + 16, "000000000000000000000000\r\nrole:master\r\nmaxmemory:");
	at = stpcpy(at,
		    command->evicts ? "1000000\r\nmaxmemory_policy:allkeys-lru" : "0\r\nmaxmemory_policy:noeviction");
	at = stpcpy(at, "\r\nused_memory:1\r\nevicted_keys:");
	at += text_decimal(command->evicted, at);
	at = stpcpy(at, "\r\nconnected_slaves:0\r\nloading:0\r\ncluster_enabled:0\r\nuptime_in_seconds:");
	at += text_decimal(command->uptime_s, at);
	at = stpcpy(at, "\r\naof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n"
			"aof_last_write_status:ok\r\nmaster_replid2:0000000000000000000000000000000000000000\r\n");
	return bytes(REDIS_REPLY_STRING, lines, (size_t)(at - lines));
}

static redisReply *settings(void)
{
	static const char *const words[] = {"appendonly", "yes", "appendfsync", "always", "no-appendfsync-on-rewrite",
					    "no"};
	enum { COUNT = sizeof words / sizeof *words };
	redisReply *elements[COUNT];
	for (size_t i = 0; i < COUNT; i++)
		elements[i] = string(REDIS_REPLY_STRING, words[i]);
	return array(COUNT, elements);
}

/* The names of the keys that were there: bits of `code`. */
static redisReply *scan(const struct command *command)
{
	redisReply *elements[MODEL_KEYS];
	size_t count = 0;
	for (unsigned key = 0; key < MODEL_KEYS; key++)
		if ((unsigned)command->code >> key & 1)
			elements[count++] = string(REDIS_REPLY_STRING, key_name(&world_of_all, key));
	redisReply *cursor = string(REDIS_REPLY_STRING, "0");
	return ARRAY(cursor, array(count, elements));
}

static redisReply *value_of(const struct model_reply *answer, uint64_t token)
{
	for (uint32_t i = 0; i < answer->listed_count; i++)
		if (answer->listed[i].value.token == token)
			return value(&answer->listed[i].value);
	return nil();
}

static redisReply *leases(const struct command *command)
{
	const struct model_reply *answer = &command->answer;
	redisReply *elements[NODES * MODEL_HOLDERS];
	for (uint32_t i = 0; i < command->token_count; i++)
		elements[i] = value_of(answer, command->tokens[i]);
	for (uint32_t i = 0; i < answer->listed_count && command->token_count == 0; i++)
		elements[i] = token(answer->listed[i].value.token);
	return array(command->token_count > 0 ? command->token_count : answer->listed_count, elements);
}

const redisReply *reply_make(const struct command *command)
{
	used = used_pointers = used_text = 0;
	if (command->no_script)
		return string(REDIS_REPLY_ERROR, "NOSCRIPT No matching script. Please use EVAL.");
	switch (command->kind) {
	case COMMAND_OK:
	case COMMAND_LOAD: return string(REDIS_REPLY_STATUS, "OK");
	case COMMAND_INFO: return info(command);
	case COMMAND_CONFIG: return settings();
	case COMMAND_CLIENT_ID: return number(command->client_id);
	case COMMAND_NUMBER: return number(command->code);
	case COMMAND_ERROR: return string(REDIS_REPLY_ERROR, command->text);
	case COMMAND_TRIAL: return ARRAY(number(command->code), number(1));
	case COMMAND_ALIVE: return command->code ? string(REDIS_REPLY_STATUS, "OK") : nil();
	case COMMAND_SCAN: return scan(command);
	case COMMAND_READ: return leases(command);
	default:
		if (command->kind > REDLOCK_SCRIPT_INSPECT)
			return guard_script(command);
		return command->also != NONE ? batch(command) : lock_script(command);
	}
}

const redisReply *reply_make_message(const struct notification *notification)
{
	char line[ENTRY_MAX + 40], *at = line;
	used = used_pointers = used_text = 0;
	redisReply *channel = string(REDIS_REPLY_STRING, "redlockd:wake");
	if (notification->entry.replica == 0)
		return ARRAY(string(REDIS_REPLY_STRING, "subscribe"), channel, number(1));
	const char *name = key_name(&world_of_all, notification->key);
	at = stpcpy(line, entry(notification->entry)->str);
	if (notification->free != 0)
		at += sprintf(at, "@%u", notification->free - 1);
	if (notification->last != 0) {
		*at++ = '>';
		write_decimal(at, notification->last);
		at += 16;
	}
	*at++ = ' ';
	strcpy(at, name);
	return ARRAY(string(REDIS_REPLY_STRING, "message"), channel, string(REDIS_REPLY_STRING, line));
}
