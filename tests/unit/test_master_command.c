/* SPDX-License-Identifier: MIT */
/* When a master counts as silent, and what that costs: a command in time must not cost a system call, since each
 * command to a master looks. And which commands leave as one, in which order. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/masters/master_internal.h"
#include "server/scripts/scripts.h"
#include "suite.h"

enum { TIMEOUT_MS = 50, TIMEOUT_US = TIMEOUT_MS * 1000, SENT_US = 1000000 };

static unsigned looks;
static bool unread;

/* In place of the transport's. */
bool __wrap_transport_has_unread(const struct transport_connection *connection);
bool __wrap_transport_has_unread(const struct transport_connection *connection)
{
	ck_assert_ptr_nonnull(connection);
	looks++;
	return unread;
}

/* A master that is up, with one command under way, or none. */
static bool is_silent(bool has_command, bool has_unread, uint64_t when_us)
{
	struct options options = {.master_timeout_ms = TIMEOUT_MS};
	struct masters all = {.options = &options};
	struct master_command command = {.sent_us = SENT_US};
	struct master *master = &all.list[0];
	master->all = &all;
	master->link.state = LINK_UP;
	master->link.connection = (struct transport_connection *)&options; /* only its address matters */
	STAILQ_INIT(&master->under_way);
	if (has_command)
		STAILQ_INSERT_TAIL(&master->under_way, &command, entry);
	unread = has_unread;
	looks = 0;
	return master_command_is_silent(master, when_us);
}

TEST(test_in_time_without_a_system_call)
{
	ck_assert(!is_silent(false, false, SENT_US + 10 * TIMEOUT_US));
	ck_assert_uint_eq(looks, 0);
	ck_assert(!is_silent(true, false, SENT_US - 1));
	ck_assert_uint_eq(looks, 0);
	ck_assert(!is_silent(true, false, SENT_US + TIMEOUT_US - 1));
	ck_assert_uint_eq(looks, 0);
}

TEST(test_behind_is_silent_unless_bytes_lie_unread)
{
	ck_assert(is_silent(true, false, SENT_US + TIMEOUT_US));
	ck_assert_uint_eq(looks, 1);
	ck_assert(!is_silent(true, true, SENT_US + TIMEOUT_US));
}

/* ---- batches ---- */

static char sent[512]; /* what has left: "A r1 r2, R r1, " */

/* In place of the transport's. */
void __wrap_transport_send(struct transport_connection *connection, size_t count, const struct transport_word words[]);
void __wrap_transport_send(struct transport_connection *connection, size_t count, const struct transport_word words[])
{
	static const char letters[] = {[REDLOCK_SCRIPT_ACQUIRE] = 'A',
				       [REDLOCK_SCRIPT_RAISE] = 'F',
				       [REDLOCK_SCRIPT_EXTEND] = 'E',
				       [REDLOCK_SCRIPT_RELEASE] = 'R',
				       [REDLOCK_SCRIPT_INSPECT] = 'I'};
	char *at = sent + strlen(sent);
	ck_assert_ptr_nonnull(connection);
	ck_assert_uint_gt(count, 5);
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++)
		if (words[1].bytes == scripts[script].sha1 || words[1].bytes == scripts[script].source)
			*at++ = letters[script];
	for (size_t i = 0; i + 1 < (size_t)atoi(words[2].bytes); i++)
		at += sprintf(at, " %.*s", (int)words[3 + i].len, words[3 + i].bytes);
	strcpy(at, ", ");
}

static void settle(struct master *master, const struct master_command *done, uint64_t now_us,
		   struct master_reply *reply, const redisReply *raw)
{
	(void)master, (void)done, (void)now_us, (void)reply, (void)raw;
}

/* Sends what `asked` says, a letter and a digit each: the script and the resource. A capital: with its source. */
static void check_sent(const char *asked, const char *expected)
{
	static struct options options = {
		.master_timeout_ms = TIMEOUT_MS, .max_ttl_ms = 60000, .restart_guard = OPTIONS_GUARD_OFF};
	static struct masters all;
	static struct metrics_master metrics;
	static struct master_script list[2 * MASTER_BATCH_MAX];
	static char names[10][2] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"};
	struct master *master = &all.list[0];
	memset(&all, 0, sizeof all);
	all.options = &options;
	all.count = 1;
	strcpy(all.hash_key, "redlockd:master");
	all.hash_key_len = strlen(all.hash_key);
	master->all = &all;
	master->metrics = &metrics;
	master->link.connection = (struct transport_connection *)&options;
	STAILQ_INIT(&master->under_way);
	STAILQ_INIT(&master->spare);
	master_command_init_batches(master);
	master_guard_init(&all);
	sent[0] = '\0';
	for (size_t i = 0; asked[2 * i]; i++) {
		const char *letters = "aferi", *letter = strchr(letters, asked[2 * i] | 0x20);
		ck_assert_uint_lt(i, sizeof list / sizeof *list);
		list[i] = (struct master_script){.script = REDLOCK_SCRIPT_ACQUIRE + (unsigned)(letter - letters),
						 .resource = names[asked[2 * i + 1] - '0'],
						 .resource_len = 2,
						 .with_source = (asked[2 * i] & 0x20) == 0,
						 .ttl_ms = 1000,
						 .fence = 1,
						 .label = ":",
						 .label_len = 1};
		list[i].bucket = masters_bucket(list[i].resource, list[i].resource_len);
		master_command_send_script(master, &list[i], REDLOCK_NEVER, settle, NULL, NULL);
	}
	master_command_send_batches(master);
	ck_assert_str_eq(sent, expected);
	for (struct master_command *first; (first = STAILQ_FIRST(&master->under_way));) {
		STAILQ_REMOVE_HEAD(&master->under_way, entry);
		for (struct master_command *also; first; first = also) {
			also = STAILQ_NEXT(first, also);
			free(first);
		}
	}
}

static const struct {
	const char *asked, *expected;
} rounds[] = {
	{"a1", "A r1, "},
	{"a1a2a3", "A r1 r2 r3, "},
	{"a1r2a3r4e5i6e7i8", "A r1 r3, E r5 r7, R r2 r4, I r6 r8, "},
	{"a1a1", "A r1 r1, "}, /* one after the other */
	/* for one resource in the order in which they came */
	{"r1a1", "R r1, A r1, "},
	{"a1r1", "A r1, R r1, "},
	{"i1r1a1", "I r1, R r1, A r1, "},
	{"r1r2i3a2a4", "R r1 r2, A r2 r4, I r3, "},
	{"r1a1r1", "R r1, A r1, R r1, "},
	/* what leaves alone leaves behind all others */
	{"a1r2f3e4", "A r1, R r2, F r3, E r4, "},
	{"a1a2A3a4", "A r1 r2, A r3, A r4, "},
};

TEST_EACH(test_commands_of_a_round_leave_by_script_but_in_order_for_each_resource, 0, sizeof rounds / sizeof *rounds)
{
	check_sent(rounds[_i].asked, rounds[_i].expected);
}

TEST(test_a_full_batch_leaves)
{
	char asked[2 * MASTER_BATCH_MAX + 3] = "";
	for (size_t i = 0; i <= MASTER_BATCH_MAX; i++)
		strcat(asked, i < MASTER_BATCH_MAX ? "e1" : "e2");
	check_sent("i1i2i3i1i2i3i1i2i4", "I r1 r2 r3 r1 r2 r3 r1 r2, I r4, ");
	check_sent(asked, "E r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1"
			  " r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1 r1, E r2, ");
}
