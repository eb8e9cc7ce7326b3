/* SPDX-License-Identifier: MIT */
/* Strict UTF-8. */
#include <assert.h>

#include "base.h"

/* By the number of bytes after the lead byte: the bits that mark the lead byte, and the smallest code point that may
 * have this length. */
static const struct {
	unsigned char mask, lead;
	uint32_t smallest;
} utf8_forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

size_t utf8_next(const unsigned char *bytes, size_t len, uint32_t *ret_point)
{
	size_t followers = 0;
	assert(len > 0);
	while (followers < 4 && (bytes[0] & utf8_forms[followers].mask) != utf8_forms[followers].lead)
		followers++;
	if (followers == 4 || followers >= len)
		return 0;
	uint32_t point = bytes[0] & (unsigned char)~utf8_forms[followers].mask;
	for (size_t i = 1; i <= followers; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (bytes[i] & 0x3fu);
	}
	if (point < utf8_forms[followers].smallest || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
		return 0;
	*ret_point = point;
	return followers + 1;
}

bool utf8_is_valid(const char *bytes, size_t len)
{
	const unsigned char *at = (const unsigned char *)bytes;
	uint32_t point;
	for (size_t i = 0, step; i < len; i += step) {
		step = utf8_next(at + i, len - i, &point);
		if (step == 0)
			return false;
	}
	return true;
}

bool utf8_has_control(const char *bytes, size_t len)
{
	const unsigned char *at = (const unsigned char *)bytes;
	uint32_t point = 0;
	for (size_t i = 0, step; i < len; i += step) {
		step = utf8_next(at + i, len - i, &point);
		assert(step > 0); /* the caller has checked that it is UTF-8 */
		if (point < 0x20 || (point >= 0x7f && point <= 0x9f))
			return true;
	}
	return false;
}
