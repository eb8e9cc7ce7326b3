/* The requests of redlockctl as method, path and body. Pure: nothing is sent here. */
#ifndef CLIENT_REQUEST_H
#define CLIENT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum { CLIENT_REQUEST_PATH_MAX = 2048 };

struct client_request {
	const char *method;
	char path[CLIENT_REQUEST_PATH_MAX];
	char *body;        /* on the heap; NULL: none */
	const char *token; /* for the header Lock-Token; the caller owns it. NULL: none */
	uint64_t wait_ms;  /* how long the server may let it wait */
	bool may_grant;    /* the answer may be a new lease */
};

/* wait_ms: 0 for a request that does not wait. */
void client_request_acquire(struct client_request *request, const char *name, uint64_t ttl_ms, const char *owner,
			    uint64_t wait_ms);
void client_request_extend(struct client_request *request, const char *name, const char *token, uint64_t ttl_ms);
void client_request_release(struct client_request *request, const char *name, const char *token);
void client_request_force(struct client_request *request, const char *name); /* releases without the token */
void client_request_status(struct client_request *request, const char *name);
void client_request_list(struct client_request *request, const char *prefix, uint64_t limit, const char *cursor);
void client_request_masters(struct client_request *request);
void client_request_health(struct client_request *request);
void client_request_ready(struct client_request *request);
void client_request_fini(struct client_request *request);

#endif
