/* Stands for the header of Check where the driver of the unit tests (tests/unit/redlock_driver.h) works for a fuzz
 * target: its rules are the same. */
#ifndef FUZZ_CHECK_H
#define FUZZ_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define ck_abort_msg(...)                     \
	do {                                  \
		fprintf(stderr, "broken: ");  \
		fprintf(stderr, __VA_ARGS__); \
		fputc('\n', stderr);          \
		abort();                      \
	} while (0)

#endif
