/* Comparing what the server has with what the model has: see compare_sequence.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compare_sequence.h"
#include "server/leases/lease_internal.h"

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

void compare_append_key(struct compare_server *server, const struct compare_sequence *sequence, unsigned key)
{
	unsigned number = sequence->number;
	compare_send(server, "PEXPIRETIME " COMPARE_KEY_NAME, number, key);
	compare_send(server, "ZRANGE " COMPARE_QUEUE_NAME " 0 -1", number, number, key);
	compare_send(server, "PEXPIRETIME " COMPARE_QUEUE_NAME, number, number, key);
	compare_send(server, "PEXPIRETIME " COMPARE_WATCH_NAME, number, number, key);
}

struct compare_key_ends compare_key_ends(const struct compare_sequence *sequence, unsigned key)
{
	const struct model_master *master = &sequence->master;
	return (struct compare_key_ends){master->keys[key].expires_ms, master->queues[key].expires_ms,
					 master->watched_ms[key]};
}

static bool compare_watch(struct compare_sequence *sequence, unsigned key, uint64_t was_ms, bool may_be_new,
			  const redisReply *expiry, struct compare_span span)
{
	uint64_t *end_ms = &sequence->master.watched_ms[key];
	char text[COMPARE_TEXT];
	if (!compare_ends(sequence, model_is_watched(&sequence->master, key) ? end_ms : NULL, was_ms, may_be_new,
			  expiry->integer, span)) {
		snprintf(text, sizeof text, "ends at %llu", (unsigned long long)*end_ms);
		return compare_tell_state(sequence, "PEXPIRETIME of the watch", text, expiry);
	}
	*end_ms = expiry->integer >= 0 ? (uint64_t)expiry->integer : 0;
	return true;
}

bool compare_key(struct compare_sequence *sequence, unsigned key, const struct compare_key_ends *was, bool may_be_new,
		 bool is_new, const struct compare_key_answers *its, struct compare_span span)
{
	return compare_expiry(sequence, key, was->key_ms, may_be_new, its->expiry, span) &&
	       compare_queue(sequence, key, was->queue_ms, is_new, its->entries, its->queue_expiry, span) &&
	       compare_watch(sequence, key, was->watch_ms, is_new, its->watch_expiry, span);
}

/* ---- what the server has at the end ---- */

void compare_append_state(struct compare_server *server, const struct compare_sequence *sequence)
{
	for (unsigned i = 0; i < MODEL_KEYS; i++) {
		compare_send(server, "GET " COMPARE_KEY_NAME, sequence->number, i);
		compare_append_key(server, sequence, i);
		compare_send(server, "ZRANGE " COMPARE_KEY_NAME " 0 -1 WITHSCORES", sequence->number, i);
		compare_send(server, "HGETALL " COMPARE_HOLDERS_NAME, sequence->number, sequence->number, i);
	}
	for (unsigned long long i = 1; i <= MODEL_REPLICAS; i++)
		compare_send(server, "PEXPIRETIME " COMPARE_ALIVE_NAME, sequence->number, i);
	compare_send(server, "HGETALL " COMPARE_HASH_NAME, sequence->number);
}

/* The daemon reads the parts of a value that the scripts put together. */
static bool is_read(const redisReply *value, bool is_ours)
{
	struct lease_holder holder;
	char text[COMPARE_TEXT];
	lease_value_read_holder(value->str, value->len, &holder);
	bool is_set = holder.set_count > 0;
	const char *owner = holder.owner ? holder.owner : "", *caller = owner + holder.owner_len,
		   *metadata = caller + holder.caller_len, *names = metadata + holder.metadata_len;
	int lines = is_set || holder.metadata_len > 0 ? 2 : holder.caller_len > 0;
	snprintf(text, sizeof text, "%.*s%c%" PRIu64 ":%" PRIu64 ":%s%.*" PRIx64 ":%.*s%.*s%.*s%.*s%.*s%s%.*s",
		 LEASE_TOKEN_LEN, value->str, is_set ? ';' : ':', lease_value_hold_until_ms(value->str, value->len),
		 holder.fence, holder.key != 0 && !holder.confirmed ? "?" : "", holder.key != 0 ? 16 : 0, holder.key,
		 holder.owner_len, owner, lines > 0, "\n", holder.caller_len, caller, lines > 1, "\n",
		 holder.metadata_len, metadata, is_set ? "\n" : "", holder.names_len, names);
	lease_holder_fini(&holder);
	return holder.known == is_ours && (!is_ours || strcmp(text, value->str) == 0);
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
		alike = !gone && (key->type == MODEL_OTHER || key->type == MODEL_SHARED);
	else
		alike = !gone && key->type == MODEL_STRING;
	if (!gone && key->type == MODEL_STRING) {
		compare_value_text(text, &key->value);
		alike = alike && (reply->type == REDIS_REPLY_NIL ||
				  (strcmp(text, reply->str) == 0 && is_read(reply, key->value.token != 0)));
	}
	snprintf(name, sizeof name, "the value of key%u", i);
	return alike || compare_tell_state(sequence, name, text, reply);
}

/* The text behind that name in a list of names and texts; NULL: it is not there. */
static const char *text_of(const redisReply *list, const char *name)
{
	for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i + 1 < list->elements; i += 2)
		if (strcmp(list->element[i]->str, name) == 0)
			return list->element[i + 1]->str;
	return NULL;
}

/* The shared leases of key i: `ends` has their tokens, `values` the rest. */
static bool compare_holders(const struct compare_sequence *sequence, unsigned i, const redisReply *ends,
			    const redisReply *values, struct compare_span span)
{
	const struct model_key *key = &sequence->master.keys[i];
	char token[COMPARE_TEXT], end[COMPARE_TEXT], value[COMPARE_TEXT];
	if (key->type != MODEL_SHARED || key->expires_ms <= compare_ms(span.hi_us))
		return true; /* nobody looks at what is left of others */
	size_t fields = 1;   /* the digest */
	bool alike = ends->elements == 2 * key->holder_count;
	uint64_t digest = 0;
	char slots[] = "000000000";
	for (const struct model_holder *one = key->holders; one < key->holders + key->holder_count && alike; one++) {
		snprintf(token, sizeof token, "%040" PRIx64, one->value.token);
		snprintf(end, sizeof end, "%" PRIu64, one->ends_ms);
		compare_value_text(value, &one->value);
		const char *its_end = text_of(ends, token), *its_value = text_of(values, token);
		alike = its_end && its_value && strcmp(its_end, end) == 0 && strcmp(its_value, value) == 0;
		fields += 1;
		digest += one->value.token & 0xfffffffff;
		if (one->value.kind == MODEL_SLOT) { /* #N, and the key: each has the token */
			snprintf(value, sizeof value, "#%u", one->value.slot);
			its_value = text_of(values, value);
			alike = alike && its_value && strcmp(its_value, token) == 0;
			fields++;
			slots[one->value.slot] = '1';
		}
		if (one->value.key != 0) {
			compare_number_text(value, one->value.key);
			its_value = text_of(values, value);
			alike = alike && its_value && strcmp(its_value, token) == 0;
			fields++;
		}
	}
	snprintf(value, sizeof value, "%" PRIu64, digest);
	alike = alike && text_of(values, "digest") && strcmp(text_of(values, "digest"), value) == 0;
	if (key->value.kind == MODEL_SLOT) {
		const char *its_slots = text_of(values, "slots");
		size_t len = its_slots ? strlen(its_slots) : 0;
		alike = alike && len > 0 && len < sizeof slots && memcmp(its_slots, slots, len) == 0 &&
			strspn(slots + len, "0") == sizeof slots - 1 - len;
		fields++;
	}
	alike = alike && values->elements == 2 * fields;
	return alike || compare_tell_state(sequence, "the holders (values)", "others", values) ||
	       compare_tell_state(sequence, "the holders (ends)", "others", ends);
}

enum { FIELDS = 15 + MODEL_BUCKETS };

struct field {
	const char *name;
	char text[COMPARE_TEXT]; /* "": the hash does not have it */
};

/* The hash as the model has it. */
static void list_fields(const struct model_master *master, struct field fields[FIELDS])
{
	const struct {
		const char *name;
		uint64_t number;
	} hex[] = {{"epoch", master->epoch},   {"run_id", master->run_id}, {"cluster", master->cluster},
		   {"digest", master->digest}, {"marker", master->marker}, {"marker_run_id", master->marker_run_id}},
	  decimal[] = {{"clocked_us", master->clocked_us}, {"floor", master->floor},   {"ttl_ms", master->ttl_ms},
		       {"timeout_ms", master->timeout_ms}, {"leases", master->leases}, {"beat", master->beat},
		       {"waited", master->waited_us}};
	struct field *at = fields;
	for (unsigned i = 0; i < sizeof hex / sizeof *hex; i++, at++) {
		at->name = hex[i].name;
		compare_number_text(at->text, hex[i].number);
	}
	for (unsigned i = 0; i < sizeof decimal / sizeof *decimal; i++, at++) {
		at->name = decimal[i].name;
		compare_decimal_text(at->text, decimal[i].number);
	}
	for (unsigned i = 0; i < MODEL_BUCKETS; i++, at++) {
		at->name = compare_bucket_name(i);
		compare_decimal_text(at->text, master->buckets[i]);
	}
	compare_evicted_text(at->text, master->evicted);
	at++->name = "evicted";
	strcpy(at->text, master->marker == 0 ? "" : master->kept ? "1" : "0");
	at++->name = "kept";
	assert(at == fields + FIELDS);
}

static bool compare_hash(const struct compare_sequence *sequence, const redisReply *reply)
{
	struct field fields[FIELDS];
	char where[COMPARE_TEXT];
	size_t found = 0;
	list_fields(&sequence->master, fields);
	for (unsigned f = 0; f < FIELDS; f++) {
		const redisReply *its = NULL;
		for (size_t i = 0; i + 1 < reply->elements; i += 2)
			if (strcmp(reply->element[i]->str, fields[f].name) == 0)
				its = reply->element[i + 1];
		found += its != NULL;
		/* a floor of 0 is as good as none */
		bool is_zero_floor = its && strcmp(fields[f].name, "floor") == 0 && strcmp(its->str, "0") == 0;
		snprintf(where, sizeof where, "the hash, field %s", fields[f].name);
		if (strcmp(fields[f].text, its && !is_zero_floor ? its->str : "") != 0)
			return compare_tell_state(sequence, where, fields[f].text, reply);
	}
	return 2 * found == reply->elements || compare_tell_state(sequence, "the hash", "no other fields", reply);
}

bool compare_state(struct compare_sequence *sequence, struct compare_span span,
		   redisReply *replies[COMPARE_STATE_REPLIES])
{
	bool alike = true;
	sequence->master.now_us = span.lo_us;
	for (unsigned i = 0; i < MODEL_KEYS && alike; i++) {
		redisReply **at = &replies[7 * i];
		struct compare_key_answers its = {at[1], at[2], at[3], at[4]};
		struct compare_key_ends was = compare_key_ends(sequence, i);
		alike = compare_value(sequence, i, at[0], span) &&
			compare_key(sequence, i, &was, false, false, &its, span) &&
			compare_holders(sequence, i, at[5], at[6], span);
	}
	for (unsigned i = 1; i <= MODEL_REPLICAS && alike; i++)
		alike = compare_alive(sequence, i, false, replies[7 * MODEL_KEYS + i - 1], span);
	return alike && compare_hash(sequence, replies[COMPARE_STATE_REPLIES - 1]);
}
