/* The files that SIGHUP reads again: the certificate of --tls-cert with its key and authorities, and the keys file.
 *
 * Each of the two is replaced whole or not at all: if a file is bad, the old one stays in use, and the log says so. No
 * connection is dropped: open connections keep their certificate; authorities and keys apply at once, also to requests
 * under way. All on the main thread. */
#ifndef RELOAD_H
#define RELOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "server/config/config.h"

struct keys;
struct tls;
struct worker;

struct reload {
	struct tls *tls;   /* a reference; NULL: no --tls-cert */
	struct keys *keys; /* a reference; NULL: no --keys */
};

/* Reads both for the first time. False: a message of one line; then nothing needs to be freed. */
bool reload_init(struct reload *reload, const struct options *options, char *message, size_t size)
	__attribute__((warn_unused_result));
void reload_fini(struct reload *reload);

/* Reads both again and passes the good ones to the workers. */
void reload_again(struct reload *reload, const struct options *options, struct worker *const workers[], size_t count);

#endif
