/* Random steps of a sequence, drawn so that they meet: few keys, tokens, buckets, certificates, and more often than not what fits
 * the master as it is. */
#ifndef COMPARE_DRAW_H
#define COMPARE_DRAW_H

#include "compare_server.h"
#include "model_master.h"

/* What a step is: a script, or what somebody else does. */
enum compare_step_kind {
	COMPARE_FOREIGN = COMPARE_SCRIPTS, /* SET key (text of another library) */
	COMPARE_FOREIGN_PX,                /* … PX ttl */
	COMPARE_HASH_KEY,                  /* the key becomes a hash */
	COMPARE_LIST_KEY,                  /* a list */
	COMPARE_PERSIST,                   /* its expiry is taken away */
	COMPARE_PEXPIRE,                   /* it is given another one */
	COMPARE_DROP_KEY,
	COMPARE_DROP_HASH,
	COMPARE_DROP_ALL,
	COMPARE_STEP_KINDS
};

struct compare_step {
	unsigned kind;                /* of enum compare_script or of the above */
	struct model_command command; /* key, ttl_ms, owner (which foreign text) also where it is no script */
	struct model_reply reply;     /* a script's, filled in when it has been compared */
};

static inline bool compare_is_script(const struct compare_step *step)
{
	return step->kind < COMPARE_SCRIPTS;
}

/* `now_us`: the server's, a few milliseconds ago. */
void compare_draw(struct compare_step *step, uint64_t *random, const struct model_master *master, uint64_t now_us);
/* Below `bound`. */
uint64_t compare_random(uint64_t *random, uint64_t bound);

#endif
