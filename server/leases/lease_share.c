/* SPDX-License-Identifier: MIT */
/* Inspections of one resource by many clients: they share the commands to the masters.
 *
 *     first request ───────► an inspection ─────► its answer, for the first
 *     others, meanwhile ───► wait ──────────────► the next inspection ─────► its answer, for all that waited
 *
 * At a worker, a resource has at most one inspection under way and one to come. So the masters' work does not grow with
 * the clients. No request joins the inspection under way: the masters may have answered that before the request came,
 * and an answer shows all that was answered before its request was sent (docs/reference/http-api.md).
 *
 * Each request has an operation of its own, whose core never starts. It counts in the metrics, and can be cancelled
 * without an effect on others. The inspection belongs to nobody: it goes on when all have left.
 *
 * Inspections of locks that many hold take the masters and this worker as long as several acquisitions. Two of them are
 * under way at once, so that other requests wait little; the next ones follow in the order of their arrival. A bit for
 * each fence bucket remembers whether the last answer listed many holders. Resources that share a bucket share it.
 *
 * Two kinds are not shared: the looks of a watch, which has one for all its watchers (lease_watch.c), and inspections
 * of a listing, which reads the votes of its own (lease_list.c). */
#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum { LONG_AT_ONCE = 2 };

struct lease_share {
	struct lease_name name;
	struct leases *leases;
	unsigned bucket;
	bool has_turn;                 /* it is one of the LONG_AT_ONCE */
	TAILQ_ENTRY(lease_share) turn; /* of those that wait for their turn */
	struct lease_ops ops; /* in the order of their arrival: those of the inspection under way are the first */
	char bytes[];         /* of the name */
};

static void on_inspected(void *arg, const struct lease_answer *answer);

/* One inspection for all that wait. */
static void inspect(struct lease_share *share)
{
	const struct lease_request request = {.operation = LEASE_INSPECT,
					      .unasked = true,
					      .resource_len = (uint16_t)share->name.resource_len,
					      .resource = share->bytes};
	struct lease_op *op;
	TAILQ_FOREACH (op, &share->ops, share.entry)
		op->share.is_asked = true;
	(void)lease_op_submit(share->leases, &request, on_inspected, share);
}

static struct lease_share *share_new(struct leases *leases, const struct lease_name *name)
{
	struct lease_share *share = memory_zeroed(1, sizeof *share + name->resource_len);
	share->leases = leases;
	share->bucket = masters_bucket(name->resource, name->resource_len);
	share->name.resource = memcpy(share->bytes, name->resource, name->resource_len);
	share->name.resource_len = name->resource_len;
	TAILQ_INIT(&share->ops);
	if (!tsearch(share, &leases->shares.by_name, lease_name_compare))
		memory_exhausted("inspection");
	return share;
}

static void share_free(struct lease_share *share)
{
	assert(TAILQ_EMPTY(&share->ops));
	tdelete(share, &share->leases->shares.by_name, lease_name_compare);
	free(share);
}

static void leave_share(struct lease_op *op)
{
	TAILQ_REMOVE(&op->share.inspection->ops, op, share.entry);
	op->share.inspection = NULL;
}

/* ---- turns ---- */

static void remember_length(struct lease_share *share, const struct lease_answer *answer)
{
	uint8_t *byte = &share->leases->shares.are_long[share->bucket / 8];
	uint8_t bit = (uint8_t)(1U << share->bucket % 8);
	bool is_long = answer->several && answer->several->count > LEASE_HOLDERS_FEW;
	*byte = is_long ? *byte | bit : *byte & (uint8_t)~bit;
}

static void begin_inspection(struct lease_share *share)
{
	struct lease_shares *shares = &share->leases->shares;
	if (shares->are_long[share->bucket / 8] >> share->bucket % 8 & 1)
		TAILQ_INSERT_TAIL(&shares->queue, share, turn);
	else
		inspect(share);
}

/* Begins the next inspections, up to the limit. One whose requests have all left ends instead. */
static void give_turns(struct lease_shares *shares)
{
	struct lease_share *next;
	while ((next = TAILQ_FIRST(&shares->queue)) && shares->long_under_way < LONG_AT_ONCE) {
		TAILQ_REMOVE(&shares->queue, next, turn);
		if (TAILQ_EMPTY(&next->ops)) {
			share_free(next);
			continue;
		}
		next->has_turn = true;
		shares->long_under_way++;
		inspect(next);
	}
}

static void on_inspected(void *arg, const struct lease_answer *answer)
{
	struct lease_share *share = arg;
	struct lease_shares *shares = &share->leases->shares;
	struct lease_op *op;
	uint64_t now_us = clock_now_us();
	while ((op = TAILQ_FIRST(&share->ops)) && op->share.is_asked) {
		leave_share(op);
		lease_answer_set(&op->answer, answer);
		op->answer.waited_ms = (uint32_t)((now_us - op->began_us) / 1000);
		lease_op_answered(op, now_us);
	}
	if (answer->status == LEASE_OK)
		remember_length(share, answer);
	assert(!share->has_turn || shares->long_under_way > 0);
	shares->long_under_way -= share->has_turn;
	share->has_turn = false;
	if (op)
		begin_inspection(share);
	else
		share_free(share);
	give_turns(shares);
}

bool lease_share_is_possible(const struct lease_request *request)
{
	return request->operation == LEASE_INSPECT && request->ttl_ms == 0 && !request->wait_for_all && !request->few;
}

struct lease_op *lease_share_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				    void *arg)
{
	const struct lease_name name = {request->resource, request->resource_len};
	struct lease_op *op = lease_op_begin(leases, request, done, arg);
	struct lease_share *const *node = tfind(&name, &leases->shares.by_name, lease_name_compare);
	struct lease_share *share = node ? *node : share_new(leases, &name);
	assert(lease_share_is_possible(request));
	op->share.inspection = share;
	op->share.is_asked = false;
	TAILQ_INSERT_TAIL(&share->ops, op, share.entry);
	if (!node) {
		begin_inspection(share);
		give_turns(&leases->shares);
	}
	return op;
}

void lease_share_cancel(struct lease_op *op)
{
	(void)lease_op_forget_caller(op);
	leave_share(op);
	lease_op_linger(op);
}
