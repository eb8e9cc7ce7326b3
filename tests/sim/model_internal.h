/* Shared by the files of the modelled master: see model_master.h. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H

#include "model_master.h"
#include "server/redlock/redlock.h"

/* ---- model_master.c ---- */

uint64_t model_now_ms(const struct model_master *master);
/* True where Redis would not show a key with this end (0: none) any more. */
bool model_has_ended(const struct model_master *master, uint64_t expires_ms);
/* As Redis does before any command reads a key: removes one whose end has passed. */
struct model_key *model_look_up(struct model_master *master, unsigned key);
/* SET key value PX ttl_ms */
void model_set(struct model_master *master, unsigned key, const struct model_value *value, uint64_t ttl_ms);
/* note_leases(), of a lease that was granted or extended */
void model_note_lease(struct model_master *master, const struct model_command *command);
/* return {code, now_us} */
void model_reply_code(const struct model_master *master, int code, struct model_reply *ret_reply);
/* PTTL */
int64_t model_pttl(const struct model_master *master, const struct model_key *key);
/* return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
void model_reply_held(const struct model_master *master, const struct model_key *key, struct model_reply *ret_reply);
/* return {1, now_us, ttl_ms, value} */
void model_reply_extended(const struct model_master *master, const struct model_key *key, int64_t ttl_ms,
			  struct model_reply *ret_reply);
/* string.sub(value, 1, 41) == ARGV[1] .. ':', of a set ';' */
bool model_is_held_by(const struct model_key *key, const struct model_command *command);
/* tell_watchers(): the bit of the key if it is watched, else 0 */
uint32_t model_watch_tell(const struct model_master *master, unsigned key);
/* acquire.lua up to where it looks at the lock: false where it answers before that. */
/* False: a repair that is void, which is answered. */
bool model_repair_begins(const struct model_master *master, const struct model_command *command,
			 struct model_reply *ret_reply);
bool model_acquire_begins(const struct model_master *master, const struct model_command *command,
			  struct model_reply *ret_reply);
/* now_us > tonumber(ARGV[…]) */
bool model_is_late(const struct model_master *master, const struct model_command *command);
/* redis.call('HGET', KEYS[2], 'epoch') ~= ARGV[…] and ARGV[…] ~= '----------------' */
bool model_is_other_epoch(const struct model_master *master, const struct model_command *command);
/* Either of them, in this order: return {-2, now_us}, return {-3, now_us}. */
bool model_refuses(const struct model_master *master, const struct model_command *command,
		   struct model_reply *ret_reply);

static inline uint64_t model_larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- model_shared.c ---- */

/* lease_find(): the one of several leases with the command's token, if it has not ended; else NULL. */
struct model_holder *model_shared_find(const struct model_master *master, struct model_key *key,
				       const struct model_command *command);
/* The same, if it is a set's as the command's is, else NULL. */
struct model_holder *model_shared_own(const struct model_master *master, struct model_key *key,
				      const struct model_command *command);
/* several_prune(); true if it removed any */
bool model_shared_prune(const struct model_master *master, struct model_key *key);
/* several_expire(), and what value_read() finds from then on. */
void model_shared_last(struct model_key *key);
void model_shared_remove(struct model_key *key, struct model_holder *holder);
/* several_same(); NULL: there is none. */
const struct model_holder *model_shared_same(const struct model_master *master, const struct model_key *key,
					     const struct model_command *command);
/* several_live() */
uint32_t model_shared_live(const struct model_master *master, const struct model_key *key);
/* several_first_end() */
int64_t model_shared_first_left_ms(const struct model_master *master, const struct model_key *key);
/* ZADD and HSET of a grant. */
void model_shared_add(struct model_key *key, const struct model_value *value, uint64_t ends_ms);
/* delete() of release.lua, for one of several leases. */
bool model_shared_release(const struct model_master *master, struct model_key *key, struct model_holder *own);
/* As if it had the key alone: extend.lua, of what the key is then. */
struct model_key model_shared_alone(const struct model_holder *own);
/* queue_first() and queue_before_shared(): whom the caller waits for; replica 0: nobody. */
struct model_entry model_shared_before(struct model_master *master, const struct model_command *command, unsigned key);
/* serve_queue() of release.lua: who is notified. `own`: what was released; NULL: it was
 * not the token's. `shortened`: as there. */
void model_release_queue(struct model_master *master, const struct model_command *command, unsigned key,
			 const struct model_value *own, bool shortened, uint64_t *kept_ms, struct model_reply *reply);
/* queue_next_shared() */
void model_queue_next(struct model_master *master, unsigned key, bool is_new, struct model_reply *reply);

/* ---- model_queue.c ---- */

/* Acquire 2: it is the turn of `first`, which may have missed its notification. */
void model_reply_turn(struct model_entry first, unsigned key, struct model_reply *ret_reply);
/* queue_take_place(): the entry that the caller has from now on; replica 0: it gets no place. */
struct model_entry model_place_take(struct model_master *master, const struct model_command *command, unsigned key,
				    uint64_t *ret_arrival);
/* queue_keep_place(): true if the caller's entry was there, or has just been granted. */
bool model_place_keep(struct model_master *master, const struct model_command *command, unsigned key, bool own,
		      uint64_t kept_ms);
/* queue_place_ms(), queue_room() */
uint64_t model_place_ms(struct model_master *master, unsigned key);
uint32_t model_room(struct model_master *master, unsigned key, struct model_entry first);

static inline bool model_same_entry(struct model_entry a, struct model_entry b)
{
	return a.replica == b.replica && a.arrival == b.arrival && a.kind == b.kind && a.most == b.most &&
	       a.of_set == b.of_set;
}

/* queue_first(): who is first in the queue and whose redlockd lives; replica 0: nobody. Drops those of dead ones on
 * the way. */
struct model_entry model_queue_first(struct model_master *master, unsigned key);
/* queue_join(): into the queue, which then outlives `wait_ms`. */
void model_queue_join(struct model_master *master, unsigned key, struct model_entry entry, uint32_t wait_ms);
/* ZADD … NX, ZREM: true if it was there. */
void model_queue_add(struct model_master *master, unsigned key, struct model_entry entry);
bool model_queue_remove(struct model_master *master, unsigned key, struct model_entry entry);
/* PTTL of a replica's alive key: −2 where there is none. */
int64_t model_alive_pttl(const struct model_master *master, uint64_t replica);
/* Forgets queues and alive keys whose end has passed. */
void model_queue_sweep(struct model_master *master);

#endif
