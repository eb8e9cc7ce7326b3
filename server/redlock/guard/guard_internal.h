/* What guard.c, guard_clock.c, guard_cluster.c and guard_recovery.c share; nobody else includes it. */
#ifndef REDLOCK_GUARD_INTERNAL_H
#define REDLOCK_GUARD_INTERNAL_H

#include "guard.h"

/* guard.c */
bool guard_is_quarantined(const struct guard_master *master);
void guard_quarantine_found(struct guard_master *master, uint64_t now_us); /* for `found`; void_epoch is set */

uint64_t guard_draw(struct guard *guard); /* a random number, never 0 */
/* how long a quarantine lasts: the longest lease known, its drift, 2 s */
uint64_t guard_quarantine_us(const struct guard *guard);
/* QUARANTINE is to be sent */
void guard_quarantine(struct guard_master *master, enum guard_reason reason, bool kept, uint64_t now_us);
void guard_refuse(struct guard_master *master, enum guard_reason reason, uint64_t now_us); /* FOREIGN */

/* guard_cluster.c */
void guard_check_clusters(struct guard *guard, uint64_t now_us);
uint64_t guard_creation_us(const struct guard *guard);
uint64_t guard_choose_cluster(struct guard *guard, const struct guard_master *master, uint64_t now_us); /* 0: not yet */

/* guard_recovery.c */
void guard_begin_recovery(const struct guard *guard, struct guard_master *master, uint64_t now_us);
bool guard_wants_survey(const struct guard *guard, unsigned i); /* somebody waits for the fences of master i */
/* SURVEY of the next slice */
void guard_ask_fences(struct guard *guard, unsigned i, uint64_t now_us, struct guard_action *ret_action);
void guard_take_fences(struct guard *guard, struct guard_master *master, const struct guard_event *event);
bool guard_recovery_done(const struct guard *guard, unsigned i, uint64_t now_us);
void guard_choose_floor(const struct guard *guard, const struct guard_master *master, uint64_t now_us, uint64_t wall_us,
			struct guard_action *ret_action);

#endif
