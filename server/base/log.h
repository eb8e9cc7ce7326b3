/* The log: one line for each event, on standard error, as logfmt or JSON.
 *
 * Each thread has a buffer of its own. log_flush() writes it at the end of a round of the loop, in whole lines and
 * without blocking: if the reader of a pipe does not keep up, lines are dropped and counted, and a line reports the
 * number as soon as there is room again. Lines of level error are flushed at once.
 * Callers never pass tokens or passwords, at any level. */
#ifndef LOG_H
#define LOG_H

#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

/* Sets level and format for all threads; before the first thread starts. */
void log_setup(enum log_level level, enum log_format format);

/* True if a line of this level would be written. Saves the work of making its fields. */
int log_wants(enum log_level level);

/* One line: `log_begin(LOG_INFO, "request"); log_str("method", …, …); log_num("status", 201); log_end();`
 * Begins with ts (UTC, ms), level and event. Values are escaped; keys must be literals. A line is cut at 4000 bytes.
 * The functions between begin and end do nothing if the level is not wanted. */
void log_begin(enum log_level level, const char *event);
void log_str(const char *key, const char *value, size_t len);
void log_text(const char *key, const char *value); /* a terminated string; NULL: the field is left out */
void log_num(const char *key, int64_t value);
void log_end(void);

/* Writes what this thread has buffered, as far as that does not block. */
void log_flush(void);
/* The same at the end of a thread, blocking, and frees the buffer. */
void log_fini(void);
/* Lines dropped so far, by all threads. */
uint64_t log_dropped(void);

#endif
