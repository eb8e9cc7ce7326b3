/* SPDX-License-Identifier: MIT */
/* Times that were measured, and what is said of them. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct figures {
	int64_t *ns;
	size_t count, room;
};

void figures_add(struct figures *figures, int64_t ns);

/* {"count", "mean", "min", "p10", "median", "p90", "p99", "p999", "max"} in microseconds; with no times only the count.
 * Sorts them. */
json_t *figures_json(struct figures *figures);

void figures_fini(struct figures *figures);
