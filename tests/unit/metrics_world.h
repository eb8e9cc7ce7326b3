/* SPDX-License-Identifier: MIT */
/* Shared by the tests of the metrics: two workers and three masters, and checks of the page. */
#ifndef METRICS_WORLD_H
#define METRICS_WORLD_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/metrics/metrics.h"
#include "suite.h"

static const char *const addresses[] = {"redis://10.0.0.1:6379", "unix:/tmp/a\"b\\c\nd", "redis://[::1]:7"};

/* Two workers, three masters, nothing counted yet. Each test is a process of its own. */
static inline void metrics_set_up(void)
{
	metrics_init(2, 3, addresses);
}

/* Renders all; to be freed. */
static inline char *render(void)
{
	struct text page;

	text_init(&page);
	metrics_render(&page);
	ck_assert_uint_eq(strlen(page.bytes), page.len);
	return page.bytes;
}

/* Demands that a line is there, exactly and once. */
static inline void assert_line(const char *line)
{
	char *text = render(), wanted[300];

	snprintf(wanted, sizeof wanted, "\n%s\n", line);
	const char *at = strstr(text, wanted);
	ck_assert_msg(at != NULL, "no line %s in\n%s", line, text);
	ck_assert_ptr_null(strstr(at + 1, wanted));
	free(text);
}

static inline double value_of(const char *name)
{
	char *text = render(), start[100];

	snprintf(start, sizeof start, "\n%s ", name);
	const char *at = strstr(text, start);
	ck_assert_msg(at != NULL, "no %s", name);
	double value = strtod(at + strlen(start), NULL);
	free(text);
	return value;
}

FIXTURE(metrics_set_up, NULL)

#endif
