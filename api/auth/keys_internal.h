/* What keys.c and keys_parse.c share. */
#ifndef KEYS_INTERNAL_H
#define KEYS_INTERNAL_H

#include "keys.h"

/* The usage of the key with this name, the one that there is or a new one, with one reference more; NULL where memory
 * is short. */
struct key_usage *keys_usage_get(const char *name) __attribute__((warn_unused_result));

#endif
