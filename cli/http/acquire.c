/* Getting a lease: carries out what wait.c says. See acquire.h.
 *
 * From when on does a lease count? Its validity_ms is what was left when the answer was written, and nobody here knows
 * when that was. It was not before the request was sent: validity_ms from then on is always safe. It may have been long
 * before the answer was read: this process may have been stopped, the machine asleep, the network slow, all the while
 * the lease ran; validity_ms from the reading on is not safe. After a wait, however, the safe bound is of no use: a
 * request that was sent four minutes ago, for a lease of thirty seconds, would be over before it began. So a lease that
 * may be older than a quarter of its validity is extended once before anything is done under it. PUT is answered at
 * once, which makes the time before it was sent a bound that is both safe and near; and it shows that the lease is
 * still there. (The server says how long it kept the request, waited_ms, which would save this one exchange; but the
 * bound would then rest on two clocks that run alike over minutes, and an answer that lay on the way would still have
 * to be told.)
 *
 * What is granted to a request that is given up is not lost: see http_hang_up(). Nor is it used: the server may have
 * noticed that we left, and given the lock to the next. It is given back, and so is a lease of which too little is
 * left. */
#include "acquire.h"

#include <string.h>
#include <sys/random.h>

#include "cli/exit_status.h"
#include "server/base/base.h"
#include "wait.h"

enum { HANG_UP_US = 500000, GIVE_BACK_US = 500000, GIVE_BACK_TRIES = 3 };

static uint32_t draw_random(void)
{
	uint32_t random = 0;
	ssize_t got = getrandom(&random, sizeof(random), GRND_NONBLOCK);
	return got == (ssize_t)sizeof(random) ? random : (uint32_t)clock_now_us();
}

static const struct server *acquire_server(const struct acquire *acquire)
{
	return &acquire->options->servers.items[acquire->server];
}

static void acquire_next_server(struct acquire *acquire)
{
	acquire->server = (acquire->server + 1) % acquire->options->servers.count;
}

static void acquire_say(struct acquire *acquire, const struct answer *answer)
{
	if (!acquire->said && acquire->waits != NULL)
		acquire->waits(acquire->context, answer);
	acquire->said = true;
}

/* ---- sitting and waiting ---- */

/* Until something happens, at most until until_us. True: the request is answered. *ret_tell: what it was told
 * meanwhile. */
static bool acquire_sit(struct acquire *acquire, uint64_t until_us, enum acquire_tell *ret_tell)
{
	bool finished = http_wait(acquire->http, until_us, acquire->extra, acquire->extra == NULL ? 0 : 1);

	*ret_tell = ACQUIRE_GO_ON;
	if (!finished && acquire->extra != NULL && acquire->extra->revents != 0)
		*ret_tell = acquire->told(acquire->context);
	return finished;
}

static enum acquire_tell acquire_pause(struct acquire *acquire, uint64_t until_us)
{
	enum acquire_tell tell = ACQUIRE_GO_ON;

	while (tell == ACQUIRE_GO_ON && clock_now_us() < until_us)
		acquire_sit(acquire, until_us, &tell);
	return tell;
}

/* Asks nobody until told otherwise. */
static enum acquire_tell acquire_hold(struct acquire *acquire)
{
	enum acquire_tell tell = ACQUIRE_HOLD;

	while (tell == ACQUIRE_HOLD) {
		http_wait(acquire->http, UINT64_MAX, acquire->extra, 1);
		if (acquire->extra->revents != 0)
			tell = acquire->told(acquire->context);
	}
	return tell;
}

/* ---- one request ---- */

/* Until the request is answered, or has to be given up: what it was told (*ret_tell), the time limit, a server that is
 * gone. */
static bool acquire_await(struct acquire *acquire, uint64_t limit_us, enum acquire_tell *ret_tell)
{
	*ret_tell = ACQUIRE_GO_ON;
	for (;;) {
		struct answer state;
		uint64_t now_us = clock_now_us();
		enum watch_finding finding = watch_look(&acquire->watch, now_us, &state);
		if (finding == WATCH_STATE) {
			acquire_say(acquire, &state);
			answer_fini(&state);
		}
		if (finding == WATCH_GONE || now_us >= limit_us)
			return false;
		uint64_t next_us = watch_next_us(&acquire->watch);
		if (acquire_sit(acquire, next_us < limit_us ? next_us : limit_us, ret_tell))
			return true;
		if (*ret_tell != ACQUIRE_GO_ON)
			return false;
	}
}

void acquire_give_back(struct acquire *acquire, const struct lease *lease)
{
	bool again = true;
	struct answer answer;
	struct request request;

	request_release(&request, acquire->options->name, lease->token);
	for (int tries = 0; tries < GIVE_BACK_TRIES && again; tries++) {
		uint64_t until_us = clock_now_us() + GIVE_BACK_US;
		http_begin(acquire->http, acquire_server(acquire), &request, GIVE_BACK_US);
		while (!http_wait(acquire->http, until_us, NULL, 0))
			continue;
		http_read(acquire->http, &answer);
		again = answer_is_of_one(&answer);
		answer_fini(&answer);
		if (again)
			acquire_next_server(acquire);
	}
	request_fini(&request);
}

/* The answer, whatever it is by now, is no lease. */
static void acquire_give_up(struct acquire *acquire, struct answer *ret_answer)
{
	struct lease lease;

	if (!http_hang_up(acquire->http, clock_now_us() + HANG_UP_US)) {
		answer_read(ret_answer, 0, NULL, 0, "it does not answer in time");
		return;
	}
	http_read(acquire->http, ret_answer);
	if (ret_answer->outcome != OUTCOME_DONE)
		return;
	if (answer_lease(ret_answer, acquire->options->name, NULL, &lease))
		acquire_give_back(acquire, &lease);
	answer_set(ret_answer, OUTCOME_UNAVAILABLE, "late", "its answer came too late");
}

static enum acquire_tell acquire_ask(struct acquire *acquire, uint64_t wait_ms, struct answer *ret_answer)
{
	const struct options *options = acquire->options;
	struct request request;
	enum acquire_tell tell;
	bool long_one = wait_ms > 0;

	request_acquire(&request, options->name, options->ttl_ms, options->owner, wait_ms);
	http_begin(acquire->http, acquire_server(acquire), &request, options->timeout_ms * 1000);
	request_fini(&request);
	uint64_t sent_us = acquire->http->main.sent_us;
	acquire->watch = (struct watch){.http = acquire->http, .options = options, .server = acquire_server(acquire)};
	watch_begin(&acquire->watch, long_one && !acquire->said && acquire->waits != NULL,
		    long_one && options->servers.count > 1, sent_us);
	if (acquire_await(acquire, sent_us + (options->timeout_ms + wait_ms) * 1000, &tell))
		http_read(acquire->http, ret_answer);
	else
		acquire_give_up(acquire, ret_answer);
	http_end_side(acquire->http);
	return tell;
}

/* ---- the lease ---- */

static uint64_t lease_end_us(const struct lease *lease, uint64_t sent_us)
{
	return sent_us + lease->validity_ms * 1000;
}

static bool acquire_is_enough(const struct acquire *acquire, const struct lease *lease, uint64_t sent_us)
{
	return clock_now_us() + acquire->least_us < lease_end_us(lease, sent_us);
}

static bool acquire_is_young(const struct lease *lease, uint64_t sent_us)
{
	return (clock_now_us() - sent_us) * 4 <= lease->validity_ms * 1000;
}

/* Asks each server once to extend the lease, until one has answered. */
static enum acquire_tell acquire_extend(struct acquire *acquire, const struct lease *lease, struct answer *ret_answer)
{
	enum acquire_tell tell = ACQUIRE_GO_ON;
	struct request request;

	request_extend(&request, acquire->options->name, lease->token, acquire->options->ttl_ms);
	for (size_t tries = 1;; tries++) {
		http_begin(acquire->http, acquire_server(acquire), &request, acquire->options->timeout_ms * 1000);
		while (tell == ACQUIRE_GO_ON && !acquire_sit(acquire, UINT64_MAX, &tell))
			continue;
		if (tell != ACQUIRE_GO_ON)
			break;
		http_read(acquire->http, ret_answer);
		if (!answer_is_of_one(ret_answer) || tries == acquire->options->servers.count)
			break;
		answer_fini(ret_answer);
		acquire_next_server(acquire);
	}
	http_cancel(acquire->http);
	request_fini(&request);
	return tell;
}

/* The lease again, with a new beginning. False: it is not ours (any more, or that is not known), or told something. */
static bool acquire_refresh(struct acquire *acquire, struct answer *answer, struct lease *lease, uint64_t *sent_us,
			    enum acquire_tell *ret_tell)
{
	char token[sizeof(lease->token)];
	struct answer extended = {.outcome = OUTCOME_UNAVAILABLE};

	memcpy(token, lease->token, sizeof(token));
	*ret_tell = acquire_extend(acquire, lease, &extended);
	bool done = *ret_tell == ACQUIRE_GO_ON && extended.outcome == OUTCOME_DONE &&
		    answer_lease(&extended, acquire->options->name, token, lease);
	if (done)
		*sent_us = acquire->http->main.sent_us;
	else if (extended.outcome != OUTCOME_LOST)
		acquire_give_back(acquire, lease);
	if (!done)
		answer_set(answer, OUTCOME_UNAVAILABLE, "late", "the lease could not be extended when it came");
	explicit_bzero(token, sizeof(token));
	answer_fini(&extended);
	return done;
}

/* True: the answer is a lease, and enough of it is left. Otherwise the answer says why not, unless it was told
 * something. */
static bool acquire_take(struct acquire *acquire, struct answer *answer, struct lease *ret_lease, uint64_t *ret_sent_us,
			 enum acquire_tell *ret_tell)
{
	uint64_t sent_us = acquire->http->main.sent_us;
	struct lease lease;

	if (answer->outcome != OUTCOME_DONE || !answer_lease(answer, acquire->options->name, NULL, &lease))
		return false;
	bool good = acquire_is_young(&lease, sent_us) && acquire_is_enough(acquire, &lease, sent_us);
	if (!good && !acquire_refresh(acquire, answer, &lease, &sent_us, ret_tell))
		return false;
	if (!acquire_is_enough(acquire, &lease, sent_us)) {
		acquire_give_back(acquire, &lease);
		answer_set(answer, OUTCOME_UNAVAILABLE, "late", "too little was left of the lease when it came");
		return false;
	}
	*ret_lease = lease;
	*ret_sent_us = sent_us;
	return true;
}

/* ---- all of it ---- */

/* Does the step; what was asked for is in ret_answer. */
static enum acquire_tell acquire_step(struct acquire *acquire, struct wait *wait, struct wait_step step,
				      struct answer *answer)
{
	if (step.what == WAIT_PAUSE) {
		acquire_say(acquire, answer);
		enum acquire_tell tell = acquire_pause(acquire, step.until_us);
		if (tell != ACQUIRE_GO_ON)
			return tell;
		step = wait_ask(wait, clock_now_us());
	}
	acquire->server = wait->server;
	answer_fini(answer);
	return acquire_ask(acquire, step.wait_ms, answer);
}

enum acquire_result acquire_lease(struct acquire *acquire, struct lease *ret_lease, uint64_t *ret_sent_us,
				  struct answer *ret_answer)
{
	struct wait wait;
	struct answer answer = {.outcome = OUTCOME_UNAVAILABLE};

	wait_init(&wait, acquire->options->servers.count, acquire->server, acquire->options->wait_ms, clock_now_us());
	struct wait_step step = wait_ask(&wait, clock_now_us());
	while (step.what != WAIT_GIVE_UP) {
		enum acquire_tell tell = acquire_step(acquire, &wait, step, &answer);
		bool taken = tell == ACQUIRE_GO_ON && acquire_take(acquire, &answer, ret_lease, ret_sent_us, &tell);
		bool held = tell == ACQUIRE_HOLD;
		if (held)
			tell = acquire_hold(acquire);
		if (taken || tell == ACQUIRE_STOP) {
			answer_fini(&answer);
			return taken ? ACQUIRE_GRANTED : ACQUIRE_STOPPED;
		}
		step = held ? wait_ask(&wait, clock_now_us())
			    : wait_next(&wait, &answer, draw_random(), clock_now_us());
	}
	*ret_answer = answer;
	return ACQUIRE_REFUSED;
}

int acquire_status(const struct options *options, const struct answer *answer)
{
	switch (answer->outcome) {
	case OUTCOME_DONE: return STATUS_OK;
	case OUTCOME_HELD:
	case OUTCOME_SPLIT: return options->held_status;
	case OUTCOME_LOST: return STATUS_LOST;
	case OUTCOME_UNAVAILABLE: return STATUS_UNREACHABLE;
	case OUTCOME_FORBIDDEN: return STATUS_FORBIDDEN;
	case OUTCOME_INVALID: return STATUS_USAGE;
	default: return STATUS_STRANGE;
	}
}
