/* SPDX-License-Identifier: MIT */
/* Watched resources of this worker: one watch for each, however many watchers it has. At the end, the holders that want
 * to know of waiters.
 *
 *     first watcher ─► look ─► state ─► watchers that have not seen it
 *                       ▲        └──► next look: a publication, the end of the holder's time, LOOK_MS
 *                       └────────────────┘
 *
 * A look is an inspection that also makes the masters publish each change of the holder for WATCH_MS (inspect.lua and
 * publish_change() in lib/lease.lua). So a watch costs the masters an inspection for each change and one every LOOK_MS,
 * since a publication can be lost.
 *
 * The masters publish a change while it happens: publications that come together cause one look (SOON_MS), and a look
 * that finds no majority for one holder, or for one of several, may have seen half a grant. Then the watch looks again
 * for a while before it reports the state. */
#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum {
	SOON_MS = 2,
	UNCLEAR_MS = 10,   /* the pause after an unclear look; doubles with each */
	UNCLEAR_LOOKS = 5, /* after so many in a row, and this time, an unclear state is reported, too */
	UNCLEAR_MAX_MS = 300,
	DOWN_MS = 1000, /* after a look without a quorum */
	LOOK_MS = 5000,
	WATCH_MS = 3 * LOOK_MS,
	NOTIFY_AT_ONCE = 32, /* watchers in a round of the loop: thousands would delay leases */
	NOTIFY_MS = 1
};

struct lease_watch {
	struct lease_name name;
	struct leases *leases;
	LIST_ENTRY(lease_watch) entry;
	TAILQ_HEAD(, lease_watcher) watchers; /* those that were notified last are at the end */
	size_t count, unnotified;             /* watchers, and how many of the first are to be notified */
	struct transport_timer *notifier;
	struct transport_timer *timer; /* of the next look */
	uint64_t due_us;               /* its time, while no look is under way */
	struct lease_op *look;         /* under way, or NULL */
	bool again;                    /* a change was published since it left */
	unsigned unclear;              /* looks in a row that found no clear state */
	uint64_t unclear_us;           /* the time of the first of them */
	char tag[LEASE_TAG_MAX];       /* of the state that was reported last; "": none yet */
	uint64_t inspected_us;         /* when it was found */
	struct lease_answer answer;    /* the state; the time that remains as it was then */
	struct lease_answer now;       /* the same with what remains now, sharing its memory */
	char bytes[];                  /* of the name */
};

struct lease_watcher {
	TAILQ_ENTRY(lease_watcher) entry;
	struct lease_watch *watch;
	struct transport_timer *timer;
	uint32_t time_ms;
	char seen[LEASE_TAG_MAX];
	lease_watch_fn *event;
	void *arg;
};

/* ---- notifying ---- */

static void arm_watcher(struct lease_watcher *watcher)
{
	transport_timer_start(watcher->timer, watcher->time_ms);
}

static void notify_watcher(struct lease_watcher *watcher)
{
	if (strcmp(watcher->seen, watcher->watch->tag) != 0)
		watcher->event(watcher->arg, LEASE_WATCH_CHANGED); /* may end it */
}

static void notify_some(struct lease_watch *watch)
{
	size_t some = MIN(watch->unnotified, (size_t)NOTIFY_AT_ONCE);
	watch->unnotified -= some;
	if (watch->unnotified > 0)
		transport_timer_start(watch->notifier, NOTIFY_MS);
	for (struct lease_watcher *watcher = TAILQ_FIRST(&watch->watchers), *next; watcher && some > 0; some--) {
		next = TAILQ_NEXT(watcher, entry);
		TAILQ_REMOVE(&watch->watchers, watcher, entry);
		TAILQ_INSERT_TAIL(&watch->watchers, watcher, entry);
		notify_watcher(watcher); /* may end it, and with the last one the watch */
		watcher = next;
	}
}

static void on_notifier(void *arg)
{
	struct lease_watch *watch = arg;
	watch->leases->has_news = true;
	notify_some(watch);
}

/* The time of a watcher is over. A new watcher gets the known state. */
static void on_watcher_timer(void *arg)
{
	struct lease_watcher *watcher = arg;
	bool begins = watcher->seen[0] == '\0' && watcher->watch->tag[0] != '\0';
	arm_watcher(watcher);
	watcher->watch->leases->has_news = true;
	watcher->event(watcher->arg, begins ? LEASE_WATCH_CHANGED : LEASE_WATCH_TIME);
}

const struct lease_answer *lease_watch_take(struct lease_watcher *watcher, const char **ret_tag)
{
	struct lease_watch *watch = watcher->watch;
	if (watch->tag[0] == '\0' || strcmp(watcher->seen, watch->tag) == 0)
		return NULL;
	memcpy(watcher->seen, watch->tag, sizeof watcher->seen);
	arm_watcher(watcher);
	uint64_t ago_ms = (clock_now_us() - watch->inspected_us) / 1000;
	watch->now = watch->answer;
	watch->now.remaining_ms -= MIN(ago_ms, watch->now.remaining_ms);
	watch->now.ago_ms = ago_ms;
	*ret_tag = watch->tag;
	return &watch->now;
}

const char *lease_watch_tag(const struct lease_watcher *watcher)
{
	return watcher->watch->tag;
}

/* ---- looking ---- */

static void look_within(struct lease_watch *watch, uint64_t ms)
{
	uint64_t due_us = clock_now_us() + ms * 1000;
	if (watch->look) {
		watch->again = true;
	} else if (due_us < watch->due_us) {
		watch->due_us = due_us;
		transport_timer_start(watch->timer, ms);
	}
}

/* How long until the next look if nothing is published. */
static uint64_t pause_ms(const struct lease_watch *watch, const struct lease_answer *answer)
{
	if (watch->again)
		return SOON_MS;
	if (watch->unclear > 0)
		return (uint64_t)UNCLEAR_MS << MIN(watch->unclear - 1, UNCLEAR_LOOKS - 1);
	if (answer->status != LEASE_OK)
		return DOWN_MS;
	return answer->held && answer->expires ? MIN(answer->remaining_ms + SOON_MS, LOOK_MS) : LOOK_MS;
}

/* The looks alone say little: many changes cause many looks in a short time. */
static void count_unclear(struct lease_watch *watch, bool clear)
{
	uint64_t now_us = clock_now_us();
	if (watch->unclear == 0)
		watch->unclear_us = now_us;
	bool is_over = watch->unclear >= UNCLEAR_LOOKS && now_us - watch->unclear_us > UNCLEAR_MAX_MS * 1000;
	watch->unclear = clear || is_over ? 0 : watch->unclear + 1;
}

static void on_look(void *arg, const struct lease_answer *answer)
{
	struct lease_watch *watch = arg;
	char tag[LEASE_TAG_MAX];
	assert(watch->look && answer->status != LEASE_DRAINING);
	lease_tag_write(answer, tag);
	bool is_majority = answer->votes.granted >= answer->votes.needed && strcmp(tag, "split") != 0;
	bool clear = answer->status != LEASE_OK || !answer->held || is_majority || strcmp(tag, watch->tag) == 0;
	watch->look = NULL;
	count_unclear(watch, clear);
	uint64_t next_ms = pause_ms(watch, answer);
	watch->again = false;
	watch->due_us = REDLOCK_NEVER;
	look_within(watch, next_ms);
	if (watch->unclear > 0)
		return;
	lease_answer_set(&watch->answer, answer);
	watch->inspected_us = clock_now_us();
	memcpy(watch->tag, tag, sizeof watch->tag);
	watch->unnotified = watch->count;
	notify_some(watch); /* may end it */
}

static void on_look_timer(void *arg)
{
	struct lease_watch *watch = arg;
	struct lease_request request = {.operation = LEASE_INSPECT,
					.ttl_ms = WATCH_MS,
					.resource_len = (uint16_t)watch->name.resource_len,
					.resource = watch->bytes};
	assert(!watch->look);
	watch->look = lease_submit(watch->leases, &request, on_look, watch);
}

void lease_watch_handle_change(struct leases *leases, const char *resource, size_t len)
{
	const struct lease_name name = {resource, len};
	struct lease_watch *const *node = tfind(&name, &leases->watches.by_name, lease_name_compare);
	if (node)
		look_within(*node, SOON_MS);
}

void lease_watch_handle_missed(struct leases *leases)
{
	struct lease_watch *watch;
	LIST_FOREACH(watch, &leases->watches.all, entry)
	look_within(watch, SOON_MS);
}

/* ---- beginning and ending ---- */

static struct lease_watch *watch_new(struct leases *leases, const struct lease_name *name)
{
	struct lease_watch *watch = memory_zeroed(1, sizeof *watch + name->resource_len);
	watch->leases = leases;
	watch->name.resource = memcpy(watch->bytes, name->resource, name->resource_len);
	watch->name.resource_len = name->resource_len;
	watch->timer = transport_timer_new(leases->loop, on_look_timer, watch);
	watch->notifier = transport_timer_new(leases->loop, on_notifier, watch);
	watch->due_us = REDLOCK_NEVER;
	TAILQ_INIT(&watch->watchers);
	LIST_INSERT_HEAD(&leases->watches.all, watch, entry);
	if (!tsearch(watch, &leases->watches.by_name, lease_name_compare))
		memory_exhausted("watch");
	lease_queues_listen(leases, true);
	return watch;
}

static void watch_free(struct lease_watch *watch)
{
	assert(TAILQ_EMPTY(&watch->watchers));
	if (watch->look)
		lease_cancel(watch->look);
	transport_timer_free(watch->timer);
	transport_timer_free(watch->notifier);
	LIST_REMOVE(watch, entry);
	tdelete(watch, &watch->leases->watches.by_name, lease_name_compare);
	lease_answer_fini(&watch->answer);
	lease_queues_listen(watch->leases, false);
	free(watch);
}

static void count_watcher(struct leases *leases, bool more)
{
	leases->watches.watchers += more ? 1 : (size_t)-1;
	metrics_set(&leases->metrics->watchers, leases->watches.watchers);
}

bool lease_watch_is_full(const struct leases *leases)
{
	return metrics_watchers() >= leases->options->max_waiters;
}

struct lease_watcher *lease_watch(struct leases *leases, const char *resource, size_t resource_len, const char *seen,
				  uint32_t time_ms, lease_watch_fn *event, void *arg)
{
	assert(resource_len >= 1 && resource_len <= LEASE_RESOURCE_MAX && strlen(seen) < LEASE_TAG_MAX && event);
	const struct lease_name name = {resource, resource_len};
	struct lease_watch *const *node = tfind(&name, &leases->watches.by_name, lease_name_compare);
	struct lease_watch *watch = node ? *node : watch_new(leases, &name);
	struct lease_watcher *watcher = memory_zeroed(1, sizeof *watcher);
	watcher->watch = watch;
	watcher->time_ms = time_ms;
	watcher->event = event;
	watcher->arg = arg;
	strcpy(watcher->seen, seen);
	watcher->timer = transport_timer_new(leases->loop, on_watcher_timer, watcher);
	TAILQ_INSERT_TAIL(&watch->watchers, watcher, entry);
	watch->count++;
	count_watcher(leases, true);
	/* A watcher without a state gets the known one at once. If its own state differs from the known one, the
	 * watch looks again: the known one may be older, if the watcher has its state from another redlockd. */
	if (watch->tag[0] != '\0' && seen[0] == '\0')
		transport_timer_start(watcher->timer, 0);
	else
		arm_watcher(watcher);
	if (watch->tag[0] == '\0' || (seen[0] != '\0' && strcmp(seen, watch->tag) != 0))
		look_within(watch, SOON_MS);
	return watcher;
}

void lease_watch_end(struct lease_watcher *watcher)
{
	struct lease_watch *watch = watcher->watch;
	TAILQ_REMOVE(&watch->watchers, watcher, entry);
	watch->count--;
	count_watcher(watch->leases, false);
	transport_timer_free(watcher->timer);
	if (TAILQ_EMPTY(&watch->watchers))
		watch_free(watch);
	free(watcher);
}

void lease_watch_drain(struct leases *leases)
{
	for (struct lease_watch *watch = LIST_FIRST(&leases->watches.all), *next_watch; watch; watch = next_watch) {
		next_watch = LIST_NEXT(watch, entry);
		for (struct lease_watcher *watcher = TAILQ_FIRST(&watch->watchers), *next; watcher; watcher = next) {
			next = TAILQ_NEXT(watcher, entry);
			watcher->event(watcher->arg, LEASE_WATCH_DRAINING);
		}
	}
}

/* ---- holders that want to know when somebody waits ----
 *
 * The extension of a held lease asks the masters for a message, until the lease ends. It rests on the rule that nothing
 * causes work that nobody asked for: acquire.lua publishes "wanted key" only for a resource whose holder asked, and
 * only when its empty queue gets an entry (queue_publish_wanted in lib/queue.lua). So thousands of waiters cost one
 * message of each master. The next renewal makes up for a lost message, since its answer has the number of waiters. */

struct wanted_name {
	struct lease_name name;
	LIST_HEAD(, wanted_entry) entries;
	char bytes[]; /* of the name */
};

/* One of the resources of a holder. */
struct wanted_entry {
	LIST_ENTRY(wanted_entry) entry;
	struct wanted_name *name;
	struct lease_wanted *wanted;
};

struct lease_wanted {
	struct leases *leases;
	lease_wanted_fn *event;
	void *arg;
	size_t count;
	struct wanted_entry entries[];
};

static struct wanted_name *wanted_name_find(const struct leases *leases, const char *resource, size_t len)
{
	const struct lease_name name = {resource, len};
	struct wanted_name *const *node = tfind(&name, &leases->wanted, lease_name_compare);
	return node ? *node : NULL;
}

static struct wanted_name *wanted_name_new(struct leases *leases, const char *resource, size_t len)
{
	struct wanted_name *name = memory_zeroed(1, sizeof *name + len);
	name->name.resource = memcpy(name->bytes, resource, len);
	name->name.resource_len = len;
	LIST_INIT(&name->entries);
	if (!tsearch(name, &leases->wanted, lease_name_compare))
		memory_exhausted("wanted");
	return name;
}

void lease_wanted_handle(struct leases *leases, unsigned master, const char *resource, size_t len)
{
	const struct wanted_name *name = wanted_name_find(leases, resource, len);
	const struct wanted_entry *entry;
	if (!name)
		return;
	leases->has_news = true;
	LIST_FOREACH(entry, &name->entries, entry)
	entry->wanted->event(entry->wanted->arg, master);
}

struct lease_wanted *lease_wanted_listen(struct leases *leases, const struct lease_request *extension,
					 lease_wanted_fn *event, void *arg)
{
	size_t count = lease_request_count(extension), len;
	const char *at = extension->resource, *end = at + extension->resource_len, *resource;
	struct lease_wanted *wanted = memory_zeroed(1, sizeof *wanted + count * sizeof *wanted->entries);
	assert(extension->operation == LEASE_EXTEND && extension->hold && event);
	wanted->leases = leases;
	wanted->event = event;
	wanted->arg = arg;
	for (; text_line(&at, end, &resource, &len); wanted->count++) {
		struct wanted_name *name = wanted_name_find(leases, resource, len);
		struct wanted_entry *entry = &wanted->entries[wanted->count];
		assert(wanted->count < count);
		entry->wanted = wanted;
		entry->name = name ? name : wanted_name_new(leases, resource, len);
		LIST_INSERT_HEAD(&entry->name->entries, entry, entry);
	}
	lease_queues_listen(leases, true);
	return wanted;
}

void lease_wanted_end(struct lease_wanted *wanted)
{
	assert(wanted->count > 0);
	for (size_t i = 0; i < wanted->count; i++) {
		struct wanted_name *name = wanted->entries[i].name;
		LIST_REMOVE(&wanted->entries[i], entry);
		if (!LIST_EMPTY(&name->entries))
			continue;
		tdelete(name, &wanted->leases->wanted, lease_name_compare);
		free(name);
	}
	lease_queues_listen(wanted->leases, false);
	free(wanted);
}
