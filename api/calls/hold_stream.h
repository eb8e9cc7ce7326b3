/* Locks held by a connection (`hold: true`): the answer is a stream of lines (NDJSON) that ends when the lease does,
 * and the lease ends when the connection does. See hold.c for how; the lease itself is kept by server/leases/hold.h.
 * All on the worker's thread. */
#ifndef API_HOLD_H
#define API_HOLD_H

#include <microhttpd.h>
#include <stdbool.h>

#include "problem.h"
#include "server/leases/leases.h"

struct request;
struct hold_stream;

#define HOLD_CONTENT_TYPE "application/x-ndjson"

/* The lock is granted: begins to hold it, and notes the answer, whose first line is the lease.
 * Where there is no memory for it, the lease is given back and the request fails. */
void hold_stream_open(struct request *request, const struct lease_answer *answer);

/* The response whose body is the stream; NULL where memory is short. */
struct MHD_Response *hold_stream_response(struct request *request);

/* Its client has left, while the connection was suspended. */
void hold_stream_leave(struct request *request);

/* The service ends: the last line is `draining`, without another renewal. */
void hold_stream_abort(struct request *request);

/* Its caller may not hold it any more: the lease is released, and the last line is `lost` with this code. Does nothing
 * to a stream that ends already. */
void hold_stream_revoke(struct request *request, enum problem code);

/* The request is over: adds to its line in the log how the stream ended. */
void hold_stream_log(const struct request *request, enum MHD_RequestTerminationCode how);

/* The same: releases the lease, unless it is lost or was left to the client's care. Frees all. */
void hold_stream_close(struct request *request, enum MHD_RequestTerminationCode how);

#endif
