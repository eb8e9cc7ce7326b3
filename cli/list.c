/* SPDX-License-Identifier: MIT */
/* The locks that are held, from as many pages as it takes. See commands.h. */
#include <assert.h>
#include <string.h>

#include "commands.h"

enum { PAGE_MAX = 1000, CURSOR_MAX = 63 };

static bool list_has_filter(const struct arguments *arguments)
{
	return arguments->below > 0 || arguments->below_full || arguments->restart_safe;
}

/* True if fewer masters have the lock than the filter requires. A lock without votes has none. */
static bool list_is_below(const struct arguments *arguments, const json_t *lock)
{
	const json_t *votes = json_object_get(lock, "votes");
	json_int_t granted = json_integer_value(json_object_get(votes, "granted"));
	json_int_t all = json_integer_value(json_object_get(votes, "masters"));
	if (arguments->below > 0)
		return granted < (json_int_t)arguments->below;
	return all == 0 || granted < all;
}

/* Adds the locks of a page, up to the limit. False: it is not a page. */
static bool list_add_page(const struct arguments *arguments, json_t *all, const json_t *page, bool *ret_is_cut)
{
	size_t i;
	json_t *lock;
	json_array_foreach(page, i, lock)
	{
		if (list_has_filter(arguments) && !list_is_below(arguments, lock))
			continue;
		*ret_is_cut = arguments->limit != 0 && json_array_size(all) == arguments->limit;
		if (*ret_is_cut)
			break;
		json_array_append(all, lock);
	}
	return json_is_array(page);
}

/* Requests one page and adds it to `all`. Sets the cursor to that of the next page, or to "". */
static bool list_page(struct client *client, json_t *all, char cursor[CURSOR_MAX + 1], bool *ret_is_cut,
		      struct answer *answer)
{
	const struct arguments *arguments = client->arguments;
	uint64_t limit = arguments->limit, left = limit == 0 ? PAGE_MAX : limit - json_array_size(all);
	assert(limit == 0 || json_array_size(all) < limit);
	answer_fini(answer);
	if (left > PAGE_MAX || list_has_filter(arguments))
		left = PAGE_MAX;
	struct client_request request = client_request_list(arguments, left, cursor);
	*answer = client_ask(client, arguments->servers.count, &request, arguments->timeout_ms * 1000, false);
	if (answer->outcome != OUTCOME_DONE)
		return false;
	const char *next = answer_member(answer->json, "cursor");
	if (!list_add_page(arguments, all, json_object_get(answer->json, "locks"), ret_is_cut) ||
	    strlen(next) > CURSOR_MAX) {
		answer_set(answer, OUTCOME_STRANGE, "strange", "the answer is not from redlockd");
		return false;
	}
	strcpy(cursor, next);
	return true;
}

bool list_locks(struct client *client, json_t *ret_locks, bool *ret_more, struct answer *ret_answer)
{
	uint64_t limit = client->arguments->limit;
	char cursor[CURSOR_MAX + 1] = "";
	bool done, is_cut = false;
	*ret_answer = (struct answer){.outcome = OUTCOME_DONE};
	do
		done = list_page(client, ret_locks, cursor, &is_cut, ret_answer);
	while (done && *cursor != '\0' && (limit == 0 || json_array_size(ret_locks) < limit));
	*ret_more = is_cut || *cursor != '\0';
	return done;
}
