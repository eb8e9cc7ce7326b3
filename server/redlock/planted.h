/* Bugs planted on purpose, to prove that the simulator looks (tests/sim/README.md). Without REDLOCK_PLANTED, which only a copy
 * of the core built for the simulator has, PLANTED() is constant false and nothing of this is in the program. */
#ifndef REDLOCK_PLANTED_H
#define REDLOCK_PLANTED_H

enum planted {
	PLANTED_NONE,
	/* in the core */
	PLANTED_NO_SECOND_ROUND,   /* the guess is always taken */
	PLANTED_QUORUM_HALF,       /* N/2 */
	PLANTED_NO_RELEASE,        /* nothing is given back after a failure */
	PLANTED_RELEASE_ANSWERED,  /* given back only where an answer came, not where one may still come */
	PLANTED_OLD_ROUND,         /* the answer to an older RAISE counts for the newer one */
	PLANTED_SILENCE_IGNORED,   /* the voting deadline does not count the silent masters as failed */
	/* in the simulator: the modelled master, and what stands for the daemon */
	PLANTED_RAISE_NOT_STRICT,
	PLANTED_RAISE_NO_TOKEN,
	PLANTED_DELETE_NO_COMPARE,
	PLANTED_ONE_TOKEN, /* for all tries */
	PLANTED_COUNT
};

#ifdef REDLOCK_PLANTED
extern enum planted redlock_planted;
#define PLANTED(bug) (redlock_planted == (bug))
#else
#define PLANTED(bug) 0
#endif

#endif
