/* Side requests: see watch.h. First who has the lock, if that is wanted; then /healthz each --timeout, if there is
 * another server. */
#include "health_check.h"

#include <string.h>

enum { STATE_AFTER_US = 200000 };

static uint64_t watch_interval_us(const struct watch *watch)
{
	return watch->options->timeout_ms * 1000;
}

static void watch_set_next(struct watch *watch, uint64_t now_us)
{
	watch->next_us = watch->wants_health ? now_us + watch_interval_us(watch) : UINT64_MAX;
}

void watch_begin(struct watch *watch, bool wants_state, bool wants_health, uint64_t now_us)
{
	watch->wants_state = wants_state;
	watch->wants_health = wants_health;
	watch_set_next(watch, now_us);
	if (wants_state)
		watch->next_us = now_us + STATE_AFTER_US;
}

static void watch_ask(struct watch *watch)
{
	struct request request;

	watch->asks_state = watch->wants_state;
	if (watch->asks_state)
		request_status(&request, watch->options->name);
	else
		request_health(&request);
	http_begin_side(watch->http, watch->server, &request, watch_interval_us(watch));
	request_fini(&request);
}

static enum watch_finding watch_take(struct watch *watch, struct answer *answer)
{
	bool gone = answer->outcome == OUTCOME_UNAVAILABLE && strcmp(answer->code, "unreachable") == 0,
	     state = watch->asks_state;

	watch->asks_state = false;
	if (state && !gone) {
		watch->wants_state = false;
		if (!answer_state(answer))
			answer_set(answer, OUTCOME_HELD, "locked", "others are before us");
		return WATCH_STATE;
	}
	answer_fini(answer);
	return gone && watch->wants_health ? WATCH_GONE : WATCH_NOTHING;
}

enum watch_finding watch_look(struct watch *watch, uint64_t now_us, struct answer *ret_answer)
{
	struct answer answer;

	if (http_read_side(watch->http, &answer)) {
		watch_set_next(watch, now_us);
		enum watch_finding finding = watch_take(watch, &answer);
		if (finding == WATCH_STATE)
			*ret_answer = answer;
		return finding;
	}
	if (!watch->http->side.busy && now_us >= watch->next_us)
		watch_ask(watch);
	return WATCH_NOTHING;
}

uint64_t watch_next_us(const struct watch *watch)
{
	return watch->http->side.busy ? UINT64_MAX : watch->next_us;
}
