/* Listening sockets: TCP over IPv4 and IPv6, and Unix sockets. Every call belongs to the start or the end of the
 * program; names are resolved with a blocking getaddrinfo(). */
#ifndef LISTEN_H
#define LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"

/* Opens a listening socket, non-blocking and close-on-exec. With `reuse_port` several may listen on one TCP port (a
 * worker each); a Unix socket has no such thing. Of the addresses that a name has, the first that can be had is taken.
 * A Unix socket file that nobody answers on is replaced, and gets mode 0660. Returns the descriptor, or -1 and a
 * message that names the address. */
int listen_open(const struct listen_address *address, bool reuse_port, char *message, size_t size)
	__attribute__((warn_unused_result));

/* Writes where it really listens: "127.0.0.1:43211", "[::1]:8080", "unix:/path". */
void listen_shown(int fd, char *shown, size_t size);

/* Finds out whether only this machine can reach the address: a Unix socket, or a name of which all addresses are those
 * of loopback. Asks the resolver (blocking). False: a message that names the address. */
bool listen_find_local(const struct listen_address *address, bool *ret_local, char *message, size_t size)
	__attribute__((warn_unused_result));

/* What may happen to those who use a listener. */
enum listen_danger {
	LISTEN_SAFE,
	LISTEN_READABLE, /* other machines can reach it, and keys go there in the clear */
	LISTEN_OPEN      /* other machines can reach it, and nobody is asked who he is */
};
enum listen_danger listen_danger(bool local, bool tls, bool has_keys, bool has_client_ca);

/* The port in use; 0 for a Unix socket. */
uint16_t listen_port(int fd);

/* Closes it; removes the file of a Unix socket. */
void listen_close(const struct listen_address *address, int fd);

#endif
