/* The headers Origin and Host: from which page a request comes, and to which name it was sent. Pure functions. */
#ifndef ORIGIN_H
#define ORIGIN_H

#include <stdbool.h>
#include <stddef.h>

enum { ORIGIN_NAMES_MAX = 16 };

/* Names of hosts, or origins, from the options. The texts are borrowed and outlive this. */
struct origin_names {
	size_t count;
	const char *items[ORIGIN_NAMES_MAX];
};

/* True if a request may name this host (the value of Host, with or without a port): localhost and names below it,
 * loopback addresses, and `allowed`. Another name may be that of a page which made its name point here (DNS
 * rebinding). */
bool origin_is_local_host(const char *host, size_t len, const struct origin_names *allowed);

/* True if the host is an address, [v6] or v4, and not a name. */
bool origin_is_address(const char *host, size_t len);

/* True if an Origin is that of the service itself, as the request's Host names it. The scheme does not count: a proxy
 * may have ended TLS. */
bool origin_is_same(const char *origin, size_t origin_len, const char *host, size_t host_len);

/* The item of `allowed` that equals the Origin, byte by byte; or NULL. */
const char *origin_find(const char *origin, size_t len, const struct origin_names *allowed);

#endif
