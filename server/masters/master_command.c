/* Commands under way: sent in the order of their connection, and what is to be done with each answer.
 *
 * Every command under way is a `struct master_call` in the order of its connection. hiredis calls back in that order,
 * also when it drops a connection (then with NULL). Acquisitions wait for one another until the end of the round of the
 * loop, or until something else is sent: they leave as one command (master_batch.c), so they keep their place in the
 * order. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "master_internal.h"
#include "server/base/base.h"

static struct master_command *command_shift(struct master *master, struct master_command *call)
{
	assert(master->first == call);
	master->first = call->next;
	if (!master->first)
		master->last = NULL;
	metrics_add(&master->all->metrics->masters[master->index].in_flight, (uint64_t)-1);
	return call;
}

static void command_recycle(struct master *master, struct master_command *call)
{
	call->next = master->spare;
	master->spare = call;
}

/* A script of the core has its answer. */
static void settle(struct master *master, const struct master_command *done, uint64_t now_us,
		   struct master_reply *mapped, const redisReply *reply)
{
	if (!mapped->lost)
		master_guard_judge_reply(master, done, now_us, mapped);
	if (mapped->vote == REDLOCK_VOTE_FAILED && !mapped->no_script)
		master_count_error(master, mapped->error);
	if (mapped->vote == REDLOCK_VOTE_FAILED)
		master_note_failure(master, mapped, reply);
	if (done->reply)
		done->reply(done->arg, mapped);
}

static const redisReply *part_of(const redisReply *reply, size_t i)
{
	return reply && reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements ? reply->element[i + 1] : reply;
}

/* Several acquisitions went in one command. */
static void settle_batch(struct master *master, struct master_command *first, uint64_t now_us, const redisReply *reply)
{
	size_t count = 0, i = 0;
	uint64_t sent_us = first->sent_us;
	for (const struct master_command *call = first; call; call = call->also)
		count++;
	for (struct master_command *call = first, *also; call; call = also, i++) {
		struct master_command done = *call;
		struct master_reply mapped;
		also = call->also;
		done.sent_us = sent_us;
		command_recycle(master, call);
		master_reply_map_part(reply, i, count, &mapped);
		settle(master, &done, now_us, &mapped, part_of(reply, i));
	}
}

void master_batch_lost(struct master *master)
{
	struct master_command *first = master->batch_first;
	master->batch_first = master->batch_last = NULL;
	master->batch.count = 0;
	master->batch.keys_len = master->batch.arguments_len = 0;
	if (first)
		settle_batch(master, first, clock_now_us(), NULL);
}

static void on_reply(redisAsyncContext *context, void *raw, void *privdata)
{
	(void)context;
	struct master_command *call = privdata;
	struct master *master = call->master;
	const redisReply *reply = raw;
	command_shift(master, call);
	uint64_t now_us = clock_now_us();
	if (reply)
		master_note_answer(master, now_us - call->sent_us);
	if (call->also) {
		settle_batch(master, call, now_us, reply);
		return;
	}
	struct master_command done = *call;
	command_recycle(master, call);
	if (done.pending) {
		master_pending_answered(master, done.pending, reply);
		return;
	}
	master->answered_sent_us = done.sent_us;
	if (done.script == REDLOCK_SCRIPT_NONE) {
		bool of_others = done.arg != master;
		if (of_others && reply && reply->type == REDIS_REPLY_ERROR)
			master_soft_error(master, reply);
		if (done.raw)
			done.raw(done.arg, reply);
		return;
	}
	struct master_reply mapped;
	master_reply_map(done.script, reply, &mapped);
	settle(master, &done, now_us, &mapped, reply);
}

static void end_for_memory(redisAsyncContext *context)
{
	context->c.err = REDIS_ERR_OOM;
	snprintf(context->c.errstr, sizeof context->c.errstr, "out of memory");
}

/* hiredis 0.14 sends a command also where it had no memory to note whom the answer is for, and each later answer would
 * go to the wrong one: then the connection must end before anything of it is written. An error in it does that, with
 * the next step. */
static bool is_noted(redisAsyncContext *context, const struct master_command *call)
{
	const redisCallback *last = context->replies.tail;
	if (last && last->privdata == call)
		return true;
	end_for_memory(context);
	return false;
}

static struct master_command *command_new(struct master *master, enum redlock_script script)
{
	struct master_command *call = master->spare;
	if (call)
		master->spare = call->next;
	else if (!(call = malloc(sizeof *call)))
		return NULL;
	*call = (struct master_command){.master = master, .script = script};
	return call;
}

/* Appends a command to the connection: its answer is call's. */
static bool append(struct master *master, struct master_command *call, const char *command, size_t len)
{
	redisAsyncContext *context = master->io->context;
	call->sent_us = clock_now_us();
	if (redisAsyncFormattedCommand(context, on_reply, call, command, len) != REDIS_OK || !is_noted(context, call))
		return false;
	if (master->last)
		master->last->next = call;
	else
		master->first = call;
	master->last = call;
	metrics_add(&master->all->metrics->masters[master->index].in_flight, 1);
	return true;
}

/* The batch had to go and could not: nothing more may join those who wait for it, until the connection has ended. */
static bool is_batch_stuck(const struct master *master)
{
	return master->batch_first && master->batch.count == 0;
}

/* What the batch has goes out. Where that cannot be the connection ends, and with it the batch (master_batch_lost). */
void master_command_send_batch(struct master *master)
{
	struct master_io *io = master->io;
	if (master->batch.count == 0 || !io || !io->context)
		return;
	char command[MASTER_BATCH_BYTES];
	size_t len = master_batch_take(&master->batch, master->all->hash_key, command);
	if (append(master, master->batch_first, command, len)) {
		master->batch_first = master->batch_last = NULL;
		return;
	}
	if (io->context->c.flags & (REDIS_DISCONNECTING | REDIS_FREEING))
		return;
	end_for_memory(io->context);
	io->want_write = true;
}

/* An acquisition, which may wait for others until the end of this round. */
struct master_command *master_command_join(struct master *master, const char *command, size_t len)
{
	assert(master->io && master->io->context);
	struct master_command *call = command_new(master, REDLOCK_SCRIPT_ACQUIRE);
	if (!call)
		return NULL;
	bool added = !is_batch_stuck(master) && master_batch_add(&master->batch, command, len);
	if (!added) {
		master_command_send_batch(master);
		added = !is_batch_stuck(master) && master_batch_add(&master->batch, command, len);
	}
	if (!added) {
		command_recycle(master, call);
		return NULL;
	}
	if (master->batch_last)
		master->batch_last->also = call;
	else
		master->batch_first = call;
	master->batch_last = call;
	return call;
}

/* Appends a command to the connection, behind what the batch has. NULL where it cannot be (memory, or the connection is
 * being dropped). */
struct master_command *master_command_push(struct master *master, enum redlock_script script, const char *command,
					   size_t len)
{
	assert(master->io && master->io->context);
	master_command_send_batch(master);
	struct master_command *call = command_new(master, script);
	if (call && append(master, call, command, len))
		return call;
	if (call)
		command_recycle(master, call);
	return NULL;
}

/* A command of our own (handshake, heartbeat). */
bool master_command(struct master *master, master_raw_fn *reply, int argc, const char *const argv[])
{
	char *command = NULL;
	long long len = redisFormatCommandArgv(&command, argc, (const char **)(uintptr_t)argv, NULL);
	if (len < 0)
		return false;
	struct master_command *call = master_command_push(master, REDLOCK_SCRIPT_NONE, command, (size_t)len);
	redisFreeCommand(command);
	if (!call)
		return false;
	call->raw = reply;
	call->arg = master;
	return true;
}
