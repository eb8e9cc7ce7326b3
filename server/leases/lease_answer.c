/* The answer to an operation from the core's result: µs become ms, holders become owners. Pure.
 *
 * The values in Redis are those of server/scripts/acquire.lua. Two masters name the same holder if the token is the
 * same: hold_until_ms is in each master's own time. Another library's value is its own identity. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

static_assert(128 + (int)LEASE_OWNER_MAX + (int)LEASE_CALLER_MAX + (int)LEASE_METADATA_MAX + (int)LEASE_NAMES_MAX <=
		      8192,
	      "value_read.lua reads all of a value");

enum { OTHER_TYPE_ID = 1 }; /* a key that is not a string: all such keys of one name count as one holder */

static uint64_t token_id(const char token[LEASE_TOKEN_LEN])
{
	return hash_fnv1a(token, LEASE_TOKEN_LEN);
}

/* Parses digits up to a colon. Returns the position behind it, NULL if there is no such number. */
static const char *parse_number(const char *at, const char *end, uint64_t *ret_number)
{
	uint64_t number = 0;
	const char *start = at;
	for (; at < end && *at >= '0' && *at <= '9' && number < REDLOCK_FENCE_LIMIT; at++)
		number = number * 10 + (uint64_t)(*at - '0');
	*ret_number = number;
	return at > start && at < end && *at == ':' && number < REDLOCK_FENCE_LIMIT ? at + 1 : NULL;
}

/* Parses a key, up to a colon: empty, or 16 hex digits, which a question mark may precede. Returns the position behind
 * it, or NULL. */
static const char *parse_key(const char *at, const char *end, struct lease_holder *ret_holder)
{
	unsigned char bytes[8];
	if (at < end && *at == ':')
		return at + 1;
	ret_holder->noted = at < end && *at != '?' && ret_holder->fence > 0;
	at += at < end && *at == '?';
	if ((size_t)(end - at) <= 2 * sizeof bytes || at[2 * sizeof bytes] != ':' || !hex_read(at, sizeof bytes, bytes))
		return NULL;
	for (size_t i = 0; i < sizeof bytes; i++)
		ret_holder->key = ret_holder->key << 8 | bytes[i];
	return at + 2 * sizeof bytes + 1;
}

/* A value of redlockd's: 40 hex digits, a colon, digits, a colon, digits, a colon, a key, a colon, the label. Returns
 * the label, or NULL for another program's value. */
static const char *value_parse(const char *value, size_t len, uint64_t *ret_hold_until_ms,
			       struct lease_holder *ret_holder)
{
	if (len < LEASE_TOKEN_LEN + 1 || (value[LEASE_TOKEN_LEN] != ':' && value[LEASE_TOKEN_LEN] != ';') ||
	    !hex_is_lower(value, LEASE_TOKEN_LEN))
		return NULL;
	const char *at = parse_number(value + LEASE_TOKEN_LEN + 1, value + len, ret_hold_until_ms);
	at = at ? parse_number(at, value + len, &ret_holder->fence) : NULL;
	return at ? parse_key(at, value + len, ret_holder) : NULL;
}

uint64_t lease_answer_hold_until_ms(const char *value, size_t len)
{
	uint64_t hold_until_ms = 0;
	struct lease_holder holder = {.known = false};
	return value && value_parse(value, len, &hold_until_ms, &holder) ? hold_until_ms : 0;
}

/* 0: they are not those of a set. */
static uint8_t count_names(const char *at, const char *end)
{
	const char *name;
	size_t len;
	uint8_t count = 0;
	while (count <= LEASE_SET_MAX && text_line(&at, end, &name, &len)) {
		if (len == 0 || len > LEASE_RESOURCE_MAX)
			return 0;
		count++;
	}
	return count >= 2 && count <= LEASE_SET_MAX ? count : 0;
}

void lease_answer_write_label(struct lease_op *op)
{
	struct lease_request *request = &op->request;
	struct text *label = &op->label;
	assert(request->caller_len <= LEASE_CALLER_MAX && request->metadata_len <= LEASE_METADATA_MAX);
	label->len = 0;
	if (request->key != 0)
		text_printf(label, "?%016" PRIx64, request->key);
	text_append(label, ":", 1);
	text_append(label, request->owner, request->owner_len);
	if (request->caller_len + request->metadata_len == 0)
		return;
	text_append(label, "\n", 1);
	text_append(label, request->caller, request->caller_len);
	if (request->metadata_len > 0) {
		text_append(label, "\n", 1);
		text_append(label, request->metadata, request->metadata_len);
	}
	request->metadata = label->bytes + label->len - request->metadata_len;
	request->caller = request->metadata - (request->metadata_len > 0) - request->caller_len;
}

/* "owner\ncaller\nmetadata", without what is empty at the end; of a set all three, and each name after a line feed.
 * False: not redlockd's, since it is too long. */
static bool read_label(const char *label, size_t len, bool is_set, struct lease_holder *ret_holder)
{
	const char *parts[3] = {label, label, label}, *at = label, *end = label + len;
	size_t lens[3] = {0};
	for (unsigned i = 0; i < 3 && text_line(&at, end, &parts[i], &lens[i]); i++)
		;
	size_t names_len = at < end ? (size_t)(end - at) : 0, more_len = lens[1] + lens[2] + names_len;
	uint8_t set_count = count_names(at, end);
	if (lens[0] > LEASE_OWNER_MAX || lens[1] > LEASE_CALLER_MAX || lens[2] > LEASE_METADATA_MAX ||
	    is_set != (set_count > 0) || is_set != (names_len > 0))
		return false;
	memcpy(ret_holder->owner, label, lens[0]);
	ret_holder->owner_len = (uint16_t)lens[0];
	ret_holder->caller_len = (uint16_t)lens[1];
	ret_holder->metadata_len = (uint16_t)lens[2];
	ret_holder->names_len = (uint16_t)names_len;
	ret_holder->set_count = set_count;
	if (more_len == 0)
		return true;
	char *more = ret_holder->more = memory_alloc(more_len);
	more = mempcpy(more, parts[1], lens[1]);
	more = mempcpy(more, parts[2], lens[2]);
	memcpy(more, at, names_len);
	return true;
}

uint64_t lease_answer_read_holder(const char *value, size_t len, struct lease_holder *ret_holder)
{
	uint64_t hold_until_ms;
	struct lease_holder holder = {.known = true};
	memset(ret_holder, 0, sizeof *ret_holder);
	if (!value)
		return OTHER_TYPE_ID;
	const char *label = value_parse(value, len, &hold_until_ms, &holder);
	if (!label)
		return hash_fnv1a(value, len);
	if (read_label(label, (size_t)(value + len - label), value[LEASE_TOKEN_LEN] == ';', &holder))
		*ret_holder = holder;
	return token_id(value);
}

void lease_holder_fini(struct lease_holder *holder)
{
	free(holder->more);
	holder->more = NULL;
	holder->caller_len = holder->metadata_len = holder->names_len = 0;
}

void lease_answer_set(struct lease_answer *answer, const struct lease_answer *from)
{
	size_t len = (size_t)from->holder.caller_len + from->holder.metadata_len + from->holder.names_len;
	char *more = len > 0 ? memcpy(memory_alloc(len), from->holder.more, len) : NULL;
	lease_holder_fini(&answer->holder);
	*answer = *from;
	answer->holder.more = more;
}

static uint32_t ms_up(uint64_t us)
{
	uint64_t ms = us / 1000 + (us % 1000 != 0);
	return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

/* The holder that the core chose, as one of the masters told it, whose memory it shares. */
static void find_holder(const struct lease_op *op, uint64_t id, struct lease_answer *answer)
{
	for (unsigned i = 0; i < op->core.params.masters; i++)
		if (op->seen[i].id == id) {
			answer->holder = op->seen[i].holder;
			answer->which = op->seen[i].which;
			return;
		}
}

static void fill_lease(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
		       struct lease_answer *answer)
{
	assert(result->validity_us > 0 && op->core.params.drift_us >= LEASE_ROUNDING_US);
	memcpy(answer->token, op->token, sizeof answer->token);
	answer->ttl_ms = (uint32_t)(result->ttl_us / 1000);
	answer->validity_ms = (uint32_t)((result->validity_us + LEASE_ROUNDING_US) / 1000);
	answer->until_us = now_us + answer->validity_ms * UINT64_C(1000);
	answer->drift_ms = ms_up(op->core.params.drift_us - LEASE_ROUNDING_US);
	answer->fence = result->fence;
	if (op->request.operation == LEASE_EXTEND)
		find_holder(op, token_id(op->token), answer);
}

void lease_answer_make(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
		       struct lease_answer *ret_answer)
{
	const struct redlock_votes *votes = &result->votes;
	assert(now_us >= op->began_us && votes->granted <= votes->masters);
	memset(ret_answer, 0, sizeof *ret_answer);
	ret_answer->status = (enum lease_status)result->outcome;
	ret_answer->votes = *votes;
	ret_answer->too_late = result->outcome == REDLOCK_NO_QUORUM && votes->granted >= votes->needed;
	ret_answer->waited_ms = (uint32_t)((now_us - op->began_us) / 1000);
	ret_answer->retry_after_ms = ms_up(result->retry_after_us);
	if (result->outcome == REDLOCK_OK &&
	    (op->request.operation == LEASE_ACQUIRE || op->request.operation == LEASE_EXTEND))
		fill_lease(op, result, now_us, ret_answer);
	ret_answer->which = op->which;
	if (result->has_holder) {
		find_holder(op, result->holder, ret_answer);
		ret_answer->holder_id = result->holder;
		ret_answer->holder.fence = result->holder_fence;
	}
	if (ret_answer->status == LEASE_LOCKED && op->request.wait_ms > 0 && op->core.params.wait_us == 0)
		ret_answer->status = LEASE_TOO_MANY; /* it would have waited, but too many do */
	ret_answer->waiters = result->waiters;
	ret_answer->held = result->held;
	ret_answer->expires = result->held && result->remaining_us != REDLOCK_NEVER;
	ret_answer->remaining_ms = ret_answer->expires ? result->remaining_us / 1000 : 0;
}

/* ---- tags ---- */

/* A holder that has no majority, and cannot have one with the masters that did not answer: no lease is valid, but the
 * resource cannot be acquired either. */
static bool is_split(const struct lease_answer *answer)
{
	const struct redlock_votes *votes = &answer->votes;
	return answer->held && votes->granted + votes->failed + votes->quarantined < votes->needed;
}

void lease_tag_write(const struct lease_answer *answer, char ret_tag[LEASE_TAG_MAX])
{
	assert(answer->status == LEASE_OK || answer->status == LEASE_NO_QUORUM);
	if (answer->status != LEASE_OK)
		strcpy(ret_tag, "unknown");
	else if (!answer->held)
		strcpy(ret_tag, "free");
	else if (is_split(answer))
		strcpy(ret_tag, "split");
	else if (answer->holder.known)
		snprintf(ret_tag, LEASE_TAG_MAX, "%" PRIu64, answer->holder.fence);
	else /* half of the hash: the value may be a secret of the other program's */
		snprintf(ret_tag, LEASE_TAG_MAX, "x%08" PRIx32,
			 (uint32_t)(answer->holder_id ^ answer->holder_id >> 32));
}
