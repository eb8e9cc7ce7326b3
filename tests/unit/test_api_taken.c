/* Whether a client took its grant is seen by looks at its socket, and the reset that says no may come between any two of them. Wherever it comes,
 * the lease is given back, and once.
 *
 * The looks are scripted: poll() and ioctl() of this program stand before those of the C library. */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api_world.h"

static struct {
	unsigned looks;    /* so far */
	unsigned reset_at; /* the first look that sees the reset; 0: looks are not scripted */
	bool taken;        /* … or sees all bytes acknowledged instead */
} script;

/* By another name in C, since poll.h says of poll() that it only writes to *fds. */
int scripted_poll(struct pollfd *fds, nfds_t count, int timeout_ms) __asm__("poll");

/* A look at the end of a socket asks for no events and does not wait. */
int scripted_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};

	if (script.reset_at == 0 || count != 1 || fds->events != 0)
		return (int)syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &timeout, NULL, 0);
	fds->revents = ++script.looks >= script.reset_at && !script.taken ? POLLERR | POLLHUP : 0;
	return fds->revents != 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;

	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	if (script.reset_at == 0 || request != SIOCOUTQ)
		return (int)syscall(SYS_ioctl, fd, request, argument);
	*(int *)argument = script.taken && script.looks >= script.reset_at ? 0 : 100;
	return 0;
}

static void leave_with_a_grant(void)
{
	int client = connect_tcp();

	forget();
	exchange(client, post_a, post_a_len, 1);
	HAS("HTTP/1.1 201");
	close(client);
	RUN_UNTIL(world.api->connections == 0);
}

START_TEST(reset_at_any_look)
{
	script.reset_at = (unsigned)_i;
	leave_with_a_grant();
	RUN_UNTIL(world.api->lingering_count == 0);
	ck_assert_uint_ge(script.looks, script.reset_at);
	ck_assert_uint_eq(world.leases.given_back, 1);
	ck_assert_str_eq(world.leases.last_token, TOKEN);
}
END_TEST

START_TEST(taken_at_any_look)
{
	script.reset_at = (unsigned)_i;
	script.taken = true;
	leave_with_a_grant();
	RUN_UNTIL(world.api->lingering_count == 0);
	ck_assert_uint_eq(world.leases.given_back, 0);
}
END_TEST

/* Two requests in one packet: the second one was there before the first one's answer, so it does not say that the client has that. */
START_TEST(a_pipelined_request_proves_nothing)
{
	static const char next[] = "GET /healthz HTTP/1.1\r\n" HOST "\r\n";
	char both[1024];
	int client = connect_tcp();

	ck_assert_uint_lt(post_a_len + sizeof(next), sizeof(both));
	memcpy(both, post_a, post_a_len);
	memcpy(both + post_a_len, next, sizeof(next));
	script.reset_at = 1;
	exchange(client, both, post_a_len + sizeof(next) - 1, 2);
	HAS("HTTP/1.1 201");
	HAS("HTTP/1.1 200");
	ck_assert_uint_eq(world.leases.given_back, 1);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.given_back, 1);
}
END_TEST

/* One that comes later says that the client has read the answer before. */
START_TEST(a_later_request_proves_it)
{
	int client = connect_tcp();

	script.reset_at = 1;
	exchange(client, post_a, post_a_len, 1);
	HAS("HTTP/1.1 201");
	ck_assert_int_eq(ask(client, "GET /healthz HTTP/1.1\r\n" HOST "\r\n"), 200);
	ck_assert_uint_eq(world.leases.given_back, 0);
	close(client);
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.given_back, 0);
}
END_TEST

/* More at once than there is room for: those that find none are let go, nobody else's is touched. */
START_TEST(more_than_there_is_room_for)
{
	script.reset_at = 1000000;
	for (int i = 0; i < LINGER_MAX + 8; i++)
		leave_with_a_grant();
	ck_assert_uint_eq(world.api->lingering_count, LINGER_MAX);
	script.reset_at = 1; /* now all of them are known not to have taken it */
	RUN_UNTIL(world.api->lingering_count == 0);
	ck_assert_uint_eq(world.leases.given_back, LINGER_MAX);
}
END_TEST

static void add_all(TCase *tests)
{
	tcase_add_loop_test(tests, reset_at_any_look, 1, 7);
	tcase_add_loop_test(tests, taken_at_any_look, 1, 7);
	tcase_add_test(tests, a_pipelined_request_proves_nothing);
	tcase_add_test(tests, a_later_request_proves_it);
	tcase_add_test(tests, more_than_there_is_room_for);
}

int main(void)
{
	return run_suite("api_taken", add_all);
}
