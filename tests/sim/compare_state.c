/* Comparing what the server has with what the model has: see compare_sequence.h. */
#include <stdio.h>
#include <string.h>

#include "compare_sequence.h"

bool compare_ends(const struct compare_sequence *sequence, const uint64_t *models_ms, uint64_t was_ms, bool may_be_new,
		  long long its, struct compare_span span)
{
	uint64_t now_ms = compare_ms(sequence->master.now_us), below = now_ms - compare_ms(span.lo_us),
		 above = compare_ms(span.hi_us) - now_ms;
	if (!models_ms || *models_ms == 0)
		return its == (models_ms ? -1 : -2);
	if (its == -2)
		return *models_ms <= compare_ms(span.hi_us) + below;
	uint64_t its_ms = (uint64_t)its;
	bool same = its_ms == *models_ms && (its_ms == was_ms || may_be_new);
	return its >= 0 && its_ms >= compare_ms(span.lo_us) &&
	       (same || (may_be_new && its_ms + below >= *models_ms && its_ms <= *models_ms + above));
}

bool compare_expiry(struct compare_sequence *sequence, unsigned i, uint64_t was_ms, bool may_be_new,
		    const redisReply *reply, struct compare_span span)
{
	struct model_key *key = &sequence->master.keys[i];
	char text[COMPARE_TEXT];
	const uint64_t *end = key->type == MODEL_NONE ? NULL : &key->expires_ms;
	if (!compare_ends(sequence, end, was_ms, may_be_new, reply->integer, span)) {
		snprintf(text, sizeof text, "type %u, expires at %llu (between %llu and %llu)", key->type,
			 (unsigned long long)key->expires_ms, (unsigned long long)compare_ms(span.lo_us),
			 (unsigned long long)compare_ms(span.hi_us));
		return compare_tell_state(sequence, "PEXPIRETIME of the key", text, reply);
	}
	if (reply->integer == -2)
		model_drop(&sequence->master, i);
	else if (reply->integer >= 0)
		key->expires_ms = (uint64_t)reply->integer;
	return true;
}

/* ---- what the server has at the end ---- */

void compare_append_state(struct compare_server *server, const struct compare_sequence *sequence)
{
	char text[COMPARE_TEXT];
	for (unsigned i = 0; i < MODEL_KEYS; i++) {
		compare_key_name(text, sequence->number, i);
		compare_append_words(server, "GET", text, NULL, NULL, NULL);
		compare_append_words(server, "PEXPIRETIME", text, NULL, NULL, NULL);
		compare_append_queue(server, sequence, i);
	}
	for (unsigned i = 1; i <= MODEL_REPLICAS; i++) {
		compare_alive_name(text, sequence->number, i);
		compare_append_words(server, "PEXPIRETIME", text, NULL, NULL, NULL);
	}
	compare_hash_name(text, sequence->number);
	compare_append_words(server, "HGETALL", text, NULL, NULL, NULL);
}

static bool compare_value(const struct compare_sequence *sequence, unsigned i, const redisReply *reply,
			  struct compare_span span)
{
	const struct model_key *key = &sequence->master.keys[i];
	char text[COMPARE_TEXT], name[COMPARE_TEXT];
	bool gone = key->type == MODEL_NONE || (key->expires_ms != 0 && key->expires_ms < compare_ms(span.lo_us));
	bool alike;
	strcpy(text, gone ? "nothing" : "a key of another type");
	if (reply->type == REDIS_REPLY_NIL)
		alike = gone || compare_runs_out(key->expires_ms, span);
	else if (reply->type == REDIS_REPLY_ERROR)
		alike = !gone && key->type == MODEL_OTHER;
	else
		alike = !gone && key->type == MODEL_STRING;
	if (!gone && key->type == MODEL_STRING) {
		compare_value_text(text, &key->value);
		alike = alike && (reply->type == REDIS_REPLY_NIL || strcmp(text, reply->str) == 0);
	}
	snprintf(name, sizeof name, "the value of key%u", i);
	return alike || compare_tell_state(sequence, name, text, reply);
}

/* A field of the hash as the model has it; "" for none. */
static void field_text(const struct model_master *master, const char *name, char *text)
{
	const struct {
		const char *name;
		uint64_t number;
		bool decimal;
	} fields[] = {
		{"epoch", master->epoch, false},          {"run_id", master->run_id, false},
		{"cluster", master->cluster, false},      {"digest", master->digest, false},
		{"marker", master->marker, false},        {"marker_run_id", master->marker_run_id, false},
		{"clocked_us", master->clocked_us, true}, {"floor", master->floor, true},
		{"ttl_ms", master->ttl_ms, true},         {"beat", master->beat, true},
		{"waited", master->waited_us, true},
	};
	uint64_t number = 0;
	text[0] = '\0';
	for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
		if (strcmp(name, fields[i].name) == 0 && fields[i].decimal)
			number = fields[i].number;
		else if (strcmp(name, fields[i].name) == 0)
			compare_number_text(text, fields[i].number);
	for (unsigned i = 0; i < MODEL_BUCKETS; i++)
		if (strcmp(name, compare_bucket_name(i)) == 0)
			number = master->buckets[i];
	if (number != 0)
		snprintf(text, COMPARE_TEXT, "%llu", (unsigned long long)number);
	if (strcmp(name, "kept") == 0 && master->marker != 0)
		strcpy(text, master->kept ? "1" : "0");
	if (strcmp(name, "evicted") == 0 && master->evicted != 0)
		snprintf(text, COMPARE_TEXT, "%u", master->evicted - 1);
}

static unsigned count_fields(const struct model_master *master)
{
	const uint64_t numbers[] = {master->epoch,    master->run_id, master->cluster,       master->digest,
				    master->marker,   master->marker, master->marker_run_id, master->clocked_us,
				    master->floor,    master->ttl_ms, master->beat,          master->evicted,
				    master->waited_us};
	unsigned count = 0;
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) /* the marker twice: once for `kept` */
		count += numbers[i] != 0;
	for (unsigned i = 0; i < MODEL_BUCKETS; i++)
		count += master->buckets[i] != 0;
	return count;
}

static bool compare_hash(const struct compare_sequence *sequence, const redisReply *reply)
{
	char text[COMPARE_TEXT], name[COMPARE_TEXT + 32];
	size_t count = reply->elements / 2;
	for (size_t i = 0; i + 1 < reply->elements; i += 2) {
		const char *field = reply->element[i]->str, *value = reply->element[i + 1]->str;
		field_text(&sequence->master, field, text);
		/* as good as none */
		bool is_zero_floor = strcmp(field, "floor") == 0 && strcmp(value, "0") == 0 && text[0] == '\0';
		count -= is_zero_floor;
		snprintf(name, sizeof name, "the hash, field %s", field);
		if (strcmp(text, value) != 0 && !is_zero_floor)
			return compare_tell_state(sequence, name, text, reply->element[i + 1]);
	}
	snprintf(text, sizeof text, "%u fields", count_fields(&sequence->master));
	return count == count_fields(&sequence->master) || compare_tell_state(sequence, "the hash", text, reply);
}

bool compare_state(struct compare_sequence *sequence, struct compare_span span,
		   redisReply *replies[COMPARE_STATE_REPLIES])
{
	bool alike = true;
	sequence->master.now_us = span.lo_us;
	for (unsigned i = 0; i < MODEL_KEYS && alike; i++) {
		redisReply **its = &replies[4 * i];
		uint64_t was_ms = sequence->master.keys[i].expires_ms,
			 queue_was_ms = sequence->master.queues[i].expires_ms;
		alike = compare_value(sequence, i, its[0], span) &&
			compare_expiry(sequence, i, was_ms, false, its[1], span) &&
			compare_queue(sequence, i, queue_was_ms, false, its[2], its[3], span);
	}
	for (unsigned i = 1; i <= MODEL_REPLICAS && alike; i++)
		alike = compare_alive(sequence, i, false, replies[4 * MODEL_KEYS + i - 1], span);
	return alike && compare_hash(sequence, replies[COMPARE_STATE_REPLIES - 1]);
}
