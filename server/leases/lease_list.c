/* A page of the locks that are held, for operators.
 *
 * A held lock leaves fewer than Q masters free, so it is on one of any Q: that many are scanned (SCAN), one after the
 * other, and each key found is inspected on all masters, as by GET /locks/{resource}. A lock that an earlier scanned
 * master has, too, was listed there. The cursor carries the position, so any replica can give the next page:
 *
 *     scanned.master.position.skip     hex set of scanned masters · present master · its SCAN cursor · keys done of the
 *                                      present step
 *
 * As with SCAN, locks that are held during the whole walk are listed; others may be or not. `skip` counts keys in an
 * order that changes when the master resizes its table. So it is used only for a step that alone is larger than a page;
 * any other step that does not fit is left to the next page as a whole.
 *
 * Listings must not block masters or the loop: each worker runs LEASE_LISTINGS, each in a slot, with one SCAN of
 * LEASE_SCAN_KEYS keys or INSPECTIONS_AT_ONCE inspections at a time. The others wait in the order of their arrival. A
 * SCAN has a deadline, so that a hung master blocks no slot; a later answer is ignored (`struct listing_scan`). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"

enum {
	INSPECTIONS_AT_ONCE = 16,
	/* keys that a page may look at for each lock that it may have: a rare prefix must not scan all keys */
	LOOKS_PER_LOCK = 50,
	SCANS_MIN = 50,
	SCAN_MS_MIN = 1000 /* for its answer, also after a stall of this process */
};

struct position {
	uint16_t scanned;
	uint8_t master;
	uint64_t cursor;
	uint32_t skip;
};

struct lease_listing {
	struct lease_listing *queue_next; /* of those that have not begun */
	struct leases *leases;
	struct lease_list_slot *slot; /* NULL: it has not begun */
	struct listing_scan *scan;    /* under way, or NULL */
	struct lease_list_request request;
	lease_list_done_fn *done; /* NULL: nobody waits */
	void *arg;
	struct position at;   /* of the step whose keys are being inspected */
	struct position next; /* where the next page begins */
	bool last;            /* there is no next page */
	bool failed;          /* an inspection had no quorum: the page would lack that lock */
	uint16_t passed_over; /* masters that could not be scanned, in this page */
	unsigned scans, scans_max;
	size_t awaited;   /* inspections under way */
	size_t inspected; /* items whose inspection was begun */
	size_t count;
	struct lease_state *states; /* request.limit of them, and as many items; NULL until it begins */
	struct listing_item {
		struct lease_listing *listing;
		struct lease_op *op;
		struct lease_state state;
		bool listed;
	} * items;
	size_t item_count;
};

/* One SCAN under way. */
struct listing_scan {
	struct lease_listing *listing; /* NULL: its deadline has passed */
};

static void scan(struct lease_listing *listing);

/* ---- cursors ---- */

static bool position_parse(const char *cursor, size_t masters, struct position *ret)
{
	struct position at = {0};
	assert(masters >= 1 && masters <= REDLOCK_MASTERS_MAX);
	unsigned scanned = 0, master = 0, skip = 0;
	unsigned long long position = 0;
	int end = 0;
	char again[LEASE_CURSOR_MAX];
	if (sscanf(cursor, "%4x.%2u.%20llu.%6u%n", &scanned, &master, &position, &skip, &end) != 4 ||
	    cursor[end] != '\0')
		return false;
	snprintf(again, sizeof again, "%x.%u.%llu.%u", scanned, master, position, skip);
	if (strcmp(again, cursor) != 0 || master >= masters || scanned >> masters != 0)
		return false;
	at.scanned = (uint16_t)scanned;
	at.master = (uint8_t)master;
	at.cursor = position;
	at.skip = skip;
	*ret = at;
	return true;
}

static void position_print(const struct position *at, char ret[LEASE_CURSOR_MAX])
{
	snprintf(ret, LEASE_CURSOR_MAX, "%x.%u.%llu.%u", at->scanned, at->master, (unsigned long long)at->cursor,
		 at->skip);
}

bool lease_cursor_valid(const struct leases *leases, const char *cursor)
{
	struct position at;
	return position_parse(cursor, masters_count(leases->masters), &at);
}

/* ---- the end of a page ---- */

static void listing_free(struct lease_listing *listing)
{
	free(listing->states);
	free(listing->items);
	free(listing);
}

static void finish(struct lease_listing *listing, enum lease_status status)
{
	struct quorum_status quorum;
	assert(listing->slot && listing->awaited == 0 && !listing->scan);
	masters_quorum(listing->leases->masters, &quorum);
	struct lease_list_answer answer = {.status = status, .count = listing->count, .states = listing->states};
	answer.votes = (struct redlock_votes){.needed = quorum.needed,
					      .granted = quorum.voting,
					      .failed = (uint8_t)(quorum.masters - quorum.voting),
					      .masters = quorum.masters};
	answer.retry_after_ms = status == LEASE_OK ? 0 : listing->leases->options->retry_max_ms;
	if (!listing->last)
		position_print(&listing->next, answer.next);
	if (listing->done)
		listing->done(listing->arg, &answer);
	listing->leases->list_answered = true;
	listing->slot->listing = NULL;
	listing_free(listing);
}

/* ---- inspecting what a step found ---- */

/* How many more locks the page may hold. */
static size_t room(const struct lease_listing *listing)
{
	assert(listing->count <= listing->request.limit);
	return listing->request.limit - listing->count;
}

static void gather(struct lease_listing *listing)
{
	for (size_t i = 0; i < listing->item_count; i++)
		if (listing->items[i].listed)
			listing->states[listing->count++] = listing->items[i].state;
	listing->item_count = 0;
	if (listing->failed) {
		finish(listing, LEASE_NO_QUORUM);
		return;
	}
	if (room(listing) > 0 && !listing->last && listing->done && listing->scans < listing->scans_max) {
		listing->at = listing->next;
		scan(listing);
		return;
	}
	finish(listing, LEASE_OK);
}

static void inspect_some(struct lease_listing *listing);

static void on_inspected(void *arg, const struct lease_answer *answer)
{
	struct listing_item *item = arg;
	struct lease_listing *listing = item->listing;
	item->state.answer = *answer;
	assert(listing->awaited > 0);
	listing->failed = listing->failed || answer->status != LEASE_OK;
	item->listed = answer->status == LEASE_OK && answer->held && !lease_op_seen_on(item->op, listing->at.scanned);
	listing->awaited--;
	inspect_some(listing);
}

static void add_key(struct lease_listing *listing, const struct master_scan *keys, size_t i)
{
	size_t prefix_len = strlen(listing->leases->options->key_prefix), key_len = 0;
	const char *key = master_scan_key(keys, i, &key_len);
	if (!key || key_len <= prefix_len || key_len - prefix_len > LEASE_RESOURCE_MAX)
		return;
	assert(listing->item_count < listing->request.limit);
	struct listing_item *item = &listing->items[listing->item_count];
	const char *resource = key + prefix_len;
	*item = (struct listing_item){.listing = listing};
	item->state.resource_len = (uint16_t)(key_len - prefix_len);
	memcpy(item->state.resource, resource, item->state.resource_len);
	static const char reserved[] = "redlockd:";
	if (!memmem(resource, item->state.resource_len, reserved, sizeof reserved - 1))
		listing->item_count++;
}

/* A few at a time, so that a listing does not delay leases. */
static void inspect_some(struct lease_listing *listing)
{
	while (listing->awaited < INSPECTIONS_AT_ONCE && listing->inspected < listing->item_count) {
		struct listing_item *item = &listing->items[listing->inspected++];
		struct lease_request request = {.operation = LEASE_INSPECT, .resource_len = item->state.resource_len};
		memcpy(request.resource, item->state.resource, item->state.resource_len);
		item->op = lease_submit_op(listing->leases, &request, true, on_inspected, item);
		if (item->op)
			listing->awaited++;
		else
			listing->failed = true;
	}
	if (listing->awaited == 0)
		gather(listing);
}

/* ---- scanning ---- */

static unsigned masters_to_scan(const struct leases *leases)
{
	return redlock_majority((uint8_t)masters_count(leases->masters));
}

/* Moves to the step after one whose SCAN gave `cursor`: on this master, on the next one, or none. */
static void advance(struct lease_listing *listing, uint64_t cursor)
{
	struct position *next = &listing->next;
	*next = listing->at;
	next->skip = 0;
	next->cursor = cursor;
	if (cursor != 0)
		return;
	next->scanned |= (uint16_t)(1U << next->master);
	listing->last = (unsigned)__builtin_popcount(next->scanned) >= masters_to_scan(listing->leases);
	while (!listing->last && redlock_has(next->scanned, next->master))
		next->master = (uint8_t)((next->master + 1U) % masters_count(listing->leases->masters));
}

static void handle_step(struct lease_listing *listing, const struct master_scan *keys)
{
	size_t end = listing->at.skip + room(listing);
	if (keys->key_count > end && listing->count > 0) {
		listing->next = listing->at;
		finish(listing, LEASE_OK);
		return;
	}
	for (size_t i = listing->at.skip; i < keys->key_count && i < end; i++)
		add_key(listing, keys, i);
	if (keys->key_count > end) {
		listing->next = listing->at;
		listing->next.skip = (uint32_t)end;
	} else {
		advance(listing, keys->cursor);
	}
	listing->inspected = 0;
	inspect_some(listing);
}

/* A master that cannot be scanned is replaced by another one, as long as there is one. */
static void pass_over(struct lease_listing *listing)
{
	struct position *at = &listing->at;
	size_t masters = masters_count(listing->leases->masters);
	listing->passed_over |= (uint16_t)(1U << at->master);
	for (size_t i = 0; i < masters; i++) {
		at->master = (uint8_t)((at->master + 1U) % masters);
		at->cursor = 0;
		at->skip = 0;
		if (redlock_has(at->scanned | listing->passed_over, at->master))
			continue;
		scan(listing);
		return;
	}
	listing->last = true;
	finish(listing, LEASE_NO_QUORUM);
}

static void on_scanned(void *arg, const struct master_scan *keys)
{
	struct listing_scan *under_way = arg;
	struct lease_listing *listing = under_way->listing;
	free(under_way);
	if (!listing)
		return;
	listing->scan = NULL;
	uv_timer_stop(&listing->slot->timer);
	if (keys)
		handle_step(listing, keys);
	else
		pass_over(listing);
}

static void on_scan_late(uv_timer_t *timer)
{
	struct lease_list_slot *slot = timer->data;
	struct lease_listing *listing = slot->listing;
	assert(listing && listing->scan);
	listing->scan->listing = NULL;
	listing->scan = NULL;
	pass_over(listing);
}

static uint64_t scan_time_ms(const struct leases *leases)
{
	uint64_t time_ms = UINT64_C(4) * leases->options->master_timeout_ms;
	return time_ms > SCAN_MS_MIN ? time_ms : SCAN_MS_MIN;
}

static void scan(struct lease_listing *listing)
{
	struct leases *leases = listing->leases;
	char command[LEASE_COMMAND_MAX];
	assert(!listing->scan && listing->awaited == 0);
	listing->scans++;
	size_t len = lease_command_scan(leases->options, &listing->request, listing->at.cursor, command);
	struct listing_scan *under_way = malloc(sizeof *under_way);
	if (under_way && masters_send_scan(leases->masters, listing->at.master, command, len, on_scanned, under_way) ==
				 MASTER_SENT) {
		under_way->listing = listing;
		listing->scan = under_way;
		uv_timer_start(&listing->slot->timer, on_scan_late, scan_time_ms(leases), 0);
		return;
	}
	free(under_way);
	pass_over(listing);
}

struct lease_listing *lease_list(struct leases *leases, const struct lease_list_request *request,
				 lease_list_done_fn *done, void *arg)
{
	assert(request->limit >= 1 && request->limit <= LEASE_LIST_MAX);
	struct lease_listing *listing = calloc(1, sizeof *listing);
	if (!listing)
		return NULL;
	listing->leases = leases;
	listing->request = *request;
	listing->done = done;
	listing->arg = arg;
	bool good = !request->cursor[0] ||
		    position_parse(request->cursor, masters_count(leases->masters), &listing->at);
	assert(good);
	unsigned scans = (unsigned)request->limit * LOOKS_PER_LOCK / lease_command_scan_keys(request);
	listing->scans_max = scans > SCANS_MIN ? scans : SCANS_MIN;
	*(leases->list_last ? &leases->list_last->queue_next : &leases->list_first) = listing;
	leases->list_last = listing;
	return listing;
}

static struct lease_list_slot *find_slot(struct leases *leases)
{
	for (size_t i = 0; i < LEASE_LISTINGS; i++)
		if (!leases->list_slots[i].listing)
			return &leases->list_slots[i];
	return NULL;
}

static void begin(struct lease_listing *listing, struct lease_list_slot *slot)
{
	assert(!slot->listing && !listing->slot);
	slot->listing = listing;
	listing->slot = slot;
	listing->states = calloc(listing->request.limit, sizeof *listing->states);
	listing->items = calloc(listing->request.limit, sizeof *listing->items);
	if (listing->states && listing->items)
		scan(listing);
	else
		finish(listing, LEASE_NO_QUORUM); /* memory is short: the client tries again */
}

bool lease_list_begin_new(struct leases *leases)
{
	bool any = false;
	struct lease_list_slot *slot;
	while (leases->list_first && (slot = find_slot(leases))) {
		struct lease_listing *listing = leases->list_first;
		leases->list_first = listing->queue_next;
		if (!leases->list_first)
			leases->list_last = NULL;
		any = true;
		if (listing->done)
			begin(listing, slot);
		else
			listing_free(listing); /* its client disconnected */
	}
	return any;
}

void lease_list_cancel(struct lease_listing *listing)
{
	assert(listing->done);
	listing->done = NULL;
}

bool lease_list_init(struct leases *leases)
{
	for (size_t i = 0; i < LEASE_LISTINGS; i++) {
		struct lease_list_slot *slot = &leases->list_slots[i];
		if (uv_timer_init(leases->loop, &slot->timer) != 0)
			return false;
		slot->timer.data = slot;
	}
	return true;
}

void lease_list_close(struct leases *leases)
{
	assert(!leases->list_first);
	for (size_t i = 0; i < LEASE_LISTINGS; i++)
		uv_close((uv_handle_t *)&leases->list_slots[i].timer, NULL);
}
