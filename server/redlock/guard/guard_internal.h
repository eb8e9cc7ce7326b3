/* SPDX-License-Identifier: MIT */
/* Shared by the files of the guard, from the lowest to the highest. Private to this folder. */
#ifndef REDLOCK_GUARD_INTERNAL_H
#define REDLOCK_GUARD_INTERNAL_H

#include "guard.h"

/* ---- guard_leases.c: below all other files ---- */

/* N−Q+1: any set of so many other masters shares one with each majority. */
unsigned guard_leases_needed(const struct guard *guard);
/* True if master i is to be asked now about leases that a WAITING one may have forgotten. */
bool guard_leases_want_survey(const struct guard *guard, unsigned i, uint64_t now_us);
/* Stores the answer to a SURVEY that was sent at asked_us. */
void guard_leases_store(struct guard *guard, uint64_t asked_us, const struct guard_event *event);
/* When the leases that *lost may have forgotten are over; UINT64_MAX: too few masters have reported. */
uint64_t guard_leases_end_us(const struct guard *guard, const struct guard_master *lost, uint64_t now_us);
/* When enough masters can be asked about those leases; UINT64_MAX: too few can. */
uint64_t guard_leases_asked_us(const struct guard *guard, const struct guard_master *lost, uint64_t now_us);
/* Forgets all reports: a quarantine begins, or begins again. */
void guard_leases_forget(struct guard_master *master);

/* ---- guard_state.c: the states of a master, below the files that follow ---- */

uint64_t guard_state_random(struct guard *guard); /* never 0, which stands for "none" */

/* WAITING, RECOVERING or WRITING_EPOCH: its marker is on the master. */
bool guard_state_is_quarantined(const struct guard_master *master);
/* How long a quarantine lasts: the longest lease known, its drift, the margin. */
uint64_t guard_state_quarantine_us(const struct guard *guard);
/* When the quarantine of a WAITING or RECOVERING master ends, as far as is known at now_us. */
uint64_t guard_state_quarantine_end_us(const struct guard *guard, const struct guard_master *master, uint64_t now_us);

/* Asserts what must hold for master i between two events or actions. */
void guard_state_check(const struct guard *guard, unsigned i);

/* Changes of state. Each function asserts that the change is allowed. */
void guard_state_set(struct guard_master *master, enum guard_state state);
/* To ASKING: its epoch must be read again. */
void guard_state_ask(struct guard_master *master);
void guard_state_vote(struct guard_master *master, uint64_t epoch);
/* ABSENT or ASKING: forgets what only the last connection could show. */
void guard_state_end_connection(struct guard_master *master);
/* To MARKING. `kept`: its buckets are all there, only locks may be lost. */
void guard_state_quarantine(struct guard_master *master, enum guard_reason reason, bool kept, uint64_t now_us);
/* The same for the hazard in `hazard`. The caller has set void_epoch. */
void guard_state_quarantine_hazard(struct guard_master *master, uint64_t now_us);
/* CLOCK_FORWARD, EVICTED or NOT_DURABLE: a master that votes is quarantined at once, another one when its epoch
 * fits. */
void guard_state_set_hazard(struct guard_master *master, enum guard_reason hazard, uint64_t now_us);
/* To WAITING, from now on: nothing earlier was seen over this connection and under this marker. */
void guard_state_wait(struct guard_master *master, uint64_t marker, bool kept, uint64_t now_us);
/* Continues a wait under a marker that was read again. */
void guard_state_wait_on(struct guard_master *master, bool kept, uint64_t now_us);
/* To REJECTED: OTHER_CLUSTER or OTHER_DIGEST. */
void guard_state_reject(struct guard_master *master, enum guard_reason reason, uint64_t now_us);

/* ---- guard_clock.c ---- */

/* Compares the clock of *master with the bound known from the lost connection, and keeps that bound. True if the clock
 * jumped forward in between. */
bool guard_clock_has_jumped(struct guard_master *master, uint64_t now_us);

/* ---- guard_other.c ---- */

/* True if the hash that was read is of another version, or of one with another number of masters. */
bool guard_other_wrote(const struct guard *guard, const struct guard_event *event);
/* To REJECTED, if guard_other_wrote() is true. */
void guard_other_store(struct guard_master *master, const struct guard_event *event);
/* To MARKING, if --bootstrap takes the master over now. */
void guard_other_take_over(struct guard *guard, struct guard_master *master);

/* ---- guard_cluster.c ---- */

/* Rejects or quarantines VOTING masters of another cluster, and asks rejected ones again if they belong to ours by
 * now. */
void guard_cluster_check(struct guard *guard, uint64_t now_us);
/* How long a master waits after its quarantine before a new cluster id is made for it; 0: not at all. */
uint64_t guard_cluster_patience_us(const struct guard *guard);
/* The cluster id for the new epoch of *master; 0: not yet. */
uint64_t guard_cluster_choose(struct guard *guard, const struct guard_master *master, uint64_t now_us);

/* ---- guard_durable.c ---- */

/* Sets `pace`. Call it before heard_us and beat are set from a further event of the same connection. */
void guard_durable_set_pace(struct guard_master *master, const struct guard_event *event);
/* Sets `last`: *master votes, and loses its connection. */
void guard_durable_set_last(struct guard_master *master);
/* Compares the epoch that was read with `last`, and stores a hazard in `hazard`. True if *master has restarted with all
 * that it answered, and may keep its epoch. */
bool guard_durable_compare(const struct guard *guard, struct guard_master *master, const struct guard_event *event);
/* True if *master has restarted, and another redlockd may know whether it may keep its epoch. */
bool guard_durable_waits(const struct guard *guard, const struct guard_master *master, const struct guard_event *event);

/* ---- guard_recovery.c ---- */

void guard_recovery_begin(struct guard_master *master, uint64_t now_us);
/* True if a recovering master needs the fences of master i, and master i can report them. */
bool guard_recovery_wants_survey(const struct guard *guard, unsigned i);
/* Writes the SURVEY of the next slice of master i. */
void guard_recovery_survey(struct guard *guard, unsigned i, uint64_t now_us, struct guard_action *ret_action);
void guard_recovery_handle_fences(struct guard *guard, struct guard_master *master, const struct guard_event *event);
/* True if the floor of master i can be chosen. */
bool guard_recovery_is_done(const struct guard *guard, unsigned i, uint64_t now_us);
/* Writes `fence` (the floor) and `clocked` of *ret_action. */
void guard_recovery_choose_floor(const struct guard *guard, const struct guard_master *master, uint64_t now_us,
				 uint64_t wall_us, struct guard_action *ret_action);

#endif
