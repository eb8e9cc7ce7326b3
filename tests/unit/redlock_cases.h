/* SPDX-License-Identifier: MIT */
/* Helpers of the core's tests: times, holders, an operation that has started, what a step must have done. */
#ifndef REDLOCK_CASES_H
#define REDLOCK_CASES_H

#include "redlock_driver.h"

enum { T = 1000000, TTL = 30000, DRIFT = 302, TIMEOUT = 5000, PAUSE_MIN = 2000, PAUSE_MAX = 9000 };
enum { A = 0xaaaa, B = 0xbbbb };

#define GRANTED REDLOCK_VOTE_GRANTED
#define GONE REDLOCK_VOTE_GONE
#define FAILED REDLOCK_VOTE_FAILED
#define UNSENT REDLOCK_VOTE_UNSENT
#define QUARANTINED REDLOCK_VOTE_QUARANTINED

static inline struct redlock_params params_of(enum redlock_kind kind, unsigned masters, unsigned tries)
{
	return (struct redlock_params){
		.kind = kind,
		.masters = (uint8_t)masters,
		.tries = (uint16_t)tries,
		.ttl_us = TTL,
		.drift_us = DRIFT,
		.master_timeout_us = TIMEOUT,
		.retry_min_us = PAUSE_MIN,
		.retry_max_us = PAUSE_MAX,
	};
}

static inline struct driver started(enum redlock_kind kind, unsigned masters, unsigned tries)
{
	struct redlock_params params = params_of(kind, masters, tries);
	struct driver driver;

	driver_init(&driver, &params, 42);
	driver_start(&driver, T);
	ck_assert_uint_eq(driver.tries, 1);
	return driver;
}

static inline void quiet(const struct driver *driver)
{
	ck_assert_int_eq(driver->out.script, REDLOCK_SCRIPT_NONE);
	ck_assert(!driver->out.done);
}

/* The last step decided: this outcome, and a release to these masters (0: none). */
static inline void decided(const struct driver *driver, enum redlock_outcome outcome, unsigned release)
{
	ck_assert(driver->out.done);
	ck_assert_int_eq(driver->out.result.outcome, outcome);
	ck_assert_uint_eq(driver->out.to, release);
}

static inline void votes(const struct driver *driver, unsigned granted, unsigned refused, unsigned failed,
			 unsigned quarantined)
{
	ck_assert_uint_eq(driver->result.votes.granted, granted);
	ck_assert_uint_eq(driver->result.votes.refused, refused);
	ck_assert_uint_eq(driver->result.votes.failed, failed);
	ck_assert_uint_eq(driver->result.votes.quarantined, quarantined);
}

#endif
