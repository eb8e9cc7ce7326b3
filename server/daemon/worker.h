/* One worker: a thread with one libuv loop, which serves HTTP, one connection to each master, and timers. Workers share
 * no state of locks, so two workers in a process are like two replicas. They share counters, the data of /stats, the
 * log, the limits of addresses and keys, and certificates. */
#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stddef.h>

#include "server/config/config.h"

struct keys;
struct tls;
struct worker;

/* Starts the thread of worker `index`. `listeners` are its own descriptors, in the order of options->listen; the caller
 * closes them after worker_join(). Takes references to `tls` and `keys`, which may be NULL. *options outlives the
 * worker. Ends the process if there are too few descriptors, threads or memory (see the log). */
struct worker *worker_start(size_t index, const struct options *options, const int listeners[], struct tls *tls,
			    struct keys *keys);

/* Waits until it serves; it tries all masters once before. False: the masters cannot be used together (see the log),
 * and it has ended. */
bool worker_wait_serving(struct worker *worker) __attribute__((warn_unused_result));

/* From any thread: drain, then end. The worker answers for at least `quiet_ms`, so that load balancers see /readyz at
 * 503. */
void worker_drain(struct worker *worker, uint32_t quiet_ms);

/* From any thread: new connections get this certificate, new requests these keys (references are taken). NULL: no
 * change. */
void worker_reload(struct worker *worker, struct tls *tls, struct keys *keys);

/* From any thread: makes the loop turn once; whether it has since then, which it does not while it hangs. */
void worker_poke(struct worker *worker);
bool worker_has_turned(struct worker *worker);

/* Waits for the thread's end. */
void worker_join(struct worker *worker);

/* Frees it, after worker_join() of every worker: it closes descriptors, and another thread could get their numbers. */
void worker_free(struct worker *worker);

#endif
