/* SPDX-License-Identifier: MIT */
/* Requests for shared leases and slots that wait: who of this worker follows whom, who is told, and which slot is asked
 * for. */
#include "lease_queue_world.h"

static struct asked *wait_in(const char *resource, enum lease_mode mode, const struct master_reply *answer)
{
	bool is_set = strchr(resource, '\n') != NULL;
	struct lease_request request = {.operation = LEASE_ACQUIRE,
					.ttl_ms = 30000,
					.wait_ms = 60000,
					.mode = mode,
					.slots = mode == LEASE_SLOT ? 4 : 0,
					.set_count = is_set ? 2 : 0,
					.resource_len = (uint16_t)strlen(resource),
					.resource = resource};
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	answer_acquires(answer);
	return one;
}

static struct asked *shared(void)
{
	return wait_in("a", LEASE_SHARED, &held);
}

static struct asked *shared_set(const char *names)
{
	return wait_in(names, LEASE_SHARED, &held);
}

/* A master names `named`, and all shared ones up to the arrival of `last`. */
static void notify_shared(const struct asked *named, bool ours, const struct asked *last)
{
	const struct masters_notification notification = {.ours = ours,
							  .kind = MASTER_SHARED,
							  .capacity = 1000,
							  .arrival = named ? arrival_of(named) : 1,
							  .last = last ? arrival_of(last) : 0,
							  .resource = "a",
							  .resource_len = 1};
	for (uint8_t i = 0; i < 2; i++) {
		struct masters_notification one = notification;
		one.master = i;
		masters.notification_events.notified(masters.notification_events.arg, &one);
	}
}

static bool tries(const struct asked *one)
{
	return one->op->core.state == REDLOCK_VOTING;
}

/* A set may wait for another resource, of which the others know nothing. */
TEST(one_that_wants_one_resource_does_not_follow_shared_sets)
{
	struct asked *set = shared_set("a\nb"), *other_set = shared_set("a\nc"), *first = shared(), *second = shared();
	ck_assert(!lease_queue_has_earlier(set->op) && !lease_queue_has_earlier(other_set->op));
	ck_assert(!lease_queue_has_earlier(first->op) && lease_queue_has_earlier(second->op));
	give_up(set);
	ck_assert(!lease_queue_has_earlier(first->op) && lease_queue_has_earlier(second->op));
	give_up(first);
	ck_assert(!lease_queue_has_earlier(second->op));
}

TEST(those_up_to_the_last_are_notified)
{
	struct asked *first = shared(), *second = shared(), *third = shared();
	notify_shared(first, true, second);
	ck_assert(tries(first) && tries(second) && !tries(third));
	answer_acquires(&granted);
	ck_assert_int_eq(first->answer.status, LEASE_OK);
	ck_assert_int_eq(second->answer.status, LEASE_OK);
	ck_assert_int_eq(first->answer.mode, LEASE_SHARED);
	ck_assert(!lease_queue_has_earlier(third->op));
}

TEST(those_up_to_the_last_are_notified_where_another_one_is_named)
{
	struct asked *first = shared(), *alone = wait_for("a"), *second = shared(), *third = shared();
	notify_shared(NULL, false, second);
	ck_assert(tries(first) && !tries(alone) && tries(second) && !tries(third));
}

/* The one that is named is told once: told twice, it would try twice. */
TEST(one_that_is_refused_does_not_try_again)
{
	struct asked *first = shared(), *second = shared();
	notify_shared(first, true, second);
	answer_acquires(&held);
	ck_assert(!tries(first) && !tries(second));
	ck_assert_int_eq(first->op->core.state, REDLOCK_WAITING);
	ck_assert_uint_eq(first->op->core.notified, 0);
}

#define SLOT(n) "0123456789abcdef0123456789abcdef01234567#" #n ":0:7::holder"

/* All masters say the same of the slots. */
static struct master_reply taken(const char *digits)
{
	return (struct master_reply){.vote = REDLOCK_VOTE_HELD,
				     .remaining_us = 20000000,
				     .value = SLOT(1),
				     .value_len = sizeof SLOT(1) - 1,
				     .taken = digits,
				     .taken_len = strlen(digits),
				     .time_us = 1};
}

TEST_EACH(the_next_attempt_asks_for_a_slot_that_is_free, 0, 8)
{
	struct lease_request request = {
		.operation = LEASE_ACQUIRE, .ttl_ms = 30000, .wait_ms = 60000, .mode = LEASE_SLOT, .slots = 4};
	struct asked *one = &asked[asked_count++];
	char digits[] = "1111";
	request.resource = "a";
	request.resource_len = 1;
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	unsigned asked_for = one->op->slot.index, free_one = (asked_for + 2) % 4;
	ck_assert_uint_lt(asked_for, 4);
	digits[free_one] = '0';
	const struct master_reply refusal = taken(digits);
	answer_acquires(&refusal);
	while (one->op->attempt.number == 1)
		uv_run(&loop, UV_RUN_ONCE); /* its timer is due */
	ck_assert(tries(one));
	ck_assert_uint_eq(one->op->slot.index, free_one);
	answer_acquires(&granted);
	ck_assert_int_eq(one->answer.status, LEASE_OK);
	ck_assert_uint_eq(one->answer.slot, free_one);
	ck_assert_int_eq(one->answer.mode, LEASE_SLOT);
}

static void notify_free(const struct asked *one, uint16_t slot)
{
	const struct masters_notification free = {.ours = true,
						  .kind = MASTER_SLOT,
						  .capacity = 4,
						  .has_free = true,
						  .free = slot,
						  .arrival = arrival_of(one),
						  .resource = "a",
						  .resource_len = 1};
	for (uint8_t i = 0; i < 2; i++) {
		struct masters_notification from = free;
		from.master = i;
		masters.notification_events.notified(masters.notification_events.arg, &from);
	}
}

TEST(a_slot_above_those_that_are_wanted_is_not_asked_for)
{
	const struct master_reply full = taken("1111");
	struct asked *one = wait_in("a", LEASE_SLOT, &full);
	notify_free(one, 4);
	ck_assert(tries(one));
	ck_assert_uint_lt(one->op->slot.index, 4);
}
