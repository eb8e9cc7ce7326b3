/* SPDX-License-Identifier: MIT */
/* The values of keys in Redis, which server/scripts/acquire.lua writes: made from a request, read as a holder.
 * Pure.
 *
 * Two masters name the same holder if the token is the same: hold_until_ms is in each master's own time. Another
 * library's value is its own identity. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

static_assert(128 + (int)LEASE_OWNER_MAX + (int)LEASE_CALLER_MAX + (int)LEASE_METADATA_MAX + (int)LEASE_NAMES_MAX <=
		      8192,
	      "value_read() reads all of a value");

enum { OTHER_TYPE_ID = 1 }; /* a key that is not a string: all such keys of one name count as one holder */

uint64_t lease_value_token_id(const char token[LEASE_TOKEN_LEN])
{
	return hash_fnv1a(token, LEASE_TOKEN_LEN);
}

/* Parses digits up to a colon. Returns the position after it, NULL if there is no such number. */
static const char *parse_number(const char *at, const char *end, uint64_t *ret_number)
{
	uint64_t number = 0;
	const char *start = at;
	for (; at < end && *at >= '0' && *at <= '9' && number < REDLOCK_FENCE_LIMIT; at++)
		number = number * 10 + (uint64_t)(*at - '0');
	*ret_number = number;
	return at > start && at < end && *at == ':' && number < REDLOCK_FENCE_LIMIT ? at + 1 : NULL;
}

/* Parses a key, up to a colon: empty, or 16 hex digits, which a question mark may precede. Returns the position after
 * it, or NULL. */
static const char *parse_idempotency_key(const char *at, const char *end, struct lease_holder *ret_holder)
{
	unsigned char bytes[8];
	if (at < end && *at == ':')
		return at + 1;
	ret_holder->confirmed = at < end && *at != '?' && ret_holder->fence > 0;
	at += at < end && *at == '?';
	if ((size_t)(end - at) <= 2 * sizeof bytes || at[2 * sizeof bytes] != ':' || !hex_read(at, sizeof bytes, bytes))
		return NULL;
	for (size_t i = 0; i < sizeof bytes; i++)
		ret_holder->key = ret_holder->key << 8 | bytes[i];
	return at + 2 * sizeof bytes + 1;
}

/* Parses the mode, up to the colon, or the semicolon of a set: nothing, "+" of a shared lease, or "#" and the slot of
 * one on a slot; then "=" if it is kept. Returns the position of that sign, or NULL. */
static const char *parse_mode(const char *at, const char *end, struct lease_holder *ret_holder)
{
	if (at < end && *at == '+') {
		ret_holder->mode = LEASE_SHARED;
		at++;
	} else if (at < end && *at == '#') {
		unsigned slot = 0;
		for (at++; at < end && *at >= '0' && *at <= '9' && slot < LEASE_SLOTS_MAX; at++)
			slot = slot * 10 + (unsigned)(*at - '0');
		if (slot >= LEASE_SLOTS_MAX)
			return NULL;
		ret_holder->mode = LEASE_SLOT;
		ret_holder->slot = (uint16_t)slot;
	}
	ret_holder->kept = at < end && *at == '=';
	at += ret_holder->kept;
	return at < end && (*at == ':' || *at == ';') ? at : NULL;
}

/* A value of redlockd's: 40 hex digits, the mode, a colon, digits, a colon, digits, a colon, a key, a colon, the label.
 * Returns the label, or NULL for another program's value. */
static const char *value_parse(const char *value, size_t len, uint64_t *ret_hold_until_ms, bool *ret_is_set,
			       struct lease_holder *ret_holder)
{
	if (len < LEASE_TOKEN_LEN + 1 || !hex_is_lower(value, LEASE_TOKEN_LEN))
		return NULL;
	const char *at = parse_mode(value + LEASE_TOKEN_LEN, value + len, ret_holder);
	*ret_is_set = at && *at == ';';
	at = at ? parse_number(at + 1, value + len, ret_hold_until_ms) : NULL;
	at = at ? parse_number(at, value + len, &ret_holder->fence) : NULL;
	return at ? parse_idempotency_key(at, value + len, ret_holder) : NULL;
}

uint64_t lease_value_hold_until_ms(const char *value, size_t len)
{
	uint64_t hold_until_ms = 0;
	struct lease_holder holder = {.known = false};
	bool is_set;
	return value && value_parse(value, len, &hold_until_ms, &is_set, &holder) ? hold_until_ms : 0;
}

/* 0: they are not the names of a set. */
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

/* Appends "owner\ncaller\nmetadata", without empty parts at the end. */
static void write_parts(struct text *label, const struct lease_request *request)
{
	text_append(label, request->owner, request->owner_len);
	if (request->caller_len + request->metadata_len > 0)
		text_append(label, "\n", 1);
	text_append(label, request->caller, request->caller_len);
	if (request->metadata_len > 0)
		text_append(label, "\n", 1);
	text_append(label, request->metadata, request->metadata_len);
}

void lease_value_write_label_again(const struct lease_holder *holder, struct text *label)
{
	const struct lease_request parts = {.owner = holder->owner,
					    .owner_len = holder->owner_len,
					    .caller = holder->owner + holder->owner_len,
					    .caller_len = holder->caller_len,
					    .metadata = holder->owner + holder->owner_len + holder->caller_len,
					    .metadata_len = holder->metadata_len};
	label->len = 0;
	if (holder->key != 0)
		text_printf(label, "%s%016" PRIx64, holder->confirmed ? "" : "?", holder->key);
	text_append(label, ":", 1);
	write_parts(label, &parts);
}

void lease_value_write_label(struct lease_op *op)
{
	struct lease_request *request = &op->request;
	struct text *label = &op->label;
	assert(request->caller_len <= LEASE_CALLER_MAX && request->metadata_len <= LEASE_METADATA_MAX);
	label->len = 0;
	if (request->key != 0)
		text_printf(label, "?%016" PRIx64, request->key);
	text_append(label, ":", 1);
	size_t owner_at = label->len;
	write_parts(label, request);
	request->owner = label->bytes + owner_at;
	request->metadata = label->bytes + label->len - request->metadata_len;
	request->caller = request->metadata - (request->metadata_len > 0) - request->caller_len;
}

/* Reads "owner\ncaller\nmetadata", without empty parts at the end; of a set all three, and each name after a line feed.
 * False: too long to be redlockd's. */
static bool read_label(const char *label, size_t len, bool is_set, struct lease_holder *ret_holder)
{
	const char *parts[3] = {label, label, label}, *at = label, *end = label + len;
	size_t lens[3] = {0};
	for (unsigned i = 0; i < 3 && text_line(&at, end, &parts[i], &lens[i]); i++)
		;
	size_t names_len = at < end ? (size_t)(end - at) : 0, text_len = lens[0] + lens[1] + lens[2] + names_len;
	uint8_t set_count = count_names(at, end);
	if (lens[0] > LEASE_OWNER_MAX || lens[1] > LEASE_CALLER_MAX || lens[2] > LEASE_METADATA_MAX ||
	    is_set != (set_count > 0) || is_set != (names_len > 0))
		return false;
	ret_holder->owner_len = (uint16_t)lens[0];
	ret_holder->caller_len = (uint16_t)lens[1];
	ret_holder->metadata_len = (uint16_t)lens[2];
	ret_holder->names_len = (uint16_t)names_len;
	ret_holder->set_count = set_count;
	if (text_len == 0)
		return true;
	char *text = memory_alloc(text_len);
	ret_holder->owner = text;
	for (unsigned i = 0; i < 3; i++)
		text = mempcpy(text, parts[i], lens[i]);
	memcpy(text, at, names_len);
	return true;
}

uint64_t lease_value_read_holder(const char *value, size_t len, struct lease_holder *ret_holder)
{
	struct lease_holder holder = {.known = true};
	memset(ret_holder, 0, sizeof *ret_holder);
	if (!value)
		return OTHER_TYPE_ID;
	bool is_set;
	const char *label = value_parse(value, len, &holder.hold_until_ms, &is_set, &holder);
	if (!label)
		return hash_fnv1a(value, len);
	if (read_label(label, (size_t)(value + len - label), is_set, &holder))
		*ret_holder = holder;
	return lease_value_token_id(value);
}

void lease_holder_own(struct lease_holder *holder)
{
	size_t len = (size_t)holder->owner_len + holder->caller_len + holder->metadata_len + holder->names_len;
	holder->owner = len > 0 ? memcpy(memory_alloc(len), holder->owner, len) : NULL;
}

void lease_holder_fini(struct lease_holder *holder)
{
	free((char *)holder->owner);
	holder->owner = NULL;
	holder->owner_len = holder->caller_len = holder->metadata_len = holder->names_len = 0;
}
