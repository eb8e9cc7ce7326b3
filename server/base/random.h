/* Random numbers, and tokens: 20 bytes of getrandom() in lower-case hex, which nobody can guess and which never
 * repeat. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

enum { RANDOM_TOKEN_LEN = 40 };

/* Writes a new token, not terminated. Any thread; each has a reserve of random bytes of its own. Aborts if the kernel
 * has no random bytes: a token that can be guessed or repeats is worse than none. */
void random_token(char ret_token[RANDOM_TOKEN_LEN]);

/* 64 random bits: seeds and jitter. */
uint64_t random_number(void);

#endif
