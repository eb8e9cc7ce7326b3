/* SPDX-License-Identifier: MIT */
/* Waits for a lock. See wait.h.
 *
 * A request asks for the rest of the wait, at most a minute, since proxies end longer ones; a server may shorten it
 * (--max-wait-ms). After a wait the server keeps its place for the next request, which has the same key.
 *
 *   held               asked again at once if the server has let the request wait; otherwise after a random pause of at
 *                      most a second, and of at most retry_after_ms, since a holder may release early
 *   split vote         a short random pause, at least half a second after the last request; then the same server
 *   no answer, 503     this server has a pause of up to a second; the next one that has none is asked at once
 *   429                the same, with the pause that the server named
 *   not trusted        (its certificate) this server is not asked again; the next one at once
 *   anything else      the wait is given up */
#include "wait.h"

#include <assert.h>

enum { PAUSE_MIN_MS = 50, PAUSE_MAX_MS = 1000, PAUSE_SPLIT_MS = 200, REQUEST_MAX_MS = 60000 };
enum { AGAIN_US = 500000 }; /* a server does not get the same request more often, whatever it answers */

void wait_init(struct wait *wait, size_t servers, size_t server, uint64_t wait_ms, uint64_t now_us)
{
	assert(server < servers && servers <= SERVERS_MAX);
	*wait = (struct wait){
		.servers = servers, .server = server, .none = wait_ms == 0, .end_us = now_us + wait_ms * 1000};
}

uint64_t wait_ask(struct wait *wait, uint64_t now_us)
{
	uint64_t left_ms = now_us < wait->end_us ? (wait->end_us - now_us + 999) / 1000 : 0;
	assert(wait->server < wait->servers);
	wait->asked_us = now_us;
	wait->asked_ms = left_ms < REQUEST_MAX_MS ? left_ms : REQUEST_MAX_MS;
	return wait->asked_ms;
}

/* Returns until_us, but no time after the end of the wait, so that there is a last try. */
static uint64_t wait_until_us(const struct wait *wait, uint64_t until_us, uint64_t now_us)
{
	if (now_us >= wait->end_us)
		return 0;
	return until_us < wait->end_us ? until_us : wait->end_us;
}

/* Between half of the longest pause and all of it. */
static uint64_t wait_pause_us(uint64_t longest_ms, uint32_t random)
{
	if (longest_ms > PAUSE_MAX_MS)
		longest_ms = PAUSE_MAX_MS;
	if (longest_ms < PAUSE_MIN_MS)
		longest_ms = PAUSE_MIN_MS;
	return longest_ms * 500 + longest_ms * 500 * random / UINT32_MAX;
}

static uint64_t wait_next_split(const struct wait *wait, uint32_t random, uint64_t now_us)
{
	uint64_t soonest_us = wait->asked_us + AGAIN_US, next_us = now_us + wait_pause_us(PAUSE_SPLIT_MS, random);
	return wait_until_us(wait, next_us < soonest_us ? soonest_us : next_us, now_us);
}

static uint64_t wait_next_held(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us)
{
	bool has_waited = wait->asked_ms >= PAUSE_MIN_MS && now_us - wait->asked_us >= wait->asked_ms * 1000 / 2;
	assert(now_us >= wait->asked_us);
	uint64_t soonest_us = wait->asked_us + AGAIN_US;
	uint64_t next_us = has_waited || answer->place_kept_ms > 0
				   ? now_us
				   : now_us + wait_pause_us(answer->retry_after_ms, random);
	if (next_us < soonest_us)
		next_us = soonest_us;
	return wait_until_us(wait, next_us, now_us);
}

/* The pause of a server that failed: not shorter than the one that it named, and random, so that clients do not all
 * return at once. */
static uint64_t wait_failure_us(const struct answer *answer, uint32_t random)
{
	if (!answer->is_busy || answer->retry_after_ms == 0)
		return wait_pause_us(PAUSE_MAX_MS, random);
	return answer->retry_after_ms * 1000 + answer->retry_after_ms * 500 * random / UINT32_MAX;
}

/* The next server, in their order, that may be asked now; otherwise the one whose pause ends first. With --no-wait, and
 * when the time is up, each is asked once. A certificate does not become good by waiting. */
static uint64_t wait_next_server(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us)
{
	size_t failed = wait->server, earliest = failed;
	wait->at[failed].not_before_us = answer->outcome == OUTCOME_UNTRUSTED
						 ? UINT64_MAX
						 : now_us + wait_failure_us(answer, random);
	for (size_t i = 1; i < wait->servers; i++) {
		size_t server = (failed + i) % wait->servers;
		if (wait->none ? wait->at[server].not_before_us == 0 : wait->at[server].not_before_us <= now_us) {
			wait->server = server;
			return now_us;
		}
		if (wait->at[server].not_before_us < wait->at[earliest].not_before_us)
			earliest = server;
	}
	wait->server = earliest;
	uint64_t until_us = wait->at[earliest].not_before_us;
	return until_us == UINT64_MAX ? 0 : wait_until_us(wait, until_us, now_us);
}

/* A lease may have been granted, and its answer lost: the request is sent once more, even after the wait. */
static uint64_t wait_next_unanswered(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us)
{
	size_t asked = wait->server;
	uint64_t next_us = wait_next_server(wait, answer, random, now_us);
	wait->is_lost |= answer->is_lost;
	if (next_us != 0 || !wait->is_lost || wait->is_repeated)
		return next_us;
	wait->is_repeated = true;
	wait->server = asked;
	return now_us;
}

uint64_t wait_next_us(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us)
{
	assert(wait->server < wait->servers && answer->outcome != OUTCOME_DONE);
	switch (answer->outcome) {
	case OUTCOME_HELD: return wait_next_held(wait, answer, random, now_us);
	case OUTCOME_SPLIT: return wait_next_split(wait, random, now_us);
	case OUTCOME_UNAVAILABLE:
	case OUTCOME_UNTRUSTED: return wait_next_unanswered(wait, answer, random, now_us);
	default: return 0;
	}
}
