/* Parses addresses of redlockd. See arguments.h. No name is resolved here.
 *
 * The port is required: the default of the scheme (80, 443) is not that of redlockd (8080), and either would be a
 * guess. */
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "arguments.h"

/* The only names are those that RFC 6761 reserves; nothing is resolved. */
static bool server_is_loopback(const char *host)
{
	static const char name[] = "localhost";
	struct in_addr address;
	size_t len = strlen(host), name_len = strlen(name);
	if (len >= name_len && strcasecmp(host + len - name_len, name) == 0)
		return len == name_len || host[len - name_len - 1] == '.';
	return strcmp(host, "::1") == 0 ||
	       (inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

const char *server_parse(const char *text, struct server *ret_server)
{
	const unsigned may = ADDRESS_PLAIN | ADDRESS_UNIX | ADDRESS_HTTP | ADDRESS_HTTPS | ADDRESS_NEEDS_PORT |
			     ADDRESS_SLASH;
	struct server server = {0};
	struct address address;
	const char *reason = address_parse(text, may, &address);
	if (reason)
		return reason;
	assert(strlen(text) <= SERVER_TEXT_MAX); /* the longest host and port are shorter */
	server.is_tls = address.scheme == ADDRESS_HTTPS;
	strcpy(server.text, text);
	if (address.is_unix) {
		strcpy(server.unix_path, address.host);
		strcpy(server.base, "http://localhost");
	} else {
		snprintf(server.base, sizeof server.base, address.is_v6 ? "http%s://[%s]:%u" : "http%s://%s:%u",
			 server.is_tls ? "s" : "", address.host, address.port);
		server.is_exposed = !server.is_tls && !server_is_loopback(address.host);
	}
	*ret_server = server;
	return NULL;
}
