/* The line of the log for each request. On the worker's thread. */
#ifndef REQUEST_LOG_H
#define REQUEST_LOG_H

#include <microhttpd.h>

struct request;

/* Writes the line of a request that is over. `status`: what its client was given, 0: nothing. `ended`: why it ended
 * without a whole answer (static), or NULL; `how` is of use to streams alone. */
void request_log(const struct request *request, unsigned status, const char *ended,
		 enum MHD_RequestTerminationCode how);

/* Adds the client's address to the line of the log that is being written. */
void request_log_address(const struct request *request);

#endif
