/* Exit statuses of redlockctl: the man page says what a caller should make of them. 64 to 77 have the meaning of
 * sysexits.h; 79 is the first number that sysexits.h leaves free; 126 and 127 are the shell's. `run` otherwise ends as
 * its command did. */
#ifndef CLI_STATUS_H
#define CLI_STATUS_H

enum {
	STATUS_OK = 0,
	STATUS_USAGE = 64,       /* bad input: nothing was sent, or the server refused it as invalid */
	STATUS_UNREACHABLE = 69, /* no server answered, or too few masters */
	STATUS_SYSTEM = 71,      /* fork() and the like */
	STATUS_HELD = 75,        /* somebody else holds the lock; --conflict-exit-code changes it */
	STATUS_STRANGE = 76,     /* an answer that redlockd does not give, or a certificate that is not trusted */
	STATUS_FORBIDDEN = 77,   /* no key, one that the server does not know, or that may not do this */
	STATUS_LOST = 79,        /* the lease is over, or would have been */
	STATUS_CANNOT_RUN = 126, /* the command was found and cannot be run */
	STATUS_NOT_FOUND = 127,  /* there is no such command */
	STATUS_SIGNALLED = 128   /* plus the number of the signal */
};

#endif
