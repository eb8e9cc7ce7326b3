/* What this program was built from: its version, its commit, its libraries (build.c.in). */
#ifndef BUILD_H
#define BUILD_H

#include <stddef.h>

/* A library that the program uses. Static memory. */
struct build_library {
	const char *name, *version;
};
extern const char build_version[]; /* SemVer */
extern const char build_commit[];  /* "…-dirty": with uncommitted changes; "unknown": not built from a git tree */
const struct build_library *build_libraries(size_t *ret_count);

#endif
