/* SPDX-License-Identifier: MIT */
/* The store (store.h) beside the real server: it carries out each command, too, and each answer and each message must
 * be the same. The clock of the server stands still between two calls of compare_store_set_time(). */
#ifndef COMPARE_STORE_H
#define COMPARE_STORE_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "store.h"

void compare_store_start(void);
void compare_store_stop(void);
void compare_store_set_time(uint64_t now_us);

/* The store, for the choice of the next step. */
const struct store *compare_store(void);
/* The number of the sequence with the different answer or message. */
unsigned compare_store_differing(void);
/* Carries out a command that is sent to the server, in Redis' protocol. */
void compare_store_note_command(const char *bytes, size_t len);
/* The server's next answer, or its next message. False: the store's differs, and both were printed. */
bool compare_store_check(const redisReply *its);
bool compare_store_check_message(const redisReply *message);

#endif
