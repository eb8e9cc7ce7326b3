/* SPDX-License-Identifier: MIT */
/* The commands of sim_compare as text. */
#ifndef COMPARE_TEXT_H
#define COMPARE_TEXT_H

#include <stddef.h>

#include "compare_random.h"
#include "server/scripts/scripts.h"

enum { COMPARE_TEXT = 160, COMPARE_ARGS = 24, COMPARE_OTHER_LIBRARY_TEXTS = 7, COMPARE_OWNERS = 9 };

/* The arguments of one command. */
struct compare_args {
	int count;
	const char *at[COMPARE_ARGS];
	char text[COMPARE_ARGS][COMPARE_TEXT];
};

const char *compare_other_library_text(unsigned i);
/* True for the value of a lease. */
bool compare_is_ours(const char *value);

const char *compare_script_name(enum compare_script script);
/* The scripts of the server: `scripts` without a mutation. */
extern const struct script compare_scripts[SCRIPTS_COUNT];
/* The script that redlockd sends: one for all cases of a verb. */
const struct script *compare_script_of(enum compare_script script);
/* EVALSHA … */
void compare_command(struct compare_args *args, enum compare_script script, unsigned sequence,
		     const struct compare_command *command);

#endif
