/* SPDX-License-Identifier: MIT */
/* The base of all parts of redlockctl: the command line, addresses and credentials of servers, durations, exit
 * statuses, messages.
 *
 * The one header of this folder for the others; each part has its own header. */
#ifndef CLI_BASE_H
#define CLI_BASE_H

#include "arguments.h"
#include "credentials.h"
#include "report.h"

/* Exit statuses: the manual page describes them. 64 to 77 have the meaning of sysexits.h; 79 is the first number that
 * sysexits.h leaves free; 126 and 127 are those of the shell. Otherwise `run` exits like its command. */
enum {
	EXIT_STATUS_OK = 0,
	EXIT_STATUS_FREE = 1,         /* status --exit-code: nobody holds the lock */
	EXIT_STATUS_UNSAFE = 1,       /* drill: a round did not hold */
	EXIT_STATUS_USAGE = 64,       /* bad input: nothing was sent, or the server rejected it as invalid */
	EXIT_STATUS_UNREACHABLE = 69, /* no server answered, or too few masters */
	EXIT_STATUS_SYSTEM = 71,      /* no memory, fork() and the like */
	EXIT_STATUS_HELD = 75,        /* somebody else holds the lock; --conflict-exit-code changes it */
	EXIT_STATUS_STRANGE = 76,     /* an answer that redlockd does not give, or a certificate that is not trusted */
	EXIT_STATUS_FORBIDDEN = 77,   /* no key, an unknown one, or one without the right */
	EXIT_STATUS_LOST = 79,        /* the lease is over, or would have been */
	EXIT_STATUS_CANNOT_RUN = 126, /* the command was found and cannot be run */
	EXIT_STATUS_NOT_FOUND = 127,  /* there is no such command */
	EXIT_STATUS_SIGNALLED = 128   /* plus the number of the signal */
};

#endif
