/* Strict UTF-8. See utf8.h. Pure functions; any thread. */
#include "utf8.h"

#include <assert.h>

/* The bytes that follow a lead byte, and the smallest code point that may be written with so many: 0 for no lead
 * byte. */
static size_t utf8_followers(unsigned char lead, uint32_t *ret_bits, uint32_t *ret_smallest)
{
	if (lead >= 0xc2 && lead <= 0xdf) {
		*ret_bits = lead & 0x1fu;
		*ret_smallest = 0x80;
		return 1;
	}
	if (lead >= 0xe0 && lead <= 0xef) {
		*ret_bits = lead & 0x0fu;
		*ret_smallest = 0x800;
		return 2;
	}
	if (lead >= 0xf0 && lead <= 0xf4) {
		*ret_bits = lead & 0x07u;
		*ret_smallest = 0x10000;
		return 3;
	}
	return 0;
}

size_t utf8_next(const unsigned char *bytes, size_t len, uint32_t *ret_point)
{
	uint32_t point = 0, smallest = 0;

	assert(len > 0);
	if (bytes[0] < 0x80) {
		*ret_point = bytes[0];
		return 1;
	}
	size_t followers = utf8_followers(bytes[0], &point, &smallest);
	if (followers == 0 || followers >= len)
		return 0;
	for (size_t i = 1; i <= followers; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (bytes[i] & 0x3fu);
	}
	if (point < smallest || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
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
