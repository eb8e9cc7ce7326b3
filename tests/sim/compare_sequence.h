/* SPDX-License-Identifier: MIT */
/* One random sequence of steps: sends and prints them. */
#ifndef COMPARE_SEQUENCE_H
#define COMPARE_SEQUENCE_H

#include "compare_random.h"
#include "compare_server.h"

enum {
	COMPARE_STEPS_MIN = 8,
	COMPARE_STEPS_MAX = 40,
	COMPARE_KEY_REPLIES = 5,
	COMPARE_STATE_REPLIES = (3 + COMPARE_KEY_REPLIES) * COMPARE_KEYS + COMPARE_REPLICAS + 1
};

struct compare_sequence {
	unsigned number, step_count, planned;
	bool crowded;                 /* mostly about waiters */
	struct compare_master before; /* the last step */
	struct compare_step steps[COMPARE_STEPS_MAX];
};

/* Sends a step, and then for each of its keys its end, its queue's entries and end, and the ends of its watch and of
 * its holder's mark: COMPARE_KEY_REPLIES. For a step about an alive key: its PEXPIRETIME. */
void compare_append_step(struct compare_server *server, const struct compare_sequence *sequence,
			 const struct compare_step *step);
/* How many answers precede those about the keys. The step's own answer is the first for a script, else the last. */
unsigned compare_step_replies(const struct compare_step *step);
/* Requests the final state of the sequence: COMPARE_STATE_REPLIES. */
void compare_append_state(struct compare_server *server, const struct compare_sequence *sequence);
/* Prints the steps so far. */
void compare_tell(const struct compare_sequence *sequence);

#endif
