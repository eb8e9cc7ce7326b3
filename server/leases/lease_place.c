/* Places in the queue that are kept for waits that go on in another request, at any redlockd of the cluster: writes
 * them into the commands of an operation (server/scripts/lib/queue.lua). lease_keyed.c asks for them. Pure.
 *
 * A place is a matter of order: it decides which request may try, and the votes alone which one gets the lock. */
#include <assert.h>

#include "lease_internal.h"

/* The wait ends, and not because the client has left. */
static bool is_over(const struct lease_op *op, const struct redlock_output *out)
{
	return op->request.operation == LEASE_ACQUIRE && op->request.key != 0 && out->entry == REDLOCK_ENTRY_LEAVE &&
	       (op->core.state == REDLOCK_LEAVING || op->wait.drained);
}

void lease_place_write(struct lease_op *op, const struct redlock_output *out, struct master_script *command)
{
	const struct lease_request *request = &op->request;
	assert(command->entry.place == 0);
	if (is_over(op, out)) {
		command->entry.place = request->key;
		op->wait.place_kept = true;
	}
	if (!lease_place_is_asked_for(op))
		return;
	command->token = NULL;
	command->entry = (struct master_entry){
		.wait_ms = request->wait_ms, .of_set = request->set_count > 0, .place = request->key};
}

uint64_t lease_place_arrival(const struct lease_op *taker)
{
	const struct redlock *core = &taker->core;
	assert(lease_place_is_asked_for(taker));
	for (unsigned i = 0; i < core->params.masters; i++) {
		unsigned votes = 0;
		for (unsigned j = 0; lease_op_voted(taker, i, REDLOCK_VOTE_GRANTED) && j < core->params.masters; j++)
			votes += lease_op_voted(taker, j, REDLOCK_VOTE_GRANTED) &&
				 core->ballots[j].fence == core->ballots[i].fence;
		if (votes >= redlock_majority(core->params.masters))
			return core->ballots[i].fence;
	}
	return 0;
}
