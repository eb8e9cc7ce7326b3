/* SPDX-License-Identifier: MIT */
/* Listening sockets. No state: the caller owns the descriptor.
 *
 * A killed program leaves the file of its Unix socket behind. A connection to such a file is refused, which means that
 * nobody listens, and the file is replaced. A file that is not a socket is left alone. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon.h"

enum { LISTEN_BACKLOG = 4096, LISTEN_MODE = 0660 };

/* Writes "<address>: <reason>". Returns -1. */
static int listen_write_error(const struct address *address, const char *reason, char *message, size_t size)
{
	bool v6 = strchr(address->host, ':');
	assert(size > 0);
	if (address->is_unix)
		snprintf(message, size, "cannot listen on unix:%s: %s", address->host, reason);
	else
		snprintf(message, size, "cannot listen on %s%s%s:%u: %s", v6 ? "[" : "", address->host, v6 ? "]" : "",
			 address->port, reason);
	return -1;
}

/* ---- TCP ---- */

/* Bounds the kernel's memory for each connection accepted here. By default a client that does not read may hold some MB
 * of answers in the kernel, and thousands of clients GB. The largest answers have some hundred KB, nearly all less than
 * one. */
static bool listen_bound_buffers(int fd)
{
	const int answers = 64 * 1024, requests = 32 * 1024;
	assert(fd >= 0);
	return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &answers, sizeof answers) == 0 &&
	       setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &requests, sizeof requests) == 0;
}

/* -1: errno. */
static int listen_open_one(const struct addrinfo *info, bool reuse_port)
{
	int on = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
	    (!reuse_port || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0) &&
	    (info->ai_family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
	    listen_bound_buffers(fd) && bind(fd, info->ai_addr, info->ai_addrlen) == 0 &&
	    listen(fd, LISTEN_BACKLOG) == 0)
		return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* NULL and a message if the name cannot be resolved. */
static struct addrinfo *listen_resolve(const struct address *address, char *message, size_t size)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
				 .ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
			*infos;
	char port[8];
	assert(!address->is_unix);
	snprintf(port, sizeof port, "%u", address->port);
	int error = getaddrinfo(address->host, port, &hints, &infos);
	if (error == 0)
		return infos;
	listen_write_error(address, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error), message, size);
	return NULL;
}

static int listen_open_tcp(const struct address *address, bool reuse_port, char *message, size_t size)
{
	struct addrinfo *infos = listen_resolve(address, message, size);
	bool v6 = strchr(address->host, ':');
	char reason[ADDRESS_HOST_MAX + 200];
	int fd = -1, error;
	assert(!address->is_unix);
	if (!infos)
		return -1;
	for (const struct addrinfo *info = infos; info && fd < 0; info = info->ai_next)
		fd = listen_open_one(info, reuse_port);
	error = errno;
	freeaddrinfo(infos);
	if (fd >= 0)
		return fd;
	int len = snprintf(reason, sizeof reason, "%s", strerror(error));
	if (error == EADDRINUSE)
		snprintf(reason + len, sizeof reason - (size_t)len,
			 "; end the other program, or start this one with --listen %s%s%s:%u", v6 ? "[" : "",
			 address->host, v6 ? "]" : "", address->port % UINT16_MAX + 1U);
	else if (error == EADDRNOTAVAIL)
		strcat(reason, "; this machine does not have this address");
	return listen_write_error(address, reason, message, size);
}

/* True for a name; false for an address, which needs no resolver. */
static bool listen_is_name(const char *host)
{
	struct in6_addr address;
	return inet_pton(AF_INET, host, &address) != 1 && inet_pton(AF_INET6, host, &address) != 1;
}

bool listen_find_local(const struct address *address, bool resolve, bool *ret_local, char *message, size_t size)
{
	bool local = true;
	if (!address->is_unix && (resolve || !listen_is_name(address->host))) {
		struct addrinfo *infos = listen_resolve(address, message, size);
		if (!infos)
			return false;
		for (const struct addrinfo *info = infos; info; info = info->ai_next)
			local = local && loopback_is_address(info->ai_addr);
		freeaddrinfo(infos);
	}
	*ret_local = local;
	return true;
}

enum listen_danger listen_danger(bool local, bool tls, bool has_keys, bool has_client_ca)
{
	if (local)
		return LISTEN_SAFE;
	if (!has_keys && !(tls && has_client_ca))
		return LISTEN_OPEN;
	return tls ? LISTEN_SAFE : LISTEN_READABLE;
}

/* ---- Unix sockets ---- */

/* Removes the socket file of a program that has ended. Returns NULL, or why the path cannot be used. */
static const char *listen_clear_path(const struct sockaddr_un *name)
{
	struct stat status;
	if (lstat(name->sun_path, &status) != 0)
		return errno == ENOENT ? NULL : strerror(errno);
	if (!S_ISSOCK(status.st_mode))
		return "there is a file of that name, and it is not a socket";
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return strerror(errno);
	int error = connect(fd, (const struct sockaddr *)name, sizeof *name) == 0 ? 0 : errno;
	close(fd);
	if (error == 0 || error == EAGAIN)
		return "another program listens there";
	if (error != ECONNREFUSED)
		return strerror(error);
	return unlink(name->sun_path) == 0 ? NULL : strerror(errno);
}

static int listen_open_unix(const struct address *address, char *message, size_t size)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	assert(address->is_unix && strlen(address->host) < sizeof name.sun_path);
	strcpy(name.sun_path, address->host);
	const char *reason = listen_clear_path(&name);
	if (reason)
		return listen_write_error(address, reason, message, size);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&name, sizeof name) == 0;
	/* The mode comes before listen(): until then nobody can connect. */
	if (bound && chmod(name.sun_path, LISTEN_MODE) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
		return fd;
	listen_write_error(address, strerror(errno), message, size);
	if (bound)
		unlink(name.sun_path);
	if (fd >= 0)
		close(fd);
	return -1;
}

int listen_open(const struct address *address, bool reuse_port, char *message, size_t size)
{
	assert(address && size > 0);
	return address->is_unix ? listen_open_unix(address, message, size)
				: listen_open_tcp(address, reuse_port, message, size);
}

/* ---- open sockets ---- */

uint16_t listen_port(int fd)
{
	struct sockaddr_storage name = {0};
	socklen_t len = sizeof name;
	assert(fd >= 0);
	if (getsockname(fd, (struct sockaddr *)&name, &len) != 0)
		return 0;
	if (name.ss_family == AF_UNIX)
		return 0;
	struct sockaddr_in address; /* a port is at the same place in both kinds of addresses */
	memcpy(&address, &name, sizeof address);
	return ntohs(address.sin_port);
}

void listen_shown(int fd, char *shown, size_t size)
{
	union {
		struct sockaddr any;
		struct sockaddr_in6 tcp;
		struct sockaddr_un path;
	} name = {0};
	socklen_t len = sizeof name - 1; /* so that a path is terminated */
	char host[INET6_ADDRSTRLEN];
	assert(size > 0);
	if (getsockname(fd, &name.any, &len) != 0)
		snprintf(shown, size, "unknown");
	else if (name.any.sa_family == AF_UNIX)
		snprintf(shown, size, "unix:%s", name.path.sun_path);
	else if (getnameinfo(&name.any, len, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
		snprintf(shown, size, name.any.sa_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, listen_port(fd));
}

void listen_close(const struct address *address, int fd)
{
	assert(fd >= 0);
	/* The file goes first: once the socket is closed, another program may put its own there. */
	if (address->is_unix)
		unlink(address->host);
	close(fd);
}
