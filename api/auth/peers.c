/* The table of client addresses: open connections and the rate of requests of each, for all workers. See peers.h.
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
#include "peers.h"

#include <assert.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "rate.h"

enum { BUCKET_BITS = 16, BUCKETS = 1 << BUCKET_BITS, RESTED_PER_STEP = 4 };

struct peer {
	struct rate rate;
	uint64_t address; /* the first 64 bits of an IPv6 address; all 32 of an IPv4 one */
	bool v6;
	bool resting; /* in the queue of resting records */
	uint32_t connections;
	struct peer *next;            /* in the same bucket, or in the list of free records */
	struct peer *later, *earlier; /* in the queue of resting records */
};

static struct {
	pthread_mutex_t lock;
	struct peer *buckets[BUCKETS];
	struct peer *free;
	struct peer *oldest, *newest; /* the queue of resting records */
	size_t used;                  /* records that were ever taken from `all` */
	size_t count;                 /* in the table */
	uint64_t multipliers[2];      /* random, made for the first address; odd */
	struct peer overflow;
	struct peer all[PEERS_MAX];
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* False: not an IP address. */
static bool read_address(const struct sockaddr *address, socklen_t len, uint64_t *ret_address, bool *ret_v6)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	uint32_t high, low;

	if (len >= sizeof v4 && address->sa_family == AF_INET) {
		memcpy(&v4, address, sizeof v4);
		*ret_address = ntohl(v4.sin_addr.s_addr);
		*ret_v6 = false;
		return true;
	}
	if (len < sizeof v6 || address->sa_family != AF_INET6)
		return false;
	memcpy(&v6, address, sizeof v6);
	*ret_v6 = !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
	memcpy(&high, v6.sin6_addr.s6_addr, sizeof high);
	memcpy(&low, v6.sin6_addr.s6_addr + (*ret_v6 ? 4 : 12), sizeof low);
	*ret_address = *ret_v6 ? (uint64_t)ntohl(high) << 32 | ntohl(low) : ntohl(low);
	return true;
}

static struct peer **bucket_of(uint64_t address, bool v6)
{
	if (peers.multipliers[0] == 0) {
		if (getrandom(peers.multipliers, sizeof peers.multipliers, GRND_NONBLOCK) !=
		    (ssize_t)sizeof peers.multipliers)
			/* no entropy yet, at boot: the load address is random, too */
			peers.multipliers[0] = (uint64_t)(uintptr_t)&peers * UINT64_C(0x9e3779b97f4a7c15);
		peers.multipliers[0] |= 1;
		peers.multipliers[1] |= 1;
	}
	return &peers.buckets[(address * peers.multipliers[0] + v6 * peers.multipliers[1]) >> (64 - BUCKET_BITS)];
}

static struct peer *find(uint64_t address, bool v6)
{
	struct peer *peer = *bucket_of(address, v6);

	while (peer && (peer->address != address || peer->v6 != v6))
		peer = peer->next;
	return peer;
}

/* ---- the queue of resting records ---- */

static void queue_append(struct peer *peer)
{
	assert(!peer->resting && peer->connections == 0);
	peer->resting = true;
	peer->later = NULL;
	peer->earlier = peers.newest;
	*(peers.newest ? &peers.newest->later : &peers.oldest) = peer;
	peers.newest = peer;
}

static void queue_remove(struct peer *peer)
{
	assert(peer->resting && peers.oldest && peers.newest);
	peer->resting = false;
	*(peer->earlier ? &peer->earlier->later : &peers.oldest) = peer->later;
	*(peer->later ? &peer->later->earlier : &peers.newest) = peer->earlier;
}

/* ---- the table ---- */

static void drop(struct peer *peer)
{
	struct peer **link = bucket_of(peer->address, peer->v6);

	assert(peer->connections == 0 && !peer->resting && peers.count > 0);
	while (*link != peer) {
		assert(*link);
		link = &(*link)->next;
	}
	*link = peer->next;
	peer->next = peers.free;
	peers.free = peer;
	peers.count--;
}

/* Drops some rested records: more than one step can add. */
static void drop_rested(uint64_t now_us)
{
	for (int i = 0; i < RESTED_PER_STEP && peers.oldest && rate_is_rested(&peers.oldest->rate, now_us); i++) {
		struct peer *peer = peers.oldest;
		queue_remove(peer);
		drop(peer);
	}
}

static struct peer *add(uint64_t address, bool v6)
{
	struct peer *peer = peers.free, **bucket = bucket_of(address, v6);

	if (peer)
		peers.free = peer->next;
	else if (peers.used < PEERS_MAX)
		peer = &peers.all[peers.used++];
	else
		return &peers.overflow;
	assert(!peer->resting && peer->connections == 0);
	peer->address = address;
	peer->v6 = v6;
	peer->rate = (struct rate){0};
	peer->next = *bucket;
	*bucket = peer;
	peers.count++;
	return peer;
}

static struct peer *arrive(uint64_t address, bool v6, uint32_t max_connections, uint64_t now_us)
{
	struct peer *peer = find(address, v6);

	drop_rested(now_us); /* it may drop this record, which is then added again */
	if (!peer || (peer->connections == 0 && !peer->resting))
		peer = add(address, v6);
	if (max_connections > 0 && peer->connections >= max_connections)
		return NULL;
	if (peer->resting)
		queue_remove(peer);
	peer->connections++;
	assert(peer->connections > 0);
	return peer;
}

/* ---- public functions ---- */

bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer)
{
	struct peer *peer = NULL;
	uint64_t bits = 0;
	bool v6 = false;

	assert(ret_peer);
	if (!address || !read_address(address, address_len, &bits, &v6)) {
		*ret_peer = NULL;
		return true;
	}
	pthread_mutex_lock(&peers.lock);
	peer = arrive(bits, v6, max_connections, now_us);
	pthread_mutex_unlock(&peers.lock);
	if (!peer)
		return false;
	*ret_peer = peer;
	return true;
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
		if (rate_is_rested(&peer->rate, now_us))
			drop(peer);
		else
			queue_append(peer);
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
