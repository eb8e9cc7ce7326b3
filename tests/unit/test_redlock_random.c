/* Random walks over the core: any number of masters, any kind, any votes in any order, late and early timers, cancels,
 * and waiters with notifications at any moment.
 *
 * There is no oracle: the driver checks after each step what must always hold, and the bounds are below. The number of
 * a walk, which a failure prints as its case, decides everything in it. */
#include "redlock_driver.h"
#include "suite.h"

enum { WALKS = 30000, BATCHES = 20, VOTES = REDLOCK_VOTE_QUEUED + 1 };

struct walk {
	uint64_t random;
	struct driver driver;
	unsigned weights[VOTES]; /* how often each vote is given in this walk */
	unsigned cancel_in;      /* chance of a cancel at each step: 1 in so many; 0: never */
};

static unsigned random_below(struct walk *walk, unsigned limit)
{
	return (unsigned)(redlock_random(&walk->random) % limit);
}

static struct redlock_params walk_params(struct walk *walk)
{
	struct redlock_params params = {
		.kind = (enum redlock_kind)(random_below(walk, 8) < 5 ? REDLOCK_ACQUIRE : random_below(walk, 4)),
		.masters = (uint8_t)(1 + random_below(walk, REDLOCK_MASTERS_MAX)),
		.tries = (uint16_t)(1 + random_below(walk, 5)),
		.drift_us = random_below(walk, 500),
		.master_timeout_us = 1 + random_below(walk, 5000),
		.retry_min_us = random_below(walk, 1000),
	};

	if (params.kind == REDLOCK_ACQUIRE && random_below(walk, 8) == 0)
		params.wait_us = 1 + random_below(walk, 20000);
	params.ttl_us = params.drift_us + 1 + random_below(walk, 10000);
	params.retry_max_us = params.retry_min_us + random_below(walk, 3) * random_below(walk, 1000);
	return params;
}

static void walk_init(struct walk *walk, uint64_t number)
{
	struct redlock_params params;

	memset(walk, 0, sizeof *walk);
	walk->random = number;
	params = walk_params(walk);
	for (unsigned i = 0; i < VOTES; i++)
		walk->weights[i] = random_below(walk, 3) * random_below(walk, 20);
	walk->weights[REDLOCK_VOTE_BEHIND] = 0;
	walk->weights[REDLOCK_VOTE_GRANTED] += random_below(walk, 40);
	walk->weights[REDLOCK_VOTE_HELD] += 1;
	walk->cancel_in = random_below(walk, 4) ? 0 : 20 + random_below(walk, 50);
	driver_init(&walk->driver, &params, redlock_random(&walk->random));
}

static enum redlock_vote walk_vote(struct walk *walk)
{
	unsigned sum = 0, at;

	for (unsigned i = 0; i < VOTES; i++)
		sum += walk->weights[i];
	at = random_below(walk, sum);
	for (unsigned i = 0; i < VOTES; i++) {
		if (at < walk->weights[i])
			return (enum redlock_vote)i;
		at -= walk->weights[i];
	}
	return REDLOCK_VOTE_HELD;
}

/* A vote that this script can have. */
static enum redlock_vote legal_vote(const struct driver_ask *ask, enum redlock_vote vote)
{
	enum redlock_script script = ask->script;

	if (ask->tokenless && vote == REDLOCK_VOTE_GRANTED)
		return REDLOCK_VOTE_GONE;
	if (script == REDLOCK_SCRIPT_ACQUIRE && vote == REDLOCK_VOTE_GONE)
		return REDLOCK_VOTE_GRANTED;
	if (script == REDLOCK_SCRIPT_INSPECT && vote == REDLOCK_VOTE_GRANTED)
		return REDLOCK_VOTE_GONE;
	if (script != REDLOCK_SCRIPT_ACQUIRE && vote == REDLOCK_VOTE_QUEUED)
		return REDLOCK_VOTE_HELD;
	return vote;
}

static void walk_reply(struct walk *walk, uint64_t now_us)
{
	struct driver *driver = &walk->driver;
	uint8_t master = driver->asks[random_below(walk, driver->asks_len)].master;
	const struct driver_ask *ask = &driver->asks[driver_find(driver, master)];
	struct redlock_event event = {.now_us = now_us, .master = master, .vote = legal_vote(ask, walk_vote(walk))};

	if (ask->script == REDLOCK_SCRIPT_RAISE && random_below(walk, 3) == 0)
		event.vote = REDLOCK_VOTE_BEHIND;
	event.fence = random_below(walk, 4) == 0 ? DRIVER_GUESS - 3 + random_below(walk, 8) : 0;
	event.ttl_us = driver->params.ttl_us;
	if (random_below(walk, 8) == 0)
		event.ttl_us = redlock_random(&walk->random) % (driver->params.ttl_us + 1);
	event.holder = random_below(walk, 3);
	event.remaining_us = random_below(walk, 10) ? random_below(walk, 20000) : REDLOCK_NEVER;
	driver_reply(driver, &event);
}

/* The bounds of the numbers in an answer. */
static void check_answer(const struct driver *driver)
{
	const struct redlock_result *result = &driver->result;
	const struct redlock_votes *votes = &result->votes;
	unsigned answered = votes->granted + votes->refused,
		 limit = driver->params.kind == REDLOCK_ACQUIRE ? driver->params.tries : 1;

	limit = driver_waits(driver) ? UINT16_MAX : limit;
	MUST(result->tries >= 1 && result->tries <= limit, "%u tries of %u", result->tries, limit);
	switch (result->outcome) {
	case REDLOCK_OK: MUST(answered >= votes->needed, "OK with %u answers", answered); break;
	case REDLOCK_LOCKED: MUST(votes->refused > 0, "locked, says nobody"); break;
	case REDLOCK_NOT_OWNER: MUST(result->has_holder && votes->refused > 0, "a holder that nobody named"); break;
	case REDLOCK_EXPIRED: MUST(votes->refused > 0 && answered >= votes->needed, "expired, says nobody"); break;
	case REDLOCK_SPLIT:
		MUST(result->tries == limit && answered >= votes->needed, "split after %u tries", result->tries);
		break;
	case REDLOCK_NO_QUORUM:
		MUST(answered < votes->needed || votes->granted >= votes->needed ||
			     driver->params.kind == REDLOCK_EXTEND,
		     "a quorum answered");
		MUST(result->retry_after_us == driver->params.retry_max_us, "retry after %" PRIu64,
		     result->retry_after_us);
		break;
	case REDLOCK_CANCELLED: break;
	}
	MUST(result->outcome != REDLOCK_LOCKED || driver->params.kind == REDLOCK_ACQUIRE, "LOCKED for kind %d",
	     driver->params.kind);
	MUST(result->outcome != REDLOCK_LOCKED || result->retry_after_us <= 20000, "retry after %" PRIu64,
	     result->retry_after_us);
	MUST(!result->held || (driver->params.kind == REDLOCK_INSPECT && result->has_holder), "held by nobody");
}

/* An event of a waiter from the masters or from other waiters of the process, or a cancel, at any moment. True if there
 * was one. */
static bool walk_notify(struct walk *walk, uint64_t now_us)
{
	struct redlock_event event = {.now_us = now_us, .fence = DRIVER_GUESS};

	if (walk->cancel_in > 0 && random_below(walk, walk->cancel_in) == 0)
		event.kind = REDLOCK_CANCEL;
	else if (driver_waits(&walk->driver) && random_below(walk, 4) == 0)
		event.kind = (enum redlock_event_kind)(REDLOCK_NOTIFIED + random_below(walk, 3));
	else
		return false;
	event.master = (uint8_t)random_below(walk, walk->driver.params.masters);
	event.remaining_us = random_below(walk, 3) * random_below(walk, 5000);
	driver_step(&walk->driver, &event);
	return true;
}

static void walk_step(struct walk *walk)
{
	struct driver *driver = &walk->driver;
	uint64_t deadline_us = redlock_deadline_us(&driver->op),
		 now_us = driver->now_us + random_below(walk, 3) * random_below(walk, 200);
	bool was_done = driver->done;

	if (walk_notify(walk, now_us))
		;
	else if (driver->asks_len == 0 && deadline_us > driver->now_us)
		driver_timer(driver, deadline_us + random_below(walk, 2) * random_below(walk, 100));
	else if (driver->asks_len == 0 || random_below(walk, 8) == 0)
		driver_timer(driver, now_us);
	else
		walk_reply(walk, now_us);
	MUST(!was_done || driver->out.script == REDLOCK_SCRIPT_NONE || driver->out.tokenless || driver->gone != 0,
	     "a script after the answer");
	MUST(driver->done || driver->asks_len > 0 || driver->op.state == REDLOCK_PAUSING ||
		     driver->op.state == REDLOCK_WAITING || driver->out.to != 0,
	     "stuck: nothing open, not done");
	MUST(driver->done || driver_waits(driver) || deadline_us == redlock_deadline_us(&driver->op) ||
		     driver->out.to != 0,
	     "the deadline moved by itself");
	if (driver->done && !was_done)
		check_answer(driver);
}

static void walk_all(uint64_t number)
{
	struct walk walk;
	unsigned bound;

	walk_init(&walk, number);
	bound = 100u * (walk.driver.params.tries * walk.driver.params.masters * 2u + 20u) +
		(unsigned)walk.driver.params.wait_us;
	driver_step(&walk.driver, &(struct redlock_event){.kind = REDLOCK_START,
							  .now_us = redlock_random(&walk.random) % 1000000000,
							  .fence = DRIVER_GUESS,
							  .behind = redlock_random(&walk.random) % 2});
	for (unsigned steps = 0; !walk.driver.finished; steps++) {
		MUST(steps < bound, "no end after %u steps", steps);
		walk_step(&walk);
	}
	for (unsigned i = 0; i < 3; i++) {
		driver_timer(&walk.driver, walk.driver.now_us + i);
		MUST(walk.driver.out.to == 0 && walk.driver.finished, "life after the end");
	}
}

TEST_EACH(test_random_walks, 0, BATCHES)
{
	for (unsigned i = 0; i < WALKS; i++) {
		must_case = (uint64_t)_i * WALKS + i;
		walk_all(must_case);
	}
}
