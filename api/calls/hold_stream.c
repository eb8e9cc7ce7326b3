/* The stream of a held lock (`hold: true`): lines of JSON that end when the lease does; the lease ends when the
 * connection does. The lease itself is kept by server/leases/hold.c.
 *
 *     granted ─► {"event":"acquired",…} ─► suspended ⇄ {"event":"renewed",…} … ─► {"event":"lost",…}
 *     or {"event":"draining",…} ─► end
 *
 * Nothing is queued: renewals that the client has not taken yet are one flag, and what is left of the validity is
 * computed when the line is written. So a client that does not read costs only the line that the library could not
 * write. From then on it has the deadline of every answer (--request-timeout-ms) to take it; then its connection is
 * closed, which releases the lock.
 *
 * The system gives a connection up if lines have not been acknowledged for as long as the lease lasts: by then a client
 * whose host has vanished cannot count on the lease any more. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"
#include "server/base/base.h"

enum {
	LINE_MAX_BYTES = LEASE_TEXT_MAX + 1, /* the longest is the first */
	VANISHED_LEAST_MS = 1000             /* a lost packet or two must not cost a lock, however short its lease */
};

struct hold_stream {
	struct call *call;
	struct hold *hold; /* NULL: the lease has been released already */
	bool renewed;      /* to be told */
	bool over;         /* `last` is to be told, and nothing after it */
	bool told;         /* the library has taken it */
	bool left;         /* the client has left */
	enum hold_event last;
	enum problem code; /* of HOLD_LOST */
	unsigned renewals;
	size_t len, at; /* of the line, and how much of it the library has taken */
	char line[LINE_MAX_BYTES];
};

/* hold_event_fn */
static void on_event(void *arg, enum hold_event event, enum lease_status code)
{
	struct hold_stream *stream = arg;

	if (stream->over)
		return; /* ended by hold_stream_abort() */
	if (event == HOLD_RENEWED) {
		stream->renewed = true;
		stream->renewals++;
	} else {
		stream->over = true;
		stream->last = event;
		if (event == HOLD_LOST)
			stream->code = problem_of_lease(code);
	}
	reply_wake(stream->call->request);
}

/* ---- lines ---- */

static void write_line(struct hold_stream *stream, const char *event, const char *member)
{
	int len = snprintf(stream->line, sizeof stream->line, "{\"event\":\"%s\",%s}\n", event, member);

	assert(stream->at == stream->len);
	assert(len > 0 && (size_t)len < sizeof stream->line);
	stream->len = (size_t)len;
	stream->at = 0;
}

/* Makes the next line, if there is any. */
static void next_line(struct hold_stream *stream)
{
	char member[64];

	if (stream->over && stream->last == HOLD_LOST) {
		snprintf(member, sizeof member, "\"code\":\"%s\"", problem_code(stream->code));
		write_line(stream, "lost", member);
	} else if (stream->over || stream->renewed) {
		snprintf(member, sizeof member, "\"validity_ms\":%u", hold_validity_ms(stream->hold));
		write_line(stream, stream->over ? "draining" : "renewed", member);
	}
	stream->renewed = false;
}

static ssize_t read_line(struct hold_stream *stream, char *bytes, size_t size)
{
	size_t len = stream->len - stream->at;

	assert(len > 0 && size > 0);
	len = len < size ? len : size;
	memcpy(bytes, stream->line + stream->at, len);
	stream->at += len;
	return (ssize_t)len;
}

/* reply_read_fn: the next piece of the body. */
static ssize_t read_stream(void *arg, char *bytes, size_t size)
{
	struct hold_stream *stream = arg;

	if (stream->left)
		return REPLY_STREAM_BREAK;
	if (stream->at == stream->len && stream->told)
		return REPLY_STREAM_END;
	if (stream->at == stream->len) {
		stream->told = stream->over;
		next_line(stream);
	}
	return stream->at < stream->len ? read_line(stream, bytes, size) : REPLY_STREAM_WAIT;
}

/* ---- the stream ---- */

static struct hold_stream *stream_new(struct call *call, const struct lease_answer *answer)
{
	struct hold_stream *stream = calloc(1, sizeof *stream);
	struct lease_answer first = *answer;

	if (!stream)
		return NULL;
	stream->call = call;
	stream->hold = hold_new(call->request->context->config->holds, &call->lease, answer, on_event, stream);
	if (!stream->hold) {
		free(stream);
		return NULL;
	}
	first.validity_ms = hold_validity_ms(stream->hold); /* as in every line: what is left now */
	stream->len = lease_text_write(&call->lease, &first, "acquired", stream->line);
	stream->line[stream->len++] = '\n';
	return stream;
}

void hold_stream_open(struct call *call, const struct lease_answer *answer)
{
	uint32_t ttl_ms = call->lease.ttl_ms;

	assert(!call->stream);
	call->stream = stream_new(call, answer);
	if (!call->stream) {
		lease_release_abandoned(call->request->context->config->leases, call->lease.resource,
					call->lease.resource_len, answer->token);
		reply_fail(call->request);
		return;
	}
	reply_stream(call->request, 201, HOLD_CONTENT_TYPE, read_stream, call->stream,
		     ttl_ms > VANISHED_LEAST_MS ? ttl_ms : VANISHED_LEAST_MS);
	call->request->reply.grants = true;
	call->location = true;
}

void hold_stream_leave(struct call *call)
{
	assert(call->stream);
	call->stream->left = true;
	reply_wake(call->request);
}

void hold_stream_abort(struct call *call)
{
	struct hold_stream *stream = call->stream;

	assert(stream);
	if (!stream->over)
		on_event(stream, HOLD_DRAINING, LEASE_OK);
}

void hold_stream_revoke(struct call *call, enum problem code)
{
	struct hold_stream *stream = call->stream;

	assert(stream && problem_status(code) < 500);
	if (stream->over)
		return;
	hold_drop(stream->hold, true); /* the client may take its time to read of it */
	stream->hold = NULL;
	stream->over = true;
	stream->last = HOLD_LOST;
	stream->code = code;
	reply_wake(stream->call->request);
}

static bool is_lost(const struct hold_stream *stream)
{
	return stream->over && stream->last == HOLD_LOST;
}

/* A client that could be told of the end of the service goes on elsewhere, with its token. So may one that did not read
 * it: it has not left. */
static bool is_handed_over(const struct hold_stream *stream, enum MHD_RequestTerminationCode how)
{
	assert(stream->call->request);
	return stream->over && stream->last == HOLD_DRAINING &&
	       (stream->told || request_is_late(stream->call->request) ||
		how == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN);
}

void hold_stream_log(const struct call *call, enum MHD_RequestTerminationCode how)
{
	const struct hold_stream *stream = call->stream;

	log_text("hold", is_lost(stream)               ? problem_code(stream->code)
			 : is_handed_over(stream, how) ? "draining"
						       : "released");
	log_num("renewals", stream->renewals);
}

void hold_stream_close(struct call *call, enum MHD_RequestTerminationCode how)
{
	struct hold_stream *stream = call->stream;

	assert(stream && stream->call == call);
	if (stream->hold)
		hold_drop(stream->hold, !is_lost(stream) && !is_handed_over(stream, how));
	call->stream = NULL;
	free(stream);
}
