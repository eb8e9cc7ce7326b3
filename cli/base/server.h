/* SPDX-License-Identifier: MIT */
/* Addresses of redlockd: http://host:port, host:port, https://host:port or unix:/path. */
#ifndef SERVER_H
#define SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "server/options/options.h"

enum {
	SERVERS_MAX = 16,
	SERVER_BASE_MAX = ADDRESS_HOST_MAX + 32,
	SERVER_SHOWN_MAX = sizeof((struct address *)NULL)->shown
};

struct server_list {
	size_t count; /* the first member, as server/options requires */
	struct address items[SERVERS_MAX];
};

/* NULL, or the reason (static, so it never holds a part of the text). `shown` is the text as the user wrote it. */
const char *server_parse(const char *text, struct address *ret_address) __attribute__((warn_unused_result));

/* The URL without the path of the request: http://host:port. */
void server_write_base(const struct address *server, char ret_base[SERVER_BASE_MAX]);

/* True if others could read the requests on the network: plain HTTP, most likely to another machine. */
bool server_is_exposed(const struct address *server);

#endif
