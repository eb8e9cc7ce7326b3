/* SPDX-License-Identifier: MIT */
/* Texts of the server in the words of redlockctl. They name members and headers of requests, which a user of redlockctl
 * does not write: options stand for members, and what redlockctl does by itself is left out. See answer.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "answer.h"

/* In this order: a longer phrase before the words in it. */
static const struct {
	const char *phrase, *words;
} translations[] = {
	{"; GET /readyz says why and for how long", "; redlockctl health --ready shows why"},
	{" If the lock was granted, the same Idempotency-Key gets it", ""},
	{"after Retry-After", "later"},
	{"wait_ms", "--wait"},
	{"ttl_ms", "--ttl"},
};

static const struct {
	const char *field, *option;
} fields[] = {
	{"resource", "NAME"}, {"resources", "NAME"},  {"ttl_ms", "--ttl"},  {"wait_ms", "--wait"},
	{"mode", "--shared"}, {"slots", "--slots"},   {"owner", "--owner"}, {"metadata", "--metadata"},
	{"fence", "--fence"}, {"prefix", "--prefix"}, {"limit", "--limit"},
};

static void replace_all(char *text, size_t size, const char *phrase, const char *words)
{
	size_t phrase_len = strlen(phrase), words_len = strlen(words);
	assert(phrase_len > 0);
	for (char *at = text; (at = strstr(at, phrase)) != NULL; at += words_len) {
		char rest[ANSWER_DETAIL_MAX];
		snprintf(rest, sizeof rest, "%s", at + phrase_len);
		snprintf(at, size - (size_t)(at - text), "%s%s", words, rest);
		if (strncmp(at, words, words_len) != 0)
			return; /* it was cut off here */
	}
}

void answer_translate(char detail[ANSWER_DETAIL_MAX])
{
	for (size_t i = 0; i < sizeof translations / sizeof *translations; i++)
		replace_all(detail, ANSWER_DETAIL_MAX, translations[i].phrase, translations[i].words);
	size_t len = strlen(detail);
	if (len > 0 && detail[len - 1] == '.')
		detail[len - 1] = '\0';
}

const char *answer_option_of(const char *field)
{
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (strcmp(fields[i].field, field) == 0)
			return fields[i].option;
	return field;
}
