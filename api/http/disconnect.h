/* Notices that the client of a suspended connection has left.
 *
 * libmicrohttpd does not look at a suspended connection, so a client that goes away while it waits for a lock, or while
 * it holds one by its connection, would be noticed only with the next byte that is written to it. Here one epoll
 * instance per api watches such descriptors, besides the library's own. A client that has closed its side for writing
 * alone counts as gone, too: nothing tells it from one that ended, and so does one that has said goodbye over TLS. What
 * it sent before (a next request) does not hide that it left, but it hides the goodbye.
 *
 * A connection is watched from gone_watch() until it goes on in any way: connection_enter() and connection_free() end
 * it, so that no descriptor is still watched when the library closes it. All on the worker's thread. */
#ifndef GONE_H
#define GONE_H

#include <stdbool.h>

struct api;
struct connection;

/* Makes the epoll instance of an api; false with errno where it cannot be made. */
bool gone_init(struct api *api) __attribute__((warn_unused_result));
void gone_fini(struct api *api);

/* Watches the client of a connection whose request is under way. Where the kernel refuses that, its leaving is noticed
 * only by a write. */
void gone_watch(struct connection *connection);

/* Watches for input on a connection that is suspended in its TLS handshake; gone_check() wakes it. */
void gone_watch_input(struct connection *connection);

/* Does nothing if it is not watched. */
void gone_unwatch(struct connection *connection);

/* Ends the requests of watched clients that have left, and goes on with handshakes; where there are many, of some of
 * them, and the descriptor stays readable. Not from within a call of the library. */
void gone_check(struct api *api);

#endif
