/* The Lua scripts of this folder, embedded at build time (cmake/embed.cmake writes the table). A line "--include NAME"
 * of a script stands for the file parts/NAME. */
#ifndef SCRIPTS_H
#define SCRIPTS_H

#include <stddef.h>

#include "server/redlock/redlock.h"

/* The scripts of the restart guard, behind those of the core in enum redlock_script. */
enum guard_script {
	REDLOCK_SCRIPT_EPOCH = REDLOCK_SCRIPT_INSPECT + 1,
	REDLOCK_SCRIPT_QUARANTINE,
	REDLOCK_SCRIPT_FENCES,
	REDLOCK_SCRIPT_EPOCH_WRITE
};

/* Those of the core for several resources at once, in the same order. */
enum set_script {
	REDLOCK_SCRIPT_ACQUIRE_SET = REDLOCK_SCRIPT_EPOCH_WRITE + 1,
	REDLOCK_SCRIPT_RAISE_SET,
	REDLOCK_SCRIPT_EXTEND_SET,
	REDLOCK_SCRIPT_RELEASE_SET,
	REDLOCK_SCRIPT_ACQUIRE_SHARED, /* the other scripts know shared leases by themselves */
	SCRIPTS_COUNT
};

struct script {
	const char *source; /* terminated; NULL for REDLOCK_SCRIPT_NONE */
	char sha1[41];
};

/* By the three enums. */
extern const struct script scripts[SCRIPTS_COUNT];

#endif
