/* SPDX-License-Identifier: MIT */
/* Answers to the scripts of the restart guard: see fuzz_reply.h. */
#include "fuzz.h"
#include "fuzz_reply.h"
#include "server/masters/master_internal.h"

/* No answer makes a quarantine shorter, or so long that it never ends. */
static void check_guard(struct guard *guard, const struct guard_event *event)
{
	uint64_t least_us = guard->params.max_ttl_us + guard->params.margin_us;
	/* the longest lease there can be, and its drift */
	uint64_t most_us = UINT64_C(86400000000) * 102 / 100 + guard->params.margin_us;
	struct guard_action action;
	guard_event(guard, event);
	for (int i = 0; i < 3; i++)
		guard_next(guard, 0, event->now_us, event->now_us, &action);
	uint64_t left_us = guard_quarantine_left_us(guard, 0, event->now_us);
	MUST(guard->masters[0].state != GUARD_MARKING || left_us >= least_us, "a quarantine of %llu us",
	     (unsigned long long)left_us);
	MUST(left_us <= most_us, "a quarantine of %llu us", (unsigned long long)left_us);
}

/* Returns the time that the master answers; 0: none. */
static uint64_t check_event(const redisReply *reply, enum guard_event_kind kind, bool voting)
{
	uint64_t time_us;
	const char *evicted;
	const struct guard_params params = {
		.masters = 1, .max_ttl_us = 60000000, .drift_ppm = 10001, .margin_us = 2002000, .digest = 1, .seed = 1};
	struct guard guard;
	struct guard_event event = {.kind = GUARD_CONNECTED, .now_us = 1000000000, .run_id = 1, .client_id = 1};
	guard_init(&guard, &params);
	guard_event(&guard, &event);
	if (voting)
		guard.masters[0].state = GUARD_VOTING;
	event = (struct guard_event){.kind = kind, .now_us = event.now_us};
	if (!master_reply_map_guard(reply, &event, &time_us, &evicted))
		return 0;
	MUST(event.kind == kind && event.master == 0, "event %d of master %u", (int)event.kind, event.master);
	if (kind == GUARD_EPOCH)
		check_guard(&guard, &event);
	return time_us;
}

/* Any time that a master answers, before and after another one. */
static void check_time(uint64_t time_us)
{
	const struct guard_params params = {.masters = 1, .max_ttl_us = 60000000, .digest = 1, .seed = 1};
	static const uint64_t befores_us[] = {1, UINT64_C(1795215206922001)};
	struct guard guard;
	for (size_t i = 0; i < sizeof befores_us / sizeof *befores_us; i++) {
		guard_init(&guard, &params);
		guard_time(&guard, 0, 1000000000, 1000000050, befores_us[i]);
		guard_time(&guard, 0, 1000001000, 1000001050, time_us);
		guard_time(&guard, 0, 1000002000, 1000002050, time_us);
		(void)guard_master_time_us(&guard, 0, 1000003000);
	}
}

void fuzz_check_guard_answer(const redisReply *reply)
{
	uint64_t time_us = check_event(reply, GUARD_EPOCH, false);
	check_event(reply, GUARD_EPOCH, true);
	check_event(reply, GUARD_QUARANTINED, false);
	check_event(reply, GUARD_FENCES, false);
	check_event(reply, GUARD_EPOCH_WRITTEN, false);
	if (time_us > 0)
		check_time(time_us);
}
