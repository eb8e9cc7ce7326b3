/* Functions that the files metrics*.c share. */
#ifndef METRICS_INTERNAL_H
#define METRICS_INTERNAL_H

#include "metrics_counters.h"

/* ---- metrics.c ---- */

size_t metrics_masters(void);
/* master="ADDRESS", escaped. */
const char *metrics_master_label(size_t m);
/* When the machine started, in seconds since 1970, by the wall clock at metrics_init(). */
double metrics_boot_s(void);
/* The notes of metrics_note_reload(). */
struct metrics_reload {
	bool successful;  /* the last time */
	uint64_t time_us; /* of the last success, since 1970; 0: none yet */
	uint64_t failures;
};
void metrics_reload(struct metrics_reload *ret_reload);

/* ---- metrics_process.c ---- */

void metrics_render_process(struct exposition *page);

#endif
