/* SPDX-License-Identifier: MIT */
/* The main() of all test programs: runs suites of Check. See suite.h. */
#include "suite.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUITES_MAX = 128 };

static struct {
	const char *file;
	char name[64];
	Suite *suite;
	TCase *tests;
} suites[SUITES_MAX];
static size_t suite_count;

/* The tests of a file, called test_NAME.c, in a suite NAME. */
static TCase *suite_of(const char *file)
{
	for (size_t i = 0; i < suite_count; i++)
		if (strcmp(suites[i].file, file) == 0)
			return suites[i].tests;
	assert(suite_count < SUITES_MAX);
	/* Check's limit of 4 s for each test is too short on a busy machine; ctest ends a test that hangs. */
	setenv("CK_DEFAULT_TIMEOUT", "0", 0);
	char *name = suites[suite_count].name;
	int length = sscanf(strrchr(file, '/'), "/test_%63[^.]", name);
	assert(length == 1);
	suites[suite_count].file = file;
	suites[suite_count].suite = suite_create(name);
	suites[suite_count].tests = tcase_create(name);
	suite_add_tcase(suites[suite_count].suite, suites[suite_count].tests);
	return suites[suite_count++].tests;
}

void suite_add_test(const TTest *test, int first, int end, int signal)
{
	_tcase_add_test(suite_of(test->file), test, signal, 0, first, end);
}

void suite_set_fixture(const char *file, SFun set_up, SFun tear_down)
{
	tcase_add_checked_fixture(suite_of(file), set_up, tear_down);
}

static bool is_named(const char *name, int argc, char *argv[])
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc == 1;
}

int main(int argc, char *argv[])
{
	SRunner *runner = srunner_create(NULL);
	srunner_set_fork_status(runner, CK_FORK); /* counters, alarms and the environment are a process's own */
	for (size_t i = 0; i < suite_count; i++)
		if (is_named(suites[i].name, argc, argv))
			srunner_add_suite(runner, suites[i].suite);
	srunner_run_all(runner, CK_ENV);
	int run = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return run > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
