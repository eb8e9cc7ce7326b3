/* Fuzz target: one operation of the core (server/redlock/redlock.h) under any events in any order.
 *
 * The input decides the kind, the number of masters, the times and every event: which question is answered next and
 * how, timers early, in time and late, notifications of one that waits, a cancel. The duties of the caller are kept
 * (each question is answered once, time does not go back); the rules that must hold then are those of the driver of
 * the unit tests, checked after each step, and the bounds below. When the input is over all questions are answered and
 * all timers run, until the operation is finished. */
#include "fuzz.h"

#undef MUST /* the driver has the same */
#include "../unit/redlock_driver.h"

enum {
	VOTES = REDLOCK_VOTE_QUEUED + 1,
	STEPS_MAX = 2000,
	ASKS_HIGH = DRIVER_ASKS_MAX - 4 * REDLOCK_MASTERS_MAX,
	HOLDERS = 3
};

/* ---- the operation ---- */

static struct redlock_params random_params(struct feed *feed)
{
	struct redlock_params params = {
		.kind = (enum redlock_kind)(feed_below(feed, 8) < 5 ? REDLOCK_ACQUIRE : feed_below(feed, 4)),
		.masters = (uint8_t)(1 + feed_below(feed, REDLOCK_MASTERS_MAX)),
		.tries = (uint16_t)(1 + feed_below(feed, 5)),
		.drift_us = feed_scaled(feed, 24),
		.master_timeout_us = 1 + feed_scaled(feed, 26),
		.retry_min_us = feed_scaled(feed, 26),
	};
	params.ttl_us = params.drift_us + 1 + feed_scaled(feed, 37);
	params.retry_max_us = params.retry_min_us + feed_scaled(feed, 26);
	if (params.kind == REDLOCK_ACQUIRE && feed_below(feed, 2) == 1)
		params.wait_us = 1 + feed_scaled(feed, 37);
	params.wait_for_all = params.kind == REDLOCK_INSPECT && feed_below(feed, 2) == 1;
	return params;
}

/* ---- events ---- */

/* A vote that this script can get, as server/masters/master_reply.c makes them. */
static enum redlock_vote legal_vote(const struct driver_ask *ask, enum redlock_vote vote)
{
	enum redlock_script script = ask->script;
	bool behind = script == REDLOCK_SCRIPT_RAISE, queued = script == REDLOCK_SCRIPT_ACQUIRE;
	if ((ask->tokenless || script == REDLOCK_SCRIPT_INSPECT) && vote == REDLOCK_VOTE_GRANTED)
		return REDLOCK_VOTE_GONE;
	if (script == REDLOCK_SCRIPT_ACQUIRE && vote == REDLOCK_VOTE_GONE)
		return REDLOCK_VOTE_GRANTED;
	return (vote == REDLOCK_VOTE_STALE && !behind) || (vote == REDLOCK_VOTE_QUEUED && !queued) ? REDLOCK_VOTE_HELD
												   : vote;
}

/* Around the guess, or anything. */
static uint64_t random_fence(struct feed *feed)
{
	unsigned how = feed_u8(feed);
	return how < 128   ? 0
	       : how < 224 ? (uint64_t)DRIVER_GUESS - 3 + how % 8
			   : feed_scaled(feed, 53) % REDLOCK_FENCE_LIMIT;
}

static void reply(struct feed *feed, struct driver *driver, uint64_t now_us)
{
	uint8_t master = driver->asks[feed_below(feed, driver->asks_len)].master;
	const struct driver_ask *ask = &driver->asks[driver_find(driver, master)];
	struct redlock_event event = {.now_us = now_us, .master = master, .ttl_us = driver->params.ttl_us};
	unsigned how = feed_u8(feed);
	event.vote = legal_vote(ask, (enum redlock_vote)(how % VOTES));
	event.fence = random_fence(feed);
	if (how & 0x80)
		event.ttl_us = feed_scaled(feed, 37) % (driver->params.ttl_us + 1);
	if (event.vote == REDLOCK_VOTE_HELD || event.vote == REDLOCK_VOTE_QUEUED)
		event.remaining_us = how & 0x40 ? REDLOCK_NEVER : feed_scaled(feed, 63);
	event.holder = feed_below(feed, HOLDERS);
	event.waiters = feed_u8(feed);
	driver_reply(driver, &event);
}

/* What others say: at any moment. */
static void notify(struct feed *feed, struct driver *driver, uint64_t now_us, enum redlock_event_kind kind)
{
	struct redlock_event event = {.kind = kind, .now_us = now_us, .fence = DRIVER_GUESS};
	event.master = (uint8_t)feed_below(feed, driver->params.masters);
	event.remaining_us = kind == REDLOCK_FIRST && feed_below(feed, 8) == 0 ? REDLOCK_NEVER : feed_scaled(feed, 37);
	driver_step(driver, &event);
	MUST(kind == REDLOCK_CANCEL || driver_waits(driver) || driver->out.to == 0,
	     "an attempt of one that does not wait");
}

static uint64_t later(uint64_t now_us, uint64_t us)
{
	return us > INT64_MAX - now_us ? INT64_MAX : now_us + us;
}

/* One event that the input decides. */
static void act(struct feed *feed, struct driver *driver)
{
	unsigned what = feed_below(feed, 32);
	uint64_t deadline_us = redlock_deadline_us(&driver->op), now_us = driver->now_us;
	if (feed_below(feed, 4) == 0)
		now_us = later(now_us, feed_scaled(feed, 37));
	if (deadline_us != REDLOCK_NEVER && what < 6)
		driver_timer(driver, what < 5 ? (deadline_us > now_us ? deadline_us : now_us) : now_us);
	else if (what < 7)
		notify(feed, driver, now_us, REDLOCK_CANCEL);
	else if (what < 14)
		notify(feed, driver, now_us, (enum redlock_event_kind)(REDLOCK_NOTIFIED + what % 3));
	else if (driver->asks_len > 0)
		reply(feed, driver, now_us);
	else
		driver_timer(driver, now_us);
}

/* ---- what must hold ---- */

static uint64_t longest_deadline_us(const struct driver *driver)
{
	const struct redlock *op = &driver->op;
	switch (op->state) {
	case REDLOCK_VOTING:
	case REDLOCK_RAISING:
	case REDLOCK_LEAVING: return driver->now_us + driver->params.master_timeout_us;
	case REDLOCK_PAUSING: return driver->now_us + driver->params.retry_max_us;
	case REDLOCK_WAITING: return driver->wait_end_us;
	case REDLOCK_IDLE:
	case REDLOCK_DECIDED: break;
	}
	return REDLOCK_NEVER;
}

static void check_result(const struct driver *driver)
{
	const struct redlock_result *result = &driver->result;
	const struct redlock_votes *votes = &result->votes;
	unsigned answered = votes->granted + votes->refused;
	bool leased = driver->params.kind == REDLOCK_ACQUIRE || driver->params.kind == REDLOCK_EXTEND;
	if (result->outcome == REDLOCK_OK && leased)
		MUST(result->validity_us <= driver->params.ttl_us - driver->params.drift_us, "valid for %" PRIu64,
		     result->validity_us);
	MUST(result->fence < REDLOCK_FENCE_LIMIT, "fence %" PRIu64, result->fence);
	MUST(result->outcome != REDLOCK_LOCKED || (driver->params.kind == REDLOCK_ACQUIRE && votes->refused > 0),
	     "locked, says nobody");
	MUST(result->outcome != REDLOCK_NOT_OWNER || (!driver_waits(driver) && result->has_holder),
	     "a holder that nobody named");
	MUST(result->outcome != REDLOCK_EXPIRED ||
		     (driver->params.kind != REDLOCK_ACQUIRE && answered >= votes->needed),
	     "expired, says nobody");
	MUST(result->outcome != REDLOCK_SPLIT || (driver->params.kind == REDLOCK_ACQUIRE && !driver_waits(driver)),
	     "split");
	MUST(!result->held || (driver->params.kind == REDLOCK_INSPECT && result->has_holder), "held by nobody");
	MUST(!result->has_holder || result->holder < HOLDERS, "holder %" PRIu64, result->holder);
	MUST(driver->params.kind != REDLOCK_INSPECT || result->waiters <= UINT8_MAX, "%u waiters", result->waiters);
}

static void check_step(const struct driver *driver, bool was_done)
{
	uint64_t deadline_us = redlock_deadline_us(&driver->op);
	MUST(driver->done || deadline_us <= longest_deadline_us(driver), "a timer in %" PRIu64,
	     deadline_us - driver->now_us);
	MUST(!was_done || driver->out.script == REDLOCK_SCRIPT_NONE || driver->out.tokenless || driver->gone != 0,
	     "a script after the answer");
	MUST(driver->out.entry == REDLOCK_ENTRY_NONE || driver_waits(driver), "an entry for one that does not wait");
	for (uint16_t attempt = 1; attempt < 3; attempt++)
		MUST(!driver->done || !redlock_wants(&driver->op, attempt, 0), "votes are wanted after the answer");
	if (driver->done && !was_done)
		check_result(driver);
}

/* Whatever is open is answered, whatever is due comes: the end is near. */
static void drain(struct feed *feed, struct driver *driver)
{
	for (unsigned steps = 0; !driver->finished; steps++) {
		uint64_t deadline_us = redlock_deadline_us(&driver->op);
		bool was_done = driver->done;
		MUST(steps < STEPS_MAX, "no end");
		if (driver->asks_len > 0)
			reply(feed, driver, driver->now_us);
		else if (driver_waits(driver) && driver->op.state == REDLOCK_WAITING && steps > STEPS_MAX / 2)
			driver_timer(driver,
				     driver->wait_end_us > driver->now_us ? driver->wait_end_us : driver->now_us);
		else
			driver_timer(driver, deadline_us > driver->now_us ? deadline_us : driver->now_us);
		check_step(driver, was_done);
	}
	driver_timer(driver, later(driver->now_us, 1));
	MUST(driver->out.to == 0 && driver->finished, "life after the end");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct driver driver;
	struct feed feed = {data, size};
	struct redlock_params params = random_params(&feed);
	driver_init(&driver, &params, feed_u8(&feed));
	struct redlock_event start = {
		.kind = REDLOCK_START, .now_us = 1 + feed_scaled(&feed, 50), .fence = DRIVER_GUESS};
	start.has_earlier = driver_waits(&driver) && feed_below(&feed, 2) == 1;
	driver_step(&driver, &start);
	check_step(&driver, false);
	for (unsigned steps = 0; feed.left > 0 && !driver.finished && steps < STEPS_MAX; steps++) {
		bool was_done = driver.done;
		if (driver.asks_len >= ASKS_HIGH) /* the daemon sends nothing more to a master that is so far behind */
			reply(&feed, &driver, driver.now_us);
		else
			act(&feed, &driver);
		check_step(&driver, was_done);
	}
	drain(&feed, &driver);
	return 0;
}
