/* SPDX-License-Identifier: MIT */
/* The Redis protocol: the reply reader of hiredis with bounds, and the encoding of commands. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/base/base.h"
#include "transport_internal.h"

enum { NUMBER_ROOM = 1 + TEXT_DECIMAL_MAX + 2 /* "$", the digits, the end of the line */ };

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* ---- replies ---- */

static void exceed(struct transport_reader *reader, size_t limit, const char *of)
{
	snprintf(reader->error, sizeof reader->error, "protocol: a reply of more than %zu %s", limit, of);
}

/* hiredis 0.14 allocates memory for all announced elements. hiredis 1.2 accepts any depth of nested lists, and frees
 * them by recursion. */
static void *create_bounded_array(const redisReadTask *task, element_count elements)
{
	struct transport_reader *reader = task->privdata;
	assert(reader->elements <= TRANSPORT_ELEMENTS_MAX);
	if (reader->hiredis->ridx >= TRANSPORT_DEPTH_MAX)
		exceed(reader, TRANSPORT_DEPTH_MAX, "lists in one another");
	else if ((size_t)elements > TRANSPORT_ELEMENTS_MAX - reader->elements)
		exceed(reader, TRANSPORT_ELEMENTS_MAX, "elements");
	if (reader->error[0])
		return NULL;
	reader->elements += (size_t)elements;
	return reader->plain->createArray(task, elements);
}

void transport_reader_init(struct transport_reader *reader)
{
	*reader = (struct transport_reader){.hiredis = redisReaderCreate(), .reply_max = TRANSPORT_REPLY_MAX};
	if (!reader->hiredis)
		memory_exhausted("reader of replies");
	reader->plain = reader->hiredis->fn;
	reader->functions = *reader->plain;
	reader->functions.createArray = create_bounded_array;
	reader->hiredis->fn = &reader->functions;
	reader->hiredis->privdata = reader;
}

void transport_reader_fini(struct transport_reader *reader)
{
	redisReaderFree(reader->hiredis);
	reader->hiredis = NULL;
}

void transport_reader_feed(struct transport_reader *reader, const char *bytes, size_t len)
{
	assert(!reader->error[0]);
	reader->bytes += len;
	if (redisReaderFeed(reader->hiredis, bytes, len) != REDIS_OK)
		memory_exhausted("reply of a master");
}

/* The bytes that hiredis holds and has not read. */
static size_t unread(const struct transport_reader *reader)
{
	assert(reader->hiredis->pos <= reader->hiredis->len);
	return reader->hiredis->len - reader->hiredis->pos;
}

/* hiredis searches for the end of a line from its start each time that data arrive. It reads the line with the length
 * of a string only when the string is complete. */
static bool is_long_line(const struct transport_reader *reader)
{
	const char *line = reader->hiredis->buf + reader->hiredis->pos;
	return unread(reader) > TRANSPORT_LINE_MAX && !memmem(line, TRANSPORT_LINE_MAX, "\r\n", 2);
}

/* Unless a bound was exceeded, the peer is no Redis: hiredis names the first byte that is wrong. */
static void explain(struct transport_reader *reader)
{
	const char *error = reader->hiredis->errstr;
	if (reader->error[0])
		return;
	if (reader->hiredis->err == REDIS_ERR_OOM)
		memory_exhausted("reply of a master");
	const char *guess = strstr(error, "got \"H\"")       ? "; is it an HTTP server?"
			    : strstr(error, "got \"\\x15\"") ? "; if it is TLS, the address begins with rediss://"
							     : "";
	snprintf(reader->error, sizeof reader->error, "protocol: this is no Redis server: %.120s%s", error, guess);
}

redisReply *transport_reader_next(struct transport_reader *reader)
{
	void *reply = NULL;
	assert(!reader->error[0]);
	if (redisReaderGetReply(reader->hiredis, &reply) != REDIS_OK) {
		explain(reader);
	} else if (reply) {
		reader->bytes = unread(reader);
		reader->elements = 0;
	} else if (reader->bytes > reader->reply_max) {
		exceed(reader, reader->reply_max, "bytes");
	} else if (is_long_line(reader)) {
		exceed(reader, TRANSPORT_LINE_MAX, "bytes in one line");
	}
	assert(!reply || !reader->error[0]);
	return reply;
}

/* ---- commands ---- */

static char *put_length(char *at, char kind, size_t number)
{
	*at++ = kind;
	at += text_decimal(number, at);
	*at++ = '\r';
	*at++ = '\n';
	return at;
}

void transport_output_append(struct transport_output *output, size_t count, const struct transport_word arguments[])
{
	size_t room = output->len + NUMBER_ROOM + count * (NUMBER_ROOM + 2);
	assert(count > 0);
	for (size_t i = 0; i < count; i++)
		room += arguments[i].len;
	if (room > output->size) {
		output->bytes = memory_resize(output->bytes, 2 * room);
		output->size = 2 * room;
	}
	char *at = put_length(output->bytes + output->len, '*', count);
	for (size_t i = 0; i < count; i++) {
		at = put_length(at, '$', arguments[i].len);
		memcpy(at, arguments[i].bytes, arguments[i].len);
		at += arguments[i].len;
		*at++ = '\r';
		*at++ = '\n';
	}
	output->len = (size_t)(at - output->bytes);
}
