/* What the program says of itself: its line in the log when it serves, --check, and the first steps of --dev. For the
 * main thread. No secret is shown: passwords are not part of the addresses of masters. */
#ifndef SHOW_H
#define SHOW_H

#include "server/config/config.h"

struct reload;
struct tls;

/* Logs that it serves: where, with which masters, and the options that are not as they are by default. `listeners`: the
 * descriptors of one worker, in the order of options->listen. */
void show_start(const struct options *options, const int listeners[]);

/* Prints commands to try, and where the status page is. `tls`: the certificate of https listeners; may be NULL. */
void show_first_steps(const struct options *options, const struct tls *tls);

/* Prints what would run. */
void show_check(const struct options *options, const struct reload *reload);

#endif
