/* One random sequence: the modelled master that belongs to it, the steps so far, and what can be said of them. */
#ifndef COMPARE_SEQUENCE_H
#define COMPARE_SEQUENCE_H

#include "compare_draw.h"
#include "compare_server.h"
#include "compare_text.h"

enum { COMPARE_STEPS_MIN = 8, COMPARE_STEPS_MAX = 40, COMPARE_STATE_REPLIES = 2 * MODEL_KEYS + 1 };

struct compare_sequence {
	unsigned number, step_count, planned;
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

/* True if it depends on the very moment within the span whether the key is still there. */
static inline bool compare_runs_out(const struct model_key *key, struct compare_span span)
{
	return key->type != MODEL_NONE && key->expires_ms != 0 && key->expires_ms >= compare_ms(span.lo_us) &&
	       key->expires_ms <= compare_ms(span.hi_us);
}

/* ---- compare_sequence.c ---- */

/* Sends a step, and PEXPIRETIME of its key. */
void compare_append_step(struct compare_server *server, const struct compare_sequence *sequence, const struct compare_step *step);
/* A step that is no script: how many answers come before that of PEXPIRETIME, and what it does to the model. */
unsigned compare_outside_replies(const struct compare_step *step);
void compare_apply_outside(struct model_master *master, const struct compare_step *step);

/* Tells a difference, with all that led to it, unless compare_quiet. */
extern bool compare_quiet;
void compare_tell_reply(const struct compare_sequence *sequence, const struct compare_expected *expected, const redisReply *reply);
/* `where`: which key or field. False, always. */
bool compare_tell_state(const struct compare_sequence *sequence, const char *where, const char *models_text, const redisReply *reply);

/* ---- compare_state.c ---- */

/* When key i runs out, as the server says; the model takes it over. `was_ms`: before the step. The server may differ from the
 * model, and by no more than the span, only where the step may have set it. */
bool compare_expiry(struct compare_sequence *sequence, unsigned i, uint64_t was_ms, bool may_be_new, const redisReply *reply,
		    struct compare_span span);
/* All that the server has, in COMPARE_STATE_REPLIES answers. */
void compare_append_state(struct compare_server *server, const struct compare_sequence *sequence);
bool compare_state(struct compare_sequence *sequence, struct compare_span span, redisReply *replies[COMPARE_STATE_REPLIES]);

#endif
