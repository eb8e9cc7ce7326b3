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
 * What is granted to a request that is given up is not lost: see client_hang_up(). Nor is it used: the server may have
 * noticed that we left, and given the lock to the next. It is given back, and so is a lease of which too little is
 * left. */
#include "acquire.h"

#include <string.h>
#include <sys/random.h>

#include "cli/base/cli_base.h"
#include "client.h"
#include "server/base/base.h"
#include "wait.h"

enum { HANG_UP_US = 500000, RELEASE_US = 500000, RELEASE_TRIES = 3 };

static uint32_t acquire_random(void)
{
	uint32_t random = 0;
	ssize_t got = getrandom(&random, sizeof random, GRND_NONBLOCK);
	return got == (ssize_t)sizeof random ? random : (uint32_t)clock_now_us();
}

static const struct server *acquire_server(const struct acquire *acquire)
{
	return &acquire->arguments->servers.items[acquire->server];
}

static void acquire_next_server(struct acquire *acquire)
{
	acquire->server = (acquire->server + 1) % acquire->arguments->servers.count;
}

static void acquire_report_wait(struct acquire *acquire, const struct answer *answer)
{
	if (!acquire->wait_reported && acquire->on_wait)
		acquire->on_wait(acquire->context, answer);
	acquire->wait_reported = true;
}

/* ---- sitting and waiting ---- */

/* Until something happens, at most until until_us. True: the request is answered. *ret_order: what it was told
 * meanwhile. */
static bool acquire_wait(struct acquire *acquire, uint64_t until_us, enum acquire_order *ret_order)
{
	bool finished = client_wait(acquire->client, until_us, acquire->extra, acquire->extra ? 1 : 0);

	*ret_order = ACQUIRE_GO_ON;
	if (!finished && acquire->extra && acquire->extra->revents != 0)
		*ret_order = acquire->read_order(acquire->context);
	return finished;
}

static enum acquire_order acquire_pause(struct acquire *acquire, uint64_t until_us)
{
	enum acquire_order order = ACQUIRE_GO_ON;

	while (order == ACQUIRE_GO_ON && clock_now_us() < until_us)
		acquire_wait(acquire, until_us, &order);
	return order;
}

/* Asks nobody until told otherwise. */
static enum acquire_order acquire_hold(struct acquire *acquire)
{
	enum acquire_order order = ACQUIRE_HOLD;

	while (order == ACQUIRE_HOLD) {
		client_wait(acquire->client, UINT64_MAX, acquire->extra, 1);
		if (acquire->extra->revents != 0)
			order = acquire->read_order(acquire->context);
	}
	return order;
}

/* ---- one request ---- */

/* Until the request is answered, or has to be given up: what it was told (*ret_order), the time limit, a server that is
 * gone. */
static bool acquire_await(struct acquire *acquire, uint64_t limit_us, enum acquire_order *ret_order)
{
	*ret_order = ACQUIRE_GO_ON;
	for (;;) {
		struct answer state;
		uint64_t now_us = clock_now_us();
		enum health_check_finding finding = health_check_poll(&acquire->check, now_us, &state);
		if (finding == HEALTH_CHECK_STATE) {
			acquire_report_wait(acquire, &state);
			answer_fini(&state);
		}
		if (finding == HEALTH_CHECK_FAILED || now_us >= limit_us)
			return false;
		uint64_t next_us = health_check_next_us(&acquire->check);
		if (acquire_wait(acquire, next_us < limit_us ? next_us : limit_us, ret_order))
			return true;
		if (*ret_order != ACQUIRE_GO_ON)
			return false;
	}
}

void acquire_release(struct acquire *acquire, const struct lease *lease)
{
	bool again = true;
	struct answer answer;
	struct client_request request;

	client_request_release(&request, acquire->arguments->name, lease->token);
	for (int tries = 0; tries < RELEASE_TRIES && again; tries++) {
		uint64_t until_us = clock_now_us() + RELEASE_US;
		client_begin(acquire->client, acquire_server(acquire), &request, RELEASE_US);
		while (!client_wait(acquire->client, until_us, NULL, 0))
			continue;
		client_read(acquire->client, &answer);
		again = answer_is_of_one(&answer);
		answer_fini(&answer);
		if (again)
			acquire_next_server(acquire);
	}
	client_request_fini(&request);
}

/* The answer, whatever it is by now, is no lease. */
static void acquire_give_up(struct acquire *acquire, struct answer *ret_answer)
{
	struct lease lease;

	if (!client_hang_up(acquire->client, clock_now_us() + HANG_UP_US)) {
		answer_read(ret_answer, 0, NULL, 0, "it does not answer in time");
		return;
	}
	client_read(acquire->client, ret_answer);
	if (ret_answer->outcome != OUTCOME_DONE)
		return;
	if (answer_lease(ret_answer, acquire->arguments->name, NULL, &lease))
		acquire_release(acquire, &lease);
	answer_set(ret_answer, OUTCOME_UNAVAILABLE, "late", "its answer came too late");
}

static enum acquire_order acquire_ask(struct acquire *acquire, uint64_t wait_ms, struct answer *ret_answer)
{
	const struct arguments *arguments = acquire->arguments;
	struct client_request request;
	enum acquire_order order;
	bool long_one = wait_ms > 0;

	client_request_acquire(&request, arguments->name, arguments->ttl_ms, arguments->owner, wait_ms);
	client_begin(acquire->client, acquire_server(acquire), &request, arguments->timeout_ms * 1000);
	client_request_fini(&request);
	uint64_t sent_us = acquire->client->main.sent_us;
	acquire->check = (struct health_check){
		.client = acquire->client, .arguments = arguments, .server = acquire_server(acquire)};
	health_check_begin(&acquire->check, long_one && !acquire->wait_reported && acquire->on_wait,
			   long_one && arguments->servers.count > 1, sent_us);
	if (acquire_await(acquire, sent_us + (arguments->timeout_ms + wait_ms) * 1000, &order))
		client_read(acquire->client, ret_answer);
	else
		acquire_give_up(acquire, ret_answer);
	client_end_side(acquire->client);
	return order;
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
static enum acquire_order acquire_extend(struct acquire *acquire, const struct lease *lease, struct answer *ret_answer)
{
	enum acquire_order order = ACQUIRE_GO_ON;
	struct client_request request;

	client_request_extend(&request, acquire->arguments->name, lease->token, acquire->arguments->ttl_ms);
	for (size_t tries = 1;; tries++) {
		client_begin(acquire->client, acquire_server(acquire), &request, acquire->arguments->timeout_ms * 1000);
		while (order == ACQUIRE_GO_ON && !acquire_wait(acquire, UINT64_MAX, &order))
			continue;
		if (order != ACQUIRE_GO_ON)
			break;
		client_read(acquire->client, ret_answer);
		if (!answer_is_of_one(ret_answer) || tries == acquire->arguments->servers.count)
			break;
		answer_fini(ret_answer);
		acquire_next_server(acquire);
	}
	client_cancel(acquire->client);
	client_request_fini(&request);
	return order;
}

/* The lease again, with a new beginning. False: it is not ours (any more, or that is not known), or told something. */
static bool acquire_refresh(struct acquire *acquire, struct answer *answer, struct lease *lease, uint64_t *sent_us,
			    enum acquire_order *ret_order)
{
	char token[sizeof lease->token];
	struct answer extended = {.outcome = OUTCOME_UNAVAILABLE};

	memcpy(token, lease->token, sizeof token);
	*ret_order = acquire_extend(acquire, lease, &extended);
	bool done = *ret_order == ACQUIRE_GO_ON && extended.outcome == OUTCOME_DONE &&
		    answer_lease(&extended, acquire->arguments->name, token, lease);
	if (done)
		*sent_us = acquire->client->main.sent_us;
	else if (extended.outcome != OUTCOME_LOST)
		acquire_release(acquire, lease);
	if (!done)
		answer_set(answer, OUTCOME_UNAVAILABLE, "late", "the lease could not be extended when it came");
	explicit_bzero(token, sizeof token);
	answer_fini(&extended);
	return done;
}

/* True: the answer is a lease, and enough of it is left. Otherwise the answer says why not, unless it was told
 * something. */
static bool acquire_evaluate(struct acquire *acquire, struct answer *answer, struct lease *ret_lease,
			     uint64_t *ret_sent_us, enum acquire_order *ret_order)
{
	uint64_t sent_us = acquire->client->main.sent_us;
	struct lease lease;

	if (answer->outcome != OUTCOME_DONE || !answer_lease(answer, acquire->arguments->name, NULL, &lease))
		return false;
	bool good = acquire_is_young(&lease, sent_us) && acquire_is_enough(acquire, &lease, sent_us);
	if (!good && !acquire_refresh(acquire, answer, &lease, &sent_us, ret_order))
		return false;
	if (!acquire_is_enough(acquire, &lease, sent_us)) {
		acquire_release(acquire, &lease);
		answer_set(answer, OUTCOME_UNAVAILABLE, "late", "too little was left of the lease when it came");
		return false;
	}
	*ret_lease = lease;
	*ret_sent_us = sent_us;
	return true;
}

/* ---- all of it ---- */

/* Does the step; what was asked for is in ret_answer. */
static enum acquire_order acquire_step(struct acquire *acquire, struct wait *wait, struct wait_step step,
				       struct answer *answer)
{
	if (step.what == WAIT_PAUSE) {
		acquire_report_wait(acquire, answer);
		enum acquire_order order = acquire_pause(acquire, step.until_us);
		if (order != ACQUIRE_GO_ON)
			return order;
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

	wait_init(&wait, acquire->arguments->servers.count, acquire->server, acquire->arguments->wait_ms,
		  clock_now_us());
	struct wait_step step = wait_ask(&wait, clock_now_us());
	while (step.what != WAIT_GIVE_UP) {
		enum acquire_order order = acquire_step(acquire, &wait, step, &answer);
		bool taken = order == ACQUIRE_GO_ON &&
			     acquire_evaluate(acquire, &answer, ret_lease, ret_sent_us, &order);
		bool held = order == ACQUIRE_HOLD;
		if (held)
			order = acquire_hold(acquire);
		if (taken || order == ACQUIRE_STOP) {
			answer_fini(&answer);
			return taken ? ACQUIRE_GRANTED : ACQUIRE_STOPPED;
		}
		step = held ? wait_ask(&wait, clock_now_us())
			    : wait_next(&wait, &answer, acquire_random(), clock_now_us());
	}
	*ret_answer = answer;
	return ACQUIRE_REFUSED;
}

int acquire_status(const struct arguments *arguments, const struct answer *answer)
{
	switch (answer->outcome) {
	case OUTCOME_DONE: return EXIT_STATUS_OK;
	case OUTCOME_HELD:
	case OUTCOME_SPLIT: return arguments->held_status;
	case OUTCOME_LOST: return EXIT_STATUS_LOST;
	case OUTCOME_UNAVAILABLE: return EXIT_STATUS_UNREACHABLE;
	case OUTCOME_FORBIDDEN: return EXIT_STATUS_FORBIDDEN;
	case OUTCOME_INVALID: return EXIT_STATUS_USAGE;
	default: return EXIT_STATUS_STRANGE;
	}
}
