/* A page of metrics as text, in both formats that Prometheus reads: Prometheus text 0.0.4 and OpenMetrics 1.0. They
 * differ here in the heads of counters, which OpenMetrics names without _total, and at the end. */
#ifndef EXPOSITION_H
#define EXPOSITION_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/base.h"

enum exposition_format { EXPOSITION_PROMETHEUS, EXPOSITION_OPENMETRICS };

/* A page that is being written. `text` belongs to the caller; if it failed, the page is not whole. */
struct exposition {
	struct text text;
	enum exposition_format format;
};

/* Appends HELP and TYPE of a metric, ahead of its samples. `type`: "counter", "gauge" or "histogram"; a counter's name
 * ends with _total. `help` is without quotes, backslashes and line breaks. */
void exposition_head(struct exposition *page, const char *name, const char *type, const char *help);

/* Appends what the format requires after the last metric. */
void exposition_end(struct exposition *page);

/* The Content-Type. Static memory. */
const char *exposition_type(enum exposition_format format);

enum { EXPOSITION_SECONDS_MAX = 32 };
/* Microseconds as seconds, exactly and without trailing zeros: 300 is 0.0003. */
void exposition_seconds(char ret_seconds[EXPOSITION_SECONDS_MAX], uint64_t us);

/* A label value with the three escapes that both formats have. `size`: at least twice the length of `value`, and 1. */
void exposition_escape(char *ret_escaped, size_t size, const char *value);

#endif
