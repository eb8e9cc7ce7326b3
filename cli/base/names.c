/* SPDX-License-Identifier: MIT */
/* The names of a command's resources. See names.h. */
#include "names.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/calls/calls.h"
#include "credentials.h"
#include "server/options/options.h"

static bool is_executable(const char *path)
{
	struct stat found;
	return stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0;
}

/* True if execvp() would run the word. Without PATH it uses its own folders; an empty folder is the current one. */
static bool is_program(const char *word)
{
	char path[PATH_MAX], standard[256] = "";
	const char *folders = getenv("PATH");
	if (strchr(word, '/'))
		return is_executable(word);
	if (!folders && confstr(_CS_PATH, standard, sizeof standard) > 0)
		folders = standard;
	for (size_t len; folders; folders = folders[len] == ':' ? folders + len + 1 : NULL) {
		len = strcspn(folders, ":");
		snprintf(path, sizeof path, "%.*s%s%s", (int)len, folders, len > 0 ? "/" : "", word);
		if (is_executable(path))
			return true;
	}
	return false;
}

bool names_go_on(const struct options_reader *reader, const char *word)
{
	char **next = reader->rest;
	while (*next != word && *next && strcmp(*next, "--") != 0)
		next++;
	return *next && *next != word; /* false after the dashes: the word is then the first of the rest */
}

bool names_add(struct options_reader *reader, struct names *names, const char *name, bool may_be_several,
	       bool command_follows)
{
	const char *shown = options_is_harmless(name) ? name : "it";
	if (names->count == 0) {
		names->items[names->count++] = name;
		return true;
	}
	if (!may_be_several)
		return options_reject(reader, "one NAME only%s%s%s", shown == name ? ": '" : "",
				      shown == name ? name : "", shown == name ? "' is another one" : "");
	if (token_is_valid(name))
		return options_reject(reader, "NAME: that is a token: it belongs in REDLOCK_TOKEN or in "
					      "--token-file FILE");
	/* `run deploy ssh host -- rm x` must not run rm on this machine */
	if (command_follows && names->count == 1 && is_program(name))
		return options_reject(reader,
				      "NAME: %s is a program: to run it, put -- right before it; to lock a "
				      "resource of that name, give it first",
				      shown);
	if (names->count == NAMES_MAX)
		return options_reject(reader, "NAME: too many; allowed are 1 to %d", NAMES_MAX);
	names->items[names->count++] = name;
	return true;
}

static int names_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool names_join(struct options_reader *reader, struct names *names)
{
	static char joined[NAMES_MAX * (PATH_VALUE_MAX + 2)];
	char *at = joined;
	qsort(names->items, names->count, sizeof *names->items, names_compare);
	for (size_t i = 0; i < names->count; i++) {
		if (i > 0 && strcmp(names->items[i - 1], names->items[i]) == 0)
			return options_reject(reader, "NAME: one of them is given twice");
		at = stpcpy(stpcpy(at, i > 0 ? ", " : ""), names->items[i]);
	}
	names->joined = names->count > 0 ? joined : NULL;
	return true;
}

const char *names_member(const struct names *names)
{
	return names->count > 1 ? "resources" : "resource";
}

json_t *names_json(const struct names *names)
{
	assert(names->count > 0);
	if (names->count == 1)
		return json_string(names->items[0]);
	json_t *array = json_array();
	for (size_t i = 0; i < names->count; i++)
		json_array_append_new(array, json_string(names->items[i]));
	return array;
}
