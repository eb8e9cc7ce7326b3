/* Notes failed allocations of jansson. See json_memory.h.
 *
 * jansson (2.14) does not check all of its own allocations. One that fails while a text is parsed can cost a single
 * byte of a string, and the lock would be taken on another resource; one that fails while a text is written can cost
 * the name of a member; an object that is made in pieces lacks a piece. Instead of a check after each of a hundred
 * calls, every allocation passes one function, and its users check once at the end of each text. The note belongs to
 * the thread. */
#include "json_memory.h"

#include <jansson.h>
#include <stdlib.h>

static _Thread_local bool failed;

static void *allocate(size_t size)
{
	void *block = malloc(size);

	failed = failed || !block;
	return block;
}

void json_memory_setup(void)
{
	json_set_alloc_funcs(allocate, free);
}

bool json_memory_failed(void)
{
	bool was = failed;

	failed = false;
	return was;
}
