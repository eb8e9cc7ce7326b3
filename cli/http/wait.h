/* SPDX-License-Identifier: MIT */
/* Decides which server gets the next request for a lock, and when. Pure: the caller passes the time and the answers.
 *
 * The server keeps the waiters in a queue (wait_ms). If a server ends the wait early, another request follows. If it
 * fails, the next server gets the request. Servers without a queue get it again from time to time. */
#ifndef WAIT_H
#define WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answer.h"
#include "cli/base/cli_base.h"

struct wait {
	uint64_t end_us;             /* the end of the wait */
	bool none;                   /* --no-wait */
	bool is_lost, is_repeated;   /* an answer was lost; the request was repeated after the end of the wait */
	size_t servers, server;      /* their number; the one for the next request */
	uint64_t asked_us, asked_ms; /* the last request: its time, and its wait_ms */
	struct {
		uint64_t not_before_us; /* it failed, and gets no request before then */
	} at[SERVERS_MAX];
};

void wait_init(struct wait *wait, size_t servers, size_t server, uint64_t wait_ms, uint64_t now_us);

/* Call it when a request is sent to wait->server. Returns its wait_ms; 0: it is answered at once. */
uint64_t wait_ask(struct wait *wait, uint64_t now_us);

/* After an answer that was no lease: the time of the next request, now_us if it is sent at once. 0: the wait is given
 * up. */
uint64_t wait_next_us(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us);

#endif
