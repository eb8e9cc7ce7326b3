/* A second opinion on the core: what the rules say about a sequence of events, written down once more.
 *
 * The core is a state machine that is fed one event at a time. The oracle is given the whole sequence of one
 * attempt and looks for the shortest beginning of it that decides: for every beginning it counts the votes
 * anew, from nothing, and asks what the silent masters could still change by filling in their answers. It shares
 * no code with the core but the header, and remembers nothing between two beginnings. */
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

/* Finds the decision; verdict->decided is false if the events do not suffice for one. */
void oracle_judge(const struct oracle_attempt *attempt, struct oracle_verdict *verdict);

#endif
