/* SPDX-License-Identifier: MIT */
/* The one place that knows which addresses lead to this machine alone. Pure functions. */
#include <assert.h>
#include <netinet/in.h>

#include "base.h"

bool loopback_is_in6(const struct in6_addr *address)
{
	return IN6_IS_ADDR_LOOPBACK(address) ||
	       (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == IN_LOOPBACKNET);
}

bool loopback_is_address(const struct sockaddr *address)
{
	assert(address);
	if (address->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
		       IN_LOOPBACKNET;
	return address->sa_family == AF_INET6 &&
	       loopback_is_in6(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}
