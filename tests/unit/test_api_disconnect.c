/* SPDX-License-Identifier: MIT */
/* Clients that disconnect while they wait: their operation is cancelled at once, and their connection closed. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api_world.h"
#include "suite.h"

static const char wait_a[] = "POST /locks HTTP/1.1\r\n" HOST
			     "Content-Length: 32\r\n\r\n{\"resource\":\"a\",\"wait_ms\":60000}";

/* Waits for a lock that is not granted. */
static int wait_for_lock(int client)
{
	unsigned before = world.leases.submitted;

	world.leases.hold = true;
	put(client, S(wait_a));
	RUN_UNTIL(world.leases.submitted == before + 1);
	ck_assert_uint_eq(in_phase(CONNECTION_WORKING), 1);
	ck_assert(TAILQ_FIRST(&world.api->lists[CONNECTION_WORKING])->watched);
	return client;
}

static void expect_disconnected(void)
{
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.cancelled, 1);
	ck_assert_uint_eq(world.leases.abandoned,
			  0); /* nothing was granted; the operation releases a grant under way */
	ck_assert_uint_eq(api_busy(world.api), 0);
}

enum way { TCP_CLOSES, UNIX_CLOSES, RESETS, HALF_CLOSES, ASKS_ON, CLOSES_AT_ONCE, WAYS };

/* Half a close counts as one; an unread request does not hide it. */
TEST_EACH(a_client_that_leaves, 0, WAYS)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};
	int client = _i == UNIX_CLOSES ? connect_unix() : connect_tcp();

	if (_i != CLOSES_AT_ONCE)
		wait_for_lock(client);
	world.leases.hold = true;
	if (_i == CLOSES_AT_ONCE) /* before it is watched */
		put(client, S(wait_a));
	if (_i == ASKS_ON) {
		put(client, get_healthz, get_healthz_len);
		turn(-1, 10);
		ck_assert_uint_eq(world.leases.cancelled, 0);
	}
	if (_i == RESETS)
		ck_assert_int_eq(setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
	if (_i == HALF_CLOSES)
		shutdown(client, SHUT_WR);
	else
		close(client);
	RUN_UNTIL(world.leases.submitted == 1);
	expect_disconnected();
	if (_i != HALF_CLOSES)
		return;
	forget();
	receive(client);
	ck_assert(answer.closed && answer.len == 0); /* no answer was written */
	close(client);
}

TEST(answer_ends_the_watch)
{
	int client = wait_for_lock(connect_tcp());

	world.leases.hold = false;
	forget();
	await(client, 1, false);
	HAS("HTTP/1.1 201");
	ck_assert(!TAILQ_FIRST(&world.api->lists[CONNECTION_IDLE])->watched);
	wait_for_lock(client); /* and once more on the same connection */
	close(client);
	expect_disconnected();
}

/* More than one batch of events; every second client stays. */
TEST(many_clients)
{
	enum { MANY = 90 };
	int clients[MANY];

	world.leases.hold = true;
	for (size_t i = 0; i < MANY; i++) {
		clients[i] = connect_unix();
		put(clients[i], S(wait_a));
		turn(-1, 0);
	}
	RUN_UNTIL(world.leases.submitted == MANY);
	for (size_t i = 0; i < MANY; i += 2)
		close(clients[i]);
	RUN_UNTIL(world.api->connections == MANY / 2);
	ck_assert_uint_eq(world.leases.cancelled, MANY / 2);
	world.leases.hold = false;
	for (size_t i = 1; i < MANY; i += 2) {
		forget();
		await(clients[i], 1, false);
		HAS("HTTP/1.1 201");
		close(clients[i]);
	}
	RUN_UNTIL(world.api->connections == 0);
	ck_assert_uint_eq(world.leases.abandoned, 0);
}

static int option_of(int level, int option)
{
	int value = -1;
	socklen_t len = sizeof value;
	ck_assert_int_eq(getsockopt(world.served, level, option, &value, &len), 0);
	return value;
}

/* A connection that is only idle is not worth the packets. */
TEST(probes_last_as_long_as_the_wait)
{
	int client = connect_tcp();

	ck_assert_int_eq(ask(client, get_healthz), 200);
	ck_assert_int_eq(option_of(SOL_SOCKET, SO_KEEPALIVE), 0);
	wait_for_lock(client);
	ck_assert_int_eq(option_of(SOL_SOCKET, SO_KEEPALIVE), 1);
	ck_assert_int_eq(option_of(IPPROTO_TCP, TCP_USER_TIMEOUT), REPLY_VANISHED_MS);
	ck_assert_int_lt(1000 * (option_of(IPPROTO_TCP, TCP_KEEPIDLE) + option_of(IPPROTO_TCP, TCP_KEEPINTVL)),
			 REPLY_VANISHED_MS);
	world.leases.hold = false;
	forget();
	RUN_UNTIL((fake_leases_dispatch(&world.leases), receive(client), count_answers(false) == 1));
	HAS("HTTP/1.1 201 ");
	RUN_UNTIL(in_phase(CONNECTION_IDLE) == 1);
	ck_assert_int_eq(option_of(SOL_SOCKET, SO_KEEPALIVE), 0);
	ck_assert_int_eq(option_of(IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
	close(client);
}

FIXTURE(open_world, close_world)
