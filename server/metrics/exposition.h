/* A page of metrics in the text format of Prometheus, version 0.0.4. */
#ifndef EXPOSITION_H
#define EXPOSITION_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/base.h"

/* Appends HELP and TYPE of a metric, ahead of its samples. `type`: "counter", "gauge" or "histogram"; a counter's name
 * ends with _total. `help` is without quotes, backslashes and line breaks. */
void exposition_head(struct text *page, const char *name, const char *type, const char *help);

/* The same with the one sample of a metric without labels: a number, or a time in microseconds. */
void exposition_number(struct text *page, const char *name, const char *type, const char *help, uint64_t value);
void exposition_time(struct text *page, const char *name, const char *type, const char *help, uint64_t us);

/* Appends microseconds as seconds, exactly and without trailing zeros: 300 is 0.0003. */
void exposition_seconds(struct text *page, uint64_t us);

/* Appends a label, `name="value"`, with the three escapes of a value. */
void exposition_label(struct text *page, const char *name, const char *value);

#endif
