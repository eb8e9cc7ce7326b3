/* Mutations: bugs put into the core or the simulator on purpose, to prove that the tests find them
 * (tests/sim/README.md). Only copies of the core that are built for tests include this file, through redlock.h. */
#ifndef REDLOCK_MUTATIONS_H
#define REDLOCK_MUTATIONS_H

enum redlock_mutation {
	MUTATION_NONE,
	/* in the core */
	MUTATION_NO_SECOND_ROUND,   /* the guess is always taken */
	MUTATION_QUORUM_HALF,       /* N/2 */
	MUTATION_NO_RELEASE,        /* nothing is released after a failure */
	MUTATION_RELEASE_ANSWERED,  /* released only where an answer came, not where one may still come */
	MUTATION_OLD_ROUND,         /* the answer to an older RAISE counts for the newer one */
	MUTATION_SILENCE_IGNORED,   /* the voting deadline does not count the silent masters as failed */
	MUTATION_NO_VALIDITY_CHECK, /* the time that the attempt took is ignored */
	MUTATION_NO_QUARANTINE,     /* a master that lost its memory votes again at once */
	/* in the simulator: the modelled masters and the modelled daemon */
	MUTATION_RAISE_NOT_STRICT,
	MUTATION_RAISE_NO_TOKEN,
	MUTATION_DELETE_NO_COMPARE,
	MUTATION_ONE_TOKEN,        /* for all tries */
	MUTATION_LATE_ACCEPTED,    /* a command whose deadline has passed is carried out */
	MUTATION_EPOCH_IGNORED,    /* no script compares it */
	MUTATION_EXTEND_SHORTENS,  /* an older extension takes time away */
	MUTATION_EXTEND_RECREATES, /* an extension brings a lease back that had run out */
	MUTATION_NO_DRIFT,         /* nothing is subtracted for clocks that run at different speeds */
	MUTATION_WALL_CLOCK,       /* the time of day instead of the steady clock */
	MUTATION_MARKER_NO_TTL,    /* the longest lease is not kept beside a marker, but with an epoch alone */
	/* a marker becomes an epoch although leases longer than the wait are noted beside it */
	MUTATION_WRITE_EPOCH_EARLY,
	MUTATION_QUARANTINE_BY_UPTIME, /* the uptime that a restarted master tells counts as waited */
	MUTATION_RECOVERY_EARLY,    /* the fences of other masters are collected at the restart, not after the wait */
	MUTATION_NO_RECOVERY,       /* a master that lost its memory votes again without a floor */
	MUTATION_RECOVERY_FEW,      /* the fences of one master too few are collected */
	MUTATION_NOTIFICATION_LOST, /* a release notifies nobody */
	MUTATION_BARGE,             /* a free lock is granted without regard to the queue */
	MUTATION_COUNT
};

extern enum redlock_mutation redlock_mutation; /* the one that is on; defined by the test */
#define MUTATED(mutation) (redlock_mutation == (mutation))

#endif
