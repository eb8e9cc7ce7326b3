/* SPDX-License-Identifier: MIT */
/* Leases and masters that answer as a test tells them. See fake_lease.h. */
#include "fake_lease.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"

static const char fake_token[] = "0123456789abcdef0123456789abcdef01234567";

void fake_leases_init(struct leases *leases)
{
	memset(leases, 0, sizeof *leases);
	leases->answer.status = LEASE_OK;
	leases->answer.votes = (struct redlock_votes){.needed = 2, .granted = 3, .masters = 3};
	memcpy(leases->answer.token, fake_token, LEASE_TOKEN_LEN);
	leases->answer.fence = FAKE_FENCE;
	leases->answer.ttl_ms = 30000;
	leases->answer.validity_ms = 29690;
	leases->answer.drift_ms = 302;
}

void fake_masters_init(struct masters *masters)
{
	memset(masters, 0, sizeof *masters);
	masters->count = 3;
	masters->quorum = (struct quorum_status){.needed = 2, .voting = 3, .masters = 3};
	for (size_t i = 0; i < masters->count; i++) {
		snprintf(masters->status[i].address, sizeof masters->status[i].address, "127.0.0.1:%zu", 6379 + i);
		masters->status[i].state = MASTER_VOTING;
	}
}

struct lease_op *lease_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
			      void *arg)
{
	leases->submitted++;
	leases->last = *request;
	leases->last.resource = memcpy(leases->last_names, request->resource, request->resource_len);
	if (request->owner_len > 0)
		leases->last.owner = memcpy(leases->last_owner, request->owner, request->owner_len);
	for (size_t i = 0; i < FAKE_OPS_MAX; i++)
		if (!leases->ops[i].used) {
			leases->ops[i] = (struct lease_op){true, *request, done, arg};
			return &leases->ops[i];
		}
	return NULL;
}

static struct leases *leases_of_cancelled;

void lease_cancel(struct lease_op *op)
{
	assert(op->used);
	op->used = false;
	if (leases_of_cancelled)
		leases_of_cancelled->cancelled++;
}

void lease_release_abandoned(struct leases *leases, const struct lease_request *acquired,
			     const char token[LEASE_TOKEN_LEN])
{
	leases->abandoned++;
	snprintf(leases->last_resource, sizeof leases->last_resource, "%.*s", acquired->resource_len,
		 acquired->resource);
	snprintf(leases->last_token, sizeof leases->last_token, "%.*s", LEASE_TOKEN_LEN, token);
}

bool lease_cursor_valid(const struct leases *leases, const char *cursor)
{
	(void)leases;
	return strncmp(cursor, "page-", 5) == 0;
}

struct lease_listing *lease_list(struct leases *leases, const struct lease_list_request *request,
				 lease_list_found_fn *found, lease_list_done_fn *done, void *arg)
{
	leases->listed++;
	leases->last_list = *request;
	for (size_t i = 0; i < FAKE_OPS_MAX; i++)
		if (!leases->listings[i].used) {
			leases->listings[i] = (struct lease_listing){true, *request, found, done, arg};
			return &leases->listings[i];
		}
	return NULL;
}

void lease_list_cancel(struct lease_listing *listing)
{
	assert(listing->used);
	listing->used = false;
	if (leases_of_cancelled)
		leases_of_cancelled->cancelled++;
}

unsigned fake_leases_dispatch(struct leases *leases)
{
	unsigned count = 0;

	leases_of_cancelled = leases;
	for (size_t i = 0; i < FAKE_OPS_MAX && !leases->hold; i++) {
		if (leases->ops[i].used) {
			leases->ops[i].used = false;
			if (leases->ops[i].done)
				leases->ops[i].done(leases->ops[i].arg, &leases->answer);
			count++;
		}
		if (leases->listings[i].used) {
			leases->listings[i].used = false;
			for (size_t at = 0; at < leases->list.count; at++)
				leases->listings[i].found(leases->listings[i].arg, leases->locks[at].resource,
							  leases->locks[at].resource_len, &leases->locks[at].answer);
			leases->listings[i].done(leases->listings[i].arg, &leases->list);
			count++;
		}
	}
	return count;
}

bool lease_watch_is_full(const struct leases *leases)
{
	return leases->watch_full;
}

struct lease_watcher *lease_watch(struct leases *leases, const char *resource, size_t resource_len, const char *seen,
				  uint32_t time_ms, lease_watch_fn *event, void *arg)
{
	struct lease_watcher *watcher = memory_zeroed(1, sizeof *watcher);

	memcpy(watcher->resource, resource, resource_len);
	strcpy(watcher->seen, seen);
	watcher->leases = leases;
	watcher->time_ms = time_ms;
	watcher->event = event;
	watcher->arg = arg;
	leases->watched++;
	leases->watcher = watcher;
	return watcher;
}

const struct lease_answer *lease_watch_take(struct lease_watcher *watcher, const char **ret_tag)
{
	if (watcher->tag[0] == '\0' || strcmp(watcher->seen, watcher->tag) == 0)
		return NULL;
	strcpy(watcher->seen, watcher->tag);
	*ret_tag = watcher->tag;
	return &watcher->state;
}

const char *lease_watch_tag(const struct lease_watcher *watcher)
{
	return watcher->tag;
}

void lease_watch_end(struct lease_watcher *watcher)
{
	watcher->leases->watcher = NULL;
	free(watcher);
}

size_t masters_count(const struct masters *masters)
{
	return masters->count;
}

void masters_status(const struct masters *masters, size_t i, struct master_status *ret_status)
{
	assert(i < masters->count);
	*ret_status = masters->status[i];
}

void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum)
{
	*ret_quorum = masters->quorum;
}

const char *master_state_name(enum master_state state)
{
	return state == MASTER_VOTING ? "voting" : state == MASTER_QUARANTINED ? "quarantined" : "down";
}

struct lease_wanted *lease_wanted_listen(struct leases *leases, const struct lease_request *extension,
					 lease_wanted_fn *event, void *arg)
{
	assert(extension->operation == LEASE_EXTEND && extension->hold);
	leases->wanted = (struct lease_wanted){leases->wanted.listeners + 1, event, arg};
	return &leases->wanted;
}

void lease_wanted_end(struct lease_wanted *wanted)
{
	assert(wanted->listeners > 0);
	wanted->listeners--;
}
