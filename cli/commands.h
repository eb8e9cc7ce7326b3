/* SPDX-License-Identifier: MIT */
/* All commands except run, and their output. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>

#include "cli/http/client.h"

/* Each returns the exit status. This one runs the commands that send requests and end: acquire, extend, release,
 * status, explain, list, masters, health, whoami. */
int commands_run(struct arguments *arguments);

/* Commands that make and hash keys, and send no request. */
int key_command_new(const struct arguments *arguments);
int key_command_hash(const struct arguments *arguments);

/* watch_command.c. Ends only with a failure that will last, or when nobody reads stdout. */
int watch_command(struct client *client);

int restart_command(struct client *client);
int explain_command(struct client *client);

/* drill_command.c */
int drill_command(struct client *client);

/* list.c: appends the locks that the options ask for. False: *ret_answer has the reason; free it in both cases. */
bool list_locks(struct client *client, json_t *ret_locks, bool *ret_more, struct answer *ret_answer);

/* ---- interrupt.c: signals while a command waits ----
 *
 * Signals end it as usual, but first it releases its queue entry, or a lease that was just granted. A signal that was
 * ignored when redlockctl was started (nohup) stays ignored. It must not be blocked, since the kernel keeps blocked
 * signals even if they are ignored. */

struct interrupt {
	int file; /* readable if there is a signal */
	sigset_t before;
	int number; /* of the signal that came; 0: none */
};

/* From now on signals wait until they are read, as orders of the client. False: errno, and it was reported. */
bool interrupt_begin(struct interrupt *interrupt, struct client *client) __attribute__((warn_unused_result));

/* CLIENT_STOP: a signal has arrived. */
enum client_order interrupt_read_order(void *context);

/* Restores the signals; a signal that has arrived ends the process. Not needed if the process ends anyway. */
void interrupt_end(struct interrupt *interrupt);

/* ---- print.c: the results on stdout, for people or as JSON; call print_end() last ---- */

/* owner: may be NULL or empty. with_token: false if the token is in a file, or known. */
void print_lease(const struct client *client, const struct lease *lease, const char *owner, bool with_token);
/* Takes ownership of the object. */
void print_json(json_t *object);

/* For people. */
void print_state(const json_t *state);
void print_locks(const json_t *locks);
/* The same, with how many masters have each lock. */
void print_votes(const json_t *locks);
void print_masters(const json_t *masters);
void print_whoami(const json_t *whoami);

/* Reports an answer that is no success, and frees it. Returns the exit status for it. */
int print_failure(struct client *client, struct answer *answer);

/* Flushes the output, and reports if stdout cannot be written; `reports_pipe`: also if the reader has closed the pipe.
 * Returns the exit status. */
int print_end(bool reports_pipe);

#endif
