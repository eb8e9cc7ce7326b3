/* The HTTP side of one worker: libmicrohttpd without threads, driven by the worker's loop. It knows no endpoints: it is
 * given a service (api/calls) with the route table.
 *
 * The worker accepts connections and hands them over. It calls api_run() when api_fd() is readable, when
 * api_timeout_ms() has passed, and at the end of every round of its loop in which an answer came. All on the worker's
 * thread.
 *
 * The one header of this folder for the others. */
#ifndef HTTP_H
#define HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "api/auth/auth.h"
#include "headers.h"
#include "http_metrics.h"
#include "reply.h"
#include "request.h"
#include "server/base/base.h"
#include "tls.h"

struct api;
struct holds;
struct leases;
struct masters;

/* What answers the requests. The adapter calls these, on the worker's thread; nothing else of the service is known
 * here. */
struct http_service {
	size_t call_size; /* bytes of request->call */

	/* The name of a route by its index. */
	http_route_name_fn *route_name;

	/* The head of a request is in, its framing is beyond doubt. Notes a reply, unless the request is wanted whole.
	 * `path` is raw, or "*"; `query` is raw, or NULL. */
	void (*head)(struct request *request, const char *method, const char *path, const char *query);
	/* A request without a reply is whole. Notes a reply, or starts an operation that ends with request_resume().
	 * Returns true if that may take longer than a few round trips. */
	bool (*whole)(struct request *request);

	/* Reading failed: notes the reply with this status (400, 413, 414 or 431). */
	void (*reject)(struct request *request, unsigned status, const char *detail);
	/* The same (or 429) as a whole answer that closes the connection, for a socket without a request. Returns its
	 * length in bytes; `size` is at least 1024. */
	size_t (*write_raw)(unsigned status, const char *detail, const char *request_id, char *text, size_t size);
	/* Adds the headers that belong to the service's answers. */
	void (*add_headers)(const struct request *request, struct MHD_Response *response);

	/* The client of a suspended connection has left: cancels what is under way, then calls request_drop(). */
	void (*leave)(struct request *request);
	/* The api ends: cancels what is under way and notes a reply, then calls request_resume(). */
	void (*abort)(struct request *request);
	/* Keys or authorities have been read again: rejects what the caller may not do any more. */
	void (*review)(struct request *request);
	/* The request is over, in whatever state. Cancels what is under way, and logs. `status`: what the client was
	 * given, 0: nothing. `ended`: why it ended without a whole answer (static), or NULL. */
	void (*end)(struct request *request, unsigned status, const char *ended, enum MHD_RequestTerminationCode how);
};

struct api_config {
	const struct http_service *service;
	struct metrics *metrics;  /* of this worker; they outlive the api */
	uint32_t max_connections; /* of this worker */
	/* absolute: a request must have arrived whole, an answer must be taken, within it */
	uint32_t request_timeout_ms;
	uint32_t idle_timeout_ms;             /* absolute: between two requests of a connection */
	uint32_t max_connections_per_address; /* of all workers; 0: no bound */
	uint32_t max_requests_per_connection; /* 0: no bound */
	struct tls *tls;                      /* a reference is taken; NULL: there will be no TLS */

	/* For the service alone. The first three belong to this worker and outlive the api. */
	struct leases *leases;
	struct holds *holds;
	const struct masters *masters;
	uint32_t default_ttl_ms, min_ttl_ms, max_ttl_ms;
	uint32_t max_wait_ms;          /* 0: nobody may wait */
	uint32_t max_rate_per_address; /* requests a second; 0: no bound */
	enum log_requests log_requests;
	struct origin_names allow_hosts, allow_origins;
};

/* Starts the HTTP side. NULL if it cannot be started (descriptors); errno says why. */
struct api *api_new(const struct api_config *config);

/* From now on these keys count (a reference is taken; NULL: everybody may do everything), also for requests under
 * way. */
void api_set_keys(struct api *api, struct keys *keys);

/* From now on new connections begin with this certificate (a reference is taken). Open connections keep theirs, but
 * their clients' certificates are checked by its authorities, also for requests under way. Only if there was one from
 * the start. */
void api_set_tls(struct api *api, struct tls *tls);

/* A descriptor that becomes readable when api_run() has something to do. */
int api_fd(const struct api *api);

/* A descriptor that becomes readable when a client leaves that waits for a lock or holds one by its connection, or when
 * a TLS handshake can go on. */
int api_disconnect_fd(const struct api *api);

/* Acts upon that. api_run() must follow. */
void api_check_disconnects(struct api *api);

/* Takes over an accepted, non-blocking socket, also if it cannot be served (then it is answered 429 and closed).
 * `tls`: it came to a listener of https. */
void api_accept(struct api *api, int fd, const struct sockaddr *address, socklen_t address_len, bool tls);

/* Does all that can be done now, until nothing more is ready. */
void api_run(struct api *api);

/* After how many ms api_run() wants to be called even if nothing is readable; -1: never. */
int api_timeout_ms(const struct api *api);

/* From now on answers close their connection, idle connections are closed, and the service drains. */
void api_drain(struct api *api);

/* Connections that are in the middle of a request or an answer, or that wait for a lease. */
size_t api_busy(const struct api *api);

/* Ends what is left: suspended requests are aborted. Frees all. */
void api_free(struct api *api);

/* What an operator should know of the libmicrohttpd at hand, or NULL: known defects of its version and what is done
 * about them. */
const char *api_library_note(void);

#endif
