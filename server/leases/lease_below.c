/* SPDX-License-Identifier: MIT */
/* Leases whose last extension got fewer votes than there are masters: with one master less they could be lost. Each is
 * remembered until its next extension, its release or its end. Extensions by another redlockd, or by another worker of
 * this one, are not seen here. */
#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum { SWEEP_MS = 1000, SWEEP_SHARE = 16 }; /* each second a sixteenth of them, and 16 more, are checked */

static int compare(const void *a, const void *b)
{
	uint64_t one = ((const struct lease_below_entry *)a)->id, other = ((const struct lease_below_entry *)b)->id;
	return (one > other) - (one < other);
}

static void forget(struct leases *leases, struct lease_below_entry *entry)
{
	struct lease_below *below = &leases->below;
	assert(below->count > 0);
	tdelete(entry, &below->by_id, compare);
	TAILQ_REMOVE(&below->all, entry, entry);
	free(entry);
	metrics_set(&leases->metrics->leases_below_full, --below->count);
}

static struct lease_below_entry *find_below(struct leases *leases, uint64_t id)
{
	const struct lease_below_entry key = {.id = id};
	struct lease_below_entry *const *found = tfind(&key, &leases->below.by_id, compare);
	return found ? *found : NULL;
}

static struct lease_below_entry *add_below(struct leases *leases, const struct lease_op *op)
{
	struct lease_below *below = &leases->below;
	struct lease_below_entry *entry = memory_zeroed(1, sizeof *entry + op->request.resource_len);
	entry->id = lease_value_token_id(op->attempt.token);
	entry->returns = below->returns;
	memcpy(entry->token, op->attempt.token, sizeof entry->token);
	entry->set_count = op->request.set_count;
	entry->resource_len = op->request.resource_len;
	memcpy(entry->resource, op->request.resource, op->request.resource_len);
	if (!tsearch(entry, &below->by_id, compare))
		memory_exhausted("lease");
	TAILQ_INSERT_TAIL(&below->all, entry, entry);
	metrics_set(&leases->metrics->leases_below_full, ++below->count);
	return entry;
}

enum { AGAIN_MAX = 3 };

/* True if the lease should be extended again although no master has returned since. Either a master began to vote while
 * the extension was under way, or it refused the repair: another repair came first, perhaps with an earlier end, or its
 * bucket was raised in between. Only a few times for each extension of the holder: a master that has given the slot to
 * another lease refuses each repair. */
static bool is_due_again(const struct lease_below_entry *entry, const struct lease_op *op, unsigned voting)
{
	bool has_returned = !op->request.unasked && (unsigned)__builtin_popcount(op->attempt.reached) < voting;
	return entry->again < AGAIN_MAX && (op->replies.is_overtaken || has_returned);
}

void lease_below_begin(struct leases *leases)
{
	struct quorum_status quorum;
	if (leases->below.count > 0 || !TAILQ_EMPTY(&leases->queues.by_age))
		return;
	masters_quorum(leases->masters, &quorum);
	leases->below.voting = quorum.voting;
}

static void remember(struct leases *leases, const struct lease_op *op)
{
	struct lease_below *below = &leases->below;
	struct quorum_status quorum;
	struct lease_below_entry *entry = find_below(leases, lease_value_token_id(op->attempt.token));
	/* redlockd's own extension may end late: the holder may have released the lease since, or extended it on every
	 * master */
	if (!entry && op->request.unasked)
		return;
	masters_quorum(leases->masters, &quorum);
	lease_below_begin(leases);
	if (!entry)
		entry = add_below(leases, op);
	if (!op->request.unasked)
		entry->again = 0;
	if (is_due_again(entry, op, quorum.voting)) {
		entry->again++;
		entry->returns = below->returns - 1;
		TAILQ_REMOVE(&below->all, entry, entry);
		TAILQ_INSERT_HEAD(&below->all, entry, entry);
	}
	/* A shorter extension does not shorten the lease. On every master it ends later than this. */
	entry->until_us = MAX(entry->until_us, op->began_us + op->request.ttl_ms * UINT64_C(1000));
}

/* True if nobody will extend the lease any more. A release that failed counts, too. */
static bool ends(const struct lease_op *op)
{
	return op->request.operation == LEASE_RELEASE || op->answer.status == LEASE_OK ||
	       op->answer.status == LEASE_EXPIRED || op->answer.status == LEASE_NOT_OWNER;
}

struct lease_below_entry *lease_below_next(const struct lease_below *below)
{
	struct lease_below_entry *first = TAILQ_FIRST(&below->all);
	return first && first->returns != below->returns ? first : NULL;
}

void lease_below_move_to_end(struct lease_below *below, struct lease_below_entry *entry)
{
	TAILQ_REMOVE(&below->all, entry, entry);
	TAILQ_INSERT_TAIL(&below->all, entry, entry);
}

void lease_below_update(const struct lease_op *op)
{
	struct leases *leases = op->leases;
	bool extends = op->request.operation == LEASE_EXTEND;
	if (extends && op->answer.status == LEASE_OK &&
	    __builtin_popcount(op->replies.extended) < op->core.params.masters) {
		remember(leases, op);
		return;
	}
	if (leases->below.count == 0 || !(extends || op->request.operation == LEASE_RELEASE) || !ends(op))
		return;
	struct lease_below_entry *entry = find_below(leases, lease_value_token_id(op->attempt.token));
	if (entry)
		forget(leases, entry);
}

void lease_below_sweep(struct leases *leases)
{
	struct lease_below *below = &leases->below;
	if (below->count == 0 || lease_below_next(below))
		return;
	uint64_t now_us = clock_now_us();
	if (now_us < below->swept_us + SWEEP_MS * UINT64_C(1000))
		return;
	below->swept_us = now_us;
	for (size_t left = below->count / SWEEP_SHARE + SWEEP_SHARE; left > 0 && below->count > 0; left--) {
		struct lease_below_entry *entry = TAILQ_FIRST(&below->all);
		lease_below_move_to_end(below, entry);
		if (entry->until_us <= now_us)
			forget(leases, entry);
	}
}

void lease_below_free(struct leases *leases)
{
	while (leases->below.count > 0)
		forget(leases, TAILQ_FIRST(&leases->below.all));
}
