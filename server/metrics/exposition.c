/* SPDX-License-Identifier: MIT */
/* Writes histograms, numbers, labels and heads of metrics: see metrics.h. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "metrics.h"

void exposition_head(struct text *page, const char *name, const char *type, const char *help)
{
	size_t len = strlen(name);
	assert(!strpbrk(help, "\"\\\n"));
	assert(strcmp(type, "counter") != 0 || (len > 6 && strcmp(name + len - 6, "_total") == 0));
	text_printf(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void exposition_number(struct text *page, const char *name, const char *type, const char *help, uint64_t value)
{
	exposition_head(page, name, type, help);
	text_printf(page, "%s %" PRIu64 "\n", name, value);
}

void exposition_time(struct text *page, const char *name, const char *type, const char *help, uint64_t us)
{
	exposition_head(page, name, type, help);
	text_printf(page, "%s ", name);
	exposition_seconds(page, us);
	text_append(page, "\n", 1);
}

void exposition_seconds(struct text *page, uint64_t us)
{
	text_printf(page, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
	while (page->bytes[page->len - 1] == '0')
		page->len--;
	if (page->bytes[page->len - 1] == '.')
		page->len--;
	page->bytes[page->len] = '\0';
}

void exposition_label(struct text *page, const char *name, const char *value)
{
	assert(name[0] != '\0');
	text_printf(page, "%s=\"", name);
	for (; *value != '\0'; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			text_append(page, "\\", 1);
		text_append(page, *value == '\n' ? "n" : value, 1);
	}
	text_append(page, "\"", 1);
}

/* ---- histograms ---- */

static const uint64_t bounds_us[METRICS_BUCKETS] = {100,   200,   300,    500,    1000,   2000,    5000,    10000,
						    20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000};
static const uint64_t long_bounds_us[METRICS_BUCKETS] = {
	1000,     10000,    50000,    100000,   500000,    1000000,    2000000,    5000000,
	10000000, 20000000, 30000000, 60000000, 300000000, 1800000000, 7200000000, 86400000000};

static const uint64_t *bounds_of(const struct histogram *histogram)
{
	return histogram->is_long ? long_bounds_us : bounds_us;
}

uint64_t histogram_bound_us(size_t i)
{
	assert(i <= METRICS_BUCKETS);
	return i < METRICS_BUCKETS ? bounds_us[i] : UINT64_MAX;
}

void histogram_observe(struct histogram *histogram, uint64_t us)
{
	const uint64_t *bounds = bounds_of(histogram);
	size_t i = 0;
	while (i < METRICS_BUCKETS && us > bounds[i])
		i++;
	metrics_add(&histogram->buckets[i], 1);
	metrics_add(&histogram->sum_us, us);
}

/* Writes a bound: "0.5", "1.0", "+Inf". Whole seconds have a ".0", as Prometheus shows them itself. */
static void bound_write(struct text *text, const uint64_t bounds[], size_t i)
{
	assert(i <= METRICS_BUCKETS);
	if (i == METRICS_BUCKETS) {
		text_printf(text, "+Inf");
		return;
	}
	exposition_seconds(text, bounds[i]);
	if (bounds[i] % 1000000 == 0)
		text_printf(text, ".0");
}

void histogram_render(struct text *text, const char *name, const char *labels, const struct histogram *histograms[],
		      size_t count)
{
	assert(count > 0);
	const char *comma = labels[0] == '\0' ? "" : ",";
	const char *open = labels[0] == '\0' ? "" : "{", *close = labels[0] == '\0' ? "" : "}";
	uint64_t total = 0, sum_us = 0;
	for (size_t i = 0; i <= METRICS_BUCKETS; i++) {
		for (size_t h = 0; h < count; h++) {
			assert(histograms[h]->is_long == histograms[0]->is_long);
			total += metrics_load(&histograms[h]->buckets[i]);
		}
		text_printf(text, "%s_bucket{%s%sle=\"", name, labels, comma);
		bound_write(text, bounds_of(histograms[0]), i);
		text_printf(text, "\"} %" PRIu64 "\n", total);
	}
	for (size_t h = 0; h < count; h++)
		sum_us += metrics_load(&histograms[h]->sum_us);
	text_printf(text, "%s_sum%s%s%s ", name, open, labels, close);
	exposition_seconds(text, sum_us);
	text_printf(text, "\n%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, total);
}
