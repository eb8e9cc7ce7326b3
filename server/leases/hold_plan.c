/* The rules of a held lease: see hold_plan.h. */
#include "hold_plan.h"

#include <assert.h>

void hold_plan_init(struct hold_plan *plan, uint64_t granted_us, uint64_t until_us, uint64_t ttl_us)
{
	assert(ttl_us > 0);
	*plan = (struct hold_plan){
		.ttl_us = ttl_us, .until_us = until_us, .next_us = granted_us + ttl_us / HOLD_RENEWALS_PER_TTL};
}

/* When the holder must be told at the latest that its lease is lost. */
static uint64_t end_us(const struct hold_plan *plan)
{
	return plan->until_us > HOLD_EARLY_US ? plan->until_us - HOLD_EARLY_US : 0;
}

uint64_t hold_plan_timer_us(const struct hold_plan *plan)
{
	uint64_t timer_us = end_us(plan);
	if (plan->over)
		return HOLD_NEVER;
	if (plan->draining && plan->drain_until_us < timer_us)
		timer_us = plan->drain_until_us;
	if (!plan->renewing && plan->next_us < timer_us)
		timer_us = plan->next_us;
	return timer_us;
}

static enum hold_action lose(struct hold_plan *plan, enum lease_status code, enum lease_status *ret_code)
{
	assert(!plan->over);
	plan->over = true;
	*ret_code = code;
	return HOLD_TELL_LOST;
}

static enum hold_action renew(struct hold_plan *plan, uint64_t now_us)
{
	assert(!plan->renewing && !plan->over);
	plan->renewing = true;
	plan->sent_us = now_us;
	return HOLD_DO_RENEW;
}

static enum hold_action end_drain(struct hold_plan *plan)
{
	assert(plan->draining && !plan->over);
	plan->over = true;
	return HOLD_TELL_DRAINING;
}

/* The validity has run out. At the bound of --max-hold-ms no answer of a master could have extended it. */
static enum lease_status code_at_end(const struct hold_plan *plan)
{
	return !plan->bounded && (plan->renewing || plan->doubtful) ? LEASE_NO_QUORUM : LEASE_EXPIRED;
}

enum hold_action hold_plan_timer(struct hold_plan *plan, uint64_t now_us, enum lease_status *ret_code)
{
	if (plan->over)
		return HOLD_DO_NOTHING;
	if (now_us >= end_us(plan))
		return lose(plan, code_at_end(plan), ret_code);
	if (plan->draining && now_us >= plan->drain_until_us)
		return end_drain(plan);
	return hold_plan_renews(plan, now_us) ? renew(plan, now_us) : HOLD_DO_NOTHING;
}

bool hold_plan_renews(const struct hold_plan *plan, uint64_t now_us)
{
	bool ends = plan->over || now_us >= end_us(plan) || (plan->draining && now_us >= plan->drain_until_us);
	return !ends && !plan->renewing && now_us >= plan->next_us;
}

void hold_plan_postpone(struct hold_plan *plan, uint64_t until_us)
{
	assert(!plan->renewing && until_us >= plan->next_us);
	plan->next_us = until_us;
}

static uint64_t pause_us(const struct hold_plan *plan)
{
	uint64_t pause_us = plan->ttl_us / HOLD_PAUSES_PER_TTL;
	return pause_us < HOLD_PAUSE_MAX_US ? pause_us : HOLD_PAUSE_MAX_US;
}

/* The validity counts from the request, as for every lease. An earlier promise stands: an extension never shortens. */
static void note_extension(struct hold_plan *plan, const struct lease_answer *answer)
{
	assert(answer->status == LEASE_OK);
	uint64_t ttl_us = answer->ttl_ms * UINT64_C(1000), drift_us = answer->drift_ms * UINT64_C(1000);
	uint64_t until_us = plan->sent_us + (ttl_us > drift_us ? ttl_us - drift_us : 0);
	if (until_us > plan->until_us)
		plan->until_us = until_us;
	plan->bounded = ttl_us < plan->ttl_us;
	plan->doubtful = false;
	plan->next_us = plan->sent_us + plan->ttl_us / HOLD_RENEWALS_PER_TTL;
}

enum hold_action hold_plan_answered(struct hold_plan *plan, uint64_t now_us, const struct lease_answer *answer,
				    enum lease_status *ret_code)
{
	assert(plan->renewing && !plan->over);
	plan->renewing = false;
	switch (answer->status) {
	case LEASE_OK: note_extension(plan, answer); break;
	case LEASE_NOT_OWNER:
	case LEASE_EXPIRED: return lose(plan, answer->status, ret_code);
	default: plan->doubtful = true; plan->next_us = now_us + pause_us(plan);
	}
	if (now_us >= end_us(plan))
		return lose(plan, code_at_end(plan), ret_code);
	if (plan->draining)
		return end_drain(plan);
	return plan->doubtful ? HOLD_DO_NOTHING : HOLD_TELL_RENEWED;
}

void hold_plan_drain(struct hold_plan *plan, uint64_t now_us, bool fresh)
{
	if (plan->over || plan->draining || now_us >= end_us(plan)) /* at its end the timer fires */
		return;
	uint64_t half_us = (plan->until_us - now_us) / 2; /* the other half is for the holder, to go on elsewhere */
	plan->draining = true;
	plan->drain_until_us = fresh ? now_us
				     : now_us + (half_us < HOLD_DRAIN_PATIENCE_US ? half_us : HOLD_DRAIN_PATIENCE_US);
	plan->next_us = now_us; /* a renewal under way is fresh enough */
}
