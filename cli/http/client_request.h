/* The requests that redlockctl makes, as method, path and body. Pure: nothing is sent here. */
#ifndef CLI_REQUEST_H
#define CLI_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum { REQUEST_PATH_MAX = 2048 };

struct request {
	const char *method;
	char path[REQUEST_PATH_MAX];
	char *body;        /* on the heap; NULL: none */
	const char *token; /* for the header Lock-Token; not ours. NULL: none */
	uint64_t wait_ms;  /* how long the server may keep it */
	bool may_grant;    /* the answer may be a lease that nobody else knows of */
};

/* wait_ms: 0 for a request that does not wait. */
void request_acquire(struct request *request, const char *name, uint64_t ttl_ms, const char *owner, uint64_t wait_ms);
void request_extend(struct request *request, const char *name, const char *token, uint64_t ttl_ms);
void request_release(struct request *request, const char *name, const char *token);
void request_force(struct request *request, const char *name); /* takes the lock from whoever holds it */
void request_status(struct request *request, const char *name);
void request_list(struct request *request, const char *prefix, uint64_t limit, const char *cursor);
void request_masters(struct request *request);
void request_health(struct request *request);
void request_ready(struct request *request);
void request_fini(struct request *request);

#endif
