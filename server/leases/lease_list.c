/* SPDX-License-Identifier: MIT */
/* A page of the locks that are held, for operators.
 *
 * A held lock leaves fewer than Q masters free, so it is on one of any Q: that many are scanned (SCAN), one after the
 * other, and each key found is inspected on all masters, as by GET /locks/{resource}. A page lists a name once. A lock
 * that a master has whose scan began in an earlier page was listed there. For the present page that is no sign: the
 * key may have reached the master after its scan. The cursor carries the position, so any replica can give the next
 * page:
 *
 *     scanned.master.position.done.sum hex set of scanned masters · present master · its SCAN cursor · keys of the
 *                                      present step up to this hash are done · the sum of their hashes
 *
 * As with SCAN, locks that are held during the whole walk are listed; others may be or not. A step that alone is larger
 * than a page is listed in the order of hashes. The master's own order changes when it resizes its table or keys come
 * and go. Any other step that does not fit is left to the next page as a whole.
 *
 * Listings must not block masters or the loop: each worker runs LISTINGS_AT_ONCE, each with one SCAN of SCAN_KEYS keys
 * or INSPECTIONS_AT_ONCE inspections at a time. The others wait in the order of their arrival. A hung master blocks no
 * listing: server/masters ends its SCANs. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"

enum {
	LISTINGS_AT_ONCE = 2,
	/* of each listing: their answers are written in one round of the loop, in less than a ms */
	INSPECTIONS_AT_ONCE = 8,
	SCAN_KEYS = 100,
	/* keys that a page may look at for each lock that it may have: a rare prefix must not scan all keys */
	LOOKS_PER_LOCK = 50,
	SCANS_MIN = 50
};

struct position {
	uint16_t scanned;
	uint8_t master;
	uint64_t cursor;
	uint64_t done; /* 0: none */
	uint64_t sum;
};

struct lease_listing {
	STAILQ_ENTRY(lease_listing) entry; /* of those that have not begun */
	struct leases *leases;
	struct lease_list_request request;
	lease_list_found_fn *lock;
	lease_list_done_fn *done; /* NULL: nobody waits */
	void *arg;
	struct position at;   /* of the step whose keys are being inspected */
	struct position next; /* where the next page begins */
	bool last;            /* there is no next page */
	bool failed;          /* an inspection had no quorum: the page would lack that lock */
	uint16_t passed_over; /* masters that could not be scanned, in this page */
	unsigned scans, scans_max;
	uint16_t earlier;          /* masters whose scan began in an earlier page */
	size_t looked;             /* keys inspected in this page */
	size_t count;              /* locks of the page so far */
	size_t key_count;          /* keys of the step */
	size_t inspected, awaited; /* of them: inspections that were begun, and that are under way */
	size_t begin;              /* the items of the step; before them are the locks of earlier steps */
	struct listing_item {
		struct lease_listing *listing;
		struct lease_op *op;
		bool listed; /* it is a lock of the page */
		uint16_t resource_len;
		char resource[LEASE_RESOURCE_MAX];
	} * items; /* request.limit: a lock of the page, or an inspection for each key of the step */
};

static void scan(struct lease_listing *listing);

/* ---- cursors ---- */

static void position_print(const struct position *at, char ret[LEASE_CURSOR_MAX])
{
	snprintf(ret, LEASE_CURSOR_MAX, "%" PRIx16 ".%" PRIu8 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64, at->scanned,
		 at->master, at->cursor, at->done, at->sum);
}

static bool position_parse(const char *cursor, size_t masters, struct position *ret)
{
	struct position at;
	char again[LEASE_CURSOR_MAX];
	assert(masters >= 1 && masters <= REDLOCK_MASTERS_MAX);
	if (sscanf(cursor, "%4" SCNx16 ".%2" SCNu8 ".%20" SCNu64 ".%20" SCNu64 ".%20" SCNu64, &at.scanned, &at.master,
		   &at.cursor, &at.done, &at.sum) != 5)
		return false;
	position_print(&at, again);
	if (strcmp(again, cursor) != 0 || at.master >= masters || at.scanned >> masters != 0)
		return false;
	*ret = at;
	return true;
}

bool lease_cursor_valid(const struct leases *leases, const char *cursor)
{
	struct position at;
	return position_parse(cursor, masters_count(leases->masters), &at);
}

/* ---- the end of a page ---- */

static void listing_free(struct lease_listing *listing)
{
	free(listing->items);
	free(listing);
}

static void finish_page(struct lease_listing *listing, enum lease_status status)
{
	struct leases *leases = listing->leases;
	struct quorum_status quorum;
	assert(leases->listings > 0 && listing->awaited == 0);
	masters_quorum(leases->masters, &quorum);
	struct lease_list_answer answer = {.status = status, .count = listing->count};
	uint8_t up = (uint8_t)(quorum.voting + quorum.quarantined);
	answer.votes = (struct redlock_votes){.needed = quorum.needed,
					      .granted = quorum.voting,
					      .failed = (uint8_t)(quorum.masters - up),
					      .quarantined = quorum.quarantined,
					      .masters = quorum.masters};
	answer.retry_after_ms = status == LEASE_OK ? 0 : leases->options->retry_max_ms;
	if (!listing->last)
		position_print(&listing->next, answer.next);
	if (listing->done)
		listing->done(listing->arg, &answer);
	leases->has_news = true;
	leases->listings--;
	listing_free(listing);
}

/* ---- inspecting what a step found ---- */

/* How many more locks the page may have. */
static size_t room(const struct lease_listing *listing)
{
	assert(listing->count <= listing->request.limit);
	return listing->request.limit - listing->count;
}

/* Keeps the locks of the step. */
static void keep_listed(struct lease_listing *listing)
{
	size_t begin = listing->begin, end = begin + listing->key_count;
	for (size_t i = begin; i < end; i++)
		if (listing->items[i].listed)
			listing->items[begin++] = listing->items[i];
	listing->begin = begin;
	listing->key_count = 0;
	assert(listing->begin == listing->count);
}

static void end_step(struct lease_listing *listing)
{
	keep_listed(listing);
	if (listing->failed) {
		finish_page(listing, LEASE_NO_QUORUM);
	} else if (room(listing) > 0 && !listing->last && listing->done && listing->scans < listing->scans_max &&
		   listing->looked < LEASE_LIST_MAX) { /* a rare owner costs no more than the largest page */
		listing->at = listing->next;
		scan(listing);
	} else {
		finish_page(listing, LEASE_OK);
	}
}

static void inspect_some(struct lease_listing *listing);

/* True if this page has the lock, or an earlier one had it. */
static bool was_listed(const struct listing_item *item)
{
	const struct lease_listing *listing = item->listing;
	for (size_t i = 0; i < listing->begin + listing->key_count; i++) {
		const struct listing_item *other = &listing->items[i];
		if (other->listed && other->resource_len == item->resource_len &&
		    memcmp(other->resource, item->resource, item->resource_len) == 0)
			return true;
	}
	for (unsigned i = 0; i < REDLOCK_MASTERS_MAX; i++)
		if (redlock_has(listing->at.scanned & listing->earlier, i) &&
		    lease_op_voted(item->op, i, REDLOCK_VOTE_HELD))
			return true;
	return false;
}

static bool is_of_owner(const struct lease_list_request *request, const struct lease_holder *holder)
{
	assert(request->owner_len <= LEASE_OWNER_MAX);
	return holder->known && holder->owner_len == request->owner_len &&
	       (request->owner_len == 0 || memcmp(holder->owner, request->owner, request->owner_len) == 0);
}

/* If several hold the lock, a few holders of that owner stay in the list. */
static bool owner_matches(const struct lease_list_request *request, const struct lease_answer *answer)
{
	struct lease_holders *several = answer->several;
	uint32_t kept = 0;
	if (!request->by_owner)
		return true;
	if (!several)
		return is_of_owner(request, &answer->holder);
	for (uint32_t i = 0; i < several->listed; i++) {
		struct lease_held *held = &several->list[i];
		if (kept < LEASE_HOLDERS_FEW && is_of_owner(request, &held->holder))
			several->list[kept++] = *held;
		else
			lease_holder_fini(&held->holder);
	}
	several->listed = kept;
	return kept > 0;
}

static void on_key_inspected(void *arg, const struct lease_answer *answer)
{
	struct listing_item *item = arg;
	struct lease_listing *listing = item->listing;
	assert(listing->awaited > 0);
	if (answer->held && owner_matches(&listing->request, answer) && !was_listed(item)) {
		item->listed = true;
		listing->count++;
		if (listing->done)
			listing->lock(listing->arg, item->resource, item->resource_len, answer);
	}
	listing->failed = listing->failed || answer->status != LEASE_OK;
	listing->awaited--;
	inspect_some(listing);
}

static void add_key(struct lease_listing *listing, const struct master_scan *keys, size_t i)
{
	static const char reserved[] = "redlockd:";
	size_t prefix_len = strlen(listing->leases->options->key_prefix), key_len = 0;
	const char *key = master_scan_key(keys, i, &key_len);
	if (!key || key_len <= prefix_len || key_len - prefix_len > LEASE_RESOURCE_MAX ||
	    memmem(key + prefix_len, key_len - prefix_len, reserved, sizeof reserved - 1))
		return;
	assert(listing->key_count < room(listing));
	struct listing_item *item = &listing->items[listing->begin + listing->key_count++];
	item->listed = false;
	item->resource_len = (uint16_t)(key_len - prefix_len);
	memcpy(item->resource, key + prefix_len, item->resource_len);
}

/* A few at a time, so that a listing does not delay leases. */
static void inspect_some(struct lease_listing *listing)
{
	while (listing->awaited < INSPECTIONS_AT_ONCE && listing->inspected < listing->key_count) {
		struct listing_item *item = &listing->items[listing->begin + listing->inspected++];
		struct lease_request request = {.operation = LEASE_INSPECT,
						.wait_for_all = true,
						.few = !listing->request.by_owner,
						.resource_len = item->resource_len,
						.resource = item->resource};
		item->listing = listing;
		item->op = lease_submit(listing->leases, &request, on_key_inspected, item);
		listing->awaited++;
	}
	if (listing->awaited == 0)
		end_step(listing);
}

/* ---- scanning ---- */

/* Moves to the step after one whose SCAN gave `cursor`: on this master, on the next one, or none. */
static void move_on(struct lease_listing *listing, uint64_t cursor)
{
	struct position *next = &listing->next;
	uint8_t masters = (uint8_t)masters_count(listing->leases->masters);
	next->done = next->sum = 0;
	next->cursor = cursor;
	if (cursor != 0)
		return;
	next->scanned |= (uint16_t)(1U << next->master);
	listing->last = __builtin_popcount(next->scanned) >= redlock_majority(masters);
	while (!listing->last && redlock_has(next->scanned, next->master))
		next->master = (uint8_t)((next->master + 1U) % masters);
}

struct listing_key {
	uint64_t hash; /* never 0 */
	size_t at;
};

static int key_compare(const void *a, const void *b)
{
	uint64_t one = ((const struct listing_key *)a)->hash, other = ((const struct listing_key *)b)->hash;
	return (one > other) - (one < other);
}

/* All keys of the step, in the order of their hashes. */
static size_t sort_keys(const struct master_scan *keys, struct listing_key *ret)
{
	for (size_t i = 0; i < keys->key_count; i++) {
		size_t len = 0;
		const char *key = master_scan_key(keys, i, &len);
		uint64_t hash = key ? hash_fnv1a(key, len) : 1;
		ret[i] = (struct listing_key){hash > 0 ? hash : 1, i};
	}
	qsort(ret, keys->key_count, sizeof *ret, key_compare);
	return keys->key_count;
}

/* How many keys are done. 0 if the keys are not those that were listed: after the master has resized its table, a step
 * has keys of other steps. Some are listed again then, which is better than not at all. */
static size_t count_done(const struct position *at, const struct listing_key sorted[], size_t count)
{
	uint64_t sum = 0;
	size_t done = 0;
	for (; done < count && sorted[done].hash <= at->done; done++)
		sum += sorted[done].hash;
	return sum == at->sum ? done : 0;
}

static void handle_step(struct lease_listing *listing, const struct master_scan *keys)
{
	struct listing_key *sorted = memory_alloc((keys->key_count + 1) * sizeof *sorted);
	size_t count = sort_keys(keys, sorted), begin = count_done(&listing->at, sorted, count), end = count;
	bool fits = count - begin <= room(listing);
	listing->next = listing->at;
	if (!fits && listing->count > 0) {
		free(sorted);
		finish_page(listing, LEASE_OK);
		return;
	}
	if (fits) {
		move_on(listing, keys->cursor);
	} else {
		end = begin + room(listing);
		listing->next.done = sorted[end - 1].hash;
		listing->next.sum = 0;
		for (size_t i = 0; i < end; i++)
			listing->next.sum += sorted[i].hash;
	}
	for (size_t i = begin; i < end; i++)
		add_key(listing, keys, sorted[i].at);
	free(sorted);
	listing->inspected = 0;
	listing->looked += listing->key_count;
	inspect_some(listing);
}

/* A master that cannot be scanned is replaced by another one, as long as there is one. */
static void pass_over(struct lease_listing *listing)
{
	struct position *at = &listing->at;
	size_t masters = masters_count(listing->leases->masters);
	listing->passed_over |= (uint16_t)(1U << at->master);
	uint16_t tried = at->scanned | listing->passed_over;
	for (size_t i = 0; i < masters && redlock_has(tried, at->master); i++)
		*at = (struct position){.scanned = at->scanned, .master = (uint8_t)((at->master + 1U) % masters)};
	if (!redlock_has(tried, at->master)) {
		scan(listing);
		return;
	}
	listing->last = true;
	finish_page(listing, LEASE_NO_QUORUM);
}

static void on_scanned(void *arg, const struct master_scan *keys)
{
	if (keys)
		handle_step(arg, keys);
	else
		pass_over(arg);
}

/* SCAN may return more than it is asked for, and a step has to fit into a page. */
static unsigned scan_keys(const struct lease_list_request *request)
{
	assert(request->limit >= 1 && request->limit <= LEASE_LIST_MAX);
	unsigned half = (request->limit + 1U) / 2;
	return half < SCAN_KEYS ? half : SCAN_KEYS;
}

static void scan(struct lease_listing *listing)
{
	struct leases *leases = listing->leases;
	assert(listing->awaited == 0);
	listing->scans++;
	const struct master_scan_command command = {.cursor = listing->at.cursor,
						    .prefix = listing->request.prefix,
						    .prefix_len = listing->request.prefix_len,
						    .keys = scan_keys(&listing->request)};
	if (masters_send_scan(leases->masters, listing->at.master, &command, on_scanned, listing) != MASTER_SENT)
		pass_over(listing);
}

/* ---- beginning ---- */

struct lease_listing *lease_list(struct leases *leases, const struct lease_list_request *request,
				 lease_list_found_fn *found, lease_list_done_fn *done, void *arg)
{
	struct lease_listing *listing = memory_zeroed(1, sizeof *listing);
	listing->leases = leases;
	listing->request = *request;
	listing->lock = found;
	listing->done = done;
	listing->arg = arg;
	bool good = !request->cursor[0] ||
		    position_parse(request->cursor, masters_count(leases->masters), &listing->at);
	assert(good);
	bool is_under_way = listing->at.cursor != 0 || listing->at.done != 0;
	listing->earlier = (uint16_t)(listing->at.scanned | (is_under_way ? 1U << listing->at.master : 0));
	unsigned scans = (unsigned)request->limit * LOOKS_PER_LOCK / scan_keys(request);
	listing->scans_max = scans > SCANS_MIN ? scans : SCANS_MIN;
	STAILQ_INSERT_TAIL(&leases->new_listings, listing, entry);
	return listing;
}

bool lease_list_begin_new(struct leases *leases)
{
	struct lease_listing *listing;
	bool any = false;
	while (leases->listings < LISTINGS_AT_ONCE && (listing = STAILQ_FIRST(&leases->new_listings))) {
		STAILQ_REMOVE_HEAD(&leases->new_listings, entry);
		any = true;
		if (!listing->done) { /* its client disconnected */
			listing_free(listing);
			continue;
		}
		leases->listings++;
		listing->items = memory_zeroed(listing->request.limit, sizeof *listing->items);
		scan(listing);
	}
	return any;
}

void lease_list_cancel(struct lease_listing *listing)
{
	assert(listing->done);
	listing->done = NULL;
}
