/* SPDX-License-Identifier: MIT */
/* The log.
 *
 *   ts=2026-11-21T01:16:20.042Z level=info event=request method=POST status=201 owner="worker \"7\""
 *   {"ts":"2026-11-21T01:16:20.042Z","level":"info","event":"request","method":"POST","status":201}
 *
 * log_flush() writes pieces of at most PIPE_BUF bytes, each piece whole lines, so that lines of several threads or
 * processes never mix. Standard error is shared with other processes and cannot be made non-blocking; poll() is asked
 * before each piece instead. A pipe that polls writable has room for PIPE_BUF bytes, and a mutex keeps the other
 * threads from using that room in between. The mutex is held only over calls that do not block.
 *
 * Values come from clients: in both formats, control characters (also C1, DEL and the Unicode line ends) are escaped,
 * and bytes that are not UTF-8 become U+FFFD. So a value can neither forge a line nor break JSON. A value that does not
 * fit into a line is left out, and the line says `cut`.
 *
 * The program must ignore SIGPIPE: a reader that ended costs the lines, not the process. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

enum {
	LOG_LINE_MAX = 4000, /* with its newline; below PIPE_BUF */
	LOG_TAIL = 16,       /* kept free in each line for `cut`, the closing brace and the newline */
	LOG_BUFFER = 64 << 10,
	LOG_FINI_MS = 1000, /* how long the end of a thread waits for a reader that does not keep up */
	LOG_KINDS = 20,     /* of bounded lines; more than there are */
	LOG_BOUND = 20      /* lines of one kind in a second */
};

static_assert(LOG_LINE_MAX <= PIPE_BUF, "a line must be written in one piece");

/* Set before the first thread starts, then only read. */
static enum log_level log_level_wanted = LOG_INFO;
static enum log_format log_format_used = LOG_LOGFMT;

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t log_dropped_total;

static _Thread_local struct {
	char lines[LOG_BUFFER]; /* finished ones; not from the heap: the last line may report a lack of memory */
	size_t lines_len;
	char *line; /* after them, between log_begin() and log_end(); NULL: none is open, or it is left out */
	size_t line_len;
	bool cut; /* a field did not fit */
	enum log_level level;
	uint64_t unreported; /* dropped lines that no line has reported yet */
	time_t second;       /* the second of `clock` */
	char clock[32];
	struct log_kind {
		const char *event; /* NULL: this one and the following are not in use */
		unsigned status;
		uint64_t lines, began_us; /* of the second that began with the first line; 0 lines: not begun */
	} kinds[LOG_KINDS];
} log_state;

void log_setup(enum log_level level, enum log_format format)
{
	assert(level <= LOG_ERROR && format <= LOG_JSON);
	log_level_wanted = level;
	log_format_used = format;
}

bool log_wants(enum log_level level)
{
	return level >= log_level_wanted;
}

uint64_t log_dropped(void)
{
	return atomic_load_explicit(&log_dropped_total, memory_order_relaxed);
}

/* ---- writing lines ---- */

static void log_drop(uint64_t lines)
{
	log_state.unreported += lines;
	atomic_fetch_add_explicit(&log_dropped_total, lines, memory_order_relaxed);
}

static void log_drop_buffered(size_t from)
{
	uint64_t lines = 0;
	assert(from <= log_state.lines_len);
	for (size_t i = from; i < log_state.lines_len; i++)
		lines += log_state.lines[i] == '\n';
	log_state.lines_len = 0;
	log_drop(lines);
}

/* The number of bytes from `from` on to write at once: whole lines, as many as fit into PIPE_BUF. */
static size_t log_piece_len(size_t from)
{
	size_t len = log_state.lines_len - from;
	assert(from < log_state.lines_len);
	if (len <= PIPE_BUF)
		return len;
	const char *end = memrchr(log_state.lines + from, '\n', PIPE_BUF);
	return end ? (size_t)(end - (log_state.lines + from)) + 1 : PIPE_BUF;
}

/* Writes the buffered lines while standard error accepts them; waits at most wait_ms for each piece. True if any were
 * written. */
static bool log_write_lines(int wait_ms)
{
	size_t done = 0;
	assert(log_state.lines_len <= LOG_BUFFER && wait_ms >= 0);
	while (done < log_state.lines_len) {
		struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
		pthread_mutex_lock(&log_mutex);
		bool ready = poll(&out, 1, 0) == 1;
		ssize_t n = ready ? write(STDERR_FILENO, log_state.lines + done, log_piece_len(done)) : 0;
		int error = errno;
		pthread_mutex_unlock(&log_mutex);
		if (n < 0 && error != EAGAIN && error != EINTR) {
			log_drop_buffered(done);
			return false;
		}
		if (n > 0)
			done += (size_t)n;
		else if (wait_ms == 0 || poll(&out, 1, wait_ms) <= 0)
			break;
	}
	log_state.lines_len -= done;
	if (log_state.lines_len > 0 && done > 0)
		memmove(log_state.lines, log_state.lines + done, log_state.lines_len);
	return done > 0;
}

/* Writes the lines. Once there is room again after lines were dropped, reports how many. */
static void log_write_all(int wait_ms)
{
	assert(!log_state.line);
	uint64_t unreported = log_state.unreported;
	if (!log_write_lines(wait_ms) || unreported == 0 || log_state.lines_len > 0)
		return;
	log_state.unreported = 0;
	log_begin(LOG_WARN, "log-lines-dropped");
	log_num("count", (int64_t)unreported);
	log_end();
	log_write_lines(wait_ms);
}

bool log_allows(const char *event, unsigned status)
{
	struct log_kind *kind = log_state.kinds;
	assert(event);
	while (kind->event && (strcmp(kind->event, event) != 0 || kind->status != status))
		kind++;
	assert(kind < log_state.kinds + LOG_KINDS - 1);
	if (kind->lines == 0)
		*kind = (struct log_kind){.event = event, .status = status, .began_us = clock_now_us()};
	return ++kind->lines <= LOG_BOUND;
}

/* Reports the lines that were left out in seconds that are over at `now_us`. */
static void log_report_suppressed(uint64_t now_us)
{
	for (struct log_kind *kind = log_state.kinds; kind->event; kind++) {
		if (kind->lines == 0 || now_us - kind->began_us < 1000000)
			continue;
		if (kind->lines > LOG_BOUND) {
			log_begin(LOG_WARN, "log-lines-suppressed");
			log_text("of", kind->event);
			if (kind->status != 0)
				log_num("status", kind->status);
			log_num("count", (int64_t)kind->lines - LOG_BOUND);
			log_end();
		}
		kind->lines = 0;
	}
}

void log_flush(void)
{
	if (log_state.kinds[0].event)
		log_report_suppressed(clock_now_us());
	log_write_all(0);
}

void log_fini(void)
{
	log_report_suppressed(UINT64_MAX);
	log_write_all(LOG_FINI_MS);
	log_drop_buffered(0);
	log_state.unreported = 0;
}

/* ---- making a line ---- */

/* Appends bytes to the line. False: no room, and the line is as it was. */
static inline bool log_put(const char *bytes, size_t len)
{
	if (len > LOG_LINE_MAX - LOG_TAIL - log_state.line_len)
		return false;
	memcpy(log_state.line + log_state.line_len, bytes, len);
	log_state.line_len += len;
	return true;
}

/* The length of the character at the start of `bytes`, and the escape that it needs, if any. Bytes that are not UTF-8
 * are replaced one by one. */
static size_t log_escape(const unsigned char *bytes, size_t len, char escape[8], size_t *ret_escaped)
{
	static const char replacement[] = "\xef\xbf\xbd";
	uint32_t point = 0;
	size_t n = utf8_next(bytes, len, &point);
	assert(len > 0);
	if (n == 0) {
		*ret_escaped = sizeof replacement - 1;
		memcpy(escape, replacement, sizeof replacement);
		return 1;
	}
	if (point < 0x7f)
		*ret_escaped = text_escape((unsigned char)point, escape);
	else if (point < 0xa0 || point == 0x2028 || point == 0x2029)
		*ret_escaped = (size_t)snprintf(escape, 8, "\\u%04X", (unsigned)point);
	else
		*ret_escaped = 0;
	return n;
}

/* True if logfmt needs no quotes around the value. */
static bool log_is_bare(const char *value, size_t len)
{
	const unsigned char *bytes = (const unsigned char *)value;
	char escape[8];
	size_t escaped;
	for (size_t i = 0; i < len;) {
		/* fast path: nearly all values are plain ASCII */
		if (bytes[i] > ' ' && bytes[i] < 0x7f && bytes[i] != '=' && bytes[i] != '"' && bytes[i] != '\\') {
			i++;
			continue;
		}
		i += log_escape(bytes + i, len - i, escape, &escaped);
		if (escaped > 0 || bytes[i - 1] == ' ' || bytes[i - 1] == '=')
			return false;
	}
	return len > 0;
}

/* Appends an escaped value between quotes. It is shortened to the room that is left; the closing quote is always
 * there. */
static bool log_put_quoted(const char *value, size_t len)
{
	const unsigned char *bytes = (const unsigned char *)value;
	char escape[8];
	size_t escaped;
	if (LOG_LINE_MAX - LOG_TAIL - log_state.line_len < 2)
		return false;
	log_state.line[log_state.line_len++] = '"';
	for (size_t i = 0; i < len;) {
		size_t n = log_escape(bytes + i, len - i, escape, &escaped);
		size_t need = escaped > 0 ? escaped : n;
		if (need + 1 > LOG_LINE_MAX - LOG_TAIL - log_state.line_len) {
			log_state.cut = true;
			break;
		}
		log_put(escaped > 0 ? escape : value + i, need);
		i += n;
	}
	return log_put("\"", 1);
}

static bool log_put_key(const char *key)
{
	bool json = log_format_used == LOG_JSON;
	assert(key && *key);
	if (json)
		return log_put(log_state.line_len == 0 ? "{\"" : ",\"", 2) && log_put(key, strlen(key)) &&
		       log_put("\":", 2);
	return (log_state.line_len == 0 || log_put(" ", 1)) && log_put(key, strlen(key)) && log_put("=", 1);
}

/* Appends a field, or nothing if it does not fit. A long string is shortened. */
static void log_put_field(const char *key, const char *value, size_t len, bool number)
{
	size_t before = log_state.line_len;
	bool bare = number || (log_format_used == LOG_LOGFMT && log_is_bare(value, len));
	assert(value || len == 0);
	assert(before <= LOG_LINE_MAX - LOG_TAIL);
	if (log_put_key(key) && ((bare && log_put(value, len)) || (!number && log_put_quoted(value, len))))
		return;
	log_state.line_len = before;
	log_state.cut = true;
}

static void log_put_time(void)
{
	uint64_t now_us = clock_wall_us();
	time_t second = (time_t)(now_us / 1000000);
	if (second != log_state.second || log_state.clock[0] == '\0') {
		struct tm tm;
		gmtime_r(&second, &tm);
		strftime(log_state.clock, sizeof log_state.clock, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
		log_state.second = second;
	}
	size_t at = strlen(log_state.clock) - 1; /* the digits of the ms end there */
	for (uint64_t ms = now_us / 1000 % 1000, i = 0; i < 3; i++, ms /= 10)
		log_state.clock[--at] = (char)('0' + ms % 10);
	log_put_field("ts", log_state.clock, strlen(log_state.clock), false);
}

void log_begin(enum log_level level, const char *event)
{
	static const char *const levels[] = {"debug", "info", "warn", "error"};
	assert(level <= LOG_ERROR && event);
	assert(!log_state.line);
	if (!log_wants(level))
		return;
	if (LOG_BUFFER - log_state.lines_len < LOG_LINE_MAX)
		log_write_lines(0);
	if (LOG_BUFFER - log_state.lines_len < LOG_LINE_MAX) {
		log_drop(1);
		return;
	}
	log_state.line = log_state.lines + log_state.lines_len;
	log_state.cut = false;
	log_state.level = level;
	log_state.line_len = 0;
	log_put_time();
	log_text("level", levels[level]);
	log_text("event", event);
}

void log_str(const char *key, const char *value, size_t len)
{
	assert(key && (value || len == 0));
	if (log_state.line)
		log_put_field(key, value, len, false);
}

void log_text(const char *key, const char *value)
{
	if (value)
		log_str(key, value, strlen(value));
}

void log_num(const char *key, int64_t value)
{
	char text[1 + TEXT_DECIMAL_MAX] = "-";
	size_t sign = value < 0;
	assert(key);
	if (!log_state.line)
		return;
	size_t len = text_decimal(value < 0 ? -(uint64_t)value : (uint64_t)value, text + sign);
	log_put_field(key, text, sign + len, true);
}

void log_end(void)
{
	if (!log_state.line)
		return;
	bool json = log_format_used == LOG_JSON;
	const char *tail = json ? (log_state.cut ? ",\"cut\":true}\n" : "}\n") : (log_state.cut ? " cut=true\n" : "\n");
	size_t len = strlen(tail);
	assert(len <= LOG_LINE_MAX - log_state.line_len); /* LOG_TAIL has kept the room */
	memcpy(log_state.line + log_state.line_len, tail, len);
	log_state.lines_len += log_state.line_len + len;
	log_state.line = NULL;
	if (log_state.level == LOG_ERROR)
		log_write_all(0);
}
