/* SPDX-License-Identifier: MIT */
/* For the tests of the options: gathers flags, variables and a configuration file, and loads them. Each suite
 * that includes this has its own copy; options_set_up() and options_tear_down() are its fixture. */
#ifndef OPTIONS_GIVEN_H
#define OPTIONS_GIVEN_H

#include <check.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/config/config.h"

enum { SOURCES = 3 }; /* 0: flag, 1: variable, 2: file */

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static struct options options;
static enum config_action action;
static char message[1024];
static char file_path[64];

/* What one load is given; NULL ends each list. */
static char *flags[12], *variables[12];
static size_t flag_count, variable_count;
static char json[4096];

static inline void forget(void)
{
	for (size_t i = 0; i < flag_count; i++)
		free(flags[i]);
	for (size_t i = 0; i < variable_count; i++)
		free(variables[i]);
	memset(flags, 0, sizeof(flags));
	memset(variables, 0, sizeof(variables));
	flag_count = variable_count = 0;
	json[0] = '\0';
}

static inline void options_set_up(void)
{
	strcpy(file_path, "/tmp/redlockd-options-XXXXXX");
	int fd = mkstemp(file_path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	forget();
}

static inline void options_tear_down(void)
{
	forget();
	unlink(file_path);
}

static inline void __attribute__((format(printf, 1, 2))) give_flag(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	ck_assert_int_gt(vasprintf(&flags[flag_count++], format, args), 0);
	va_end(args);
}

static inline void __attribute__((format(printf, 1, 2))) give_variable(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	ck_assert_int_gt(vasprintf(&variables[variable_count++], format, args), 0);
	va_end(args);
}

/* Writes the file if there is one, loads everything, forgets what was given. */
static inline bool load(void)
{
	char *argv[16] = {"redlockd"}, config[100];
	int argc = 1;

	if (json[0] != '\0') {
		FILE *file = fopen(file_path, "we");
		fputs(json, file);
		fclose(file);
		snprintf(config, sizeof(config), "--config=%s", file_path);
		argv[argc++] = config;
	}
	for (size_t i = 0; i < flag_count; i++)
		argv[argc++] = flags[i];
	message[0] = '\0';
	memset(&options, 0x55, sizeof(options));
	bool ok = config_load(argc, argv, variables, &options, &action, message, sizeof(message));
	ck_assert_msg(ok == (message[0] == '\0') && strchr(message, '\n') == NULL, "%d with %s", ok, message);
	forget();
	return ok;
}

static inline void assert_loads(void)
{
	bool ok = load();

	ck_assert_msg(ok, "%s", message);
	ck_assert_int_eq(action, CONFIG_RUN);
}

/* Expects a mistake whose line holds all of the texts; NULL ends them. */
static inline void assert_mistake(const char *text, ...)
{
	va_list args;

	ck_assert_msg(!load(), "no mistake; wanted: %s", text);
	va_start(args, text);
	for (; text != NULL; text = va_arg(args, const char *))
		ck_assert_msg(strstr(message, text) != NULL, "no \"%s\" in: %s", text, message);
	va_end(args);
}

/* "max-ttl-ms" as a source spells it. */
static inline const char *spell(const char *name, int source)
{
	static char spelled[100];

	snprintf(spelled, sizeof(spelled), "%s%s", source == 0 ? "--" : source == 1 ? "REDLOCKD_" : "", name);
	for (char *c = spelled; source != 0 && *c != '\0'; c++)
		*c = *c == '-' ? '_' : source == 1 && *c >= 'a' && *c <= 'z' ? (char)(*c - 32) : *c;
	return spelled;
}

/* Gives one option by one source. For the file the value is JSON. */
static inline void give(const char *name, int source, const char *value)
{
	if (source == 0)
		give_flag("%s=%s", spell(name, 0), value);
	else if (source == 1)
		give_variable("%s=%s", spell(name, 1), value);
	else
		snprintf(json, sizeof(json), "{\"%s\":%s}", spell(name, 2), value);
}

/* The same; for the file it is a JSON string. */
static inline void give_text(const char *name, int source, const char *value)
{
	char text[3000];

	snprintf(text, sizeof(text), source == 2 ? "\"%s\"" : "%s", value);
	give(name, source, text);
}

/* Gives all of these flags; NULL at the end. */
static inline void give_flags(const char *const given[])
{
	for (size_t i = 0; given[i] != NULL; i++)
		flags[flag_count++] = strdup(given[i]);
}

#endif
