/* Looks after a request that a server keeps for long, with side requests: who has the lock, for those who want to know,
 * and whether the server still answers. A process that hangs and a machine that has gone keep their connections;
 * without this it would be noticed only when the wait is over. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "answer.h"
#include "cli/arguments.h"
#include "client.h"

struct watch {
	struct http *http;
	const struct options *options;
	const struct server *server;
	bool wants_state;  /* somebody wants to know who has it */
	bool wants_health; /* there is another server to go to */
	bool asks_state;   /* the side request that is under way */
	uint64_t next_us;  /* when the next one is due */
};

enum watch_finding {
	WATCH_NOTHING,
	WATCH_STATE, /* ret_answer says who has the lock: answer_fini() it */
	WATCH_GONE   /* the server does not answer any more */
};

void watch_begin(struct watch *watch, bool wants_state, bool wants_health, uint64_t now_us);

/* After each http_wait(): takes the answer to the side request, begins the next one. */
enum watch_finding watch_look(struct watch *watch, uint64_t now_us, struct answer *ret_answer);

/* When to call watch_look() at the latest. */
uint64_t watch_next_us(const struct watch *watch);

#endif
