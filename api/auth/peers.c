/* SPDX-License-Identifier: MIT */
/* Rates, and the table of client addresses: open connections and the rate of requests of each, for all workers. See
 * auth.h.
 *
 * A record lives while its address has a connection open, and until its rate is full again: otherwise a client that
 * closes and connects again would have a new burst each time. When there are PEERS_MAX records, further addresses share
 * one more with the bounds of a single address: otherwise the owner of 65,536 addresses (an IPv6 /48) could shut out
 * everybody else with one connection from each.
 *
 * One mutex guards everything but the rates and the numbers of tokens. It is held briefly at accept and at close, never
 * during a request. The tree is balanced, whatever addresses the clients choose. */
#include <assert.h>
#include <endian.h>
#include <netinet/in.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "auth.h"

enum { LOOKS_PER_STEP = 4, NS_PER_US = 1000, NS_PER_MS = 1000000 };

#define NS_PER_S UINT64_C(1000000000)
#define NOW_US_MAX (UINT64_C(500) * 366 * 86400 * 1000000) /* the years in which now_us * NS_PER_US fits */

/* ---- rates: the generic cell rate algorithm, a leaky bucket that needs one number ----
 *
 * Each event takes a share of time, 1 s / per_second. `next_ns` is the end of the last share; it may lie one second
 * ahead of now, so that `per_second` events can come at once. Shares are rounded up to whole ns, so no stretch of time
 * has more than per_second a second and one burst. A thread whose clock is slow gets less, never more. */

static uint64_t share_of(uint32_t per_second)
{
	return (NS_PER_S + per_second - 1) / per_second;
}

/* Takes `count` shares if there is time for `needed` of them. */
static bool take_shares(struct rate *rate, uint32_t per_second, uint32_t count, uint32_t needed, uint64_t now_us,
			uint32_t *ret_retry_ms)
{
	assert(ret_retry_ms && now_us < NOW_US_MAX && needed <= per_second);
	uint64_t share_ns = share_of(per_second);
	uint64_t now_ns = now_us * NS_PER_US, latest_ns = now_ns + share_ns * per_second;
	uint64_t next_ns = atomic_load_explicit(&rate->next_ns, memory_order_relaxed), begin_ns;
	do {
		begin_ns = next_ns > now_ns ? next_ns : now_ns;
		if (begin_ns + share_ns * needed > latest_ns) {
			/* rounded up: earlier would be too early */
			uint64_t ms = (begin_ns + share_ns * needed - latest_ns - 1) / NS_PER_MS + 1;
			*ret_retry_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&rate->next_ns, &next_ns, begin_ns + share_ns * count,
							memory_order_relaxed, memory_order_relaxed));
	return true;
}

bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
{
	return per_second == 0 || take_shares(rate, per_second, 1, 1, now_us, ret_retry_ms);
}

bool rate_take_more(struct rate *rate, uint32_t per_second, uint32_t count, uint64_t now_us, uint32_t *ret_retry_ms)
{
	if (per_second == 0 || count == 0)
		return true;
	uint32_t needed = count < per_second ? count : per_second - 1;
	if (take_shares(rate, per_second, count, needed, now_us, ret_retry_ms))
		return true;
	atomic_fetch_sub_explicit(&rate->next_ns, share_of(per_second), memory_order_relaxed);
	return false;
}

bool rate_is_idle(const struct rate *rate, uint64_t now_us)
{
	assert(rate && now_us < NOW_US_MAX);
	return atomic_load_explicit(&rate->next_ns, memory_order_relaxed) <= now_us * NS_PER_US;
}

/* ---- addresses ---- */

struct peer {
	struct rate rate;
	uint64_t address; /* as read_address() writes it */
	uint32_t connections;
	_Atomic uint32_t verifying; /* requests whose token waits to be verified */
	TAILQ_ENTRY(peer) entry;
};

static struct {
	pthread_mutex_t lock;
	void *by_address; /* of tsearch() */
	size_t count;     /* in the tree */
	struct peer overflow;
	TAILQ_HEAD(, peer) list; /* those of the tree */
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER, .list = TAILQ_HEAD_INITIALIZER(peers.list)};

/* The first 64 bits of an IPv6 address; all 32 of an IPv4 one, which lie in 0:ffff::/32, where no IPv6 address is.
 * False: not an IP address. */
static bool read_address(const struct sockaddr *address, socklen_t len, uint64_t *ret_address)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	uint64_t bits;
	if (len >= sizeof v4 && address->sa_family == AF_INET) {
		memcpy(&v4, address, sizeof v4);
		*ret_address = UINT64_C(0xffff) << 32 | ntohl(v4.sin_addr.s_addr);
		return true;
	}
	if (len < sizeof v6 || address->sa_family != AF_INET6)
		return false;
	memcpy(&v6, address, sizeof v6);
	memcpy(&bits, v6.sin6_addr.s6_addr + (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? 8 : 0), sizeof bits);
	*ret_address = be64toh(bits);
	return true;
}

static int compare_addresses(const void *a, const void *b)
{
	const struct peer *one = a, *other = b;
	return one->address < other->address ? -1 : one->address > other->address;
}

/* Drops the record if it is not needed any more. */
static bool drop_idle_peer(struct peer *peer, uint64_t now_us)
{
	if (peer == &peers.overflow || peer->connections > 0 || !rate_is_idle(&peer->rate, now_us))
		return false;
	assert(peers.count > 0 && atomic_load_explicit(&peer->verifying, memory_order_relaxed) == 0);
	TAILQ_REMOVE(&peers.list, peer, entry);
	tdelete(peer, &peers.by_address, compare_addresses);
	free(peer);
	peers.count--;
	return true;
}

/* Checks some records in turn, more than one call can add. */
static void drop_idle_peers(uint64_t now_us)
{
	for (int i = 0; i < LOOKS_PER_STEP && !TAILQ_EMPTY(&peers.list); i++) {
		struct peer *peer = TAILQ_FIRST(&peers.list);
		if (drop_idle_peer(peer, now_us))
			continue;
		TAILQ_REMOVE(&peers.list, peer, entry);
		TAILQ_INSERT_TAIL(&peers.list, peer, entry);
	}
}

/* The record of an address, an old or a new one. */
static struct peer *get(uint64_t address)
{
	struct peer *const *node = tfind(&(struct peer){.address = address}, &peers.by_address, compare_addresses);
	if (node)
		return *node;
	if (peers.count == PEERS_MAX)
		return &peers.overflow;
	struct peer *peer = memory_zeroed(1, sizeof *peer);
	peer->address = address;
	if (!tsearch(peer, &peers.by_address, compare_addresses))
		memory_exhausted("address of a client");
	TAILQ_INSERT_TAIL(&peers.list, peer, entry);
	peers.count++;
	return peer;
}

/* ---- public functions ---- */

bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer)
{
	uint64_t bits = 0;
	*ret_peer = NULL;
	if (!address || !read_address(address, address_len, &bits))
		return true;
	pthread_mutex_lock(&peers.lock);
	drop_idle_peers(now_us);
	struct peer *peer = get(bits);
	bool taken = max_connections == 0 || peer->connections < max_connections;
	if (taken) {
		peer->connections++;
		assert(peer->connections > 0);
		*ret_peer = peer;
	}
	pthread_mutex_unlock(&peers.lock);
	return taken;
}

void peer_leave(struct peer *peer, uint64_t now_us)
{
	if (!peer)
		return;
	pthread_mutex_lock(&peers.lock);
	assert(peer->connections > 0);
	peer->connections--;
	drop_idle_peer(peer, now_us);
	drop_idle_peers(now_us);
	pthread_mutex_unlock(&peers.lock);
}

bool peer_take(struct peer *peer, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
{
	return !peer || rate_take(&peer->rate, per_second, now_us, ret_retry_ms);
}

bool peer_take_more(struct peer *peer, uint32_t per_second, uint32_t count, uint64_t now_us, uint32_t *ret_retry_ms)
{
	return !peer || rate_take_more(&peer->rate, per_second, count, now_us, ret_retry_ms);
}

bool peer_verify_begin(struct peer *peer, uint32_t max)
{
	if (!peer)
		return true;
	uint32_t count = atomic_load_explicit(&peer->verifying, memory_order_relaxed);
	do {
		if (count >= max)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&peer->verifying, &count, count + 1, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

void peer_verify_end(struct peer *peer)
{
	if (!peer)
		return;
	uint32_t before = atomic_fetch_sub_explicit(&peer->verifying, 1, memory_order_relaxed);
	assert(before > 0);
}

size_t peers_count(void)
{
	pthread_mutex_lock(&peers.lock);
	size_t count = peers.count;
	assert(count <= PEERS_MAX);
	pthread_mutex_unlock(&peers.lock);
	return count;
}
