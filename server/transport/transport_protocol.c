/* The Redis protocol: the reader of replies, which is that of hiredis with bounds, and commands as they are sent. */
#include <assert.h>
#include <string.h>

#include "server/base/base.h"
#include "transport_internal.h"

enum {
	ELEMENTS_MAX = 100000,                 /* of a reply */
	NUMBER_ROOM = 1 + TEXT_DECIMAL_MAX + 2 /* "$", the digits, the end of the line */
};

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* A server that is no Redis may announce a list of a thousand million elements; hiredis 0.14 would make room for it and
 * walk through it. None of our replies has more than a page of SCAN. */
static void *create_bounded_array(const redisReadTask *task, element_count elements)
{
	const redisReplyObjectFunctions *unbounded = task->privdata;
	return elements > ELEMENTS_MAX ? NULL : unbounded->createArray(task, elements);
}

redisReader *transport_reader_new(redisReplyObjectFunctions *bounded)
{
	redisReader *reader = redisReaderCreate();
	if (!reader)
		memory_exhausted("reader of replies");
	*bounded = *reader->fn;
	bounded->createArray = create_bounded_array;
	reader->privdata = reader->fn;
	reader->fn = bounded;
	return reader;
}

static char *put_number(char *at, char kind, size_t number)
{
	*at++ = kind;
	at += text_decimal(number, at);
	*at++ = '\r';
	*at++ = '\n';
	return at;
}

void transport_output_append(struct transport_output *output, size_t count, const struct transport_word words[])
{
	size_t room = output->len + NUMBER_ROOM + count * (NUMBER_ROOM + 2);
	assert(count > 0);
	for (size_t i = 0; i < count; i++)
		room += words[i].len;
	if (room > output->size) {
		output->bytes = memory_resize(output->bytes, 2 * room);
		output->size = 2 * room;
	}
	char *at = put_number(output->bytes + output->len, '*', count);
	for (size_t i = 0; i < count; i++) {
		at = put_number(at, '$', words[i].len);
		memcpy(at, words[i].bytes, words[i].len);
		at += words[i].len;
		*at++ = '\r';
		*at++ = '\n';
	}
	output->len = (size_t)(at - output->bytes);
}
