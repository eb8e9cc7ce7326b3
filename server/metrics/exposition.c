/* How numbers, labels and heads of metrics are written: see exposition.h. Any thread. */
#include "exposition.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void exposition_head(struct exposition *page, const char *name, const char *type, const char *help)
{
	static const char suffix[] = "_total";
	size_t len = strlen(name), bare_len = len - (sizeof suffix - 1);
	assert(!strpbrk(help, "\"\\\n"));
	if (strcmp(type, "counter") == 0) {
		assert(len >= sizeof suffix && strcmp(name + bare_len, suffix) == 0);
		len = page->format == EXPOSITION_OPENMETRICS ? bare_len : len;
	}
	text_printf(&page->text, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)len, name, help, (int)len, name, type);
}

void exposition_end(struct exposition *page)
{
	if (page->format == EXPOSITION_OPENMETRICS)
		text_printf(&page->text, "# EOF\n");
}

const char *exposition_type(enum exposition_format format)
{
	return format == EXPOSITION_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
						: "text/plain; version=0.0.4; charset=utf-8";
}

void exposition_seconds(char ret_seconds[EXPOSITION_SECONDS_MAX], uint64_t us)
{
	int len = snprintf(ret_seconds, EXPOSITION_SECONDS_MAX, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
	assert(len > 7 && len < EXPOSITION_SECONDS_MAX);
	while (ret_seconds[len - 1] == '0')
		ret_seconds[--len] = '\0';
	if (ret_seconds[len - 1] == '.')
		ret_seconds[len - 1] = '\0';
}

void exposition_escape(char *ret_escaped, size_t size, const char *value)
{
	size_t len = 0;
	for (; *value != '\0' && len + 3 <= size; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			ret_escaped[len++] = '\\';
		ret_escaped[len++] = *value == '\n' ? 'n' : *value;
	}
	assert(len < size);
	ret_escaped[len] = '\0';
}
