/* UTF-8: the one place that knows what valid UTF-8 is. Pure functions; any thread. */
#ifndef UTF8_H
#define UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length in bytes of the code point at `bytes`, which it writes to *ret_point; 0 if there is no valid one within
 * `len` (at least 1). */
size_t utf8_next(const unsigned char *bytes, size_t len, uint32_t *ret_point);

/* True if the bytes are valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool utf8_is_valid(const char *bytes, size_t len);

/* True if valid UTF-8 holds a control character: U+0000 … U+001F, U+007F … U+009F. */
bool utf8_has_control(const char *bytes, size_t len);

#endif
