/* SPDX-License-Identifier: MIT */
/* Watched resources: when the watch looks, and what watchers are told. Masters A, B and C answer as a test says. */
#include "lease_queue_world.h"

#define TOKEN_1 "0123456789abcdef0123456789abcdef01234567"
#define TOKEN_2 "1123456789abcdef0123456789abcdef01234567"
#define LEASE_1 TOKEN_1 ":0:7::one"
#define LEASE_2 TOKEN_2 ":0:8::two"

struct heard {
	struct lease_watcher *watcher;
	unsigned events, times, drained;
	bool ends; /* at its next event */
	char tag[LEASE_TAG_MAX];
	struct lease_answer state;
};

static const struct master_reply gone = {.vote = REDLOCK_VOTE_GONE, .time_us = 1};

static void on_event(void *arg, enum lease_watch_event event)
{
	struct heard *heard = arg;
	const char *tag;
	const struct lease_answer *answer = lease_watch_take(heard->watcher, &tag);
	heard->times += event == LEASE_WATCH_TIME;
	heard->drained += event == LEASE_WATCH_DRAINING;
	if (answer) {
		heard->events++;
		ck_assert_str_ne(heard->tag, tag);
		strcpy(heard->tag, tag);
		heard->state = *answer;
	}
	if (heard->ends) {
		lease_watch_end(heard->watcher);
		heard->watcher = NULL;
	}
}

static void watch_as(struct heard *heard, const char *seen, uint32_t time_ms)
{
	*heard = (struct heard){.events = 0};
	heard->watcher = lease_watch(leases, "r", 1, seen, time_ms, on_event, heard);
}

static void watch(struct heard *heard)
{
	watch_as(heard, "", 60000);
}

static void end(struct heard *heard)
{
	lease_watch_end(heard->watcher);
	fake_masters_answer(&masters, REDLOCK_SCRIPT_INSPECT, &gone);
}

static struct master_reply holds(const char *value, uint64_t remaining_us)
{
	return (struct master_reply){.vote = REDLOCK_VOTE_HELD,
				     .remaining_us = remaining_us,
				     .value = value,
				     .value_len = strlen(value),
				     .time_us = 1};
}

static size_t looks(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_INSPECT, 0, false);
}

/* Runs the loop until the next look has left. Without waiting in it: UV_RUN_ONCE waits for the next timer also after it
 * has run one. */
static void await_look(void)
{
	size_t before = looks();
	while (looks() == before)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(looks(), before + 1);
	ck_assert_uint_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_INSPECT, 0)->ttl_ms, 15000);
}

static void answer_look(struct master_reply a, struct master_reply b, struct master_reply c)
{
	(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, 0, 1, &a);
	(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, 1, 1, &b);
	(void)fake_masters_answer_some(&masters, REDLOCK_SCRIPT_INSPECT, 2, 1, &c);
	leases_dispatch(leases);
}

static void look(struct master_reply all)
{
	await_look();
	answer_look(all, all, all);
}

/* Watchers that come one after the other, and each change, cost one look. */
TEST(one_look_for_all)
{
	struct heard heard[8];
	for (size_t i = 0; i < 8; i++)
		watch(&heard[i]);
	look(gone);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_str_eq(heard[i].tag, "free");
	for (uint8_t i = 0; i < 3; i++)
		fake_masters_publish(&masters, "r");
	look(holds(LEASE_1, 20000000));
	ck_assert_uint_eq(looks(), 2);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert_str_eq(heard[i].tag, "7");
		ck_assert_uint_eq(heard[i].events, 2);
		ck_assert_mem_eq(heard[i].state.holder.owner, "one", 3);
		ck_assert_uint_le(heard[i].state.remaining_ms, 20000);
		ck_assert_uint_ge(heard[i].state.remaining_ms, 19000);
	}
	fake_masters_publish(&masters, "other");
	fake_masters_publish(&masters, "r");
	look(holds(LEASE_1, 20000000));
	ck_assert_uint_eq(heard[0].events, 2);
	ck_assert_uint_eq(metrics_watchers(), 8);
	for (unsigned i = 0; i < 8; i++)
		end(&heard[i]);
	ck_assert_uint_eq(metrics_watchers(), 0);
	ck_assert_uint_eq(masters.queue_shut, 1);
	fake_masters_publish(&masters, "r");
}

static size_t count_told(const struct heard *heard, size_t count, const char *tag)
{
	size_t told = 0;
	for (size_t i = 0; i < count; i++)
		told += strcmp(heard[i].tag, tag) == 0;
	return told;
}

/* Leases must not wait until all of many watchers are told. */
TEST(a_few_at_a_time)
{
	enum { COUNT = 100 };
	struct heard heard[COUNT];
	for (size_t i = 0; i < COUNT; i++)
		watch(&heard[i]);
	look(gone);
	size_t told = count_told(heard, COUNT, "free");
	ck_assert_uint_gt(told, 0);
	ck_assert_uint_lt(told, COUNT);
	for (size_t i = 1; i < COUNT; i += 2) /* before its turn, or after it */
		lease_watch_end(heard[i].watcher);
	fake_masters_publish(&masters, "r");
	look(holds(LEASE_1, 20000000));
	while (count_told(heard, COUNT, "7") < COUNT / 2)
		uv_run(&loop, UV_RUN_NOWAIT);
	for (size_t i = 0; i < COUNT; i += 2)
		ck_assert_uint_le(heard[i].events, 2);
	for (size_t i = 0; i < COUNT; i += 2)
		heard[i].ends = true;
	fake_masters_publish(&masters, "r");
	look(gone);
	while (metrics_watchers() > 0) /* the last one ends the watch */
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_ge(count_told(heard, COUNT, "free"), COUNT / 2);
	ck_assert_uint_eq(count_told(heard, COUNT, "7"), 0);
}

/* A newcomer gets what is known, without a look; one that has seen another state gets a look. */
TEST(newcomers)
{
	struct heard first, second, same, other;
	watch(&first);
	look(gone);
	watch(&second);
	watch_as(&same, "free", 60000);
	while (second.events == 0)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(looks(), 1);
	ck_assert_uint_eq(same.events, 0);
	watch_as(&other, "7", 60000);
	look(holds(LEASE_1, 20000000));
	ck_assert_uint_eq(other.events, 0); /* it was not older than what it has seen */
	ck_assert_str_eq(same.tag, "7");
	ck_assert_str_eq(first.tag, "7");
	end(&other);
	end(&same);
	end(&first);
	end(&second);
}

/* Nothing is published at the end of a lease's time: a timer looks. */
TEST(the_end_of_the_holder)
{
	struct heard heard;
	watch(&heard);
	look(holds(LEASE_1, 30000));
	uint64_t began_us = clock_now_us();
	look(holds(LEASE_1, 1000)); /* it was extended */
	ck_assert_uint_ge(clock_now_us() - began_us, 29000);
	look(gone);
	ck_assert_str_eq(heard.tag, "free");
	ck_assert_uint_eq(heard.events, 2);
	end(&heard);
}

/* Half a grant is not told; what stays so is. */
TEST(half_a_grant)
{
	struct heard heard;
	watch(&heard);
	await_look();
	answer_look(holds(LEASE_1, 20000000), gone, holds(LEASE_2, 20000000));
	ck_assert_uint_eq(heard.events, 0);
	await_look();
	answer_look(holds(LEASE_1, 20000000), holds(LEASE_1, 20000000), holds(LEASE_2, 20000000));
	ck_assert_str_eq(heard.tag, "7");
	fake_masters_publish(&masters, "r");
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_uint_eq(heard.events, 1);
		await_look();
		answer_look(holds(LEASE_1, 20000000), gone, holds(LEASE_2, 20000000));
	}
	ck_assert_str_eq(heard.tag, "split");
	fake_masters_publish(&masters, "r");
	await_look();
	answer_look(holds(LEASE_1, 20000000), gone, holds(LEASE_2, 20000000));
	ck_assert_uint_eq(heard.events, 2); /* as before */
	end(&heard);
}

TEST(no_quorum)
{
	struct heard heard;
	watch(&heard);
	await_look();
	answer_look(gone, lost, lost);
	ck_assert_str_eq(heard.tag, "unknown");
	ck_assert_int_eq(heard.state.status, LEASE_NO_QUORUM);
	masters.notification_events.missed(masters.notification_events.arg); /* a master is back */
	look(gone);
	ck_assert_str_eq(heard.tag, "free");
	end(&heard);
}

/* A change that is published while the watch looks may not be in the answer. */
TEST(a_change_during_a_look)
{
	struct heard heard;
	watch(&heard);
	await_look();
	fake_masters_publish(&masters, "r");
	answer_look(gone, gone, gone);
	look(holds(LEASE_1, 20000000));
	ck_assert_str_eq(heard.tag, "7");
	end(&heard);
}

TEST(times_and_ends)
{
	struct heard waits, first, last;
	watch(&last);
	look(gone);
	watch_as(&waits, "free", 5);
	watch_as(&first, "free", 60000);
	while (waits.times == 0)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(waits.events, 0);
	waits.ends = first.ends = last.ends = true;
	fake_masters_publish(&masters, "r");
	look(holds(LEASE_1, 20000000));
	ck_assert_ptr_null(waits.watcher);
	ck_assert_ptr_null(last.watcher);
	watch(&first);
	watch(&last);
	first.ends = last.ends = true;
	leases_drain(leases);
	ck_assert_uint_eq(first.drained + last.drained, 2);
	ck_assert_uint_eq(metrics_watchers(), 0);
}

TEST(bounds)
{
	struct heard heard[10];
	for (size_t i = 0; i < 10; i++) {
		ck_assert(!lease_watch_is_full(leases));
		watch(&heard[i]);
	}
	ck_assert(lease_watch_is_full(leases));
	ck_assert(!lease_queue_is_full(leases, &(struct lease_request){.resource_len = 1, .resource = "r"}));
	for (unsigned i = 0; i < 10; i++)
		end(&heard[i]);
}

/* ---- tags ---- */

static struct lease_answer state(bool is_held, uint8_t votes, uint8_t failed)
{
	return (struct lease_answer){.status = LEASE_OK,
				     .held = is_held,
				     .votes = {.needed = 2, .masters = 3, .granted = votes, .failed = failed},
				     .holder = {.known = true, .fence = REDLOCK_FENCE_LIMIT - 1},
				     .holder_id = UINT64_C(0x0123456789abcdef)};
}

static void expect_tag(struct lease_answer answer, const char *expected)
{
	char tag[LEASE_TAG_MAX];
	lease_tag_write(&answer, tag);
	ck_assert_str_eq(tag, expected);
}

TEST(tags)
{
	struct lease_answer other = state(true, 3, 0), down = state(false, 0, 2);
	other.holder.known = false;
	down.status = LEASE_NO_QUORUM;
	expect_tag(state(true, 2, 0), "9007199254740991");
	expect_tag(state(true, 1, 1), "9007199254740991"); /* it may have the majority */
	expect_tag(state(true, 1, 0), "split");
	expect_tag(state(false, 1, 0), "free");
	expect_tag(other, "x88888888");
	expect_tag(down, "unknown");
}
