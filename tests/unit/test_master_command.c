/* When a master counts as silent, and what that costs: a command in time must not cost a system call, since each
 * command to a master looks. */
#include <check.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "server/masters/master_internal.h"

enum { TIMEOUT_MS = 50, TIMEOUT_US = TIMEOUT_MS * 1000, SENT_US = 1000000 };

static unsigned ioctl_calls;
static int unread;

/* In place of the C library's. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	int *ret_count = va_arg(arguments, int *);
	va_end(arguments);
	ck_assert_int_eq(fd, STDIN_FILENO);
	ck_assert_uint_eq(request, FIONREAD);
	*ret_count = unread;
	ioctl_calls++;
	return 0;
}

/* A master that is up, with one command under way, or none. */
static bool is_silent(bool has_command, int unread_bytes, uint64_t when_us)
{
	struct options options = {.master_timeout_ms = TIMEOUT_MS};
	struct masters all = {.options = &options};
	redisAsyncContext context = {.c = {.fd = STDIN_FILENO}};
	struct master_io io = {.context = &context};
	struct master_command command = {.sent_us = SENT_US};
	struct master *master = &all.list[0];
	master->all = &all;
	master->link.state = LINK_UP;
	master->link.io = &io;
	master->first = has_command ? &command : NULL;
	unread = unread_bytes;
	ioctl_calls = 0;
	return master_command_is_silent(master, when_us);
}

START_TEST(test_in_time_without_a_system_call)
{
	ck_assert(!is_silent(false, 0, SENT_US + 10 * TIMEOUT_US));
	ck_assert_uint_eq(ioctl_calls, 0);
	ck_assert(!is_silent(true, 0, SENT_US - 1));
	ck_assert_uint_eq(ioctl_calls, 0);
	ck_assert(!is_silent(true, 0, SENT_US + TIMEOUT_US - 1));
	ck_assert_uint_eq(ioctl_calls, 0);
}
END_TEST

START_TEST(test_behind_is_silent_unless_bytes_lie_unread)
{
	ck_assert(is_silent(true, 0, SENT_US + TIMEOUT_US));
	ck_assert_uint_eq(ioctl_calls, 1);
	ck_assert(!is_silent(true, 1, SENT_US + TIMEOUT_US));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("master_command");
	TCase *tcase = tcase_create("silence");
	SRunner *runner = srunner_create(suite);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_in_time_without_a_system_call);
	tcase_add_test(tcase, test_behind_is_silent_unless_bytes_lie_unread);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
