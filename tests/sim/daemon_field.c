/* The fields of a command that the daemon sends: a word, or a part of it, becomes a number or what the model has of
 * it. */
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

/* Of a longer one the first 16 digits. */
uint64_t field_hex(const struct transport_word *word)
{
	assert(word->len >= 16);
	return hex_number(word->bytes);
}

/* None, where redlockd knows of none yet, is another one than any that a master has. */
uint64_t field_epoch(const struct transport_word *word)
{
	uint64_t number = word->bytes[0] == '-' ? MODEL_ANY_EPOCH : field_hex(word);
	return number != 0 ? number : MODEL_ANY_EPOCH - 1;
}

/* 40 digits, of which the last 16 count. */
uint64_t field_token(const struct transport_word *word)
{
	assert(word->len == 0 || word->len == LEASE_TOKEN_LEN);
	return word->len > 0 ? hex_number(word->bytes + LEASE_TOKEN_LEN - 16) : 0;
}

/* "!hold_ms buckets" */
static void field_repair(const struct transport_word *word, struct model_command *command)
{
	const char *at = word->bytes + 1, *end = word->bytes + word->len;
	uint64_t *number = &command->max_hold_ms;
	unsigned key = 0;
	command->repair = true;
	*number = 0;
	for (; at < end; at++) {
		if (*at >= '0' && *at <= '9') {
			*number = *number * 10 + (uint64_t)(*at - '0');
			continue;
		}
		while (key < MODEL_KEYS && !(command->names != 0 ? command->names >> key & 1 : key == command->key))
			key++;
		assert(key < MODEL_KEYS && (*at == ' ' || *at == ','));
		number = &command->named[key++];
	}
}

/* "replica:arrival wait_ms", "replica+arrival:most wait_ms" (";most" of a set) or "replica#arrival:most wait_ms" */
void field_entry(const struct transport_word *word, struct model_command *command)
{
	if (word->len == 0)
		return;
	if (word->bytes[0] == '!') {
		field_repair(word, command);
		return;
	}
	const char *blank = memchr(word->bytes, ' ', word->len);
	assert(blank && blank >= word->bytes + 33);
	size_t len = word->len - (size_t)(blank + 1 - word->bytes);
	const char *place = memchr(blank + 1, ' ', len);
	struct transport_word arrival = {word->bytes + 17, 16},
			      wait_ms = {blank + 1, place ? (size_t)(place - blank - 1) : len};
	command->place = place ? hex_number(place + 1) : 0;
	command->entry = (struct model_entry){.arrival = field_decimal(&arrival), .replica = hex_number(word->bytes)};
	command->wait_ms = (uint32_t)field_decimal(&wait_ms);
	command->entry.kind = word->bytes[16] == '+' ? MODEL_PLUS : word->bytes[16] == '#' ? MODEL_SLOT : 0;
	if (command->entry.kind == MODEL_EXCLUSIVE)
		return;
	command->entry.of_set = word->bytes[33] == ';';
	struct transport_word most = {word->bytes + 34, (size_t)(blank - word->bytes - 34)};
	command->entry.most = (uint32_t)field_decimal(&most);
}

void field_label(struct model_command *request, const struct transport_word *label)
{
	const char *colon = memchr(label->bytes, ':', label->len);
	struct transport_word owner = {colon + 1, label->len - (size_t)(colon + 1 - label->bytes)};
	request->is_noted = colon > label->bytes && label->bytes[0] != '?';
	request->noted = colon > label->bytes ? hex_number(label->bytes + !request->is_noted) : 0;
	request->owner = owner.len > 0 ? field_decimal(&owner) : 0;
}

/* "count kind most": the last two, if they are there. */
void field_mode(struct model_command *request, const struct transport_word *word)
{
	const char *end = word->bytes + word->len, *at = word->bytes;
	while (at < end && *at != '+' && *at != '#')
		at++;
	if (at == end)
		return;
	const char *blank = memchr(at, ' ', (size_t)(end - at));
	assert(blank);
	struct transport_word slot = {at + 1, (size_t)(blank - at - 1)}, most = {blank + 1, (size_t)(end - blank - 1)};
	request->kind = *at == '+' ? MODEL_PLUS : MODEL_SLOT;
	request->slot = request->kind == MODEL_SLOT ? (uint32_t)field_decimal(&slot) : 0;
	request->most = field_decimal(&most);
}

/* "fence:key" */
void field_note(const struct transport_word *word, struct model_command *request)
{
	if (word->len == 0)
		return;
	struct transport_word fence = {word->bytes, word->len - 17};
	request->fence = field_decimal(&fence);
	request->noted = hex_number(word->bytes + fence.len + 1);
}
