/* SPDX-License-Identifier: MIT */
/* Numbers, escapes and hex digits, written into memory of the caller, and a hash. Allocates nothing, since the log uses
 * it. */
#include <assert.h>
#include <string.h>

#include "base.h"

size_t text_decimal(uint64_t number, char ret_digits[TEXT_DECIMAL_MAX])
{
	char digits[TEXT_DECIMAL_MAX];
	size_t at = TEXT_DECIMAL_MAX;
	if (number < 10) {
		ret_digits[0] = (char)('0' + number);
		return 1;
	}
	if (number < 100) {
		ret_digits[0] = (char)('0' + number / 10);
		ret_digits[1] = (char)('0' + number % 10);
		return 2;
	}
	do
		digits[--at] = (char)('0' + number % 10);
	while ((number /= 10) > 0);
	memcpy(ret_digits, digits + at, TEXT_DECIMAL_MAX - at);
	return TEXT_DECIMAL_MAX - at;
}

size_t text_escape(unsigned char c, char ret_escape[TEXT_ESCAPE_MAX])
{
	static const char letters[] = "btnvfr"; /* 8 … 13; JSON has no \\v */
	size_t len = 0;
	if (c >= ' ' && c != '"' && c != '\\')
		return 0;
	ret_escape[len++] = '\\';
	if (c == '"' || c == '\\') {
		ret_escape[len++] = (char)c;
	} else if (c >= 8 && c <= 13 && c != 11) {
		ret_escape[len++] = letters[c - 8];
	} else {
		memcpy(ret_escape + len, "u00", 3);
		len += 3;
		ret_escape[len++] = "0123456789ABCDEF"[c >> 4];
		ret_escape[len++] = "0123456789ABCDEF"[c & 15];
	}
	assert(len <= TEXT_ESCAPE_MAX);
	return len;
}

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

uint64_t hash_fnv1a(const void *bytes, size_t len)
{
	assert(bytes || len == 0);
	const unsigned char *at = bytes;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
	return hash;
}
