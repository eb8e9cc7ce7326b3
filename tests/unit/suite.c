/* Runs a suite of Check. See suite.h. */
#include "suite.h"

#include <stdarg.h>
#include <stdlib.h>

/* Takes away Check's limit of 4 s for each test, which is too short on a busy machine; ctest ends what hangs. */
static void __attribute__((constructor)) no_timeout(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "0", 0);
}

int suite_run(const char *name, ...)
{
	Suite *suite = suite_create(name);
	va_list cases;

	va_start(cases, name);
	for (TCase *one = va_arg(cases, TCase *); one; one = va_arg(cases, TCase *))
		suite_add_tcase(suite, one);
	va_end(cases);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK); /* counters, alarms and the environment are a process's own */
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

void suite_add_tests(TCase *tcase, const TTest *const tests[])
{
	for (; *tests; tests++)
		tcase_add_test(tcase, *tests);
}
