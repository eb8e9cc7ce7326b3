/* Parses addresses of redlockd. See server.h. No state, no name is resolved here.
 *
 * The port is required: the default of the scheme (80, 443) is not that of redlockd (8080), and either would be a
 * guess. */
#include "server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HTTP "http://"
#define HTTPS "https://"
#define UNIX "unix:"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool server_has_start(const char *text, size_t len, const char *start)
{
	return len >= strlen(start) && memcmp(text, start, strlen(start)) == 0;
}

static const char *server_check_port(const char *port)
{
	assert(port);
	if (*port == '\0' || strspn(port, "0123456789") != strlen(port) || strlen(port) > 5)
		return "its port is not a number";
	long number = strtol(port, NULL, 10);
	return number < 1 || number > 65535 ? "its port is not in 1 to 65535" : NULL;
}

/* The only names are those that RFC 6761 reserves; nothing is resolved. */
static bool server_is_loopback(const char *host, size_t len)
{
	static const char name[] = "localhost";
	char text[INET_ADDRSTRLEN] = "";
	struct in_addr address;
	size_t name_len = strlen(name);

	assert(len > 0);
	if (len >= name_len && strncasecmp(host + len - name_len, name, name_len) == 0)
		return len == name_len || host[len - name_len - 1] == '.';
	if (len == 5 && memcmp(host, "[::1]", 5) == 0)
		return true;
	if (len < sizeof text)
		memcpy(text, host, len);
	return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

/* Checks host and port. The whole address is in server->base, with its host at `host`. */
static const char *server_check_http(struct server *server, const char *host)
{
	const char *end;

	assert(host >= server->base && host <= server->base + SERVER_TEXT_MAX);
	if (strpbrk(host, "/?#@"))
		return "more than scheme://host:port";
	if (host[0] == '[') {
		end = strchr(host, ']');
		if (!end || end == host + 1 || strspn(host + 1, "0123456789abcdefABCDEF:.") != (size_t)(end - host - 1))
			return "its host is not an address in brackets";
		end++;
	} else {
		end = host + strspn(host, LETTERS "0123456789.-_");
		if (end == host || (*end != ':' && *end != '\0'))
			return "its host is not a name or an address";
	}
	server->is_exposed = !server->is_tls && !server_is_loopback(host, (size_t)(end - host));
	return *end == ':' ? server_check_port(end + 1) : "it has no port";
}

static const char *server_parse_unix(const char *path, size_t len, struct server *server)
{
	if (len == 0 || path[0] != '/')
		return "the path of its socket does not begin with a slash";
	if (len > SERVER_PATH_MAX)
		return "the path of its socket is too long";
	memcpy(server->unix_path, path, len);
	server->unix_path[len] = '\0';
	strcpy(server->base, HTTP "localhost");
	return NULL;
}

const char *server_parse(const char *text, size_t len, struct server *ret_server)
{
	struct server server = {0};
	const char *reason;

	assert(text || len == 0);
	if (len == 0)
		return "it is empty";
	if (len > SERVER_TEXT_MAX)
		return "it is too long";
	memcpy(server.text, text, len);
	if (server_has_start(text, len, UNIX)) {
		reason = server_parse_unix(text + strlen(UNIX), len - strlen(UNIX), &server);
	} else if (server_has_start(text, len, HTTP) || server_has_start(text, len, HTTPS)) {
		server.is_tls = server_has_start(text, len, HTTPS);
		size_t scheme_len = strlen(server.is_tls ? HTTPS : HTTP);
		memcpy(server.base, text, text[len - 1] == '/' && len > scheme_len ? len - 1 : len);
		reason = server_check_http(&server, server.base + scheme_len);
	} else {
		reason = "it begins neither with https:// nor with http:// nor with unix:";
	}
	if (!reason)
		*ret_server = server;
	return reason;
}

const char *server_list_add(struct server_list *list, const char *text, size_t len)
{
	assert(list->count <= SERVERS_MAX);
	if (list->count == SERVERS_MAX)
		return "there are too many servers";
	const char *reason = server_parse(text, len, &list->items[list->count]);
	if (!reason)
		list->count++;
	return reason;
}

const char *server_list_parse(struct server_list *list, const char *text)
{
	for (;;) {
		size_t len = strcspn(text, ",");
		const char *reason = server_list_add(list, text, len);
		if (reason || text[len] == '\0')
			return reason;
		text += len + 1;
	}
}
