/* SPDX-License-Identifier: MIT */
/* Held leases: carries out the decisions of renewal.c, with one timer and at most one extension under way for each.
 *
 * The answer to an extension also has the number of waiters, and the extension asks for a message when the first one
 * comes (lease_watch.c). Since the first renewal may be far away, a lease that has been held for ASK_US is extended to
 * the end that it has. So a short hold costs nothing more.
 *
 * A hold belongs to its creator until hold_drop(). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/queue.h>

#include "leases.h"
#include "server/base/base.h"
#include "server/metrics/metrics.h"
#include "server/renewal/renewal.h"
#include "server/transport/transport.h"

struct hold {
	LIST_ENTRY(hold) entry;
	struct holds *holds;
	struct transport_timer *timer;
	struct renewal renewal;
	struct lease_request request; /* the extension */
	struct lease_op *op;          /* the extension under way, or NULL */
	uint64_t ask_us;      /* when waiters are first asked for, before any renewal; UINT64_MAX: never again */
	struct lease_op *ask; /* that extension, or NULL */
	struct lease_wanted *listens; /* NULL: not yet */
	uint32_t waiters;             /* as far as they are known */
	bool is_wanted;               /* the caller does not know it yet */
	uint16_t wanted_by;           /* bit i: master i has reported the present first waiter, or need not */
	bool has_key;
	hold_event_fn *on_event;
	void *arg;
};

enum { ASK_US = 500000 };
enum { HOLD_EARLY_US = 1000 }; /* less validity than this counts as none: the holder could not be informed in time */

struct holds {
	struct uv_loop_s *loop;
	struct leases *leases;
	struct metrics *metrics;
	LIST_HEAD(, hold) all;
	bool draining;
};

struct holds *holds_new(struct uv_loop_s *loop, struct leases *leases, struct metrics *metrics)
{
	assert(loop && leases && metrics);
	struct holds *holds = memory_zeroed(1, sizeof *holds);
	holds->loop = loop;
	holds->leases = leases;
	holds->metrics = metrics;
	return holds;
}

static void release_held(const struct hold *hold)
{
	struct lease_request request = hold->request;
	request.operation = LEASE_RELEASE;
	(void)lease_submit(hold->holds->leases, &request, NULL, NULL);
}

/* ---- actions ---- */

static void on_extension_answer(void *arg, const struct lease_answer *answer);

/* ---- waiters ---- */

/* A master that reports a first waiter again has seen an empty queue in between. The reports of the other masters are
 * of the same waiter. lease_wanted_fn */
static void on_wanted(void *arg, unsigned master)
{
	struct hold *hold = arg;
	uint16_t bit = (uint16_t)(1U << master);
	bool is_new = hold->wanted_by == 0 || (hold->wanted_by & bit) != 0;
	hold->wanted_by = is_new ? bit : hold->wanted_by | bit;
	if (!is_new || renewal_is_over(&hold->renewal))
		return;
	hold->waiters = hold->waiters > 0 ? hold->waiters : 1;
	hold->is_wanted = true;
	hold->on_event(hold->arg, HOLD_WANTED, LEASE_OK);
}

/* A message may have been lost, or the lease was granted with others waiting. */
static void store_waiters(struct hold *hold, uint32_t waiters)
{
	if (waiters > 0 && hold->waiters == 0) {
		hold->is_wanted = true;
		hold->wanted_by = UINT16_MAX;
	}
	hold->waiters = waiters;
}

/* lease_done_fn */
static void on_asked(void *arg, const struct lease_answer *answer)
{
	struct hold *hold = arg;
	hold->ask = NULL;
	if (answer->status != LEASE_OK || renewal_is_over(&hold->renewal))
		return;
	store_waiters(hold, answer->waiters);
	if (hold->is_wanted)
		hold->on_event(hold->arg, HOLD_WANTED, LEASE_OK);
}

static void listen_to_waiters(struct hold *hold)
{
	hold->ask_us = UINT64_MAX;
	if (!hold->listens)
		hold->listens = lease_wanted_listen(hold->holds->leases, &hold->request, on_wanted, hold);
}

/* The lease gets no longer by this. */
static void ask_for_waiters(struct hold *hold)
{
	struct lease_request request = hold->request;
	assert(!hold->ask && !hold->op);
	listen_to_waiters(hold);
	request.ttl_ms = hold_validity_ms(hold);
	request.unasked = true;
	if (request.ttl_ms > 0)
		hold->ask = lease_submit(hold->holds->leases, &request, on_asked, hold);
}

/* ---- renewals ---- */

static bool is_lost(const struct hold *hold)
{
	return renewal_is_over(&hold->renewal) && hold->renewal.why != RENEWAL_WHY_DRAINING;
}

static void arm_renewal_timer(struct hold *hold)
{
	uint64_t now_us = clock_now_us(), timer_us = MIN(renewal_next_us(&hold->renewal, now_us), hold->ask_us);
	if (renewal_is_over(&hold->renewal))
		transport_timer_stop(hold->timer);
	else
		transport_timer_start(hold->timer, timer_us > now_us ? (timer_us - now_us + 999) / 1000 : 0);
}

static void cancel_renewal(struct hold *hold)
{
	if (hold->op)
		lease_cancel(hold->op);
	hold->op = NULL;
}

/* Releases what is left of a lost lease on the masters, since it only keeps others waiting. A lease with a key stays:
 * another connection may hold it by now. */
static void end_lost_hold(struct hold *hold, enum lease_status code)
{
	assert(is_lost(hold) && code != LEASE_OK && code < LEASE_STATUS_COUNT);
	metrics_add(&hold->holds->metrics->holds_lost[code], 1);
	cancel_renewal(hold);
	if (!hold->has_key)
		release_held(hold);
}

/* Returns why the lease is lost. `answer`: to the extension; NULL: its time is over. */
static enum lease_status lost_code(const struct hold *hold, const struct lease_answer *answer)
{
	assert(answer || hold->renewal.why != RENEWAL_WHY_LOST);
	if (hold->renewal.why == RENEWAL_WHY_LOST)
		return answer->status;
	return hold->renewal.why == RENEWAL_WHY_UNREACHABLE ? LEASE_NO_QUORUM : LEASE_EXPIRED;
}

/* The caller's callback comes last: it may drop the hold. */
static void carry_out(struct hold *hold, enum renewal_action action, const struct lease_answer *answer)
{
	bool over = renewal_is_over(&hold->renewal), lost = is_lost(hold);
	enum lease_status code = lost ? lost_code(hold, answer) : LEASE_OK;
	assert(action != RENEWAL_ASK || !hold->op);
	if (action == RENEWAL_ASK) {
		listen_to_waiters(hold);
		hold->op = lease_submit(hold->holds->leases, &hold->request, on_extension_answer, hold);
	}
	if (lost)
		end_lost_hold(hold, code);
	arm_renewal_timer(hold);
	if (over)
		hold->on_event(hold->arg, lost ? HOLD_LOST : HOLD_DRAINING, code);
	else if (answer && answer->status == LEASE_OK)
		hold->on_event(hold->arg, HOLD_RENEWED, code);
}

static void on_renewal_time(void *arg)
{
	struct hold *hold = arg;
	uint64_t now_us = clock_now_us();
	enum renewal_action action = renewal_time(&hold->renewal, now_us);
	if (action == RENEWAL_NOTHING && now_us >= hold->ask_us && !renewal_is_over(&hold->renewal))
		ask_for_waiters(hold);
	carry_out(hold, action, NULL);
}

/* The validity of an extension counts from the request, as for every lease. */
static void on_extension_answer(void *arg, const struct lease_answer *answer)
{
	struct hold *hold = arg;
	uint64_t now_us = clock_now_us(), ttl_us = answer->ttl_ms * UINT64_C(1000),
		 drift_us = answer->drift_ms * UINT64_C(1000);
	enum renewal_action action;
	assert(hold->op);
	hold->op = NULL;
	if (renewal_is_over(&hold->renewal)) /* a drain did not wait for the answer */
		return;
	switch (answer->status) {
	case LEASE_OK:
		store_waiters(hold, answer->waiters);
		action = renewal_extended(&hold->renewal, ttl_us, ttl_us > drift_us ? ttl_us - drift_us : 0, now_us);
		break;
	case LEASE_NOT_OWNER:
	case LEASE_EXPIRED: action = renewal_finish(&hold->renewal, RENEWAL_WHY_LOST, now_us); break;
	default: action = renewal_failed(&hold->renewal, renewal_pause_us(&hold->renewal), now_us);
	}
	carry_out(hold, action, answer);
}

/* ---- what the HTTP side calls ---- */

struct hold *hold_new(struct holds *holds, const struct lease_request *request, const struct lease_answer *answer,
		      hold_event_fn *on_event, void *arg)
{
	assert(request->operation == LEASE_ACQUIRE && answer->status == LEASE_OK);
	struct hold *hold = memory_zeroed(1, sizeof *hold);
	LIST_INSERT_HEAD(&holds->all, hold, entry);
	hold->holds = holds;
	hold->timer = transport_timer_new(holds->loop, on_renewal_time, hold);
	hold->on_event = on_event;
	hold->arg = arg;
	hold->has_key = request->key != 0;
	hold->request = (struct lease_request){.operation = LEASE_EXTEND,
					       .hold = true,
					       .ttl_ms = request->ttl_ms,
					       .set_count = request->set_count,
					       .resource_len = request->resource_len,
					       .resource = memory_copy(request->resource, request->resource_len)};
	memcpy(hold->request.token, answer->token, LEASE_TOKEN_LEN);
	/* Start and validity are those of the decision: this process may have been stopped since then. */
	uint64_t validity_us = answer->validity_ms * UINT64_C(1000);
	struct renewal_config config = {.ttl_us = request->ttl_ms * UINT64_C(1000), .margin_us = HOLD_EARLY_US};
	renewal_init(&hold->renewal, &config, answer->until_us - validity_us, validity_us);
	hold->ask_us = answer->until_us - validity_us + ASK_US;
	metrics_add(&holds->metrics->holds, 1);
	if (holds->draining)
		renewal_drain(&hold->renewal, clock_now_us(), true); /* the timer reports it */
	arm_renewal_timer(hold);
	return hold;
}

uint32_t hold_validity_ms(const struct hold *hold)
{
	uint64_t now_us = clock_now_us(), until_us = hold->renewal.deadline_us;
	return until_us > now_us ? (uint32_t)((until_us - now_us) / 1000) : 0;
}

uint32_t hold_waiters(const struct hold *hold)
{
	return hold->waiters;
}

bool hold_take_wanted(struct hold *hold)
{
	bool is_wanted = hold->is_wanted;
	hold->is_wanted = false;
	return is_wanted;
}

void hold_drop(struct hold *hold, bool releasing)
{
	cancel_renewal(hold);
	if (hold->ask)
		lease_cancel(hold->ask);
	if (hold->listens)
		lease_wanted_end(hold->listens);
	if (releasing && !is_lost(hold))
		release_held(hold);
	metrics_add(&hold->holds->metrics->holds, (uint64_t)-1);
	transport_timer_free(hold->timer);
	LIST_REMOVE(hold, entry);
	free((char *)hold->request.resource);
	free(hold);
}

/* ---- what the worker calls ---- */

void holds_drain(struct holds *holds)
{
	uint64_t now_us = clock_now_us();
	holds->draining = true;
	for (struct hold *hold = LIST_FIRST(&holds->all); hold; hold = LIST_NEXT(hold, entry)) {
		renewal_drain(&hold->renewal, now_us, false);
		arm_renewal_timer(hold);
	}
}

void holds_free(struct holds *holds)
{
	assert(LIST_EMPTY(&holds->all));
	free(holds);
}
