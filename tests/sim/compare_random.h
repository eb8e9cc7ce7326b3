/* Random steps of a sequence, chosen so that they interact: few keys, tokens, buckets and epochs, mostly such that fit
 * the present state of the master. */
#ifndef COMPARE_RANDOM_H
#define COMPARE_RANDOM_H

#include "compare_server.h"
#include "model_master.h"

/* The kinds of steps: a script, or an action of somebody else. */
enum compare_step_kind {
	COMPARE_OTHER_LIBRARY = COMPARE_SCRIPTS, /* SET key (text of another library) */
	COMPARE_OTHER_LIBRARY_PX,                /* … PX ttl */
	COMPARE_HASH_KEY,                        /* the key becomes a hash */
	COMPARE_LIST_KEY,                        /* a list */
	COMPARE_PERSIST,                         /* its expiry is taken away */
	COMPARE_PEXPIRE,                         /* it is given another one */
	COMPARE_DROP_KEY,
	COMPARE_DROP_HASH,
	COMPARE_DROP_ALL,
	COMPARE_ALIVE_AGAIN, /* SET (alive key of a replica) '' PX ttl XX */
	COMPARE_ALIVE,       /* … without XX */
	COMPARE_DROP_ALIVE,
	COMPARE_QUEUE_PEXPIRE, /* the queue is given another expiry */
	COMPARE_DROP_QUEUE,
	COMPARE_WAITED, /* the hash says something else about until when somebody waits, or nothing */
	COMPARE_STEP_KINDS
};

struct compare_step {
	unsigned kind; /* of enum compare_script or of the above */
	/* key, ttl_ms, owner (which foreign text), entry.replica also where it is no script */
	struct model_command command;
	uint64_t waited_us;       /* WAITED: 0: the field is dropped */
	struct model_reply reply; /* a script's, filled in when it has been compared */
};

static inline bool compare_is_script(const struct compare_step *step)
{
	return step->kind < COMPARE_SCRIPTS;
}

/* True if it changes a replica's alive key, and no other. */
static inline bool compare_is_alive_step(const struct compare_step *step)
{
	return step->kind >= COMPARE_ALIVE_AGAIN && step->kind <= COMPARE_DROP_ALIVE;
}

/* A script for several keys at once. */
static inline bool compare_is_set(unsigned kind)
{
	return kind >= COMPARE_ACQUIRE_SET && kind <= COMPARE_RELEASE_SET;
}

/* A script of the lock. */
static inline bool compare_is_lock(unsigned kind)
{
	return kind <= COMPARE_INSPECT || compare_is_set(kind) || kind == COMPARE_ACQUIRE_SHARED;
}

/* The keys that it is about, a bit each; none where it is a replica's alive key. */
static inline uint32_t compare_keys(const struct compare_step *step)
{
	if (compare_is_alive_step(step))
		return 0;
	return step->command.names != 0 ? step->command.names : UINT32_C(1) << step->command.key;
}

/* `now_us`: the server's, a few milliseconds ago. `crowded`: mostly those who wait for one key, with nothing in their
 * way. */
void compare_random_step(struct compare_step *step, uint64_t *random, const struct model_master *master,
			 uint64_t now_us, bool crowded);
/* Below `bound`. */
uint64_t compare_random(uint64_t *random, uint64_t bound);

#endif
