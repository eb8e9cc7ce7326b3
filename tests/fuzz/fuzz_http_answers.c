/* SPDX-License-Identifier: MIT */
/* Reads the bytes sent to a client of fuzz_http.c as a client would: as a row of well-formed answers. */
#include <jansson.h>
#include <strings.h>

#include "fuzz_http.h"

/* One answer, while it is read. */
struct answer {
	const char *head, *body; /* where they begin */
	int status;
	bool chunked, closes, problem;
	size_t length; /* of the body; SIZE_MAX: it ends with the connection */
};

static bool is_known(int status)
{
	static const int known[] = {100, 200, 201, 204, 304, 400, 401, 403, 404, 405, 409,
				    410, 411, 413, 414, 415, 429, 431, 501, 503, 505};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i] == status)
			return true;
	return false;
}

static bool begins(const char *at, const char *end, const char *word)
{
	size_t len = strlen(word);
	return (size_t)(end - at) >= len && strncasecmp(at, word, len) == 0;
}

static void read_header(struct answer *answer, const char *at, const char *end)
{
	const char *colon = memchr(at, ':', (size_t)(end - at));
	MUST(colon != NULL && colon > at && colon + 1 < end && colon[1] == ' ', "a header without a colon: %.60s", at);
	for (const char *byte = at; byte < end; byte++)
		MUST((*byte >= ' ' && *byte != 0x7f) || *byte == '\t', "a header with a control character: %.60s", at);
	if (begins(at, end, "Content-Length: "))
		answer->length = strtoul(at + 16, NULL, 10);
	else if (begins(at, end, "Transfer-Encoding: "))
		answer->chunked = true;
	else if (begins(at, end, "Connection: close"))
		answer->closes = true;
	else if (begins(at, end, "Content-Type: application/problem+json"))
		answer->problem = true;
}

/* The head; false where it is not whole. */
static bool read_head(struct answer *answer, const char *at, const char *end)
{
	const char *stop = memmem(at, (size_t)(end - at), "\r\n\r\n", 4), *line;
	*answer = (struct answer){.head = at, .length = SIZE_MAX};
	if ((size_t)(end - at) < 13)
		return false;
	MUST(memcmp(at, "HTTP/1.1 ", 9) == 0 || memcmp(at, "HTTP/1.0 ", 9) == 0, "no status line: %.60s", at);
	answer->status = atoi(at + 9);
	MUST(is_known(answer->status) && at[12] == ' ', "a status that is none of ours: %.60s", at);
	if (stop == NULL)
		return false;
	line = memmem(at, (size_t)(end - at), "\r\n", 2);
	while (line < stop) {
		const char *next = memmem(line + 2, (size_t)(stop + 2 - line - 2), "\r\n", 2);
		read_header(answer, line + 2, next);
		line = next;
	}
	answer->body = stop + 4;
	if (answer->status == 100 || answer->status == 204 || answer->status == 304)
		answer->length = 0;
	return true;
}

/* Where a chunked body ends; NULL: it is not whole. */
static const char *skip_chunks(const char *at, const char *end)
{
	for (;;) {
		char *stop;
		if (memmem(at, (size_t)(end - at), "\r\n", 2) == NULL)
			return NULL;
		size_t len = strtoul(at, &stop, 16);
		MUST(stop > at && memcmp(stop, "\r\n", 2) == 0, "a chunk without a length: %.20s", at);
		at = stop + 2;
		if ((size_t)(end - at) < len + 2)
			return NULL;
		MUST(memcmp(at + len, "\r\n", 2) == 0, "a chunk that is longer than it says");
		at += len + 2;
		if (len == 0)
			return at;
	}
}

static void check_problem(const struct answer *answer)
{
	json_t *problem = json_loadb(answer->body, answer->length, JSON_REJECT_DUPLICATES, NULL);
	MUST(json_is_object(problem), "a problem that is no object: %.100s", answer->body);
	MUST(json_integer_value(json_object_get(problem, "status")) == answer->status,
	     "another status in the problem: %.100s", answer->body);
	MUST(json_is_string(json_object_get(problem, "code")) && json_is_string(json_object_get(problem, "detail")),
	     "no code: %.100s", answer->body);
	json_decref(problem);
}

/* Where the answer ends; NULL: it is not whole. */
static const char *answer_end(const struct answer *answer, const char *end)
{
	/* To HEAD there is no body: then the next answer begins, or nothing. */
	if (answer->body == end)
		return end;
	if (begins(answer->body, end, "HTTP/1."))
		return answer->body;
	if (answer->chunked)
		return skip_chunks(answer->body, end);
	if (answer->length == SIZE_MAX || (size_t)(end - answer->body) < answer->length)
		return NULL;
	if (answer->problem)
		check_problem(answer);
	return answer->body + answer->length;
}

unsigned answers_check(const char *text, size_t len, bool trouble_is_due)
{
	const char *at = text, *end = text + len;
	struct answer answer;
	unsigned count = 0;
	while (at != NULL && at < end && read_head(&answer, at, end)) {
		/* 501 (1.0, for a method nobody knows) and 505 are the library's own. */
		MUST(answer.status < 500 || answer.status == 501 || answer.status == 505 || trouble_is_due,
		     "a %d that is not due: %.200s", answer.status, at);
		at = answer_end(&answer, end);
		count += at != NULL && answer.status != 100;
		MUST(at == NULL || at == end || !answer.closes, "goes on after Connection: close: %.200s", at);
	}
	return count;
}

bool answers_hold_token(const char *text, size_t len, int grant)
{
	char token[LEASE_TOKEN_LEN + 1];
	snprintf(token, sizeof token, "f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0%08x", (unsigned)grant);
	return memmem(text, len, token, LEASE_TOKEN_LEN) != NULL;
}
