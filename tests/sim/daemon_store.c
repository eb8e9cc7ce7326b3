/* SPDX-License-Identifier: MIT */
/* What a master of the simulator has, for the checks: the keys of its store, read as server/scripts/ describes them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon_world.h"

enum { NAME_MAX_LEN = 64 };

/* ---- keys ---- */

/* The key of that name, with the name of the resource behind it. */
static const struct store_key *find(const struct node *node, const char *prefix, unsigned key)
{
	char name[NAME_MAX_LEN];
	const char *end = stpcpy(stpcpy(name, prefix), key_name(&world_of_all, key));
	return store_peek(node->server.store, name, (size_t)(end - name));
}

bool node_remove(struct node *node, const char *name)
{
	struct store_key *key = store_find(node->server.store, name, strlen(name));
	if (key)
		store_remove(node->server.store, key);
	return key != NULL;
}

void node_remove_lasting(struct node *node, const char *prefix, uint64_t after_ms)
{
	struct store *store = node->server.store;
	for (size_t i = 0; i < store->slot_count; i++)
		while (store->slots[i] && store->slots[i]->expires_ms > after_ms &&
		       strncmp(store->slots[i]->name->bytes, prefix, strlen(prefix)) == 0)
			store_remove(store, store->slots[i]);
}

/* ---- the hash ---- */

uint64_t server_number(const struct server *server, const char *field, int base)
{
	static const char hash[] = "redlockd:master";
	return store_number(store_peek(server->store, hash, sizeof hash - 1), field, base);
}

/* ---- leases ---- */

/* The value's, or that of a token alone; 0: it is not redlockd's. */
static uint64_t token_in(const struct store_text *text)
{
	return text->len >= RANDOM_TOKEN_LEN ? token_read(&world_of_all, text->bytes) : 0;
}

static bool is_live(const struct node *node, const struct store_item *item)
{
	return item->score > (double)(node->server.now_us / MS);
}

uint64_t node_token(const struct node *node, unsigned key, unsigned i)
{
	const struct store_key *found = find(node, "", key);
	if (found && found->type == STORE_STRING)
		return i == 0 ? token_in(found->string) : 0;
	for (size_t at = 0; found && at < found->count; at++)
		if (is_live(node, &found->items[at]) && i-- == 0)
			return token_in(found->items[at].name);
	return 0;
}

bool node_has_token(const struct node *node, unsigned key, uint64_t token)
{
	uint64_t its = UINT64_MAX;
	assert(token != 0);
	for (unsigned i = 0; its != token && its != 0; i++)
		its = node_token(node, key, i);
	return its == token;
}

uint64_t node_left_ms(const struct node *node, unsigned key, uint64_t token)
{
	const struct store_key *found = find(node, "", key);
	uint64_t end_ms = 0, now_ms = node->server.now_us / MS;
	if (found && found->type == STORE_STRING && token_in(found->string) == token)
		end_ms = found->expires_ms;
	for (size_t at = 0; found && found->type == STORE_SORTED_SET && at < found->count; at++)
		if (token_in(found->items[at].name) == token)
			end_ms = (uint64_t)found->items[at].score;
	return end_ms > now_ms ? end_ms - now_ms : 0;
}

/* token:hold_until_ms:fence:key:owner, where the key has no question mark */
static bool is_of(const struct store_text *value, uint64_t asked)
{
	char key[18] = ":";
	const char *at = value->bytes;
	digits_write(key + 1, asked);
	for (unsigned colons = 0; colons < 3 && at; colons++)
		at = strpbrk(at + (colons > 0), ":;");
	return at && strncmp(at, key, 17) == 0;
}

bool node_has_asked(const struct node *node, unsigned key, uint64_t asked)
{
	const struct store_key *found = find(node, "", key);
	const struct store_key *holders = found && found->type == STORE_SORTED_SET
						  ? find(node, "redlockd:holders:", key)
						  : NULL;
	if (found && found->type == STORE_STRING)
		return is_of(found->string, asked);
	for (size_t i = 0; holders && i < found->count; i++) {
		const struct store_text *token = found->items[i].name;
		const struct store_item *item = store_item(holders, token->bytes, token->len);
		if (is_live(node, &found->items[i]) && item && is_of(item->value, asked))
			return true;
	}
	return false;
}

/* ---- queues ---- */

const struct store_key *node_queue(const struct node *node, unsigned key)
{
	return find(node, "redlockd:queue:", key);
}

struct entry node_entry(const struct store_key *queue, size_t i)
{
	assert(i < queue->count);
	return field_entry(queue->items[i].name->bytes);
}

bool node_is_alive(const struct node *node, uint64_t replica)
{
	static const char prefix[] = "redlockd:alive:";
	char name[sizeof prefix + 16];
	memcpy(name, prefix, sizeof prefix - 1);
	digits_write(name + sizeof prefix - 1, replica);
	return store_peek(node->server.store, name, sizeof prefix - 1 + 16) != NULL;
}

/* The replica of a place has the last digits of its arrival. */
bool entry_is_place(struct entry entry)
{
	uint64_t digits = 0;
	for (uint64_t unit = 10000000; unit > 0; unit /= 10)
		digits = digits << 4 | entry.arrival / unit % 10;
	return (entry.replica & UINT32_MAX) == digits;
}
