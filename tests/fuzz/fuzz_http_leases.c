/* SPDX-License-Identifier: MIT */
/* Leases, holds and masters as the HTTP side sees them, for fuzz_http.c: they keep what they are asked for until the
 * input says what the answer is, and look whether all of it is as the headers of server/ demand. Every granted lease
 * has a token of its own, by which it is found again. */
#include <arpa/inet.h>

#include "api/calls/calls_internal.h"
#include "api/http/http_internal.h"
#include "fuzz_http.h"
#include "fuzz_words.h"
#include "server/leases/leases.h"
#include "server/masters/masters.h"

#define TOKEN_HEAD "f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0"

struct leases leases;

struct holds {
	size_t count;
};

struct hold {
	struct hold *next;
	int grant;
	bool lost, over, wanted;
	hold_event_fn *on_event;
	void *arg;
};
static struct hold *all_holds;

static const struct redlock_votes good_votes = {.needed = 2, .granted = 3, .masters = 3},
				  bad_votes = {.needed = 2, .granted = 1, .failed = 2, .masters = 3};

/* ---- operations ---- */

static bool has_names(const struct lease_request *request)
{
	const char *at = request->resource, *end = at + request->resource_len, *name = at;
	size_t len = request->resource_len, count = 0;
	if (request->set_count == 0)
		return words_name_resource(name, len);
	while (text_line(&at, end, &name, &len) && words_name_resource(name, len))
		count++;
	return at > end && count == request->set_count;
}

static void check_request(const struct lease_request *request)
{
	bool by_token = request->operation == LEASE_EXTEND || request->operation == LEASE_RELEASE;
	MUST(has_names(request), "a resource of %u bytes", request->resource_len);
	MUST(!by_token || strspn(request->token, "0123456789abcdef") >= LEASE_TOKEN_LEN, "no token");
	if (request->operation == LEASE_ACQUIRE) {
		MUST(request->owner_len <= LEASE_OWNER_MAX && words_are_plain(request->owner, request->owner_len),
		     "an owner of %u bytes", request->owner_len);
		MUST(request->wait_ms <= 60000, "waits for %u ms", request->wait_ms);
	}
	if (request->operation == LEASE_ACQUIRE || request->operation == LEASE_EXTEND)
		MUST(request->ttl_ms >= 100 && request->ttl_ms <= 60000, "a ttl of %u ms", request->ttl_ms);
}

struct lease_op *lease_submit(struct leases *ours, const struct lease_request *request, lease_done_fn *done, void *arg)
{
	struct request *const *of = arg; /* the first member of a call, and of an item of many */
	MUST(ours == &leases && done != NULL, "nobody to answer to");
	check_request(request);
	for (size_t i = 0; i < OPS_MAX; i++)
		if (!leases.ops[i].used) {
			leases.ops[i] = (struct lease_op){true, client_serving((*of)->connection->fd), *request, done,
							  arg};
			leases.under_way++;
			return &leases.ops[i];
		}
	MUST(false, "more operations than connections, or than items in a body");
}

void lease_cancel(struct lease_op *op)
{
	MUST(op->used, "cancelled twice, or after its answer");
	op->used = false;
	leases.under_way--;
}

void lease_release_abandoned(struct leases *ours, const struct lease_request *acquired,
			     const char token[LEASE_TOKEN_LEN])
{
	int grant = leases_grant_of(token);
	MUST(ours == &leases && has_names(acquired), "given back: a resource of %u bytes", acquired->resource_len);
	MUST(grant >= 0 && !leases.grants[grant].given_back, "given back: grant %d, not granted or given back already",
	     grant);
	leases.grants[grant].given_back = true;
}

bool lease_cursor_valid(const struct leases *ours, const char *cursor)
{
	(void)ours;
	return strncmp(cursor, "page-", 5) == 0;
}

struct lease_listing *lease_list(struct leases *ours, const struct lease_list_request *request,
				 lease_list_found_fn *found, lease_list_done_fn *done, void *arg)
{
	MUST(ours == &leases && done != NULL, "nobody to answer to");
	MUST(request->limit >= 1 && request->limit <= LEASE_LIST_MAX &&
		     words_are_plain(request->prefix, request->prefix_len) &&
		     words_are_plain(request->owner, request->owner_len) &&
		     (request->by_owner || request->owner_len == 0),
	     "limit %u", request->limit);
	for (size_t i = 0; i < OPS_MAX; i++)
		if (!leases.listings[i].used) {
			leases.listings[i] = (struct lease_listing){true, found, done, arg};
			leases.under_way++;
			return &leases.listings[i];
		}
	MUST(false, "more listings than connections");
}

void lease_list_cancel(struct lease_listing *listing)
{
	MUST(listing->used, "cancelled twice, or after its answer");
	listing->used = false;
	leases.under_way--;
}

/* ---- watching: there is no room ---- */

bool lease_watch_is_full(const struct leases *ours)
{
	return ours == &leases;
}

struct lease_watcher *lease_watch(struct leases *ours, const char *resource, size_t resource_len, const char *seen,
				  uint32_t time_ms, lease_watch_fn *event, void *arg)
{
	(void)ours, (void)seen, (void)time_ms, (void)event, (void)arg;
	MUST(false, "watches %.*s without room", (int)resource_len, resource);
}

const struct lease_answer *lease_watch_take(struct lease_watcher *watcher, const char **ret_tag)
{
	MUST(false, "nobody watches: %p %p", (void *)watcher, (const void *)ret_tag);
}

const char *lease_watch_tag(const struct lease_watcher *watcher)
{
	MUST(false, "nobody watches: %p", (const void *)watcher);
}

void lease_watch_end(struct lease_watcher *watcher)
{
	MUST(false, "nobody watches: %p", (void *)watcher);
}

/* ---- answers ---- */

int leases_grant_of(const char *token)
{
	unsigned number;
	if (strncmp(token, TOKEN_HEAD, sizeof(TOKEN_HEAD) - 1) != 0 ||
	    sscanf(token + sizeof(TOKEN_HEAD) - 1, "%8x", &number) != 1)
		return -1;
	return number < leases.grant_count ? (int)number : -1;
}

static void grant(const struct lease_op *op, struct lease_answer *answer)
{
	char token[LEASE_TOKEN_LEN + 1];
	MUST(leases.grant_count < GRANTS_MAX, "more grants than an input can ask for");
	snprintf(token, sizeof token, TOKEN_HEAD "%08zx", leases.grant_count);
	memcpy(answer->token, token, LEASE_TOKEN_LEN);
	leases.grants[leases.grant_count++] = (struct grant){.fd = op->fd};
}

/* The outcomes of each operation (leases.h). */
static enum lease_status choose_status(enum lease_operation call, uint8_t choice)
{
	static const enum lease_status acquire[] = {LEASE_OK,         LEASE_LOCKED,   LEASE_NO_QUORUM,
						    LEASE_SPLIT_VOTE, LEASE_DRAINING, LEASE_TOO_MANY},
				       owned[] = {LEASE_OK, LEASE_NOT_OWNER, LEASE_EXPIRED, LEASE_NO_QUORUM},
				       inspect[] = {LEASE_OK, LEASE_NO_QUORUM};
	switch (call) {
	case LEASE_ACQUIRE: return acquire[choice % 6];
	case LEASE_INSPECT: return inspect[choice % 2];
	default: return owned[choice % 4];
	}
}

static void answer_op(struct lease_op *op, uint8_t choice)
{
	struct lease_op was = *op;
	struct lease_answer answer = {.status = choose_status(op->request.operation, choice),
				      .votes = good_votes,
				      .fence = 42,
				      .ttl_ms = 30000,
				      .validity_ms = 29690,
				      .drift_ms = 302,
				      .retry_after_ms = choice * 40U,
				      .waiters = choice,
				      .held = choice & 4,
				      .expires = choice & 8,
				      .remaining_ms = 29000,
				      .too_late = choice & 16};
	answer.holder = (struct lease_holder){.known = choice & 32, .fence = choice & 64 ? 41 : 0, .owner_len = 3};
	answer.holder.owner = choice & 128 ? "x\xffy" : "me!"; /* another program's value need not be text */
	if (answer.status == LEASE_NO_QUORUM || answer.status == LEASE_SPLIT_VOTE || answer.status == LEASE_DRAINING) {
		answer.votes = bad_votes;
		leases.troubled = true;
	}
	if (op->request.operation == LEASE_ACQUIRE && answer.status == LEASE_OK)
		grant(op, &answer);
	op->used = false;
	leases.under_way--;
	was.done(was.arg, &answer);
}

static void answer_listing(struct lease_listing *listing, uint8_t choice)
{
	struct lease_list_answer answer = {
		.status = choice % 2 == 0 ? LEASE_OK : LEASE_NO_QUORUM, .votes = good_votes, .retry_after_ms = 100};
	if (answer.status == LEASE_OK) {
		const struct lease_answer state = {
			.held = true, .expires = true, .remaining_ms = 9, .votes = good_votes};
		answer.count = choice / 2 % 3;
		for (size_t i = 0; i < answer.count;
		     i++) /* another program's key need not be one that can be asked for */
			listing->found(listing->arg, i == 0 ? "a" : "\x01", 1, &state);
		memcpy(answer.next, choice & 8 ? "page-2" : "", choice & 8 ? 7 : 1);
	} else {
		answer.votes = bad_votes;
		leases.troubled = true;
	}
	listing->used = false;
	leases.under_way--;
	listing->done(listing->arg, &answer);
}

bool leases_answer_one(uint8_t choice)
{
	for (size_t i = 0; i < OPS_MAX && leases.under_way > 0; i++) {
		if (leases.ops[i].used) {
			answer_op(&leases.ops[i], choice);
			return true;
		}
		if (leases.listings[i].used) {
			answer_listing(&leases.listings[i], choice);
			return true;
		}
	}
	return false;
}

void leases_check_end(void)
{
	MUST(leases.under_way == 0, "%zu operations neither answered nor cancelled", leases.under_way);
	MUST(leases.holds == 0 && all_holds == NULL, "%zu leases are still held", leases.holds);
	for (size_t i = 0; i < leases.grant_count; i++)
		MUST(!leases.grants[i].held || leases.grants[i].given_back, "grant %zu was held, and is not dropped",
		     i);
}

/* ---- holds ---- */

struct hold *hold_new(struct holds *ours, const struct lease_request *request, const struct lease_answer *answer,
		      hold_event_fn *on_event, void *arg)
{
	struct hold *hold = calloc(1, sizeof *hold);
	(void)ours;
	MUST(hold != NULL && request->hold && on_event != NULL, "no hold was asked for");
	hold->grant = leases_grant_of(answer->token);
	MUST(hold->grant >= 0 && !leases.grants[hold->grant].held, "holds a grant that is none");
	leases.grants[hold->grant].held = true;
	hold->on_event = on_event;
	hold->arg = arg;
	hold->next = all_holds;
	all_holds = hold;
	leases.holds++;
	return hold;
}

uint32_t hold_validity_ms(const struct hold *hold)
{
	MUST(!hold->lost, "asks how long a lost lease is valid");
	return 12345;
}

uint32_t hold_waiters(const struct hold *hold)
{
	MUST(!hold->lost, "asks who waits for a lost lease");
	return 1;
}

bool hold_take_wanted(struct hold *hold)
{
	bool wanted = hold->wanted;
	hold->wanted = false;
	return wanted;
}

void hold_drop(struct hold *hold, bool release)
{
	struct hold **at = &all_holds;
	(void)release;
	while (*at != NULL && *at != hold)
		at = &(*at)->next;
	MUST(*at == hold, "drops a hold that is none");
	*at = hold->next;
	leases.grants[hold->grant].given_back = true;
	leases.holds--;
	free(hold);
}

void leases_tell_holds(uint8_t choice)
{
	static const enum hold_event events[] = {HOLD_RENEWED, HOLD_LOST, HOLD_DRAINING, HOLD_WANTED};
	static const enum lease_status codes[] = {LEASE_EXPIRED, LEASE_NOT_OWNER, LEASE_NO_QUORUM};
	enum hold_event event = events[choice % 4];
	for (struct hold *hold = all_holds, *next; hold != NULL; hold = next) {
		next = hold->next;
		if (hold->over)
			continue;
		hold->over = event == HOLD_LOST || event == HOLD_DRAINING;
		hold->wanted = event == HOLD_WANTED;
		hold->lost = event == HOLD_LOST;
		hold->on_event(hold->arg, event, event == HOLD_LOST ? codes[choice / 4 % 3] : LEASE_OK);
	}
}

/* ---- masters: all is well ---- */

size_t masters_count(const struct masters *masters)
{
	(void)masters;
	return 3;
}

void masters_status(const struct masters *masters, size_t i, struct master_status *ret_status)
{
	(void)masters;
	*ret_status = (struct master_status){.state = MASTER_VOTING};
	snprintf(ret_status->address, sizeof ret_status->address, "127.0.0.1:%zu", 6379 + i);
}

void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum)
{
	(void)masters;
	*ret_quorum = (struct quorum_status){.needed = 2, .voting = 3, .masters = 3};
}

const char *master_state_name(enum master_state state)
{
	return state == MASTER_VOTING ? "voting" : state == MASTER_QUARANTINED ? "quarantined" : "down";
}
