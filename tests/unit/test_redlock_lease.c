/* SPDX-License-Identifier: MIT */
/* The core, rule by rule: extend, release and inspect, cancels, and what the caller must not do. See test_redlock.c. */
#include <signal.h>

#include "redlock_cases.h"
#include "suite.h"

/* ---- release ---- */

/* A release does not need a ttl that a lease could have. */
TEST_EACH(test_release_waits_for_the_whole_master_timeout, 0, 2)
{
	struct redlock_params params = params_of(_i ? REDLOCK_RELEASE : REDLOCK_INSPECT, 3, 0);
	struct driver driver;

	params.ttl_us = 0;
	driver_init(&driver, &params, 1);
	driver_start(&driver, T);
	ck_assert_uint_eq(redlock_deadline_us(&driver.op), T + TIMEOUT);
	driver_timer(&driver, T + TIMEOUT);
	decided(&driver, REDLOCK_NO_QUORUM, 0);
	driver_finish(&driver, FAILED);
}

static const struct {
	bool keeps;
	enum redlock_vote votes[3];
	uint64_t after_us; /* when the last vote comes */
	enum redlock_outcome outcome;
} releases[] = {
	{false, {GRANTED, GONE, FAILED}, 0, REDLOCK_OK},
	{false, {GRANTED, GRANTED, GONE}, TIMEOUT + 1, REDLOCK_OK},
	{true, {GRANTED, GRANTED, GONE}, TIMEOUT, REDLOCK_OK},
	{true, {GRANTED, GRANTED, GONE}, TIMEOUT + 1, REDLOCK_NO_QUORUM}, /* a quarantine may have ended without it */
	{true, {GRANTED, GONE, FAILED}, 0, REDLOCK_NO_QUORUM},
	{true, {GONE, GONE, GRANTED}, 0, REDLOCK_EXPIRED},
};

/* A lock is kept if a majority keeps it in time. */
TEST_EACH(test_a_release_that_keeps_needs_a_majority, 0, sizeof releases / sizeof *releases)
{
	struct redlock_params params = params_of(REDLOCK_RELEASE, 3, 0);
	struct driver driver;
	params.keeps = releases[_i].keeps;
	driver_init(&driver, &params, 1);
	driver_start(&driver, T);
	for (unsigned i = 0; i < 3 && !driver.done; i++)
		driver_vote(&driver, i > 0 ? T + releases[_i].after_us : T, i, releases[_i].votes[i]);
	ck_assert(driver.done);
	ck_assert_int_eq(driver.result.outcome, releases[_i].outcome);
	driver_finish(&driver, FAILED);
}

/* ---- inspect ---- */

TEST_EACH(test_cancel_after_the_answer_does_nothing, REDLOCK_ACQUIRE, REDLOCK_INSPECT + 1)
{
	struct driver driver = started((enum redlock_kind)_i, 1, 1);

	driver_vote(&driver, T, 0, _i == REDLOCK_INSPECT ? GONE : GRANTED);
	decided(&driver, REDLOCK_OK, 0);
	ck_assert(driver.finished);
	driver_cancel(&driver, T);
	quiet(&driver);
}

/* ---- programmer errors ---- */

TEST_SIGNAL(test_bad_parameters_are_asserted, 0, 5, SIGABRT)
{
	struct redlock_params params = params_of(REDLOCK_ACQUIRE, 3, 1);
	struct redlock op;

	switch (_i) {
	case 0: params.masters = 0; break;
	case 1: params.masters = REDLOCK_MASTERS_MAX + 1; break;
	case 2: params.tries = 0; break;
	case 3: params.ttl_us = 0; break;
	case 4: params.retry_min_us = params.retry_max_us + 1; break;
	}
	redlock_init(&op, &params, 1);
}

TEST_SIGNAL(test_replies_that_were_not_asked_for_are_asserted, 0, 2, SIGABRT)
{
	struct redlock_event event = {.kind = REDLOCK_REPLY, .now_us = T, .attempt = 1, .vote = REDLOCK_VOTE_GRANTED};
	struct driver driver = started(REDLOCK_ACQUIRE, 1, 1);

	event.script = REDLOCK_SCRIPT_ACQUIRE;
	event.master = (uint8_t)_i;
	if (_i == 0)
		driver_vote(&driver, T, 0, GRANTED);
	redlock_step(&driver.op, &event, &driver.out);
}
