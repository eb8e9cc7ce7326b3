/* SPDX-License-Identifier: MIT */
/* Requests for several resources that wait: each is in the queue of every resource, and the first of this worker only
 * where it is the first of all. */
#include "lease_queue_world.h"

static struct asked *wait_for_set_that_is(const char *names, uint8_t count, const struct master_reply *answer)
{
	char text[64];
	struct lease_request request = {.operation = LEASE_ACQUIRE,
					.ttl_ms = 30000,
					.wait_ms = 60000,
					.set_count = count,
					.resource = text,
					.resource_len = (uint16_t)strlen(names)};
	struct asked *one = &asked[asked_count++];
	strcpy(text, names);
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	memset(text, '?', sizeof text); /* the caller's memory is no longer needed */
	answer_acquires(answer);
	ck_assert(!one->answered);
	ck_assert_int_eq(one->op->core.state, REDLOCK_WAITING);
	return one;
}

static struct asked *wait_for_set(const char *names, uint8_t count)
{
	return wait_for_set_that_is(names, count, &held);
}

static bool is_found(const struct asked *one, const char *resource)
{
	return lease_queue_find(leases, resource, strlen(resource), arrival_of(one)) == one->op;
}

/* NULL: nobody waits for it. */
static struct lease_op *first_of(const char *resource)
{
	const struct masters_notification other = {.resource = resource, .resource_len = strlen(resource)};
	struct lease_waiter *waiters;
	struct lease_op *first = NULL;
	if (lease_queue_list(leases, &other, &waiters) > 0)
		first = waiters[0].op;
	free(waiters);
	return first;
}

TEST(a_set_waits_in_the_queue_of_each_resource)
{
	struct asked *set = wait_for_set("a\nb\nc", 3);
	ck_assert(is_found(set, "a") && is_found(set, "b") && is_found(set, "c"));
	ck_assert_ptr_null(first_of("a\nb\nc"));
	ck_assert(!lease_queue_has_earlier(set->op));
	give_up(set);
	ck_assert_ptr_null(first_of("a"));
	ck_assert_ptr_null(first_of("c"));
}

TEST(a_set_that_leaves_makes_way_in_every_queue)
{
	struct asked *set = wait_for_set("a\nb", 2), *b = wait_for("b"), *other = wait_for_set("a\nb", 2);
	ck_assert(lease_queue_has_earlier(b->op) && lease_queue_has_earlier(other->op));
	give_up(set);
	ck_assert(!lease_queue_has_earlier(b->op));
	ck_assert(lease_queue_has_earlier(other->op));
	give_up(b);
	ck_assert(!lease_queue_has_earlier(other->op));
}

/* The one before waited for another resource, too, of which the set's wait knows nothing. */
TEST(a_set_keeps_what_it_knows_when_another_one_leaves)
{
	const struct master_reply held_for_long = {.vote = REDLOCK_VOTE_HELD,
						   .remaining_us = 50000000,
						   .value = HOLDER,
						   .value_len = sizeof HOLDER - 1,
						   .time_us = 1};
	struct asked *other = wait_for_set_that_is("b\nc", 2, &held_for_long), *set = wait_for_set("a\nb", 2);
	uint64_t free_us = set->op->core.free_us;
	give_up(other);
	ck_assert(!lease_queue_has_earlier(set->op));
	ck_assert_uint_eq(set->op->core.free_us, free_us);
	ck_assert_uint_eq(set->op->core.deadline_us, free_us);
}
