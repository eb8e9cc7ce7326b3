/* SPDX-License-Identifier: MIT */
/* A Redis master in memory, without a server: keys with their types and ends, and the scripts of server/scripts/, which
 * LuaJIT runs as Redis does. sim_compare.c compares it with a real server.
 *
 * The caller sets the time: store_set_time(). A key exists to the end of the millisecond in which it ends, as in Redis.
 * PUBLISH calls back. Not modelled: memory limits, access control, Redis Cluster, blocking commands, transactions,
 * replicas. A copy shares all keys with the original until one of the two is changed. One thread. */
#ifndef STORE_H
#define STORE_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The keys of a set, one after the other: `names` has a bit for each. */
#define FOR_EACH_KEY(key, names)                      \
	for (unsigned key = 0; (names) >> key; key++) \
		if ((names) >> key & 1)

struct store;

typedef void store_publish_fn(void *arg, const char *channel, size_t channel_len, const char *text, size_t len);

/* An empty master, at time 0. `publish`: NULL: nobody listens. */
struct store *store_new(store_publish_fn *publish, void *arg);
void store_free(struct store *store);
/* Another master with the same time and keys. */
struct store *store_copy(const struct store *store);
/* FLUSHALL. */
void store_clear(struct store *store);

/* Sets the time of day of this master, forward or back. */
void store_set_time(struct store *store, uint64_t now_us);

/* Carries out a command as Redis would. The reply is one block: free(). An error has Redis' code (WRONGTYPE, NOSCRIPT,
 * ERR) and its own text. */
redisReply *store_command(struct store *store, size_t argc, const char *const argv[], const size_t lens[]);
/* EVALSHA, for a script of `scripts` by its number: the first `keys` arguments are KEYS, all others ARGV. */
redisReply *store_run_script(struct store *store, unsigned script, size_t keys, size_t argc, const char *const argv[],
			     const size_t lens[]);

#endif
