/* struct lease_answer -> the JSON of a lease. See calls_internal.h.
 *
 *   {"resource":"orders/42","token":"…","fence":1795215206922001,"owner":"worker-7","ttl_ms":30000,
 *    "validity_ms":29690,"drift_ms":302}
 *
 * The same bytes that jansson would make (tests/unit/test_lease_text.c compares them). Pure; any thread. */
#include <assert.h>
#include <string.h>

#include "calls_internal.h"
#include "server/base/base.h"

static char *put(char *at, const char *bytes, size_t len)
{
	memcpy(at, bytes, len);
	return at + len;
}

static char *put_control(char *at, unsigned char c)
{
	static const char letters[] = "btnvfr"; /* 8 … 13; JSON has no \\v */

	assert(c < ' ');
	*at++ = '\\';
	if (c >= 8 && c <= 13 && c != 11) {
		*at++ = letters[c - 8];
		return at;
	}
	at = put(at, "u00", 3);
	*at++ = (char)('0' + c / 16);
	*at++ = "0123456789ABCDEF"[c % 16];
	return at;
}

/* Of valid UTF-8. */
static char *put_string(char *at, const char *bytes, size_t len)
{
	*at++ = '"';
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)bytes[i] < ' ') {
			at = put_control(at, (unsigned char)bytes[i]);
			continue;
		}
		if (bytes[i] == '"' || bytes[i] == '\\')
			*at++ = '\\';
		*at++ = bytes[i];
	}
	*at++ = '"';
	return at;
}

/* `name` with its quotes, its colon, and the comma before it. */
static char *put_name(char *at, const char *name)
{
	return put(at, name, strlen(name));
}

static char *put_number(char *at, const char *name, uint64_t number)
{
	at = put_name(at, name);
	return at + text_decimal(number, at);
}

static char *put_owner(char *at, const char *owner, size_t len)
{
	assert(len <= LEASE_OWNER_MAX);
	if (len == 0)
		return at;
	at = put_name(at, ",\"owner\":");
	return utf8_is_valid(owner, len) ? put_string(at, owner, len) : put(at, "null", 4);
}

size_t lease_text_write(const struct lease_request *lease, const struct lease_answer *answer, const char *event,
			char ret_text[LEASE_TEXT_MAX])
{
	bool acquired = lease->operation == LEASE_ACQUIRE;
	char *at = ret_text;

	assert(acquired || lease->operation == LEASE_EXTEND);
	assert(!event || strlen(event) < 32);
	*at++ = '{';
	if (event) {
		at = put_name(at, "\"event\":");
		at = put_string(at, event, strlen(event));
		*at++ = ',';
	}
	at = put_name(at, "\"resource\":");
	at = put_string(at, lease->resource, lease->resource_len);
	at = put_name(at, ",\"token\":");
	at = put_string(at, answer->token, LEASE_TOKEN_LEN);
	at = put_number(at, ",\"fence\":", answer->fence);
	at = acquired ? put_owner(at, lease->owner, lease->owner_len)
		      : put_owner(at, answer->holder.owner, answer->holder.owner_len);
	at = put_number(at, ",\"ttl_ms\":", answer->ttl_ms);
	at = put_number(at, ",\"validity_ms\":", answer->validity_ms);
	at = put_number(at, ",\"drift_ms\":", answer->drift_ms);
	if (acquired && lease->wait_ms > 0) /* so that the caller can tell the wait from the way of the answer */
		at = put_number(at, ",\"waited_ms\":", answer->waited_ms);
	*at++ = '}';
	assert(at <= ret_text + LEASE_TEXT_MAX);
	return (size_t)(at - ret_text);
}
