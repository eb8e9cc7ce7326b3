/* The calls of the interface: one handler for each route. All on the worker's thread. */
#ifndef CALLS_H
#define CALLS_H

#include <stdbool.h>

struct request;

/* lock_calls.c */
/* Reads the body of a call that has one; answers 400 where it is wrong. */
bool lock_call_read_body(struct request *request);
void lock_call_acquire(struct request *request);
void lock_call_extend(struct request *request);
void lock_call_release(struct request *request);
/* A forced release is given up before its answer: it may have been carried out, so the log says who asked for it. */
void lock_call_force_left(const struct request *request);
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

/* stats_calls.c */
void info_call_stats(struct request *request);

#endif
