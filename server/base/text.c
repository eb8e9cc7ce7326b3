/* A text that grows. See text.h.
 *
 * The first failure sticks: nothing is appended after it, `failed` stays true, and the bytes remain a terminated
 * string. So a caller may append many pieces and check once at the end. A text never grows past TEXT_MAX, so that a
 * mistake of a caller ends as a failed text and not as a machine without memory. One thread at a time. */
#include "text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_FIRST = 256, TEXT_MAX = 64 << 20 };

void text_init(struct text *text)
{
	assert(text);
	*text = (struct text){0};
}

void text_fini(struct text *text)
{
	assert(text);
	free(text->bytes);
	*text = (struct text){0};
}

/* Makes room for `more` bytes and the terminator. */
static bool text_reserve(struct text *text, size_t more)
{
	if (text->failed)
		return false;
	assert(text->len <= TEXT_MAX);
	if (more > TEXT_MAX - text->len) {
		text->failed = true;
		return false;
	}
	size_t wanted = text->len + more + 1;
	if (wanted <= text->size)
		return true;
	size_t size = text->size == 0 ? TEXT_FIRST : text->size;
	while (size < wanted)
		size *= 2;
	char *bytes = realloc(text->bytes, size);
	if (!bytes) {
		text->failed = true;
		return false;
	}
	text->bytes = bytes;
	text->size = size;
	return true;
}

void text_append(struct text *text, const char *bytes, size_t len)
{
	assert(text);
	assert(bytes || len == 0);
	if (!text_reserve(text, len))
		return;
	if (len > 0)
		memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	text->bytes[text->len] = '\0';
}

void text_printf(struct text *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	assert(len >= 0);
	if (!text_reserve(text, (size_t)len))
		return;
	va_start(args, format);
	vsnprintf(text->bytes + text->len, (size_t)len + 1, format, args);
	va_end(args);
	text->len += (size_t)len;
}

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

int text_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
