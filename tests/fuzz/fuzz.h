/* SPDX-License-Identifier: MIT */
/* Shared parts of the fuzz targets: an input as a row of decisions or as a text, and a check that ends the run.
 *
 * A target is a program with libFuzzer's main(), which calls LLVMFuzzerTestOneInput() with one input after another.
 * Nothing survives a call: an input alone decides what happens. MUST() is for conditions that hold for every input; a
 * crash, a sanitizer's report and a broken assertion of the code under test end the run just the same, and libFuzzer
 * keeps the input.
 *
 * With FUZZ_MUTATED a target is built once more, with a mutation between it and the code under test: that one must fail
 * (README.md). */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition, ...)                                                                    \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: broken: %s: ", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__);                                           \
			fputc('\n', stderr);                                                    \
			abort();                                                                \
		}                                                                               \
	} while (0)

/* The rest of an input. Where it is over, every decision is 0. */
struct feed {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t feed_u8(struct feed *feed)
{
	if (feed->left == 0)
		return 0;
	feed->left--;
	return *feed->at++;
}

static inline uint16_t feed_u16(struct feed *feed)
{
	uint16_t high = feed_u8(feed);
	return (uint16_t)(high << 8 | feed_u8(feed));
}

/* A copy of bytes in memory of exactly that size, so that one byte too many is seen. */
static inline char *fuzz_copy(const void *bytes, size_t len)
{
	char *copy = malloc(len > 0 ? len : 1);
	MUST(copy != NULL, "out of memory");
	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

/* The same as a terminated text; ends at the first NUL. */
static inline char *fuzz_text(const void *bytes, size_t len)
{
	size_t text_len = strnlen(bytes != NULL ? bytes : "", len);
	char *copy = malloc(text_len + 1);
	MUST(copy != NULL, "out of memory");
	if (text_len > 0)
		memcpy(copy, bytes, text_len);
	copy[text_len] = '\0';
	return copy;
}

#endif
