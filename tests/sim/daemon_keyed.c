/* SPDX-License-Identifier: MIT */
/* Checks of leases that are extended without a client's request: those of acquisitions with an Idempotency-Key, which
 * are noted before their answer, and held ones. */
#include <assert.h>
#include <string.h>

#include "daemon_world.h"

enum { OWN_US = 1500000 };

/* The newest extension of a lease that is decided, by its callback's argument (NULL: any) and with a key or without. */
static const struct lease_op *find_extension(const struct world *world, unsigned proc, uint64_t of, const void *arg,
					     bool keyed)
{
	const struct lease_op *newest = NULL;
	char token[RANDOM_TOKEN_LEN];
	token_write(of, token);
	for (const struct lease_op *op = world->procs[proc].leases->all; op; op = op->all_next)
		if (op->request.operation == LEASE_EXTEND && memcmp(op->attempt.token, token, sizeof token) == 0 &&
		    op->core.state == REDLOCK_DECIDED && op->answer.status == LEASE_OK &&
		    (!arg || op->caller.arg == arg) && (op->request.key != 0) == keyed &&
		    (!newest || op->began_us > newest->began_us))
			newest = op;
	return newest;
}

/* An acquisition with a key is answered: a new lease, or an earlier request's. */
void check_keyed(struct world *world, struct call *call, const struct lease_answer *answer)
{
	const struct lease_op *extension = find_extension(world, call->proc, call->token, NULL, true);
	const struct trail *trail = &world->trails[call->token];
	world->figures->keyed++;
	world->figures->keyed_again += answer->again;
	call->lease = trail->lease;
	if (trail->asked != call->request.key || trail->names != call->names)
		fail(world, "key: token %llu of r%u is given to a request with another key for r%u",
		     (unsigned long long)call->token, first_key(trail->names), call->key);
	if (!extension)
		fail(world, "key: token %llu is given for r%u, and no majority has extended it",
		     (unsigned long long)call->token, call->key);
	if (!extension || world->failed)
		return;
	if (!trail->leased) {
		check_granted(world, call, &extension->core, answer);
		return;
	}
	check_extended(world, call, extension, answer->validity_ms, answer->fence);
}

/* A held lease: by the newest of its extensions. */
void check_renewed(struct world *world, struct call *call)
{
	const struct lease_op *newest = find_extension(world, call->proc, world->leases[call->lease].token, call->hold,
						       false);
	assert(newest);
	check_extended(world, call, newest, hold_validity_ms(call->hold), newest->answer.fence);
}

/* A noted lease of its own key is on a majority. */
static bool is_own(struct world *world, const struct call *call)
{
	unsigned masters = 0;
	for (unsigned i = 0; i < world->config.nodes; i++) {
		node_sync(world, i);
		masters += node_has_asked(&world->nodes[i], call->key, call->request.key);
	}
	return masters >= world->config.nodes / 2U + 1;
}

/* Nobody waits for a lock of its own. */
void check_own(struct world *world, struct call *call)
{
	if (!call->used || !call->op || call->left || call->request.key == 0 || !is_own(world, call))
		call->own_since = 0;
	else if (call->own_since == 0)
		call->own_since = world->now;
	else if (world->now - call->own_since > OWN_US + 2 * world->config.timeout_us)
		fail(world, "own: one of p%u waits for r%u, which a lease of its own key holds, since %llu ms",
		     call->proc, call->key, (unsigned long long)((world->now - call->own_since) / MS));
}
