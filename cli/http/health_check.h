/* Looks after a request that a server keeps for long, with side requests: who has the lock, for those who want to know,
 * and whether the server still answers. A process that hangs and a machine that has gone keep their connections;
 * without this it would be noticed only when the wait is over. */
#ifndef HEALTH_CHECK_H
#define HEALTH_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "answer.h"
#include "cli/base/cli_base.h"

struct client;

struct health_check {
	struct client *client;
	const struct arguments *arguments;
	const struct server *server;
	bool wants_state;  /* somebody wants to know who has it */
	bool wants_health; /* there is another server to go to */
	bool asks_state;   /* the side request that is under way */
	uint64_t next_us;  /* when the next one is due */
};

enum health_check_finding {
	HEALTH_CHECK_NOTHING,
	HEALTH_CHECK_STATE, /* ret_answer says who has the lock: answer_fini() it */
	HEALTH_CHECK_FAILED /* the server does not answer any more */
};

void health_check_begin(struct health_check *check, bool wants_state, bool wants_health, uint64_t now_us);

/* After each client_wait(): takes the answer to the side request, begins the next one. */
enum health_check_finding health_check_poll(struct health_check *check, uint64_t now_us, struct answer *ret_answer);

/* When to call health_check_poll() at the latest. */
uint64_t health_check_next_us(const struct health_check *check);

#endif
