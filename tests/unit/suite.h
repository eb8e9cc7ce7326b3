/* What main() of a unit test calls. */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

/* Runs the cases, TCase *, of which the last is followed by NULL; returns the exit status. Each test has a process of
 * its own. */
int suite_run(const char *name, ...) __attribute__((sentinel));

#endif
