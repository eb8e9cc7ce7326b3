/* Comparing queues and alive keys. See compare_sequence.h. */
#include <stdio.h>
#include <string.h>

#include "compare_sequence.h"

/* ---- queues ---- */

bool compare_entries_are_alike(const struct compare_sequence *sequence, unsigned key, const redisReply *entries,
			       struct compare_span span)
{
	const struct model_queue *queue = model_waiting(&sequence->master, key);
	bool alike = entries->type == REDIS_REPLY_ARRAY;
	char text[COMPARE_TEXT];
	if (!queue || (alike && entries->elements == 0))
		return alike && entries->elements == 0 &&
		       (!queue || (queue->expires_ms != 0 && queue->expires_ms <= compare_ms(span.hi_us)));
	alike = alike && entries->elements == queue->count;
	for (uint32_t i = 0; alike && i < queue->count; i++) {
		compare_entry_text(text, queue->entries[i]);
		alike = strcmp(text, entries->element[i]->str) == 0;
	}
	return alike;
}

static void entries_text(char *text, size_t size, const struct model_queue *queue)
{
	char entry[COMPARE_TEXT];
	text[0] = '\0';
	for (uint32_t i = 0; queue && i < queue->count; i++) {
		compare_entry_text(entry, queue->entries[i]);
		strncat(strncat(text, i > 0 ? ", " : "", size - strlen(text) - 1), entry, size - strlen(text) - 3);
	}
}

bool compare_queue(struct compare_sequence *sequence, unsigned key, uint64_t was_ms, bool may_be_new,
		   const redisReply *entries, const redisReply *expiry, struct compare_span span)
{
	struct model_queue *queue = &sequence->master.queues[key];
	const uint64_t *end = model_waiting(&sequence->master, key) ? &queue->expires_ms : NULL;
	char text[40 * MODEL_ENTRIES];
	if (!compare_entries_are_alike(sequence, key, entries, span)) {
		entries_text(text, sizeof text, end ? queue : NULL);
		return compare_tell_state(sequence, "the queue", text, entries);
	}
	if (!compare_ends(sequence, end, was_ms, may_be_new, expiry->integer, span)) {
		snprintf(text, sizeof text, "%u entries, expires at %llu", queue->count,
			 (unsigned long long)queue->expires_ms);
		return compare_tell_state(sequence, "PEXPIRETIME of the queue", text, expiry);
	}
	if (expiry->integer == -2)
		memset(queue, 0, sizeof *queue);
	else
		queue->expires_ms = (uint64_t)expiry->integer;
	return true;
}

/* ---- alive keys ---- */

void compare_append_alive(struct compare_server *server, const struct compare_sequence *sequence,
			  const struct compare_step *step)
{
	unsigned long long replica = step->command.entry.replica, ttl_ms = step->command.ttl_ms;
	const char *format = "SET " COMPARE_ALIVE_NAME " %s PX %llu";
	if (step->kind == COMPARE_DROP_ALIVE)
		format = "DEL " COMPARE_ALIVE_NAME;
	else if (step->kind == COMPARE_ALIVE_AGAIN)
		format = "SET " COMPARE_ALIVE_NAME " %s PX %llu XX";
	compare_send(server, format, sequence->number, replica, "", ttl_ms);
}

static struct model_alive *find_alive(struct model_master *master, uint64_t replica)
{
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (master->alive[i].replica == replica)
			return &master->alive[i];
	return NULL;
}

bool compare_alive(struct compare_sequence *sequence, uint64_t replica, bool may_be_new, const redisReply *expiry,
		   struct compare_span span)
{
	struct model_alive *alive = find_alive(&sequence->master, replica);
	bool lives = model_is_alive(&sequence->master, replica);
	uint64_t was_ms = alive ? alive->expires_ms : 0;
	char text[COMPARE_TEXT];
	if (!compare_ends(sequence, lives ? &alive->expires_ms : NULL, was_ms, may_be_new, expiry->integer, span)) {
		snprintf(text, sizeof text, "replica %llu %s, until %llu", (unsigned long long)replica,
			 lives ? "alive" : "dead", (unsigned long long)(alive ? alive->expires_ms : 0));
		return compare_tell_state(sequence, "PEXPIRETIME of an alive key", text, expiry);
	}
	if (alive && expiry->integer == -2)
		memset(alive, 0, sizeof *alive);
	else if (alive)
		alive->expires_ms = (uint64_t)expiry->integer;
	return true;
}

/* In the model; `seen`: what the server says of whether it was there. */
static bool carry_out(struct model_master *master, const struct model_command *command, bool again, bool seen)
{
	struct model_master before = *master;
	if (model_alive_set(master, command->entry.replica, command->ttl_ms, again) == seen || !again)
		return true;
	*master = before;
	return false;
}

bool compare_alive_step(struct compare_sequence *sequence, const redisReply *reply, const redisReply *expiry,
			struct compare_span span)
{
	const struct compare_step *step = &sequence->steps[sequence->step_count - 1];
	struct model_master *master = &sequence->master;
	uint64_t replica = step->command.entry.replica;
	struct model_alive *alive = find_alive(master, replica);
	bool again = step->kind == COMPARE_ALIVE_AGAIN, seen = reply->type == REDIS_REPLY_STATUS;
	master->now_us = span.lo_us;
	if (step->kind == COMPARE_DROP_ALIVE) {
		model_evict_alive(master, replica);
		return compare_alive(sequence, replica, false, expiry, span);
	}
	if (carry_out(master, &step->command, again, seen))
		return compare_alive(sequence, replica, true, expiry, span);
	if (!alive || !compare_runs_out(alive->expires_ms, span))
		return compare_tell_state(sequence, "the answer to SET XX", seen ? "nothing" : "it", reply);
	memset(alive, 0, sizeof *alive); /* it was there at the beginning of the span */
	return compare_alive(sequence, replica, true, expiry, span);
}
