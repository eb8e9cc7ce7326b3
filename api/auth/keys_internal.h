/* What keys.c and keys_parse.c share. */
#ifndef KEYS_INTERNAL_H
#define KEYS_INTERNAL_H

#include <jansson.h>
#include <stdatomic.h>
#include <stddef.h>

#include "keys.h"

/* Made, counted and freed by keys_parse.c alone. */
struct keys {
	atomic_uint references;
	size_t count;
	struct key *keys; /* in the order of the file */
	json_t *root;     /* owns the texts of the keys */
};

/* The usage of the key with this name, the existing or a new one, with one reference more; NULL where memory is
 * short. */
struct key_usage *keys_usage_get(const char *name) __attribute__((warn_unused_result));

/* Gives a reference back; with the last one the usage is forgotten. */
void keys_usage_put(struct key_usage *usage);

#endif
