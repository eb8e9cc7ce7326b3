/* SPDX-License-Identifier: MIT */
/* See hot_figures.h. Keeps every time, so that percentiles are exact. */
#include "hot_figures.h"

#include <math.h>
#include <stdlib.h>

#include "hot_http.h"

void figures_add(struct figures *figures, int64_t ns)
{
	if (figures->count == figures->room) {
		figures->room = figures->room == 0 ? 65536 : 2 * figures->room;
		figures->ns = realloc(figures->ns, figures->room * sizeof(*figures->ns));
		if (figures->ns == NULL)
			http_die("out of memory");
	}
	figures->ns[figures->count++] = ns;
}

static int figures_compare(const void *a, const void *b)
{
	int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

	return one < other ? -1 : one > other;
}

/* To a tenth of a microsecond. */
static json_t *figures_us(double ns)
{
	return json_real(round(ns / 100) / 10);
}

static json_t *figures_at(const struct figures *figures, double part)
{
	return figures_us((double)figures->ns[(size_t)(part * (double)(figures->count - 1))]);
}

json_t *figures_json(struct figures *figures)
{
	json_t *json = json_object();
	double sum = 0;

	json_object_set_new(json, "count", json_integer((json_int_t)figures->count));
	if (figures->count == 0)
		return json;
	qsort(figures->ns, figures->count, sizeof(*figures->ns), figures_compare);
	for (size_t i = 0; i < figures->count; i++)
		sum += (double)figures->ns[i];
	json_object_set_new(json, "mean", figures_us(sum / (double)figures->count));
	json_object_set_new(json, "min", figures_at(figures, 0));
	json_object_set_new(json, "p10", figures_at(figures, 0.1));
	json_object_set_new(json, "median", figures_at(figures, 0.5));
	json_object_set_new(json, "p90", figures_at(figures, 0.9));
	json_object_set_new(json, "p99", figures_at(figures, 0.99));
	json_object_set_new(json, "p999", figures_at(figures, 0.999));
	json_object_set_new(json, "max", figures_at(figures, 1));
	return json;
}

void figures_fini(struct figures *figures)
{
	free(figures->ns);
	*figures = (struct figures){.ns = NULL};
}
