/* The states of the masters of one worker as plain structs, for /masters, /readyz and the metrics. Part of
 * masters.h. */
#ifndef MASTER_STATUS_H
#define MASTER_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STATUS_ADDRESS_MAX = 256, STATUS_REASON_MAX = 480, STATUS_WARNINGS_MAX = 4 };

enum master_state { MASTER_VOTING, MASTER_QUARANTINED, MASTER_DOWN };

/* One master as this worker sees it. */
struct master_status {
	char address[STATUS_ADDRESS_MAX]; /* never with a password */
	enum master_state state;
	bool has_quarantine;              /* quarantined, and time alone will end it */
	uint64_t quarantine_remaining_ms; /* has_quarantine */
	char reason[STATUS_REASON_MAX];   /* "" while voting; else a code, then ": " and words where there are any */
	bool has_rtt;
	uint64_t rtt_us;  /* smoothed */
	char version[40]; /* "7.0.15", "valkey 8.1.1"; "": not known yet */
	char run_id[48];
	size_t warning_count;
	char warnings[STATUS_WARNINGS_MAX][STATUS_REASON_MAX];
};

struct quorum_status {
	uint8_t needed, voting, masters;
	bool has_wait;    /* too few vote, and time alone will mend it */
	uint64_t wait_ms; /* has_wait: until a majority may vote */
};

struct masters; /* the masters of one worker */

/* How many masters are configured. */
size_t masters_count(const struct masters *masters);
/* The state of master i. */
void masters_status(const struct masters *masters, size_t i, struct master_status *ret_status);
void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum);

/* "voting", "quarantined", "down" */
const char *master_state_name(enum master_state state);

#endif
