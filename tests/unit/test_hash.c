/* FNV-1a against the vectors of its authors. */
#include <check.h>

#include "server/base/base.h"
#include "suite.h"

TEST(fnv1a)
{
	ck_assert_uint_eq(hash_fnv1a("", 0), UINT64_C(0xcbf29ce484222325));
	ck_assert_uint_eq(hash_fnv1a("a", 1), UINT64_C(0xaf63dc4c8601ec8c));
	ck_assert_uint_eq(hash_fnv1a("foobar", 6), UINT64_C(0x85944171f73967e8));
	ck_assert_uint_eq(hash_fnv1a("\xff", 1), UINT64_C(0xaf64724c8602eb6e));
}
