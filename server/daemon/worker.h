/* One worker: a thread with one libuv loop, in which live one HTTP daemon, one connection to each master, and the
 * timers. Workers share nothing but counters and what /stats shows: a second worker is to the first what a second
 * replica is. */
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

/* Starts worker `index`'s thread. `listeners` are its own descriptors, in the order of options->listen; they stay the
 * caller's to close, after worker_join(). References to `tls` and `keys` are taken; NULL: there are none. NULL where
 * memory or threads are short. *options outlives the worker. */
struct worker *worker_start(size_t index, const struct options *options, const int listeners[], struct tls *tls,
			    struct keys *keys);

/* Waits until it is no longer WORKER_STARTING. */
enum worker_state worker_wait_started(struct worker *worker);

/* From any thread: drain, then end. `quiet_ms`: for how long to go on answering at least, so that load balancers see
 * /readyz at 503. */
void worker_drain(struct worker *worker, uint32_t quiet_ms);

/* From any thread: new connections get this certificate, new requests these keys (references are taken). NULL: those
 * that it has stay. */
void worker_reload(struct worker *worker, struct tls *tls, struct keys *keys);

/* From any thread: has the loop turn once more, and how often it did so when asked. A loop that hangs does not. */
void worker_poke(struct worker *worker);
uint64_t worker_turns(struct worker *worker);

/* Waits for the thread's end. */
void worker_join(struct worker *worker);

/* Frees it, after worker_join() of every worker: what it closes are descriptors, whose numbers another thread could get
 * at once. */
void worker_free(struct worker *worker);

#endif
