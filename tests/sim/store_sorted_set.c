/* The commands of sorted sets: see store_commands.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"

/* "(" in front: *ret_open. */
static bool bound(const struct words *words, size_t i, double *ret, bool *ret_open)
{
	char text[NUMBER_MAX], *end;
	*ret_open = words->lens[i] > 0 && words->argv[i][0] == '(';
	size_t skip = *ret_open, len = words->lens[i] - skip;
	if (len == 0 || len >= sizeof text)
		return false;
	memcpy(text, words->argv[i] + skip, len);
	text[len] = '\0';
	*ret = strtod(text, &end);
	return *end == '\0' && !isnan(*ret);
}

static redisReply *score_reply(double score)
{
	char text[NUMBER_MAX];
	int len = snprintf(text, sizeof text, "%.17g", score);
	return store_reply_text(REDIS_REPLY_STRING, text, (size_t)len);
}

/* ZADD key [NX|GT] score member */
redisReply *store_zadd(const struct words *words)
{
	struct store_key *key = store_find_key(words, 1);
	bool only_new = store_is(words, 2, "NX"), only_greater = store_is(words, 2, "GT");
	size_t at = only_new || only_greater ? 3 : 2;
	double score;
	bool open;
	if (words->argc != at + 2)
		return store_syntax_error();
	if (!bound(words, at, &score, &open) || open)
		return store_reply_error("ERR value is not a valid float");
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	const struct store_item *item = key ? store_item(key, words->argv[at + 1], words->lens[at + 1]) : NULL;
	if (item && (only_new || (only_greater && item->score >= score)))
		return store_reply_number(0);
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_SORTED_SET);
	return store_reply_number(store_set_score(key, words->argv[at + 1], words->lens[at + 1], score));
}

redisReply *store_zcard(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	return store_reply_number(key ? (long long)key->count : 0);
}

redisReply *store_zscore(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	const struct store_item *item = key ? store_item(key, words->argv[2], words->lens[2]) : NULL;
	return item ? score_reply(item->score) : store_reply_nil();
}

redisReply *store_zrank(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	const struct store_item *item = key ? store_item(key, words->argv[2], words->lens[2]) : NULL;
	return item ? store_reply_number(item - key->items) : store_reply_nil();
}

redisReply *store_zrem(const struct words *words)
{
	return store_remove_named(words, STORE_SORTED_SET);
}

/* From and to which item: of argv[2] and argv[3], counted from the end where they are negative. False: an error. */
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

static redisReply *items_reply(const struct store_key *key, size_t first, size_t end, bool with_scores)
{
	size_t step = with_scores ? 2 : 1;
	redisReply *all = store_reply_array((end - first) * step);
	for (size_t i = first; i < end; i++) {
		all->element[(i - first) * step] = store_text_reply(key->items[i].name);
		if (with_scores)
			all->element[(i - first) * step + 1] = score_reply(key->items[i].score);
	}
	return all;
}

redisReply *store_zrange(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	size_t first, end;
	bool with_scores = store_is(words, 4, "WITHSCORES");
	if (words->argc > 5 || (words->argc == 5 && !with_scores))
		return store_syntax_error();
	if (!ranks(words, key, &first, &end))
		return store_reply_error("ERR value is not an integer or out of range");
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	return items_reply(key, first, end, with_scores);
}

redisReply *store_zremrangebyrank(const struct words *words)
{
	struct store_key *key = store_find_key(words, 1);
	size_t first, end;
	if (!ranks(words, key, &first, &end))
		return store_reply_error("ERR value is not an integer or out of range");
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	if (!key)
		return store_reply_number(0);
	store_remove_items(key, first, end - first);
	store_remove_if_empty(words->store, key);
	return store_reply_number((long long)(end - first));
}

/* The items whose scores lie within argv[2] and argv[3]. False: an error. */
static bool scores(const struct words *words, const struct store_key *key, size_t *ret_first, size_t *ret_end)
{
	double low, high;
	bool low_open, high_open;
	size_t first = 0, end = key ? key->count : 0;
	if (!bound(words, 2, &low, &low_open) || !bound(words, 3, &high, &high_open))
		return false;
	while (first < end && (key->items[first].score < low || (low_open && key->items[first].score == low)))
		first++;
	while (end > first && (key->items[end - 1].score > high || (high_open && key->items[end - 1].score == high)))
		end--;
	*ret_first = first;
	*ret_end = end;
	return true;
}

redisReply *store_zcount(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	size_t first, end;
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	if (!scores(words, key, &first, &end))
		return store_reply_error("ERR min or max is not a float");
	return store_reply_number((long long)(end - first));
}

/* ZRANGEBYSCORE key low high [WITHSCORES] [LIMIT offset count] */
redisReply *store_zrangebyscore(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	size_t first, end, at = 4;
	long long skip = 0, most = -1;
	bool with_scores = store_is(words, at, "WITHSCORES");
	at += with_scores;
	if (store_is(words, at, "LIMIT") &&
	    (!store_integer(words, at + 1, &skip) || !store_integer(words, at + 2, &most)))
		return store_reply_error("ERR value is not an integer or out of range");
	at += store_is(words, at, "LIMIT") ? 3 : 0;
	if (at != words->argc || skip < 0)
		return store_syntax_error();
	if (key && key->type != STORE_SORTED_SET)
		return store_wrong_type();
	if (!scores(words, key, &first, &end))
		return store_reply_error("ERR min or max is not a float");
	first = (size_t)skip > end - first ? end : first + (size_t)skip;
	if (most >= 0 && (size_t)most < end - first)
		end = first + (size_t)most;
	return items_reply(key, first, end, with_scores);
}
