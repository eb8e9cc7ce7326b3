/* The log. See log.h.
 *
 *   ts=2026-11-21T01:16:20.042Z level=info event=request method=POST status=201 owner="worker \"7\""
 *   {"ts":"2026-11-21T01:16:20.042Z","level":"info","event":"request","method":"POST","status":201}
 *
 * log_flush() writes pieces of at most PIPE_BUF bytes, each piece whole lines, so that lines of several threads or
 * processes never mix. Standard error is shared with other processes and cannot be made non-blocking; poll() is asked
 * before each piece instead. A pipe that polls writable has room for PIPE_BUF bytes, and a mutex keeps the other
 * threads from using that room in between. The mutex is held only over calls that do not block.
 *
 * Values come from clients: control characters (also C1, DEL and the Unicode line ends) are escaped and bytes that are
 * not UTF-8 become U+FFFD, in both formats, so a value can neither forge a line nor break JSON. A value that does not
 * fit into a line is left out, and the line says `cut`.
 *
 * The program must ignore SIGPIPE: a reader that ended costs the lines, not the process. */
#include "log.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

enum {
	LOG_LINE_MAX = 4000, /* with its newline; below PIPE_BUF */
	LOG_TAIL = 16,       /* kept free in each line for `cut`, the closing brace and the newline */
	LOG_BUFFER = 64 << 10,
	LOG_FINI_MS = 1000 /* how long the end of a thread waits for a reader that does not keep up */
};

static_assert(LOG_LINE_MAX <= PIPE_BUF, "a line must be written in one piece");

/* Set before the first thread starts, then only read. */
static enum log_level log_level_wanted = LOG_INFO;
static enum log_format log_format_used = LOG_LOGFMT;

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t log_dropped_total;

static _Thread_local struct {
	bool open; /* between log_begin() and log_end(), of a level that is wanted */
	bool cut;  /* a field did not fit */
	enum log_level level;
	size_t line_len;
	char line[LOG_LINE_MAX];
	char *lines; /* LOG_BUFFER bytes from the heap, or NULL */
	size_t lines_len;
	uint64_t unreported; /* lines dropped of which no line has told yet */
	time_t second;       /* for which `clock` was made */
	char clock[24];
} log_state;

static const char *const log_level_names[] = {"debug", "info", "warn", "error"};

void log_setup(enum log_level level, enum log_format format)
{
	assert(level <= LOG_ERROR && format <= LOG_JSON);
	log_level_wanted = level;
	log_format_used = format;
}

int log_wants(enum log_level level)
{
	return level >= log_level_wanted;
}

uint64_t log_dropped(void)
{
	return atomic_load_explicit(&log_dropped_total, memory_order_relaxed);
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

/* The length of the UTF-8 character at the start of `bytes` (never past len), or 0 if there is none. */
static size_t log_utf8_len(const unsigned char *bytes, size_t len)
{
	static const struct {
		unsigned char mask, lead;
		uint32_t least;
	} forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

	assert(len > 0);
	for (size_t extra = 0; extra < 4; extra++) {
		if ((bytes[0] & forms[extra].mask) != forms[extra].lead)
			continue;
		uint32_t code = bytes[0] & (unsigned char)~forms[extra].mask;
		for (size_t i = 1; i <= extra; i++) {
			if (i >= len || (bytes[i] & 0xc0) != 0x80)
				return 0;
			code = (code << 6) | (bytes[i] & 0x3fu);
		}
		bool surrogate = code >= 0xd800 && code <= 0xdfff;
		return code < forms[extra].least || code > 0x10ffff || surrogate ? 0 : extra + 1;
	}
	return 0;
}

/* Writes the escape of one character to `escape`. Returns its length, 0 if the character needs none. */
static size_t log_escape(const unsigned char *bytes, size_t len, char escape[8])
{
	unsigned c = bytes[0];
	int n = 0;

	assert(len <= 4);
	if (len == 0) /* not UTF-8 */
		n = snprintf(escape, 8, "\xef\xbf\xbd");
	else if (c == '"' || c == '\\')
		n = snprintf(escape, 8, "\\%c", (char)c);
	else if (c == '\n' || c == '\r' || c == '\t')
		n = snprintf(escape, 8, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
	else if (c < 0x20 || c == 0x7f)
		n = snprintf(escape, 8, "\\u%04x", c);
	else if (len == 2 && c == 0xc2 && bytes[1] < 0xa0)
		n = snprintf(escape, 8, "\\u%04x", (unsigned)bytes[1]);
	else if (len == 3 && c == 0xe2 && bytes[1] == 0x80 && (bytes[2] == 0xa8 || bytes[2] == 0xa9))
		n = snprintf(escape, 8, "\\u20%02x", bytes[2] - 0x80u);
	return (size_t)n;
}

/* True if logfmt needs no quotes around the value. */
static bool log_is_bare(const char *value, size_t len)
{
	const unsigned char *bytes = (const unsigned char *)value;
	char escape[8];

	for (size_t i = 0; i < len;) {
		/* fast path: nearly all values are plain ASCII */
		if (bytes[i] > ' ' && bytes[i] < 0x7f && bytes[i] != '=' && bytes[i] != '"' && bytes[i] != '\\') {
			i++;
			continue;
		}
		size_t n = log_utf8_len(bytes + i, len - i);
		if (bytes[i] == ' ' || bytes[i] == '=' || log_escape(bytes + i, n, escape) > 0)
			return false;
		i += n;
	}
	return len > 0;
}

/* Appends an escaped value between quotes. It is shortened to the room that is left; the closing quote is always
 * there. */
static bool log_put_quoted(const char *value, size_t len)
{
	const unsigned char *bytes = (const unsigned char *)value;
	char escape[8];

	if (LOG_LINE_MAX - LOG_TAIL - log_state.line_len < 2)
		return false;
	log_state.line[log_state.line_len++] = '"';
	for (size_t i = 0; i < len;) {
		size_t n = log_utf8_len(bytes + i, len - i);
		size_t escaped = log_escape(bytes + i, n, escape);
		size_t need = escaped > 0 ? escaped : n;
		if (need + 1 > LOG_LINE_MAX - LOG_TAIL - log_state.line_len) {
			log_state.cut = true;
			break;
		}
		log_put(escaped > 0 ? escape : value + i, need);
		i += n > 0 ? n : 1;
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
	struct timespec now;
	char text[48];

	clock_gettime(CLOCK_REALTIME, &now);
	if (now.tv_sec != log_state.second || log_state.clock[0] == '\0') {
		struct tm tm;
		gmtime_r(&now.tv_sec, &tm);
		strftime(log_state.clock, sizeof log_state.clock, "%Y-%m-%dT%H:%M:%S", &tm);
		log_state.second = now.tv_sec;
	}
	unsigned ms = (unsigned)(now.tv_nsec / 1000000);
	size_t len = strlen(log_state.clock);
	memcpy(text, log_state.clock, len);
	text[len++] = '.';
	text[len++] = (char)('0' + ms / 100);
	text[len++] = (char)('0' + ms / 10 % 10);
	text[len++] = (char)('0' + ms % 10);
	text[len++] = 'Z';
	log_put_field("ts", text, len, false);
}

void log_begin(enum log_level level, const char *event)
{
	assert(level <= LOG_ERROR && event);
	assert(!log_state.open);
	if (!log_wants(level))
		return;
	log_state.open = true;
	log_state.cut = false;
	log_state.level = level;
	log_state.line_len = 0;
	log_put_time();
	log_text("level", log_level_names[level]);
	log_text("event", event);
}

void log_str(const char *key, const char *value, size_t len)
{
	assert(key && (value || len == 0));
	if (log_state.open)
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
	if (!log_state.open)
		return;
	size_t len = text_decimal(value < 0 ? -(uint64_t)value : (uint64_t)value, text + sign);
	log_put_field(key, text, sign + len, true);
}

/* LOG_TAIL has kept the room for this. */
static void log_close_line(void)
{
	bool json = log_format_used == LOG_JSON;
	const char *tail = json ? (log_state.cut ? ",\"cut\":true}\n" : "}\n") : (log_state.cut ? " cut=true\n" : "\n");
	size_t len = strlen(tail);

	assert(len <= LOG_LINE_MAX - log_state.line_len);
	memcpy(log_state.line + log_state.line_len, tail, len);
	log_state.line_len += len;
}

/* ---- writing lines ---- */

static void log_drop(uint64_t lines)
{
	log_state.unreported += lines;
	atomic_fetch_add_explicit(&log_dropped_total, lines, memory_order_relaxed);
}

static void log_drop_buffered(void)
{
	uint64_t lines = 0;

	for (size_t i = 0; i < log_state.lines_len; i++)
		lines += log_state.lines[i] == '\n';
	log_state.lines_len = 0;
	log_drop(lines);
}

/* Appends the finished line to the buffer. */
static bool log_keep_line(void)
{
	assert(log_state.line_len > 0 && log_state.line[log_state.line_len - 1] == '\n');
	if (!log_state.lines)
		log_state.lines = malloc(LOG_BUFFER);
	if (!log_state.lines || log_state.line_len > LOG_BUFFER - log_state.lines_len)
		return false;
	memcpy(log_state.lines + log_state.lines_len, log_state.line, log_state.line_len);
	log_state.lines_len += log_state.line_len;
	return true;
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
			memmove(log_state.lines, log_state.lines + done, log_state.lines_len - done);
			log_state.lines_len -= done;
			log_drop_buffered();
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

/* Reports how many lines were dropped, once there is room for that line. */
static void log_report_dropped(void)
{
	uint64_t unreported = log_state.unreported;

	if (log_state.lines_len > 0)
		return;
	log_state.unreported = 0;
	log_begin(LOG_WARN, "log-lines-dropped");
	if (!log_state.open) /* only errors are wanted */
		return;
	log_num("count", (int64_t)unreported);
	log_state.open = false;
	log_close_line();
	if (!log_keep_line())
		log_state.unreported = unreported;
}

/* Writes the lines, and after a time in which writing failed, how many were lost. */
static void log_write_all(int wait_ms)
{
	assert(!log_state.open);
	if (!log_write_lines(wait_ms) || log_state.unreported == 0)
		return;
	log_report_dropped();
	log_write_lines(wait_ms);
}

void log_end(void)
{
	if (!log_state.open)
		return;
	log_close_line();
	log_state.open = false;
	if (log_state.lines_len + log_state.line_len > LOG_BUFFER)
		log_write_lines(0);
	if (!log_keep_line())
		log_drop(1);
	if (log_state.level == LOG_ERROR)
		log_write_all(0);
}

void log_flush(void)
{
	log_write_all(0);
}

void log_fini(void)
{
	assert(!log_state.open);
	log_write_all(LOG_FINI_MS);
	if (log_state.lines_len > 0)
		log_drop_buffered();
	free(log_state.lines);
	log_state.lines = NULL;
	log_state.unreported = 0;
}
