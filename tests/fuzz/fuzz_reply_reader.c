/* A reader as a connection has it: see fuzz_reply.h. All of master_link.c is built into this file, for its static functions. */
#include "fuzz_reply.h"

#include "server/masters/master_link.c"

#include "fuzz.h"

redisReader *fuzz_reader_new(void)
{
	redisAsyncContext context = {.c.reader = redisReaderCreate()};
	MUST(context.c.reader != NULL, "out of memory");
	bound_replies(&context);
	return context.c.reader;
}
