/* A text that grows, for metrics and whole files. It belongs to the caller of text_init(). */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *bytes; /* always terminated, never NULL after the first append */
	size_t len, size;
	bool failed; /* out of memory, or too long: the text is not whole */
};

void text_init(struct text *text);
void text_fini(struct text *text);
void text_append(struct text *text, const char *bytes, size_t len);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { TEXT_DECIMAL_MAX = 20 };
/* Writes a number in decimal digits, not terminated; returns how many. Faster than printf(), for the path of each
 * request. */
size_t text_decimal(uint64_t number, char ret_digits[TEXT_DECIMAL_MAX]);

/* The value of one hexadecimal digit, of either case; -1: it is none. */
int text_hex_digit(char c);

#endif
