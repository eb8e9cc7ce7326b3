/* What is particular to shared leases in C, beside the Lua: see model_master.h and model_master.c. */
#include <assert.h>
#include <string.h>

#include "model_internal.h"

struct model_holder *model_shared_find(const struct model_master *master, struct model_key *key,
				       const struct model_command *command)
{
	for (unsigned i = 0; key->type == MODEL_SHARED && i < key->holder_count; i++)
		if (key->holders[i].value.token == command->token && key->holders[i].ends_ms > model_now_ms(master))
			return &key->holders[i];
	return NULL;
}

struct model_holder *model_shared_own(const struct model_master *master, struct model_key *key,
				      const struct model_command *command)
{
	struct model_holder *found = model_shared_find(master, key, command);
	return found && (found->value.names != 0) == (command->names != 0) ? found : NULL;
}

void model_shared_last(struct model_key *key)
{
	const struct model_holder *last = NULL;
	for (const struct model_holder *one = key->holders; one < key->holders + key->holder_count; one++)
		if (!last || one->ends_ms > last->ends_ms ||
		    (one->ends_ms == last->ends_ms && one->value.token > last->value.token))
			last = one;
	if (!last) {
		memset(key, 0, sizeof *key); /* an empty set is no key */
		return;
	}
	key->value = last->value;
	key->expires_ms = last->ends_ms;
}

void model_shared_remove(struct model_key *key, struct model_holder *holder)
{
	assert(key->type == MODEL_SHARED && key->holder_count > 0);
	struct model_holder *last = &key->holders[--key->holder_count];
	*holder = *last;
	memset(last, 0, sizeof *last);
}

bool model_shared_prune(const struct model_master *master, struct model_key *key)
{
	uint32_t before = key->holder_count;
	for (unsigned i = key->holder_count; i-- > 0;)
		if (key->holders[i].ends_ms <= model_now_ms(master))
			model_shared_remove(key, &key->holders[i]);
	bool any = key->holder_count < before;
	if (key->holder_count == 0 && key->type == MODEL_SHARED)
		memset(key, 0, sizeof *key);
	return any;
}

void model_shared_add(struct model_key *key, const struct model_value *value, uint64_t ends_ms)
{
	assert(key->type != MODEL_STRING);
	uint32_t at = 0;
	while (key->type == MODEL_SHARED && at < key->holder_count && key->holders[at].value.token != value->token)
		at++;
	assert(at < MODEL_HOLDERS);
	key->type = MODEL_SHARED;
	if (at < key->holder_count && key->holders[at].ends_ms > ends_ms)
		ends_ms = key->holders[at].ends_ms; /* GT */
	key->holders[at] = (struct model_holder){*value, ends_ms};
	key->holder_count += at == key->holder_count;
	model_shared_last(key);
}

bool model_shared_release(const struct model_master *master, struct model_key *key, struct model_holder *own)
{
	uint64_t ends_ms = own->ends_ms;
	model_shared_remove(key, own);
	model_shared_prune(master, key);
	model_shared_last(key);
	return key->holder_count > 0 && ends_ms > key->expires_ms;
}

struct model_key model_shared_alone(const struct model_holder *own)
{
	return (struct model_key){.value = own->value, .expires_ms = own->ends_ms - 1, .type = MODEL_STRING};
}

/* queue_tell(): notifies `first`, and those behind it for which there is room. `free`: as in struct model_reply. */
static void tell(const struct model_master *master, unsigned key, struct model_entry first, uint32_t free,
		 uint32_t room, struct model_reply *reply)
{
	const struct model_queue *queue = &master->queues[key];
	uint32_t places = room < MODEL_WAVE ? room : MODEL_WAVE;
	struct model_entry last = first;
	reply->notified[key] = first;
	reply->free[key] = first.kind == MODEL_SLOT ? free : 0;
	uint32_t others = first.kind == MODEL_PLUS && (room > 1 || first.of_set) ? queue->count : 0;
	for (uint32_t i = 0; i < others; i++) {
		if (!model_is_alive(master, queue->entries[i].replica))
			continue;
		if (places == 0 || queue->entries[i].kind != MODEL_PLUS)
			break;
		last = queue->entries[i];
		places -= !last.of_set;
	}
	reply->last[key] = model_same_entry(last, first) ? 0 : last.arrival;
}

uint32_t model_room(struct model_master *master, unsigned key, struct model_entry first)
{
	struct model_key *found = &master->keys[key];
	if (found->type == MODEL_NONE)
		return first.kind == MODEL_PLUS ? first.most : 1;
	if (found->type != MODEL_SHARED || first.kind != found->value.kind)
		return 0;
	model_shared_prune(master, found);
	/* room = its_most - live */
	return first.most > found->holder_count ? first.most - found->holder_count : 0;
}

void model_release_queue(struct model_master *master, const struct model_command *command, unsigned key,
			 const struct model_value *own, bool shortened, uint64_t *kept_ms, struct model_reply *reply)
{
	uint32_t free = own && own->kind == MODEL_SLOT ? own->slot + 1 : 0;
	struct model_entry entry = command->entry;
	bool left = false, stays = entry.replica != 0 && command->wait_ms > 0;
	if (command->place != 0 && stays)
		entry = model_place_take(master, command, key, &reply->arrival);
	else if (command->place != 0) {
		uint64_t place_ms = model_place_ms(master, key);
		*kept_ms = place_ms < *kept_ms ? place_ms : *kept_ms;
		left = model_place_keep(master, command, key, own, *kept_ms);
	}
	if (stays && entry.replica != 0)
		model_queue_join(master, key, entry, command->wait_ms);
	else if (entry.replica != 0)
		left |= model_queue_remove(master, key, entry);
	if (!own && !left)
		return;
	struct model_entry first = model_queue_first(master, key);
	if (first.replica == 0 || model_same_entry(first, entry))
		return;
	uint32_t kind = own ? own->kind : master->keys[key].value.kind;
	uint32_t room = model_room(master, key, first);
	bool was_before = left && entry.kind != MODEL_PLUS && first.kind == kind && entry.arrival < first.arrival &&
			  kind != MODEL_EXCLUSIVE;
	if (stays)
		room = room > 1 ? 1 : room;
	else if (room == 0)
		room = was_before || (shortened && first.kind != kind);
	if (room > 0)
		tell(master, key, first, free, room, reply);
}

void model_queue_next(struct model_master *master, unsigned key, bool is_new, struct model_reply *reply)
{
	if (!is_new && master->queues[key].count % (MODEL_WAVE / 2) != 0)
		return;
	struct model_entry first = model_queue_first(master, key);
	if (first.replica != 0 && first.kind == MODEL_PLUS && first.most > master->keys[key].holder_count)
		tell(master, key, first, 0, first.most - master->keys[key].holder_count, reply);
}

struct model_entry model_shared_before(struct model_master *master, const struct model_command *command, unsigned key)
{
	struct model_entry nobody = {0}, entry = command->entry, first = model_queue_first(master, key);
	const struct model_queue *queue = &master->queues[key];
	if (model_same_entry(first, entry))
		return nobody;
	if (command->kind != MODEL_PLUS || entry.replica == 0 || first.kind != MODEL_PLUS)
		return first;
	for (uint32_t i = 0; i < queue->count; i++) {
		if (model_same_entry(queue->entries[i], entry))
			return nobody;
		if (queue->entries[i].kind != MODEL_PLUS && model_is_alive(master, queue->entries[i].replica))
			return queue->entries[i];
	}
	return nobody;
}

/* It may come in: what follows. */
static void acquire_adds(struct model_master *master, const struct model_command *command,
			 struct model_reply *ret_reply)
{
	struct model_key *key = &master->keys[command->key];
	uint64_t hold_until_ms = command->max_hold_ms != 0 ? model_now_ms(master) + command->max_hold_ms : 0;
	struct model_value value = {.token = command->token,
				    .hold_until_ms = hold_until_ms,
				    .fence = command->fence,
				    .owner = command->owner,
				    .key = command->noted,
				    .noted = command->is_noted,
				    .slot = command->slot,
				    .kind = command->kind};
	model_shared_add(key, &value, model_now_ms(master) + command->ttl_ms + 1);
	model_note_lease(master, command);
	uint64_t old = model_number(master, command->bucket);
	if (command->fence > old)
		master->buckets[command->bucket] = command->fence;
	model_reply_code(master, 1, ret_reply);
	ret_reply->old = old;
	ret_reply->watched = model_watch_tell(master, command->key);
}

const struct model_holder *model_shared_same(const struct model_master *master, const struct model_key *key,
					     const struct model_command *command)
{
	for (uint32_t i = 0; key->type == MODEL_SHARED && command->noted != 0 && i < key->holder_count; i++)
		if (key->holders[i].value.key == command->noted && key->holders[i].ends_ms > model_now_ms(master))
			return &key->holders[i];
	return NULL;
}

uint32_t model_shared_live(const struct model_master *master, const struct model_key *key)
{
	uint32_t live = 0;
	for (uint32_t i = 0; i < key->holder_count; i++)
		live += key->holders[i].ends_ms > model_now_ms(master);
	return live;
}

static bool has_room(const struct model_key *key, const struct model_command *command, const struct model_holder *same)
{
	if (key->type != MODEL_SHARED || same || key->value.kind != command->kind)
		return key->type == MODEL_NONE;
	/* is_full = live >= most, room = not is_full */
	if (key->holder_count >= command->most)
		return false;
	for (uint32_t i = 0; command->kind == MODEL_SLOT && i < key->holder_count; i++)
		if (key->holders[i].value.slot == command->slot)
			return false;
	return true;
}

int64_t model_shared_first_left_ms(const struct model_master *master, const struct model_key *key)
{
	uint64_t first_ms = key->expires_ms;
	for (uint32_t i = 0; i < key->holder_count; i++)
		if (key->holders[i].ends_ms > model_now_ms(master) && key->holders[i].ends_ms < first_ms)
			first_ms = key->holders[i].ends_ms;
	return (int64_t)(first_ms - model_now_ms(master));
}

/* What follows a grant in the queue. */
static void acquire_tells(struct model_master *master, const struct model_command *command, bool is_new, uint32_t stale,
			  struct model_reply *reply)
{
	bool removed = command->entry.replica != 0 &&
		       (model_queue_remove(master, command->key, command->entry) || stale > 0);
	if (command->kind == MODEL_PLUS) {
		if (removed)
			model_queue_next(master, command->key, is_new, reply);
		return;
	}
	struct model_entry first = model_queue_first(master, command->key);
	if (first.replica != 0 && first.kind == MODEL_SLOT && master->keys[command->key].holder_count < first.most)
		tell(master, command->key, first, 0, 1, reply);
}

/* taken = is_full and string.rep('1', most) or … */
static void note_taken(const struct model_key *key, const struct model_command *command, struct model_reply *reply)
{
	bool has_slots = key->type == MODEL_SHARED && key->value.kind == MODEL_SLOT;
	reply->slots = has_slots ? (uint32_t)command->most : 0;
	for (uint32_t i = 0; has_slots && i < key->holder_count; i++)
		if (key->holder_count >= command->most)
			reply->taken = (UINT32_C(1) << command->most) - 1;
		else if (key->holders[i].value.slot <
			 command->most) /* the simulators use few, but a repair names all */
			reply->taken |= UINT32_C(1) << key->holders[i].value.slot;
}

void model_acquire_shared(struct model_master *master, const struct model_command *command,
			  struct model_reply *ret_reply)
{
	assert(command->bucket < MODEL_BUCKETS && command->token != 0);
	if (!model_acquire_begins(master, command, ret_reply) || !model_repair_begins(master, command, ret_reply))
		return;
	struct model_entry entry = command->entry, first = {0};
	uint32_t stale = 0;
	bool waits = master->waited_us > master->now_us && !command->repair;
	if (waits) {
		if (entry.replica != 0)
			model_queue_add(master, command->key, entry);
		uint32_t before = master->queues[command->key].count;
		first = model_shared_before(master, command, command->key);
		stale = before - master->queues[command->key].count;
	}
	struct model_key *key = model_look_up(master, command->key);
	/* Both ways end with several_prune(): here it is done first. */
	bool pruned = key->type == MODEL_SHARED && model_shared_prune(master, key),
	     is_new = pruned || key->type == MODEL_NONE;
	const struct model_holder *same = model_shared_same(master, key, command);
	if (first.replica == 0 && has_room(key, command, same)) {
		acquire_adds(master, command, ret_reply);
		if (waits)
			acquire_tells(master, command, is_new, stale, ret_reply);
		return;
	}
	if (entry.replica != 0)
		model_queue_join(master, command->key, entry, command->wait_ms);
	if (key->type != MODEL_NONE) {
		model_reply_held(master, key, ret_reply);
		if (key->type == MODEL_SHARED && first.replica == 0 && key->value.kind == command->kind)
			ret_reply->remaining_ms = model_shared_first_left_ms(master, key);
		if (same)
			ret_reply->value = same->value;
		note_taken(key, command, ret_reply);
		return;
	}
	model_reply_code(master, 2, ret_reply);
	ret_reply->remaining_ms = model_alive_pttl(master, first.replica);
	model_reply_turn(first, command->key, ret_reply);
}

static bool ends_before(const struct model_holder *a, const struct model_holder *b)
{
	return a->ends_ms < b->ends_ms || (a->ends_ms == b->ends_ms && a->value.token < b->value.token);
}

void model_shared_list(const struct model_master *master, const struct model_key *key, uint64_t most,
		       struct model_reply *reply)
{
	for (uint32_t i = 0; key->type == MODEL_SHARED && i < key->holder_count; i++) {
		uint32_t at = reply->holder_count;
		if (key->holders[i].ends_ms <= model_now_ms(master))
			continue;
		for (; at > 0 && ends_before(&key->holders[i], &reply->listed[at - 1]); at--)
			reply->listed[at] = reply->listed[at - 1];
		reply->listed[at] = key->holders[i];
		reply->holder_count++;
		reply->digest_of_tokens += key->holders[i].value.token & 0xfffffffff;
	}
	reply->listed_count = reply->holder_count < most ? reply->holder_count : (uint32_t)most;
	reply->tokens_alone = most > 3;
}

/* ---- for looking at, and what happens to it ---- */

uint64_t model_token_of(const struct model_master *master, unsigned key, unsigned i)
{
	assert(key < MODEL_KEYS);
	const struct model_key *found = &master->keys[key];
	for (const struct model_holder *one = found->holders; one < found->holders + found->holder_count; one++)
		if (one->ends_ms > model_now_ms(master) && i-- == 0)
			return one->value.token;
	return found->type == MODEL_STRING && i == 0 && !model_has_ended(master, found->expires_ms) ? found->value.token
												    : 0;
}

bool model_has_token(const struct model_master *master, unsigned key, uint64_t token)
{
	unsigned i = 0;
	assert(token != 0);
	while (model_token_of(master, key, i) != token && model_token_of(master, key, i) != 0)
		i++;
	return model_token_of(master, key, i) == token;
}

void model_drop_token(struct model_master *master, unsigned key, uint64_t token)
{
	struct model_key *found = model_look_up(master, key);
	struct model_holder *own = model_shared_own(master, found, &(struct model_command){.token = token});
	assert(model_has_token(master, key, token));
	if (!own) {
		model_drop(master, key);
		return;
	}
	model_shared_remove(found, own);
	model_shared_last(found);
}
