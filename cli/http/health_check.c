/* See health_check.h. First the state of the lock, if it is wanted; then /healthz each --timeout, if there is another
 * server. */
#include "health_check.h"

#include <assert.h>
#include <string.h>

#include "client.h"

enum { STATE_AFTER_US = 200000 };

static uint64_t health_check_interval_us(const struct health_check *check)
{
	assert(check->arguments->timeout_ms > 0);
	return check->arguments->timeout_ms * 1000;
}

static void health_check_set_next(struct health_check *check, uint64_t now_us)
{
	check->next_us = check->wants_health ? now_us + health_check_interval_us(check) : UINT64_MAX;
}

void health_check_begin(struct health_check *check, bool wants_state, bool wants_health, uint64_t now_us)
{
	assert(check->client);
	check->wants_state = wants_state;
	check->wants_health = wants_health;
	health_check_set_next(check, now_us);
	if (wants_state)
		check->next_us = now_us + STATE_AFTER_US;
}

static void health_check_ask(struct health_check *check)
{
	struct client_request request;

	assert(!check->client->side.busy);
	check->asks_state = check->wants_state;
	if (check->asks_state)
		client_request_status(&request, check->arguments->name);
	else
		client_request_health(&request);
	client_begin_side(check->client, check->server, &request, health_check_interval_us(check));
	client_request_fini(&request);
}

static enum health_check_finding health_check_evaluate(struct health_check *check, struct answer *answer)
{
	bool gone = answer->outcome == OUTCOME_UNAVAILABLE && strcmp(answer->code, "unreachable") == 0,
	     state = check->asks_state;

	check->asks_state = false;
	if (state && !gone) {
		check->wants_state = false;
		if (!answer_state(answer))
			answer_set(answer, OUTCOME_HELD, "locked", "other requests are ahead in the queue");
		return HEALTH_CHECK_STATE;
	}
	answer_fini(answer);
	return gone && check->wants_health ? HEALTH_CHECK_FAILED : HEALTH_CHECK_NOTHING;
}

enum health_check_finding health_check_poll(struct health_check *check, uint64_t now_us, struct answer *ret_answer)
{
	struct answer answer;

	assert(check->server && ret_answer);
	if (client_read_side(check->client, &answer)) {
		health_check_set_next(check, now_us);
		enum health_check_finding finding = health_check_evaluate(check, &answer);
		if (finding == HEALTH_CHECK_STATE)
			*ret_answer = answer;
		return finding;
	}
	if (!check->client->side.busy && now_us >= check->next_us)
		health_check_ask(check);
	return HEALTH_CHECK_NOTHING;
}

uint64_t health_check_next_us(const struct health_check *check)
{
	return check->client->side.busy ? UINT64_MAX : check->next_us;
}
