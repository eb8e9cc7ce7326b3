/* Notes failed allocations of jansson, so that no incomplete text is used: ask after parsing or writing. */
#ifndef JSON_MEMORY_H
#define JSON_MEMORY_H

#include <stdbool.h>

/* Once, before other threads start. */
void json_memory_setup(void);

/* True if an allocation of jansson failed in this thread since the last call: what it parsed or made since then may be
 * incomplete. */
bool json_memory_failed(void);

#endif
