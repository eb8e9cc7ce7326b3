/* The commands to one master: sent in the order of its connection, and each answer handed to the sender of its command.
 *
 * Every command under way is a `struct master_command` in the list of its master. hiredis calls back in that order,
 * also when it drops a connection (then with NULL). Acquisitions wait for one another until the end of the round of the
 * loop, or until something else is sent: they leave as one command (master_batch.c), so they keep their position in the
 * order.
 *
 * The oldest command shows whether a master hangs. A hung master gets no new commands but keeps its connection, so that
 * releases still go down the same connection as the acquires that lie in its socket, and in order. It is no longer hung
 * once it has answered what it was behind with. The worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

/* ---- detecting a hung master ---- */

/* True if the oldest command had waited for too long at `when_us`. */
static bool is_behind(const struct master *master, uint64_t when_us)
{
	const struct master_command *oldest = master->first;
	return oldest && when_us > oldest->sent_us &&
	       when_us - oldest->sent_us >= master->all->options->master_timeout_ms * UINT64_C(1000);
}

bool master_command_is_silent(const struct master *master, uint64_t when_us)
{
	if (!is_behind(master, when_us))
		return false; /* as a rule, and then without a system call for each command */
	return !master->link.io || !master_io_has_unread(master->link.io);
}

/* Scans have no deadline of their own: they fail now, and their late answers go nowhere. */
static void fail_scans(struct master *master)
{
	for (struct master_command *command = master->first; command; command = command->next) {
		master_scan_fn *scan = command->scan;
		if (!scan)
			continue;
		command->scan = NULL;
		scan(command->arg, NULL);
	}
}

void master_command_set_hung(struct master *master)
{
	assert(master->link.state == LINK_UP);
	if (master->hung)
		return;
	master->hung = true;
	fail_scans(master);
	snprintf(master->reason, sizeof master->reason, "timeout: no answer for %u ms",
		 master->all->options->master_timeout_ms);
	master_state_report(master);
}

void master_command_note_silence(struct master *master)
{
	if (master->link.state != LINK_UP || !master_command_is_silent(master, clock_now_us()))
		return;
	master_state_count_error(master, MASTER_ERROR_TIMEOUT);
	master_command_set_hung(master);
}

/* An answer of any kind. */
static void note_answer(struct master *master, uint64_t rtt_us)
{
	master->rtt_us = master->has_rtt ? (master->rtt_us * 7 + rtt_us) / 8 : rtt_us;
	master->has_rtt = true;
	histogram_observe(&master->all->metrics->masters[master->index].rtt, rtt_us);
	if (!master->hung || is_behind(master, clock_now_us()))
		return;
	master->hung = false;
	master_state_report(master);
}

/* ---- answers ---- */

static void command_shift(struct master *master, struct master_command *command)
{
	assert(master->first == command);
	master->first = command->next;
	if (!master->first)
		master->last = NULL;
	metrics_add(&master->all->metrics->masters[master->index].in_flight, (uint64_t)-1);
}

static void command_recycle(struct master *master, struct master_command *command)
{
	assert(command->master == master);
	command->next = master->spare;
	master->spare = command;
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
	for (const struct master_command *command = first; command; command = command->also)
		count++;
	for (struct master_command *command = first, *also; command; command = also, i++) {
		struct master_command done = *command;
		struct master_reply mapped;
		also = command->also;
		done.sent_us = sent_us;
		command_recycle(master, command);
		assert(done.script == REDLOCK_SCRIPT_ACQUIRE && done.settle);
		master_reply_map_part(reply, i, count, &mapped);
		done.settle(master, &done, now_us, &mapped, part_of(reply, i));
	}
}

void master_command_fail_batch(struct master *master)
{
	struct master_command *first = master->batch_first;
	assert(!master->link.io);
	master->batch_first = master->batch_last = NULL;
	master->batch.count = 0;
	master->batch.keys_len = master->batch.arguments_len = 0;
	if (first)
		settle_batch(master, first, clock_now_us(), NULL);
}

static void answer_scan(struct master *master, const struct master_command *done, const redisReply *reply)
{
	if (reply && reply->type == REDIS_REPLY_ERROR)
		master_state_doubt_reply(master, reply);
	if (done->scan)
		master_reply_map_scan(reply, done->scan, done->arg);
}

static void on_reply(redisAsyncContext *context, void *raw, void *privdata)
{
	(void)context;
	struct master_command *command = privdata;
	struct master *master = command->master;
	const redisReply *reply = raw;
	command_shift(master, command);
	uint64_t now_us = clock_now_us();
	if (reply)
		note_answer(master, now_us - command->sent_us);
	if (command->also) {
		settle_batch(master, command, now_us, reply);
		return;
	}
	struct master_command done = *command;
	struct master_reply mapped;
	command_recycle(master, command);
	if (done.script != REDLOCK_SCRIPT_NONE) {
		assert(done.settle);
		master_reply_map(done.script, reply, &mapped);
		done.settle(master, &done, now_us, &mapped, reply);
		return;
	}
	master->answered_sent_us = done.sent_us;
	if (done.is_scan)
		answer_scan(master, &done, reply);
	else if (done.answer)
		done.answer(master, reply);
}

/* ---- sending ---- */

/* hiredis 0.14 sends a command also where it had no memory to note whom the answer is for, and each later answer would
 * go to the wrong one: then the connection must end before anything of it is written. An error in it does that, with
 * the next step. */
static bool is_noted(struct master_io *io, const struct master_command *command)
{
	const redisCallback *last = io->context->replies.tail;
	if (last && last->privdata == command)
		return true;
	master_io_end_for_memory(io);
	return false;
}

static struct master_command *command_new(struct master *master, enum redlock_script script)
{
	struct master_command *command = master->spare;
	if (command)
		master->spare = command->next;
	else if (!(command = malloc(sizeof *command)))
		return NULL;
	*command = (struct master_command){.master = master, .script = script};
	return command;
}

/* Appends bytes to the connection: their answer is the command's. */
static bool append(struct master *master, struct master_command *command, const char *bytes, size_t len)
{
	struct master_io *io = master->link.io;
	assert(command->master == master && !command->next);
	command->sent_us = clock_now_us();
	if (redisAsyncFormattedCommand(io->context, on_reply, command, bytes, len) != REDIS_OK ||
	    !is_noted(io, command))
		return false;
	if (master->last)
		master->last->next = command;
	else
		master->first = command;
	master->last = command;
	metrics_add(&master->all->metrics->masters[master->index].in_flight, 1);
	return true;
}

/* The batch had to go and could not: nothing more may join it until the connection has ended. */
static bool is_batch_stuck(const struct master *master)
{
	return master->batch_first && master->batch.count == 0;
}

void master_command_send_batch(struct master *master)
{
	struct master_io *io = master->link.io;
	if (master->batch.count == 0 || !io || !io->context)
		return;
	assert(master->batch_first);
	char bytes[MASTER_BATCH_BYTES];
	size_t len = master_batch_take(&master->batch, master->all->hash_key, bytes);
	if (append(master, master->batch_first, bytes, len)) {
		master->batch_first = master->batch_last = NULL;
		return;
	}
	if (io->context->c.flags & (REDIS_DISCONNECTING | REDIS_FREEING))
		return;
	master_io_end_for_memory(io);
	io->want_write = true;
}

struct master_command *master_command_join(struct master *master, const char *bytes, size_t len)
{
	assert(master->link.io && master->link.io->context);
	struct master_command *command = command_new(master, REDLOCK_SCRIPT_ACQUIRE);
	if (!command)
		return NULL;
	bool added = !is_batch_stuck(master) && master_batch_add(&master->batch, bytes, len);
	if (!added) {
		master_command_send_batch(master);
		added = !is_batch_stuck(master) && master_batch_add(&master->batch, bytes, len);
	}
	if (!added) {
		command_recycle(master, command);
		return NULL;
	}
	if (master->batch_last)
		master->batch_last->also = command;
	else
		master->batch_first = command;
	master->batch_last = command;
	return command;
}

struct master_command *master_command_push(struct master *master, enum redlock_script script, const char *bytes,
					   size_t len)
{
	assert(master->link.io && master->link.io->context && len > 0);
	master_command_send_batch(master);
	struct master_command *command = command_new(master, script);
	if (command && append(master, command, bytes, len))
		return command;
	if (command)
		command_recycle(master, command);
	return NULL;
}

bool master_command_send(struct master *master, master_answer_fn *answer, int argc, const char *const argv[])
{
	assert(argc > 0 && argv[0]);
	char *bytes = NULL;
	long long len = redisFormatCommandArgv(&bytes, argc, (const char **)(uintptr_t)argv, NULL);
	if (len < 0)
		return false;
	struct master_command *command = master_command_push(master, REDLOCK_SCRIPT_NONE, bytes, (size_t)len);
	redisFreeCommand(bytes);
	if (!command)
		return false;
	command->answer = answer;
	return true;
}

bool master_command_send_scan(struct master *master, const char *bytes, size_t len, master_scan_fn *scan, void *arg)
{
	assert(scan);
	struct master_command *command = master_command_push(master, REDLOCK_SCRIPT_NONE, bytes, len);
	if (!command)
		return false;
	command->is_scan = true;
	command->scan = scan;
	command->arg = arg;
	return true;
}
