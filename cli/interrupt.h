/* Signals while the command `acquire` waits: they end it as they always do, but not before the place in the line, or
 * the lease that has just come, was given back. */
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

/* From now on they are kept until asked for. False: errno. */
bool interrupt_begin(struct interrupt *interrupt) __attribute__((warn_unused_result));

/* For struct acquire: the context is the struct interrupt. */
enum acquire_order interrupt_read_order(void *context);

/* True: one has come. */
bool interrupt_came(struct interrupt *interrupt) __attribute__((warn_unused_result));

/* As it was before; the one that came ends the process. Returns if none did. Not needed where the process ends
 * anyway. */
void interrupt_end(struct interrupt *interrupt);

#endif
