/* Held leases: carries out the decisions of hold_plan.c, with one timer and at most one extension under way for each.
 *
 * A hold belongs to its creator until hold_drop(). The structs are kept for reuse, with their timers, until the worker
 * ends. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "hold_plan.h"
#include "leases.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"

struct hold {
	struct holds *holds;
	struct hold *next; /* in the list of the spare ones */
	struct hold *all_next;
	uv_timer_t timer;
	bool used;
	bool lost;
	struct hold_plan plan;
	struct lease_request request; /* the extension */
	struct lease_op *op;          /* the extension under way, or NULL */
	hold_event_fn *on_event;
	void *arg;
};

/* If many are to be renewed at once (after the machine slept, at a drain), each round of the loop renews a few: answers
 * that stay unread for too long while the loop sends requests would count as missing. */
enum { RENEWALS_PER_ROUND = 64 };

struct holds {
	uv_loop_t *loop;
	struct leases *leases;
	struct metrics *metrics;
	struct hold *all, *spare;
	size_t count;
	uint64_t round_ms;    /* the loop's time of the round … */
	unsigned round_count; /* … and how many renewals were to start in it */
	bool draining;
};

struct holds *holds_new(uv_loop_t *loop, struct leases *leases, struct metrics *metrics)
{
	assert(loop && leases && metrics);
	struct holds *holds = calloc(1, sizeof *holds);
	if (!holds)
		return NULL;
	holds->loop = loop;
	holds->leases = leases;
	holds->metrics = metrics;
	return holds;
}

static struct hold *get_spare(struct holds *holds)
{
	struct hold *hold = holds->spare;
	if (hold) {
		assert(!hold->used && !hold->op);
		holds->spare = hold->next;
		return hold;
	}
	hold = calloc(1, sizeof *hold);
	if (!hold || uv_timer_init(holds->loop, &hold->timer) != 0) {
		free(hold);
		return NULL;
	}
	hold->timer.data = hold;
	hold->holds = holds;
	hold->all_next = holds->all;
	holds->all = hold;
	return hold;
}

static void note_count(struct holds *holds, size_t count)
{
	holds->count = count;
	metrics_set(&holds->metrics->holds, count);
}

static void release(const struct hold *hold)
{
	struct lease_request request = hold->request;
	request.operation = LEASE_RELEASE;
	lease_release_detached(hold->holds->leases, &request);
}

/* ---- doing ---- */

static void on_timer(uv_timer_t *timer);
static void on_answer(void *arg, const struct lease_answer *answer);

static void arm_timer(struct hold *hold)
{
	uint64_t timer_us = hold_plan_timer_us(&hold->plan), now_us = clock_now_us();
	assert(hold->used);
	if (timer_us == HOLD_NEVER)
		uv_timer_stop(&hold->timer);
	else
		uv_timer_start(&hold->timer, on_timer, timer_us > now_us ? (timer_us - now_us + 999) / 1000 : 0, 0);
}

/* Releases what the masters may still have of the lease: it only keeps others waiting. */
static void note_lost(struct hold *hold, enum lease_status code)
{
	assert(!hold->lost && code != LEASE_OK && code < LEASE_STATUS_COUNT);
	hold->lost = true;
	metrics_add(&hold->holds->metrics->holds_lost[code], 1);
	if (hold->op)
		lease_cancel(hold->op);
	hold->op = NULL;
	release(hold);
}

/* Without memory for it: as if no master had answered. */
static enum hold_action renew(struct hold *hold, enum lease_status *ret_code)
{
	struct lease_answer failed = {.status = LEASE_NO_QUORUM};
	assert(!hold->op);
	hold->op = lease_submit(hold->holds->leases, &hold->request, on_answer, hold);
	return hold->op ? HOLD_DO_NOTHING : hold_plan_answered(&hold->plan, clock_now_us(), &failed, ret_code);
}

/* The caller's callback comes last: it may drop the hold. */
static void carry_out(struct hold *hold, enum hold_action action, enum lease_status code)
{
	static const enum hold_event events[] = {
		[HOLD_TELL_RENEWED] = HOLD_RENEWED, [HOLD_TELL_LOST] = HOLD_LOST, [HOLD_TELL_DRAINING] = HOLD_DRAINING};
	if (action == HOLD_DO_RENEW)
		action = renew(hold, &code);
	if (action == HOLD_TELL_LOST)
		note_lost(hold, code);
	arm_timer(hold);
	if (action == HOLD_TELL_RENEWED || action == HOLD_TELL_LOST || action == HOLD_TELL_DRAINING)
		hold->on_event(hold->arg, events[action], code);
}

/* Returns 0 to renew now; else how many ms later, one round for each. */
static uint64_t wait_for_turn_ms(struct holds *holds)
{
	uint64_t now_ms = uv_now(holds->loop);
	if (now_ms != holds->round_ms)
		holds->round_count = 0;
	holds->round_ms = now_ms;
	return holds->round_count++ / RENEWALS_PER_ROUND;
}

static void on_timer(uv_timer_t *timer)
{
	struct hold *hold = timer->data;
	enum lease_status code = LEASE_OK;
	uint64_t now_us = clock_now_us(),
		 wait_ms = hold_plan_renews(&hold->plan, now_us) ? wait_for_turn_ms(hold->holds) : 0;
	assert(hold->used);
	if (wait_ms > 0) {
		hold_plan_postpone(&hold->plan, now_us + wait_ms * 1000);
		arm_timer(hold);
		return;
	}
	enum hold_action action = hold_plan_timer(&hold->plan, now_us, &code);
	carry_out(hold, action, code);
}

static void on_answer(void *arg, const struct lease_answer *answer)
{
	struct hold *hold = arg;
	enum lease_status code = LEASE_OK;
	assert(hold->used && hold->op);
	hold->op = NULL;
	if (hold->plan.over) /* a drain did not wait for the answer */
		return;
	enum hold_action action = hold_plan_answered(&hold->plan, clock_now_us(), answer, &code);
	carry_out(hold, action, code);
}

/* ---- what the HTTP side calls ---- */

struct hold *hold_new(struct holds *holds, const struct lease_request *request, const struct lease_answer *answer,
		      hold_event_fn *on_event, void *arg)
{
	assert(request->operation == LEASE_ACQUIRE && answer->status == LEASE_OK);
	struct hold *hold = get_spare(holds);
	if (!hold)
		return NULL;
	uint64_t now_us = clock_now_us();
	hold->used = true;
	hold->lost = false;
	hold->op = NULL;
	hold->on_event = on_event;
	hold->arg = arg;
	hold->request = (struct lease_request){
		.operation = LEASE_EXTEND, .ttl_ms = request->ttl_ms, .resource_len = request->resource_len};
	memcpy(hold->request.resource, request->resource, request->resource_len);
	memcpy(hold->request.token, answer->token, LEASE_TOKEN_LEN);
	/* Both counted from the decision: this process may have been stopped since then. */
	uint64_t granted_us = answer->until_us - answer->validity_ms * UINT64_C(1000);
	hold_plan_init(&hold->plan, granted_us, answer->until_us, request->ttl_ms * UINT64_C(1000));
	note_count(holds, holds->count + 1);
	if (holds->draining)
		hold_plan_drain(&hold->plan, now_us, true); /* the timer tells it */
	arm_timer(hold);
	return hold;
}

uint32_t hold_validity_ms(const struct hold *hold)
{
	uint64_t now_us = clock_now_us(), until_us = hold->plan.until_us;
	assert(hold->used);
	return until_us > now_us ? (uint32_t)((until_us - now_us) / 1000) : 0;
}

void hold_drop(struct hold *hold, bool releasing)
{
	struct holds *holds = hold->holds;
	assert(hold->used && holds->count > 0);
	if (hold->op)
		lease_cancel(hold->op);
	hold->op = NULL;
	if (releasing && !hold->lost)
		release(hold);
	uv_timer_stop(&hold->timer);
	hold->used = false;
	hold->next = holds->spare;
	holds->spare = hold;
	note_count(holds, holds->count - 1);
}

/* ---- what the worker calls ---- */

void holds_drain(struct holds *holds)
{
	uint64_t now_us = clock_now_us();
	holds->draining = true;
	for (struct hold *hold = holds->all; hold; hold = hold->all_next) {
		if (!hold->used)
			continue;
		hold_plan_drain(&hold->plan, now_us, false);
		arm_timer(hold);
	}
}

void holds_close(struct holds *holds)
{
	assert(holds->count == 0);
	for (struct hold *hold = holds->all; hold; hold = hold->all_next)
		uv_close((uv_handle_t *)&hold->timer, NULL);
}

void holds_free(struct holds *holds)
{
	while (holds->all) {
		struct hold *next = holds->all->all_next;
		free(holds->all);
		holds->all = next;
	}
	free(holds);
}
