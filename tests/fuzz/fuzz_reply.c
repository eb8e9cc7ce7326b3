/* SPDX-License-Identifier: MIT */
/* Fuzz target: the answers of a master, from the bytes on the wire to votes, the guard's events and notifications.
 *
 * Input: one byte, which says where the bytes are cut in two pieces as a network may do it, and how large a reply may
 * be; and the bytes. Every answer that hiredis makes of them is tried as the answer to each script of the core, to
 * those of the guard, to INFO and to SCAN, and as a message on the channel of notifications. */
#include "fuzz_reply.h"

#include "fuzz.h"
#include "server/leases/lease_internal.h"
#include "server/masters/master_internal.h"
#include "server/transport/transport_internal.h"

#ifdef FUZZ_MUTATED
/* One byte too many of a value without an owner. */
static void master_reply_map_mutated(enum redlock_script script, const redisReply *raw, struct master_reply *ret_reply)
{
	master_reply_map(script, raw, ret_reply);
	if (ret_reply->value != NULL && ret_reply->value_len > 0 && ret_reply->value[ret_reply->value_len - 1] == ':')
		ret_reply->value_len++;
}
#define master_reply_map master_reply_map_mutated
#endif

/* ---- votes ---- */

static bool is_legal(enum redlock_script script, enum redlock_vote vote)
{
	switch (vote) {
	case REDLOCK_VOTE_GRANTED: return script != REDLOCK_SCRIPT_INSPECT;
	case REDLOCK_VOTE_GONE: return script != REDLOCK_SCRIPT_ACQUIRE;
	case REDLOCK_VOTE_STALE: return script == REDLOCK_SCRIPT_RAISE;
	case REDLOCK_VOTE_QUEUED: return script == REDLOCK_SCRIPT_ACQUIRE;
	case REDLOCK_VOTE_HELD:
	case REDLOCK_VOTE_FAILED:
	case REDLOCK_VOTE_QUARANTINED: return true;
	case REDLOCK_VOTE_UNSENT: break; /* never an answer */
	}
	return false;
}

/* The value is the answer or one of its elements, all of it. */
static bool is_within(const redisReply *raw, const struct master_reply *reply)
{
	if (reply->value == NULL)
		return reply->value_len == 0;
	if (raw->type == REDIS_REPLY_STRING)
		return raw->str == reply->value && raw->len == reply->value_len;
	for (size_t i = 0; i < raw->elements; i++)
		if (raw->element[i]->type == REDIS_REPLY_STRING && raw->element[i]->str == reply->value)
			return (size_t)raw->element[i]->len == reply->value_len;
	return false;
}

static void check_value(const char *value, size_t len)
{
	struct lease_holder holder, other;
	char *copy = value != NULL ? fuzz_copy(value, len) : NULL;
	uint64_t id = lease_value_read_holder(copy, len, &holder), hold_until_ms = lease_value_hold_until_ms(copy, len);
	MUST(holder.owner_len <= LEASE_OWNER_MAX && (holder.known || (holder.owner_len == 0 && holder.fence == 0)),
	     "an owner of %u bytes", holder.owner_len);
	MUST(holder.owner_len == 0 || memmem(value, len, holder.owner, holder.owner_len), "not the owner");
	MUST(holder.caller_len == 0 || memmem(value, len, holder.owner + holder.owner_len, holder.caller_len),
	     "not the caller");
	MUST(holder.fence < REDLOCK_FENCE_LIMIT, "fence %llu", (unsigned long long)holder.fence);
	MUST(hold_until_ms < REDLOCK_FENCE_LIMIT, "hold until %llu", (unsigned long long)hold_until_ms);
	if (holder.known) {
		copy[0] = (char)(copy[0] == '0' ? '1' : '0');
		MUST(lease_value_read_holder(copy, len, &other) != id, "another token, the same holder");
		lease_holder_fini(&other);
	}
	lease_holder_fini(&holder);
	free(copy);
}

/* The members that go with the vote, and no others. */
static void check_vote(enum redlock_script script, const struct master_reply *reply)
{
	bool failed = reply->vote == REDLOCK_VOTE_FAILED,
	     held = reply->vote == REDLOCK_VOTE_HELD || reply->vote == REDLOCK_VOTE_QUEUED;
	MUST(is_legal(script, reply->vote), "vote %d to script %d", (int)reply->vote, (int)script);
	MUST((unsigned)reply->error < MASTER_ERROR_COUNT, "error %d", (int)reply->error);
	MUST(failed || (!reply->lost && !reply->no_script && reply->time_us > 0 && reply->time_us <= INT64_MAX),
	     "a vote that came from nowhere");
	MUST(reply->fence < REDLOCK_FENCE_LIMIT, "fence %llu", (unsigned long long)reply->fence);
	MUST(reply->remaining_us == REDLOCK_NEVER || reply->remaining_us <= INT64_MAX, "remaining %llu",
	     (unsigned long long)reply->remaining_us);
	MUST(held || reply->remaining_us == 0, "time left of nothing");
	MUST(reply->ttl_us <= INT64_MAX && (reply->ttl_us == 0 || script == REDLOCK_SCRIPT_EXTEND), "ttl %llu",
	     (unsigned long long)reply->ttl_us);
	bool counts = script == REDLOCK_SCRIPT_INSPECT ||
		      (script == REDLOCK_SCRIPT_EXTEND && reply->vote == REDLOCK_VOTE_GRANTED);
	MUST(reply->waiters == 0 || counts, "%u waiters", reply->waiters);
	MUST(held || reply->vote == REDLOCK_VOTE_GRANTED || reply->value == NULL, "a value with vote %d",
	     (int)reply->vote);
}

/* Of an inspection: the leases that hold it together. */
static void check_several(const struct master_reply *reply)
{
	struct lease_holders *several = lease_several_read(reply);
	MUST((several != NULL) == (reply->holders != NULL), "several leases of none");
	for (size_t i = 0; several && i < several->listed; i++) {
		const struct lease_held *held = &several->list[i];
		MUST(hex_is_lower(held->token, LEASE_TOKEN_LEN), "lease %zu is not ours", i);
		MUST(held->reports == held->holder.known, "lease %zu is told by %u", i, held->reports);
		MUST(held->holder.fence < REDLOCK_FENCE_LIMIT, "fence of lease %zu", i);
	}
	MUST(!several || several->listed <= reply->listed, "%u of %zu leases", several->listed, reply->listed);
	lease_several_free(several);
}

static void check_script(enum redlock_script script, const redisReply *raw)
{
	struct master_reply reply;
	memset(&reply, 0xa5, sizeof reply);
	master_reply_map(script, raw, &reply);
	check_vote(script, &reply);
	MUST(is_within(raw, &reply), "a value of %zu bytes that is not in the answer", reply.value_len);
	MUST(reply.taken_len == 0 || (script == REDLOCK_SCRIPT_ACQUIRE && reply.vote == REDLOCK_VOTE_HELD),
	     "slots taken");
	check_value(reply.value, reply.value_len);
	if (script == REDLOCK_SCRIPT_INSPECT)
		check_several(&reply);
}

/* As the answer to as many commands of a batch as it may be for, and one more. */
static void check_parts(enum redlock_script script, const redisReply *raw)
{
	size_t most = raw->elements > 2 ? raw->elements : 3;
	for (size_t count = most - 1; count <= most; count++) {
		for (size_t i = 0; i < count; i++) {
			const redisReply *part = raw->type == REDIS_REPLY_ARRAY && i + 1 < raw->elements
							 ? raw->element[i + 1]
							 : raw;
			struct master_reply reply;
			memset(&reply, 0xa5, sizeof reply);
			master_reply_map_part(script, raw, i, count, &reply);
			check_vote(script, &reply);
			MUST(reply.vote == REDLOCK_VOTE_FAILED || raw->elements == count + 1 ||
				     (reply.vote == REDLOCK_VOTE_QUARANTINED && raw->elements == 2),
			     "a vote of %zu elements for %zu", raw->elements, count);
			MUST(is_within(part, &reply), "a value of %zu bytes that is not in its part", reply.value_len);
			check_value(reply.value, reply.value_len);
		}
	}
}

/* ---- INFO ---- */

static void check_field(const char *text, size_t len, const char *name, const char *value, size_t size)
{
	char line[128];
	MUST(strnlen(value, size) < size && strchr(value, '\n') == NULL, "%s of %zu bytes", name, strnlen(value, size));
	int line_len = snprintf(line, sizeof line, "%s:%s", name, value);
	MUST(strlen(value) == 0 || memmem(text, len, line, (size_t)line_len) != NULL, "%s is not there", line);
}

static void check_info(const char *text, size_t len)
{
	struct master_info info;
	char *copy = fuzz_copy(text, len);
	memset(&info, 0xa5, sizeof info);
	char *plain = fuzz_copy(text, len); /* as it is shown */
	for (size_t i = 0; i < len; i++)
		plain[i] = plain[i] != '\n' && (plain[i] < ' ' || plain[i] > '~') ? '?' : plain[i];
	text = plain;
	if (master_info_parse(copy, len, &info)) {
		MUST(info.run_id[0] != '\0', "no run_id");
		check_field(text, len, "run_id", info.run_id, sizeof info.run_id);
		check_field(text, len, "redis_version", info.version, sizeof info.version);
		check_field(text, len, "role", info.role, sizeof info.role);
		check_field(text, len, "maxmemory_policy", info.policy, sizeof info.policy);
	}
	free(plain);
	free(copy);
}

/* ---- SCAN ---- */

static void hear_scan(void *arg, const struct master_scan *scan)
{
	const redisReply *raw = arg;
	if (scan == NULL)
		return;
	MUST(raw->type == REDIS_REPLY_ARRAY && raw->elements == 2, "a scan of %zu elements", raw->elements);
	MUST(scan->key_count == raw->element[1]->elements, "%zu keys", scan->key_count);
	for (size_t i = 0; i < scan->key_count; i++) {
		const redisReply *element = raw->element[1]->element[i];
		size_t len = 0;
		const char *key = master_scan_key(scan, i, &len);
		MUST((key != NULL) == (element->type == REDIS_REPLY_STRING), "key %zu of type %d", i, element->type);
		MUST(key == NULL || (key == element->str && len == (size_t)element->len), "key %zu", i);
	}
}

static void hear_read(void *arg, const struct master_scan *scan)
{
	const redisReply *raw = arg;
	MUST((scan != NULL) == (raw->type == REDIS_REPLY_ARRAY), "a read of type %d", raw->type);
	for (size_t i = 0; scan && i < scan->key_count; i++) {
		size_t len = 0;
		const char *key = master_scan_key(scan, i, &len);
		MUST((key != NULL) == (raw->element[i]->type == REDIS_REPLY_STRING), "element %zu", i);
	}
}

/* ---- bounds ---- */

enum { FEW_BYTES = 64 };

static size_t count_elements(const redisReply *raw, unsigned depth)
{
	size_t count = raw->elements;
	MUST(depth <= TRANSPORT_DEPTH_MAX || raw->type != REDIS_REPLY_ARRAY, "%u lists in one another", depth);
	for (size_t i = 0; i < raw->elements; i++)
		count += count_elements(raw->element[i], depth + 1);
	return count;
}

static void check_bounds(const struct transport_reader *reader)
{
	MUST(reader->bytes <= reader->reply_max, "%zu bytes of a reply", reader->bytes);
	MUST(reader->hiredis->len - reader->hiredis->pos <= reader->bytes, "bytes that are not counted");
	MUST(reader->elements <= TRANSPORT_ELEMENTS_MAX, "%zu elements", reader->elements);
}

/* ---- all of it ---- */

static void check_answer(const redisReply *raw)
{
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++) {
		check_script(script, raw);
		check_parts(script, raw);
	}
	master_reply_map_scan(raw, hear_scan, (void *)(uintptr_t)raw);
	master_reply_map_read(raw, hear_read, (void *)(uintptr_t)raw);
	fuzz_check_guard_answer(raw);
	fuzz_check_message(raw, "");
	fuzz_check_message(raw, "prefix:");
	if (raw->type == REDIS_REPLY_STRING) {
		check_info(raw->str, (size_t)raw->len);
		check_value(raw->str, (size_t)raw->len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	size_t cut = size - 1 > 0 ? data[0] % size : 0;
	const char *bytes = (const char *)data + 1;
	struct transport_reader reader;
	transport_reader_init(&reader);
	if (data[0] % 8 == 7)
		reader.reply_max = FEW_BYTES;
	for (int piece = 0; piece < 2 && !reader.error[0]; piece++) {
		redisReply *raw;
		transport_reader_feed(&reader, piece == 0 ? bytes : bytes + cut, piece == 0 ? cut : size - 1 - cut);
		while ((raw = transport_reader_next(&reader))) {
			MUST(count_elements(raw, 1) <= TRANSPORT_ELEMENTS_MAX, "too many elements");
			check_answer(raw);
			freeReplyObject(raw);
		}
		if (!reader.error[0])
			check_bounds(&reader);
	}
	transport_reader_fini(&reader);
	return 0;
}
