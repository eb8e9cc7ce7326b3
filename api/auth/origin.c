/* Host and Origin. See origin.h.
 *
 * A page of another site can make a browser call a service that only the browser's machine can reach, in two ways. A
 * plain cross-origin request carries an Origin that is not ours. A page whose host name points to 127.0.0.1 after it
 * was loaded (DNS rebinding) has an origin that looks like ours; but its requests name that host, which no other client
 * does. Pure functions; any thread. */
#include "origin.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

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

static bool parse_v6(const char *host, size_t len, struct in6_addr *ret_address)
{
	char text[INET6_ADDRSTRLEN];

	if (len < 3 || host[0] != '[' || len - 2 >= sizeof text)
		return false;
	memcpy(text, host + 1, len - 2);
	text[len - 2] = '\0';
	return inet_pton(AF_INET6, text, ret_address) == 1;
}

static bool parse_v4(const char *host, size_t len, struct in_addr *ret_address)
{
	char text[INET_ADDRSTRLEN];

	if (len >= sizeof text)
		return false;
	memcpy(text, host, len);
	text[len] = '\0';
	return inet_pton(AF_INET, text, ret_address) == 1;
}

static bool is_loopback(const char *host, size_t len)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (parse_v6(host, len, &v6))
		return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
	return parse_v4(host, len, &v4) && ntohl(v4.s_addr) >> 24 == 127;
}

static bool is(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

static bool is_localhost(const char *host, size_t len)
{
	static const char below[] = ".localhost";
	size_t below_len = sizeof below - 1;

	return is(host, len, "localhost") || (len > below_len && is(host + len - below_len, below_len, below));
}

bool origin_is_local_host(const char *host, size_t len, const struct origin_names *allowed)
{
	assert(allowed->count <= ORIGIN_NAMES_MAX);
	len = host_len(host, len);
	if (len > 1 && len <= HOST_MAX && host[len - 1] == '.') /* a name may end with the dot of the root */
		len--;
	if (len == 0 || len > HOST_MAX)
		return false;
	if (is_localhost(host, len) || is_loopback(host, len))
		return true;
	for (size_t i = 0; i < allowed->count; i++)
		if (is(host, len, allowed->items[i]))
			return true;
	return false;
}

bool origin_is_address(const char *host, size_t len)
{
	struct in6_addr v6;
	struct in_addr v4;

	len = host_len(host, len);
	return parse_v6(host, len, &v6) || parse_v4(host, len, &v4);
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
	const char *port = is(origin, (size_t)(at - origin), "https")  ? ":443"
			   : is(origin, (size_t)(at - origin), "http") ? ":80"
								       : NULL;
	if (!port)
		return false;
	size_t authority_len = without_port(at + 3, origin_len - (size_t)(at + 3 - origin), port);
	len = without_port(host, len, port);
	return authority_len == len && strncasecmp(at + 3, host, len) == 0;
}

const char *origin_find(const char *origin, size_t len, const struct origin_names *allowed)
{
	assert(origin && allowed->count <= ORIGIN_NAMES_MAX);
	for (size_t i = 0; i < allowed->count; i++)
		if (strlen(allowed->items[i]) == len && memcmp(allowed->items[i], origin, len) == 0)
			return allowed->items[i];
	return NULL;
}
