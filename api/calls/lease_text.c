/* SPDX-License-Identifier: MIT */
/* struct lease_answer -> the JSON of a lease, or of a refusal. See calls_internal.h.
 *
 *   {"resource":"orders/42","token":"…","fence":1795215206922001,"owner":"worker-7","ttl_ms":30000,
 *    "validity_ms":29690,"drift_ms":302}
 *
 * The same bytes that jansson would make (tests/unit/test_lease_text.c compares them). Pure; any thread. */
#include <assert.h>
#include <string.h>

#include "calls_internal.h"

/* Escapes a text, which must be valid UTF-8. */
static char *put_escaped(char *at, const char *bytes, size_t len)
{
	*at++ = '"';
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];
		/* nearly all bytes need no escape, so they cost no call */
		size_t escaped = c >= ' ' && c != '"' && c != '\\' ? 0 : text_escape(c, at);
		at += escaped;
		if (escaped == 0)
			*at++ = bytes[i];
	}
	*at++ = '"';
	return at;
}

/* `name` with its quotes, its colon, and the comma before it. */
static char *put_number_member(char *at, const char *name, uint64_t number)
{
	at = stpcpy(at, name);
	return at + text_decimal(number, at);
}

/* Writes null for a text of another program that is not UTF-8. */
static char *put_owner_member(char *at, const char *owner, size_t len)
{
	assert(len <= LEASE_OWNER_MAX);
	if (len == 0 || !utf8_is_valid(owner, len))
		return at;
	return put_escaped(stpcpy(at, ",\"owner\":"), owner, len);
}

/* Writes the end of the name of the member, too. Several are in the order in which they were given: see body.c. */
static char *put_names(char *at, const struct lease_request *lease)
{
	const char *names = lease->resource + lease->resource_len + 1, *end = names + lease->resource_len, *name;
	size_t len;
	if (lease->set_count == 0)
		return put_escaped(stpcpy(at, "\":"), lease->resource, lease->resource_len);
	at = stpcpy(at, "s\":");
	for (char before = '['; text_line(&names, end, &name, &len); before = ',') {
		*at++ = before;
		at = put_escaped(at, name, len);
	}
	*at++ = ']';
	return at;
}

size_t lease_text_write(const struct lease_request *lease, const struct lease_answer *answer, char *ret_text)
{
	bool acquired = lease->operation == LEASE_ACQUIRE;
	char *at = ret_text;
	assert(acquired || (lease->operation == LEASE_EXTEND && !lease->hold));
	at = stpcpy(at, lease->hold ? "{\"event\":\"acquired\",\"resource" : "{\"resource");
	at = put_names(at, lease);
	at = stpcpy(at, ",\"token\":\"");
	at = mempcpy(at, answer->token, LEASE_TOKEN_LEN);
	at = put_number_member(at, "\",\"fence\":", answer->fence);
	at = acquired && !answer->again ? put_owner_member(at, lease->owner, lease->owner_len)
					: put_owner_member(at, answer->holder.owner, answer->holder.owner_len);
	if (answer->mode == LEASE_SHARED)
		at = stpcpy(at, ",\"mode\":\"shared\"");
	else if (answer->mode == LEASE_SLOT)
		at = put_number_member(at, ",\"slot\":", answer->slot);
	at = put_number_member(at, ",\"ttl_ms\":", answer->ttl_ms);
	at = put_number_member(at, ",\"validity_ms\":", answer->validity_ms);
	at = put_number_member(at, ",\"drift_ms\":", answer->drift_ms);
	if (acquired && lease->wait_ms > 0) /* so that the caller can separate the wait from the network's delay */
		at = put_number_member(at, ",\"waited_ms\":", answer->waited_ms);
	if (!acquired)
		at = put_number_member(at, ",\"waiters\":", answer->waiters);
	*at++ = '}';
	assert(at <= ret_text + lease_text_max(lease));
	return (size_t)(at - ret_text);
}

size_t lease_released_write(const struct lease_request *lease, char *ret_text)
{
	char *at = stpcpy(ret_text, "{\"status\":204,\"resource");
	assert(lease->operation == LEASE_RELEASE);
	at = put_names(at, lease);
	*at++ = '}';
	return (size_t)(at - ret_text);
}

char *lease_votes_write(char *at, const struct redlock_votes *votes)
{
	assert(votes->needed <= votes->masters);
	at = put_number_member(at, ",\"votes\":{\"needed\":", votes->needed);
	at = put_number_member(at, ",\"granted\":", votes->granted);
	at = put_number_member(at, ",\"refused\":", votes->refused);
	at = put_number_member(at, ",\"failed\":", votes->failed);
	at = put_number_member(at, ",\"quarantined\":", votes->quarantined);
	at = put_number_member(at, ",\"masters\":", votes->masters);
	*at++ = '}';
	return at;
}

static char *put_holder(char *at, const struct lease_holder *holder, const char *metadata, size_t metadata_len)
{
	char *first = stpcpy(at, ",\"holder\":");
	at = put_owner_member(first, holder->owner, holder->owner_len);
	if (holder->fence > 0)
		at = put_number_member(at, ",\"fence\":", holder->fence);
	if (holder->mode == LEASE_SHARED)
		at = stpcpy(at, ",\"mode\":\"shared\"");
	else if (holder->mode == LEASE_SLOT)
		at = put_number_member(at, ",\"slot\":", holder->slot);
	if (metadata)
		at = mempcpy(stpcpy(at, ",\"metadata\":"), metadata, metadata_len);
	at += at == first; /* no member was written */
	*first = '{';      /* in the place of a comma */
	*at++ = '}';
	return at;
}

size_t lease_refusal_write(const struct lease_answer *answer, const char *name, size_t name_len, const char *metadata,
			   size_t metadata_len, char *ret_text)
{
	char *at = put_number_member(ret_text, ",\"retry_after_ms\":", answer->retry_after_ms);
	assert(answer->status == LEASE_LOCKED && name_len <= LEASE_RESOURCE_MAX);
	at = put_number_member(at, ",\"waited_ms\":", answer->waited_ms);
	at = lease_votes_write(at, &answer->votes);
	if (answer->place_kept_ms > 0)
		at = put_number_member(at, ",\"place_kept_ms\":", answer->place_kept_ms);
	if (name)
		at = put_escaped(stpcpy(at, ",\"resource\":"), name, name_len);
	if (answer->holder.known)
		at = put_holder(at, &answer->holder, metadata, metadata_len);
	*at++ = '}';
	return (size_t)(at - ret_text);
}
