/* SPDX-License-Identifier: MIT */
/* The leases that hold a resource together, shared or on slots, as an inspection finds them. Pure. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "lease_internal.h"
#include "server/base/base.h"

static struct lease_holders *several_new(size_t list_max)
{
	return memory_zeroed(1, sizeof(struct lease_holders) + list_max * sizeof(struct lease_held));
}

void lease_several_free(struct lease_holders *several)
{
	if (several && several->shares > 0) {
		several->shares--;
		return;
	}
	for (uint32_t i = 0; several && i < several->listed; i++)
		lease_holder_fini(&several->list[i].holder);
	if (several)
		free(several->text);
	free(several);
}

static void held_copy(struct lease_held *held, const struct lease_held *from)
{
	*held = *from;
	lease_holder_own(&held->holder);
}

struct lease_holders *lease_several_share(struct lease_holders *several)
{
	if (several)
		several->shares++;
	return several;
}

struct lease_holders *lease_several_read(const struct master_reply *reply)
{
	if (!reply->holders)
		return NULL;
	struct lease_holders *several = several_new(reply->listed);
	several->count = reply->holder_count;
	several->digest = reply->digest;
	several->now_ms = reply->time_us / 1000;
	for (size_t i = 0; i < reply->listed; i++) {
		struct lease_held *held = &several->list[several->listed];
		const char *value;
		size_t len;
		uint64_t remaining_us;
		if (!master_reply_holder(reply, i, &value, &len, &remaining_us))
			continue;
		lease_value_read_holder(value, len, &held->holder);
		if (!held->holder.known && (len != LEASE_TOKEN_LEN || !hex_is_lower(value, len)))
			continue;
		held->reports = held->holder.known;
		memcpy(held->token, value, sizeof held->token);
		held->remaining_ms = remaining_us / 1000;
		several->listed++;
	}
	return several;
}

void lease_several_put_list(struct lease_holders **several, const struct master_scan *scan)
{
	struct lease_holders *old = *several, *listed = several_new(scan->key_count / 2);
	listed->count = old->count;
	listed->digest = old->digest;
	listed->now_ms = old->now_ms;
	uint64_t digest = 0;
	for (size_t i = 0; i + 1 < scan->key_count && listed->listed < MASTER_READ_LIST_MAX; i += 2) {
		struct lease_held *held = &listed->list[listed->listed];
		size_t len = 0;
		const char *token = master_scan_key(scan, i, &len);
		uint64_t end_ms = master_scan_end_ms(scan, i + 1);
		if (!token || len != LEASE_TOKEN_LEN || !hex_is_lower(token, len) || end_ms <= old->now_ms)
			continue;
		memcpy(held->token, token, sizeof held->token);
		held->remaining_ms = end_ms - 1 - old->now_ms;
		digest += lease_several_digest(token);
		listed->listed++;
	}
	if (listed->listed < MASTER_READ_LIST_MAX) { /* these are all, by now */
		listed->count = listed->listed;
		listed->digest = digest;
	}
	listed->count = MAX(listed->count, listed->listed);
	lease_several_free(old);
	*several = listed;
}

uint64_t lease_several_digest(const char token[LEASE_TOKEN_LEN])
{
	char digits[10] = ""; /* as in lib/several.lua */
	memcpy(digits, token + LEASE_TOKEN_LEN - 9, 9);
	return strtoull(digits, NULL, 16);
}

/* ---- the answers of all masters ---- */

static int compare_tokens(const void *a, const void *b)
{
	const struct lease_held *const *one = a, *const *other = b;
	return memcmp((*one)->token, (*other)->token, LEASE_TOKEN_LEN);
}

int lease_several_compare_fences(const void *a, const void *b)
{
	const struct lease_held *one = a, *other = b;
	return one->holder.fence < other->holder.fence ? -1 : one->holder.fence > other->holder.fence;
}

static int compare_ends(const void *a, const void *b)
{
	const struct lease_held *one = a, *other = b;
	return one->remaining_ms < other->remaining_ms ? -1 : one->remaining_ms > other->remaining_ms;
}

static int compare_later(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;
	return *one > *other ? -1 : *one < *other;
}

/* Adds the lease that `named` name: it lasts as long as a majority of masters has it. Its fence is the largest number
 * that one of them has. */
static void add_lease(struct lease_holders *several, const struct lease_held *const named[], size_t count,
		      size_t needed)
{
	uint64_t left_ms[REDLOCK_MASTERS_MAX], fence = 0;
	struct lease_held *held = &several->list[several->listed++];
	assert(count >= 1 && count <= REDLOCK_MASTERS_MAX);
	held_copy(held, named[0]);
	held->reports = 0;
	for (size_t i = 0; i < count; i++) {
		left_ms[i] = named[i]->remaining_ms;
		fence = MAX(fence, named[i]->holder.fence);
		held->reports = (uint8_t)(held->reports + named[i]->reports);
	}
	qsort(left_ms, count, sizeof *left_ms, compare_later);
	held->remaining_ms = left_ms[MIN(count, needed) - 1];
	held->holder.fence = fence;
	several->digest += lease_several_digest(held->token);
}

/* Counts the masters that have the same leases as this one. */
static size_t count_alike(const struct lease_op *look, const struct lease_holders *one)
{
	size_t alike = 0;
	assert(one);
	for (unsigned i = 0; i < look->core.params.masters; i++) {
		const struct lease_holders *other = look->seen[i].several;
		alike += other && other->count == one->count && other->digest == one->digest;
	}
	return alike;
}

/* Counts the leases if a master has more than it lists: the count that a majority agrees on. If no majority agrees, the
 * tokens are read (lease_details.c). If there are more leases than can be read, the count is one that each master of a
 * majority reaches. The digest is then the sum of all digests, which changes only if a lease comes or goes. */
static void count_unlisted(const struct lease_op *look, struct lease_holders *several, size_t needed)
{
	uint64_t counts[REDLOCK_MASTERS_MAX] = {0};
	size_t masters = look->core.params.masters;
	several->digest = 0;
	for (size_t i = 0; i < masters; i++) {
		const struct lease_holders *one = look->seen[i].several;
		if (!one)
			continue;
		counts[i] = one->count;
		several->digest += one->digest;
	}
	qsort(counts, masters, sizeof *counts, compare_later);
	several->count = (uint32_t)counts[needed - 1];
	several->disagree = counts[0] <= MASTER_READ_TOKENS_MAX;
	for (size_t i = 0; i < masters; i++) {
		const struct lease_holders *one = look->seen[i].several;
		if (!one || count_alike(look, one) < needed)
			continue;
		several->count = one->count;
		several->digest = one->digest;
		several->disagree = false;
	}
}

/* The masters may list different leases: keeps those that end first. */
static void keep_first(struct lease_holders *several, uint32_t list_max)
{
	qsort(several->list, several->listed, sizeof *several->list, compare_ends);
	while (several->listed > list_max)
		lease_holder_fini(&several->list[--several->listed].holder);
}

struct lease_holders *lease_several_merge(const struct lease_op *look)
{
	size_t masters = look->core.params.masters, needed = redlock_majority((uint8_t)masters);
	size_t total = 0, unknown = 0; /* leases that were listed; masters that may have any lease */
	bool any = false, all_listed = true;
	for (unsigned i = 0; i < masters; i++) {
		const struct lease_holders *one = look->seen[i].several;
		bool is_complete = !one || one->listed == one->count;
		any |= one != NULL;
		all_listed &= is_complete;
		total += one ? one->listed : 0;
		unknown += !is_complete ||
			   (!lease_op_voted(look, i, REDLOCK_VOTE_HELD) && !lease_op_voted(look, i, REDLOCK_VOTE_GONE));
	}
	if (!any)
		return NULL;
	struct lease_holders *several = several_new(total);
	const struct lease_held **all = memory_alloc((total + 1) * sizeof *all);
	total = 0;
	for (unsigned i = 0; i < masters; i++)
		for (uint32_t at = 0; look->seen[i].several && at < look->seen[i].several->listed; at++)
			all[total++] = &look->seen[i].several->list[at];
	qsort(all, total, sizeof *all, compare_tokens);
	for (size_t at = 0, next; at < total; at = next) {
		for (next = at + 1; next < total && compare_tokens(&all[at], &all[next]) == 0; next++)
			;
		if (next - at + unknown >= needed)
			add_lease(several, all + at, next - at, needed);
	}
	free(all);
	several->count = several->listed;
	if (!all_listed)
		count_unlisted(look, several, needed);
	if (look->request.operation == LEASE_INSPECT)
		keep_first(several, look->request.few ? LEASE_HOLDERS_FEW : LEASE_HOLDERS_MAX);
	qsort(several->list, several->listed, sizeof *several->list, lease_several_compare_fences);
	return several;
}
