/* SPDX-License-Identifier: MIT */
/* What redlockd says of itself: the line of the start, --check, and the first steps of --dev. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options_given.h"
#include "server/base/base.h"
#include "server/daemon/daemon.h"
#include "suite.h"

static char shown_text[8192];

FIXTURE(options_set_up, options_tear_down)

/* Runs `show` with a descriptor in a file, and returns what was written to it. */
static const char *catch_output(int fd, void (*show)(void))
{
	FILE *file = tmpfile();
	int before = dup(fd);
	ck_assert_ptr_nonnull(file);
	fflush(stdout);
	dup2(fileno(file), fd);
	show();
	dup2(before, fd);
	close(before);
	rewind(file);
	shown_text[fread(shown_text, 1, sizeof shown_text - 1, file)] = '\0';
	fclose(file);
	return shown_text;
}

static void start_line(void)
{
	int listeners[OPTIONS_LISTEN_MAX] = {listen_open(&options.listen[0], false, message, sizeof message)};
	ck_assert_msg(listeners[0] >= 0, "%s", message);
	log_setup(LOG_INFO, LOG_LOGFMT);
	show_start(&options, listeners);
	listen_close(&options.listen[0], listeners[0]);
}

static const struct {
	const char *flags[8], *wanted;
} starts[] = {
	{{"--masters=redis://a:1,redis://b:2,redis://c:3"}, "quorum=2 masters=redis://a:1,redis://b:2,redis://c:3\n"},
	{{"--masters=redis://a:1", "--max-ttl-ms=61000", "--drift-factor=0.02", "--log-requests=all"},
	 "quorum=1 masters=redis://a:1 options=\"--max-ttl-ms=61000 --drift-factor=0.02 --log-requests=all\"\n"},
	/* a value that is as it is by default is not named */
	{{"--masters=redis://a:1", "--drain-ms=10000", "--allow-origin=http://x,http://y"},
	 "quorum=1 masters=redis://a:1 options=\"--allow-origin=http://x,http://y\"\n"},
};

TEST_EACH(the_start_names_what_was_changed, 0, COUNT(starts))
{
	char given[64];
	snprintf(given, sizeof given, "/tmp/redlockd-show-%d", (int)getpid());
	give_flag("--listen=unix:%s", given);
	give_flags(starts[_i].flags);
	assert_loads();
	const char *text = catch_output(STDERR_FILENO, start_line);
	ck_assert_msg(strstr(text, starts[_i].wanted), "%s", text);
	snprintf(given, sizeof given, "address=unix:/tmp/redlockd-show-%d ", (int)getpid());
	ck_assert_msg(strstr(text, given), "%s", text);
}

static void first_steps(void)
{
	show_first_steps(&options, NULL);
}

/* Commands that can be typed as they are: an address that listens everywhere is called by a name. */
static const struct {
	const char *flags[4], *wanted, *page;
} steps[] = {
	{{"--dev=3", "--listen=127.0.0.1:8080"},
	 "curl -i http://127.0.0.1:8080/locks -d",
	 "page: http://127.0.0.1:8080/\n"},
	{{"--dev=3", "--listen=0.0.0.0:81", "--insecure"},
	 "curl -i http://localhost:81/locks -d",
	 "page: http://localhost:81/\n"},
	{{"--dev=3", "--listen=[::1]:81"}, "curl -i http://[::1]:81/masters", "page: http://[::1]:81/\n"},
	{{"--dev=3", "--listen=unix:/run/x", "--keys=/k"},
	 "curl -i -H \"Authorization: Bearer KEY\" --unix-socket /run/x http://localhost/locks/hello",
	 NULL},
};

TEST_EACH(the_first_steps_can_be_typed, 0, COUNT(steps))
{
	give_flags(steps[_i].flags);
	assert_loads();
	const char *text = catch_output(STDOUT_FILENO, first_steps);
	ck_assert_msg(strstr(text, "runs on 3 private Redis servers") && strstr(text, steps[_i].wanted), "%s", text);
	ck_assert_msg(steps[_i].page ? strstr(text, steps[_i].page) != NULL : strstr(text, "page") == NULL, "%s", text);
}

static void checked(void)
{
	const struct reload reload = {0};
	show_check(&options, &reload);
}

TEST(a_check_says_what_would_run)
{
	static const char *const given[] = {"--masters=redis://a:1,redis://b:2", "--listen=127.0.0.1:81,unix:/run/x",
					    "--workers=2", "--default-ttl-ms=5000", NULL};
	give_flags(given);
	assert_loads();
	ck_assert_str_eq(catch_output(STDOUT_FILENO, checked),
			 "listen: http://127.0.0.1:81\nlisten: unix:/run/x\nmaster: redis://a:1\nmaster: redis://b:2\n"
			 "leases: 100 to 60000 ms, 5000 ms if the request names none\nworkers: 2\n"
			 "The configuration is good. Nothing was started.\n");
}
