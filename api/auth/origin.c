/* SPDX-License-Identifier: MIT */
/* Host and Origin: a page of another site must not make a browser call a service that only the browser's machine can
 * reach. A plain cross-origin request has an Origin that is not ours. After DNS rebinding (the page's host name points
 * to 127.0.0.1) a request has that name as Host. Pure functions; any thread. */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "auth.h"

enum { HOST_MAX = 255 };

/* The length of the host in `host[:port]`; a port is not checked. */
static size_t host_len(const char *host, size_t len)
{
	assert(host || len == 0);
	const char *end = len > 0 && host[0] == '[' ? memchr(host, ']', len) : memchr(host, ':', len);
	if (len > 0 && host[0] == '[')
		return end && (end + 1 == host + len || end[1] == ':') ? (size_t)(end + 1 - host) : 0;
	return end ? (size_t)(end - host) : len;
}

/* The address of `[v6]`, or of v4, mapped into v6. */
static bool parse_address(const char *host, size_t len, struct in6_addr *ret_address)
{
	bool v6 = len > 2 && host[0] == '[';
	char text[INET6_ADDRSTRLEN];
	host += v6;
	len -= v6 ? 2 : 0;
	if (len >= sizeof text)
		return false;
	memcpy(text, host, len);
	text[len] = '\0';
	if (v6)
		return inet_pton(AF_INET6, text, ret_address) == 1;
	*ret_address = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
	return inet_pton(AF_INET, text, &ret_address->s6_addr[12]) == 1;
}

static bool text_is(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

/* localhost, a name below it, or a loopback address. */
static bool is_loopback_name(const char *host, size_t len)
{
	static const char below[] = ".localhost";
	size_t below_len = sizeof below - 1;
	struct in6_addr address;
	if (text_is(host, len, "localhost") || (len > below_len && text_is(host + len - below_len, below_len, below)))
		return true;
	return parse_address(host, len, &address) && loopback_is_in6(&address);
}

bool origin_is_local_host(const char *host, size_t len, const struct options_names *allowed)
{
	assert(allowed->count <= OPTIONS_NAMES_MAX);
	len = host_len(host, len);
	if (len > 1 && len <= HOST_MAX && host[len - 1] == '.') /* a name may end with the dot of the root */
		len--;
	if (len == 0 || len > HOST_MAX)
		return false;
	if (is_loopback_name(host, len))
		return true;
	for (size_t i = 0; i < allowed->count; i++)
		if (text_is(host, len, allowed->items[i]))
			return true;
	return false;
}

bool origin_is_address(const char *host, size_t len)
{
	struct in6_addr address;
	return parse_address(host, host_len(host, len), &address);
}

/* The length of an authority without the default port of its scheme. */
static size_t without_port(const char *authority, size_t len, const char *port)
{
	size_t port_len = strlen(port);
	assert(port[0] == ':');
	return len > port_len && memcmp(authority + len - port_len, port, port_len) == 0 ? len - port_len : len;
}

bool origin_is_same(const char *origin, size_t origin_len, const char *host, size_t len)
{
	assert(origin && host);
	const char *at = memmem(origin, origin_len, "://", 3);
	if (!at || len == 0)
		return false;
	const char *port = text_is(origin, (size_t)(at - origin), "https")  ? ":443"
			   : text_is(origin, (size_t)(at - origin), "http") ? ":80"
									    : NULL;
	if (!port)
		return false;
	size_t authority_len = without_port(at + 3, origin_len - (size_t)(at + 3 - origin), port);
	len = without_port(host, len, port);
	return authority_len == len && strncasecmp(at + 3, host, len) == 0;
}

const char *origin_find(const char *origin, size_t len, const struct options_names *allowed)
{
	assert(origin && allowed->count <= OPTIONS_NAMES_MAX);
	for (size_t i = 0; i < allowed->count; i++)
		if (strlen(allowed->items[i]) == len && memcmp(allowed->items[i], origin, len) == 0)
			return allowed->items[i];
	return NULL;
}
