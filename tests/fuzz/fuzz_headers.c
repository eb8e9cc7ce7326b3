/* SPDX-License-Identifier: MIT */
/* Fuzz target: the header section of a request (api/http/http.h), Lock-Token among it.
 *
 * Input: a request as it comes over the wire, up to the empty line. It is taken apart here in the way of libmicrohttpd
 * 0.9: in place, names and values being pointers into the bytes, and as leniently: blanks around names, NULs, bare LFs,
 * folded lines. The functions of libmicrohttpd that headers.c calls are the ones below. Whether the bytes are beyond
 * doubt is told a second time by reference(), from the bytes alone. */
#include <ctype.h>
#include <strings.h>

#include "api/http/http.h"
#include "fuzz_words.h"

enum { SECTION_MAX = 16384, LINES_MAX = 128 };

/* A request taken apart. */
struct MHD_Connection {
	char *bytes, *url, *version;
	size_t len, target_len, count;
	bool in_place; /* as the 0.9 series; else what headers.c sees is not where it was */
	struct line {
		const char *key, *value;
		size_t key_len, value_len;
	} lines[LINES_MAX];
};

static bool in_place;

/* ---- libmicrohttpd ---- */

const char *MHD_get_version(void)
{
	return in_place ? "0.9.75" : "1.0.1";
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
							enum MHD_ConnectionInfoType type, ...)
{
	static union MHD_ConnectionInfo info;
	MUST(type == MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE, "info %d", (int)type);
	info.header_size = connection->len;
	return &info;
}

int MHD_get_connection_values_n(struct MHD_Connection *connection, enum MHD_ValueKind kind,
				MHD_KeyValueIteratorN iterator, void *arg)
{
	if (kind == MHD_COOKIE_KIND)
		return 0;
	MUST(kind == MHD_HEADER_KIND, "kind %d", (int)kind);
	for (size_t i = 0; i < connection->count; i++) {
		const struct line *line = &connection->lines[i];
		if (iterator(arg, kind, line->key, line->key_len, line->value, line->value_len) == MHD_NO)
			return (int)i;
	}
	return (int)connection->count;
}

/* ---- taking apart ---- */

/* The end of the line that begins here: at its CR LF, or at a bare LF; NULL if there is none. */
static char *line_end(char *at, const char *end, char **ret_next)
{
	char *lf = memchr(at, '\n', (size_t)(end - at));
	if (lf == NULL)
		return NULL;
	*ret_next = lf + 1;
	return lf > at && lf[-1] == '\r' ? lf - 1 : lf;
}

/* METHOD target version; false if they are not there. */
static bool split_first_line(struct MHD_Connection *mhd, char *end)
{
	char *space = memchr(mhd->bytes, ' ', (size_t)(end - mhd->bytes));
	if (space == NULL)
		return false;
	*space = '\0';
	mhd->url = space + 1 + strspn(space + 1, " ");
	mhd->version = mhd->url < end ? memrchr(mhd->url, ' ', (size_t)(end - mhd->url)) : NULL;
	if (mhd->version == NULL)
		return false;
	mhd->target_len = strnlen(mhd->url, (size_t)(mhd->version - mhd->url));
	*mhd->version++ = '\0';
	return end - mhd->version == 8 &&
	       (memcmp(mhd->version, "HTTP/1.1", 8) == 0 || memcmp(mhd->version, "HTTP/1.0", 8) == 0);
}

/* A folded line goes to the end of the name before it, in memory of its own. */
static bool fold(struct MHD_Connection *mhd, const char *at)
{
	static char elsewhere[SECTION_MAX * 2];
	if (mhd->count == 0)
		return false;
	struct line *line = &mhd->lines[mhd->count - 1];
	snprintf(elsewhere, sizeof elsewhere, "%s%s", line->key, at);
	line->key = elsewhere;
	line->key_len = strlen(elsewhere);
	return true;
}

static bool split_line(struct MHD_Connection *mhd, char *at, char *end)
{
	if (*at == ' ' || *at == '\t')
		return fold(mhd, at);
	struct line *line = &mhd->lines[mhd->count];
	char *colon = memchr(at, ':', (size_t)(end - at));
	if (colon == NULL || mhd->count == LINES_MAX)
		return false;
	*colon = '\0';
	char *value = colon + 1;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	*line = (struct line){at, value, strnlen(at, (size_t)(colon - at)), strnlen(value, (size_t)(end - value))};
	mhd->count++;
	return true;
}

/* False where libmicrohttpd would not call the application at all. */
static bool take_apart(struct MHD_Connection *mhd)
{
	char *next, *end = mhd->bytes + mhd->len, *eol = line_end(mhd->bytes, end, &next);
	if (eol == NULL)
		return false;
	memset(eol, 0, (size_t)(next - eol));
	if (!split_first_line(mhd, eol))
		return false;
	for (char *at = next; (eol = line_end(at, end, &next)) != NULL; at = next) {
		memset(eol, 0, (size_t)(next - eol));
		if (eol == at || *at == '\0') { /* 0.9: a line that begins with NUL ends the section */
			mhd->len = (size_t)(next - mhd->bytes);
			return true;
		}
		if (!split_line(mhd, at, eol))
			return false;
	}
	return false;
}

/* ---- the rule once more ---- */

struct framing {
	unsigned lengths, encodings, hosts, tokens;
	bool chunked, length_good, token_good;
};

static bool is_name(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)bytes[i]) &&
		    (bytes[i] == '\0' || strchr("!#$%&'*+-.^_`|~", bytes[i]) == NULL))
			return false;
	return len > 0;
}

static bool is_header(const char *name, size_t len, const char *wanted)
{
	return len == strlen(wanted) && strncasecmp(name, wanted, len) == 0;
}

static void count_header(struct framing *framing, const char *name, size_t name_len, const char *value, size_t len)
{
	char digits[SECTION_MAX + 1];
	memcpy(digits, value, len);
	digits[len] = '\0';
	if (is_header(name, name_len, "Content-Length")) {
		framing->lengths++;
		framing->length_good = len > 0 && len <= 18 && strspn(digits, "0123456789") == len;
	} else if (is_header(name, name_len, "Transfer-Encoding")) {
		framing->encodings++;
		framing->chunked = strcasecmp(digits, "chunked") == 0;
	} else if (is_header(name, name_len, "Host")) {
		framing->hosts++;
	} else if (is_header(name, name_len, "Lock-Token")) {
		framing->token_good = framing->tokens++ == 0 && len == 40 && strspn(digits, "0123456789abcdef") == 40;
	}
}

/* From the untouched bytes: is every line `name: value` between CR LFs, without anything in it that two programs could
 * read differently? */
static bool reference_line(struct framing *framing, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	if (colon == NULL || !is_name(line, (size_t)(colon - line)))
		return false;
	const char *value = colon + 1, *end = line + len;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	for (const char *c = value; c < end; c++)
		if (iscntrl((unsigned char)*c) && *c != '\t')
			return false;
	/* Blanks on either side are none of the value's. (Behind "chunked" and a length the 0.9 series of libmicrohttpd
	 * does not know that: they are refused.) */
	size_t name_len = (size_t)(colon - line);
	bool exact = is_header(line, name_len, "Transfer-Encoding") || is_header(line, name_len, "Content-Length");
	while (!exact && end > value && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	count_header(framing, line, name_len, value, (size_t)(end - value));
	return true;
}

/* target_is_origin() checks the characters of the target. */
static bool reference_first_line(const char *line, size_t len)
{
	const char *space = memchr(line, ' ', len);
	if (space == NULL || !is_name(line, (size_t)(space - line)))
		return false;
	const char *url = space + 1, *second = memrchr(url, ' ', len - (size_t)(url - line));
	return second != NULL && second > url && url[0] != ' ' && memchr(url, '\0', (size_t)(second - url)) == NULL &&
	       line + len - second == 9;
}

/* False: it must be refused. */
static bool reference(const char *bytes, size_t len, struct framing *framing)
{
	const char *end = bytes + len, *eol = memmem(bytes, len, "\r\n", 2);
	if (eol == NULL || memchr(bytes, '\n', (size_t)(eol - bytes)) != NULL ||
	    !reference_first_line(bytes, (size_t)(eol - bytes)))
		return false;
	bool http_1_0 = eol[-1] == '0';
	for (const char *at = eol + 2; (eol = memmem(at, (size_t)(end - at), "\r\n", 2)) != NULL; at = eol + 2) {
		if (eol == at) {
			bool one_frame = framing->lengths <= 1 && framing->encodings <= 1 &&
					 framing->lengths + framing->encodings <= 1;
			return one_frame && (framing->lengths == 0 || framing->length_good) &&
			       (framing->encodings == 0 || (framing->chunked && !http_1_0)) && framing->hosts <= 1 &&
			       (framing->hosts == 1 || http_1_0);
		}
		if (!reference_line(framing, at, (size_t)(eol - at)))
			return false;
	}
	return false;
}

/* ---- the check ---- */

static void check_kept(const struct headers *headers, const struct framing *framing, bool good)
{
	for (const char *at = headers->request_id; *at; at++)
		MUST(*at > ' ' && *at < 0x7f && !strchr("\"'\\", *at), "request id %s", headers->request_id);
	MUST(strspn(headers->trace_id, "0123456789abcdef") == strlen(headers->trace_id), "trace %s", headers->trace_id);
	MUST(headers->has_body == (headers->chunked || headers->content_length > 0), "a body or not");
	if (headers->token_state == HEADERS_TOKEN_GOOD)
		MUST(headers_is_token(headers->token, LEASE_TOKEN_LEN), "a token that is none");
	if (!good)
		return;
	MUST(headers->chunked == (framing->encodings > 0) && (framing->lengths > 0 || headers->content_length == 0),
	     "another frame");
	MUST(headers->token_state == (framing->tokens == 0                          ? HEADERS_TOKEN_NONE
				      : framing->tokens == 1 && framing->token_good ? HEADERS_TOKEN_GOOD
										    : HEADERS_TOKEN_BAD),
	     "%u tokens: state %d", framing->tokens, headers->token_state);
}

#ifdef FUZZ_MUTATED
/* Takes the second of two lengths where they are the same. */
static void headers_read_mutated(struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
				 size_t target_len, struct headers *ret)
{
	headers_read(mhd, url, method, version, target_len, ret);
	if (ret->broken != NULL && strstr(ret->broken, "more than one") != NULL)
		ret->broken = NULL;
}
#define headers_read headers_read_mutated
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0 || size > SECTION_MAX)
		return 0;
	in_place = data[0] % 2 == 0;
	struct MHD_Connection *mhd = calloc(1, sizeof *mhd);
	char *untouched = fuzz_copy(data + 1, size - 1);
	mhd->bytes = malloc(size + 32); /* libmicrohttpd's buffer goes on behind the section */
	memcpy(mhd->bytes, untouched, size - 1);
	memset(mhd->bytes + size - 1, 0, 33);
	mhd->len = size - 1;
	if (take_apart(mhd)) {
		struct headers headers;
		struct framing framing = {0};
		headers_read(mhd, mhd->url, mhd->bytes, mhd->version, mhd->target_len, &headers);
		bool good = reference(untouched, mhd->len, &framing);
		MUST(headers.broken == NULL || !good, "refused: %s", headers.broken);
		/* The 0.9 series overwrites the ends of lines with NULs: where there were NULs before nobody can tell.
		 * Such sections are a matter of test_api_rubbish.c. */
		if (in_place && memchr(untouched, '\0', mhd->len) == NULL)
			MUST(headers.broken != NULL || good, "taken, though it is in doubt");
		check_kept(&headers, &framing, good && headers.broken == NULL);
	}
	free(untouched);
	free(mhd->bytes);
	free(mhd);
	return 0;
}
