/* See masters_file.h. The bytes of the file are overwritten before they are freed; the passwords stay in struct options
 * for later connections. */
#include "masters_file.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "options_table.h"
#include "server/base/base.h"

enum { MASTERS_FILE_MAX = 1 << 16 };

static const char *const masters_file_blanks = ", \t\r";

static void masters_file_cut_comment(char *line)
{
	for (char *c = line; (c = strchr(c, '#')); c++)
		if (c == line || strchr(masters_file_blanks, c[-1])) {
			*c = '\0';
			return;
		}
}

/* Adds the addresses of one line. NULL, or a reason (a static string). */
static const char *masters_file_parse_line(char *line, struct options *options)
{
	const struct options_entry *entry = options_entry_of("masters");
	char *rest;
	const char *reason;

	assert(options->master_count <= OPTIONS_MASTERS_MAX);
	masters_file_cut_comment(line);
	for (char *item = strtok_r(line, masters_file_blanks, &rest); item;
	     item = strtok_r(NULL, masters_file_blanks, &rest))
		if (!options_parse_value(entry, item, options, &reason))
			return reason;
	return NULL;
}

/* Parses `text`, which it modifies. Returns NULL or the reason, and in *ret_line where; 0: the file as a whole. */
static const char *masters_file_parse(char *text, size_t len, struct options *options, unsigned *ret_line)
{
	const char *reason = NULL;

	*ret_line = 0;
	if (strlen(text) != len)
		return "holds a NUL";
	for (char *line = text, *end; line && !reason; line = end ? end + 1 : NULL) {
		end = strchr(line, '\n');
		if (end)
			*end = '\0';
		++*ret_line;
		reason = masters_file_parse_line(line, options);
	}
	if (!reason && options->master_count == 0) {
		*ret_line = 0;
		reason = "holds no address";
	}
	return reason;
}

bool masters_file_load(struct options *options, char *message, size_t message_size)
{
	const char *path = options->masters_file, *reason;
	struct text text;
	unsigned line;

	assert(path[0] != '\0' && options->master_count == 0);
	text_init(&text);
	if (!secret_file_read(path, SECRET_FILE_SECRET, MASTERS_FILE_MAX, &text, message, message_size)) {
		text_fini(&text);
		return false;
	}
	reason = masters_file_parse(text.bytes, text.len, options, &line);
	secret_file_wipe(&text);
	text_fini(&text);
	if (reason && line > 0)
		snprintf(message, message_size, "%s: line %u: %s", path, line, reason);
	else if (reason)
		snprintf(message, message_size, "%s: %s", path, reason);
	return !reason;
}
