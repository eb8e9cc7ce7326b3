/* SPDX-License-Identifier: MIT */
/* The state machine of the renewals: see renewal.h for the picture.
 *
 *   IDLE --next_us--> ASKING --extended--> IDLE
 *                          | failed: PAUSING --next_us--> ASKING
 *   any of these --lost, requested, drained, end_us--> ENDING --kill_us--> KILLING (for ever: KILL is repeated)
 *   any of these --kill time, e.g. after a sleep of the machine--> KILLING */
#include "renewal.h"

#include <assert.h>

enum {
	RENEWALS_PER_TTL = 3,
	PAUSES_PER_TTL = 10,
	PAUSE_MAX_US = 1000000, /* a server that has returned is found soon */
	DRAIN_PATIENCE_US = 500000,
	KILL_AGAIN_US = 10000
};

static uint64_t before(uint64_t time_us, uint64_t span_us)
{
	return time_us > span_us ? time_us - span_us : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t renewal_kill_us(const struct renewal *renewal)
{
	return before(renewal->deadline_us, renewal->config.margin_us);
}

uint64_t renewal_end_us(const struct renewal *renewal)
{
	return before(renewal_kill_us(renewal), renewal->config.notice_us);
}

uint64_t renewal_pause_us(const struct renewal *renewal)
{
	assert(renewal->config.ttl_us > 0);
	return smaller(renewal->config.ttl_us / PAUSES_PER_TTL, PAUSE_MAX_US);
}

bool renewal_is_over(const struct renewal *renewal)
{
	assert((renewal->why != RENEWAL_WHY_NONE) == (renewal->state >= RENEWAL_ENDING));
	return renewal->state >= RENEWAL_ENDING;
}

void renewal_init(struct renewal *renewal, const struct renewal_config *config, uint64_t sent_us, uint64_t validity_us)
{
	assert(config->ttl_us > 0 && config->margin_us > 0);
	*renewal = (struct renewal){.config = *config,
				    .deadline_us = sent_us + validity_us,
				    .next_us = sent_us + validity_us / RENEWALS_PER_TTL,
				    .drain_us = UINT64_MAX};
}

/* The notice has its full length, but ends no later than the lease allows. */
enum renewal_action renewal_finish(struct renewal *renewal, enum renewal_why why, uint64_t now_us)
{
	uint64_t last_us = renewal_kill_us(renewal);
	assert(why != RENEWAL_WHY_NONE);
	if (renewal_is_over(renewal))
		return RENEWAL_NOTHING;
	renewal->why = why;
	renewal->state = now_us < last_us ? RENEWAL_ENDING : RENEWAL_KILLING;
	renewal->kill_us = smaller(now_us + renewal->config.notice_us, last_us);
	return renewal->state == RENEWAL_ENDING ? RENEWAL_END : RENEWAL_KILL;
}

/* At the bound no answer could have extended the lease. */
static enum renewal_why renewal_why_at_end(const struct renewal *renewal)
{
	assert(!renewal_is_over(renewal));
	if (renewal->state != RENEWAL_IDLE)
		return renewal->bounded ? RENEWAL_WHY_BOUND : RENEWAL_WHY_UNREACHABLE;
	return renewal->next_us < renewal_end_us(renewal) ? RENEWAL_WHY_LATE : RENEWAL_WHY_BOUND;
}

/* True if renewal_time() returns RENEWAL_ASK now. */
static bool renewal_is_due(const struct renewal *renewal, uint64_t now_us)
{
	return !renewal_is_over(renewal) && renewal->state != RENEWAL_ASKING && now_us >= renewal->next_us &&
	       now_us < smaller(renewal_end_us(renewal), renewal->drain_us);
}

enum renewal_action renewal_time(struct renewal *renewal, uint64_t now_us)
{
	if (renewal_is_over(renewal)) {
		if (renewal->state == RENEWAL_ENDING && now_us < renewal->kill_us)
			return RENEWAL_NOTHING;
		renewal->state = RENEWAL_KILLING;
		return RENEWAL_KILL;
	}
	if (now_us >= renewal_end_us(renewal))
		return renewal_finish(renewal, renewal_why_at_end(renewal), now_us);
	if (now_us >= renewal->drain_us)
		return renewal_finish(renewal, RENEWAL_WHY_DRAINING, now_us);
	if (!renewal_is_due(renewal, now_us))
		return RENEWAL_NOTHING;
	renewal->state = RENEWAL_ASKING;
	renewal->sent_us = now_us;
	return RENEWAL_ASK;
}

/* A drain waits for nothing after a result. renewal_time() sends the next request. */
static enum renewal_action renewal_schedule(struct renewal *renewal, enum renewal_state state, uint64_t next_us,
					    uint64_t now_us)
{
	assert(renewal->state == RENEWAL_ASKING && state != RENEWAL_ASKING);
	renewal->state = state;
	renewal->next_us = next_us;
	if (renewal->drain_us != UINT64_MAX)
		renewal->drain_us = now_us;
	return renewal_is_due(renewal, now_us) ? RENEWAL_NOTHING : renewal_time(renewal, now_us);
}

enum renewal_action renewal_extended(struct renewal *renewal, uint64_t ttl_us, uint64_t validity_us, uint64_t now_us)
{
	uint64_t until_us = renewal->sent_us + validity_us;
	if (renewal_is_over(renewal))
		return RENEWAL_NOTHING;
	if (until_us > renewal->deadline_us)
		renewal->deadline_us = until_us;
	renewal->bounded = ttl_us < renewal->config.ttl_us;
	/* near the bound the validity gets shorter with each extension; the interval must not */
	uint64_t interval_us = (renewal->bounded ? renewal->config.ttl_us : validity_us) / RENEWALS_PER_TTL;
	return renewal_schedule(renewal, RENEWAL_IDLE, renewal->sent_us + interval_us, now_us);
}

enum renewal_action renewal_failed(struct renewal *renewal, uint64_t pause_us, uint64_t now_us)
{
	return renewal_is_over(renewal) ? RENEWAL_NOTHING
					: renewal_schedule(renewal, RENEWAL_PAUSING, now_us + pause_us, now_us);
}

void renewal_drain(struct renewal *renewal, uint64_t now_us, bool fresh)
{
	if (renewal_is_over(renewal) || renewal->drain_us != UINT64_MAX || now_us >= renewal_end_us(renewal))
		return; /* at its end the timer fires */
	/* the other half is for the holder, to go on elsewhere */
	uint64_t half_us = (renewal->deadline_us - now_us) / 2;
	renewal->drain_us = fresh ? now_us : now_us + smaller(half_us, DRAIN_PATIENCE_US);
	renewal->next_us = now_us; /* a request under way is fresh enough */
}

uint64_t renewal_next_us(const struct renewal *renewal, uint64_t now_us)
{
	uint64_t last_us = smaller(renewal_end_us(renewal), renewal->drain_us);
	if (renewal_is_over(renewal))
		return renewal->state == RENEWAL_KILLING ? now_us + KILL_AGAIN_US : renewal->kill_us;
	return renewal->state == RENEWAL_ASKING ? last_us : smaller(renewal->next_us, last_us);
}
