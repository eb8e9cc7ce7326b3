/* SPDX-License-Identifier: MIT */
/* The rules for words from outside, written a second time and in another way than in api/. */
#ifndef FUZZ_WORDS_H
#define FUZZ_WORDS_H

#include "api/calls/calls.h"
#include "fuzz.h"

/* Writes a code point as UTF-8; returns its length. */
static inline size_t words_encode_point(uint32_t point, uint8_t ret[4])
{
	size_t len = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
	for (size_t i = len - 1; i > 0; i--, point >>= 6)
		ret[i] = (uint8_t)(0x80 | (point & 0x3f));
	ret[0] = (uint8_t)(len == 1 ? point : (0xf00U >> len & 0xffU) | point);
	return len;
}

/* Reads as leniently as can be, and takes what would be written again in the same way. Returns the length, 0 for no
 * code point. */
static inline size_t words_point(const uint8_t *bytes, size_t len, uint32_t *ret_point)
{
	size_t size = bytes[0] < 0x80 ? 1 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
	uint32_t point = size == 1 ? bytes[0] : bytes[0] & (0x7fU >> size);
	uint8_t again[4];
	if (size > len)
		return 0;
	for (size_t i = 1; i < size; i++)
		point = point << 6 | (bytes[i] & 0x3fU);
	*ret_point = point;
	bool good = point <= 0x10ffff && (point < 0xd800 || point > 0xdfff) && words_encode_point(point, again) == size;
	return good && memcmp(again, bytes, size) == 0 ? size : 0;
}

/* UTF-8 without control characters. */
static inline bool words_are_plain(const char *bytes, size_t len)
{
	uint32_t point;
	for (size_t i = 0, step; i < len; i += step) {
		step = words_point((const uint8_t *)bytes + i, len - i, &point);
		if (step == 0 || point < 0x20 || (point >= 0x7f && point < 0xa0))
			return false;
	}
	return true;
}

/* Whether `word` is anywhere in the bytes. */
static inline bool words_hold(const char *bytes, size_t len, const char *word)
{
	size_t word_len = strlen(word);
	for (size_t at = 0; at + word_len <= len; at++)
		if (memcmp(bytes + at, word, word_len) == 0)
			return true;
	return false;
}

/* Whether a segment is a dot or two: between slashes that are put around the bytes. */
static inline bool words_hold_dots(const char *bytes, size_t len)
{
	char around[258] = "/";
	memcpy(around + 1, bytes, len);
	around[len + 1] = '/';
	return words_hold(around, len + 2, "/./") || words_hold(around, len + 2, "/../");
}

/* The rule for resources. */
static inline bool words_name_resource(const char *bytes, size_t len)
{
	return len >= 1 && len <= 256 && words_are_plain(bytes, len) && !words_hold(bytes, len, "redlockd:") &&
	       !words_hold_dots(bytes, len);
}

/* Each error since `before` names a field and gives a reason, both short and fit to be shown. */
static inline void words_check_errors(const struct field_errors *errors, size_t before)
{
	MUST(errors->count <= FIELD_ERRORS_MAX, "%zu errors", errors->count);
	for (size_t i = before; i < errors->count; i++) {
		const struct field_error *error = &errors->items[i];
		size_t field = strnlen(error->field, sizeof error->field),
		       reason = strnlen(error->reason, sizeof error->reason);
		MUST(field >= 1 && field < sizeof error->field && words_are_plain(error->field, field),
		     "field of %zu bytes", field);
		MUST(reason >= 1 && reason < sizeof error->reason && words_are_plain(error->reason, reason),
		     "reason of %zu bytes", reason);
	}
}

#endif
