/* SPDX-License-Identifier: MIT */
/* Unit tests. A file test_NAME.c is the suite NAME, and its tests register themselves. A test program runs the suites
 * that its command line names, or all that it holds. */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

#undef START_TEST /* its tests would have to be registered by hand */

/* A test, followed by its body. Each has a process of its own. */
#define TEST(name) TEST_EACH(name, 0, 1)
/* A test that runs for each _i from `first` up to `end`, without that. */
#define TEST_EACH(name, first, end) TEST_SIGNAL(name, first, end, 0)
/* The same for one that must end by a signal. */
#define TEST_SIGNAL(name, first, end, signal)                                   \
	static void name(int _i __attribute__((unused)));                       \
	static void __attribute__((constructor)) suite_add_##name(void)         \
	{                                                                       \
		static const TTest test = {#name, name, __FILE__, __LINE__};    \
		suite_add_test(&test, (int)(first), (int)(end), (int)(signal)); \
	}                                                                       \
	static void name(int _i __attribute__((unused)))

/* Runs before and after each test of the file; NULL: nothing. */
#define FIXTURE(set_up, tear_down)                                       \
	static void __attribute__((constructor)) suite_add_fixture(void) \
	{                                                                \
		suite_set_fixture(__BASE_FILE__, set_up, tear_down);     \
	}

/* A list of texts, in as few lines as they need. */
#define TEXTS(...)          \
	{                   \
		__VA_ARGS__ \
	}

void suite_add_test(const TTest *test, int first, int end, int signal);
void suite_set_fixture(const char *file, SFun set_up, SFun tear_down);

#endif
