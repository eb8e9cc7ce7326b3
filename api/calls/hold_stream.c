/* The stream of a held lock. See hold.h.
 *
 *     granted ─► {"event":"acquired",…} ─► suspended ⇄ {"event":"renewed",…} … ─► {"event":"lost",…}
 *     or {"event":"draining",…} ─► end
 *
 * Between two lines the connection is suspended (phase WORKING) and watched by gone.c; an event of the hold resumes it
 * (phase ANSWERING), and libmicrohttpd asks read_stream() for the next piece.
 *
 * Nothing is queued: renewals that the client has not taken yet are one flag, and what is left of the validity is
 * computed when the line is written. So a client that does not read costs nothing but the line that the library could
 * not write. From then on it has the deadline of every answer (--request-timeout-ms) to take it; then its connection is
 * closed, which releases the lock.
 *
 * A client whose host vanishes without a word answers no more packets: the system gives the connection up when lines
 * have not been acknowledged for as long as the lease lasts, as by then the client cannot know itself to be the holder
 * any more. */
#include "hold_stream.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/http/http_internal.h"
#include "lease_text.h"
#include "server/base/base.h"

enum {
	LINE_MAX_BYTES = LEASE_TEXT_MAX + 1, /* the longest is the first */
	BLOCK_BYTES = 4096,                  /* what the library asks for at once */
	VANISHED_LEAST_MS = 1000             /* a lost packet or two must not cost a lock, however short its lease */
};

struct hold_stream {
	struct request *request;
	struct hold *hold; /* NULL: the lease has been released already */
	bool renewed;      /* to be told */
	bool over;         /* `last` is to be told, and nothing after it */
	bool told;         /* the library has taken it */
	bool left;         /* the client has gone */
	enum hold_event last;
	enum problem code; /* of HOLD_LOST */
	unsigned renewals;
	size_t len, at; /* of the line, and how much of it the library has taken */
	char line[LINE_MAX_BYTES];
};

/* Only a connection that is suspended between two lines has to be told that there is another one. */
static void wake(struct hold_stream *stream)
{
	struct connection *connection = stream->request->connection;

	if (stream->request->state != REQUEST_ANSWERED || connection->phase != CONNECTION_WORKING)
		return;
	connection_enter(connection, CONNECTION_ANSWERING);
	connection_resume(connection);
}

static enum problem problem_of(enum lease_status code)
{
	assert(code == LEASE_NOT_OWNER || code == LEASE_NO_QUORUM || code == LEASE_EXPIRED);
	return code == LEASE_NOT_OWNER   ? PROBLEM_NOT_OWNER
	       : code == LEASE_NO_QUORUM ? PROBLEM_NO_QUORUM
					 : PROBLEM_LEASE_EXPIRED;
}

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
			stream->code = problem_of(code);
	}
	wake(stream);
}

/* ---- lines ---- */

static void write_line(struct hold_stream *stream, const char *event, const char *member)
{
	int len = snprintf(stream->line, sizeof(stream->line), "{\"event\":\"%s\",%s}\n", event, member);

	assert(len > 0 && (size_t)len < sizeof(stream->line));
	stream->len = (size_t)len;
	stream->at = 0;
}

/* Makes the next line, if there is any. */
static void next_line(struct hold_stream *stream)
{
	char member[64];

	if (stream->over && stream->last == HOLD_LOST) {
		snprintf(member, sizeof(member), "\"code\":\"%s\"", problem_code(stream->code));
		write_line(stream, "lost", member);
	} else if (stream->over || stream->renewed) {
		snprintf(member, sizeof(member), "\"validity_ms\":%u", hold_validity_ms(stream->hold));
		write_line(stream, stream->over ? "draining" : "renewed", member);
	}
	stream->renewed = false;
}

static ssize_t take_line(struct hold_stream *stream, char *bytes, size_t size)
{
	size_t len = stream->len - stream->at;

	len = len < size ? len : size;
	memcpy(bytes, stream->line + stream->at, len);
	stream->at += len;
	connection_enter(stream->request->connection, CONNECTION_ANSWERING); /* this piece must be taken in time */
	return (ssize_t)len;
}

/* Bytes that the client has sent meanwhile and nobody will read: closing would reset the connection under the last
 * line. */
static void linger_if_unread(struct connection *connection)
{
	char byte;

	connection->linger = recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

/* MHD_ContentReaderCallback: the next piece of the body. */
static ssize_t read_stream(void *arg, uint64_t position, char *bytes, size_t size)
{
	struct hold_stream *stream = arg;
	struct connection *connection = stream->request->connection;

	(void)position;
	if (stream->left || connection->phase == CONNECTION_ENDING)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (stream->at == stream->len && stream->told) {
		linger_if_unread(connection);
		return MHD_CONTENT_READER_END_OF_STREAM;
	}
	if (stream->at == stream->len) {
		stream->told = stream->over;
		next_line(stream);
	}
	if (stream->at < stream->len)
		return take_line(stream, bytes, size);
	connection_enter(connection, CONNECTION_WORKING);
	MHD_suspend_connection(connection->mhd);
	gone_watch(connection);
	return 0;
}

/* ---- calls ---- */

static struct hold_stream *stream_new(struct request *request, const struct lease_answer *answer)
{
	struct hold_stream *stream = calloc(1, sizeof(*stream));
	struct lease_answer first = *answer;

	if (stream == NULL)
		return NULL;
	stream->request = request;
	stream->hold = hold_new(request->connection->api->config.holds, &request->lease, answer, on_event, stream);
	if (stream->hold == NULL) {
		free(stream);
		return NULL;
	}
	first.validity_ms = hold_validity_ms(stream->hold); /* as in every line: what is left now */
	stream->len = lease_text_write(&request->lease, &first, "acquired", stream->line);
	stream->line[stream->len++] = '\n';
	return stream;
}

/* Does nothing to a Unix socket. */
static void notice_vanished_host(const struct connection *connection, uint32_t ttl_ms)
{
	unsigned timeout_ms = ttl_ms > VANISHED_LEAST_MS ? ttl_ms : VANISHED_LEAST_MS;

	(void)setsockopt(connection->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

void hold_stream_open(struct request *request, const struct lease_answer *answer)
{
	assert(request->stream == NULL);
	request->stream = stream_new(request, answer);
	if (request->stream == NULL) {
		lease_release_abandoned(request->connection->api->config.leases, request->lease.resource,
					request->lease.resource_len, answer->token);
		request_fail(request);
		return;
	}
	notice_vanished_host(request->connection, request->lease.ttl_ms);
	reply_static(request, 201, HOLD_CONTENT_TYPE, "", 0);
	request->reply.location = true;
	request->reply.close = true; /* the end of the stream and that of the connection are one */
}

struct MHD_Response *hold_stream_response(struct request *request)
{
	return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, request->stream, NULL);
}

void hold_stream_leave(struct request *request)
{
	request->stream->left = true;
	wake(request->stream);
}

void hold_stream_abort(struct request *request)
{
	struct hold_stream *stream = request->stream;

	if (!stream->over)
		on_event(stream, HOLD_DRAINING, LEASE_OK);
}

void hold_stream_revoke(struct request *request, enum problem code)
{
	struct hold_stream *stream = request->stream;

	if (stream->over)
		return;
	hold_drop(stream->hold, true); /* the client may take its time to read of it */
	stream->hold = NULL;
	stream->over = true;
	stream->last = HOLD_LOST;
	stream->code = code;
	wake(stream);
}

static bool is_lost(const struct hold_stream *stream)
{
	return stream->over && stream->last == HOLD_LOST;
}

/* A client that could be told of the end of the service goes on elsewhere, with its token. So may one that did not read
 * it: it has not left. */
static bool is_handed_over(const struct hold_stream *stream, enum MHD_RequestTerminationCode how)
{
	return stream->over && stream->last == HOLD_DRAINING &&
	       (stream->told || stream->request->connection->late || how == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN);
}

void hold_stream_log(const struct request *request, enum MHD_RequestTerminationCode how)
{
	const struct hold_stream *stream = request->stream;

	log_text("hold", is_lost(stream)               ? problem_code(stream->code)
			 : is_handed_over(stream, how) ? "draining"
						       : "released");
	log_num("renewals", stream->renewals);
}

void hold_stream_close(struct request *request, enum MHD_RequestTerminationCode how)
{
	struct hold_stream *stream = request->stream;

	if (stream->hold != NULL)
		hold_drop(stream->hold, !is_lost(stream) && !is_handed_over(stream, how));
	request->stream = NULL;
	free(stream);
}
