/* SPDX-License-Identifier: MIT */
/* The parts that every other folder of the server and redlockctl uses. Any thread may call each function unless it says
 * otherwise. */
#ifndef BASE_H
#define BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* ---- build.c.in: what this program was built from ---- */

/* A library that the program uses. Static memory. */
struct build_library {
	const char *name, *version;
};
extern const char build_version[]; /* SemVer */
extern const char build_commit[];  /* "…-dirty": with uncommitted changes; "unknown": not built from a git tree */
const struct build_library *build_libraries(size_t *ret_count);

/* ---- kernel.c: clocks and random numbers. The simulator has its own. ---- */

/* CLOCK_BOOTTIME, for all measured times: it cannot be set, and it counts the sleep of a suspended machine, as the
 * clocks of the masters do. */
uint64_t clock_now_us(void);
/* The time of day, since 1970: for the log, and for numbers that should rise over restarts. */
uint64_t clock_wall_us(void);

enum { RANDOM_TOKEN_LEN = 40, RANDOM_BYTES_MAX = 256 };
/* At most RANDOM_BYTES_MAX. Aborts if the kernel has none: a token that can be guessed is worse than none. */
void random_bytes(unsigned char *ret, size_t len);
/* Writes a new token, not terminated: 20 random bytes in lower-case hex. */
void random_token(char ret_token[RANDOM_TOKEN_LEN]);
/* 64 random bits: seeds and jitter. */
uint64_t random_number(void);

/* ---- memory.c: memory from the heap; without it the process ends at once, with a line in the log ---- */

/* Not initialized; `size` may be 0. Freed with free(), like the results of the functions below. */
void *memory_alloc(size_t size) __attribute__((malloc, returns_nonnull, warn_unused_result));
/* All bytes are 0. */
void *memory_zeroed(size_t count, size_t size) __attribute__((malloc, returns_nonnull, warn_unused_result));
/* Like realloc(); `old` may be NULL. */
void *memory_resize(void *old, size_t size) __attribute__((returns_nonnull, warn_unused_result));
/* A terminated copy of `len` bytes. */
char *memory_copy(const char *bytes, size_t len) __attribute__((malloc, returns_nonnull, warn_unused_result));
/* Ends the process when a library reports a lack of memory: logs what could not be made, and exits with status 71
 * (EX_OSERR). */
void memory_exhausted(const char *what) __attribute__((noreturn));

/* ---- loopback.c ---- */

struct in6_addr;
struct sockaddr;
/* True for 127.0.0.0/8, ::1, and the former mapped into IPv6: only this machine can reach it. */
bool loopback_is_in6(const struct in6_addr *address);
bool loopback_is_address(const struct sockaddr *address);

/* ---- utf8.c: the one place that knows what valid UTF-8 is ---- */

/* Writes the code point at `bytes` to *ret_point, and returns its length in bytes; 0: none is valid within `len` (at
 * least 1). */
size_t utf8_next(const unsigned char *bytes, size_t len, uint32_t *ret_point);
/* True if the bytes are valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool utf8_is_valid(const char *bytes, size_t len);
/* True if valid UTF-8 holds a control character: U+0000 … U+001F, U+007F … U+009F. */
bool utf8_has_control(const char *bytes, size_t len);

/* ---- text.c: a text that grows, for metrics and whole files. One thread at a time. ---- */

struct text {
	char *bytes; /* always terminated, never NULL after the first append */
	size_t len, size;
};
void text_init(struct text *text);
void text_fini(struct text *text);
void text_append(struct text *text, const char *bytes, size_t len);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the next line of a text, from *at, which moves past the line feed. False: there is no line left. */
bool text_line(const char **at, const char *end, const char **ret_line, size_t *ret_len);

/* ---- text_write.c: used for each request, so faster than printf() ---- */

enum { TEXT_DECIMAL_MAX = 20, TEXT_ESCAPE_MAX = 6 };
/* Writes a number in decimal digits, not terminated; returns how many. */
size_t text_decimal(uint64_t number, char ret_digits[TEXT_DECIMAL_MAX]);
/* Writes the escape that a byte needs in a string of JSON, the same as jansson; returns its length, 0: it needs
 * none. */
size_t text_escape(unsigned char c, char ret_escape[TEXT_ESCAPE_MAX]);

/* The value of one digit, of either case; -1: not a hex digit. */
int hex_digit(char c);
/* Writes 2 * len lower-case digits, not terminated. */
void hex_write(const unsigned char *bytes, size_t len, char *ret_digits);
/* Reads 2 * len digits of either case. False: they are not all digits. */
bool hex_read(const char *digits, size_t len, unsigned char *ret_bytes) __attribute__((warn_unused_result));
bool hex_is_lower(const char *text, size_t len);

/* FNV-1a, 64 bits: the same on all replicas, for ever. A client that chooses the bytes can choose ones that collide. */
uint64_t hash_fnv1a(const void *bytes, size_t len);

/* ---- file.c. Blocking, as the descriptor does. ---- */

/* Reads until the end, or until `size` bytes are there. False: errno. */
bool file_read(int fd, char *bytes, size_t size, size_t *ret_len) __attribute__((warn_unused_result));
/* Opens /dev/null if standard input, output or error is closed: otherwise a socket could get that number and its
 * output. Call it first in main(). False: errno. */
bool file_open_standard(void) __attribute__((warn_unused_result));

/* Files that grant rights or hold secrets: keys, certificates, passwords. They are read completely, and rejected if
 * anybody else could have written them, or could read a secret. Only for the start and for SIGHUP. */
enum secret_file_kind {
	SECRET_FILE_TRUSTED, /* anybody may read it, but only its owner (root or our user) may have written it */
	SECRET_FILE_SECRET   /* the same, and others may not read it either; its group may */
};
/* NULL, or the reason (static) why the file is rejected. */
const char *secret_file_check(const struct stat *file, enum secret_file_kind kind);
/* Reads the file at `path`, at most `max` bytes, into `text`, which the caller initialises and owns. False: a message
 * that names the file and its fault. */
bool secret_file_read(const char *path, enum secret_file_kind kind, size_t max, struct text *text, char *message,
		      size_t message_size) __attribute__((warn_unused_result));
/* Overwrites the bytes. */
void secret_file_wipe(struct text *text);

/* ---- log.c: one line for each event, on standard error, as logfmt or JSON ----
 *
 * Each thread has a buffer of its own. log_flush() writes it at the end of a round of the loop, in whole lines and
 * without blocking: if the reader of a pipe does not keep up, lines are dropped and counted. A line reports the number
 * as soon as there is room again. Lines of level error are flushed at once. Callers never pass tokens or passwords, at
 * any level. */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };
/* The requests that have a line in the log. */
enum log_requests { LOG_REQUESTS_ALL, LOG_REQUESTS_ERRORS, LOG_REQUESTS_NONE };

/* Sets level and format for all threads; before the first thread starts. */
void log_setup(enum log_level level, enum log_format format);
/* True if a line of this level would be written. Saves the work of making its fields. */
bool log_wants(enum log_level level);
/* One line: `log_begin(LOG_INFO, "request"); log_str("method", …, …); log_num("status", 201); log_end();`
 * Begins with ts (UTC, ms), level and event. Values are escaped; keys must be literals. A line is cut at 4000 bytes.
 * The functions between begin and end do nothing if the level is not wanted. */
void log_begin(enum log_level level, const char *event);
void log_str(const char *key, const char *value, size_t len);
void log_text(const char *key, const char *value); /* a terminated string; NULL: the field is left out */
void log_num(const char *key, int64_t value);
void log_end(void);
/* For events that clients can cause: false if the line must be left out, since this thread has had 20 of this event and
 * status within a second. `log-lines-suppressed` reports their number when the second is over. */
bool log_allows(const char *event, unsigned status);
/* Writes the buffer of this thread, as far as that does not block. */
void log_flush(void);
/* The same at the end of a thread, blocking. */
void log_fini(void);
/* Lines dropped so far, by all threads. */
uint64_t log_dropped(void);

#endif
