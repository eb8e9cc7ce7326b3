/* SPDX-License-Identifier: MIT */
/* A small model of the HTTP side of redlockd (api/calls): requests of clients, and what becomes of them when their
 * connections end. What was granted and could not be written is released; a lease outlives the connection that asked
 * for it; a held one is released when its connection ends, unless its client was told to go on elsewhere. */
#include <assert.h>
#include <string.h>

#include "daemon_world.h"

static struct world *const world = &world_of_all;

/* ---- requests ---- */

/* The request of a client to which an operation belongs; NULL: nobody's. */
struct call *call_of(struct world *of, const void *arg)
{
	const struct call *call = arg;
	if (call < of->calls || call >= of->calls + CALLS)
		return NULL;
	return &of->calls[call - of->calls];
}

struct call *call_waiting(struct world *of, unsigned key, struct entry entry)
{
	for (unsigned i = 0; i < CALLS; i++) {
		struct call *call = &of->calls[i];
		if (call->used && call->waits && call->names >> key & 1 && call->op &&
		    of->procs[call->proc].replica == entry.replica && call->op->core.arrival == entry.arrival)
			return call;
	}
	return NULL;
}

/* Of one resource, or of a set. */
static void write_names(const struct world *of, struct call *call)
{
	struct lease_request *request = &call->request;
	if (!is_set(call->names)) {
		request->resource_len = (uint16_t)strlen(key_name(of, call->key));
		request->resource = key_name(of, call->key);
		return;
	}
	char *at = call->resources;
	FOR_EACH_KEY (key, call->names) {
		at = stpcpy(stpcpy(at, at > call->resources ? "\n" : ""), key_name(of, key));
		request->set_count++;
	}
	assert(at < call->resources + sizeof call->resources);
	request->resource = call->resources;
	request->resource_len = (uint16_t)(at - call->resources);
}

/* NULL: too many. */
struct call *call_begin(struct world *of, unsigned proc, enum lease_operation operation, uint32_t names,
			uint64_t ttl_ms, uint16_t lease)
{
	struct call *call = of->calls;
	while (call < of->calls + CALLS && call->used)
		call++;
	if (call == of->calls + CALLS)
		return NULL;
	if (ttl_ms > of->procs[proc].options.max_ttl_ms)
		ttl_ms = of->procs[proc].options.max_ttl_ms;
	memset(call, 0, sizeof *call);
	*call = (struct call){.used = true,
			      .proc = (uint8_t)proc,
			      .key = (uint8_t)first_key(names),
			      .names = names,
			      .client = CLIENTS,
			      .operation = operation,
			      .serial = ++of->next_serial,
			      .lease = lease,
			      .notified_by = NONE,
			      .token = lease != NONE ? of->leases[lease].token : 0,
			      .came_at = of->now};
	call->request.operation = operation;
	call->request.ttl_ms = (uint32_t)ttl_ms;
	write_names(of, call);
	call->request.owner_len = 1;
	call->request.owner = "1";
	token_write(call->token, call->request.token);
	of->figures->operations++;
	of->operations++;
	return call;
}

static void call_free(struct call *call)
{
	assert(!call->op && !call->listing && !call->hold);
	call->used = false;
}

/* ---- held leases ---- */

static void on_hold(void *arg, enum hold_event event, enum lease_status code)
{
	struct call *call = arg;
	trace(world, world->now, (uint64_t)event << 8 | call->proc, code);
	if (event == HOLD_WANTED)
		return;
	if (event == HOLD_RENEWED) {
		check_renewed(world, call);
		return;
	}
	world->figures->holds_lost += event == HOLD_LOST;
	TELL(world, "p%u: %s of token %llu", call->proc, event == HOLD_LOST ? "tells the loss" : "ends the hold",
	     (unsigned long long)world->leases[call->lease].token);
	if (event == HOLD_LOST && call->request.key == 0)
		check_released(world, call->lease); /* its holder knows */
	hold_drop(call->hold, false);
	call->hold = NULL;
	if (!call->left)
		client_streamed(world, call, event == HOLD_DRAINING);
	call_free(call);
}

/* The connection of a held lease has ended. */
static void drop_hold(struct call *call, bool releases)
{
	releases &= call->request.key == 0; /* another request may have the lease */
	if (releases) {
		check_released(world, call->lease);
		check_given(world, call->proc, world->leases[call->lease].token);
	}
	hold_drop(call->hold, releases);
	call->hold = NULL;
}

/* ---- answers ---- */

/* What was granted and cannot be written to anybody. */
static bool is_lost(struct call *call)
{
	return call->left && (world->healing || one_of(world, 2));
}

static void granted(struct call *call, const struct lease_answer *answer)
{
	bool keyed = call->request.key != 0;
	if (keyed)
		check_keyed(world, call, answer);
	else
		check_granted(world, call, &call->op->core, answer);
	if (!keyed && is_lost(call)) {
		TELL(world, "p%u: cannot write the grant of token %llu", call->proc, (unsigned long long)call->token);
		check_released(world, call->lease);
		check_given(world, call->proc, call->token);
		lease_release_abandoned(world->procs[call->proc].leases, &call->request, answer->token);
	} else if (call->held) {
		world->figures->holds++;
		call->hold = hold_new(world->procs[call->proc].holds, &call->request, answer, on_hold, call);
	} else if (call->left && !keyed) {
		check_released(world, call->lease); /* written, and never read */
		world->leases[call->lease].unread = true;
	}
}

static void on_done(void *arg, const struct lease_answer *answer)
{
	struct call *call = arg;
	struct lease_op *op = call->op;
	assert(call->used && (op || call->operation == LEASE_FORCE));
	trace(world, world->now, (uint64_t)answer->status << 8 | call->proc, answer->fence);
	world->figures->outcomes[answer->status]++;
	const char *token = call->request.key != 0 && answer->status == LEASE_OK ? answer->token : op->attempt.token;
	call->token = token_read(world, token);
	if (call->waits) {
		order_done(world, call, answer);
		order_first(world, call->proc, call->names);
	}
	if (answer->status == LEASE_OK && call->operation == LEASE_ACQUIRE) {
		if (call->request.key == 0)
			order_granted(world, call);
		granted(call, answer);
	} else if (answer->status == LEASE_OK && call->operation == LEASE_EXTEND) {
		check_extended(world, call, op, answer->validity_ms, answer->fence);
	} else if (answer->status == LEASE_OK && call->operation == LEASE_RELEASE) {
		kept_released(world, call, &op->core);
	} else if (call->operation == LEASE_FORCE) {
		check_forced(world, call->key);
	}
	call->op = NULL;
	call->waits = false;
	if (!call->left)
		client_answer(world, call, answer);
	if (!call->hold)
		call_free(call);
}

static void on_found(void *arg, const char *resource, size_t len, const struct lease_answer *answer)
{
	assert(answer->held && key_find(world, resource, len) < KEYS && ((struct call *)arg)->listing);
}

static void on_listed(void *arg, const struct lease_list_answer *answer)
{
	struct call *call = arg;
	call->listing = NULL;
	trace(world, world->now, (uint64_t)answer->status << 8 | call->proc, answer->count);
	world->figures->listed += answer->status == LEASE_OK;
	call_free(call);
}

/* ---- what clients do ---- */

void call_start(struct world *of, struct call *call)
{
	struct proc *proc = &of->procs[call->proc];
	assert(proc->up && !proc->paused);
	if (call->operation == LEASE_FORCE)
		check_force(of, call->key);
	if (call->operation == LEASE_RELEASE)
		check_given(of, call->proc, call->token);
	call->waits = call->request.wait_ms > 0 && !proc->draining && call->request.key == 0;
	bool in_round = of->current == call->proc;
	if (!in_round)
		proc_enter(of, call->proc);
	call->op = lease_submit(proc->leases, &call->request, on_done, call);
	if (call->waits)
		order_begin(of, call);
	if (!in_round)
		proc_leave(of);
}

void call_list(struct world *of, struct call *call)
{
	struct lease_list_request request = {.limit = 10};
	proc_enter(of, call->proc);
	call->listing = lease_list(of->procs[call->proc].leases, &request, on_found, on_listed, call);
	proc_leave(of);
}

static void abort_call(struct call *call, bool releases)
{
	if (call->op) {
		struct lease_op *op = call->op;
		call->op = NULL;
		call->waits = false;
		lease_cancel(op);
		order_first(world, call->proc, call->names);
		if (call->operation == LEASE_FORCE)
			check_forced(world, call->key);
	}
	if (call->listing)
		lease_list_cancel(call->listing);
	call->listing = NULL;
	if (call->hold)
		drop_hold(call, releases);
	call_free(call);
}

/* Its client is gone; redlockd notices it now, or later. */
void call_leave(struct world *of, struct call *call)
{
	of->figures->left++;
	call->left = true;
	if (call->hold && call->request.key == 0)
		check_released(of, call->lease);
	struct event *event = event_new(of, EVENT_NOTICE);
	event->a = (uint16_t)(call - of->calls);
	event->serial = call->serial;
	event_push(of, event, of->now + (of->healing || one_of(of, 2) ? 1 : spread(of, 100, 300 * MS)));
}

void call_notice(struct world *of, const struct event *event)
{
	struct call *call = &of->calls[event->a];
	if (!call->used || call->serial != event->serial)
		return;
	struct proc *proc = &of->procs[call->proc];
	if (proc->paused) {
		struct event *later = event_new(of, EVENT_NOTICE);
		later->a = event->a;
		later->serial = event->serial;
		event_push(of, later, of->now + 20 * MS);
		return;
	}
	proc_enter(of, call->proc);
	TELL(of, "p%u: notices that a client has left", call->proc);
	abort_call(call, true);
	proc_leave(of);
}

/* The process ends: in order, its connections are closed; else its clients find out. */
void calls_end(struct world *of, unsigned proc, bool in_order)
{
	for (unsigned i = 0; i < CALLS; i++) {
		struct call *call = &of->calls[i];
		if (!call->used || call->proc != proc)
			continue;
		if (call->hold && !in_order && !call->left)
			client_streamed(of, call, true); /* it knows its lease, and that nobody renews it */
		else if (!call->left)
			client_forsaken(of, call);
		abort_call(call, in_order);
	}
}
