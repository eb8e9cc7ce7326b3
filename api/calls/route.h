/* The route table: which method on which path is which call, and what each call can answer. */
#ifndef ROUTE_H
#define ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "api/auth/auth.h"
#include "server/leases/leases.h"

struct request;

/* Carries out a request: answers it now, or starts an operation whose answer resumes it. */
typedef void route_handler(struct request *request);

/* One answer that a call can give; code NULL: not an error. */
struct route_answer {
	uint16_t status;
	const char *code;
};

enum { ROUTE_ANSWERS_MAX = 8 };

struct route {
	const char *name;          /* in the log and in metrics */
	const char *method;        /* a route for GET takes HEAD, too */
	const char *pattern;       /* a `{resource}` at its end stands for one or more segments */
	enum access_need need;     /* of its caller */
	enum lease_operation call; /* of those on /locks */
	route_handler *handle;
	bool takes_body;
	const char *const *params;                      /* of the query; NULL at the end */
	struct route_answer answers[ROUTE_ANSWERS_MAX]; /* besides those that any call can give; status 0 ends them */
};

/* How many routes there are; also the index that stands for "no route". */
enum { ROUTE_NONE = 13 };

/* Route i of ROUTE_NONE. Static. */
const struct route *route_get(size_t i);

/* The name of route i, "none" for ROUTE_NONE. */
const char *route_name(size_t i);

/* The index of a route; ROUTE_NONE for NULL. */
size_t route_index(const struct route *route);

enum route_match { ROUTE_FOUND, ROUTE_NO_PATH, ROUTE_NO_METHOD };

/* Finds the route for a method and a raw path (without the query). FOUND: sets *ret_route, and *ret_rest to where a
 * `{resource}` begins in the path. NO_METHOD: writes the methods that the path takes, as for the header Allow. */
enum route_match route_find(const char *method, const char *path, const struct route **ret_route, const char **ret_rest,
			    char *ret_allow, size_t allow_size) __attribute__((warn_unused_result));

/* True if the table says that this route (NULL: before a route was found) can answer so. */
bool route_may_answer(const struct route *route, unsigned status, const char *code);

/* Prints "METHOD PATTERN STATUS CODE" lines for all that the table says; `-` for no code, `* *` for what needs no
 * route. */
void route_print(FILE *to);

#endif
