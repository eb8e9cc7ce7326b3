/* SPDX-License-Identifier: MIT */
/* The rules of the core, written a second time to test the first.
 *
 * The core is a state machine that gets one event at a time. The oracle gets the whole sequence of one attempt and
 * finds the shortest prefix that decides it: for each prefix it counts the votes from nothing and fills in the answers
 * that the silent masters could still give. It shares only the header with the core, and keeps no state between two
 * prefixes. */
#ifndef REDLOCK_ORACLE_H
#define REDLOCK_ORACLE_H

#include "server/redlock/redlock.h"

/* A reply to the script of this attempt, or the timer. Replies to older attempts do not belong here. */
struct oracle_event {
	uint64_t at_us;
	bool timer; /* the members below are those of a reply */
	uint8_t master;
	enum redlock_vote vote;
	uint64_t ttl_us, remaining_us, holder;
};

struct oracle_attempt {
	const struct redlock_params *params;
	uint16_t attempt; /* counts from 1 */
	uint64_t start_us;
	unsigned events_len;
	const struct oracle_event *events;
};

struct oracle_verdict {
	bool decided;
	/* acquire: no answer yet, but a pause and another try; `result` has only the votes */
	bool retry;
	unsigned after;               /* how many events it took, the last one included */
	uint16_t release;             /* bit i: master i must be sent a release, together with the decision */
	struct redlock_result result; /* without `holder` and `remaining_us`, see below */
	unsigned holders_len;         /* the holders with the most votes; more than one where they are equal */
	struct {
		uint64_t holder, remaining_us;
	} holders[REDLOCK_MASTERS_MAX];
};

/* When the silent masters of an attempt that began at start_us count as failed. */
uint64_t oracle_deadline_us(const struct redlock_params *params, uint64_t start_us);

/* Finds the decision; verdict->decided is false if there is none yet. */
void oracle_judge(const struct oracle_attempt *attempt, struct oracle_verdict *verdict);

#endif
