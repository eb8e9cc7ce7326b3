/* SPDX-License-Identifier: MIT */
/* Depth first through every state that a configuration can reach. */
#ifndef SIM_SEARCH_H
#define SIM_SEARCH_H

#include "sim_world.h"

enum { SIM_DEPTH_MAX = 1000 };

struct sim_search {
	const struct sim_config *config;
	unsigned checks;     /* of enum sim_check: those that count */
	uint64_t max_states; /* 0: no bound */
	/* checks, instead of violations, that worlds of one fingerprint continue and fail alike */
	bool check_form;
	/* the results: */
	uint64_t states, transitions;
	unsigned depth; /* the longest way into a new state */
	double seconds, cpu_seconds;
	bool bounded;      /* stopped at max_states: not all was seen */
	unsigned violated; /* 0: nothing; else bits of enum sim_check */
	uint64_t oks;      /* states in which both have been given a number: 0 would mean that little was checked */
	uint64_t unlike;   /* check_form: fingerprints too few */
	unsigned story_len;
	struct sim_event story[SIM_DEPTH_MAX]; /* how the violation comes about, shortened */
};

/* Fills in the results. Not reentrant: the core's asserts return into it. */
void sim_search(struct sim_search *search);
/* Prints the story, played again from the start. */
void sim_search_tell(const struct sim_search *search);

#endif
