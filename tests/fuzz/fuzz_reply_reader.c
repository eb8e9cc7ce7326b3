/* A reader as a connection has it: see fuzz_reply.h. All of master_io.c is built into this file, for its static
 * functions. */
#include "fuzz_reply.h"

/* clang-format off */
#include "server/masters/master_io.c" /* all of it, for its static functions; first, as it is alone */
/* clang-format on */

#include "fuzz.h"

redisReader *fuzz_reader_new(void)
{
	redisAsyncContext context = {.c.reader = redisReaderCreate()};
	MUST(context.c.reader != NULL, "out of memory");
	bound_replies(&context);
	return context.c.reader;
}
