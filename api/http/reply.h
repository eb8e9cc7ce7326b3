/* The one way in which a request is answered: the answer is noted in the request, and goes to libmicrohttpd as soon as
 * the library takes it. */
#ifndef REPLY_H
#define REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct MHD_Response;
struct request;

/* The next piece of a streamed body: its length, or one of the values below. */
typedef ssize_t reply_read_fn(void *arg, char *bytes, size_t size);
enum {
	REPLY_STREAM_WAIT = 0,  /* nothing now: reply_wake() says when to ask again */
	REPLY_STREAM_END = -1,  /* that was all */
	REPLY_STREAM_BREAK = -2 /* close the connection at once */
};

struct reply {
	unsigned status;        /* 0: none is noted */
	const char *code;       /* of a problem; NULL: it is none */
	const char *type;       /* Content-Type; NULL: there is no body */
	uint32_t retry_after_s; /* 0: no such header */
	bool close;             /* the connection must end with it, and need not wait for the body of the request */
	bool grants;            /* it is not queued if the client has left: the service takes the grant back */
	char *owned;            /* body on the heap, or NULL */
	const char *bytes;      /* body */
	size_t len;
	reply_read_fn *read; /* of a streamed body, or NULL */
	void *read_arg;
};

/* Notes an answer whose body is static. */
void reply_static(struct request *request, unsigned status, const char *type, const char *bytes, size_t len);

/* The same for a body from the heap; takes it over. */
void reply_owned(struct request *request, unsigned status, const char *type, char *bytes, size_t len);

/* The same for a body that is copied. */
void reply_copy(struct request *request, unsigned status, const char *type, const char *bytes, size_t len);

/* An answer without a body. */
void reply_empty(struct request *request, unsigned status);

/* An answer whose body is read piece by piece and ends with the connection. The system gives the connection up if bytes
 * have not been acknowledged for `vanished_ms` (TCP only). */
void reply_stream(struct request *request, unsigned status, const char *type, reply_read_fn *read, void *arg,
		  unsigned vanished_ms);

/* There is another piece of the stream; does nothing unless the stream waits. */
void reply_wake(struct request *request);

/* Adds a header while the answer is handed to libmicrohttpd. */
void reply_add_header(struct MHD_Response *response, const char *name, const char *value);

#endif
