/* What the files metrics*.c share; nobody else includes it. */
#ifndef METRICS_INTERNAL_H
#define METRICS_INTERNAL_H

#include "metrics_counters.h"

/* metrics.c */
size_t metrics_masters(void);
/* master="ADDRESS", escaped. */
const char *metrics_master_label(size_t m);
uint64_t metrics_load(const _Atomic uint64_t *figure);
/* Microseconds as seconds, exactly and without idle zeros: 300 is 0.0003. */
void metrics_seconds(char ret_seconds[32], uint64_t us);
/* A label value with the three escapes that both formats have. */
void metrics_escape(char *ret_escaped, size_t size, const char *value);
/* What metrics_note_reload() was told. */
struct metrics_reload {
	bool successful;  /* the last time */
	uint64_t time_us; /* of the last success, since 1970; 0: none yet */
	uint64_t failures;
};
void metrics_reload(struct metrics_reload *ret_reload);

/* metrics_process.c */
void metrics_process_init(void);
void metrics_render_process(struct exposition *page);

#endif
