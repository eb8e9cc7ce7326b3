/* SPDX-License-Identifier: MIT */
/* See compare_master.h. */
#include "compare_master.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/leases/lease_internal.h"
#include "store_internal.h"

enum { NAME_MAX_LEN = 80 };

const char *compare_bucket_name(unsigned bucket)
{
	static const char *const names[] = {"0", "255"};
	assert(bucket < COMPARE_BUCKETS);
	return names[bucket];
}

static const struct store_key *peek(const struct store *store, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static const struct store_key *peek(const struct store *store, const char *format, ...)
{
	char name[NAME_MAX_LEN];
	va_list list;
	va_start(list, format);
	int len = vsnprintf(name, sizeof name, format, list);
	va_end(list);
	assert(len > 0 && len < NAME_MAX_LEN);
	return store_peek(store, name, (size_t)len);
}

/* "key0\nkey2" */
static uint32_t read_names(const struct lease_holder *holder)
{
	const char *at = holder->owner + holder->owner_len + holder->caller_len + holder->metadata_len;
	uint32_t names = 0;
	for (unsigned i = 0; holder->set_count > 0 && i < holder->names_len; i++)
		if (at[i] >= '0' && at[i] < '0' + COMPARE_KEYS)
			names |= UINT32_C(1) << (at[i] - '0');
	return names;
}

static void add_lease(struct compare_key *key, const struct store_text *value)
{
	static const char kinds[] = {[LEASE_EXCLUSIVE] = ':', [LEASE_SHARED] = '+', [LEASE_SLOT] = '#'};
	struct lease_holder holder;
	char token[17] = "";
	lease_value_read_holder(value->bytes, value->len, &holder);
	if (holder.known && key->count < COMPARE_HOLDERS) {
		memcpy(token, value->bytes + RANDOM_TOKEN_LEN - 16, 16);
		key->leases[key->count++] = (struct compare_lease){.token = strtoull(token, NULL, 16),
								   .key = holder.key,
								   .names = read_names(&holder),
								   .kind = kinds[holder.mode]};
	}
	lease_holder_fini(&holder);
}

static void read_key(const struct store *store, unsigned sequence, unsigned i, struct compare_key *key)
{
	const struct store_key *found = peek(store, COMPARE_KEY_NAME, sequence, i),
			       *holders = peek(store, COMPARE_HOLDERS_NAME, sequence, sequence, i);
	if (found && found->type == STORE_STRING)
		add_lease(key, found->string);
	key->is_several = found && found->type == STORE_SORTED_SET;
	for (size_t at = 0; key->is_several && holders && at < found->count; at++) {
		const struct store_text *token = found->items[at].name;
		const struct store_item *item = store_item(holders, token->bytes, token->len);
		if (item)
			add_lease(key, item->value);
	}
}

static struct compare_entry read_entry(const char *text)
{
	struct compare_entry entry = {.replica = strtoull(text, NULL, 16),
				      .arrival = strtoull(text + 17, NULL, 10),
				      .kind = text[16],
				      .of_set = text[33] == ';'};
	if (entry.kind != ':')
		entry.most = (uint32_t)strtoul(text + 34, NULL, 10);
	return entry;
}

static void read_queue(const struct store *store, unsigned sequence, unsigned i, struct compare_queue *queue)
{
	const struct store_key *found = peek(store, COMPARE_QUEUE_NAME, sequence, sequence, i);
	assert(!found || found->count <= COMPARE_ENTRIES);
	for (size_t at = 0; found && at < found->count; at++)
		queue->entries[queue->count++] = read_entry(found->items[at].name->bytes);
}

void compare_master_read(const struct store *store, unsigned sequence, struct compare_master *ret_master)
{
	const struct store_key *hash = peek(store, COMPARE_HASH_NAME, sequence);
	memset(ret_master, 0, sizeof *ret_master);
	ret_master->epoch = store_number(hash, "epoch", 16);
	ret_master->run_id = store_number(hash, "run_id", 16);
	ret_master->digest = store_number(hash, "digest", 16);
	ret_master->marker = store_number(hash, "marker", 16);
	ret_master->marker_run_id = store_number(hash, "marker_run_id", 16);
	ret_master->leases = store_number(hash, "leases", 10);
	for (unsigned i = 0; i < COMPARE_BUCKETS; i++) {
		uint64_t number = store_number(hash, compare_bucket_name(i), 10),
			 floor = store_number(hash, "floor", 10);
		ret_master->buckets[i] = number;
		ret_master->numbers[i] = number > floor ? number : floor;
	}
	for (unsigned i = 0; i < COMPARE_KEYS; i++) {
		read_key(store, sequence, i, &ret_master->keys[i]);
		read_queue(store, sequence, i, &ret_master->queues[i]);
	}
}
