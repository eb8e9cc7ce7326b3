/* Waiting for a lock from the outside: ask, pause, ask again. See wait.h.
 *
 *   held, split vote   the server is right: pause a random while, at most a second, and ask it again. A holder may give back
 *                      long before its lease is over, so retry_after_ms bounds the pause from above and no more
 *   no answer, 503     the next server at once; when all of them were asked, a pause
 *   anything else      no use in waiting
 *
 * When the server can wait (wait_ms), wait_ask() is to set ret.wait_ms to what is left, at most the server's bound, and
 * wait_next() to go on at once after WAIT_ASK answered "held" with time left. The callers pass wait_ms on already. */
#include "wait.h"

#include <assert.h>

enum { PAUSE_MIN_MS = 50, PAUSE_MAX_MS = 1000 };

void wait_init(struct wait *wait, size_t servers, size_t server, uint64_t wait_ms, uint64_t now_us)
{
	assert(server < servers);
	*wait = (struct wait){.servers = servers, .server = server, .none = wait_ms == 0, .end_us = now_us + wait_ms * 1000};
}

struct wait_step wait_ask(const struct wait *wait, uint64_t now_us)
{
	(void)wait;
	(void)now_us;
	return (struct wait_step){.what = WAIT_ASK, .wait_ms = 0};
}

/* Between half of the longest pause and all of it; never past the end, so that the last try is there. */
static struct wait_step wait_pause(const struct wait *wait, uint64_t longest_ms, uint32_t random, uint64_t now_us)
{
	if (longest_ms > PAUSE_MAX_MS)
		longest_ms = PAUSE_MAX_MS;
	if (longest_ms < PAUSE_MIN_MS)
		longest_ms = PAUSE_MIN_MS;
	uint64_t pause_us = longest_ms * 500 + longest_ms * 500 * random / UINT32_MAX;
	if (wait->none || now_us >= wait->end_us)
		return (struct wait_step){.what = WAIT_GIVE_UP};
	uint64_t until_us = now_us + pause_us;
	return (struct wait_step){.what = WAIT_PAUSE, .until_us = until_us < wait->end_us ? until_us : wait->end_us};
}

struct wait_step wait_next(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us)
{
	switch (answer->outcome) {
	case OUTCOME_HELD:
		wait->unavailable = 0;
		return wait_pause(wait, answer->retry_after_ms, random, now_us);
	case OUTCOME_SPLIT:
		wait->unavailable = 0;
		return wait_pause(wait, 200, random, now_us);
	case OUTCOME_UNAVAILABLE:
		wait->server = (wait->server + 1) % wait->servers;
		if (++wait->unavailable % wait->servers != 0)
			return wait_ask(wait, now_us);
		return wait_pause(wait, PAUSE_MAX_MS, random, now_us);
	default:
		return (struct wait_step){.what = WAIT_GIVE_UP};
	}
}
