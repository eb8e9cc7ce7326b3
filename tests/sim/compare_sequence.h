/* One random sequence: its modelled master, the steps so far, and how they are compared and told. */
#ifndef COMPARE_SEQUENCE_H
#define COMPARE_SEQUENCE_H

#include "compare_random.h"
#include "compare_server.h"
#include "compare_text.h"

enum { COMPARE_STEPS_MIN = 8, COMPARE_STEPS_MAX = 40, COMPARE_STATE_REPLIES = 7 * MODEL_KEYS + MODEL_REPLICAS + 1 };

struct compare_sequence {
	unsigned number, step_count, planned;
	bool crowded; /* about those who wait */
	struct model_master master;
	struct compare_step steps[COMPARE_STEPS_MAX];
};

/* The server's time before and after one command. */
struct compare_span {
	uint64_t lo_us, hi_us;
};

static inline uint64_t compare_ms(uint64_t us)
{
	return us / 1000;
}

/* True if it depends on the very moment within the span whether what ends then is still there. */
static inline bool compare_runs_out(uint64_t expires_ms, struct compare_span span)
{
	return expires_ms != 0 && expires_ms >= compare_ms(span.lo_us) && expires_ms <= compare_ms(span.hi_us);
}

/* ---- compare_sequence.c ---- */

/* Sends a step, and then for each of its keys what compare_append_key() sends; PEXPIRETIME of the alive key, where that
 * is meant. */
void compare_append_step(struct compare_server *server, const struct compare_sequence *sequence,
			 const struct compare_step *step);
/* A step that is no script: how many answers come before that of PEXPIRETIME, and what it does to the model. Not for
 * alive keys. */
unsigned compare_outside_replies(const struct compare_step *step);
void compare_apply_outside(struct model_master *master, const struct compare_step *step);

/* Tells a difference, with all that led to it. */
void compare_tell_reply(const struct compare_sequence *sequence, const struct compare_answer *expected,
			const struct compare_answer *its);
void compare_tell_notification(const struct compare_sequence *sequence, const char *models_text, const char *text);
/* `where`: which key or field. False, always. */
bool compare_tell_state(const struct compare_sequence *sequence, const char *where, const char *models_text,
			const redisReply *reply);

/* ---- compare_state.c ---- */

/* How long something lives: the model's end of it (NULL: it is not there) and the server's, as PEXPIRETIME says.
 * `was_ms`: its end before the step. */
bool compare_ends(const struct compare_sequence *sequence, const uint64_t *models_ms, uint64_t was_ms, bool may_be_new,
		  long long its, struct compare_span span);
/* When key i runs out, as the server says; the model takes it over. `was_ms`: before the step. The server may differ
 * from the model, and by no more than the span, only where the step may have set it. */
bool compare_expiry(struct compare_sequence *sequence, unsigned i, uint64_t was_ms, bool may_be_new,
		    const redisReply *reply, struct compare_span span);
/* All that the server has, in COMPARE_STATE_REPLIES answers. */
void compare_append_state(struct compare_server *server, const struct compare_sequence *sequence);
bool compare_state(struct compare_sequence *sequence, struct compare_span span,
		   redisReply *replies[COMPARE_STATE_REPLIES]);

/* What lies beside one key of the sequence: its end, its queue's entries and end, the end of its watch. */
struct compare_key_answers {
	redisReply *expiry, *entries, *queue_expiry, *watch_expiry;
};

enum { COMPARE_KEY_ANSWERS = 4 };

void compare_append_key(struct compare_server *server, const struct compare_sequence *sequence, unsigned key);
/* The ends before a step. */
struct compare_key_ends {
	uint64_t key_ms, queue_ms, watch_ms;
};
struct compare_key_ends compare_key_ends(const struct compare_sequence *sequence, unsigned key);
/* Compares them. `may_be_new`: the step may have set the end of the key; of the queue and the watch: `is_new`. */
bool compare_key(struct compare_sequence *sequence, unsigned key, const struct compare_key_ends *was, bool may_be_new,
		 bool is_new, const struct compare_key_answers *its, struct compare_span span);

/* ---- compare_queue.c ---- */

bool compare_entries_are_alike(const struct compare_sequence *sequence, unsigned key, const redisReply *entries,
			       struct compare_span span);
/* As compare_expiry. */
bool compare_queue(struct compare_sequence *sequence, unsigned key, uint64_t was_ms, bool may_be_new,
		   const redisReply *entries, const redisReply *expiry, struct compare_span span);

/* A step that concerns an alive key: carries it out in the model and compares. `reply`: to the step itself. */
void compare_append_alive(struct compare_server *server, const struct compare_sequence *sequence,
			  const struct compare_step *step);
bool compare_alive_step(struct compare_sequence *sequence, const redisReply *reply, const redisReply *expiry,
			struct compare_span span);
/* Compares the expiry of the replica's alive key with the server's. */
bool compare_alive(struct compare_sequence *sequence, uint64_t replica, bool may_be_new, const redisReply *expiry,
		   struct compare_span span);

#endif
