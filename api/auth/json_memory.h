/* jansson without half texts: every allocation of its that fails is noted, and whoever has parsed or written something
 * asks for the note. */
#ifndef JSON_MEMORY_H
#define JSON_MEMORY_H

#include <stdbool.h>

/* Once, before any other thread is there. */
void json_memory_setup(void);

/* True if memory was short for jansson in this thread since the last call: what it parsed or made since then may lack
 * something. */
bool json_memory_failed(void);

#endif
