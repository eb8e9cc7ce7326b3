/* SPDX-License-Identifier: MIT */
/* Helpers of the tests of waiting: a waiter, its notifications, what a step must have done with its entry. */
#ifndef REDLOCK_WAIT_CASES_H
#define REDLOCK_WAIT_CASES_H

#include "redlock_cases.h"

/* The wait; what is left of the holder's time; by how much a master's whole ms may be rounded down; what PASSED
 * gives. */
enum { WAIT = 10000000, LEFT = 30000, ROUNDED = 1000, ALIVE = 1000000 };

#define KEEP REDLOCK_ENTRY_KEEP
#define LEAVE REDLOCK_ENTRY_LEAVE

static inline struct driver waiter_of(const struct redlock_params *params, bool behind)
{
	struct redlock_event event = {.kind = REDLOCK_START, .now_us = T, .fence = DRIVER_GUESS, .has_earlier = behind};
	struct driver driver;

	driver_init(&driver, params, 42);
	driver_step(&driver, &event);
	ck_assert_uint_eq(driver.tries, 1);
	return driver;
}

static inline struct redlock_params waiting_params(unsigned masters)
{
	struct redlock_params params = params_of(REDLOCK_ACQUIRE, masters, 1);

	params.wait_us = WAIT;
	return params;
}

static inline struct driver waiter(unsigned masters, bool behind)
{
	struct redlock_params params = waiting_params(masters);

	return waiter_of(&params, behind);
}

static inline void driver_queued(struct driver *driver, uint64_t now_us, unsigned master, uint64_t alive_us)
{
	driver_reply(driver, &(struct redlock_event){.now_us = now_us,
						     .master = (uint8_t)master,
						     .vote = REDLOCK_VOTE_QUEUED,
						     .remaining_us = alive_us});
}

static inline void driver_notified(struct driver *driver, uint64_t now_us, unsigned master)
{
	driver_step(driver, &(struct redlock_event){.kind = REDLOCK_NOTIFIED,
						    .now_us = now_us,
						    .master = (uint8_t)master,
						    .fence = DRIVER_GUESS});
}

/* Master 0 notifies another process. */
static inline void driver_passed(struct driver *driver, uint64_t now_us)
{
	driver_step(driver, &(struct redlock_event){.kind = REDLOCK_PASSED, .now_us = now_us, .master = 0});
}

static inline void driver_first(struct driver *driver, uint64_t now_us, uint64_t remaining_us)
{
	driver_step(driver,
		    &(struct redlock_event){.kind = REDLOCK_FIRST, .now_us = now_us, .remaining_us = remaining_us});
}

/* The last step sent an attempt to all masters; the driver looks at its entry. */
static inline void attempts(const struct driver *driver, unsigned attempt)
{
	ck_assert_int_eq(driver->out.script, REDLOCK_SCRIPT_ACQUIRE);
	ck_assert_uint_eq(driver->out.attempt, attempt);
	ck_assert(!driver->out.done);
	ck_assert_uint_eq(redlock_deadline_us(&driver->op), driver->now_us + TIMEOUT);
}

/* It sleeps until then unless it is notified. */
static inline void sleeps_until(const struct driver *driver, uint64_t us)
{
	ck_assert(!driver->out.done);
	ck_assert_int_eq(driver->op.state, REDLOCK_WAITING);
	ck_assert_uint_eq(redlock_deadline_us(&driver->op), us);
}

/* The last step released a lost attempt on these masters (0: none) and kept the entry. */
static inline void gave_back(const struct driver *driver, unsigned to)
{
	ck_assert(!driver->out.done && !driver->out.tokenless);
	ck_assert_uint_eq(driver->out.to, to);
	ck_assert_int_eq(driver->out.script, to != 0 ? REDLOCK_SCRIPT_RELEASE : REDLOCK_SCRIPT_NONE);
	ck_assert_int_eq(driver->out.entry, to != 0 ? KEEP : REDLOCK_ENTRY_NONE);
}

/* The last step removed only the entry, on these masters. */
static inline void left(const struct driver *driver, unsigned to)
{
	ck_assert_int_eq(driver->out.script, REDLOCK_SCRIPT_RELEASE);
	ck_assert(driver->out.tokenless);
	ck_assert_int_eq(driver->out.entry, LEAVE);
	ck_assert_uint_eq(driver->out.to, to);
}

/* The last step released the attempt's token and removed the entry, on these masters. */
static inline void released(const struct driver *driver, unsigned to)
{
	ck_assert_int_eq(driver->out.script, REDLOCK_SCRIPT_RELEASE);
	ck_assert(!driver->out.tokenless);
	ck_assert_int_eq(driver->out.entry, LEAVE);
	ck_assert_uint_eq(driver->out.to, to);
}

/* Two of three masters answer that A holds it for LEFT; the third answers the same after the decision. Every command
 * has a reply then. */
static inline void refuse(struct driver *driver, uint64_t now_us)
{
	driver_held(driver, now_us, 0, A, LEFT);
	ck_assert_int_eq(driver->out.script, REDLOCK_SCRIPT_NONE);
	driver_held(driver, now_us, 1, A, LEFT);
	gave_back(driver, 4);
	driver_held(driver, now_us, 2, A, LEFT);
	driver_held(driver, now_us, 2, A, LEFT);
	quiet(driver);
	ck_assert_uint_eq(driver->asks_len, 0);
}

/* A waiter on three masters that was refused once, at T. */
static inline struct driver refused_waiter(bool behind)
{
	struct driver driver = waiter(3, behind);

	refuse(&driver, T);
	sleeps_until(&driver, behind ? T + WAIT : T + LEFT + ROUNDED);
	return driver;
}

/* A waiter whose wait is over: it removes its entry on all masters, whose answers name the holder. */
static inline struct driver leaving(void)
{
	struct driver driver = refused_waiter(true);

	driver_timer(&driver, T + WAIT - 1);
	quiet(&driver);
	driver_timer(&driver, T + WAIT);
	left(&driver, 7);
	ck_assert_uint_eq(driver.out.round, 1);
	ck_assert_uint_eq(driver.out.attempt, 1);
	ck_assert_int_eq(driver.op.state, REDLOCK_LEAVING);
	ck_assert(!driver.out.done);
	ck_assert_uint_eq(redlock_deadline_us(&driver.op), T + WAIT + TIMEOUT);
	return driver;
}

#endif
