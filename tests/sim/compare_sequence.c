/* SPDX-License-Identifier: MIT */
/* Steps as commands to the server, or as a story: see compare_sequence.h. */
#include "compare_sequence.h"

#include <stdio.h>

#include "compare_text.h"

/* ---- sending ---- */

static void append_drop_all(struct compare_server *server, unsigned number)
{
	compare_send(server, "DEL " COMPARE_HASH_NAME, number);
	for (unsigned i = 0; i < COMPARE_KEYS; i++) {
		compare_send(server, "DEL " COMPARE_KEY_NAME, number, i);
		compare_send(server, "DEL " COMPARE_QUEUE_NAME, number, number, i);
		compare_send(server, "DEL " COMPARE_WATCH_NAME, number, number, i);
		compare_send(server, "DEL " COMPARE_WANTED_NAME, number, number, i);
		compare_send(server, "DEL " COMPARE_HOLDERS_NAME, number, number, i);
	}
	for (unsigned long long i = 1; i <= COMPARE_REPLICAS; i++)
		compare_send(server, "DEL " COMPARE_ALIVE_NAME, number, i);
}

/* Two commands for what is no script. */
static void append_outside(struct compare_server *server, unsigned number, const struct compare_step *step)
{
	const char *text = compare_other_library_text((unsigned)step->command.owner);
	unsigned key = step->command.key;
	unsigned long long ttl_ms = step->command.ttl_ms, waited_us = step->waited_us;
	bool keeps_key = step->kind == COMPARE_PERSIST || step->kind == COMPARE_PEXPIRE ||
			 step->kind == COMPARE_DROP_HASH || step->kind >= COMPARE_QUEUE_PEXPIRE;
	compare_send(server, keeps_key ? "PING" : "DEL " COMPARE_KEY_NAME, number, key);
	switch (step->kind) {
	case COMPARE_OTHER_LIBRARY: compare_send(server, "SET " COMPARE_KEY_NAME " %s", number, key, text); break;
	case COMPARE_OTHER_LIBRARY_PX:
		compare_send(server, "SET " COMPARE_KEY_NAME " %s PX %llu", number, key, text, ttl_ms);
		break;
	case COMPARE_HASH_KEY: compare_send(server, "HSET " COMPARE_KEY_NAME " epoch 1", number, key); break;
	case COMPARE_LIST_KEY: compare_send(server, "RPUSH " COMPARE_KEY_NAME " %s", number, key, text); break;
	case COMPARE_PERSIST: compare_send(server, "PERSIST " COMPARE_KEY_NAME, number, key); break;
	case COMPARE_PEXPIRE: compare_send(server, "PEXPIRE " COMPARE_KEY_NAME " %llu", number, key, ttl_ms); break;
	case COMPARE_DROP_HASH: compare_send(server, "DEL " COMPARE_HASH_NAME, number); break;
	case COMPARE_DROP_ALL: append_drop_all(server, number); break;
	case COMPARE_QUEUE_PEXPIRE:
		compare_send(server, "PEXPIRE " COMPARE_QUEUE_NAME " %llu", number, number, key, ttl_ms);
		break;
	case COMPARE_DROP_QUEUE: compare_send(server, "DEL " COMPARE_QUEUE_NAME, number, number, key); break;
	case COMPARE_WAITED:
		compare_send(server,
			     waited_us ? "HSET " COMPARE_HASH_NAME " waited %llu" : "HDEL " COMPARE_HASH_NAME " waited",
			     number, waited_us);
		break;
	default: compare_send(server, "PING"); break;
	}
}

unsigned compare_step_replies(const struct compare_step *step)
{
	if (compare_is_script(step))
		return 1;
	return 2 + (step->kind == COMPARE_DROP_ALL ? 5 * COMPARE_KEYS + COMPARE_REPLICAS : 0);
}

static void append_alive(struct compare_server *server, unsigned number, const struct compare_step *step)
{
	unsigned long long replica = step->command.entry.replica, ttl_ms = step->command.ttl_ms;
	const char *format = "SET " COMPARE_ALIVE_NAME " %s PX %llu";
	if (step->kind == COMPARE_DROP_ALIVE)
		format = "DEL " COMPARE_ALIVE_NAME;
	else if (step->kind == COMPARE_ALIVE_AGAIN)
		format = "SET " COMPARE_ALIVE_NAME " %s PX %llu XX";
	compare_send(server, format, number, replica, "", ttl_ms);
	compare_send(server, "PEXPIRETIME " COMPARE_ALIVE_NAME, number, replica);
}

static void append_key(struct compare_server *server, unsigned number, unsigned key)
{
	compare_send(server, "PEXPIRETIME " COMPARE_KEY_NAME, number, key);
	compare_send(server, "ZRANGE " COMPARE_QUEUE_NAME " 0 -1", number, number, key);
	compare_send(server, "PEXPIRETIME " COMPARE_QUEUE_NAME, number, number, key);
	compare_send(server, "PEXPIRETIME " COMPARE_WATCH_NAME, number, number, key);
	compare_send(server, "PEXPIRETIME " COMPARE_WANTED_NAME, number, number, key);
}

void compare_append_state(struct compare_server *server, const struct compare_sequence *sequence)
{
	unsigned number = sequence->number;
	for (unsigned i = 0; i < COMPARE_KEYS; i++) {
		compare_send(server, "GET " COMPARE_KEY_NAME, number, i);
		append_key(server, number, i);
		compare_send(server, "ZRANGE " COMPARE_KEY_NAME " 0 -1 WITHSCORES", number, i);
		compare_send(server, "HGETALL " COMPARE_HOLDERS_NAME, number, number, i);
	}
	for (unsigned long long i = 1; i <= COMPARE_REPLICAS; i++)
		compare_send(server, "PEXPIRETIME " COMPARE_ALIVE_NAME, number, i);
	compare_send(server, "HGETALL " COMPARE_HASH_NAME, number);
}

static void append_command(struct compare_server *server, unsigned number, const struct compare_step *step)
{
	struct compare_args args;
	if (compare_is_script(step)) {
		compare_command(&args, (enum compare_script)step->kind, number, &step->command);
		compare_append(server, args.count, args.at);
	} else if (compare_is_alive_step(step)) {
		append_alive(server, number, step);
	} else {
		append_outside(server, number, step);
	}
}

void compare_append_step(struct compare_server *server, const struct compare_sequence *sequence,
			 const struct compare_step *step)
{
	append_command(server, sequence->number, step);
	FOR_EACH_KEY (key, compare_keys(step))
		append_key(server, sequence->number, key);
}

void compare_tell(const struct compare_sequence *sequence)
{
	struct compare_server paper = {.tells = true};
	printf("sequence %u:\n", sequence->number);
	for (unsigned i = 0; i < sequence->step_count; i++) {
		const struct compare_step *step = &sequence->steps[i];
		printf("%3u. %s", i + 1, compare_is_script(step) ? compare_script_name(step->kind) : "");
		append_command(&paper, sequence->number, step);
	}
}
