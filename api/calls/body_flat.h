/* The bodies that callers really send, read in place: a flat JSON object of plain strings, whole numbers, true and
 * false. */
#ifndef BODY_FLAT_H
#define BODY_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BODY_FLAT_MAX = 8 }; /* members */

/* What a member of a body is set to. */
struct body_value {
	enum { BODY_STRING, BODY_INTEGER, BODY_BOOLEAN, BODY_OTHER } kind;
	const char *bytes; /* of a string; not terminated */
	size_t len;
	int64_t integer;
	bool boolean;
};

struct body_member {
	const char *name; /* not terminated */
	size_t name_len;
	struct body_value value;
};

/* Finds the members of `bytes`, in their order; what they point to lies in `bytes`. False where there is anything that
 * this does not understand, be it right or wrong (escapes, other characters than visible ASCII and spaces in strings,
 * fractions, nesting, a member given twice, a mistake): then the text needs a whole parser. */
bool body_flat_scan(const char *bytes, size_t len, struct body_member ret_members[BODY_FLAT_MAX], size_t *ret_count)
	__attribute__((warn_unused_result));

#endif
