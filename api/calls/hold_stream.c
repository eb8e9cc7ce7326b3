/* SPDX-License-Identifier: MIT */
/* The stream of a held lock (`hold: true`): lines of JSON that end when the lease does; the lease ends when the
 * connection does. The lease itself is kept by server/leases/hold.c.
 *
 *     granted ─► {"event":"acquired",…} ─► suspended ⇄ {"event":"renewed",…} … ─► {"event":"lost",…}
 *                                          or {"event":"wanted",…}
 *     or {"event":"draining",…} ─► end
 *
 * Nothing is queued: renewals that the client has not read yet are one flag, as are first waiters, and the remaining
 * validity is computed when the line is written. So a client that does not read costs only the line that the library
 * could not write. If it does not read that within --request-timeout-ms, its connection is closed, which releases the
 * lock.
 *
 * A client that vanishes (http.h) may only be cut off, and relies on the lease until the last validity that it got is
 * over. So the lease is not released before that time: a short lease is released, a longer one is only not extended any
 * more. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "calls_internal.h"

enum { VANISHED_LEAST_MS = 1000 }; /* a lost packet or two must not cost a lock, however short its lease */

static unsigned stream_vanished_ms(const struct call *call)
{
	return MIN(MAX(call->lease.ttl_ms, (unsigned)VANISHED_LEAST_MS), (unsigned)REPLY_VANISHED_MS);
}

/*     OPEN ──► LAST (the last line is to be sent) ──► ENDED (the library has taken it)
 *       └────► LEFT (the client has left) */
enum hold_stream_state { STREAM_OPEN, STREAM_LAST, STREAM_ENDED, STREAM_LEFT };

struct hold_stream {
	struct call *call;
	struct hold *hold;         /* NULL: the lease has been released already */
	struct token_newer *newer; /* NULL: the caller is not known by a token */
	enum hold_stream_state state;
	bool renewed;         /* to be sent */
	enum hold_event last; /* of LAST and ENDED: why the stream ends; else RENEWED */
	enum problem code;    /* of HOLD_LOST */
	unsigned renewals;
	size_t len, at; /* of the line, and how much of it the library has taken */
	char line[];    /* lease_text_max() and a line feed: the longest line is the first */
};

/* Ends the stream with a last line; `code`: of HOLD_LOST. Does nothing to a stream that ends already. */
static void stream_end(struct hold_stream *stream, enum hold_event last, enum problem code)
{
	assert(last != HOLD_RENEWED);
	if (stream->state != STREAM_OPEN)
		return;
	stream->state = STREAM_LAST;
	stream->last = last;
	stream->code = code;
	if (last == HOLD_LOST && trail_is_on(stream->call))
		trail_lost(stream->call, problem_code(code));
	reply_wake(stream->call->request);
}

/* hold_event_fn */
static void on_event(void *arg, enum hold_event event, enum lease_status code)
{
	struct hold_stream *stream = arg;
	if (event == HOLD_WANTED) {
		reply_wake(stream->call->request);
	} else if (event != HOLD_RENEWED) {
		stream_end(stream, event, event == HOLD_LOST ? problem_of_lease(code) : PROBLEM_COUNT);
	} else if (stream->state == STREAM_OPEN) {
		stream->renewed = true;
		stream->renewals++;
		reply_wake(stream->call->request);
	}
}

/* ---- lines ---- */

static void write_line(struct hold_stream *stream)
{
	int len = 0;
	assert(stream->at == stream->len);
	if (stream->last == HOLD_LOST)
		len = snprintf(stream->line, LEASE_TEXT_MAX, "{\"event\":\"lost\",\"code\":\"%s\"}\n",
			       problem_code(stream->code));
	else if (stream->last == HOLD_DRAINING)
		len = snprintf(stream->line, LEASE_TEXT_MAX, "{\"event\":\"%s\",\"validity_ms\":%u}\n",
			       problem_code(PROBLEM_DRAINING), hold_validity_ms(stream->hold));
	else if (stream->renewed)
		len = snprintf(stream->line, LEASE_TEXT_MAX,
			       "{\"event\":\"renewed\",\"validity_ms\":%u,\"waiters\":%u}\n",
			       hold_validity_ms(stream->hold), hold_waiters(stream->hold));
	else if (stream->state == STREAM_OPEN && hold_take_wanted(stream->hold))
		len = snprintf(stream->line, LEASE_TEXT_MAX, "{\"event\":\"wanted\",\"waiters\":%u}\n",
			       hold_waiters(stream->hold));
	assert(len >= 0 && len < LEASE_TEXT_MAX);
	stream->len = (size_t)len;
	stream->at = 0;
	stream->renewed = false;
}

/* reply_read_fn: the next piece of the body. */
static ssize_t read_stream(void *arg, char *bytes, size_t size)
{
	struct hold_stream *stream = arg;
	if (stream->state == STREAM_LEFT)
		return REPLY_STREAM_BREAK;
	if (stream->at == stream->len && stream->state == STREAM_ENDED)
		return REPLY_STREAM_END;
	if (stream->at == stream->len) {
		if (stream->state == STREAM_LAST)
			stream->state = STREAM_ENDED;
		write_line(stream);
	}
	size_t len = stream->len - stream->at < size ? stream->len - stream->at : size;
	memcpy(bytes, stream->line + stream->at, len);
	stream->at += len;
	return len > 0 ? (ssize_t)len : REPLY_STREAM_WAIT;
}

/* ---- the stream ---- */

void hold_stream_open(struct call *call, const struct lease_answer *answer)
{
	struct hold_stream *stream = memory_zeroed(1, sizeof *stream + lease_text_max(&call->lease) + 1);
	struct lease_answer first = *answer;
	assert(!call->stream);
	call->stream = stream;
	stream->call = call;
	stream->hold = hold_new(call->request->context->config->holds, &call->lease, answer, on_event, stream);
	if (call->caller.token)
		stream->newer = token_newer_get(answer->token, LEASE_TOKEN_LEN);
	first.validity_ms = hold_validity_ms(stream->hold); /* the remaining validity, as in every line */
	stream->len = lease_text_write(&call->lease, &first, stream->line);
	stream->line[stream->len++] = '\n';
	reply_stream(call->request, answer->again ? 200 : 201, "application/x-ndjson", read_stream, stream,
		     stream_vanished_ms(call));
	call->request->reply.grants = true;
}

void hold_stream_leave(struct call *call)
{
	assert(call->stream->state == STREAM_OPEN); /* else the connection is not suspended */
	call->stream->state = STREAM_LEFT;
	reply_wake(call->request);
}

void hold_stream_abort(struct call *call)
{
	stream_end(call->stream, HOLD_DRAINING, PROBLEM_COUNT);
}

void hold_stream_revoke(struct call *call, enum problem code)
{
	struct hold_stream *stream = call->stream;
	assert(stream && problem_status(code) < 500);
	if (stream->state != STREAM_OPEN)
		return;
	hold_drop(stream->hold, true); /* the client may read the last line later */
	stream->hold = NULL;
	stream_end(stream, HOLD_LOST, code);
}

/* True if the client may go on at another redlockd with its token: it was informed of the end of the service. It may
 * also have got the line without reading it, since it has not left. */
static bool is_handed_over(const struct hold_stream *stream, enum MHD_RequestTerminationCode how)
{
	assert(stream->call->request);
	return stream->last == HOLD_DRAINING &&
	       (stream->state == STREAM_ENDED || request_is_late(stream->call->request) ||
		how == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN);
}

/* True if the lease must not be released: another request may have got it, or the client may rely on it. */
static bool is_left_to_expire(const struct hold_stream *stream)
{
	const struct call *call = stream->call;
	return call->lease.key != 0 ||
	       (call->lease.ttl_ms > stream_vanished_ms(call) && request_has_vanished(call->request));
}

char *hold_stream_newer_token(const struct hold_stream *stream, size_t *ret_len)
{
	return stream->newer ? token_newer_copy(stream->newer, ret_len) : NULL;
}

bool hold_stream_is_lost(const struct hold_stream *stream)
{
	return stream->last == HOLD_LOST;
}

void hold_stream_log(const struct call *call, enum MHD_RequestTerminationCode how)
{
	const struct hold_stream *stream = call->stream;
	log_text("hold", stream->last == HOLD_LOST     ? problem_code(stream->code)
			 : is_handed_over(stream, how) ? problem_code(PROBLEM_DRAINING)
			 : is_left_to_expire(stream)   ? CALL_KEPT
						       : CALL_RELEASED);
	log_num("renewals", stream->renewals);
}

void hold_stream_close(struct call *call, enum MHD_RequestTerminationCode how)
{
	struct hold_stream *stream = call->stream;
	bool releases = stream->hold && stream->last != HOLD_LOST && !is_handed_over(stream, how) &&
			!is_left_to_expire(stream);
	assert(stream->call == call);
	if (releases && trail_is_on(call))
		trail_left(call);
	if (stream->hold)
		hold_drop(stream->hold, releases);
	token_newer_put(stream->newer);
	call->stream = NULL;
	free(stream);
}
