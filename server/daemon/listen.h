/* Listening sockets: TCP over IPv4 and IPv6, and Unix sockets. For the start and the end of the program: names are
 * resolved with a blocking getaddrinfo(). */
#ifndef LISTEN_H
#define LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"

/* Opens a listening socket, non-blocking and close-on-exec. With `reuse_port` several sockets may listen on one TCP
 * port, one for each worker; Unix sockets do not support that. If a name has several addresses, the first that works is
 * used. A Unix socket file on which nobody listens is replaced. Its mode is 0660. Returns the descriptor, or -1 and a
 * message that names the address. */
int listen_open(const struct address *address, bool reuse_port, char *message, size_t size)
	__attribute__((warn_unused_result));

/* Writes the address in use: "127.0.0.1:43211", "[::1]:8080", "unix:/path". */
void listen_shown(int fd, char *shown, size_t size);

/* Finds out whether only this machine can reach the address: a Unix socket, or a name whose addresses are all loopback.
 * With `resolve` asks the resolver (blocking); else names count as local, which the start will find out. False: a
 * message that names the address. */
bool listen_find_local(const struct address *address, bool resolve, bool *ret_local, char *message, size_t size)
	__attribute__((warn_unused_result));

/* The risk of a listener for its clients. */
enum listen_danger {
	LISTEN_SAFE,
	LISTEN_READABLE, /* other machines can reach it, and keys are sent without encryption */
	LISTEN_OPEN      /* other machines can reach it, and no authentication is required */
};
enum listen_danger listen_danger(bool local, bool tls, bool has_keys, bool has_client_ca);

/* The port in use; 0 for a Unix socket. */
uint16_t listen_port(int fd);

/* Closes it; removes the file of a Unix socket. */
void listen_close(const struct address *address, int fd);

#endif
