/* SPDX-License-Identifier: MIT */
/* The answer to an operation from the core's result, and the holder of a key from its value. */
#include <check.h>
#include <string.h>

#include "server/leases/lease_internal.h"
#include "suite.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define OTHER "1123456789abcdef0123456789abcdef01234567"

static uint64_t read_value(const char *value, struct lease_holder *ret)
{
	return lease_value_read_holder(value, strlen(value), ret);
}

TEST(owners_are_read_from_our_own_values)
{
	struct lease_holder holder;
	read_value(TOKEN ":1795215206922:1795215206922001::worker-7", &holder);
	ck_assert(holder.known);
	ck_assert_uint_eq(holder.fence, UINT64_C(1795215206922001));
	ck_assert_uint_eq(holder.owner_len, 8);
	ck_assert_mem_eq(holder.owner, "worker-7", 8);
	lease_holder_fini(&holder);
	read_value(TOKEN ":0:9007199254740991::", &holder);
	ck_assert(holder.known);
	ck_assert_uint_eq(holder.fence, REDLOCK_FENCE_LIMIT - 1);
	ck_assert_uint_eq(holder.owner_len, 0);
	read_value(TOKEN ":0:1::a:b:c", &holder);
	ck_assert_mem_eq(holder.owner, "a:b:c", 5);
	lease_holder_fini(&holder);
}

static const char *const other_values[] = TEXTS(
	"", "x", "ZGVhZGJlZWY=", TOKEN, TOKEN ":", TOKEN ":12", TOKEN ":12:", TOKEN ":12:34", TOKEN ":12:worker",
	TOKEN ":12:34:worker", TOKEN ":12:34:0123456789abcdef", TOKEN ":12:34:0123456789abcde:x",
	TOKEN ":12:34:0123456789abcdeg:x", TOKEN ":12:34:?:x", TOKEN ":12:34:?0123456789abcde", TOKEN "::34:x",
	TOKEN ":12::x", TOKEN ":1a:34:x", TOKEN ":12:3a:x", TOKEN ":12:-34:x", TOKEN ":12:99999999999999999999:x",
	"0123456789ABCDEF0123456789abcdef01234567:1:2:x", " " TOKEN ":1:2:x");

TEST_EACH(other_values_have_no_owner, 0, sizeof other_values / sizeof *other_values)
{
	struct lease_holder holder;
	read_value(other_values[_i], &holder);
	ck_assert_msg(!holder.known, "%s", other_values[_i]);
	ck_assert_uint_eq(holder.owner_len, 0);
	ck_assert_uint_eq(holder.fence, 0);
}

/* A question mark: the request with that key is under way. A lease without a fence is none. */
TEST(keys_are_read)
{
	struct lease_holder holder;
	read_value(TOKEN ":12:34:0123456789abcdef:a:b", &holder);
	ck_assert(holder.known && holder.confirmed);
	ck_assert_uint_eq(holder.key, UINT64_C(0x0123456789abcdef));
	ck_assert_mem_eq(holder.owner, "a:b", 3);
	lease_holder_fini(&holder);
	read_value(TOKEN ":12:34:?fedcba9876543210:", &holder);
	ck_assert(holder.known && !holder.confirmed);
	ck_assert_uint_eq(holder.key, UINT64_C(0xfedcba9876543210));
	read_value(TOKEN ":12:34::?", &holder);
	ck_assert(holder.known && !holder.confirmed);
	ck_assert_uint_eq(holder.key, 0);
	lease_holder_fini(&holder);
	read_value(TOKEN ":12:0:0123456789abcdef:", &holder);
	ck_assert(holder.known && !holder.confirmed);
}

TEST(caller_and_metadata_are_read)
{
	struct lease_holder holder;
	read_value(TOKEN ":12:34::me\nbilling\n{\"a\":1}", &holder);
	ck_assert(holder.known);
	ck_assert_uint_eq(holder.owner_len, 2);
	ck_assert_uint_eq(holder.caller_len, 7);
	ck_assert_uint_eq(holder.metadata_len, 7);
	ck_assert_mem_eq(holder.owner, "mebilling{\"a\":1}", 16);
	lease_holder_fini(&holder);
	read_value(TOKEN ":12:34::\n\n{}", &holder);
	ck_assert_uint_eq(holder.owner_len + holder.caller_len, 0);
	ck_assert_mem_eq(holder.owner, "{}", 2);
	lease_holder_fini(&holder);
	read_value(TOKEN ":12:34::me\nbilling", &holder);
	ck_assert_uint_eq(holder.metadata_len, 0);
	ck_assert_mem_eq(holder.owner, "mebilling", 9);
	lease_holder_fini(&holder);
	read_value(TOKEN ":12:34::me\n", &holder);
	ck_assert(holder.known && holder.caller_len == 0);
	lease_holder_fini(&holder);
}

TEST_EACH(more_than_redlockd_writes_is_not_read, 0, 2)
{
	char value[LEASE_TOKEN_LEN + 9 + LEASE_METADATA_MAX + 3] = TOKEN ":0:1::";
	struct lease_holder holder;
	strcat(value, _i == 0 ? "\n" : "\n\n");
	size_t len = strlen(value), more = _i == 0 ? LEASE_CALLER_MAX : LEASE_METADATA_MAX;
	memset(value + len, 'x', more);
	read_value(value, &holder);
	ck_assert(holder.known && holder.owner);
	lease_holder_fini(&holder);
	value[len + more] = 'x';
	read_value(value, &holder);
	ck_assert(!holder.known && !holder.owner);
}

TEST(an_owner_that_is_too_long_is_not_read)
{
	char value[LEASE_TOKEN_LEN + 6 + LEASE_OWNER_MAX + 2] = TOKEN ":0:1::";
	memset(value + strlen(value), 'o', LEASE_OWNER_MAX + 1);
	struct lease_holder holder;
	read_value(value, &holder);
	ck_assert(!holder.known);
}

/* hold_until_ms is in each master's own time, and not every master has the last fence: only the token identifies a
 * holder. */
TEST(holders_are_told_apart_by_token)
{
	struct lease_holder holder;
	uint64_t id = read_value(TOKEN ":1:7::", &holder);
	ck_assert_uint_eq(id, read_value(TOKEN ":2:8::", &holder));
	ck_assert_uint_ne(id, read_value(OTHER ":1:7::", &holder));
	ck_assert_uint_eq(read_value("redsync-value", &holder), read_value("redsync-value", &holder));
	ck_assert_uint_ne(read_value("redsync-value", &holder), read_value("another-value", &holder));
	ck_assert_uint_eq(lease_value_read_holder(NULL, 0, &holder), lease_value_read_holder(NULL, 0, &holder));
	ck_assert(!holder.known);
}

/* Until when a lease can be extended: only from values of our own, all digits of them. */
TEST(bounds_of_leases_are_read_from_our_own_values)
{
	static const struct {
		const char *value;
		uint64_t hold_until_ms;
	} values[] = {
		{TOKEN ":1795215206922:1795215206922001::worker-7", UINT64_C(1795215206922)},
		{TOKEN ":1:2::", 1},
		{TOKEN ":0:7::worker", 0},
		{TOKEN ":9007199254740991:7::", REDLOCK_FENCE_LIMIT - 1},
	};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		ck_assert_uint_eq(lease_value_hold_until_ms(values[i].value, strlen(values[i].value)),
				  values[i].hold_until_ms);
	ck_assert_uint_eq(lease_value_hold_until_ms(NULL, 0), 0);
	/* no further than its length */
	ck_assert_uint_eq(lease_value_hold_until_ms(TOKEN ":12:34::x", LEASE_TOKEN_LEN + 3), 0);
}

TEST_EACH(other_values_have_no_bound, 0, sizeof other_values / sizeof *other_values)
{
	ck_assert_uint_eq(lease_value_hold_until_ms(other_values[_i], strlen(other_values[_i])), 0);
}

/* With room for three masters. */
static union {
	uint64_t aligned;
	char bytes[sizeof(struct lease_op) + 3 * sizeof(struct lease_sight)];
} op_room;
static struct lease_op *const op = (void *)&op_room;

static void make_op(enum lease_operation operation)
{
	memset(&op_room, 0, sizeof op_room);
	op->request.operation = operation;
	op->core.params.masters = 3;
	op->core.params.drift_us = 302000 + LEASE_ROUNDING_US;
	op->began_us = 1000000;
	memcpy(op->attempt.token, TOKEN, LEASE_TOKEN_LEN);
}

/* Validity is rounded down; drift and waits are rounded up. */
TEST(times_are_rounded_to_the_safe_side)
{
	struct lease_answer answer;
	make_op(LEASE_ACQUIRE);
	struct redlock_result result = {
		.outcome = REDLOCK_OK,
		.fence = REDLOCK_FENCE_LIMIT - 1,
		.ttl_us = 30000000,
		.validity_us = 29696999 - LEASE_ROUNDING_US,
	};
	op->core.params.drift_us = 301001 + LEASE_ROUNDING_US;
	lease_answer_make(op, &result, 1002999, &answer);
	ck_assert_int_eq(answer.status, LEASE_OK);
	ck_assert_uint_eq(answer.validity_ms, 29696);
	ck_assert_uint_eq(answer.until_us, 1002999 + 29696000); /* from the decision, however late the answer is sent */
	ck_assert_uint_eq(answer.drift_ms, 302);
	ck_assert_uint_eq(answer.ttl_ms, 30000);
	ck_assert_uint_eq(answer.waited_ms, 2);
	ck_assert_mem_eq(answer.token, TOKEN, LEASE_TOKEN_LEN);
	ck_assert_uint_eq(answer.fence, REDLOCK_FENCE_LIMIT - 1);
	result.validity_us = 1; /* the least that the core grants */
	lease_answer_make(op, &result, 1002999, &answer);
	ck_assert_uint_eq(answer.validity_ms, 1);
	make_op(LEASE_ACQUIRE);
	result = (struct redlock_result){.outcome = REDLOCK_LOCKED, .retry_after_us = 1001};
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert_uint_eq(answer.retry_after_ms, 2);
}

static const struct {
	enum redlock_outcome outcome;
	enum lease_status status;
} outcomes[] = {
	{REDLOCK_OK, LEASE_OK},           {REDLOCK_LOCKED, LEASE_LOCKED},       {REDLOCK_NOT_OWNER, LEASE_NOT_OWNER},
	{REDLOCK_EXPIRED, LEASE_EXPIRED}, {REDLOCK_NO_QUORUM, LEASE_NO_QUORUM}, {REDLOCK_SPLIT, LEASE_SPLIT_VOTE},
};

/* Only a lease has a token and a fence. */
TEST_EACH(outcomes_become_statuses_and_only_leases_have_tokens, 0, sizeof outcomes / sizeof *outcomes)
{
	struct lease_answer answer;
	make_op(LEASE_ACQUIRE);
	struct redlock_result result = {.outcome = outcomes[_i].outcome, .fence = 7, .validity_us = 1};
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert_int_eq(answer.status, outcomes[_i].status);
	if (answer.status != LEASE_OK) {
		ck_assert_int_eq(answer.token[0], '\0');
		ck_assert_uint_eq(answer.fence, 0);
	}
}

/* Too many requests wait already: answered only if the lock is held, and never instead of a lease. */
TEST_EACH(too_many_is_told_only_where_it_would_have_waited, 0, sizeof outcomes / sizeof *outcomes)
{
	struct lease_answer answer;
	make_op(LEASE_ACQUIRE);
	op->request.wait_ms = 1;
	struct redlock_result result = {.outcome = outcomes[_i].outcome, .retry_after_us = 1001, .validity_us = 1000};
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert_int_eq(answer.status, outcomes[_i].status == LEASE_LOCKED ? LEASE_TOO_MANY : outcomes[_i].status);
	ck_assert_uint_eq(answer.retry_after_ms, 2);
	op->core.params.wait_us = 1000;
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert_int_eq(answer.status, outcomes[_i].status);
}

TEST(waiters_are_shown_whether_it_is_held_or_free)
{
	struct lease_answer answer;
	make_op(LEASE_INSPECT);
	struct redlock_result result = {.outcome = REDLOCK_OK, .waiters = UINT32_MAX};
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert(!answer.held);
	ck_assert_uint_eq(answer.waiters, UINT32_MAX);
	result.held = true;
	result.waiters = 7;
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert_uint_eq(answer.waiters, 7);
}

TEST(too_late_is_told_from_too_few)
{
	struct lease_answer answer;
	make_op(LEASE_ACQUIRE);
	struct redlock_result result = {.outcome = REDLOCK_NO_QUORUM,
					.votes = {.needed = 2, .granted = 2, .masters = 3}};
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert(answer.too_late);
	result.votes.granted = 1;
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert(!answer.too_late);
}

TEST(the_holder_is_the_one_that_the_core_chose)
{
	struct lease_answer answer;
	make_op(LEASE_INSPECT);
	op->seen[0].id = read_value(OTHER ":1:99:stale", &op->seen[0].holder);
	op->seen[1].id = read_value(TOKEN ":1:7::worker", &op->seen[1].holder);
	struct redlock_result result = {
		.outcome = REDLOCK_OK,
		.held = true,
		.has_holder = true,
		.holder = op->seen[1].id,
		.holder_fence = 8,
		.remaining_us = 5999,
	};
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert(answer.held && answer.expires && answer.holder.known);
	ck_assert_mem_eq(answer.holder.owner, "worker", 6);
	ck_assert_uint_eq(answer.holder.fence, 8); /* the core has the answers of all masters */
	ck_assert_uint_eq(answer.remaining_ms, 5);
	result.remaining_us = REDLOCK_NEVER;
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert(answer.held && !answer.expires);
}

TEST(an_extended_lease_shows_its_own_owner)
{
	struct lease_answer answer;
	make_op(LEASE_EXTEND);
	op->seen[0].id = read_value(OTHER ":1:99:another", &op->seen[0].holder);
	op->seen[2].id = read_value(TOKEN ":9:7::me", &op->seen[2].holder);
	struct redlock_result result = {.outcome = REDLOCK_OK, .fence = 8, .ttl_us = 5000000, .validity_us = 1000};
	lease_answer_make(op, &result, 1000000, &answer);
	ck_assert_uint_eq(answer.holder.owner_len, 2);
	ck_assert_mem_eq(answer.holder.owner, "me", 2);
	ck_assert_uint_eq(answer.fence, 8);
	ck_assert_uint_eq(answer.ttl_ms, 5000);
}
