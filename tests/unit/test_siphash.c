/* SipHash-2-4 against the vectors of its authors: the key 00 01 … 0f, the first n bytes of 00 01 02 …. */
#include <check.h>
#include <stdlib.h>

#include "server/base/siphash.h"

static const struct siphash_key key = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

static const struct {
	size_t len;
	uint64_t hash;
} vectors[] = {
	{0, UINT64_C(0x726fdb47dd0e0e31)}, {1, UINT64_C(0x74f839c593dc67fd)},  {2, UINT64_C(0x0d6c8009d9a94f5a)},
	{3, UINT64_C(0x85676696d7fb7e2d)}, {15, UINT64_C(0xa129ca6149be45e5)},
};

START_TEST(vectors_of_the_authors)
{
	unsigned char bytes[16];

	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)i;
	ck_assert_uint_eq(siphash(&key, bytes, vectors[_i].len), vectors[_i].hash);
}
END_TEST

START_TEST(it_depends_on_each_byte_and_on_the_key)
{
	unsigned char bytes[40] = {0};
	struct siphash_key other = key;
	uint64_t plain = siphash(&key, bytes, sizeof bytes);

	for (unsigned i = 0; i < sizeof bytes; i++) {
		bytes[i] = 1;
		ck_assert_uint_ne(siphash(&key, bytes, sizeof bytes), plain);
		bytes[i] = 0;
		ck_assert_uint_ne(siphash(&key, bytes, i), plain);
	}
	other.high ^= 1;
	ck_assert_uint_ne(siphash(&other, bytes, sizeof bytes), plain);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("siphash");
	TCase *tests = tcase_create("siphash");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tests);
	tcase_add_loop_test(tests, vectors_of_the_authors, 0, sizeof vectors / sizeof *vectors);
	tcase_add_test(tests, it_depends_on_each_byte_and_on_the_key);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
