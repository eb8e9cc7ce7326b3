/* SPDX-License-Identifier: MIT */
/* What an extension sends to a master that has lost the lease. */
#include "lease_queue_world.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define NOW_US UINT64_C(1795215206922000)

static struct asked *extend(const char *names, uint8_t set_count)
{
	struct lease_request request = {.operation = LEASE_EXTEND,
					.ttl_ms = 60000,
					.set_count = set_count,
					.resource_len = (uint16_t)strlen(names),
					.resource = names};
	options.master_timeout_ms = 20000;
	memcpy(request.token, TOKEN, sizeof request.token);
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	return one;
}

static void answer(int master, const struct master_reply *reply)
{
	ck_assert_uint_eq(fake_masters_answer_some(&masters, REDLOCK_SCRIPT_EXTEND, master, 1, reply), 1);
}

/* Two of three masters extend, with that value; the first one says that it is gone. Then they extend once more. */
static void lose(const char *value, const char *buckets)
{
	const struct master_reply gone = {
		.vote = REDLOCK_VOTE_GONE, .time_us = NOW_US, .buckets = buckets, .buckets_len = strlen(buckets)};
	const struct master_reply extended = {.vote = REDLOCK_VOTE_GRANTED,
					      .time_us = NOW_US,
					      .ttl_us = 60000000,
					      .value = value,
					      .value_len = strlen(value)};
	answer(0, &gone);
	answer(1, &extended);
	answer(2, &extended);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_ACQUIRE, -1, false), 0);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_EXTEND, 0, true), 0);
	answer(1, &extended);
	answer(2, &extended);
}

static size_t repairs(void)
{
	return fake_masters_count(&masters, REDLOCK_SCRIPT_ACQUIRE, 0, true);
}

static uint64_t repaired(void)
{
	return metrics_load(&leases->metrics->repairs);
}

static const struct {
	const char *value, *label;
	uint64_t hold_ms;
} values[] = {
	{TOKEN ":0:7::", ":", 0},
	{TOKEN ":1795215207000:7::me", ":me", 78},
	{TOKEN "+:0:7:00000000000000ab:me\nkey\n{}", "00000000000000ab:me\nkey\n{}", 0},
	{TOKEN "#3:0:7:?00000000000000ab:\n\n{}", "?00000000000000ab:\n\n{}", 0},
};

TEST_EACH(the_lease_comes_back_as_it_was, 0, sizeof values / sizeof *values)
{
	extend("r", 0);
	lose(values[_i].value, "1795215206922001");
	ck_assert_uint_eq(repairs(), 1);
	ck_assert_uint_eq(fake_masters_count(&masters, REDLOCK_SCRIPT_ACQUIRE, -1, false), 1);
	const struct fake_command *repair = fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0);
	ck_assert(repair->repair);
	ck_assert_str_eq(repair->token, TOKEN);
	ck_assert_str_eq(repair->label, values[_i].label);
	ck_assert_str_eq(repair->buckets, "1795215206922001");
	ck_assert_uint_eq(repair->hold_ms, values[_i].hold_ms);
	ck_assert_uint_eq(repair->fence, 7);
	ck_assert_uint_le(repair->ttl_ms, 40000); /* not beyond the lease if it comes at the last moment */
	ck_assert_uint_ge(repair->ttl_ms, 30000);
	ck_assert_uint_eq(repaired(), 0);
	answer_acquires(&granted);
	ck_assert_uint_eq(repaired(), 1);
}

TEST(the_labels_of_a_set_end_before_its_names)
{
	extend("a\nb", 2);
	lose(TOKEN ";0:7::me\n\n\na\nb", "12,");
	ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0)->label, ":me");
	ck_assert_str_eq(fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0)->buckets, "12,");
	answer_acquires(&held);
	ck_assert_uint_eq(repaired(), 0);
}

/* Another server may say anything, and a lease at its bound gets no older. */
static const struct {
	const char *value, *buckets;
} strange[] = {
	{TOKEN ":0:7::", "123456789012345678"},
	{TOKEN ":1795215206922:7::", ""},
	{TOKEN ":0:0::", ""},
	{"of-another-library", ""},
};

TEST_EACH(nothing_is_sent_for_what_is_strange, 0, sizeof strange / sizeof *strange)
{
	struct asked *one = extend("r", 0);
	lose(strange[_i].value, strange[_i].buckets);
	ck_assert_uint_eq(repairs(), 0);
	leases_dispatch(leases);
	ck_assert(one->answered);
	ck_assert_int_eq(one->answer.status, LEASE_OK);
}
