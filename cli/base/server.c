/* SPDX-License-Identifier: MIT */
/* Parses addresses of redlockd. See server.h. No name is resolved here.
 *
 * The port is required: the default of the scheme (80, 443) differs from that of redlockd (8080), and either would be a
 * guess. */
#include "server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Only the names that RFC 6761 reserves count; nothing is resolved. */
static bool is_loopback(const char *host)
{
	static const char name[] = "localhost";
	struct in_addr address;
	size_t len = strlen(host), name_len = strlen(name);
	if (len >= name_len && strcasecmp(host + len - name_len, name) == 0)
		return len == name_len || host[len - name_len - 1] == '.';
	return strcmp(host, "::1") == 0 ||
	       (inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

const char *server_parse(const char *text, struct address *ret_address)
{
	const unsigned may = ADDRESS_PLAIN | ADDRESS_UNIX | ADDRESS_HTTP | ADDRESS_HTTPS | ADDRESS_NEEDS_PORT |
			     ADDRESS_SLASH;
	const char *reason = address_parse(text, may, ret_address);
	if (reason)
		return reason;
	assert(strlen(text) < sizeof ret_address->shown); /* the longest host and port are shorter */
	strcpy(ret_address->shown, text);
	return NULL;
}

void server_write_base(const struct address *server, char ret_base[SERVER_BASE_MAX])
{
	assert(server->is_unix || server->port > 0);
	if (server->is_unix)
		strcpy(ret_base, "http://localhost");
	else
		snprintf(ret_base, SERVER_BASE_MAX, server->is_v6 ? "http%s://[%s]:%u" : "http%s://%s:%u",
			 server->tls ? "s" : "", server->host, server->port);
}

bool server_is_exposed(const struct address *server)
{
	return !server->is_unix && !server->tls && !is_loopback(server->host);
}
