/* Comparing those who wait: lines, alive keys. See compare_sequence.h. */
#include <stdio.h>
#include <string.h>

#include "compare_sequence.h"

/* ---- lines ---- */

void compare_append_queue(struct compare_server *server, const struct compare_sequence *sequence, unsigned key)
{
	char name[COMPARE_TEXT];
	compare_queue_name(name, sequence->number, key);
	compare_append_words(server, "ZRANGE", name, "0", "-1", NULL);
	compare_append_words(server, "PEXPIRETIME", name, NULL, NULL, NULL);
}

bool compare_entries_are_alike(const struct compare_sequence *sequence, unsigned key, const redisReply *places,
			       struct compare_span span)
{
	const struct model_queue *line = model_waiting(&sequence->master, key);
	bool alike = places->type == REDIS_REPLY_ARRAY;
	char text[COMPARE_TEXT];
	if (!line || (alike && places->elements == 0))
		return alike && places->elements == 0 &&
		       (!line || (line->expires_ms != 0 && line->expires_ms <= compare_ms(span.hi_us)));
	alike = alike && places->elements == line->count;
	for (uint32_t i = 0; alike && i < line->count; i++) {
		compare_entry_text(text, line->places[i]);
		alike = strcmp(text, places->element[i]->str) == 0;
	}
	return alike;
}

static void entries_text(char *text, size_t size, const struct model_queue *line)
{
	char place[COMPARE_TEXT];
	text[0] = '\0';
	for (uint32_t i = 0; line && i < line->count; i++) {
		compare_entry_text(place, line->places[i]);
		strncat(strncat(text, i > 0 ? ", " : "", size - strlen(text) - 1), place, size - strlen(text) - 3);
	}
}

bool compare_queue(struct compare_sequence *sequence, unsigned key, uint64_t was_ms, bool may_be_new,
		   const redisReply *places, const redisReply *expiry, struct compare_span span)
{
	struct model_queue *line = &sequence->master.lines[key];
	const uint64_t *end = model_waiting(&sequence->master, key) ? &line->expires_ms : NULL;
	char text[40 * MODEL_ENTRIES];
	if (!compare_entries_are_alike(sequence, key, places, span)) {
		entries_text(text, sizeof text, end ? line : NULL);
		return compare_tell_state(sequence, "the line", text, places);
	}
	if (!compare_ends(sequence, end, was_ms, may_be_new, expiry->integer, span)) {
		snprintf(text, sizeof text, "%u places, expires at %llu", line->count,
			 (unsigned long long)line->expires_ms);
		return compare_tell_state(sequence, "PEXPIRETIME of the line", text, expiry);
	}
	if (expiry->integer == -2)
		memset(line, 0, sizeof *line);
	else
		line->expires_ms = (uint64_t)expiry->integer;
	return true;
}

/* ---- alive keys ---- */

void compare_append_alive(struct compare_server *server, const struct compare_sequence *sequence,
			  const struct compare_step *step)
{
	char name[COMPARE_TEXT], ttl[COMPARE_TEXT];
	compare_alive_name(name, sequence->number, step->command.place.replica);
	snprintf(ttl, sizeof ttl, "%llu", (unsigned long long)step->command.ttl_ms);
	const char *set[] = {"SET", name, "", "PX", ttl, "XX"}, *drop[] = {"DEL", name};
	if (step->kind == COMPARE_DROP_ALIVE)
		compare_append(server, 2, drop);
	else
		compare_append(server, step->kind == COMPARE_ALIVE_AGAIN ? 6 : 5, set);
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
	if (model_alive_set(master, command->place.replica, command->ttl_ms, again) == seen || !again)
		return true;
	*master = before;
	return false;
}

bool compare_alive_step(struct compare_sequence *sequence, const redisReply *reply, const redisReply *expiry,
			struct compare_span span)
{
	const struct compare_step *step = &sequence->steps[sequence->step_count - 1];
	struct model_master *master = &sequence->master;
	uint64_t replica = step->command.place.replica;
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

/* ---- what may be seen in two ways ---- */

unsigned compare_doubts(struct model_master *master, unsigned key, struct compare_span span,
			uint64_t *ret_ends[COMPARE_DOUBTS])
{
	unsigned count = 0;
	if (master->keys[key].type != MODEL_NONE && compare_runs_out(master->keys[key].expires_ms, span))
		ret_ends[count++] = &master->keys[key].expires_ms;
	if (master->lines[key].count > 0 && compare_runs_out(master->lines[key].expires_ms, span))
		ret_ends[count++] = &master->lines[key].expires_ms;
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (master->alive[i].replica != 0 && compare_runs_out(master->alive[i].expires_ms, span))
			ret_ends[count++] = &master->alive[i].expires_ms;
	return count;
}
