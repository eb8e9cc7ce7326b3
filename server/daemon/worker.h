/* One worker: a thread with one libuv loop, which serves HTTP, one connection to each master, and timers. Workers share
 * nothing but counters and the data of /stats: two workers in a process are like two replicas. */
#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stddef.h>

#include "server/config/config.h"

struct keys;
struct tls;
struct worker;

enum worker_state {
	WORKER_STARTING, /* trying all masters once */
	WORKER_SERVING,
	WORKER_FAILED,        /* could not start (see the log) */
	WORKER_MISCONFIGURED, /* two addresses turned out to be one master (see the log) */
	WORKER_ENDED
};

/* Starts the thread of worker `index`. `listeners` are its own descriptors, in the order of options->listen; the caller
 * closes them after worker_join(). Takes references to `tls` and `keys`, which may be NULL. *options outlives the
 * worker. NULL: out of memory or threads. */
struct worker *worker_start(size_t index, const struct options *options, const int listeners[], struct tls *tls,
			    struct keys *keys);

/* Waits until it is no longer WORKER_STARTING. */
enum worker_state worker_wait_started(struct worker *worker);

/* From any thread: drain, then end. The worker answers for at least `quiet_ms`, so that load balancers see /readyz at
 * 503. */
void worker_drain(struct worker *worker, uint32_t quiet_ms);

/* From any thread: new connections get this certificate, new requests these keys (references are taken). NULL: no
 * change. */
void worker_reload(struct worker *worker, struct tls *tls, struct keys *keys);

/* From any thread: makes the loop turn once; the number of such turns so far. It does not rise while the loop hangs. */
void worker_poke(struct worker *worker);
uint64_t worker_turns(struct worker *worker);

/* Waits for the thread's end. */
void worker_join(struct worker *worker);

/* Frees it, after worker_join() of every worker: it closes descriptors, and another thread could get their numbers. */
void worker_free(struct worker *worker);

#endif
