/* What this program was built from: its version, its commit, its libraries (build.c.in). */
#ifndef BUILD_H
#define BUILD_H

#include <stddef.h>

/* Name and version of the program and its libraries; `count` receives how many. Static memory. */
struct build_library {
	const char *name, *version;
};
extern const char build_version[]; /* SemVer */
extern const char build_commit[];  /* "…-dirty" where files were changed; "unknown": cmake/commit.cmake found none */
const struct build_library *build_libraries(size_t *ret_count);

#endif
