/* See report.h. A line is written by one write(), so that the lines of several processes do not mix. If stderr is
 * closed or full the line is lost, since a message must not delay the extension of a lease. Callers never pass
 * tokens. */
#include "report.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_MAX_BYTES = 1024, LINE_MAX_BYTES = MESSAGE_MAX_BYTES + 512 };

void report_clean(char *text)
{
	assert(text);
	for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
		else if (*c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
			*c = c[1] = '?';
	}
}

static void report_write_line(const char *text)
{
	char line[LINE_MAX_BYTES + 2];
	int len = snprintf(line, sizeof line, "%s\n", text);

	if (len >= (int)sizeof line)
		len = (int)sizeof line - 1;
	line[len - 1] = '\n';
	ssize_t written = write(STDERR_FILENO, line, (size_t)len);
	(void)written;
}

static void report_write_json(const char *event, const char *name, json_t *fields, const char *message)
{
	json_t *object = json_pack("{s:s}", "event", event);

	assert(event && message);
	if (name)
		json_object_set_new(object, "resource", json_string(name));
	if (fields)
		json_object_update(object, fields);
	json_object_set_new(object, "message", json_string(message));
	char *text = json_dumps(object, JSON_COMPACT);
	if (text)
		report_write_line(text);
	free(text);
	json_decref(object);
}

void report_event(const struct report *report, enum report_level level, const char *event, json_t *fields,
		  const char *format, ...)
{
	char message[MESSAGE_MAX_BYTES], line[LINE_MAX_BYTES];
	va_list arguments;

	assert(report && event && format);
	va_start(arguments, format);
	vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	report_clean(message);
	if (report->json) {
		report_write_json(event, report->name, fields, message);
	} else if (level == REPORT_NOTE || report->verbose) {
		const char *name = report->name ? report->name : "";
		snprintf(line, sizeof line, "redlockctl: %.300s%s%s", name, *name == '\0' ? "" : ": ", message);
		report_write_line(line);
	}
	json_decref(fields);
}

void report_complain(const char *format, ...)
{
	char message[MESSAGE_MAX_BYTES], line[LINE_MAX_BYTES];
	va_list arguments;

	assert(format);
	va_start(arguments, format);
	vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	report_clean(message);
	snprintf(line, sizeof line, "redlockctl: %s", message);
	report_write_line(line);
}
