/* Help, manual page and the table in the docs: that every option is in them, that mandoc has no complaint, and that
 * docs/configuration.md is what --help=markdown prints today. And the sanity of the table itself. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/config/options_table.h"

static char *text;

/* What a form of the help prints; to be freed. */
static char *print(enum options_help form)
{
	size_t len;
	FILE *to = open_memstream(&text, &len);

	options_print_help(to, form);
	fclose(to);
	ck_assert_uint_eq(strlen(text), len);
	return text;
}

START_TEST(every_option_is_in_every_form)
{
	char *help = print(OPTIONS_HELP_TEXT), *man = print(OPTIONS_HELP_MAN), *markdown = print(OPTIONS_HELP_MARKDOWN);
	char name[OPTIONS_NAME_MAX], wanted[100];

	for (size_t i = 0; i < OPTIONS_COUNT; i++) {
		snprintf(wanted, sizeof(wanted), "\n  --%s%s", options_table[i].name,
			 options_table[i].argument == NULL ? "\n" : "");
		ck_assert_msg(strstr(help, wanted) != NULL, "%s", wanted);
		snprintf(wanted, sizeof(wanted), "\n.It Fl \\-%s", options_table[i].name);
		ck_assert_msg(strstr(man, wanted) != NULL, "%s", wanted);
		snprintf(wanted, sizeof(wanted), "\n| `--%s", options_table[i].name);
		ck_assert_msg(strstr(markdown, wanted) != NULL, "%s", wanted);
		options_spell(&options_table[i], OPTIONS_FROM_ENVIRONMENT, name);
		snprintf(wanted, sizeof(wanted), "<br>`%s`", name);
		ck_assert_int_eq(strstr(markdown, wanted) != NULL, options_in_environment(&options_table[i]));
	}
	free(help);
	free(man);
	free(markdown);
}
END_TEST

START_TEST(help_fits_a_terminal)
{
	char *help = print(OPTIONS_HELP_TEXT);

	for (char *line = strtok(help, "\n"); line != NULL; line = strtok(NULL, "\n"))
		ck_assert_msg(strlen(line) <= 80, "%s", line);
	free(help);
}
END_TEST

START_TEST(each_row_of_the_table_has_four_cells)
{
	char *markdown = print(OPTIONS_HELP_MARKDOWN);
	size_t rows = 0;

	for (char *line = strtok(markdown, "\n"); line != NULL; line = strtok(NULL, "\n"), rows++) {
		size_t separators = 0;
		for (const char *c = line; *c != '\0'; c++)
			separators += *c == '|' && (c == line || c[-1] != '\\');
		ck_assert_msg(separators == 5, "%s", line);
	}
	ck_assert_uint_eq(rows, OPTIONS_COUNT + 2);
	free(markdown);
}
END_TEST

START_TEST(the_manual_page_is_clean)
{
	char *man = print(OPTIONS_HELP_MAN), path[] = "/tmp/redlockd-man-XXXXXX", command[200], out[4096];
	static const char *const sections[] = {"NAME",  "SYNOPSIS", "DESCRIPTION", "OPTIONS",  "ENVIRONMENT",
					       "FILES", "SIGNALS",  "EXIT STATUS", "EXAMPLES", "SEE ALSO"};
	int fd = mkstemp(path);

	ck_assert_int_eq(write(fd, man, strlen(man)), (ssize_t)strlen(man));
	close(fd);
	snprintf(command, sizeof(command), "mandoc -T lint -W warning %s 2>&1", path);
	FILE *tool = popen(command, "r");
	out[fread(out, 1, sizeof(out) - 1, tool)] = '\0';
	int status = pclose(tool);
	unlink(path);
	ck_assert_msg(status == 0 && out[0] == '\0', "mandoc says: %s", out);
	const char *at = man;
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		char wanted[64];
		snprintf(wanted, sizeof(wanted), "\n.Sh %s\n", sections[i]);
		at = strstr(at, wanted);
		ck_assert_msg(at != NULL, "%s is missing or out of order", sections[i]);
	}
	free(man);
}
END_TEST

/* A whole file; to be freed. */
static char *read_all(const char *path)
{
	FILE *file = fopen(path, "re");
	char *bytes = calloc(1, 1 << 20);

	ck_assert_msg(file != NULL, "cannot open %s", path);
	ck_assert_uint_lt(fread(bytes, 1, (1 << 20) - 1, file), (1 << 20) - 1);
	fclose(file);
	return bytes;
}

START_TEST(the_docs_are_up_to_date)
{
	char path[4096], *table = print(OPTIONS_HELP_MARKDOWN);

	snprintf(path, sizeof(path), "%.*s../../docs/configuration.md", (int)(strrchr(__FILE__, '/') - __FILE__) + 1,
		 __FILE__);
	char *docs = read_all(path), *begin = strstr(docs, "<!-- options:begin -->\n"),
	     *end = strstr(docs, "<!-- options:end -->");
	ck_assert(begin != NULL && end != NULL && begin < end);
	*end = '\0';
	begin = strchr(begin, '\n') + 1;
	ck_assert_msg(strcmp(begin, table) == 0,
		      "put the output of `redlockd --help=markdown` into docs/configuration.md");
	free(docs);
	free(table);
}
END_TEST

/* Runs options_load() with one flag in a child whose standard output is ours to read. */
static char *run_with(char *flag)
{
	static char out[1 << 16];
	char *argv[] = {"redlockd", flag, NULL}, *environment[] = {"REDLOCKD_BOGUS=1", NULL}, message[300];
	struct options options;
	enum options_action action = OPTIONS_RUN;
	size_t len = 0;
	ssize_t n;
	int fds[2], status;

	ck_assert_int_eq(pipe(fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fds[1], 1);
		close(fds[0]);
		bool ok = options_load(2, argv, environment, &options, &action, message, sizeof(message));
		fflush(stdout);
		_exit(ok && action == OPTIONS_SHOWN ? 0 : 1);
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

START_TEST(the_flags_print_them)
{
	static char *const forms[] = {"--help", "--help=text", "--help=man", "--help=markdown"};
	static const enum options_help shown[] = {OPTIONS_HELP_TEXT, OPTIONS_HELP_TEXT, OPTIONS_HELP_MAN,
						  OPTIONS_HELP_MARKDOWN};

	for (int i = 0; i < 4; i++) {
		char *expected = print(shown[i]);
		ck_assert_str_eq(run_with(forms[i]), expected);
		free(expected);
	}
}
END_TEST

START_TEST(the_version_names_the_commit)
{
	extern const char build_version[], build_commit[];
	char expected[200];

	snprintf(expected, sizeof(expected), "redlockd %s (%s)\n", build_version, build_commit);
	ck_assert_str_eq(run_with("--version"), expected);
}
END_TEST

START_TEST(the_table_is_sane)
{
	for (size_t i = 0; i < OPTIONS_COUNT; i++) {
		const struct options_entry *entry = &options_table[i];
		char allowed[OPTIONS_ALLOWED_MAX];
		ck_assert_ptr_nonnull(entry->name);
		ck_assert_uint_gt(strlen(entry->help), 20);
		ck_assert_int_eq(entry->help[strlen(entry->help) - 1], '.');
		ck_assert_uint_gt(strlen(options_allowed(entry, allowed)), 0);
		if (entry->kind == OPTIONS_KIND_U32)
			ck_assert_uint_le(entry->max, UINT32_MAX);
		for (size_t j = 0; j < i; j++) {
			ck_assert_str_ne(entry->name, options_table[j].name);
			ck_assert(entry->standard == NULL || options_table[j].standard == NULL ||
				  entry->offset != options_table[j].offset);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("options_help");
	TCase *all = tcase_create("all");

	tcase_add_test(all, every_option_is_in_every_form);
	tcase_add_test(all, help_fits_a_terminal);
	tcase_add_test(all, each_row_of_the_table_has_four_cells);
	tcase_add_test(all, the_manual_page_is_clean);
	tcase_add_test(all, the_docs_are_up_to_date);
	tcase_add_test(all, the_flags_print_them);
	tcase_add_test(all, the_version_names_the_commit);
	tcase_add_test(all, the_table_is_sane);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
