/* Hexadecimal digits. */
#include <assert.h>

#include "base.h"

int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

void hex_write(const unsigned char *bytes, size_t len, char *ret_digits)
{
	static const char digits[] = "0123456789abcdef";

	assert(bytes && ret_digits);
	for (size_t i = 0; i < len; i++) {
		ret_digits[2 * i] = digits[bytes[i] >> 4];
		ret_digits[2 * i + 1] = digits[bytes[i] & 15];
	}
}

bool hex_read(const char *digits, size_t len, unsigned char *ret_bytes)
{
	assert(digits && ret_bytes);
	for (size_t i = 0; i < len; i++) {
		int high = hex_digit(digits[2 * i]), low = high < 0 ? -1 : hex_digit(digits[2 * i + 1]);
		if (low < 0)
			return false;
		ret_bytes[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

bool hex_is_lower(const char *text, size_t len)
{
	assert(text || len == 0);
	for (size_t i = 0; i < len; i++)
		if (hex_digit(text[i]) < 0 || (text[i] >= 'A' && text[i] <= 'F'))
			return false;
	return true;
}
