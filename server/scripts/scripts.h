/* The Lua scripts of server/scripts/, embedded at build time (cmake/embed.cmake writes the table). */
#ifndef SCRIPTS_H
#define SCRIPTS_H

#include <stddef.h>

#include "server/redlock/redlock.h"

/* The scripts that the core asks for are in enum redlock_script; these are the restart guard's. */
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

/* By enum redlock_script and enum guard_script. */
extern const struct script scripts[SCRIPTS_COUNT];

#endif
