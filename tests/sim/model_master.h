/* A Redis master as far as the scripts of server/scripts/ see it: plain memory, no server.
 *
 * Each function does what the script of its name does, line for line; the Lua stands beside it. Time is a member that the
 * caller moves on; a key whose end has passed is gone, as in Redis. What the model leaves out: memory limits, and values of
 * other libraries but for the fact that they are not ours (token 0). */
#ifndef MODEL_MASTER_H
#define MODEL_MASTER_H

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_KEYS = 2, MODEL_BUCKETS = 1 };

enum model_type { MODEL_NONE, MODEL_STRING, MODEL_OTHER /* a hash, a list, … */ };

/* token:hold_until_ms:fence:owner */
struct model_value {
	uint64_t token; /* stands for 40 hex digits; 0: not a value of ours */
	uint64_t hold_until_ms;
	uint64_t fence;
	uint64_t owner; /* stands for the label */
};

struct model_key {
	enum model_type type;
	struct model_value value; /* STRING */
	uint64_t expires_ms;      /* 0: never */
};

struct model_master {
	uint64_t now_us;
	uint64_t floor; /* of the hash redlockd:master, like the buckets; 0: no such member */
	uint64_t buckets[MODEL_BUCKETS];
	struct model_key keys[MODEL_KEYS];
};

/* KEYS and ARGV. */
struct model_command {
	unsigned key, bucket;
	uint64_t token;
	uint64_t ttl_ms, max_hold_ms, owner; /* acquire */
	uint64_t fence;                      /* acquire: the guess; raise: the number */
};

struct model_reply {
	bool error;   /* an error reply: nothing was done */
	int code;     /* the first element */
	uint64_t old; /* acquire 1, raise 2 */
	int64_t remaining_ms;     /* 0: PTTL, −1: never expires */
	bool has_value;           /* 0: false for a key of another type */
	struct model_value value; /* 0 */
};

void model_acquire(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_raise(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);
void model_release(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply);

/* The token that holds a key; 0 where it is free or not ours. */
uint64_t model_token(const struct model_master *master, unsigned key);
/* The largest of the floor and a bucket: all that the scripts ever look at. */
uint64_t model_number(const struct model_master *master, unsigned bucket);
/* The key is gone, whatever its end was: a clock that jumped. */
void model_drop(struct model_master *master, unsigned key);

#endif
