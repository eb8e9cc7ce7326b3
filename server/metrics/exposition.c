/* How numbers, labels and heads of metrics are written: see metrics.h. Any thread. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "metrics.h"

void exposition_head(struct text *page, const char *name, const char *type, const char *help)
{
	size_t len = strlen(name);
	assert(!strpbrk(help, "\"\\\n"));
	assert(strcmp(type, "counter") != 0 || (len > 6 && strcmp(name + len - 6, "_total") == 0));
	text_printf(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void exposition_number(struct text *page, const char *name, const char *type, const char *help, uint64_t value)
{
	exposition_head(page, name, type, help);
	text_printf(page, "%s %" PRIu64 "\n", name, value);
}

void exposition_time(struct text *page, const char *name, const char *type, const char *help, uint64_t us)
{
	exposition_head(page, name, type, help);
	text_printf(page, "%s ", name);
	exposition_seconds(page, us);
	text_append(page, "\n", 1);
}

void exposition_seconds(struct text *page, uint64_t us)
{
	text_printf(page, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
	while (page->bytes[page->len - 1] == '0')
		page->len--;
	if (page->bytes[page->len - 1] == '.')
		page->len--;
	page->bytes[page->len] = '\0';
}

void exposition_label(struct text *page, const char *name, const char *value)
{
	assert(name[0] != '\0');
	text_printf(page, "%s=\"", name);
	for (; *value != '\0'; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			text_append(page, "\\", 1);
		text_append(page, *value == '\n' ? "n" : value, 1);
	}
	text_append(page, "\"", 1);
}
