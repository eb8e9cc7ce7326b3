/* SPDX-License-Identifier: MIT */
/* See report.h. A line is written by one write(), so that the lines of several processes do not mix. If stderr is
 * closed or full, or its terminal is stopped, the line is lost: a message must not delay the extension of a lease.
 * Callers never pass tokens. */
#include "report.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/base.h"

enum { MESSAGE_MAX_BYTES = 12 * 1024, TERMINAL_AFTER_US = 1000000 };

/* True for invisible characters and those that change the direction of writing, in UTF-8: they could forge a
 * message. */
static bool report_is_invisible(const unsigned char *c)
{
	if (c[0] == 0xe2 && c[1] == 0x80)
		return (c[2] >= 0x8b && c[2] <= 0x8f) || (c[2] >= 0xa8 && c[2] <= 0xae);
	return (c[0] == 0xe2 && c[1] == 0x81 && c[2] >= 0xa0 && c[2] <= 0xaf) ||
	       (c[0] == 0xef && c[1] == 0xbb && c[2] == 0xbf);
}

void report_clean(char *text)
{
	assert(text);
	for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
		else if (*c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
			*c = c[1] = '?';
		else if (report_is_invisible(c))
			*c = c[1] = c[2] = '?';
	}
	if (!utf8_is_valid(text, strlen(text)))
		for (char *c = text; *c != '\0'; c++)
			*c = (*c & 0x80) != 0 ? '?' : *c;
}

static void report_write_line(const char *start, const char *name, const char *separator, const char *text)
{
	struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct text line;
	text_init(&line);
	text_printf(&line, "%s%.300s%s%s\n", start, name, separator, text);
	if (line.len > PIPE_BUF) /* a writable pipe takes this much at once */
		line.bytes[(line.len = PIPE_BUF) - 1] = '\n';
	ssize_t written = poll(&to, 1, 0) == 1 && (to.revents & POLLOUT) ? write(STDERR_FILENO, line.bytes, line.len)
									 : 0;
	(void)written;
	text_fini(&line);
}

static void report_write_json(const char *event, const struct arguments *arguments, json_t *fields, const char *message)
{
	json_t *object = json_pack("{s:s}", "event", event);
	if (arguments && arguments->names.joined)
		json_object_set_new(object, names_member(&arguments->names), names_json(&arguments->names));
	assert(event && message);
	json_object_update(object, fields);
	json_object_set_new(object, "message", json_string(message));
	char *text = json_dumps(object, JSON_COMPACT);
	assert(text);
	report_write_line("", "", "", text);
	free(text);
	json_decref(object);
}

void report_event(const struct arguments *arguments, enum report_level level, const char *event, json_t *fields,
		  const char *format, ...)
{
	const char *name = arguments ? arguments->names.joined : NULL;
	char message[MESSAGE_MAX_BYTES];
	va_list values;
	assert(event && format);
	va_start(values, format);
	vsnprintf(message, sizeof message, format, values);
	va_end(values);
	report_clean(message);
	if (arguments && arguments->quiet)
		level = REPORT_DETAIL;
	if (arguments && arguments->json && arguments->command == COMMAND_RUN)
		report_write_json(event, arguments, fields, message);
	else if (level == REPORT_NOTE || (arguments && arguments->verbose))
		report_write_line("redlockctl: ", name ? name : "", name ? ": " : "", message);
	json_decref(fields);
}

uint64_t report_wait_after_us(const struct arguments *arguments)
{
	if (arguments->verbose || (arguments->json && arguments->command == COMMAND_RUN))
		return 0;
	return isatty(STDERR_FILENO) && !arguments->quiet ? TERMINAL_AFTER_US : UINT64_MAX;
}

const char *duration_format(uint64_t ms, char ret_text[DURATION_TEXT_MAX])
{
	uint64_t seconds = ms / 1000;
	int len;
	if (ms < 1000)
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 " ms", ms);
	else if (seconds < 60)
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " s", seconds, ms % 1000 / 100);
	else if (seconds < 3600)
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 " min %" PRIu64 " s", seconds / 60,
			       seconds % 60);
	else
		len = snprintf(ret_text, DURATION_TEXT_MAX, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
			       seconds % 3600 / 60);
	assert(len > 0 && len < DURATION_TEXT_MAX);
	return ret_text;
}
