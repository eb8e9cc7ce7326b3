/* Reads the header Accept as far as /metrics has a choice. See calls_internal.h.
 *
 * Prometheus sends something like this, and a range that takes anything at its end:
 *
 *   application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,
 *   text/plain;version=0.0.4;q=0.2
 *
 * Pure; any thread. */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "calls_internal.h"

/* A stretch of the header. */
struct span {
	const char *at;
	size_t len;
};

static struct span trim(struct span span)
{
	while (span.len > 0 && (span.at[0] == ' ' || span.at[0] == '\t')) {
		span.at++;
		span.len--;
	}
	while (span.len > 0 && (span.at[span.len - 1] == ' ' || span.at[span.len - 1] == '\t'))
		span.len--;
	return span;
}

/* Removes the part before the next separator that is not in quotes from *rest, with the separator, and returns it. */
static struct span split(struct span *rest, char separator)
{
	struct span part = {.at = rest->at};
	bool quoted = false;

	assert(rest->at || rest->len == 0);
	for (; part.len < rest->len && (quoted || rest->at[part.len] != separator); part.len++) {
		if (rest->at[part.len] == '"')
			quoted = !quoted;
		else if (quoted && rest->at[part.len] == '\\' && part.len + 1 < rest->len)
			part.len++;
	}
	size_t used = part.len < rest->len ? part.len + 1 : part.len;
	rest->at += used;
	rest->len -= used;
	return trim(part);
}

static bool is(struct span span, const char *text)
{
	return span.len == strlen(text) && strncasecmp(span.at, text, span.len) == 0;
}

/* "0.75" is 750; ACCEPT_UNNAMED where it is none of 0 to 1 with at most three decimals. */
static int read_quality(struct span span)
{
	int quality = 0, unit = 1000;

	assert(span.at || span.len == 0);
	if (span.len == 0 || span.len > 5 || (span.at[0] != '0' && span.at[0] != '1') ||
	    (span.len > 1 && span.at[1] != '.'))
		return ACCEPT_UNNAMED;
	for (size_t i = 0; i < span.len; i++) {
		if (i == 1)
			continue;
		if (span.at[i] < '0' || span.at[i] > '9')
			return ACCEPT_UNNAMED;
		quality += (span.at[i] - '0') * unit;
		unit /= 10;
	}
	return quality <= 1000 ? quality : ACCEPT_UNNAMED;
}

static struct span unquote(struct span span)
{
	if (span.len >= 2 && span.at[0] == '"' && span.at[span.len - 1] == '"')
		return (struct span){.at = span.at + 1, .len = span.len - 2};
	return span;
}

/* The quality of a range whose parameters are `rest`; ACCEPT_UNNAMED if it is for another version than ours (NULL:
 * any). */
static int read_parameters(struct span rest, const char *version)
{
	int quality = 1000;

	while (rest.len > 0) {
		struct span value = split(&rest, ';'), name = split(&value, '=');
		value = unquote(trim(value));
		if (is(name, "q"))
			quality = read_quality(value);
		else if (version && is(name, "version") && !is(value, version))
			return ACCEPT_UNNAMED;
	}
	return quality;
}

void accept_read(struct accept *accept, const char *value, size_t len)
{
	assert(accept && (value || len == 0));
	const struct {
		const char *range, *version;
		int *quality;
	} ours[] = {{"application/openmetrics-text", "1.0.0", &accept->openmetrics},
		    {"text/plain", "0.0.4", &accept->text},
		    {"text/*", NULL, &accept->any_text},
		    {"*/*", NULL, &accept->any}};
	struct span rest = {.at = value, .len = len};

	while (rest.len > 0) {
		struct span range = split(&rest, ','), type = split(&range, ';');
		for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
			int quality = is(type, ours[i].range) ? read_parameters(range, ours[i].version)
							      : ACCEPT_UNNAMED;
			*ours[i].quality = quality > *ours[i].quality ? quality : *ours[i].quality;
		}
	}
}

bool accept_prefers_openmetrics(const struct accept *accept)
{
	int text = accept->text != ACCEPT_UNNAMED       ? accept->text
		   : accept->any_text != ACCEPT_UNNAMED ? accept->any_text
							: accept->any;

	return accept->openmetrics > 0 && accept->openmetrics >= text;
}
