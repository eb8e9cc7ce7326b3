/* The table of client addresses: open connections and the rate of requests of each, for all workers. See auth.h.
 *
 * A record lives while its address has a connection open, and until its rate has rested: otherwise a client that closes
 * and connects again would have a new burst each time. Records without connections wait in a queue, oldest first. Each
 * arrival and each departure looks at its head; a rate rests within about a second, so the order is good enough.
 *
 * All records lie in one array of PEERS_MAX, whose pages cost nothing before they are used: no connection allocates.
 * When all are in use, further addresses share one more record with the bounds of a single address. Rejecting them
 * would let the owner of 65,536 addresses (an IPv6 /48) shut out everybody else with one connection from each.
 *
 * One mutex guards everything but the rates. It is held briefly at accept and at close, never during a request. A
 * connection keeps a pointer to its record, which stays its own until it leaves. The bucket of an address comes from a
 * random multiplier, so that nobody can choose addresses that collide. */
#include <assert.h>
#include <endian.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/queue.h>

#include "auth.h"
#include "server/base/base.h"

enum { BUCKET_BITS = 16, BUCKETS = 1 << BUCKET_BITS, RESTED_PER_STEP = 4 };

struct peer {
	struct rate rate;
	uint64_t address; /* as read_address() says */
	bool resting;     /* in the queue of resting records */
	uint32_t connections;
	LIST_ENTRY(peer) others; /* of the same bucket, or of the list of free records */
	TAILQ_ENTRY(peer) queue; /* in the queue of resting records */
};

LIST_HEAD(peer_list, peer);

static struct {
	pthread_mutex_t lock;
	struct peer_list buckets[BUCKETS], free;
	size_t used;         /* records that were ever taken from `all` */
	size_t count;        /* in the table */
	uint64_t multiplier; /* random, made for the first address; odd */
	struct peer overflow;
	struct peer all[PEERS_MAX];
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Those at rest, oldest first. Not in the struct, which must begin as zeros: it is 4 MiB. */
static TAILQ_HEAD(, peer) resting = TAILQ_HEAD_INITIALIZER(resting);

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

static struct peer_list *bucket_of(uint64_t address)
{
	if (peers.multiplier == 0)
		peers.multiplier = random_number() | 1;
	return &peers.buckets[address * peers.multiplier >> (64 - BUCKET_BITS)];
}

static void drop(struct peer *peer)
{
	assert(peer->connections == 0 && !peer->resting && peers.count > 0);
	LIST_REMOVE(peer, others);
	LIST_INSERT_HEAD(&peers.free, peer, others);
	peers.count--;
}

/* The record leaves the queue of resting ones. */
static void wake(struct peer *peer)
{
	assert(peer->resting && peer->connections == 0);
	peer->resting = false;
	TAILQ_REMOVE(&resting, peer, queue);
}

/* Drops some rested records: more than one step can add. */
static void drop_rested(uint64_t now_us)
{
	for (int i = 0; i < RESTED_PER_STEP; i++) {
		struct peer *peer = TAILQ_FIRST(&resting);
		if (!peer || !rate_is_rested(&peer->rate, now_us))
			return;
		wake(peer);
		drop(peer);
	}
}

/* The record of an address, an old or a new one. */
static struct peer *get(uint64_t address)
{
	struct peer_list *bucket = bucket_of(address);
	struct peer *peer;

	for (peer = LIST_FIRST(bucket); peer; peer = LIST_NEXT(peer, others))
		if (peer->address == address)
			return peer;
	peer = LIST_FIRST(&peers.free);
	if (peer)
		LIST_REMOVE(peer, others);
	else if (peers.used < PEERS_MAX)
		peer = &peers.all[peers.used++];
	else
		return &peers.overflow;
	assert(!peer->resting && peer->connections == 0);
	peer->address = address;
	peer->rate = (struct rate){0};
	LIST_INSERT_HEAD(bucket, peer, others);
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
	drop_rested(now_us);
	struct peer *peer = get(bits);
	bool taken = max_connections == 0 || peer->connections < max_connections;
	if (taken) {
		if (peer->resting)
			wake(peer);
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
	assert(peer->connections > 0 && !peer->resting);
	peer->connections--;
	drop_rested(now_us);
	if (peer->connections == 0 && peer != &peers.overflow) {
		peer->resting = !rate_is_rested(&peer->rate, now_us);
		if (peer->resting)
			TAILQ_INSERT_TAIL(&resting, peer, queue);
		else
			drop(peer);
	}
	pthread_mutex_unlock(&peers.lock);
}

bool peer_take(struct peer *peer, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
{
	return !peer || rate_take(&peer->rate, per_second, now_us, ret_retry_ms);
}

size_t peers_count(void)
{
	pthread_mutex_lock(&peers.lock);
	size_t count = peers.count;
	assert(count <= peers.used && peers.used <= PEERS_MAX);
	pthread_mutex_unlock(&peers.lock);
	return count;
}
