/* The HTTP side of one worker: a libmicrohttpd daemon without threads, driven by the worker's loop.
 *
 * The worker accepts connections and hands them over; it calls api_run() whenever api_fd() is readable, whenever
 * api_timeout_ms() has passed, and at the end of every round of its loop in which an answer came. All on the worker's
 * thread. */
#ifndef API_H
#define API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "api/auth/auth.h"
#include "server/leases/leases.h"
#include "server/masters/masters.h"
#include "tls.h"

struct api;

struct api_config {
	struct leases *leases;         /* of this worker; outlives the api */
	struct holds *holds;           /* of this worker; outlives the api */
	const struct masters *masters; /* of this worker; outlives the api */
	size_t worker;                 /* 0 …: whose counters */
	uint32_t default_ttl_ms, min_ttl_ms, max_ttl_ms;
	uint32_t max_wait_ms;     /* 0: nobody may wait */
	uint32_t max_connections; /* of this worker */
	/* absolute: a request must have arrived whole, an answer must be taken, within it */
	uint32_t request_timeout_ms;
	uint32_t idle_timeout_ms;             /* absolute: between two requests of a connection */
	uint32_t max_connections_per_address; /* of all workers; 0: no bound */
	uint32_t max_rate_per_address;        /* requests a second; 0: no bound */
	uint32_t max_requests_per_connection; /* 0: no bound */
	struct origin_names allow_hosts, allow_origins;
	struct tls *tls; /* a reference is taken; NULL: there will be no TLS */
};

/* Once per process, before the first api_new(): makes the counters of `workers` workers. */
void api_setup(size_t workers);

/* Makes the daemon. NULL where it cannot be started (memory, descriptors); errno says why. */
struct api *api_new(const struct api_config *config);

/* From now on these keys count (a reference is taken; NULL: everybody may do everything), also for requests under way:
 * see request_review(). */
void api_set_keys(struct api *api, struct keys *keys);

/* From now on new connections begin with this certificate (a reference is taken); those that are open go on with
 * theirs, but their clients' certificates are measured by its authorities, also for requests under way. Only where
 * there was one from the start. */
void api_set_tls(struct api *api, struct tls *tls);

/* A descriptor that becomes readable when api_run() has something to do. */
int api_fd(const struct api *api);

/* A descriptor that becomes readable when a client has left that waits for a lock or holds one by its connection, or
 * when a TLS handshake can go on. */
int api_gone_fd(const struct api *api);

/* Acts upon that. api_run() is due afterwards. */
void api_notice_gone(struct api *api);

/* Takes over an accepted, non-blocking socket, also where it cannot be served (then it is answered 429 and closed).
 * `tls`: it came to a listener of https. */
void api_accept(struct api *api, int fd, const struct sockaddr *address, socklen_t address_len, bool tls);

/* Does all that can be done now, until nothing more is ready. */
void api_run(struct api *api);

/* After how many ms api_run() wants to be called even if nothing is readable; -1: never. */
int api_timeout_ms(const struct api *api);

/* From now on: /readyz says 503, answers close their connection, idle connections are closed. */
void api_drain(struct api *api);

/* Connections that are in the middle of a request or an answer, or that wait for a lease. */
size_t api_busy(const struct api *api);

/* Ends what is left: suspended requests are answered 503 `draining`. Frees all. */
void api_free(struct api *api);

/* What a start-up line should say of the libmicrohttpd at hand, or NULL: known defects of its version and what is done
 * about them. */
const char *api_library_note(void);

#endif
