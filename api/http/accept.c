/* SPDX-License-Identifier: MIT */
/* Content negotiation for the one resource with two representations, JSON and an event stream: the header Accept
 * (RFC 9110, 12.5.1). Pure.
 *
 * A stream has no end, so a client gets one only if it names the type: wildcards stand for JSON. */
#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "http_internal.h"

enum { WEIGHT_MAX = 1000, RANK_ANY = 1, RANK_APPLICATION, RANK_JSON };

struct cursor {
	const char *at, *end;
};

static bool accept_skip(struct cursor *cursor, char byte)
{
	bool there = cursor->at < cursor->end && *cursor->at == byte;
	cursor->at += there;
	return there;
}

static void accept_skip_blanks(struct cursor *cursor)
{
	while (accept_skip(cursor, ' ') || accept_skip(cursor, '\t'))
		continue;
}

/* Skips a token, up to a separator; other characters are not checked. Returns its length. */
static size_t accept_skip_token(struct cursor *cursor)
{
	const char *begin = cursor->at;
	while (cursor->at < cursor->end && !strchr(" \t,;=/\"", *cursor->at))
		cursor->at++;
	return (size_t)(cursor->at - begin);
}

static bool accept_skip_quoted(struct cursor *cursor)
{
	while (cursor->at < cursor->end && *cursor->at != '"')
		cursor->at += *cursor->at == '\\' && cursor->end - cursor->at > 1 ? 2 : 1;
	return accept_skip(cursor, '"');
}

/* Reads `0`, `1`, or a number with up to three decimal places (RFC 9110, 12.4.2), as thousandths. -1: not a weight. */
static int read_weight(const char *text, size_t len)
{
	int weight = 0;
	if (len == 0 || len > 5 || (len > 1 && text[1] != '.') || (text[0] != '0' && text[0] != '1'))
		return -1;
	for (size_t i = 0; i < 5; i++) {
		char digit = i < len ? text[i] : '0';
		if (i != 1 && !isdigit((unsigned char)digit))
			return -1;
		weight = i == 1 ? weight : weight * 10 + (digit - '0');
	}
	return weight <= WEIGHT_MAX ? weight : -1;
}

/* `; name=value` of a range; a weight goes to *weight. */
static bool read_parameter(struct cursor *cursor, int *weight)
{
	accept_skip_blanks(cursor);
	const char *name = cursor->at;
	size_t name_len = accept_skip_token(cursor);
	if (name_len == 0)
		return true; /* `;` alone */
	if (!accept_skip(cursor, '='))
		return false;
	if (accept_skip(cursor, '"'))
		return accept_skip_quoted(cursor);
	const char *value = cursor->at;
	size_t len = accept_skip_token(cursor);
	if (name_len == 1 && tolower((unsigned char)name[0]) == 'q')
		*weight = read_weight(value, len);
	return len > 0 && *weight >= 0;
}

static bool is_range(const char *range, size_t len, const char *text)
{
	return strlen(text) == len && strncasecmp(range, text, len) == 0;
}

/* The most specific range of JSON counts. */
static void apply_range(struct accept *accept, const char *range, size_t len, int weight)
{
	int rank = is_range(range, len, "application/json") ? RANK_JSON
		   : is_range(range, len, "application/*")  ? RANK_APPLICATION
		   : is_range(range, len, "*/*")            ? RANK_ANY
							    : 0;
	assert(weight >= 0 && weight <= WEIGHT_MAX);
	if (is_range(range, len, "text/event-stream"))
		accept->stream = weight;
	if (rank > 0 && rank >= accept->json_rank) {
		accept->json_rank = rank;
		accept->json = weight;
	}
}

static bool read_range(struct accept *accept, struct cursor *cursor)
{
	int weight = WEIGHT_MAX;
	const char *range = cursor->at;
	if (accept_skip_token(cursor) == 0 || !accept_skip(cursor, '/') || accept_skip_token(cursor) == 0)
		return false;
	size_t len = (size_t)(cursor->at - range);
	accept_skip_blanks(cursor);
	while (accept_skip(cursor, ';')) {
		if (!read_parameter(cursor, &weight))
			return false;
		accept_skip_blanks(cursor);
	}
	apply_range(accept, range, len, weight);
	return true;
}

void accept_read(struct accept *accept, const char *value, size_t len)
{
	struct cursor cursor = {value, value + len};
	assert(accept && value);
	do {
		accept_skip_blanks(&cursor);
		bool empty = cursor.at == cursor.end || *cursor.at == ',';
		accept->malformed = accept->malformed || (!empty && !read_range(accept, &cursor));
	} while (!accept->malformed && accept_skip(&cursor, ','));
	accept->malformed = accept->malformed || cursor.at != cursor.end;
}

bool accept_wants_stream(const struct accept *accept)
{
	assert(accept->stream <= WEIGHT_MAX && accept->json <= WEIGHT_MAX);
	bool json_is_named = accept->json_rank > RANK_ANY;
	return !accept->malformed && accept->stream > 0 &&
	       (accept->stream > accept->json || (accept->stream == accept->json && !json_is_named));
}
