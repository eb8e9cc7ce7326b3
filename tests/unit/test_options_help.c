/* SPDX-License-Identifier: MIT */
/* Help, manual page and the table in the docs: that every option is in them, with its default and what is allowed, and
 * that mandoc has no complaint. And the sanity of the table itself. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/config/config.h"
#include "suite.h"

static const struct options_entry *entry_of(int i)
{
	return &config_table.entries[i];
}

/* What --help prints; to be freed. */
static char *print_help(void)
{
	char *text;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	options_print_help(&config_table, to);
	fclose(to);
	ck_assert_uint_eq(strlen(text), len);
	return text;
}

/* A file of the tree, without the backslashes of roff and Markdown; to be freed. */
static char *read_tree(const char *name)
{
	char path[4096], *bytes = calloc(1, 1 << 20), *to = bytes;

	snprintf(path, sizeof(path), "%.*s../../%s", (int)(strrchr(__FILE__, '/') - __FILE__) + 1, __FILE__, name);
	FILE *file = fopen(path, "re");
	ck_assert_msg(file != NULL, "cannot open %s", path);
	ck_assert_uint_lt(fread(bytes, 1, (1 << 20) - 1, file), (1 << 20) - 1);
	fclose(file);
	for (const char *from = bytes; *from != '\0'; from++)
		if (*from != '\\')
			*to++ = *from;
	*to = '\0';
	return bytes;
}

/* Expects the text within the part of `all` from `begin` to `end`. */
static void assert_part(const char *all, const char *begin, const char *end, const char *text)
{
	const char *from = strstr(all, begin), *to = from != NULL ? strstr(from + 1, end) : NULL;

	ck_assert_msg(from != NULL && to != NULL, "there is no %s", begin);
	const char *at = strstr(from, text);
	ck_assert_msg(at != NULL && at < to, "no \"%s\" in: %.*s", text, (int)(to - from), from);
}

TEST_EACH(every_option_is_in_the_help, 0, (int)config_table.count)
{
	const struct options_entry *entry = entry_of(_i);
	char *help = print_help(), flag[100];

	snprintf(flag, sizeof(flag), "\n  --%s%s%s", entry->name,
		 entry->traits & OPTIONS_OPTIONAL ? "[="
		 : entry->argument != NULL        ? "="
						  : "",
		 entry->argument != NULL ? entry->argument
		 : entry->letter         ? ", -"
					 : "\n");
	ck_assert_msg(strstr(help, flag) != NULL, "%s", flag);
	for (char *line = strtok(help, "\n"); line != NULL; line = strtok(NULL, "\n"))
		ck_assert_msg(strlen(line) <= 84, "%s", line); /* 80 columns: … has three bytes */
	free(help);
}

/* By the table: a changed bound, default or name must be changed in these files, too. */
TEST_EACH(the_manual_page_and_the_docs_are_those_of_the_table, 0, (int)config_table.count)
{
	const struct options_entry *entry = entry_of(_i);
	char *man = read_tree("man/redlockd.8"), *docs = read_tree("docs/reference/configuration.md"),
	     name[OPTIONS_NAME_MAX], item[100], row[100], text[400], allowed[OPTIONS_ALLOWED_MAX];
	bool optional = entry->traits & OPTIONS_OPTIONAL;

	if (entry->argument == NULL)
		snprintf(item, sizeof(item), "\n.It Fl -%s , Fl %c\n", entry->name, entry->letter);
	else
		snprintf(item, sizeof(item), "\n.It Fl -%s Ns %s Ns Ar %s\n", entry->name, optional ? "Op =" : "=",
			 entry->argument);
	snprintf(row, sizeof(row), "\n| `--%s%s%s%s`", entry->name,
		 optional          ? "[="
		 : entry->argument ? "="
				   : "",
		 entry->argument ? entry->argument : "", optional ? "]" : "");
	options_allowed(entry, allowed);
	if (entry->argument != NULL) {
		snprintf(text, sizeof(text), "\nAllowed: %s.\n", allowed);
		assert_part(man, item, "\n.It", text);
	}
	snprintf(text, sizeof(text), " | %s | ", allowed);
	assert_part(docs, row, "\n", text);
	if (entry->standard != NULL) {
		snprintf(text, sizeof(text), "\nDefault: %s.\n", entry->standard[0] ? entry->standard : "empty");
		assert_part(man, item, "\n.It", text);
		snprintf(text, sizeof(text), entry->standard[0] ? " | `%s` | " : " | empty%s | ", entry->standard);
		assert_part(docs, row, "\n", text);
	}
	for (int source = OPTIONS_FROM_FILE; source <= OPTIONS_FROM_ENVIRONMENT; source++) {
		bool file = source == OPTIONS_FROM_FILE;
		if (!options_is_in_source(&config_table, entry, (enum options_source)source))
			continue;
		options_spell(&config_table, entry, (enum options_source)source, name);
		snprintf(text, sizeof(text), file ? "\n.Cm %s .\n" : "\n.Ev %s .\n", name);
		assert_part(man, item, "\n.It", text);
		snprintf(text, sizeof(text), "<br>`%s`", name);
		assert_part(docs, row, " | ", text);
	}
	free(man);
	free(docs);
}

TEST(the_files_have_no_other_options)
{
	char *man = read_tree("man/redlockd.8"), *docs = read_tree("docs/reference/configuration.md");
	size_t items = 0, rows = 0;

	for (const char *at = man; (at = strstr(at, "\n.It Fl -")) != NULL; at++)
		items++;
	*strstr(docs, "<!-- options:end -->") = '\0';
	for (const char *at = strstr(docs, "<!-- options:begin -->"); (at = strstr(at, "\n| `--")) != NULL; at++)
		rows++;
	ck_assert_uint_eq(items, config_table.count);
	ck_assert_uint_eq(rows, config_table.count);
	free(man);
	free(docs);
}

TEST(the_manual_page_is_clean)
{
	char *man = read_tree("man/redlockd.8"), command[4200], out[4096];
	static const char *const sections[] = {"NAME",  "SYNOPSIS", "DESCRIPTION", "OPTIONS",  "ENVIRONMENT",
					       "FILES", "SIGNALS",  "EXIT STATUS", "EXAMPLES", "SEE ALSO"};

	snprintf(command, sizeof(command), "mandoc -T lint -W warning %.*s../../man/redlockd.8 2>&1",
		 (int)(strrchr(__FILE__, '/') - __FILE__) + 1, __FILE__);
	FILE *tool = popen(command, "r");
	out[fread(out, 1, sizeof(out) - 1, tool)] = '\0';
	ck_assert_msg(pclose(tool) == 0 && out[0] == '\0', "mandoc says: %s", out);
	const char *at = man;
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		char wanted[64];
		snprintf(wanted, sizeof(wanted), "\n.Sh %s\n", sections[i]);
		at = strstr(at, wanted);
		ck_assert_msg(at != NULL, "%s is missing or out of order", sections[i]);
	}
	free(man);
}

/* Runs config_load() with one flag in a child whose standard output is ours to read. */
static char *run_with(char *flag)
{
	static char out[1 << 16];
	char *argv[] = {"redlockd", flag, NULL}, *environment[] = {"REDLOCKD_BOGUS=1", NULL}, message[300];
	struct options options;
	enum config_action action = CONFIG_RUN;
	size_t len = 0;
	ssize_t n;
	int fds[2], status;

	ck_assert_int_eq(pipe(fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fds[1], 1);
		close(fds[0]);
		bool ok = config_load(2, argv, environment, &options, &action, message, sizeof(message));
		fflush(stdout);
		_exit(ok && action == CONFIG_SHOWN ? 0 : 1);
	}
	close(fds[1]);
	while ((n = read(fds[0], out + len, sizeof(out) - 1 - len)) > 0)
		len += (size_t)n;
	out[len] = '\0';
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	return out;
}

TEST(the_flags_print_them)
{
	char *help = print_help(), version[200];

	snprintf(version, sizeof(version), "redlockd %s (%s)\n", build_version, build_commit);
	ck_assert_str_eq(run_with("--help"), help);
	ck_assert_str_eq(run_with("-h"), help);
	ck_assert_str_eq(run_with("--version"), version);
	ck_assert_str_eq(run_with("-V"), version);
	free(help);
}

TEST_EACH(the_table_is_sane, 0, (int)config_table.count)
{
	const struct options_entry *entry = entry_of(_i);
	char allowed[OPTIONS_ALLOWED_MAX];

	ck_assert_uint_gt(strlen(entry->help), 20);
	ck_assert_int_eq(entry->help[strlen(entry->help) - 1], '.');
	options_allowed(entry, allowed);
	ck_assert_uint_gt(strlen(allowed), 0);
	ck_assert((entry->parse == NULL) == ((entry->traits & OPTIONS_ENDS) != 0));
	for (int j = 0; j < _i; j++) {
		ck_assert_str_ne(entry->name, entry_of(j)->name);
		ck_assert(entry->parse == NULL || entry->offset != entry_of(j)->offset);
	}
}
