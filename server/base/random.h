/* Random numbers, and tokens: 20 bytes of getrandom() in lower-case hex, new for every attempt (the specification's
 * "random value"; one token for several attempts would let a late delete of the first remove the key of the second). */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

enum { RANDOM_TOKEN_LEN = 40 }; /* 20 bytes of getrandom in lower-case hex */

/* Writes a new token, not terminated. Any thread; each has a reserve of random bytes of its own. Aborts where the
 * kernel has no randomness to give, since no lock could be safe then. */
void random_token(char ret_token[RANDOM_TOKEN_LEN]);

/* 64 random bits: seeds and jitter. */
uint64_t random_number(void);

#endif
