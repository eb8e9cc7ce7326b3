/* SPDX-License-Identifier: MIT */
/* The commands of sorted sets: see store_commands.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/base/base.h"
#include "store_internal.h"

/* Argument i, or a part of it, as Redis reads a score. */
static bool read_score(const char *bytes, size_t len, double *ret)
{
	char text[NUMBER_MAX], *end;
	if (len == 0 || len >= sizeof text)
		return false;
	memcpy(text, bytes, len);
	text[len] = '\0';
	*ret = strtod(text, &end);
	return *end == '\0' && !isnan(*ret);
}

/* "(" in front: *ret_open. */
static bool bound(const struct words *words, size_t i, double *ret, bool *ret_open)
{
	*ret_open = words->lens[i] > 0 && words->argv[i][0] == '(';
	return read_score(words->argv[i] + *ret_open, words->lens[i] - *ret_open, ret);
}

static void reply_score(double score)
{
	char text[NUMBER_MAX];
	bool is_short = score >= 0 && score < 1e16 && score == (double)(uint64_t)score; /* %.17g writes it alike */
	size_t len = is_short ? text_decimal((uint64_t)score, text)
			      : (size_t)snprintf(text, sizeof text, "%.17g", score);
	store_reply_text(text, len);
}

/* The key that is a sorted set, or NULL. False: it is of another type, which is the reply. */
static bool find_set(const struct words *words, struct store_key **ret_key)
{
	return store_find_typed(words, STORE_SORTED_SET, ret_key);
}

/* ZADD key [NX|GT] score member */
void store_zadd(const struct words *words)
{
	struct store_key *key;
	bool only_new = store_is(words, 2, "NX"), only_greater = store_is(words, 2, "GT");
	size_t at = only_new || only_greater ? 3 : 2;
	double score;
	if (words->argc != at + 2) {
		store_reply_syntax_error();
	} else if (!read_score(words->argv[at], words->lens[at], &score)) {
		store_reply_error("ERR value is not a valid float");
	} else if (find_set(words, &key)) {
		const struct store_item *item = key ? store_item(key, words->argv[at + 1], words->lens[at + 1]) : NULL;
		if (item && (only_new || (only_greater && item->score >= score))) {
			store_reply_number(0);
			return;
		}
		key = store_make(words->store, words->argv[1], words->lens[1], STORE_SORTED_SET);
		store_reply_number(store_set_score(key, words->argv[at + 1], words->lens[at + 1], score));
	}
}

void store_zcard(const struct words *words)
{
	struct store_key *key;
	if (find_set(words, &key))
		store_reply_number(key ? (long long)key->count : 0);
}

/* The member that argument 2 names, NULL: it is not there. False: as find_set(). */
static bool find_member(const struct words *words, const struct store_key **ret_key, const struct store_item **ret_item)
{
	struct store_key *key;
	bool is_set = find_set(words, &key);
	*ret_key = key;
	*ret_item = is_set && key ? store_item(key, words->argv[2], words->lens[2]) : NULL;
	return is_set;
}

void store_zscore(const struct words *words)
{
	const struct store_key *key;
	const struct store_item *item;
	if (!find_member(words, &key, &item))
		return;
	if (item)
		reply_score(item->score);
	else
		store_reply_nil();
}

void store_zrank(const struct words *words)
{
	const struct store_key *key;
	const struct store_item *item;
	if (!find_member(words, &key, &item))
		return;
	if (item)
		store_reply_number(item - key->items);
	else
		store_reply_nil();
}

void store_zrem(const struct words *words)
{
	store_remove_named(words, STORE_SORTED_SET);
}

/* From and to which item: of argv[2] and argv[3], counted from the end where they are negative. False: there is an
 * error, which is the reply. */
static bool ranks(const struct words *words, const struct store_key *key, size_t *ret_first, size_t *ret_end)
{
	long long first, last;
	if (!store_integer(words, 2, &first) || !store_integer(words, 3, &last))
		return false;
	size_t count = key ? key->count : 0;
	long long end = (last < 0 ? (long long)count + last : last) + 1;
	*ret_first = store_from_end(first, count);
	*ret_end = end < 0 ? 0 : (size_t)end > count ? count : (size_t)end;
	if (*ret_first > *ret_end)
		*ret_first = *ret_end;
	return true;
}

static void reply_items(const struct store_key *key, size_t first, size_t end, bool with_scores)
{
	size_t at = 0;
	store_reply_array((end - first) * (with_scores ? 2 : 1));
	for (size_t i = first; i < end; i++) {
		store_reply_string(key->items[i].name);
		store_reply_put(at++);
		if (!with_scores)
			continue;
		reply_score(key->items[i].score);
		store_reply_put(at++);
	}
}

void store_zrange(const struct words *words)
{
	struct store_key *key;
	size_t first, end;
	bool with_scores = store_is(words, 4, "WITHSCORES");
	if (words->argc > 5 || (words->argc == 5 && !with_scores))
		store_reply_syntax_error();
	else if (find_set(words, &key) && ranks(words, key, &first, &end))
		reply_items(key, first, end, with_scores);
}

void store_zremrangebyrank(const struct words *words)
{
	struct store_key *key;
	size_t first, end;
	if (!find_set(words, &key) || !ranks(words, key, &first, &end))
		return;
	if (key && end > first) {
		key = store_own(words->store, key);
		store_remove_items(key, first, end - first);
		store_remove_if_empty(words->store, key);
	}
	store_reply_number((long long)(end - first));
}

/* The items whose scores lie within argv[2] and argv[3]. False: there is an error, which is the reply. */
static bool scores(const struct words *words, const struct store_key *key, size_t *ret_first, size_t *ret_end)
{
	double low, high;
	bool low_open, high_open;
	size_t first = 0, end = key ? key->count : 0;
	if (!bound(words, 2, &low, &low_open) || !bound(words, 3, &high, &high_open)) {
		store_reply_error("ERR min or max is not a float");
		return false;
	}
	while (first < end && (key->items[first].score < low || (low_open && key->items[first].score == low)))
		first++;
	while (end > first && (key->items[end - 1].score > high || (high_open && key->items[end - 1].score == high)))
		end--;
	*ret_first = first;
	*ret_end = end;
	return true;
}

void store_zcount(const struct words *words)
{
	struct store_key *key;
	size_t first, end;
	if (find_set(words, &key) && scores(words, key, &first, &end))
		store_reply_number((long long)(end - first));
}

/* ZRANGEBYSCORE key low high [WITHSCORES] [LIMIT offset count] */
void store_zrangebyscore(const struct words *words)
{
	struct store_key *key;
	size_t first, end, at = 4;
	long long skip = 0, most = -1;
	bool with_scores = store_is(words, at, "WITHSCORES");
	at += with_scores;
	if (store_is(words, at, "LIMIT") &&
	    (!store_integer(words, at + 1, &skip) || !store_integer(words, at + 2, &most)))
		return;
	at += store_is(words, at, "LIMIT") ? 3 : 0;
	if (at != words->argc || skip < 0) {
		store_reply_syntax_error();
		return;
	}
	if (!find_set(words, &key) || !scores(words, key, &first, &end))
		return;
	first = (size_t)skip > end - first ? end : first + (size_t)skip;
	if (most >= 0 && (size_t)most < end - first)
		end = first + (size_t)most;
	reply_items(key, first, end, with_scores);
}
