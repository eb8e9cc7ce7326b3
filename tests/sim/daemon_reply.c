/* SPDX-License-Identifier: MIT */
/* Answers as hiredis reads them from a server: what the checks need of those of a store, and all others, which are made
 * here. One at a time: each is made in the same memory, and valid until the next one. */
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

/* Eight digits at a time, as daemon_words.c reads them. */
void digits_write(char to[16], uint64_t value)
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

/* Most digits are letters: where they are decimal, lease_is_kept() of lib/lease.lua looks for a mark behind each. */
void token_write(uint64_t token, char ret_token[RANDOM_TOKEN_LEN])
{
	memset(ret_token, 'f', RANDOM_TOKEN_LEN - 16);
	digits_write(ret_token + RANDOM_TOKEN_LEN - 16, TOKEN_ZERO + token);
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

static uint64_t hex_of(const redisReply *reply)
{
	assert(reply->type == REDIS_REPLY_STRING);
	return reply->len > 0 ? hex_number(reply->str) : 0;
}

static void read_answer(struct command *command, const redisReply *reply)
{
	struct script_answer *answer = &command->answer;
	assert(reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2);
	answer->code = (int)reply->element[0]->integer;
	switch (command->kind) {
	case REDLOCK_SCRIPT_ACQUIRE:
	case REDLOCK_SCRIPT_RAISE:
		if (answer->code == (command->kind == REDLOCK_SCRIPT_ACQUIRE ? 1 : 2))
			answer->old = (uint64_t)reply->element[2]->integer;
		break;
	case REDLOCK_SCRIPT_FENCES: answer->fence = answer->code == 1 ? (uint64_t)reply->element[2]->integer : 0; break;
	case COMMAND_EPOCH:
		answer->beat = (uint64_t)reply->element[2]->integer;
		answer->epoch = hex_of(reply->element[3]);
		answer->run_id = hex_of(reply->element[4]);
		answer->marker = hex_of(reply->element[8]);
		break;
	default: break;
	}
}

void reply_read(struct world *of, struct command *command)
{
	const redisReply *reply = command->reply;
	if (reply->type == REDIS_REPLY_ERROR)
		fail(of, "script: %.150s", reply->str);
	if (of->failed)
		return;
	/* too late, or with another epoch: one answer to all */
	bool is_refused = command->also == NONE || reply->element[0]->integer < 0;
	for (size_t i = 1; command; command = command_part(of, command->also), i++) {
		const redisReply *its = is_refused ? reply : reply->element[i];
		if (its->type == REDIS_REPLY_ERROR)
			fail(of, "script: %.150s", its->str);
		if (its->type == REDIS_REPLY_ARRAY)
			read_answer(command, its);
		else /* the result alone */
			command->answer = (struct script_answer){
				.code = 1, .old = its->type == REDIS_REPLY_INTEGER ? (uint64_t)its->integer : 0};
	}
}

/* ---- everything else ---- */

static redisReply *info(const struct command *command)
{
	char lines[600] = "redis_version:7.0.15\r\nrun_id:", *at = lines + strlen(lines);
	digits_write(at, command->run_id);
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
	redisReply *elements[KEYS];
	size_t count = 0;
	for (unsigned key = 0; key < KEYS; key++)
		if ((unsigned)command->code >> key & 1)
			elements[count++] = string(REDIS_REPLY_STRING, key_name(&world_of_all, key));
	redisReply *cursor = string(REDIS_REPLY_STRING, "0");
	return ARRAY(cursor, array(count, elements));
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
	case COMMAND_SCAN: return scan(command);
	default: return command->reply;
	}
}

const redisReply *reply_make_message(const struct notification *notification)
{
	used = used_pointers = used_text = 0;
	redisReply *channel = string(REDIS_REPLY_STRING, "redlockd:wake");
	if (!notification->text)
		return ARRAY(string(REDIS_REPLY_STRING, "subscribe"), channel, number(1));
	redisReply *line = bytes(REDIS_REPLY_STRING, notification->text->bytes, notification->text->len);
	return ARRAY(string(REDIS_REPLY_STRING, "message"), channel, line);
}
