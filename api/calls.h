/* The calls of the interface: one handler for each route. All on the worker's thread. */
#ifndef CALLS_H
#define CALLS_H

struct request;

/* lock_calls.c */
void lock_call_acquire(struct request *request);
void lock_call_extend(struct request *request);
void lock_call_release(struct request *request);
void lock_call_inspect(struct request *request);
void lock_call_list(struct request *request);

/* info_calls.c */
void info_call_healthz(struct request *request);
void info_call_readyz(struct request *request);
void info_call_metrics(struct request *request);
void info_call_masters(struct request *request);
void info_call_openapi(struct request *request);
void info_call_version(struct request *request);
void info_call_page(struct request *request);

#endif
