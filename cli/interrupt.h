/* Signals while the command `acquire` waits: they end it as usual, but first its queue entry, or a lease that has just
 * been granted, is released. */
#ifndef INTERRUPT_H
#define INTERRUPT_H

#include <curl/curl.h>
#include <signal.h>
#include <stdbool.h>

#include "cli/http/client.h"

struct interrupt {
	struct curl_waitfd file; /* ready where there is a signal */
	sigset_t before;
	int number; /* of the signal that came; 0: none */
};

/* From now on signals are kept until they are read. False: errno. */
bool interrupt_begin(struct interrupt *interrupt) __attribute__((warn_unused_result));

/* For struct acquire: the context is the struct interrupt. */
enum acquire_order interrupt_read_order(void *context);

/* True: one has come. */
bool interrupt_came(struct interrupt *interrupt) __attribute__((warn_unused_result));

/* Restores the signals; one that has come ends the process. Not needed if the process ends anyway. */
void interrupt_end(struct interrupt *interrupt);

#endif
