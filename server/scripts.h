/* The Lua scripts of server/scripts/, embedded at build time (cmake/embed.cmake writes the table). */
#ifndef SCRIPTS_H
#define SCRIPTS_H

#include <stddef.h>

#include "redlock/redlock.h"

struct script {
	const char *source; /* terminated; NULL for REDLOCK_SCRIPT_NONE */
	char sha1[41];
};

/* By enum redlock_script. */
extern const struct script scripts[REDLOCK_SCRIPT_INSPECT + 1];

#endif
