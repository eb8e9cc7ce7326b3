/* Texts that do not grow: numbers and escapes, written to where the caller has room. */
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
