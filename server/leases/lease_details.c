/* SPDX-License-Identifier: MIT */
/* Details of leases that hold a resource together, which the scripts of an inspection leave out.
 *
 *     inspection ─► list of the leases, ─► values of those that are listed, from all masters ─────┬─► answer, or
 *                   from all masters   └─► where no majority has the same, and more are than ─────┘   forced release
 *                                          are listed: their tokens
 *
 * Lua would take much longer than these commands. The inspection of a forced release has a list, and that of a listing
 * of locks a short one with values: while the masters agree, nothing is read of it. If the masters disagree, the tokens
 * show how many leases have a majority; the counts alone do not.
 *
 * Values of a hundred leases keep the masters and this worker busy as long as several acquisitions. So only two
 * inspections read at once; the others wait. A master that does not answer delays only these two: it then counts as
 * hung, and later reads from it end at once.
 *
 * A lease is listed if a majority has reported its value, or may have it; its fence is the largest that was reported. A
 * lease that has ended meanwhile is left out. If no majority answers, neither does the inspection (NO_QUORUM). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum { AT_ONCE = 2 };

struct lease_details {
	struct leases *leases;
	struct lease_op *op; /* NULL: answered, or cancelled */
	TAILQ_ENTRY(lease_details) entry;
	bool has_turn;
	struct lease_holders *several;
	uint64_t began_us;
	size_t needed;
	size_t awaited;    /* reads under way, and functions that use this: sending may end reads */
	bool of_lists;     /* the lists are being read, and nothing else yet */
	uint16_t listed;   /* bit i: the list of master i is there */
	bool of_values;    /* some reads are of values */
	size_t unreported; /* leases whose value no majority has reported yet */
	uint16_t silent;   /* bit i: a read of master i has failed */
	size_t token_count;
	char (*tokens)[LEASE_TOKEN_LEN]; /* of all masters */
	size_t read_count;
	struct details_read {
		struct lease_details *details;
		uint8_t master;
		enum master_read read;
		uint32_t from, to; /* of values: these of the list */
	} reads[];
};

static size_t count_silent(const struct lease_details *details)
{
	return (size_t)__builtin_popcount(details->silent);
}

/* ---- the answer ---- */

static int compare_bytes(const void *a, const void *b)
{
	return memcmp(a, b, LEASE_TOKEN_LEN);
}

/* Counts the leases that a majority has, or may have. */
static void count_tokens(struct lease_details *details)
{
	struct lease_holders *several = details->several;
	size_t silent = count_silent(details);
	if (details->token_count > 0)
		qsort(details->tokens, details->token_count, sizeof *details->tokens, compare_bytes);
	several->count = 0;
	several->digest = 0;
	for (size_t at = 0, next; at < details->token_count; at = next) {
		for (next = at + 1; next < details->token_count; next++)
			if (compare_bytes(details->tokens[at], details->tokens[next]) != 0)
				break;
		if (next - at + silent < details->needed)
			continue;
		several->count++;
		several->digest += lease_several_digest(details->tokens[at]);
	}
}

/* Drops the leases that have ended meanwhile. */
static void keep_reported(struct lease_details *details, uint64_t elapsed_ms)
{
	struct lease_holders *several = details->several;
	uint32_t listed = several->listed;
	several->listed = 0;
	for (uint32_t i = 0; i < listed; i++) {
		struct lease_held *held = &several->list[i];
		bool is_reported = !details->of_values ||
				   (held->reports > 0 && held->reports + count_silent(details) >= details->needed);
		if (is_reported && held->remaining_ms >= elapsed_ms) {
			held->remaining_ms -= elapsed_ms;
			several->list[several->listed++] = *held;
		} else {
			several->count--;
			several->digest -= lease_several_digest(held->token);
			lease_holder_fini(&held->holder);
		}
	}
	qsort(several->list, several->listed, sizeof *several->list, lease_several_compare_fences);
}

static bool lacks_masters(const struct lease_details *details)
{
	return details->op->core.params.masters - count_silent(details) < details->needed;
}

static void put_answer(struct lease_details *details, uint64_t now_us)
{
	struct lease_answer *answer = &details->op->answer;
	uint64_t elapsed_ms = (now_us - details->began_us) / 1000;
	keep_reported(details, elapsed_ms);
	if (details->several->disagree)
		count_tokens(details);
	if (lacks_masters(details)) {
		answer->status = LEASE_NO_QUORUM;
		answer->retry_after_ms = details->op->leases->options->retry_max_ms;
	}
	answer->remaining_ms -= elapsed_ms < answer->remaining_ms ? elapsed_ms : answer->remaining_ms;
	answer->waited_ms += (uint32_t)elapsed_ms;
	answer->several = details->several;
	details->several = NULL;
}

static bool may_answer(const struct lease_details *details)
{
	return !details->of_lists &&
	       (details->awaited == 0 || (details->unreported == 0 && !details->several->disagree));
}

static void give_answer(struct lease_details *details)
{
	struct lease_op *op = details->op;
	uint64_t now_us = clock_now_us();
	assert(op->follow_up == &details->op);
	op->follow_up = NULL;
	put_answer(details, now_us);
	details->op = NULL;
	details->awaited++;
	if (op->request.operation != LEASE_FORCE || !lease_force_release(op))
		lease_op_answered(op, now_us);
	details->awaited--;
}

static void start_reads(struct lease_details *details);
static void end_lists(struct lease_details *details);

/* Starts the reads at the head of the queue, up to the limit. */
static void start_next(struct leases *leases)
{
	struct lease_reads *reads = &leases->reads;
	struct lease_details *next;
	if (reads->starts) /* a caller of this function is starting them */
		return;
	reads->starts = true;
	while ((next = TAILQ_FIRST(&reads->queue)) && reads->under_way < AT_ONCE) {
		TAILQ_REMOVE(&reads->queue, next, entry);
		start_reads(next);
	}
	reads->starts = false;
}

static void end_turn(struct lease_details *details)
{
	if (!details->has_turn)
		return;
	details->has_turn = false;
	assert(details->leases->reads.under_way > 0);
	details->leases->reads.under_way--;
	start_next(details->leases);
}

/* True if all lists are there that will come, or if those of a majority have the same leases. */
static bool lists_suffice(const struct lease_details *details)
{
	const struct lease_op *op = details->op;
	if (details->awaited == 0)
		return true;
	for (unsigned i = 0; i < op->core.params.masters; i++) {
		const struct lease_holders *one = op->seen[i].several;
		size_t alike = 0;
		for (unsigned j = 0; redlock_has(details->listed, i) && j < op->core.params.masters; j++) {
			const struct lease_holders *other = op->seen[j].several;
			alike += redlock_has(details->listed, j) && other->count == one->count &&
				 other->digest == one->digest;
		}
		if (alike >= details->needed)
			return true;
	}
	return false;
}

/* Answers as soon as possible, and frees the details after the last read. */
static void proceed(struct lease_details *details)
{
	if (details->op && details->of_lists && lists_suffice(details))
		end_lists(details);
	if (details->op && may_answer(details))
		give_answer(details);
	if (!details->op) {
		details->awaited++;
		end_turn(details);
		details->awaited--;
	}
	if (details->awaited > 0)
		return;
	lease_several_free(details->several);
	free(details->tokens);
	free(details);
}

/* ---- reads ---- */

static void count_value(struct lease_details *details, struct lease_held *held, const char *value, size_t len)
{
	struct lease_holder holder;
	if (!value || len < LEASE_TOKEN_LEN || memcmp(value, held->token, LEASE_TOKEN_LEN) != 0)
		return;
	lease_value_read_holder(value, len, &holder);
	if (!holder.known)
		return;
	if (held->reports > 0) {
		held->holder.fence = holder.fence > held->holder.fence ? holder.fence : held->holder.fence;
		lease_holder_fini(&holder);
	} else {
		held->holder = holder;
	}
	held->reports++;
	details->unreported -= held->reports == details->needed;
}

static void add_token(struct lease_details *details, const char *token, size_t len)
{
	if (token && len == LEASE_TOKEN_LEN && hex_is_lower(token, len))
		memcpy(details->tokens[details->token_count++], token, len);
}

static void on_read(void *arg, const struct master_scan *scan)
{
	const struct details_read *read = arg;
	struct lease_details *details = read->details;
	size_t asked = read->read == MASTER_READ_VALUES ? read->to - read->from : MASTER_READ_TOKENS_MAX;
	assert(details->awaited > 0);
	details->awaited--;
	if (!scan)
		details->silent |= (uint16_t)(1U << read->master);
	if (scan && details->op && details->of_lists && details->op->seen[read->master].several) {
		details->listed |= (uint16_t)(1U << read->master);
		lease_several_put_list(&details->op->seen[read->master].several, scan);
	}
	bool is_list = read->read == MASTER_READ_LIST;
	for (size_t i = 0; scan && details->op && !is_list && i < scan->key_count && i < asked; i++) {
		size_t len = 0;
		const char *bytes = master_scan_key(scan, i, &len);
		if (read->read == MASTER_READ_TOKENS)
			add_token(details, bytes, len);
		else
			count_value(details, &details->several->list[read->from + i], bytes, len);
	}
	proceed(details);
}

static void add_read(struct lease_details *details, struct details_read read, const struct master_read_command *command)
{
	struct details_read *added = &details->reads[details->read_count++];
	*added = read;
	added->details = details;
	if (masters_send_read(details->op->leases->masters, read.master, command, on_read, added) == MASTER_SENT)
		details->awaited++;
	else
		details->silent |= (uint16_t)(1U << read.master);
}

static void read_values(struct lease_details *details, uint8_t master)
{
	const struct lease_holders *several = details->several;
	const struct lease_request *request = &details->op->request;
	for (uint32_t from = 0; from < several->listed; from += MASTER_READ_VALUES_MAX) {
		struct master_read_command command = {.read = MASTER_READ_VALUES,
						      .resource = request->resource,
						      .resource_len = request->resource_len};
		for (uint32_t i = from; i < several->listed && command.count < MASTER_READ_VALUES_MAX; i++)
			command.tokens[command.count++] = several->list[i].token;
		uint32_t to = from + (uint32_t)command.count;
		struct details_read read = {.master = master, .read = command.read, .from = from, .to = to};
		add_read(details, read, &command);
	}
}

/* The list or the tokens. */
static void read_several(struct lease_details *details, uint8_t master, enum master_read read)
{
	const struct lease_op *op = details->op;
	const struct lease_holders *its = op->seen[master].several;
	const struct master_read_command command = {.read = read,
						    .resource = op->request.resource,
						    .resource_len = op->request.resource_len,
						    .after_ms = its ? its->now_ms : 0};
	if (its)
		add_read(details, (struct details_read){.master = master, .read = read}, &command);
	else if (read == MASTER_READ_TOKENS && !lease_op_voted(op, master, REDLOCK_VOTE_HELD) &&
		 !lease_op_voted(op, master, REDLOCK_VOTE_GONE))
		details->silent |= (uint16_t)(1U << master);
}

static void read_what_is_listed(struct lease_details *details)
{
	const struct lease_holders *several = details->several;
	details->unreported = 0;
	for (uint32_t i = 0; i < several->listed; i++)
		details->unreported += several->list[i].reports == 0;
	details->of_values = details->unreported > 0;
	if (several->disagree)
		details->tokens = memory_alloc(details->op->core.params.masters * MASTER_READ_TOKENS_MAX *
					       sizeof *details->tokens);
	for (uint8_t i = 0; details->op && i < details->op->core.params.masters; i++) {
		if (details->of_values)
			read_values(details, i);
		if (several->disagree)
			read_several(details, i, MASTER_READ_TOKENS);
	}
}

static void end_lists(struct lease_details *details)
{
	details->of_lists = false;
	lease_several_free(details->several);
	details->several = lease_several_merge(details->op);
	assert(details->several);
	details->awaited++;
	read_what_is_listed(details);
	details->awaited--;
}

static void start_reads(struct lease_details *details)
{
	details->has_turn = true;
	details->leases->reads.under_way++;
	details->awaited = 1;
	if (details->op && !details->of_lists)
		read_what_is_listed(details);
	for (uint8_t i = 0; details->op && details->of_lists && i < details->op->core.params.masters; i++)
		read_several(details, i, MASTER_READ_LIST);
	assert(details->awaited > 0);
	details->awaited--;
	proceed(details);
}

bool lease_details_complete(struct lease_op *op)
{
	struct lease_holders *several = op->answer.several;
	size_t masters = op->core.params.masters, unreported = 0;
	bool of_lists = op->request.operation == LEASE_INSPECT && !op->request.few;
	assert(!op->follow_up && (!several || several->shares == 0));
	for (uint32_t i = 0; several && i < several->listed; i++)
		unreported += several->list[i].reports == 0;
	if (op->answer.status != LEASE_OK || !several || (!of_lists && unreported == 0 && !several->disagree))
		return op->request.operation == LEASE_FORCE && lease_force_release(op);
	size_t listed = of_lists ? LEASE_HOLDERS_MAX : several->listed;
	size_t reads = masters * (3 + listed / MASTER_READ_VALUES_MAX);
	struct lease_details *details = memory_zeroed(1, sizeof *details + reads * sizeof *details->reads);
	op->follow_up = &details->op;
	op->answer.several = NULL;
	details->leases = op->leases;
	details->op = op;
	details->several = several;
	details->of_lists = of_lists;
	details->needed = redlock_majority((uint8_t)masters);
	details->began_us = clock_now_us();
	if (details->leases->reads.under_way < AT_ONCE)
		start_reads(details);
	else
		TAILQ_INSERT_TAIL(&details->leases->reads.queue, details, entry);
	return true;
}
