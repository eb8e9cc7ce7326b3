/* SPDX-License-Identifier: MIT */
/* The cursor of a listing: see fuzz_path.h. All of lease_list.c is built into this file, for its static functions. */
#include "fuzz_path.h"

/* clang-format off */
#include "server/leases/lease_list.c" /* all of it, for its static functions; first, as it is alone */
/* clang-format on */

#include "fuzz.h"

void fuzz_check_cursor(const char *cursor)
{
	for (size_t masters = 1; masters <= REDLOCK_MASTERS_MAX; masters += 7) {
		struct position at = {.done = UINT64_MAX};
		char again[LEASE_CURSOR_MAX];
		if (!position_parse(cursor, masters, &at)) {
			MUST(at.done == UINT64_MAX, "written without success");
			continue;
		}
		MUST(at.master < masters && at.scanned >> masters == 0, "master %u of %zu, scanned %x", at.master,
		     masters, at.scanned);
		position_print(&at, again);
		MUST(strcmp(again, cursor) == 0, "%s is not %s", again, cursor);
	}
}
