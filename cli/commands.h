/* The commands but run, and what they print. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/http/client.h"

/* Each returns the exit status. Those that send requests and end: acquire, extend, release, status, list, masters,
 * health. */
int commands_run(struct arguments *arguments);

/* Commands that make and hash keys, and send no request. */
int key_command_new(const struct arguments *arguments);
int key_command_hash(const struct arguments *arguments);

/* watch_command.c. Ends only with a failure that will last, or when nobody reads stdout. */
int watch_command(struct client *client);

/* restart_command.c. */
int restart_command(struct client *client);

/* list.c: appends the locks that the options ask for. False: *ret_answer says why not; free it either way. */
bool list_locks(struct client *client, json_t *ret_locks, bool *ret_more, struct answer *ret_answer);

/* ---- print.c: the results on stdout, for people or as JSON; after all print_end() ---- */

/* owner: may be NULL or empty. The token is left out where it is in a file, or known. */
void print_lease(const struct client *client, const struct lease *lease, const char *owner, bool with_token);
/* Takes ownership of the object. */
void print_json(json_t *object);

/* For people. */
void print_state(const json_t *state);
void print_locks(const json_t *locks);
/* The same, with how many masters have each lock. */
void print_votes(const json_t *locks);
void print_masters(const json_t *masters);

/* Reports an answer that is no success, and frees it. Returns the exit status for it. */
int print_failure(struct client *client, struct answer *answer);

/* Writes what was printed, and reports if stdout cannot be written: with `reports_pipe` also if its reader has closed a
 * pipe. Returns the exit status. */
int print_end(bool reports_pipe);

#endif
