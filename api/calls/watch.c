/* SPDX-License-Identifier: MIT */
/* GET /locks/{resource} and GET /locks?resource=: the state at once, or with its next change (If-None-Match and
 * wait_ms), or as an event stream (Accept: text/event-stream). The resource is watched by server/leases/lease_watch.c.
 *
 * Nothing is queued for a stream, as in hold_stream.c: an event has the state at the time when the client reads it. A
 * client that does not read misses states in between, never the last one; then the deadline of every answer applies. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "calls_internal.h"
#include "server/base/base.h"

enum { COMMENT_MS = 15000 };

struct watch {
	struct call *call;
	struct lease_watcher *watcher; /* NULL: it has ended */
	/* of a stream */
	bool left;        /* the client has left */
	bool comment;     /* to be written */
	struct text text; /* the event that is being written */
	size_t at;        /* how much of `text` has been written */
};

/* The first tag of the list, "" if it cannot be one of ours. */
static void watch_first_seen(const char *list, char ret_tag[LEASE_TAG_MAX])
{
	const char *begin = strchr(list, '"'), *end = begin ? strchr(begin + 1, '"') : NULL;
	size_t len = end ? (size_t)(end - begin) - 1 : 0;
	ret_tag[0] = '\0';
	if (len > 0 && len < LEASE_TAG_MAX)
		snprintf(ret_tag, LEASE_TAG_MAX, "%.*s", (int)len, begin + 1);
}

static void watch_stop(struct watch *watch)
{
	if (watch->watcher)
		lease_watch_end(watch->watcher);
	watch->watcher = NULL;
}

void watch_close(struct call *call)
{
	struct watch *watch = call->watch;
	if (!watch)
		return;
	watch_stop(watch);
	call->watch = NULL;
	text_fini(&watch->text);
	free(watch);
}

bool watch_cancel(struct call *call)
{
	bool waits = call->watch && !call->streams;
	if (waits)
		watch_close(call);
	return waits;
}

/* ---- waiting for one change ---- */

static void watch_resume(struct call *call)
{
	watch_close(call);
	authorize_wait_end(call);
	request_resume(call->request);
}

/* lease_watch_fn */
static void on_wait_event(void *arg, enum lease_watch_event event)
{
	struct call *call = arg;
	const char *tag;
	const struct lease_answer *answer = lease_watch_take(call->watch->watcher, &tag);
	assert(!request_is_answered(call->request) && !call->streams);
	if (event == LEASE_WATCH_DRAINING) {
		call_reject(call, PROBLEM_DRAINING, NULL);
		watch_resume(call);
	} else if (answer && !lock_call_is_seen(call->query->seen, tag)) {
		lock_call_answer(call, answer);
		watch_resume(call);
	} else if (event == LEASE_WATCH_TIME && lease_watch_tag(call->watch->watcher)[0] != '\0') {
		memcpy(call->tag, lease_watch_tag(call->watch->watcher), sizeof call->tag);
		reply_empty(call->request, 304); /* the caller knows this state */
		watch_resume(call);
	} else if (event == LEASE_WATCH_TIME) { /* the wait was too short for a first look */
		watch_close(call);
		lock_call_submit(call);
		if (request_is_answered(call->request))
			request_resume(call->request);
	}
}

/* ---- the stream ---- */

static void watch_write(struct watch *watch)
{
	const char *tag;
	const struct lease_answer *answer = watch->watcher ? lease_watch_take(watch->watcher, &tag) : NULL;
	struct text *text = &watch->text;
	text_fini(text);
	watch->at = 0;
	if (answer) {
		const struct lease_request *lease = &watch->call->lease;
		text_printf(text, "id: %s\n%sdata: ", tag, answer->status == LEASE_OK ? "" : "event: unknown\n");
		state_text_write(text, lease->resource, lease->resource_len, answer);
		text_append(text, "\n\n", 2);
		watch->call->events++;
	} else if (watch->comment) {
		text_append(text, ":\n\n", 3);
	}
	watch->comment = false;
}

/* reply_read_fn: the next piece of the body. */
static ssize_t watch_read(void *arg, char *bytes, size_t size)
{
	struct watch *watch = arg;
	if (watch->left)
		return REPLY_STREAM_BREAK;
	if (watch->at == watch->text.len)
		watch_write(watch);
	size_t len = MIN(watch->text.len - watch->at, size);
	if (len == 0)
		return watch->watcher ? REPLY_STREAM_WAIT : REPLY_STREAM_END;
	memcpy(bytes, watch->text.bytes + watch->at, len);
	watch->at += len;
	return (ssize_t)len;
}

void watch_finish(struct call *call)
{
	watch_stop(call->watch);
	reply_wake(call->request);
}

void watch_leave(struct call *call)
{
	assert(call->streams);
	call->watch->left = true;
	watch_finish(call);
}

/* lease_watch_fn */
static void on_stream_event(void *arg, enum lease_watch_event event)
{
	struct call *call = arg;
	call->watch->comment = event == LEASE_WATCH_TIME;
	if (event == LEASE_WATCH_DRAINING)
		watch_finish(call);
	else
		reply_wake(call->request);
}

/* ---- the call ---- */

void watch_call(struct call *call)
{
	const struct request_context *context = call->request->context;
	struct leases *leases = context->config->leases;
	const struct lease_request *lease = &call->lease;
	char seen[LEASE_TAG_MAX];
	assert(call_has_resource(call) && call->query);
	if (!call->streams && lease->wait_ms == 0) {
		lock_call_submit(call);
		return;
	}
	if (context->draining) {
		call_reject(call, PROBLEM_DRAINING, NULL);
		return;
	}
	if (lease_watch_is_full(leases)) {
		call_reject(call, PROBLEM_TOO_MANY_REQUESTS,
			    "Too many requests watch locks (--max-waiters). Try again after Retry-After.");
		call_retry_after(call, 0);
		return;
	}
	watch_first_seen(call->query->seen, seen);
	call->watch = memory_zeroed(1, sizeof *call->watch);
	call->watch->call = call;
	call->watch->comment = true; /* sends the head of the answer at once */
	call->watch->watcher = lease_watch(leases, lease->resource, lease->resource_len, seen,
					   call->streams ? COMMENT_MS : lease->wait_ms,
					   call->streams ? on_stream_event : on_wait_event, call);
	if (call->streams)
		reply_stream(call->request, 200, "text/event-stream", watch_read, call->watch, REPLY_VANISHED_MS);
}
