/* SPDX-License-Identifier: MIT */
/* The table of client addresses: which are one, both bounds, when a record is dropped, a full table, threads. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "api/auth/auth.h"
#include "suite.h"

enum { S = 1000000, THREADS = 4, ROUNDS = 20000 };

static const uint64_t now_us = UINT64_C(1000) * S;

union socket_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un path;
};

static union socket_address address_of(const char *text)
{
	union socket_address address = {0};

	if (strchr(text, ':') == NULL) {
		address.v4.sin_family = AF_INET;
		ck_assert_int_eq(inet_pton(AF_INET, text, &address.v4.sin_addr), 1);
	} else {
		address.v6.sin6_family = AF_INET6;
		ck_assert_int_eq(inet_pton(AF_INET6, text, &address.v6.sin6_addr), 1);
	}
	return address;
}

static bool arrive_at(const char *text, uint32_t max, uint64_t at_us, struct peer **ret_peer)
{
	union socket_address address = address_of(text);

	return peer_arrive(&address.any, address.any.sa_family == AF_INET ? sizeof address.v4 : sizeof address.v6, max,
			   at_us, ret_peer);
}

static struct peer *arrive(const char *text)
{
	struct peer *peer = NULL;

	ck_assert(arrive_at(text, 0, now_us, &peer));
	ck_assert_ptr_nonnull(peer);
	return peer;
}

/* Address number `i` of many. */
static struct peer *arrive_number(uint32_t i, bool v6, uint64_t at_us)
{
	union socket_address address = {0};
	struct peer *peer = NULL;
	uint32_t high = htonl(0x20010db8), low = htonl(i);

	if (v6) {
		address.v6.sin6_family = AF_INET6;
		memcpy(address.v6.sin6_addr.s6_addr, &high, 4);
		memcpy(address.v6.sin6_addr.s6_addr + 4, &low, 4);
	} else {
		address.v4.sin_family = AF_INET;
		address.v4.sin_addr.s_addr = low;
	}
	ck_assert(peer_arrive(&address.any, v6 ? sizeof address.v6 : sizeof address.v4, 0, at_us, &peer));
	return peer;
}

static void check_same(const char *one, const char *other, bool same)
{
	struct peer *a = arrive(one), *b = arrive(other);

	ck_assert_msg((a == b) == same, "%s and %s", one, other);
	peer_leave(a, now_us);
	peer_leave(b, now_us);
}

TEST(what_one_address_is)
{
	check_same("192.0.2.1", "192.0.2.1", true);
	check_same("192.0.2.1", "192.0.2.2", false);
	check_same("192.0.2.1", "::ffff:192.0.2.1", true);
	check_same("::ffff:192.0.2.1", "::ffff:192.0.2.2", false);
	check_same("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true);
	check_same("2001:db8:1:2::1", "2001:db8:1:3::1", false);
	check_same("2001:db8:1:2::1", "2001:db9:1:2::1", false);
	check_same("::1", "127.0.0.1", false);
	check_same("0.0.0.0", "::", false);
	check_same("0.0.0.1", "0:0:0:1::", false); /* the same number, of the other family */
	ck_assert_uint_eq(peers_count(), 0);
}

TEST(unix_sockets_have_none)
{
	union socket_address address = {.path = {.sun_family = AF_UNIX}}, ip = address_of("192.0.2.1");
	struct peer *peer = (struct peer *)&address;

	ck_assert(peer_arrive(&address.any, sizeof(sa_family_t), 1, now_us, &peer));
	ck_assert_ptr_null(peer);
	ck_assert(peer_arrive(NULL, 0, 1, now_us, &peer));
	ck_assert(peer_arrive(&ip.any, sizeof(sa_family_t), 1, now_us, &peer)); /* cut off */
	ck_assert_ptr_null(peer);
	peer_leave(NULL, now_us);
	for (uint32_t i = 0, ms; i < 100; i++)
		ck_assert(peer_take(NULL, 1, now_us, &ms));
	ck_assert_uint_eq(peers_count(), 0);
}

TEST(connections_are_bounded)
{
	struct peer *peers[3], *other = NULL, *none = NULL;

	for (int i = 0; i < 3; i++)
		ck_assert(arrive_at("192.0.2.1", 3, now_us, &peers[i]));
	ck_assert(!arrive_at("192.0.2.1", 3, now_us, &none));
	ck_assert_ptr_null(none);
	ck_assert(arrive_at("192.0.2.2", 3, now_us, &other));
	ck_assert_uint_eq(peers_count(), 2);
	peer_leave(peers[1], now_us);
	ck_assert(arrive_at("192.0.2.1", 3, now_us, &peers[1]));
	ck_assert(!arrive_at("192.0.2.1", 3, now_us, &none));
	for (int i = 0; i < 3; i++)
		peer_leave(peers[i], now_us);
	peer_leave(other, now_us);
	ck_assert_uint_eq(peers_count(), 0);
}

static uint32_t take_all(struct peer *peer, uint32_t per_second, uint64_t at_us)
{
	uint32_t count = 0, ms = 0;

	while (peer_take(peer, per_second, at_us, &ms))
		count++;
	ck_assert_uint_ge(ms, 1);
	return count;
}

TEST(connections_of_an_address_share_its_rate)
{
	struct peer *one = arrive("192.0.2.1"), *two = arrive("192.0.2.1"), *other = arrive("192.0.2.2");

	ck_assert_uint_eq(take_all(one, 10, now_us), 10);
	ck_assert_uint_eq(take_all(two, 10, now_us), 0);
	ck_assert_uint_eq(take_all(other, 10, now_us), 10);
	peer_leave(one, now_us + 2 * S);
	peer_leave(two, now_us + 2 * S);
	peer_leave(other, now_us + 2 * S);
	ck_assert_uint_eq(peers_count(), 0);
}

/* A client that closes and connects again has no new burst; after a second its record is dropped. */
TEST(a_rate_outlives_its_connections)
{
	struct peer *peer = arrive("192.0.2.1"), *again = NULL;

	ck_assert_uint_eq(take_all(peer, 10, now_us), 10);
	peer_leave(peer, now_us);
	ck_assert_uint_eq(peers_count(), 1);
	ck_assert(arrive_at("192.0.2.1", 0, now_us + S / 2, &again));
	ck_assert_uint_eq(take_all(again, 10, now_us + S / 2), 5);
	peer_leave(again, now_us + S / 2);
	ck_assert_uint_eq(peers_count(), 1);
	/* Another address drops the rested record. */
	ck_assert(arrive_at("192.0.2.9", 0, now_us + 2 * S, &again));
	ck_assert_uint_eq(peers_count(), 1);
	peer_leave(again, now_us + 2 * S);
	/* So does its own address. */
	ck_assert(arrive_at("192.0.2.1", 0, now_us + 2 * S, &again));
	ck_assert_uint_eq(take_all(again, 10, now_us + 2 * S), 10);
	peer_leave(again, now_us + 4 * S);
	ck_assert_uint_eq(peers_count(), 0);
}

/* All connections of an address, on all workers, share the number of tokens that wait. Unix sockets have no bound. */
TEST(tokens_that_wait_are_bounded)
{
	struct peer *one = arrive("198.51.100.1"), *same = arrive("198.51.100.1"), *other = arrive("198.51.100.2");

	ck_assert(peer_verify_begin(one, 2));
	ck_assert(peer_verify_begin(same, 2));
	ck_assert(!peer_verify_begin(one, 2));
	ck_assert(!peer_verify_begin(same, 2));
	ck_assert(peer_verify_begin(other, 2));
	peer_verify_end(one);
	ck_assert(peer_verify_begin(same, 2));
	ck_assert(!peer_verify_begin(one, 2));
	peer_verify_end(one);
	peer_verify_end(same);
	peer_verify_end(other);
	for (int i = 0; i < 3; i++)
		ck_assert(peer_verify_begin(NULL, 1));
	peer_verify_end(NULL);
	peer_leave(one, now_us);
	peer_leave(same, now_us);
	peer_leave(other, now_us);
	ck_assert_uint_eq(peers_count(), 0);
}

TEST(resting_records_are_found_at_any_position)
{
	struct peer *peers[50];

	for (uint32_t i = 0; i < 50; i++) {
		peers[i] = arrive_number(i, i % 2, now_us);
		take_all(peers[i], 5, now_us);
	}
	for (int i = 0; i < 50; i++)
		peer_leave(peers[i], now_us);
	ck_assert_uint_eq(peers_count(), 50);
	/* The first, the last and one in between connect again, and stay. */
	struct peer *first = arrive_number(0, false, now_us), *middle = arrive_number(25, true, now_us),
		    *last = arrive_number(49, true, now_us);
	ck_assert_ptr_eq(first, peers[0]);
	ck_assert_ptr_eq(middle, peers[25]);
	ck_assert_ptr_eq(last, peers[49]);
	for (int i = 0; i < 50; i++)
		peer_leave(arrive("198.51.100.1"), now_us + 2 * S);
	ck_assert_uint_eq(peers_count(), 3);
	peer_leave(first, now_us + 3 * S);
	peer_leave(middle, now_us + 3 * S);
	peer_leave(last, now_us + 3 * S);
	ck_assert_uint_eq(peers_count(), 0);
}

/* More addresses than records: the others share one record, with the bounds of one address. */
TEST(a_full_table_has_a_shared_record)
{
	static struct peer *peers[PEERS_MAX];
	struct peer *shared[5], *none = NULL, *own = NULL;

	for (uint32_t i = 0; i < PEERS_MAX; i++)
		peers[i] = arrive_number(i, i % 2, now_us);
	ck_assert_uint_eq(peers_count(), PEERS_MAX);
	ck_assert_ptr_ne(peers[0], peers[PEERS_MAX - 1]);
	for (int i = 0; i < 5; i++) {
		char text[] = "2001:db9:0:n::1";
		text[11] = (char)('0' + i);
		ck_assert(arrive_at(text, 5, now_us, &shared[i]));
		ck_assert_ptr_eq(shared[i], shared[0]);
	}
	ck_assert(!arrive_at("2001:db9:0:9::1", 5, now_us, &none));
	ck_assert_uint_eq(take_all(shared[0], 10, now_us), 10);
	ck_assert_uint_eq(take_all(shared[4], 10, now_us), 0);
	/* Known addresses are served as before. */
	struct peer *known = arrive_number(77, true, now_us);
	ck_assert_ptr_eq(known, peers[77]);
	peer_leave(known, now_us);
	/* One leaves: its record is free again. */
	peer_leave(peers[3], now_us);
	ck_assert(arrive_at("2001:db9:0:0::1", 5, now_us, &own));
	ck_assert_ptr_ne(own, shared[0]);
	peer_leave(own, now_us);
	for (int i = 0; i < 5; i++)
		peer_leave(shared[i], now_us);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (i != 3)
			peer_leave(peers[i], now_us);
	ck_assert_uint_eq(peers_count(), 0);
	/* The shared record is not dropped, and not used for a single address. */
	ck_assert(arrive_at("2001:db9:0:1::1", 1, now_us, &own));
	ck_assert_ptr_ne(own, shared[0]);
	peer_leave(own, now_us);
}

struct client {
	pthread_t thread;
	unsigned seed;
	uint32_t taken;
};

/* Connects and leaves, under addresses that the other threads use, too. */
static void *connect_often(void *arg)
{
	struct client *client = arg;
	struct peer *held[8] = {0};
	uint32_t ms;

	for (int i = 0; i < ROUNDS; i++) {
		struct peer **peer = &held[rand_r(&client->seed) % 8];
		uint64_t at_us = now_us + (uint64_t)i * 200;
		if (*peer != NULL) {
			peer_leave(*peer, at_us);
			*peer = NULL;
			continue;
		}
		*peer = arrive_number((uint32_t)rand_r(&client->seed) % 20, false, at_us);
		client->taken += peer_take(*peer, 100, at_us, &ms);
		if (peer_verify_begin(*peer, 3)) /* for the thread sanitizer */
			peer_verify_end(*peer);
	}
	for (int i = 0; i < 8; i++)
		peer_leave(held[i], now_us + UINT64_C(100) * S);
	return NULL;
}

TEST(threads)
{
	struct client clients[THREADS] = {{0}};
	uint64_t taken = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		clients[i].seed = i + 1;
		ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, connect_often, &clients[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(clients[i].thread, NULL);
		taken += clients[i].taken;
	}
	ck_assert_uint_gt(taken, 1000);
	for (int i = 0; i < 20; i++)
		peer_leave(arrive("198.51.100.1"), now_us + UINT64_C(200) * S);
	ck_assert_uint_eq(peers_count(), 0);
}
