/* The scripts for a set of resources: see model_master.h. KEYS are sorted, as the model's keys are by their numbers. */
#include <assert.h>
#include <string.h>

#include "model_internal.h"

/* i - 1 of KEYS[i] */
static uint8_t index_of(uint32_t names, unsigned key)
{
	return (uint8_t)__builtin_popcount(names & ((UINT32_C(1) << key) - 1));
}

static void assert_set(const struct model_command *command)
{
	assert(__builtin_popcount(command->names) >= 2 && command->names >> MODEL_KEYS == 0);
	MODEL_FOR_EACH_KEY (key, command->names)
		assert(command->buckets[key] < MODEL_BUCKETS);
}

/* math.max of the floor and all buckets of the set */
static uint64_t largest_number(const struct model_master *master, const struct model_command *command)
{
	uint64_t old = master->floor;
	MODEL_FOR_EACH_KEY (key, command->names)
		old = model_larger(old, master->buckets[command->buckets[key]]);
	return old;
}

/* Adds to what is known of the keys that are held: the first of them, and until when all are. */
static void note_held(struct model_master *master, uint32_t names, unsigned key, int64_t left,
		      const struct model_value *value, struct model_reply *held)
{
	const struct model_key *found = &master->keys[key];
	if (held->code != 0) {
		model_reply_held(master, found, held);
		if (held->has_value)
			held->value = *value;
		held->remaining_ms = left;
		held->which = index_of(names, key);
	} else if (left < 0 || (held->remaining_ms >= 0 && left > held->remaining_ms)) {
		held->remaining_ms = left;
	}
}

/* ---- a repair, of one key or of all of a set ---- */

bool model_repair_begins(const struct model_master *master, const struct model_command *command,
			 struct model_reply *ret_reply)
{
	bool same = true;
	MODEL_FOR_EACH_KEY (key, command->repair && command->names != 0 ? command->names : 0)
		same &= master->buckets[command->buckets[key]] == command->named[key];
	if (command->repair && command->names == 0)
		same = master->buckets[command->bucket] == command->named[command->key];
	if (!same)
		model_reply_code(master, 2, ret_reply);
	return same;
}

/* ---- acquire ---- */

/* Returns `is_first` of queue_next_shared(). */
static bool add_shared(struct model_master *master, unsigned key, const struct model_value *value, uint64_t ttl_ms)
{
	struct model_key *found = &master->keys[key];
	bool is_new = found->type == MODEL_NONE;
	is_new = model_shared_prune(master, found) || is_new;
	model_shared_add(found, value, model_now_ms(master) + ttl_ms + 1);
	return is_new;
}

/* All is free and it is the caller's turn in all queues: what follows. */
static void acquire_sets(struct model_master *master, const struct model_command *command, bool queued,
			 const uint32_t stales[MODEL_KEYS], struct model_reply *ret_reply)
{
	uint64_t hold_until_ms = command->max_hold_ms != 0 ? model_now_ms(master) + command->max_hold_ms : 0;
	struct model_value value = {.token = command->token,
				    .hold_until_ms = hold_until_ms,
				    .fence = command->fence,
				    .owner = command->owner,
				    .key = command->noted,
				    .noted = command->is_noted,
				    .names = command->names,
				    .kind = command->kind};
	model_note_lease(master, command);
	uint64_t old = largest_number(master, command);
	model_reply_code(master, 1, ret_reply);
	ret_reply->old = old;
	MODEL_FOR_EACH_KEY (key, command->names) {
		bool is_new = false;
		if (command->kind == MODEL_PLUS)
			is_new = add_shared(master, key, &value, command->ttl_ms);
		else
			model_set(master, key, &value, command->ttl_ms);
		ret_reply->watched |= model_watch_tell(master, key);
		bool removed = command->entry.replica != 0 && queued &&
			       (model_queue_remove(master, key, command->entry) || stales[key] > 0);
		if (removed && command->kind == MODEL_PLUS)
			model_queue_next(master, key, is_new, ret_reply);
		if (command->fence > old)
			master->buckets[command->buckets[key]] = command->fence;
	}
}

/* Notes what holds one key, if it stands in the way of the set. */
static void look_at(struct model_master *master, const struct model_command *command, unsigned key, bool is_turn,
		    struct model_reply *held)
{
	struct model_key *found = model_look_up(master, key);
	struct model_value value = found->value;
	int64_t left = model_pttl(master, found);
	if (found->type == MODEL_SHARED && command->kind == MODEL_PLUS && model_shared_live(master, found) == 0)
		return;
	if (found->type == MODEL_SHARED && command->kind == MODEL_PLUS && value.kind == MODEL_PLUS) {
		const struct model_holder *same = model_shared_same(master, found, command);
		if (!same && model_shared_live(master, found) < command->most)
			return;
		value = same ? same->value : value;
		if (is_turn)
			left = model_shared_first_left_ms(master, found);
	}
	if (found->type != MODEL_NONE)
		note_held(master, command->names, key, left, &value, held);
}

void model_acquire_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_entry entry = command->entry, other = {0};
	struct model_reply held = {.code = -1}; /* no key is held */
	uint32_t stales[MODEL_KEYS] = {0};
	unsigned behind = 0;
	assert_set(command);
	assert(command->token != 0);
	if (!model_acquire_begins(master, command, ret_reply) || !model_repair_begins(master, command, ret_reply))
		return;
	bool queued = master->waited_us > master->now_us && !command->repair;
	MODEL_FOR_EACH_KEY (key, queued ? command->names : 0) {
		if (entry.replica != 0)
			model_queue_add(master, key, entry);
		uint32_t before = master->queues[key].count;
		struct model_entry first = command->kind == MODEL_PLUS ? model_shared_before(master, command, key)
								       : model_queue_first(master, key);
		stales[key] = before - master->queues[key].count;
		if (first.replica != 0 && !model_same_entry(first, entry) && other.replica == 0) {
			other = first;
			behind = key;
		}
	}
	MODEL_FOR_EACH_KEY (key, command->names)
		look_at(master, command, key, other.replica == 0, &held);
	if (other.replica == 0 && held.code != 0) {
		acquire_sets(master, command, queued, stales, ret_reply);
		return;
	}
	MODEL_FOR_EACH_KEY (key, entry.replica != 0 ? command->names : 0)
		model_queue_join(master, key, entry, command->wait_ms);
	if (held.code == 0) {
		*ret_reply = held;
		return;
	}
	model_reply_code(master, 2, ret_reply);
	ret_reply->remaining_ms = model_alive_pttl(master, other.replica);
	model_reply_turn(other, behind, ret_reply);
	ret_reply->which = index_of(command->names, behind);
}

/* ---- the lease of a token ---- */

struct own {
	struct model_key *key;
	struct model_value *value;   /* NULL: there is none */
	struct model_holder *holder; /* of several leases; else NULL */
	bool is_own;
};

static struct own find_own(struct model_master *master, const struct model_command *command, unsigned key)
{
	struct model_key *found = model_look_up(master, key);
	struct own own = {found, found->type == MODEL_NONE ? NULL : &found->value, NULL,
			  model_is_held_by(found, command)};
	if (found->type != MODEL_SHARED || command->token == 0)
		return own;
	own.holder = model_shared_find(master, found, command);
	own.value = own.holder ? &own.holder->value : NULL;
	own.is_own = own.holder && own.value->names != 0;
	return own;
}

/* ---- raise ---- */

/* True if it has the token and the names of exactly these resources. */
static bool is_whole(struct own own, const struct model_command *command)
{
	return own.is_own && own.value->names == command->names;
}

void model_raise_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	bool gone = false;
	assert_set(command);
	assert(command->token != 0);
	if (model_refuses(master, command, ret_reply))
		return;
	MODEL_FOR_EACH_KEY (key, command->names) {
		struct own own = find_own(master, command, key);
		if (own.value && !is_whole(own, command)) {
			model_reply_held(master, own.key, ret_reply);
			if (ret_reply->has_value)
				ret_reply->value = *own.value;
			return;
		}
		gone = gone || !own.value;
	}
	model_reply_code(master, gone ? -1 : 1, ret_reply);
	if (gone)
		return;
	uint64_t old = largest_number(master, command);
	if (old >= command->fence) {
		ret_reply->code = 2;
		ret_reply->old = old;
		return;
	}
	MODEL_FOR_EACH_KEY (key, command->names) {
		struct own own = find_own(master, command, key);
		ret_reply->watched |= model_watch_tell(master, key);
		master->buckets[command->buckets[key]] = command->fence;
		own.value->fence = command->fence;
		if (own.holder)
			model_shared_last(own.key);
	}
}

/* ---- extend ---- */

/* Of one key: what is left, and longer if `ttl` is. */
static int64_t extend_key(struct model_master *master, struct own own, int64_t ttl, struct model_value ours)
{
	struct model_key alone = own.holder ? model_shared_alone(own.holder) : *own.key;
	int64_t remaining = model_pttl(master, &alone);
	*own.value = ours;
	if (remaining >= 0 && ttl > remaining) {
		alone.expires_ms = model_now_ms(master) + (uint64_t)ttl;
		remaining = ttl;
	}
	if (own.holder) {
		own.holder->ends_ms = alone.expires_ms + 1;
		model_shared_last(own.key);
	} else {
		own.key->expires_ms = alone.expires_ms;
	}
	return remaining;
}

/* Its second half: all keys are the token's. `ours`: the value of the last. */
static void extend_held(struct model_master *master, const struct model_command *command, struct model_value ours,
			struct model_reply *ret_reply)
{
	if (command->noted != 0) {
		ours.fence = command->fence;
		ours.key = command->noted;
		ours.noted = true;
	}
	model_note_lease(master, command);
	int64_t asked = (int64_t)command->ttl_ms, ttl = asked, ends = asked,
		hold_until_ms = (int64_t)ours.hold_until_ms;
	if (hold_until_ms > 0 && hold_until_ms - (int64_t)model_now_ms(master) < asked)
		ttl = hold_until_ms - (int64_t)model_now_ms(master);
	MODEL_FOR_EACH_KEY (key, command->names) {
		struct own own = find_own(master, command, key);
		struct model_value value = command->noted != 0 ? ours : *own.value;
		int64_t remaining = extend_key(master, own, ttl, value);
		if (remaining >= 0 && remaining < ends)
			ends = remaining;
	}
	struct model_key last = {.value = ours, .type = MODEL_STRING};
	model_reply_extended(master, &last, ends, ret_reply);
}

void model_extend_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_value ours = {0};
	bool gone = false;
	assert_set(command);
	assert(command->token != 0);
	if (model_refuses(master, command, ret_reply))
		return;
	MODEL_FOR_EACH_KEY (key, command->names) {
		struct own own = find_own(master, command, key);
		gone = gone || !own.value;
		if (own.value && !is_whole(own, command)) {
			model_reply_held(master, own.key, ret_reply);
			if (ret_reply->has_value)
				ret_reply->value = *own.value;
			if (own.holder)
				ret_reply->remaining_ms = (int64_t)(own.holder->ends_ms - 1 - model_now_ms(master));
			return;
		}
		ours = own.value ? *own.value : ours;
	}
	if (gone) {
		model_reply_code(master, -1, ret_reply);
		ret_reply->gone = command->names;
		MODEL_FOR_EACH_KEY (key, command->names)
			ret_reply->buckets[key] = master->buckets[command->buckets[key]];
	} else {
		extend_held(master, command, ours, ret_reply);
	}
}

/* ---- release ---- */

void model_release_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_reply held = {.code = -1}, told = {0};
	struct model_value deleted = {0};
	uint64_t kept_ms = UINT64_MAX;
	assert_set(command);
	assert(command->token != 0 || command->entry.replica != 0);
	bool queued = master->waited_us > master->now_us || command->entry.replica != 0;
	MODEL_FOR_EACH_KEY (key, command->names) {
		struct own own = find_own(master, command, key);
		bool ours = command->token != 0 && is_whole(own, command), shortened = false;
		if (ours) {
			deleted = *own.value;
			if (own.holder)
				shortened = model_shared_release(master, own.key, own.holder);
			else
				model_drop(master, key);
			told.watched |= model_watch_tell(master, key);
		} else if (own.value) {
			note_held(master, command->names, key, model_pttl(master, own.key), own.value, &held);
		}
		if (queued)
			model_release_queue(master, command, key, ours ? &deleted : NULL, shortened, &kept_ms, &told);
	}
	if (model_is_other_epoch(master, command))
		model_reply_code(master, -3, ret_reply);
	else if (told.arrival != 0)
		model_reply_code(master, 2, ret_reply);
	else if (held.code == 0)
		*ret_reply = held;
	else
		model_reply_code(master, deleted.token != 0 ? 1 : -1, ret_reply);
	if (ret_reply->code == 1) {
		ret_reply->has_value = true;
		ret_reply->value = deleted;
	}
	memcpy(ret_reply->notified, told.notified, sizeof told.notified);
	memcpy(ret_reply->last, told.last, sizeof told.last);
	ret_reply->watched = told.watched;
	ret_reply->arrival = ret_reply->code == 2 ? told.arrival : 0;
}
