/* Whole numbers and plain text, for options_address.c and options_parse.c. Pure functions. */
#include <assert.h>
#include <string.h>

#include "options_table.h"

bool options_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number, const char **ret_reason)
{
	bool negative = text[0] == '-';
	const char *digits = text + negative;
	uint64_t number = 0;

	assert(min <= max);
	if (digits[0] == '\0' || strspn(digits, "0123456789") != strlen(digits)) {
		*ret_reason = "not a whole number";
		return false;
	}
	for (const char *digit = digits; *digit != '\0'; digit++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*digit - '0'), &number))
			number = UINT64_MAX / 10; /* too high whatever follows: all bounds are far below */
	if (number > max || number < min || negative) {
		*ret_reason = negative || number < min ? "too low" : "too high";
		return false;
	}
	*ret_number = number;
	return true;
}

bool options_is_plain_text(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	while (*c != '\0') {
		size_t extra = *c < 0x80                 ? 0
			       : *c >= 0xc2 && *c < 0xe0 ? 1
			       : (*c & 0xf0) == 0xe0     ? 2
			       : *c >= 0xf0 && *c < 0xf5 ? 3
							 : 4;
		if (extra == 4 || *c < 0x20 || *c == 0x7f)
			return false;
		/* too long a form, a surrogate, past the last code point, a C1 control */
		if ((*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) || (*c == 0xf0 && c[1] < 0x90) ||
		    (*c == 0xf4 && c[1] > 0x8f) || (*c == 0xc2 && c[1] < 0xa0))
			return false;
		for (c++; extra > 0; extra--, c++)
			if ((*c & 0xc0) != 0x80)
				return false;
	}
	return true;
}
