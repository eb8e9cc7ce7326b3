/* Getting a lease: carries out what wait.c says. See acquire.h.
 *
 * A lease whose answer came so late that too little is left of it is given back and counts as no answer: the time is reckoned
 * from before the request was sent. A request that is broken off is given back by the server, which sees the connection close. */
#include "acquire.h"

#include <assert.h>
#include <sys/random.h>

#include "../server/clock.h"
#include "status.h"
#include "wait.h"

static uint32_t draw_random(void)
{
	uint32_t random = 0;
	ssize_t got = getrandom(&random, sizeof(random), GRND_NONBLOCK);
	return got == (ssize_t)sizeof(random) ? random : (uint32_t)clock_now_us();
}

/* Waits for the request (until_us UINT64_MAX) or for a moment. Anything but ACQUIRE_GO_ON: it was told so before. */
static enum acquire_tell acquire_sit(struct acquire *acquire, uint64_t until_us)
{
	unsigned count = acquire->extra == NULL ? 0 : 1;
	enum acquire_tell tell = ACQUIRE_GO_ON;

	while (tell == ACQUIRE_GO_ON && clock_now_us() < until_us) {
		if (http_wait(acquire->http, until_us, acquire->extra, count))
			break;
		if (count > 0 && acquire->extra->revents != 0)
			tell = acquire->told(acquire->context);
	}
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

static enum acquire_tell acquire_exchange(struct acquire *acquire, const struct request *request, uint64_t timeout_us, struct answer *ret_answer)
{
	http_begin(acquire->http, &acquire->options->servers.items[acquire->server], request, timeout_us);
	enum acquire_tell tell = acquire_sit(acquire, UINT64_MAX);
	if (tell == ACQUIRE_GO_ON)
		http_read(acquire->http, ret_answer);
	else
		http_cancel(acquire->http);
	return tell;
}

static enum acquire_tell acquire_ask(struct acquire *acquire, uint64_t wait_ms, struct answer *ret_answer)
{
	const struct options *options = acquire->options;
	struct request request;

	request_acquire(&request, options->name, options->ttl_ms, options->owner, wait_ms);
	enum acquire_tell tell = acquire_exchange(acquire, &request, (options->timeout_ms + wait_ms) * 1000, ret_answer);
	request_fini(&request);
	return tell;
}

/* One try, and no more, to give back what came too late. */
static void acquire_give_back(struct acquire *acquire, const struct lease *lease)
{
	struct answer answer;
	struct request request;

	request_release(&request, acquire->options->name, lease->token);
	if (acquire_exchange(acquire, &request, acquire->options->timeout_ms * 1000, &answer) == ACQUIRE_GO_ON)
		answer_fini(&answer);
	request_fini(&request);
}

/* True: the answer is a lease, and enough of it is left. Otherwise the answer says why not. */
static bool acquire_take(struct acquire *acquire, struct answer *answer, struct lease *lease, uint64_t *ret_sent_us)
{
	uint64_t sent_us = acquire->http->sent_us;

	if (answer->outcome != OUTCOME_DONE || !answer_lease(answer, acquire->options->name, NULL, lease))
		return false;
	if (clock_now_us() + acquire->least_us < sent_us + lease->validity_ms * 1000) {
		*ret_sent_us = sent_us;
		return true;
	}
	acquire_give_back(acquire, lease);
	answer_set(answer, OUTCOME_UNAVAILABLE, "late", "too little was left of the lease when it came");
	return false;
}

/* Does the step; what was asked for is in ret_answer. */
static enum acquire_tell acquire_step(struct acquire *acquire, struct wait *wait, struct wait_step step, struct answer *answer)
{
	enum acquire_tell tell = ACQUIRE_GO_ON;

	if (step.what == WAIT_PAUSE)
		tell = acquire_sit(acquire, step.until_us);
	acquire->server = wait->server;
	if (tell == ACQUIRE_GO_ON) {
		answer_fini(answer);
		tell = acquire_ask(acquire, step.what == WAIT_PAUSE ? wait_ask(wait, clock_now_us()).wait_ms : step.wait_ms, answer);
	}
	return tell == ACQUIRE_HOLD ? acquire_hold(acquire) == ACQUIRE_STOP ? ACQUIRE_STOP : ACQUIRE_HOLD : tell;
}

enum acquire_result acquire_lease(struct acquire *acquire, struct lease *ret_lease, uint64_t *ret_sent_us, struct answer *ret_answer)
{
	struct wait wait;
	struct answer answer = {.outcome = OUTCOME_UNAVAILABLE};
	bool waits = false;

	wait_init(&wait, acquire->options->servers.count, acquire->server, acquire->options->wait_ms, clock_now_us());
	struct wait_step step = wait_ask(&wait, clock_now_us());
	while (step.what != WAIT_GIVE_UP) {
		enum acquire_tell tell = acquire_step(acquire, &wait, step, &answer);
		if (tell == ACQUIRE_STOP || (tell == ACQUIRE_GO_ON && acquire_take(acquire, &answer, ret_lease, ret_sent_us))) {
			answer_fini(&answer);
			return tell == ACQUIRE_STOP ? ACQUIRE_STOPPED : ACQUIRE_GRANTED;
		}
		step = tell == ACQUIRE_HOLD ? wait_ask(&wait, clock_now_us()) : wait_next(&wait, &answer, draw_random(), clock_now_us());
		if (step.what == WAIT_PAUSE && !waits && acquire->waits != NULL)
			acquire->waits(acquire->context, &answer);
		waits |= step.what == WAIT_PAUSE;
	}
	*ret_answer = answer;
	return ACQUIRE_REFUSED;
}

int acquire_status(const struct options *options, const struct answer *answer)
{
	switch (answer->outcome) {
	case OUTCOME_DONE:
		return STATUS_OK;
	case OUTCOME_HELD:
	case OUTCOME_SPLIT:
		return options->held_status;
	case OUTCOME_LOST:
		return STATUS_LOST;
	case OUTCOME_UNAVAILABLE:
		return STATUS_UNREACHABLE;
	case OUTCOME_INVALID:
		return STATUS_USAGE;
	default:
		return STATUS_STRANGE;
	}
}
