/* A lease as JSON text: the answer that is given most often, so it is written at once, without a tree of values in
 * between. */
#ifndef LEASE_TEXT_H
#define LEASE_TEXT_H

#include <stddef.h>

#include "server/leases/leases.h"

/* The longest: a resource and an owner, each of whose bytes may be escaped by five others, and the members around
 * them. */
enum { LEASE_TEXT_MAX = 6 * (LEASE_RESOURCE_MAX + LEASE_OWNER_MAX) + LEASE_TOKEN_LEN + 320 };

/* Writes the lease that `answer` gives to `lease` (an acquisition or an extension), not terminated; returns its length.
 * `event` stands before its members unless it is NULL. The owner of an extended lease, which another program may have
 * written into Redis, is null where it is no UTF-8. */
size_t lease_text_write(const struct lease_request *lease, const struct lease_answer *answer, const char *event,
			char ret_text[LEASE_TEXT_MAX]);

#endif
