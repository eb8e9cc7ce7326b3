/* The table of client addresses: open connections and the rate of requests of each, for all workers together. See
 * peers.h.
 *
 * A record is there as long as its address has a connection open, and until its rate has rested: otherwise who closes
 * and comes again would have a new burst each time. Those that wait only for that stand in a queue, oldest first, and
 * its head is looked at whenever somebody comes or leaves; a rate rests within a second or so, so the queue is in order
 * well enough.
 *
 * All records lie in one array of PEERS_MAX. It is not touched, and costs nothing, before it is used; and no memory is
 * asked for when a connection comes. Where all are in use, further addresses share one record more. They could also be
 * refused: but then whoever owns 65,536 addresses (an IPv6 /48) would shut out everybody else by holding one connection
 * from each, while the shared record, which has the bounds of a single address, keeps a door for some. It never lets in
 * more than refusing nobody would.
 *
 * One mutex guards all but the rates; it is held for some steps at accept and at close, never during a request. A
 * connection keeps a pointer to its record, which stays its own until it leaves. The place in the table comes from a
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
	bool resting; /* in the queue */
	uint32_t connections;
	struct peer *next;            /* of the same bucket, or of the free ones */
	struct peer *later, *earlier; /* in the queue */
};

static struct {
	pthread_mutex_t lock;
	struct peer *buckets[BUCKETS];
	struct peer *free;
	struct peer *oldest, *newest; /* the queue */
	size_t used;                  /* records that were ever taken from `all` */
	size_t count;                 /* in the table */
	uint64_t multipliers[2];      /* drawn when the first address comes; odd */
	struct peer overflow;
	struct peer all[PEERS_MAX];
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* False for what is no IP address. */
static bool read_address(const struct sockaddr *address, socklen_t len, uint64_t *ret_address, bool *ret_v6)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	uint32_t high, low;

	if (len >= sizeof(v4) && address->sa_family == AF_INET) {
		memcpy(&v4, address, sizeof(v4));
		*ret_address = ntohl(v4.sin_addr.s_addr);
		*ret_v6 = false;
		return true;
	}
	if (len < sizeof(v6) || address->sa_family != AF_INET6)
		return false;
	memcpy(&v6, address, sizeof(v6));
	*ret_v6 = !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
	memcpy(&high, v6.sin6_addr.s6_addr, sizeof(high));
	memcpy(&low, v6.sin6_addr.s6_addr + (*ret_v6 ? 4 : 12), sizeof(low));
	*ret_address = *ret_v6 ? (uint64_t)ntohl(high) << 32 | ntohl(low) : ntohl(low);
	return true;
}

static struct peer **bucket_of(uint64_t address, bool v6)
{
	if (peers.multipliers[0] == 0) {
		if (getrandom(peers.multipliers, sizeof(peers.multipliers), GRND_NONBLOCK) !=
		    (ssize_t)sizeof(peers.multipliers))
			/* at boot: where we were loaded is random, too */
			peers.multipliers[0] = (uint64_t)(uintptr_t)&peers * UINT64_C(0x9e3779b97f4a7c15);
		peers.multipliers[0] |= 1;
		peers.multipliers[1] |= 1;
	}
	return &peers.buckets[(address * peers.multipliers[0] + v6 * peers.multipliers[1]) >> (64 - BUCKET_BITS)];
}

static struct peer *find(uint64_t address, bool v6)
{
	struct peer *peer = *bucket_of(address, v6);

	while (peer != NULL && (peer->address != address || peer->v6 != v6))
		peer = peer->next;
	return peer;
}

/* ---- the queue of those that only rest ---- */

static void queue_append(struct peer *peer)
{
	assert(!peer->resting && peer->connections == 0);
	peer->resting = true;
	peer->later = NULL;
	peer->earlier = peers.newest;
	*(peers.newest != NULL ? &peers.newest->later : &peers.oldest) = peer;
	peers.newest = peer;
}

static void queue_remove(struct peer *peer)
{
	assert(peer->resting);
	peer->resting = false;
	*(peer->earlier != NULL ? &peer->earlier->later : &peers.oldest) = peer->later;
	*(peer->later != NULL ? &peer->later->earlier : &peers.newest) = peer->earlier;
}

/* ---- the table ---- */

static void drop(struct peer *peer)
{
	struct peer **link = bucket_of(peer->address, peer->v6);

	assert(peer->connections == 0 && !peer->resting && peers.count > 0);
	while (*link != peer)
		link = &(*link)->next;
	*link = peer->next;
	peer->next = peers.free;
	peers.free = peer;
	peers.count--;
}

/* Forgets some of those that have rested: more than can be added at a time. */
static void drop_rested(uint64_t now_us)
{
	for (int i = 0; i < RESTED_PER_STEP && peers.oldest != NULL && rate_is_rested(&peers.oldest->rate, now_us);
	     i++) {
		struct peer *peer = peers.oldest;
		queue_remove(peer);
		drop(peer);
	}
}

static struct peer *add(uint64_t address, bool v6)
{
	struct peer *peer = peers.free, **bucket = bucket_of(address, v6);

	if (peer != NULL)
		peers.free = peer->next;
	else if (peers.used < PEERS_MAX)
		peer = &peers.all[peers.used++];
	else
		return &peers.overflow;
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

	drop_rested(now_us); /* it may be this one: then it is made anew */
	if (peer == NULL || (peer->connections == 0 && !peer->resting))
		peer = add(address, v6);
	if (max_connections > 0 && peer->connections >= max_connections)
		return NULL;
	if (peer->resting)
		queue_remove(peer);
	peer->connections++;
	return peer;
}

/* ---- the face ---- */

bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer)
{
	struct peer *peer = NULL;
	uint64_t bits = 0;
	bool v6 = false;

	assert(ret_peer != NULL);
	if (address == NULL || !read_address(address, address_len, &bits, &v6)) {
		*ret_peer = NULL;
		return true;
	}
	pthread_mutex_lock(&peers.lock);
	peer = arrive(bits, v6, max_connections, now_us);
	pthread_mutex_unlock(&peers.lock);
	if (peer == NULL)
		return false;
	*ret_peer = peer;
	return true;
}

void peer_leave(struct peer *peer, uint64_t now_us)
{
	if (peer == NULL)
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
	return peer == NULL || rate_take(&peer->rate, per_second, now_us, ret_retry_ms);
}

size_t peers_count(void)
{
	pthread_mutex_lock(&peers.lock);
	size_t count = peers.count;
	pthread_mutex_unlock(&peers.lock);
	return count;
}
