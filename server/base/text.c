/* SPDX-License-Identifier: MIT */
/* A text that grows. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"

enum { TEXT_FIRST = 64, TEXT_MAX = 64 << 20 /* a mistake of the caller */ };

void text_init(struct text *text)
{
	assert(text);
	*text = (struct text){0};
}

void text_fini(struct text *text)
{
	assert(text);
	free(text->bytes);
	*text = (struct text){0};
}

static void text_reserve(struct text *text, size_t more)
{
	assert(text->len <= TEXT_MAX && more <= TEXT_MAX - text->len);
	size_t wanted = text->len + more + 1, size = text->size == 0 ? TEXT_FIRST : text->size;
	if (wanted <= text->size)
		return;
	while (size < wanted)
		size *= 2;
	text->bytes = memory_resize(text->bytes, size);
	text->size = size;
}

void text_append(struct text *text, const char *bytes, size_t len)
{
	assert(text);
	assert(bytes || len == 0);
	text_reserve(text, len);
	if (len > 0)
		memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	text->bytes[text->len] = '\0';
}

void text_printf(struct text *text, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	assert(len >= 0);
	text_reserve(text, (size_t)len);
	va_start(args, format);
	vsnprintf(text->bytes + text->len, (size_t)len + 1, format, args);
	va_end(args);
	text->len += (size_t)len;
}

bool text_line(const char **at, const char *end, const char **ret_line, size_t *ret_len)
{
	assert(*at <= end + 1);
	if (*at > end)
		return false;
	const char *stop = memchr(*at, '\n', (size_t)(end - *at));
	*ret_line = *at;
	*ret_len = (size_t)((stop ? stop : end) - *at);
	*at += *ret_len + 1;
	return true;
}
