/* The endpoints: the route table, and what comes of a request once it has been read. See pipeline.c.
 *
 * The one header of this folder for the others. redlockctl uses path.h and problem.h, which need nothing of the HTTP
 * side. */
#ifndef CALLS_H
#define CALLS_H

#include <stddef.h>
#include <stdio.h>

#include "path.h"
#include "problem.h"

struct http_service;

/* Once per process, before the first api_new(): sets up the HTTP side for `workers` workers. */
void calls_setup(size_t workers);

/* For api_config: how requests are answered. */
const struct http_service *calls_service(void);

/* Prints "METHOD PATTERN STATUS CODE" lines for all that the route table says; `-` for no code, `* *` for what needs no
 * route. */
void calls_print_routes(FILE *to);

#endif
