/* SPDX-License-Identifier: MIT */
/* The state of a lock as JSON text, without a tree of values in between: up to 100 holders are written in one round of
 * the loop. See calls_internal.h.
 *
 * Another program may have written a text in Redis. An owner or a caller that is not UTF-8, and metadata that is not a
 * JSON object, are left out. Pure; any thread. */
#include <assert.h>
#include <string.h>

#include "calls_internal.h"

static void put_literal(struct text *text, const char *bytes)
{
	text_append(text, bytes, strlen(bytes));
}

static void put_decimal(struct text *text, const char *before, uint64_t number)
{
	char digits[TEXT_DECIMAL_MAX];
	put_literal(text, before);
	text_append(text, digits, text_decimal(number, digits));
}

static void put_text(struct text *text, const char *before, const char *bytes, size_t len)
{
	char escaped[TEXT_ESCAPE_MAX];
	size_t from = 0;
	put_literal(text, before);
	if (!utf8_is_valid(bytes, len)) {
		put_literal(text, "null");
		return;
	}
	put_literal(text, "\"");
	for (size_t i = 0; i < len; i++) {
		size_t escape_len = text_escape((unsigned char)bytes[i], escaped);
		if (escape_len == 0)
			continue;
		text_append(text, bytes + from, i - from);
		text_append(text, escaped, escape_len);
		from = i + 1;
	}
	text_append(text, bytes + from, len - from);
	put_literal(text, "\"");
}

static void put_holder_resources(struct text *text, const struct lease_holder *holder)
{
	const char *at = holder->owner + holder->owner_len + holder->caller_len + holder->metadata_len;
	const char *end = at + holder->names_len, *name, *before = ",\"resources\":[";
	size_t len;
	for (; holder->names_len > 0 && text_line(&at, end, &name, &len); before = ",")
		put_text(text, before, name, len);
	if (holder->names_len > 0)
		put_literal(text, "]");
}

const char *state_metadata(const struct lease_holder *holder, size_t *ret_len)
{
	const char *bytes = holder->owner + holder->owner_len + holder->caller_len;
	size_t len = holder->metadata_len;
	bool is_line = len > 0;
	for (size_t i = 0; i < len; i++) /* it may become a line of an event stream */
		is_line = is_line && (unsigned char)bytes[i] >= ' ';
	json_t *json = is_line ? json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
	bool good = json_is_object(json);
	json_decref(json);
	*ret_len = good ? len : 0;
	return good ? bytes : NULL;
}

static void put_holder_owner(struct text *text, const struct lease_holder *holder)
{
	if (holder->owner_len > 0 && utf8_is_valid(holder->owner, holder->owner_len))
		put_text(text, ",\"owner\":", holder->owner, holder->owner_len);
	if (holder->fence > 0)
		put_decimal(text, ",\"fence\":", holder->fence);
}

/* A fence is the time of the grant by the clock of the redlockd that granted it, unless that clock was set back or the
 * fence is from RAISE (server/leases/lease_fence.c). */
bool state_held_ms(uint64_t fence, uint64_t *ret_ms)
{
	uint64_t now_us = clock_wall_us();
	assert(now_us > 0);
	*ret_ms = fence <= now_us ? (now_us - fence) / 1000 : 0;
	return fence > 0 && fence <= now_us;
}

static void put_held_ms(struct text *text, const struct lease_holder *holder)
{
	uint64_t held_ms;
	if (state_held_ms(holder->fence, &held_ms))
		put_decimal(text, ",\"held_ms\":", held_ms);
}

static void put_caller(struct text *text, const struct lease_holder *holder)
{
	size_t metadata_len;
	const char *caller = holder->owner + holder->owner_len, *metadata = state_metadata(holder, &metadata_len);
	if (holder->caller_len > 0 && utf8_is_valid(caller, holder->caller_len))
		put_text(text, ",\"caller\":", caller, holder->caller_len);
	if (!metadata)
		return;
	put_literal(text, ",\"metadata\":");
	text_append(text, metadata, metadata_len);
}

/* Writes one of several holders of a lock, as reported `ago_ms` ago. */
static void put_held(struct text *text, const struct lease_held *held, uint64_t ago_ms)
{
	const struct lease_holder *holder = &held->holder;
	size_t begin = text->len;
	put_holder_resources(text, holder);
	put_holder_owner(text, holder);
	if (holder->mode == LEASE_SLOT)
		put_decimal(text, ",\"slot\":", holder->slot);
	put_decimal(text, ",\"remaining_ms\":", held->remaining_ms > ago_ms ? held->remaining_ms - ago_ms : 0);
	put_held_ms(text, holder);
	put_literal(text, holder->kept ? ",\"kept\":true" : "");
	put_caller(text, holder);
	text->bytes[begin] = '{'; /* in place of the comma */
	put_literal(text, "}");
}

static void put_several(struct text *text, const struct lease_answer *answer)
{
	const struct lease_holders *several = answer->several;
	/* The holder of the answer may be that of a master which is behind the others. */
	const struct lease_holder *holder = several->listed > 0 ? &several->list[0].holder : &answer->holder;
	bool is_slots = holder->mode == LEASE_SLOT;
	put_literal(text, is_slots ? ",\"held\":true,\"mode\":\"exclusive\",\"holders\":["
				   : ",\"held\":true,\"mode\":\"shared\",\"holders\":[");
	for (uint32_t i = 0; i < several->listed; i++) {
		put_literal(text, i > 0 ? "," : "");
		put_held(text, &several->list[i], answer->ago_ms);
	}
	put_decimal(text, "],\"holder_count\":", several->count);
	if (answer->expires)
		put_decimal(text, ",\"remaining_ms\":", answer->remaining_ms);
}

static void put_single(struct text *text, const struct lease_answer *answer)
{
	const struct lease_holder *holder = &answer->holder;
	bool held = answer->held, ours = held && holder->known;
	if (ours)
		put_holder_resources(text, holder);
	put_literal(text, held ? ",\"held\":true" : ",\"held\":false");
	if (ours)
		put_holder_owner(text, holder);
	if (held && answer->expires)
		put_decimal(text, ",\"remaining_ms\":", answer->remaining_ms);
	if (held)
		put_held_ms(text, holder);
	if (!ours)
		return;
	put_literal(text, holder->kept ? ",\"kept\":true" : "");
	put_caller(text, holder);
	put_literal(text, ",\"mode\":\"exclusive\"");
}

void state_text_write(struct text *text, const char *resource, size_t len, const struct lease_answer *answer)
{
	char votes[LEASE_VOTES_MAX];
	assert(len >= 1 && len <= LEASE_RESOURCE_MAX);
	put_text(text, "{\"resource\":", resource, len);
	if (answer->status != LEASE_OK)
		put_literal(text, ",\"held\":null");
	else if (answer->several)
		put_several(text, answer);
	else
		put_single(text, answer);
	if (answer->status == LEASE_OK)
		put_decimal(text, ",\"waiters\":", answer->waiters);
	text_append(text, votes, (size_t)(lease_votes_write(votes, &answer->votes) - votes));
	put_literal(text, "}");
}
