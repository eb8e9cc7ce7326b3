/* SPDX-License-Identifier: MIT */
/* Which acquisitions with an Idempotency-Key vote again while they wait, and in which order. */
#include "lease_queue_world.h"
#include "suite.h"

enum { ENTRY_LEN = 33 };

/* A request with that key that all masters refuse. Writes its entry. */
static void wait_with(uint64_t key, char ret_entry[ENTRY_LEN + 1])
{
	struct lease_request request = {.operation = LEASE_ACQUIRE,
					.ttl_ms = 30000,
					.wait_ms = 60000,
					.key = key,
					.resource_len = 1,
					.resource = "r"};
	ck_assert_uint_lt(asked_count, ASKED_MAX);
	struct asked *one = &asked[asked_count++];
	*one = (struct asked){.answered = false};
	one->op = lease_submit(leases, &request, on_done, one);
	snprintf(ret_entry, ENTRY_LEN + 1, "%.*s", ENTRY_LEN,
		 fake_masters_last(&masters, REDLOCK_SCRIPT_ACQUIRE, 0)->entry);
	answer_acquires(&held);
	ck_assert(!one->answered);
}

static void confirm(uint64_t key)
{
	for (unsigned i = 0; i < FAKE_MASTERS; i++) /* each of them tells */
		masters.notification_events.confirmed(masters.notification_events.arg, key);
}

static size_t seen; /* acquisitions that master 0 got and a test looked at; the loop may send several in one round */

static const struct fake_command *acquire_at(size_t number)
{
	for (size_t i = 0; i < masters.command_count; i++)
		if (masters.commands[i].script == REDLOCK_SCRIPT_ACQUIRE && masters.commands[i].master == 0 &&
		    number-- == 0)
			return &masters.commands[i];
	return NULL;
}

static void skip_all(void)
{
	while (acquire_at(seen))
		seen++;
}

/* The next one must have this entry. */
static void check_next(const char *entry)
{
	const struct fake_command *next;
	while (!(next = acquire_at(seen)))
		uv_run(&loop, UV_RUN_NOWAIT); /* ONCE would wait for the next timer after one that sent it */
	seen++;
	ck_assert_msg(strncmp(next->entry, entry, ENTRY_LEN) == 0, "%s in place of %s", next->entry, entry);
}

TEST(a_confirmed_key_concerns_those_that_wait_with_it)
{
	char one[ENTRY_LEN + 1], other[ENTRY_LEN + 1], same[ENTRY_LEN + 1];
	(void)wait_for("r");
	wait_with(7, one);
	wait_with(8, other);
	wait_with(7, same);
	skip_all();
	confirm(6);
	confirm(7);
	check_next(one);
	check_next(same);
	confirm(8);
	check_next(other);
}

/* All look once after missed notifications, however late; those that are told come before them. */
TEST(who_is_told_looks_before_those_that_were_not)
{
	char first[ENTRY_LEN + 1], second[ENTRY_LEN + 1], third[ENTRY_LEN + 1];
	wait_with(7, first);
	(void)wait_for("r");
	wait_with(8, second);
	wait_with(9, third);
	skip_all();
	masters.notification_events.missed(masters.notification_events.arg);
	confirm(9);
	confirm(8);
	check_next(first); /* of all: this one tries for another reason */
	check_next(second);
	check_next(third);
	answer_acquires(&held);
	check_next(first);
	answer_acquires(&held);
	masters.notification_events.missed(masters.notification_events.arg);
	check_next(first);
}

TEST(whoever_has_left_is_not_told)
{
	char one[ENTRY_LEN + 1], again[ENTRY_LEN + 1];
	(void)wait_for("r");
	wait_with(7, one);
	confirm(7);
	give_up(&asked[asked_count - 1]);
	confirm(7);
	wait_with(7, again);
	skip_all();
	confirm(7);
	check_next(again);
}
