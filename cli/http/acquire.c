/* Acquires a lease: carries out the steps of wait.c. See acquire.h.
 *
 * From when on does the validity of a lease count? From the time when the request was sent it is always safe, since the
 * answer was written later. From the time when the answer was read it is not: this process may have been stopped, the
 * machine asleep or the network slow while the lease ran. After a long wait the safe time is useless: a lease of thirty
 * seconds would be over before it began. So a lease that may be older than a quarter of its validity is extended once
 * before it is used. PUT is answered at once, so the time before it was sent is both safe and near. (waited_ms of the
 * answer would save this request, but would rely on two clocks that agree over minutes.)
 *
 * A grant to a request that is given up is seen by client_hang_up(). It is released and not used: the server may have
 * noticed the disconnect and granted the lock to the next waiter. A lease with too little validity left is released,
 * too. */
#include "acquire.h"

#include <assert.h>
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
	assert(acquire->server < acquire->arguments->servers.count);
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

/* ---- pauses ---- */

/* Waits for the answer or an order, until until_us at most. True: the request is answered. */
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

/* Waits for an order other than ACQUIRE_HOLD. */
static enum acquire_order acquire_hold(struct acquire *acquire)
{
	enum acquire_order order = ACQUIRE_HOLD;

	assert(acquire->extra);
	while (order == ACQUIRE_HOLD) {
		client_wait(acquire->client, UINT64_MAX, acquire->extra, 1);
		if (acquire->extra->revents != 0)
			order = acquire->read_order(acquire->context);
	}
	return order;
}

/* ---- one request ---- */

/* True: the request is answered. False: it has to be given up, because of an order (*ret_order), the time limit, or a
 * server that does not answer health checks. */
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

	assert(strlen(lease->token) == sizeof lease->token - 1);
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

/* Gives the request up. The answer is then never a lease: a late grant is released. */
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
	answer_set(ret_answer, OUTCOME_UNAVAILABLE, "late", "the answer came too late");
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
	assert(clock_now_us() >= sent_us);
	return (clock_now_us() - sent_us) * 4 <= lease->validity_ms * 1000;
}

/* Asks the servers to extend the lease, each once, until one has answered. */
static enum acquire_order acquire_extend(struct acquire *acquire, const struct lease *lease, struct answer *ret_answer)
{
	enum acquire_order order = ACQUIRE_GO_ON;
	struct client_request request;

	assert(acquire->arguments->servers.count > 0);
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

/* Extends the lease, so that its validity counts from now. False: it was lost or released, or there was an order. */
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

/* True: the answer is a lease with enough validity left. Otherwise the answer says why not, unless there was an
 * order. */
static bool acquire_evaluate(struct acquire *acquire, struct answer *answer, struct lease *ret_lease,
			     uint64_t *ret_sent_us, enum acquire_order *ret_order)
{
	uint64_t sent_us = acquire->client->main.sent_us;
	struct lease lease;

	assert(ret_lease && ret_sent_us);
	if (answer->outcome != OUTCOME_DONE || !answer_lease(answer, acquire->arguments->name, NULL, &lease))
		return false;
	bool good = acquire_is_young(&lease, sent_us) && acquire_is_enough(acquire, &lease, sent_us);
	if (!good && !acquire_refresh(acquire, answer, &lease, &sent_us, ret_order))
		return false;
	if (!acquire_is_enough(acquire, &lease, sent_us)) {
		acquire_release(acquire, &lease);
		answer_set(answer, OUTCOME_UNAVAILABLE, "late", "too little validity was left when the lease came");
		return false;
	}
	*ret_lease = lease;
	*ret_sent_us = sent_us;
	return true;
}

/* ---- until there is a lease ---- */

/* Carries out one step. The answer of its request is in *answer. */
static enum acquire_order acquire_step(struct acquire *acquire, struct wait *wait, struct wait_step step,
				       struct answer *answer)
{
	assert(step.what == WAIT_ASK || step.what == WAIT_PAUSE);
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

	assert(acquire->server < acquire->arguments->servers.count);
	assert(!acquire->extra || acquire->read_order);
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
	assert(answer);
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
