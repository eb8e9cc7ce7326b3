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
	PLANTED_NO_VALIDITY_CHECK, /* nobody looks how long the attempt took */
	PLANTED_NO_BAR,            /* a master that lost its memory votes again at once */
	/* in the simulator: the modelled master, and what stands for the daemon */
	PLANTED_RAISE_NOT_STRICT,
	PLANTED_RAISE_NO_TOKEN,
	PLANTED_DELETE_NO_COMPARE,
	PLANTED_ONE_TOKEN, /* for all tries */
	PLANTED_LATE_ACCEPTED,       /* a command whose deadline has passed is carried out */
	PLANTED_CERTIFICATE_IGNORED, /* no script compares it */
	PLANTED_EXTEND_SHORTENS,     /* an older extension takes time away */
	PLANTED_EXTEND_RECREATES,    /* an extension brings a lease back that had run out */
	PLANTED_NO_DRIFT,            /* nothing is taken off for clocks that run unlike */
	PLANTED_WALL_CLOCK,          /* the time of day instead of the steady clock */
	PLANTED_MARKER_NO_TTL,       /* the longest lease is not kept beside a marker, but with a certificate alone */
	PLANTED_CERTIFY_EARLY,       /* a marker beside which longer leases are noted than were waited for becomes a certificate */
	PLANTED_BAR_BY_UPTIME,       /* a restarted master's word for how long it has been up */
	PLANTED_RESYNC_EARLY,        /* the other masters' fences are asked for at the restart, not after the wait */
	PLANTED_NO_RESYNC,           /* a master that lost its memory votes again without a floor */
	PLANTED_RESYNC_FEW,          /* one other master too few is asked for its fences */
	PLANTED_WAKE_LOST,           /* a release calls nobody */
	PLANTED_BARGE,               /* whoever comes to a free lock takes it, whosever turn it is */
	PLANTED_COUNT
};

#ifdef REDLOCK_PLANTED
extern enum planted redlock_planted;
#define PLANTED(bug) (redlock_planted == (bug))
#else
#define PLANTED(bug) 0
#endif

#endif
