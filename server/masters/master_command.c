/* SPDX-License-Identifier: MIT */
/* The commands to one master: sent in the order of its connection, and each answer handed to the sender of its command.
 *
 * Every command under way is a `struct master_command` in the list of its master. The transport calls back in that
 * order, also when a connection ends (then with NULL). Commands of one script wait for one another until the end of the
 * round of the loop, and leave as one (master_script.c). Two for one resource never change their order: before a
 * command joins a batch, or leaves alone, the other batches that may have its resource leave.
 *
 * The oldest command shows whether a master hangs. A hung master gets no new commands but keeps its connection. So
 * releases follow the acquires that lie in its socket, in order. It is no longer hung once it has answered the overdue
 * commands. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

/* ---- detecting a hung master ---- */

/* True if the oldest command had waited for too long at `when_us`. */
static bool is_overdue(const struct master *master, uint64_t when_us)
{
	const struct master_command *oldest = STAILQ_FIRST(&master->under_way);
	return oldest && when_us > oldest->sent_us &&
	       when_us - oldest->sent_us >= master->all->options->master_timeout_ms * UINT64_C(1000);
}

bool master_command_is_silent(const struct master *master, uint64_t when_us)
{
	if (!is_overdue(master, when_us))
		return false; /* the usual case, without a system call for each command */
	return !master->link.connection || !transport_has_unread(master->link.connection);
}

/* Reads have no deadline of their own: they fail now, and their late answers are dropped. */
static void fail_scans(struct master *master)
{
	struct master_command *command;
	STAILQ_FOREACH (command, &master->under_way, entry) {
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

void masters_check_silence(struct masters *masters, size_t i)
{
	struct master *master = &masters->list[i];
	assert(i < masters->count);
	if (master->link.state != LINK_UP || !master_command_is_silent(master, clock_now_us()))
		return;
	master_state_count_error(master, MASTER_ERROR_TIMEOUT);
	master_command_set_hung(master);
}

/* An answer of any kind. */
static void count_answer(struct master *master, uint64_t rtt_us)
{
	master->rtt_us = master->rtt_us > 0 ? (master->rtt_us * 7 + rtt_us + 7) / 8 : rtt_us + 1;
	histogram_observe(&master->metrics->rtt, rtt_us);
	if (!master->hung || is_overdue(master, clock_now_us()))
		return;
	master->hung = false;
	master_state_report(master);
}

/* ---- answers ---- */

static const redisReply *part_of(const redisReply *reply, size_t i)
{
	return reply && reply->type == REDIS_REPLY_ARRAY && reply->elements > 2 && i + 1 < reply->elements
		       ? reply->element[i + 1]
		       : reply;
}

/* A script of the core, or a batch. */
static void settle_all(struct master *master, struct master_command *first, uint64_t now_us, const redisReply *reply)
{
	size_t count = 0, i = 0;
	uint64_t sent_us = first->sent_us;
	for (const struct master_command *command = first; command; command = STAILQ_NEXT(command, also))
		count++;
	for (struct master_command *command = first, *also; command; command = also, i++) {
		struct master_command done = *command;
		struct master_reply mapped;
		also = STAILQ_NEXT(command, also);
		done.sent_us = sent_us;
		STAILQ_INSERT_HEAD(&master->spare, command, entry);
		if (count == 1)
			master_reply_map(done.kind, reply, &mapped);
		else
			master_reply_map_part(done.kind, reply, i, count, &mapped);
		done.settle(master, &done, now_us, &mapped, count == 1 ? reply : part_of(reply, i));
	}
}

void master_command_init_batches(struct master *master)
{
	for (size_t i = 0; i <= REDLOCK_SCRIPT_INSPECT; i++)
		STAILQ_INIT(&master->batches[i].commands);
}

/* Empties the batch. Returns its first command, or NULL. */
static struct master_command *take_batch(struct master_batch *batch)
{
	struct master_command *first = STAILQ_FIRST(&batch->commands);
	STAILQ_INIT(&batch->commands);
	batch->count = 0;
	memset(batch->resources, 0, sizeof batch->resources);
	return first;
}

void master_command_fail_batches(struct master *master)
{
	assert(!master->link.connection);
	for (size_t i = 0; i <= REDLOCK_SCRIPT_INSPECT; i++) {
		struct master_command *first = take_batch(&master->batches[i]);
		if (first)
			settle_all(master, first, clock_now_us(), NULL);
	}
}

static void answer_scan(struct master *master, const struct master_command *done, const redisReply *reply)
{
	if (reply && reply->type == REDIS_REPLY_ERROR)
		master_state_doubt_reply(master, reply);
	if (done->has_cursor)
		master_reply_map_scan(reply, done->scan, done->arg);
	else
		master_reply_map_read(reply, done->scan, done->arg);
}

void master_command_answer(struct master *master, const redisReply *reply)
{
	struct master_command *command = STAILQ_FIRST(&master->under_way);
	assert(command);
	STAILQ_REMOVE_HEAD(&master->under_way, entry);
	metrics_add(&master->metrics->in_flight, (uint64_t)-1);
	uint64_t now_us = clock_now_us();
	if (reply)
		count_answer(master, now_us - command->sent_us);
	if (command->kind != REDLOCK_SCRIPT_NONE) {
		settle_all(master, command, now_us, reply);
		return;
	}
	struct master_command done = *command;
	STAILQ_INSERT_HEAD(&master->spare, command, entry);
	master->answered_sent_us = done.sent_us;
	if (done.scan)
		answer_scan(master, &done, reply);
	else if (done.answer && reply)
		done.answer(master, done.what, reply);
}

/* ---- sending ---- */

static struct master_command *command_new(struct master *master)
{
	struct master_command *command = STAILQ_FIRST(&master->spare);
	if (command)
		STAILQ_REMOVE_HEAD(&master->spare, entry);
	else
		command = memory_alloc(sizeof *command);
	*command = (struct master_command){.kind = REDLOCK_SCRIPT_NONE};
	return command;
}

static void append(struct master *master, struct master_command *command, size_t count,
		   const struct transport_word arguments[])
{
	assert(master->link.connection);
	command->sent_us = clock_now_us();
	STAILQ_INSERT_TAIL(&master->under_way, command, entry);
	metrics_add(&master->metrics->in_flight, 1);
	transport_send(master->link.connection, count, arguments);
}

/* Not inlined: the end of one waiter may begin the next one's attempt, and the arguments must not lie on the stack of
 * that recursion. */
static __attribute__((noinline)) void append_script(struct master *master, struct master_command *command)
{
	struct master_arguments arguments;
	master_script_write(master, command, &arguments);
	append(master, command, arguments.count, arguments.arguments);
}

static void send_batch(struct master *master, struct master_batch *batch)
{
	if (batch->count > 0 && master->link.connection)
		append_script(master, take_batch(batch));
}

void master_command_send_batches(struct master *master)
{
	for (size_t i = 0; i <= REDLOCK_SCRIPT_INSPECT; i++)
		send_batch(master, &master->batches[i]);
}

static bool may_join(const struct master_script *script)
{
	bool is_plain = script->kind == MASTER_EXCLUSIVE || script->script != REDLOCK_SCRIPT_ACQUIRE;
	bool is_long = script->script == REDLOCK_SCRIPT_INSPECT && script->list_max > MASTER_BATCH_LISTED_MAX;
	return is_plain && !is_long && script->script != REDLOCK_SCRIPT_RAISE && !script->with_source &&
	       !script->alone && script->set_count == 0;
}

/* A batch sends one epoch and one deadline: those of its first command, whose deadline may be a little earlier. */
static bool fits(const struct master_batch *batch, const struct master_command *command)
{
	const struct master_command *first = STAILQ_FIRST(&batch->commands);
	unsigned count_max = command->kind == REDLOCK_SCRIPT_INSPECT ? MASTER_BATCH_INSPECT_MAX : MASTER_BATCH_MAX;
	return !first || (batch->count < count_max && first->epoch == command->epoch &&
			  first->deadline_us <= command->deadline_us &&
			  command->deadline_us - first->deadline_us <= MASTER_BATCH_SPAN_US);
}

static void join(struct master *master, struct master_command *command)
{
	struct master_batch *batch = &master->batches[command->kind];
	unsigned word = command->script->bucket % MASTER_BATCH_BITS / 64;
	uint64_t bit = UINT64_C(1) << command->script->bucket % 64;
	for (size_t i = 0; i <= REDLOCK_SCRIPT_INSPECT; i++)
		if (&master->batches[i] != batch && (master->batches[i].resources[word] & bit) != 0)
			send_batch(master, &master->batches[i]);
	if (!fits(batch, command))
		send_batch(master, batch);
	STAILQ_INSERT_TAIL(&batch->commands, command, also);
	batch->count++;
	batch->resources[word] |= bit;
}

void master_command_send_script(struct master *master, const struct master_script *script, uint64_t until_us,
				master_settle_fn *settle, master_reply_fn *reply, void *arg)
{
	assert(master->link.connection && script->script != REDLOCK_SCRIPT_NONE && settle);
	struct master_command *command = command_new(master);
	command->kind = script->script;
	command->script = script;
	command->settle = settle;
	command->reply = reply;
	command->arg = arg;
	master_script_stamp(master, until_us, command);
	if (may_join(script)) {
		join(master, command);
		return;
	}
	master_command_send_batches(master);
	append_script(master, command);
}

void master_command_send(struct master *master, master_answer_fn *answer, unsigned what, const char *const argv[])
{
	struct transport_word arguments[MASTER_COMMAND_ARGUMENTS_MAX];
	size_t count = 0;
	assert(argv[0] && master->link.connection);
	for (; argv[count]; count++)
		arguments[count] = (struct transport_word){argv[count], strlen(argv[count])};
	assert(count <= MASTER_COMMAND_ARGUMENTS_MAX);
	master_command_send_batches(master);
	struct master_command *command = command_new(master);
	command->answer = answer;
	command->what = what;
	append(master, command, count, arguments);
}

void master_command_send_read(struct master *master, const struct master_arguments *arguments, bool has_cursor,
			      master_scan_fn *scan, void *arg)
{
	assert(scan && master->link.connection);
	master_command_send_batches(master);
	struct master_command *command = command_new(master);
	command->scan = scan;
	command->has_cursor = has_cursor;
	command->arg = arg;
	append(master, command, arguments->count, arguments->arguments);
}
