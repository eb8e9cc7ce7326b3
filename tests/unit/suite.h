/* What main() of a unit test calls. */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

/* Runs the cases, TCase *, of which the last is followed by NULL; returns the exit status. Each test has a process of
 * its own. */
int suite_run(const char *name, ...) __attribute__((sentinel));

/* Adds tests to a case; tcase_add_loop_test() adds those that run for several numbers. */
#define suite_add(tcase, ...) suite_add_tests(tcase, (const TTest *const[]){__VA_ARGS__, NULL})
void suite_add_tests(TCase *tcase, const TTest *const tests[]);

#endif
