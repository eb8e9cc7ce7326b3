/* SPDX-License-Identifier: MIT */
/* Why jansson rejected a text, without a part of that text. See auth.h. Pure. */
#include <jansson.h>

#include "auth_internal.h"

const char *keys_json_reason(const struct json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_duplicate_key: return "a member is given twice";
	case json_error_null_character:
	case json_error_null_byte_in_key: return "NUL is not allowed";
	case json_error_invalid_utf8: return "not valid UTF-8";
	case json_error_numeric_overflow: return "a number that is too large";
	case json_error_end_of_input_expected: return "text after the end of the object";
	case json_error_stack_overflow: return "nested too deeply";
	default: return "not valid JSON";
	}
}
