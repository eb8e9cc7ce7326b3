/* UTF-8: what is valid, and what holds a control character. */
#include <check.h>

#include "server/base/base.h"
#include "suite.h"

#define S(literal) literal, sizeof(literal) - 1

static const struct {
	const char *bytes;
	size_t len;
	bool utf8, control; /* control only where it is UTF-8 */
} texts[] = {
	{S(""), true, false},
	{S("plain"), true, false},
	{S("\xc3\xa9"), true, false},
	{S("\xe2\x82\xac"), true, false},
	{S("\xf0\x9f\x94\x92"), true, false},
	{S("\xf4\x8f\xbf\xbf"), true, false}, /* U+10FFFF */
	{S("\xef\xbf\xbd"), true, false},     /* U+FFFD */
	{S("\xed\x9f\xbf"), true, false},     /* U+D7FF */
	{S("\xee\x80\x80"), true, false},     /* U+E000 */
	{S("\xc2\xa0"), true, false},         /* U+00A0 */
	{S("\xdf\xbf"), true, false},         /* U+07FF */
	{S("\xe0\xa0\x80"), true, false},     /* U+0800 */
	{S("\xf0\x90\x80\x80"), true, false}, /* U+10000 */
	{S(" "), true, false},
	{S("~"), true, false},
	{S("\0"), true, true},
	{S("a\0b"), true, true},
	{S("\x01"), true, true},
	{S("\t"), true, true},
	{S("\n"), true, true},
	{S("\r"), true, true},
	{S("a\x1f"), true, true},
	{S("\x7f"), true, true},
	{S("\xc2\x80"), true, true}, /* U+0080 */
	{S("\xc2\x85"), true, true}, /* U+0085: next line */
	{S("\xc2\x9f"), true, true}, /* U+009F */
	{S("\x80"), false, false},
	{S("\xbf"), false, false},
	{S("\xc0\x80"), false, false}, /* overlong NUL */
	{S("\xc0\xaf"), false, false}, /* overlong slash */
	{S("\xc1\xbf"), false, false},
	{S("\xe0\x80\x80"), false, false},
	{S("\xe0\x9f\xbf"), false, false}, /* overlong U+07FF */
	{S("\xf0\x80\x80\x80"), false, false},
	{S("\xf0\x8f\xbf\xbf"), false, false}, /* overlong U+FFFF */
	{S("\xed\xa0\x80"), false, false},     /* U+D800 */
	{S("\xed\xbf\xbf"), false, false},     /* U+DFFF */
	{S("\xf4\x90\x80\x80"), false, false}, /* U+110000 */
	{S("\xf5\x80\x80\x80"), false, false},
	{S("\xff"), false, false},
	{S("\xfe"), false, false},
	{S("\xf8\x88\x80\x80\x80"), false, false},
	{S("\xc3"), false, false}, /* cut off */
	{S("\xe2\x82"), false, false},
	{S("\xf0\x9f\x94"), false, false},
	{S("\xc3("), false, false},
	{S("\xe2(\xac"), false, false},
	{S("\xe2\x82("), false, false},
	{S("a\xc3\xa9\xff"), false, false},
};

TEST_EACH(only_whole_characters_count, 0, (int)(sizeof texts / sizeof *texts))
{
	ck_assert_int_eq(utf8_is_valid(texts[_i].bytes, texts[_i].len), texts[_i].utf8);
	if (texts[_i].utf8)
		ck_assert_int_eq(utf8_has_control(texts[_i].bytes, texts[_i].len), texts[_i].control);
}
