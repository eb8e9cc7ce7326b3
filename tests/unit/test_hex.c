/* Hexadecimal digits, read and written. */
#include <check.h>
#include <string.h>

#include "server/base/base.h"
#include "suite.h"

TEST(a_digit_has_a_value)
{
	const char digits[] = "0123456789abcdefABCDEF";
	int found = 0;

	for (int c = 0; c < 256; c++)
		found += hex_digit((char)c) >= 0;
	ck_assert_int_eq(found, 22);
	for (int i = 0; i < 22; i++)
		ck_assert_int_eq(hex_digit(digits[i]), i < 16 ? i : i - 6);
}

TEST(what_is_written_can_be_read)
{
	unsigned char bytes[256], again[256];
	char digits[513] = "";

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)i;
	hex_write(bytes, sizeof bytes, digits);
	ck_assert_uint_eq(strlen(digits), 512);
	ck_assert(strncmp(digits, "000102", 6) == 0 && strcmp(digits + 506, "fdfeff") == 0);
	ck_assert(hex_is_lower(digits, 512));
	ck_assert(hex_read(digits, sizeof again, again));
	ck_assert_mem_eq(again, bytes, sizeof bytes);
}

TEST(other_characters_are_rejected)
{
	unsigned char bytes[2];

	ck_assert(hex_read("aBfF", 2, bytes));
	ck_assert_mem_eq(bytes, "\xab\xff", 2);
	ck_assert(!hex_read("abfg", 2, bytes) && !hex_read("a fF", 2, bytes) && !hex_read("-1ff", 2, bytes));
	ck_assert(!hex_is_lower("abF0", 4) && !hex_is_lower("ab\0", 3) && hex_is_lower("", 0));
}
