/* SPDX-License-Identifier: MIT */
/* The Lua scripts of this folder, one for each verb, embedded at build time (cmake/embed.cmake writes the table). A
 * line "--include NAME" of a script stands for the functions of lib/NAME. lib/master.lua describes the layout of the
 * arguments and the answers of the core's scripts. */
#ifndef SCRIPTS_H
#define SCRIPTS_H

#include <stddef.h>

#include "server/redlock/redlock.h"

/* The scripts of the restart guard, after those of the core in enum redlock_script. */
enum guard_script {
	REDLOCK_SCRIPT_EPOCH = REDLOCK_SCRIPT_INSPECT + 1,
	REDLOCK_SCRIPT_QUARANTINE,
	REDLOCK_SCRIPT_FENCES,
	REDLOCK_SCRIPT_EPOCH_WRITE,
	SCRIPTS_COUNT
};

struct script {
	const char *source; /* terminated; NULL for REDLOCK_SCRIPT_NONE */
	char sha1[41];
};

/* By the two enums. */
extern const struct script scripts[SCRIPTS_COUNT];

#endif
