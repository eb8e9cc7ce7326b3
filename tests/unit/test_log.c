/* SPDX-License-Identifier: MIT */
/* The log: the form of a line, values that cannot break it, and writing without blocking. Standard error is a pipe of
 * the test. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/base.h"
#include "suite.h"

/* The clock of this program, in place of server/base/clock.c. */
static uint64_t now_us = UINT64_C(1795215206922001);

uint64_t clock_now_us(void)
{
	return now_us;
}

uint64_t clock_wall_us(void)
{
	return now_us;
}

static int reader, stderr_copy;
static char caught[4 << 20];

/* A pipe whose reads do not block. O_DIRECT makes each write one packet, so that the size of writes can be seen. */
static void catch_stderr(int flags)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC | flags), 0);
	fcntl(fds[0], F_SETFL, O_NONBLOCK | flags);
	stderr_copy = fcntl(2, F_DUPFD_CLOEXEC, 10);
	ck_assert_int_eq(dup2(fds[1], 2), 2);
	close(fds[1]);
	reader = fds[0];
}

/* Reads all that was written so far, terminated. */
static size_t read_caught(void)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(reader, caught + len, sizeof(caught) - 1 - len)) > 0)
		len += (size_t)n;
	caught[len] = '\0';
	return len;
}

static void give_back_stderr(void)
{
	dup2(stderr_copy, 2);
	close(stderr_copy);
	close(reader);
	log_fini();
}

/* The line's part after its time, level and event. */
static const char *fields_of(const char *line, const char *event)
{
	char head[64];

	snprintf(head, sizeof(head), " event=%s ", event);
	const char *at = strstr(line, head);
	ck_assert_msg(at != NULL, "no %s in %s", head, line);
	return at + strlen(head);
}

static void log_value(const char *value, size_t len)
{
	log_begin(LOG_INFO, "test");
	log_str("v", value, len);
	log_end();
	log_flush();
}

static const struct {
	const char *value;
	size_t len;
	const char *logfmt;
	const char *decoded; /* as a JSON reader sees it */
} values[] = {
	{"plain", 5, "plain", "plain"},
	{"", 0, "\"\"", ""},
	{"a b", 3, "\"a b\"", "a b"},
	{"a=b", 3, "\"a=b\"", "a=b"},
	{"say \"hi\"", 8, "\"say \\\"hi\\\"\"", "say \"hi\""},
	{"\"", 1, "\"\\\"\"", "\""},
	{"back\\slash", 10, "\"back\\\\slash\"", "back\\slash"},
	{"a\nlevel=error", 13, "\"a\\nlevel=error\"", "a\nlevel=error"},
	{"\r\t", 2, "\"\\r\\t\"", "\r\t"},
	{"\x1b[31m", 5, "\"\\u001B[31m\"", "\x1b[31m"},
	{"\x7f", 1, "\"\\u007F\"", "\x7f"},
	{"a\0b", 3, "\"a\\u0000b\"", NULL},
	{"\xc2\x9b", 2, "\"\\u009B\"", "\xc2\x9b"},
	{"\xe2\x80\xa8", 3, "\"\\u2028\"", "\xe2\x80\xa8"},
	{"\xc3\xa9t\xc3\xa9", 5, "\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
	{"\xf0\x9f\x94\x92", 4, "\xf0\x9f\x94\x92", "\xf0\x9f\x94\x92"},
	{"\xff", 1, "\"\xef\xbf\xbd\"", "\xef\xbf\xbd"},
	{"a\xc3", 2, "\"a\xef\xbf\xbd\"", "a\xef\xbf\xbd"},
	{"\xc3(", 2, "\"\xef\xbf\xbd(\"", "\xef\xbf\xbd("},
	{"\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"", "\xef\xbf\xbd\xef\xbf\xbd"},
	{"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
	{"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"",
	 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
};
enum { VALUES = sizeof(values) / sizeof(values[0]) };

TEST_EACH(logfmt_quotes_what_is_not_one_word, 0, VALUES)
{
	char expected[128];

	log_setup(LOG_INFO, LOG_LOGFMT);
	catch_stderr(0);
	log_value(values[_i].value, values[_i].len);
	read_caught();
	give_back_stderr();
	snprintf(expected, sizeof(expected), "v=%s\n", values[_i].logfmt);
	ck_assert_str_eq(fields_of(caught, "test"), expected);
	ck_assert_ptr_eq(strchr(caught, '\n'), caught + strlen(caught) - 1);
}

TEST_EACH(json_stays_json, 0, VALUES)
{
	log_setup(LOG_INFO, LOG_JSON);
	catch_stderr(0);
	log_value(values[_i].value, values[_i].len);
	size_t len = read_caught();
	give_back_stderr();
	ck_assert_ptr_eq(strchr(caught, '\n'), caught + len - 1);
	json_error_t error;
	json_t *line = json_loadb(caught, len, JSON_ALLOW_NUL, &error);
	ck_assert_msg(line != NULL, "%s: %s", error.text, caught);
	ck_assert_str_eq(json_string_value(json_object_get(line, "level")), "info");
	ck_assert_str_eq(json_string_value(json_object_get(line, "event")), "test");
	if (values[_i].decoded != NULL)
		ck_assert_str_eq(json_string_value(json_object_get(line, "v")), values[_i].decoded);
	else
		ck_assert_uint_eq(json_string_length(json_object_get(line, "v")), values[_i].len);
	json_decref(line);
}

TEST(a_line_has_time_level_event_and_its_fields)
{
	int year, month, day, hour, minute, second, ms, len = 0;

	log_setup(LOG_DEBUG, LOG_LOGFMT);
	catch_stderr(0);
	log_begin(LOG_WARN, "odd");
	log_num("status", 201);
	log_num("least", INT64_MIN);
	log_text("none", NULL);
	log_text("word", "x");
	log_end();
	log_flush();
	read_caught();
	give_back_stderr();
	ck_assert_int_eq(sscanf(caught, "ts=%4d-%2d-%2dT%2d:%2d:%2d.%3dZ level=warn %n", &year, &month, &day, &hour,
				&minute, &second, &ms, &len),
			 7);
	ck_assert_int_eq(len, 39);
	ck_assert_str_eq(fields_of(caught, "odd"), "status=201 least=-9223372036854775808 word=x\n");
}

TEST(json_numbers_are_numbers)
{
	log_setup(LOG_DEBUG, LOG_JSON);
	catch_stderr(0);
	log_begin(LOG_DEBUG, "n");
	log_num("a", -7);
	log_text("b", "7");
	log_end();
	log_flush();
	read_caught();
	give_back_stderr();
	ck_assert_ptr_nonnull(strstr(caught, ",\"level\":\"debug\",\"event\":\"n\",\"a\":-7,\"b\":\"7\"}\n"));
}

TEST_EACH(levels_below_the_wanted_one_are_left_out, LOG_DEBUG, LOG_ERROR + 1)
{
	enum log_level wanted = (enum log_level)_i;

	log_setup(wanted, LOG_LOGFMT);
	catch_stderr(0);
	for (enum log_level level = LOG_DEBUG; level <= LOG_ERROR; level++) {
		ck_assert_int_eq(log_wants(level) != 0, level >= wanted);
		log_begin(level, "e");
		log_num("n", level);
		log_end();
	}
	log_flush();
	read_caught();
	give_back_stderr();
	size_t lines = 0;
	for (const char *c = caught; *c != '\0'; c++)
		lines += *c == '\n';
	ck_assert_uint_eq(lines, (size_t)(LOG_ERROR - wanted) + 1);
}

TEST(an_error_is_written_at_once_and_others_at_the_flush)
{
	log_setup(LOG_INFO, LOG_LOGFMT);
	catch_stderr(0);
	log_begin(LOG_INFO, "first");
	log_end();
	ck_assert_uint_eq(read_caught(), 0);
	log_begin(LOG_ERROR, "second");
	log_end();
	ck_assert_uint_gt(read_caught(), 0);
	const char *first = strstr(caught, "event=first\n"), *second = strstr(caught, "event=second\n");
	ck_assert(first != NULL && second != NULL && first < second);
	log_begin(LOG_INFO, "third");
	log_end();
	log_fini();
	read_caught();
	ck_assert_ptr_nonnull(strstr(caught, "event=third\n"));
	give_back_stderr();
}

/* A long value of `unit` repeated. */
static size_t make_long(char *value, size_t size, const char *unit)
{
	size_t len = 0;

	while (len + strlen(unit) < size) {
		memcpy(value + len, unit, strlen(unit));
		len += strlen(unit);
	}
	return len;
}

TEST_EACH(a_long_value_is_cut_and_the_line_stays_whole, 0, 7)
{
	static const char *const units[] = {"a", "\xc3\xa9", "\"", "\x01", "\xff", "\xf0\x9f\x94\x92", " "};
	static char value[20000];
	size_t value_len = make_long(value, sizeof(value), units[_i]);

	for (enum log_format format = LOG_LOGFMT; format <= LOG_JSON; format++) {
		log_setup(LOG_INFO, format);
		for (size_t len = 3880; len < 3960; len++) { /* around the bound, byte for byte */
			catch_stderr(0);
			log_value(value, len);
			size_t line_len = read_caught();
			give_back_stderr();
			ck_assert_uint_le(line_len, 4000);
			ck_assert_ptr_eq(strchr(caught, '\n'), caught + line_len - 1);
			json_t *line = format == LOG_JSON ? json_loadb(caught, line_len, 0, NULL) : NULL;
			ck_assert_msg(format == LOG_LOGFMT || line != NULL, "not JSON: %s", caught);
			json_decref(line);
		}
		catch_stderr(0);
		log_value(value, value_len);
		size_t line_len = read_caught();
		give_back_stderr();
		ck_assert(line_len > 3900 && line_len <= 4000);
		ck_assert_ptr_nonnull(strstr(caught, format == LOG_JSON ? ",\"cut\":true}\n" : " cut=true\n"));
	}
}

TEST(fields_that_do_not_fit_are_left_out_whole)
{
	char key[16];

	log_setup(LOG_INFO, LOG_JSON);
	catch_stderr(0);
	log_begin(LOG_INFO, "many");
	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		log_num(key, i);
	}
	log_end();
	log_flush();
	size_t len = read_caught();
	give_back_stderr();
	json_t *line = json_loadb(caught, len, 0, NULL);
	ck_assert_ptr_nonnull(line);
	ck_assert_uint_le(len, 4000);
	ck_assert(json_is_true(json_object_get(line, "cut")));
	ck_assert_int_eq(json_integer_value(json_object_get(line, "k100")), 100);
	json_decref(line);
}

static void log_lines(int count)
{
	char text[101];

	memset(text, 'x', 100);
	text[100] = '\0';
	for (int i = 0; i < count; i++) {
		log_begin(LOG_INFO, "line");
		log_num("i", i);
		log_text("text", text);
		log_end();
	}
	log_flush();
}

/* Counts the lines in `caught`, each of which must be whole. */
static uint64_t count_lines(uint64_t *ret_told)
{
	uint64_t lines = 0;

	*ret_told = 0;
	for (char *line = caught, *end; *line != '\0'; line = end + 1) {
		end = strchr(line, '\n');
		ck_assert_ptr_nonnull(end);
		ck_assert_int_eq(strncmp(line, "ts=20", 5), 0);
		*end = '\0';
		const char *told = strstr(line, "event=log-lines-dropped count=");
		if (told != NULL)
			*ret_told += strtoull(strrchr(told, '=') + 1, NULL, 10);
		else
			lines++;
		ck_assert_msg(told != NULL || end[-1] == 'x', "half a line: %s", line);
	}
	return lines;
}

TEST(a_full_pipe_drops_lines_and_says_how_many)
{
	uint64_t told;

	log_setup(LOG_INFO, LOG_LOGFMT);
	catch_stderr(0);
	alarm(60); /* a write that blocks would never return */
	log_lines(3000);
	uint64_t dropped = log_dropped();
	ck_assert_uint_gt(dropped, 500);
	static char first[sizeof(caught)];
	size_t len = read_caught();
	memcpy(first, caught, len);
	log_lines(1); /* there is room for a part again */
	for (int i = 0; i < 10; i++) {
		len += read_caught();
		memcpy(first + len - strlen(caught), caught, strlen(caught));
		log_flush();
	}
	memcpy(caught, first, len);
	caught[len] = '\0';
	uint64_t lines = count_lines(&told);
	ck_assert_uint_eq(lines + log_dropped(), 3001);
	ck_assert_uint_eq(told, log_dropped());
	give_back_stderr();
}

TEST(writes_are_whole_lines_of_at_most_pipe_buf)
{
	static char packet[1 << 16];
	size_t packets = 0, lines = 0;
	ssize_t n;

	log_setup(LOG_INFO, LOG_LOGFMT);
	catch_stderr(O_DIRECT);
	log_lines(60);
	while ((n = read(reader, packet, sizeof(packet))) > 0) {
		ck_assert_int_le(n, PIPE_BUF);
		ck_assert_int_eq(strncmp(packet, "ts=", 3), 0);
		ck_assert_int_eq(packet[n - 1], '\n');
		for (ssize_t i = 0; i < n; i++)
			lines += packet[i] == '\n';
		packets++;
	}
	give_back_stderr();
	ck_assert_uint_eq(lines, 60);
	ck_assert(packets >= 2 && packets < 10);
}

TEST(a_reader_that_went_away_costs_only_lines)
{
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	log_setup(LOG_INFO, LOG_LOGFMT);
	catch_stderr(0);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	dup2(fds[1], 2);
	close(fds[0]);
	close(fds[1]);
	log_lines(5);
	ck_assert_uint_eq(log_dropped(), 5);
	log_lines(2);
	ck_assert_uint_eq(log_dropped(), 7);
	log_flush();
	ck_assert_uint_eq(log_dropped(), 7);
	give_back_stderr();
}

static void *log_from_thread(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++)
		log_lines(10);
	log_fini();
	return NULL;
}

TEST(lines_of_threads_do_not_mix)
{
	pthread_t threads[4];
	uint64_t told, lines;
	size_t len = 0;
	static char all[sizeof(caught)];

	log_setup(LOG_INFO, LOG_LOGFMT);
	catch_stderr(0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, log_from_thread, NULL), 0);
	for (int i = 0; i < 4; i++)
		while (pthread_tryjoin_np(threads[i], NULL) != 0) {
			size_t n = read_caught();
			memcpy(all + len, caught, n);
			len += n;
		}
	size_t n = read_caught();
	memcpy(all + len, caught, n);
	memcpy(caught, all, len + n);
	caught[len + n] = '\0';
	lines = count_lines(&told);
	ck_assert_uint_eq(lines + log_dropped(), 800);
	ck_assert_uint_ge(lines, 400); /* the reader was there all the time */
	give_back_stderr();
}

/* Logs some lines of one kind, as far as they are allowed. */
static void log_kind(unsigned status, int count)
{
	for (; count > 0; count--)
		if (log_allows("test", status))
			log_value("x", 1);
}

static int count_of(const char *text)
{
	int count = 0;

	for (const char *at = caught; (at = strstr(at, text)) != NULL; at++)
		count++;
	return count;
}

TEST(a_kind_of_line_has_a_bound_in_each_second)
{
	log_setup(LOG_INFO, LOG_LOGFMT);
	catch_stderr(0);
	log_kind(401, 20);
	log_kind(503, 500);
	now_us += 999999;
	log_kind(503, 500);
	read_caught();
	ck_assert_int_eq(count_of("event=test"), 20 + 20);
	ck_assert_int_eq(count_of("suppressed"), 0); /* the second is not over */
	now_us += 1;
	log_flush(); /* no line of the kind is needed for the report */
	log_kind(503, 21);
	read_caught();
	ck_assert_int_eq(count_of("level=warn event=log-lines-suppressed of=test status=503 count=980\n"), 1);
	ck_assert_int_eq(count_of("suppressed"), 1); /* nothing of 401 */
	ck_assert_int_eq(count_of("event=test"), 20);
	log_fini(); /* the end of the thread does not wait for that of the second */
	read_caught();
	ck_assert_int_eq(count_of("event=log-lines-suppressed of=test status=503 count=1\n"), 1);
	give_back_stderr();
}
