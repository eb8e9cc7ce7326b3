/* Who is connected from where: how many connections each address has open, and how often it asks. One table for the
 * whole process.
 *
 * An address is the whole of an IPv4 address, also where it comes as ::ffff:a.b.c.d, and the first 64 bits of an IPv6
 * address, since a single host usually has all the others. Unix sockets have none: their struct peer is NULL, and
 * nothing bounds them here. */
#ifndef PEERS_H
#define PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* One address. It stays valid from peer_arrive() to the peer_leave() that belongs to it. */
struct peer;

enum { PEERS_MAX = 65536 };

/* One connection more from `address`, of which there may be `max_connections` (0: no bound); `now_us` as for
 * rate_take(). True: *ret_peer is to be given to peer_leave() when the connection is closed; NULL for a Unix socket.
 * False: there are too many, nothing is counted. Takes the table's lock. */
bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer) __attribute__((warn_unused_result));

/* One of its connections is closed (NULL: nothing happens). Takes the table's lock. */
void peer_leave(struct peer *peer, uint64_t now_us);

/* One request more from this address (NULL: always true), of which there may be `per_second` (0: no bound), as for
 * rate_take(). Takes no lock. */
bool peer_take(struct peer *peer, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* How many addresses are remembered now. */
size_t peers_count(void);

#endif
