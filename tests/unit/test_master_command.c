/* When a master counts as silent, and what that costs: a command in time must not cost a system call, since each
 * command to a master looks. */
#include <check.h>

#include "server/masters/master_internal.h"
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

START_TEST(test_in_time_without_a_system_call)
{
	ck_assert(!is_silent(false, false, SENT_US + 10 * TIMEOUT_US));
	ck_assert_uint_eq(looks, 0);
	ck_assert(!is_silent(true, false, SENT_US - 1));
	ck_assert_uint_eq(looks, 0);
	ck_assert(!is_silent(true, false, SENT_US + TIMEOUT_US - 1));
	ck_assert_uint_eq(looks, 0);
}
END_TEST

START_TEST(test_behind_is_silent_unless_bytes_lie_unread)
{
	ck_assert(is_silent(true, false, SENT_US + TIMEOUT_US));
	ck_assert_uint_eq(looks, 1);
	ck_assert(!is_silent(true, true, SENT_US + TIMEOUT_US));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("silence");
	suite_add(tcase, test_in_time_without_a_system_call, test_behind_is_silent_unless_bytes_lie_unread);
	return suite_run("master_command", tcase, NULL);
}
