/* SPDX-License-Identifier: MIT */
/* The two halves of fuzz_path: the cursor of a listing is parsed by a function of server/leases/lease_list.c that
 * nobody else sees. */
#ifndef FUZZ_PATH_H
#define FUZZ_PATH_H

/* Parses a text as the cursor of a listing; what is taken for one must be written again in the same way. */
void fuzz_check_cursor(const char *cursor);

#endif
