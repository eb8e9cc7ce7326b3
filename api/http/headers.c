/* SPDX-License-Identifier: MIT */
/* Checks the framing of a request, since libmicrohttpd before 1.0.5 does not, and reads the headers that redlockd uses.
 * See http.h.
 *
 * Request smuggling (two requests where a proxy saw one) comes from framing that two programs read differently: two
 * Content-Lengths, Content-Length beside Transfer-Encoding, folded lines, NULs, bare line feeds, blanks in names. The
 * 0.9 series accepts all of them, but it parses in place and hands out pointers into its buffer. So this file can check
 * that every byte of the section lies at its place. A byte that the parser skipped leaves a gap:
 *
 *     GET·/locks·HTTP/1.1··Host··a··        (each · one byte that the parser overwrote or that is fixed)
 *     ^method ^url ^version ^name ^value    and the last value plus four bytes is the end of the section
 *
 * The 1.0 series rejects all of this itself. Two faults cannot be detected. NUL LF in place of CR LF is read as a bare
 * LF, and all checks apply to the lines after it. For a bare line feed between chunks, a connection ends with its first
 * chunked request (reply.c). Pure, except for the calls of the library. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http_internal.h"

struct walk {
	struct headers *headers;
	size_t count, bytes;
	size_t hosts, lengths, encodings, ids, traces, types, keys;
	struct accept accept;
	const char *expected; /* 0.9 series: where the next name must begin */
};

size_t headers_token_span(const char *text, size_t len)
{
	static const bool allowed[256] = {
		['a' ... 'z'] = true,  ['A' ... 'Z'] = true, ['0' ... '9'] = true, ['!'] = true,
		['#' ... '\''] = true, ['*'] = true,         ['+'] = true,         ['-'] = true,
		['.'] = true,          ['^' ... '`'] = true, ['|'] = true,         ['~'] = true};
	size_t span = 0;
	assert(text || len == 0);
	while (span < len && allowed[(unsigned char)text[span]])
		span++;
	return span;
}

static bool is_token_text(const char *text, size_t len)
{
	return len > 0 && headers_token_span(text, len) == len;
}

static bool has_bad_byte(const char *value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
			return true;
	return false;
}

static void headers_reject(struct headers *headers, const char *why)
{
	assert(why);
	if (!headers->broken)
		headers->broken = why;
}

/* Accepts digits only, and no number that could overflow. Values are terminated; blanks at the end are not part of
 * them. */
static void parse_content_length(struct headers *headers, const char *value, size_t len)
{
	if (len == 0 || len > 18 || strspn(value, "0123456789") < len)
		headers_reject(
			headers,
			"Content-Length is not a number. Send the length of the body in bytes, and nothing else.");
	else
		headers->content_length = strtoull(value, NULL, 10);
}

/* Takes over visible ASCII without quotes and backslashes, which need no escape in any log. */
static void parse_request_id(struct headers *headers, const char *value, size_t len)
{
	if (len > HEADERS_REQUEST_ID_MAX)
		return;
	for (size_t i = 0; i < len; i++)
		if (value[i] <= ' ' || value[i] >= 0x7f || strchr("\"'\\", value[i]))
			return;
	memcpy(headers->request_id, value, len);
	headers->request_id[len] = '\0';
}

bool headers_trace_id(const char *bytes, size_t len, char ret_id[HEADERS_TRACE_ID_LEN + 1])
{
	/* 00-TRACE-PARENT-FLAGS; an id of zeros is invalid */
	static const char zeros[] = "00000000000000000000000000000000";
	const char *trace = bytes + 3, *parent = trace + HEADERS_TRACE_ID_LEN + 1, *flags = parent + 17;
	if (len != 55 || memcmp(bytes, "00-", 3) != 0 || parent[-1] != '-' || flags[-1] != '-' ||
	    !hex_is_lower(trace, HEADERS_TRACE_ID_LEN) || !hex_is_lower(parent, 16) || !hex_is_lower(flags, 2) ||
	    memcmp(trace, zeros, HEADERS_TRACE_ID_LEN) == 0 || memcmp(parent, zeros, 16) == 0)
		return false;
	memcpy(ret_id, trace, HEADERS_TRACE_ID_LEN);
	ret_id[HEADERS_TRACE_ID_LEN] = '\0';
	return true;
}

/* Two headers name no trace. */
static void parse_traceparent(struct walk *walk, const char *value, size_t len)
{
	if (walk->traces++ > 0)
		walk->headers->trace_id[0] = '\0';
	else
		(void)headers_trace_id(value, len, walk->headers->trace_id);
}

bool headers_is_token(const char *bytes, size_t len)
{
	assert(bytes || len == 0);
	return len == LEASE_TOKEN_LEN && hex_is_lower(bytes, len);
}

static void parse_token(struct headers *headers, const char *value, size_t len)
{
	bool good = headers->token_state == HEADERS_TOKEN_NONE && headers_is_token(value, len);
	headers->token_state = good ? HEADERS_TOKEN_GOOD : HEADERS_TOKEN_BAD;
	if (good)
		memcpy(headers->token, value, LEASE_TOKEN_LEN);
}

static bool is_json(const char *value, size_t len)
{
	static const char json[] = "application/json";
	size_t json_len = sizeof json - 1;
	if (len < json_len || strncasecmp(value, json, json_len) != 0)
		return false;
	return len == json_len || value[json_len] == ';' || value[json_len] == ' ' || value[json_len] == '\t';
}

static bool header_is(const char *key, size_t key_len, const char *name)
{
	return strlen(name) == key_len && strncasecmp(key, name, key_len) == 0;
}

/* True if the token is in the list (RFC 9110, 5.6.1). */
static bool has_token(const char *list, size_t len, const char *token)
{
	for (size_t at = 0; at < len;) {
		size_t begin = at + strspn(list + at, " \t,"), end = begin;
		while (end < len && list[end] != ',')
			end++;
		at = end;
		while (end > begin && (list[end - 1] == ' ' || list[end - 1] == '\t'))
			end--;
		if (begin < len && header_is(list + begin, end - begin, token))
			return true;
	}
	return false;
}

static void read_key_header(struct walk *walk, const char *value, size_t len)
{
	assert(value);
	walk->headers->keys_twice = walk->keys++ > 0;
	walk->headers->key = value;
	walk->headers->key_len = len;
}

/* The key of `Authorization: Bearer KEY`. */
static void parse_authorization(struct walk *walk, const char *value, size_t len)
{
	static const char scheme[] = "Bearer ";
	size_t at = sizeof scheme - 1;
	if (len < at || strncasecmp(value, scheme, at) != 0) {
		walk->headers->other_scheme = true;
		return;
	}
	while (at < len && value[at] == ' ')
		at++;
	read_key_header(walk, value + at, len - at);
}

/* Stores the parts of one header that are used. */
static void parse_header(struct walk *walk, const char *key, size_t key_len, const char *value, size_t len)
{
	struct headers *headers = walk->headers;
	if (header_is(key, key_len, "Host")) {
		walk->hosts++;
		headers->host = value;
		headers->host_len = len;
	} else if (header_is(key, key_len, "Content-Length")) {
		walk->lengths++;
		parse_content_length(headers, value, len);
	} else if (header_is(key, key_len, "Transfer-Encoding")) {
		walk->encodings++;
		headers->chunked = len == 7 && strncasecmp(value, "chunked", 7) == 0;
	} else if (header_is(key, key_len, "Origin")) {
		headers->origin = value;
		headers->origin_len = len;
	} else if (header_is(key, key_len, "Authorization")) {
		parse_authorization(walk, value, len);
	} else if (header_is(key, key_len, "X-Api-Key")) {
		read_key_header(walk, value, len);
	} else if (header_is(key, key_len, "Access-Control-Request-Method")) {
		headers->preflight = true;
	} else if (header_is(key, key_len, "Content-Type")) {
		headers->has_json = walk->types++ == 0 && is_json(value, len);
	} else if (header_is(key, key_len, "Content-Encoding")) {
		headers->is_encoded = headers->is_encoded || !header_is(value, len, "identity");
	} else if (header_is(key, key_len, "Lock-Token")) {
		parse_token(headers, value, len);
	} else if (header_is(key, key_len, "If-None-Match")) {
		headers->seen_tags = value;
		headers->seen_tags_len = len;
	} else if (header_is(key, key_len, "Last-Event-ID")) {
		headers->last_event = value;
		headers->last_event_len = len;
	} else if (header_is(key, key_len, "Connection")) {
		headers->closes = headers->closes || has_token(value, len, "close");
	} else if (header_is(key, key_len, "Accept")) {
		accept_read(&walk->accept, value, len);
	} else if (header_is(key, key_len, "X-Request-Id")) {
		if (walk->ids++ == 0)
			parse_request_id(headers, value, len);
	} else if (header_is(key, key_len, "traceparent")) {
		parse_traceparent(walk, value, len);
	} else if (header_is(key, key_len, "Idempotency-Key")) {
		headers->idempotency_keys_twice = headers->idempotency_key;
		headers->idempotency_key = value;
		headers->idempotency_key_len = len;
	}
}

/* 0.9 series: true if the name begins where the previous line ended, and only a colon and blanks lie before its
 * value. */
static bool is_contiguous(struct walk *walk, const char *key, const char *value, size_t len)
{
	bool well = !walk->expected || walk->expected == key;
	walk->expected = walk->expected ? value + len + 2 : NULL;
	return well;
}

static enum MHD_Result visit(void *arg, enum MHD_ValueKind kind, const char *key, size_t key_len, const char *value,
			     size_t len)
{
	struct walk *walk = arg;
	assert(key && kind == MHD_HEADER_KIND);
	(void)kind;
	walk->count++;
	walk->bytes += key_len + len + 4;
	if (!value || !is_token_text(key, key_len) || has_bad_byte(value, len) ||
	    !is_contiguous(walk, key, value, len)) {
		headers_reject(walk->headers, "A header is malformed.");
		return MHD_NO;
	}
	/* The 0.9 series leaves blanks at the end of a value. It also compares the whole value with "chunked": with
	 * blanks the body would have no end for it, and the next request would count as a part of it. It also rejects a
	 * Content-Length with blanks. */
	bool exact = header_is(key, key_len, "Transfer-Encoding") || header_is(key, key_len, "Content-Length");
	while (!exact && len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		len--;
	parse_header(walk, key, key_len, value, len);
	return MHD_YES;
}

/* 0.9 series: the parts of the first line lie as `METHOD target HTTP/1.1\r\n` has them. Returns where headers begin, or
 * NULL. */
static const char *first_line_end(const char *url, const char *method, const char *version, size_t target_len)
{
	if (method + strlen(method) + 1 != url || url + target_len + 1 != version)
		return NULL;
	return version + sizeof("HTTP/1.1") - 1 + 2;
}

static void check_framing(const struct walk *walk, bool http_1_0)
{
	struct headers *headers = walk->headers;
	assert(walk->lengths <= walk->count && walk->hosts <= walk->count);
	if (walk->lengths > 1)
		headers_reject(headers, "There is more than one Content-Length. Send it once.");
	if (walk->lengths > 0 && walk->encodings > 0)
		headers_reject(headers, "There is a Content-Length beside a Transfer-Encoding. Send one of them.");
	if (walk->encodings > 1 || (walk->encodings == 1 && !headers->chunked))
		headers_reject(headers, "The only Transfer-Encoding that is understood is chunked, once.");
	if (walk->encodings > 0 && http_1_0)
		headers_reject(headers, "HTTP/1.0 has no Transfer-Encoding. Send a Content-Length.");
	if (walk->hosts > 1 || (walk->hosts == 0 && !http_1_0))
		headers_reject(headers, "There must be exactly one header Host.");
}

static void read_sizes(struct MHD_Connection *mhd, const struct walk *walk)
{
	struct headers *headers = walk->headers;
	headers->too_large = walk->count > HEADERS_COUNT_MAX || walk->bytes > HEADERS_BYTES_MAX;
	headers->many_cookies = MHD_get_connection_values_n(mhd, MHD_COOKIE_KIND, NULL, NULL) > HEADERS_COOKIES_MAX;
}

void headers_read_rejected(struct MHD_Connection *mhd, struct headers *ret_headers)
{
	struct walk walk = {.headers = ret_headers};
	memset(ret_headers, 0, sizeof *ret_headers);
	MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, visit, &walk);
	check_framing(&walk, false);
	read_sizes(mhd, &walk);
}

void headers_read(struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
		  size_t target_len, struct headers *ret_headers)
{
	struct walk walk = {.headers = ret_headers};
	bool parses_in_place = strncmp(MHD_get_version(), "0.", 2) == 0;
	assert(url && method && version);
	memset(ret_headers, 0, sizeof *ret_headers);
	if (!is_token_text(method, strlen(method)))
		headers_reject(ret_headers, "The method is malformed.");
	if (parses_in_place) {
		walk.expected = first_line_end(url, method, version, target_len);
		if (!walk.expected)
			headers_reject(ret_headers, "The request line is malformed.");
	}
	MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, visit, &walk);
	if (parses_in_place && !ret_headers->broken) {
		const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd,
									       MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
		if (!info || walk.expected + 2 != method + info->header_size)
			headers_reject(ret_headers, "The header section is malformed.");
	}
	check_framing(&walk, strcmp(version, "HTTP/1.0") == 0);
	ret_headers->closes = ret_headers->closes || strcmp(version, "HTTP/1.0") == 0;
	ret_headers->wants_stream = accept_wants_stream(&walk.accept);
	read_sizes(mhd, &walk);
	ret_headers->has_body = ret_headers->chunked || ret_headers->content_length > 0;
}

/* ---- the target ---- */

static bool target_is_visible(const char *target, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (target[i] <= 0x20 || target[i] >= 0x7f || target[i] == '#')
			return false;
	return true;
}

bool target_is_origin(const char *target, size_t len)
{
	return len > 0 && target[0] == '/' && target_is_visible(target, len);
}

const char *target_after_authority(const char *target, size_t len, const char **ret_host, size_t *ret_host_len)
{
	size_t scheme_len = strncasecmp(target, "http://", 7) == 0    ? 7
			    : strncasecmp(target, "https://", 8) == 0 ? 8
								      : 0;
	const char *host = target + scheme_len;
	size_t host_len = strcspn(host, "/?");
	assert(ret_host && ret_host_len);
	/* a URL must not hold credentials */
	if (scheme_len == 0 || host_len == 0 || memchr(host, '@', host_len) != NULL || !target_is_visible(target, len))
		return NULL;
	*ret_host = host;
	*ret_host_len = host_len;
	return host + host_len;
}

const char *target_parse(char *target, size_t len, bool options, const char **ret_host, size_t *ret_host_len,
			 const char **ret_query)
{
	const char *path = target;
	assert(target[len] == '\0');
	*ret_query = NULL;
	if (options && strcmp(target, "*") == 0)
		return path;
	if (!target_is_origin(target, len) &&
	    (path = target_after_authority(target, len, ret_host, ret_host_len)) == NULL)
		return NULL;
	char *query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	*ret_query = query;
	return path[0] != '\0' ? path : "/";
}
