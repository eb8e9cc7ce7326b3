/* SPDX-License-Identifier: MIT */
/* Memory from the heap; without it the process ends. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"

/* Without exit handlers: they may allocate, and other threads still run. */
void memory_exhausted(const char *what)
{
	assert(what);
	log_begin(LOG_ERROR, "out-of-memory");
	log_text("what", what);
	log_end();
	_exit(71); /* EX_OSERR of sysexits.h, as redlockctl has it */
}

static void *made(void *memory)
{
	if (!memory)
		memory_exhausted("heap");
	return memory;
}

void *memory_alloc(size_t size)
{
	return made(malloc(size ? size : 1));
}

void *memory_zeroed(size_t count, size_t size)
{
	return made(calloc(count ? count : 1, size ? size : 1));
}

void *memory_resize(void *old, size_t size)
{
	return made(realloc(old, size ? size : 1));
}

char *memory_copy(const char *bytes, size_t len)
{
	assert(bytes || len == 0);
	char *copy = memory_alloc(len + 1);
	if (len > 0)
		memcpy(copy, bytes, len);
	copy[len] = '\0';
	return copy;
}
