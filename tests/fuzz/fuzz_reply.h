/* SPDX-License-Identifier: MIT */
/* The parts of fuzz_reply. Each has the file of server/ built in whose static functions it tests. */
#ifndef FUZZ_REPLY_H
#define FUZZ_REPLY_H

#include <hiredis/hiredis.h>

/* fuzz_reply_guard.c: as the answer to each of the guard's scripts. */
void fuzz_check_guard_answer(const redisReply *reply);

/* fuzz_reply_queue.c: as a message on the channel on which waiters are notified, for a worker with that prefix. */
void fuzz_check_message(const redisReply *reply, const char *key_prefix);

#endif
