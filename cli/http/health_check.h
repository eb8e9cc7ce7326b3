/* Side requests while a server lets a request wait: who holds the lock, for the report, and whether the server still
 * answers. A process that hangs and a machine that is down keep their connections; without this they would be noticed
 * only at the end of the wait. */
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
	bool wants_state;  /* the report needs to know who holds the lock */
	bool wants_health; /* there is another server to ask */
	bool asks_state;   /* the side request that is under way */
	uint64_t next_us;  /* time of the next one */
};

enum health_check_finding {
	HEALTH_CHECK_NOTHING,
	HEALTH_CHECK_STATE, /* ret_answer says who holds the lock: answer_fini() it */
	HEALTH_CHECK_FAILED /* the server does not answer */
};

void health_check_begin(struct health_check *check, bool wants_state, bool wants_health, uint64_t now_us);

/* After each client_wait(): reads the answer to the side request, begins the next one. */
enum health_check_finding health_check_poll(struct health_check *check, uint64_t now_us, struct answer *ret_answer);

/* The latest time for the next health_check_poll(). */
uint64_t health_check_next_us(const struct health_check *check);

#endif
