/* The state machine of the renewals: see renewal.h for the picture.
 *
 *   HOLDING --renew_us--> ASKING --extended--> HOLDING
 *                           | failed, not all servers asked: ASKING, the next server
 *                           | failed, all asked: PAUSING --renew_us--> ASKING
 *   any of these --lost, requested, terminate_us--> ENDING --kill_us--> KILLING (for ever: KILL is repeated)
 *   any of these --kill time, e.g. after a sleep of the machine--> KILLING */
#include "renewal.h"

#include <assert.h>
#include <stdbool.h>

enum {
	MARGIN_MIN_US = 20000,
	MARGIN_MAX_US = 500000,
	INTERVAL_MIN_US = 50000,
	PAUSE_MIN_US = 50000,
	PAUSE_MAX_US = 1000000
};
enum { TIMEOUT_MIN_US = 50000, KILL_AGAIN_US = 10000 };

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
	assert(min <= max);
	return value < min ? min : value > max ? max : value;
}

uint64_t renewal_margin_us(const struct renewal *renewal)
{
	return clamp(renewal->config.ttl_us / 25, MARGIN_MIN_US, MARGIN_MAX_US);
}

static uint64_t before(uint64_t time_us, uint64_t span_us)
{
	return time_us > span_us ? time_us - span_us : 0;
}

uint64_t renewal_kill_us(const struct renewal *renewal)
{
	return before(renewal->deadline_us, renewal_margin_us(renewal));
}

uint64_t renewal_terminate_us(const struct renewal *renewal)
{
	return before(renewal_kill_us(renewal), renewal->config.kill_after_us);
}

static void renewal_hold(struct renewal *renewal, uint64_t sent_us, uint64_t validity_us)
{
	assert(validity_us > 0);
	renewal->state = RENEWAL_HOLDING;
	renewal->failures = 0;
	renewal->renew_us = sent_us + (validity_us / 3 > INTERVAL_MIN_US ? validity_us / 3 : INTERVAL_MIN_US);
}

void renewal_init(struct renewal *renewal, const struct renewal_config *config, size_t server, uint64_t sent_us,
		  uint64_t validity_us)
{
	assert(config->servers > 0 && server < config->servers);
	*renewal = (struct renewal){.config = *config, .server = server, .deadline_us = sent_us + validity_us};
	renewal_hold(renewal, sent_us, validity_us);
}

static bool renewal_is_over(const struct renewal *renewal)
{
	return renewal->state == RENEWAL_ENDING || renewal->state == RENEWAL_KILLING;
}

/* SIGTERM now and SIGKILL --kill-after later, but never later than the lease allows. */
static enum renewal_action renewal_terminate(struct renewal *renewal, enum renewal_why why, uint64_t now_us)
{
	uint64_t last_us = renewal_kill_us(renewal);

	assert(why != RENEWAL_WHY_NONE);
	if (renewal_is_over(renewal))
		return RENEWAL_NOTHING;
	renewal->why = why;
	if (now_us >= last_us) {
		renewal->state = RENEWAL_KILLING;
		return RENEWAL_KILL;
	}
	renewal->state = RENEWAL_ENDING;
	renewal->kill_us = now_us + renewal->config.kill_after_us;
	if (renewal->kill_us > last_us)
		renewal->kill_us = last_us;
	return RENEWAL_TERMINATE;
}

static enum renewal_action renewal_time_ending(struct renewal *renewal, uint64_t now_us)
{
	assert(renewal_is_over(renewal));
	if (renewal->state == RENEWAL_ENDING && now_us < renewal->kill_us)
		return RENEWAL_NOTHING;
	renewal->state = RENEWAL_KILLING;
	return RENEWAL_KILL;
}

static enum renewal_why renewal_why_over(const struct renewal *renewal)
{
	assert(!renewal_is_over(renewal));
	if (renewal->state != RENEWAL_HOLDING)
		return RENEWAL_WHY_UNREACHABLE;
	return renewal->renew_us < renewal_terminate_us(renewal) ? RENEWAL_WHY_LATE : RENEWAL_WHY_BOUND;
}

enum renewal_action renewal_time(struct renewal *renewal, uint64_t now_us)
{
	if (renewal_is_over(renewal))
		return renewal_time_ending(renewal, now_us);
	if (now_us >= renewal_terminate_us(renewal))
		return renewal_terminate(renewal, renewal_why_over(renewal), now_us);
	if (renewal->state == RENEWAL_ASKING || now_us < renewal->renew_us)
		return RENEWAL_NOTHING;
	renewal->state = RENEWAL_ASKING;
	return RENEWAL_ASK;
}

void renewal_extended(struct renewal *renewal, uint64_t sent_us, uint64_t validity_us)
{
	if (renewal_is_over(renewal))
		return;
	assert(renewal->state == RENEWAL_ASKING);
	if (sent_us + validity_us > renewal->deadline_us)
		renewal->deadline_us = sent_us + validity_us;
	renewal_hold(renewal, sent_us, validity_us);
}

enum renewal_action renewal_failed(struct renewal *renewal, uint32_t random, uint64_t now_us)
{
	if (renewal_is_over(renewal))
		return RENEWAL_NOTHING;
	assert(renewal->state == RENEWAL_ASKING);
	renewal->server = (renewal->server + 1) % renewal->config.servers;
	renewal->failures++;
	uint64_t pause_us = clamp(renewal->config.ttl_us / 30, PAUSE_MIN_US, PAUSE_MAX_US);
	bool round_over = renewal->failures % renewal->config.servers == 0;
	renewal->state = RENEWAL_PAUSING;
	renewal->renew_us = round_over ? now_us + pause_us / 2 + pause_us / 2 * random / UINT32_MAX : now_us;
	return renewal_time(renewal, now_us);
}

enum renewal_action renewal_lost(struct renewal *renewal, uint64_t now_us)
{
	return renewal_terminate(renewal, RENEWAL_WHY_LOST, now_us);
}

enum renewal_action renewal_end(struct renewal *renewal, uint64_t now_us)
{
	return renewal_terminate(renewal, RENEWAL_WHY_REQUESTED, now_us);
}

uint64_t renewal_next_us(const struct renewal *renewal, uint64_t now_us)
{
	uint64_t terminate_us = renewal_terminate_us(renewal);

	if (renewal->state == RENEWAL_KILLING)
		return now_us + KILL_AGAIN_US;
	if (renewal->state == RENEWAL_ENDING)
		return renewal->kill_us;
	if (renewal->state == RENEWAL_ASKING || renewal->renew_us > terminate_us)
		return terminate_us;
	return renewal->renew_us;
}

uint64_t renewal_timeout_us(const struct renewal *renewal, uint64_t now_us)
{
	assert(renewal->config.servers > 0);
	uint64_t left_us = before(renewal_terminate_us(renewal), now_us) / (renewal->config.servers + 1);
	uint64_t longest_us = renewal->config.timeout_us > TIMEOUT_MIN_US ? renewal->config.timeout_us : TIMEOUT_MIN_US;
	return clamp(left_us, TIMEOUT_MIN_US, longest_us);
}
