/* Steps as commands to the server, as changes of the model, and as a story: see compare_sequence.h. */
#include "compare_sequence.h"

#include <stdio.h>
#include <string.h>

/* ---- sending ---- */

static void append_drop_all(struct compare_server *server, unsigned number)
{
	compare_send(server, "DEL " COMPARE_HASH_NAME, number);
	for (unsigned i = 0; i < MODEL_KEYS; i++) {
		compare_send(server, "DEL " COMPARE_KEY_NAME, number, i);
		compare_send(server, "DEL " COMPARE_QUEUE_NAME, number, number, i);
		compare_send(server, "DEL " COMPARE_WATCH_NAME, number, number, i);
		compare_send(server, "DEL " COMPARE_HOLDERS_NAME, number, number, i);
	}
	for (unsigned long long i = 1; i <= MODEL_REPLICAS; i++)
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

unsigned compare_outside_replies(const struct compare_step *step)
{
	if (compare_is_alive_step(step))
		return 1;
	return 2 + (step->kind == COMPARE_DROP_ALL ? 4 * MODEL_KEYS + MODEL_REPLICAS : 0);
}

void compare_append_step(struct compare_server *server, const struct compare_sequence *sequence,
			 const struct compare_step *step)
{
	struct compare_args args;
	if (compare_is_script(step)) {
		compare_command(&args, (enum compare_script)step->kind, sequence->number, &step->command);
		compare_append(server, args.count, args.at);
	} else if (compare_is_alive_step(step)) {
		compare_append_alive(server, sequence, step);
	} else {
		append_outside(server, sequence->number, step);
	}
	if (compare_is_alive_step(step))
		compare_send(server, "PEXPIRETIME " COMPARE_ALIVE_NAME, sequence->number,
			     (unsigned long long)step->command.entry.replica);
	MODEL_FOR_EACH_KEY (key, compare_keys(step))
		compare_append_key(server, sequence, key);
}

/* ---- what somebody else does, in the model ---- */

void compare_apply_outside(struct model_master *master, const struct compare_step *step)
{
	unsigned i = step->command.key;
	struct model_key *key = &master->keys[i];
	struct model_value text = {.owner = step->command.owner};
	uint64_t ends_ms = compare_ms(master->now_us) + step->command.ttl_ms;
	switch (step->kind) {
	case COMPARE_OTHER_LIBRARY: *key = (struct model_key){.value = text, .type = MODEL_STRING}; break;
	case COMPARE_OTHER_LIBRARY_PX:
		*key = (struct model_key){.value = text, .expires_ms = ends_ms, .type = MODEL_STRING};
		break;
	case COMPARE_HASH_KEY:
	case COMPARE_LIST_KEY: *key = (struct model_key){.type = MODEL_OTHER}; break;
	case COMPARE_PERSIST: key->expires_ms = 0; break;
	case COMPARE_PEXPIRE: key->expires_ms = key->type != MODEL_NONE ? ends_ms : 0; break;
	case COMPARE_DROP_KEY: model_evict_key(master, i); break;
	case COMPARE_DROP_HASH: model_evict_hash(master); break;
	case COMPARE_QUEUE_PEXPIRE:
		master->queues[i].expires_ms = model_waiting(master, i) ? ends_ms : master->queues[i].expires_ms;
		break;
	case COMPARE_DROP_QUEUE: model_evict_queue(master, i); break;
	case COMPARE_WAITED: master->waited_us = step->waited_us; break;
	default: model_flushall(master); break;
	}
}

/* ---- the story of a difference ---- */

static void tell_step(const struct compare_sequence *sequence, unsigned i)
{
	static const char *const names[COMPARE_STEP_KINDS] = {
		[COMPARE_OTHER_LIBRARY] = "another library's SET",
		[COMPARE_OTHER_LIBRARY_PX] = "another library's SET, with PX",
		[COMPARE_HASH_KEY] = "somebody makes a hash of it",
		[COMPARE_LIST_KEY] = "somebody makes a list of it",
		[COMPARE_PERSIST] = "somebody takes its expiry away",
		[COMPARE_PEXPIRE] = "somebody gives it another expiry",
		[COMPARE_DROP_KEY] = "it is dropped",
		[COMPARE_DROP_HASH] = "the hash is dropped",
		[COMPARE_DROP_ALL] = "all is dropped",
		[COMPARE_ALIVE_AGAIN] = "says once more that it lives",
		[COMPARE_ALIVE] = "says that it lives",
		[COMPARE_DROP_ALIVE] = "its alive key is dropped",
		[COMPARE_QUEUE_PEXPIRE] = "somebody gives the queue another expiry",
		[COMPARE_DROP_QUEUE] = "the queue is dropped",
		[COMPARE_WAITED] = "somebody sets `waited`",
	};
	const struct compare_step *step = &sequence->steps[i];
	struct compare_args args;
	printf("%3u. ", i + 1);
	if (compare_is_alive_step(step)) {
		printf("replica %llu: %s (ttl %llu)\n", (unsigned long long)step->command.entry.replica,
		       names[step->kind], (unsigned long long)step->command.ttl_ms);
		return;
	}
	if (step->kind == COMPARE_WAITED) {
		printf("%s: %llu\n", names[step->kind], (unsigned long long)step->waited_us);
		return;
	}
	if (!compare_is_script(step)) {
		printf("key%u: %s (ttl %llu, text \"%s\")\n", step->command.key, names[step->kind],
		       (unsigned long long)step->command.ttl_ms,
		       compare_other_library_text((unsigned)step->command.owner));
		return;
	}
	compare_command(&args, (enum compare_script)step->kind, sequence->number, &step->command);
	args.at[1] = compare_script_name((enum compare_script)step->kind);
	compare_print_args(&args);
	printf("\n");
}

static void tell_notified(const struct compare_sequence *sequence, unsigned i)
{
	const struct compare_step *step = &sequence->steps[i];
	char text[COMPARE_NOTIFICATIONS];
	compare_notification_text(text, sequence->number, &step->reply);
	if (text[0])
		printf(" and publish %s", text);
}

static void tell_before(const struct compare_sequence *sequence, unsigned steps)
{
	printf("sequence %u:\n", sequence->number);
	for (unsigned i = 0; i < steps; i++) {
		struct compare_answer answer;
		tell_step(sequence, i);
		if (!compare_is_script(&sequence->steps[i]) || i + 1 == steps)
			continue;
		compare_expect(&answer, (enum compare_script)sequence->steps[i].kind, &sequence->steps[i].reply, NULL,
			       (struct compare_near){0, 0});
		printf("     both answer %s", answer.text);
		tell_notified(sequence, i);
		printf("\n");
	}
}

void compare_tell_notification(const struct compare_sequence *sequence, const char *models_text, const char *text)
{
	tell_before(sequence, sequence->step_count);
	printf("     the model notifies \"%s\"\n     redis notifies  \"%s\"\n", models_text, text);
}

void compare_tell_reply(const struct compare_sequence *sequence, const struct compare_answer *expected,
			const struct compare_answer *its)
{
	tell_before(sequence, sequence->step_count);
	printf("     the model answers %s\n     redis answers     %s\n", expected->text, its->text);
}

bool compare_tell_state(const struct compare_sequence *sequence, const char *where, const char *models_text,
			const redisReply *reply)
{
	struct compare_answer its;
	compare_reply_text(&its, reply);
	tell_before(sequence, sequence->step_count);
	printf("  afterwards, %s:\n     the model has %s\n     redis has     %s\n", where, models_text, its.text);
	return false;
}
