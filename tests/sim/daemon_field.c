/* SPDX-License-Identifier: MIT */
/* The fields of a command that the daemon sends, and of a notification: what the checks have to know of them. */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "daemon_world.h"

uint64_t field_decimal(const struct transport_word *word)
{
	uint64_t number = 0;
	bool good = true;
	for (size_t i = 0; i < word->len; i++) {
		good &= word->bytes[i] >= '0' && word->bytes[i] <= '9';
		number = number * 10 + (uint64_t)(word->bytes[i] - '0');
	}
	assert(good);
	return number;
}

/* Eight digits at a time, a byte each: the values, then those of two, of four and of all beside each other. */
static uint64_t hex_half(const char digits[8])
{
	uint64_t number;
	memcpy(&number, digits, sizeof number);
	number = be64toh(number);
	number = (number & 0x0f0f0f0f0f0f0f0f) + 9 * (number >> 6 & 0x0101010101010101);
	number = (number | number >> 4) & 0x00ff00ff00ff00ff;
	number = (number | number >> 8) & 0x0000ffff0000ffff;
	return (uint32_t)(number | number >> 16);
}

uint64_t hex_number(const char digits[16])
{
	return hex_half(digits) << 32 | hex_half(digits + 8);
}

/* 40 digits, of which the last 16 count. */
uint64_t field_token(const struct transport_word *word)
{
	assert(word->len == 0 || word->len == LEASE_TOKEN_LEN);
	return word->len > 0 ? token_read(&world_of_all, word->bytes) : 0;
}

/* "replica:arrival…" */
struct entry field_entry(const char *bytes)
{
	struct transport_word arrival = {bytes + 17, 16};
	return (struct entry){.arrival = field_decimal(&arrival), .replica = hex_number(bytes)};
}

/* "entry wait_ms", or "!hold_ms buckets" of a repair */
void field_wait(const struct transport_word *word, struct script_request *request)
{
	if (word->len == 0)
		return;
	request->is_repair = word->bytes[0] == '!';
	if (request->is_repair)
		return;
	const char *blank = memchr(word->bytes, ' ', word->len);
	assert(blank && blank >= word->bytes + 33);
	size_t len = word->len - (size_t)(blank + 1 - word->bytes);
	const char *place = memchr(blank + 1, ' ', len);
	struct transport_word wait_ms = {blank + 1, place ? (size_t)(place - blank - 1) : len};
	request->entry = field_entry(word->bytes);
	request->wait_ms = field_decimal(&wait_ms);
}

/* "fence:key" */
void field_note(const struct transport_word *word, struct script_request *request)
{
	if (word->len == 0)
		return;
	struct transport_word fence = {word->bytes, word->len - 17};
	request->fence = field_decimal(&fence);
}

/* "entry key", "entry@slot key" or "entry>arrival key" */
void field_notification(const struct world *world, const struct store_text *text, struct notification *notification)
{
	const char *blank = strrchr(text->bytes, ' '), *last = strchr(text->bytes, '>');
	bool has_entry = strncmp(text->bytes, "wanted ", 7) != 0 && strncmp(text->bytes, "confirmed:", 10) != 0;
	assert(blank && (!has_entry || text->len > 33));
	notification->entry = has_entry ? field_entry(text->bytes) : (struct entry){0};
	notification->key = (uint8_t)key_find(world, blank + 1, text->len - (size_t)(blank + 1 - text->bytes));
	notification->last = last ? field_decimal(&(struct transport_word){last + 1, 16}) : 0;
	assert(notification->key < KEYS);
}
