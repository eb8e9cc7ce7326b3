/* Client addresses: how many connections each has open, and how often it sends requests. One table for the process.
 *
 * An address is the whole of an IPv4 address, also in the form ::ffff:a.b.c.d, and the first 64 bits of an IPv6
 * address, since one host usually has all the others. Unix sockets have none: their struct peer is NULL and has no
 * bounds. */
#ifndef PEERS_H
#define PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* One address. It stays valid from peer_arrive() to the peer_leave() that belongs to it. */
struct peer;

enum { PEERS_MAX = 65536 };

/* One connection more from `address`, which may have `max_connections` (0: no bound); `now_us` as for rate_take().
 * True: pass *ret_peer (NULL for a Unix socket) to peer_leave() when the connection is closed. False: too many, and
 * nothing is counted. Takes the table's lock. */
bool peer_arrive(const struct sockaddr *address, socklen_t address_len, uint32_t max_connections, uint64_t now_us,
		 struct peer **ret_peer) __attribute__((warn_unused_result));

/* One of its connections is closed (NULL: nothing happens). Takes the table's lock. */
void peer_leave(struct peer *peer, uint64_t now_us);

/* One request more from this address (NULL: always true), which may make `per_second` (0: no bound); as rate_take().
 * Takes no lock. */
bool peer_take(struct peer *peer, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* How many addresses the table holds now. */
size_t peers_count(void);

#endif
