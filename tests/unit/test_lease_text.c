/* SPDX-License-Identifier: MIT */
/* A lease as text: the same bytes as jansson writes, for any string. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls_internal.h"
#include "suite.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"

/* The same lease by the library. */
static char *by_library(const struct lease_request *lease, const struct lease_answer *answer)
{
	bool acquired = lease->operation == LEASE_ACQUIRE;
	const char *owner = acquired ? lease->owner : answer->holder.owner;
	size_t owner_len = acquired ? lease->owner_len : answer->holder.owner_len;
	json_t *object = json_object();

	if (lease->hold)
		json_object_set_new(object, "event", json_string("acquired"));
	json_object_set_new(object, "resource", json_stringn(lease->resource, lease->resource_len));
	json_object_set_new(object, "token", json_stringn(answer->token, LEASE_TOKEN_LEN));
	json_object_set_new(object, "fence", json_integer((json_int_t)answer->fence));
	if (owner_len > 0)
		json_object_set_new(object, "owner", json_stringn(owner, owner_len)); /* no UTF-8: it is not set */
	json_object_set_new(object, "ttl_ms", json_integer(answer->ttl_ms));
	json_object_set_new(object, "validity_ms", json_integer(answer->validity_ms));
	json_object_set_new(object, "drift_ms", json_integer(answer->drift_ms));
	if (acquired && lease->wait_ms > 0)
		json_object_set_new(object, "waited_ms", json_integer(answer->waited_ms));
	if (!acquired)
		json_object_set_new(object, "waiters", json_integer(answer->waiters));
	char *text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return text;
}

static void check_same(const struct lease_request *lease, const struct lease_answer *answer)
{
	char text[LEASE_TEXT_MAX + 1];
	size_t len = lease_text_write(lease, answer, text);
	char *wanted = by_library(lease, answer);

	ck_assert_uint_le(len, LEASE_TEXT_MAX);
	text[len] = '\0';
	ck_assert_str_eq(text, wanted);
	free(wanted);
}

static void fill(struct lease_request *lease, struct lease_answer *answer, const char *resource, const char *owner,
		 size_t owner_len)
{
	memset(lease, 0, sizeof(*lease));
	memset(answer, 0, sizeof(*answer));
	memcpy(answer->token, TOKEN, LEASE_TOKEN_LEN);
	answer->fence = UINT64_C(9007199254740991);
	answer->ttl_ms = 30000;
	answer->validity_ms = 29697;
	answer->drift_ms = 302;
	answer->waited_ms = 0;
	answer->waiters = 7;
	lease->resource_len = (uint16_t)strlen(resource);
	lease->resource = resource;
	lease->owner_len = answer->holder.owner_len = (uint16_t)owner_len;
	lease->owner = owner;
	answer->holder.owner = owner;
}

static const struct {
	const char *owner;
	size_t len;
} owners[] = {{"", 0},
	      {"worker-7", 8},
	      {"\"\\/", 3},
	      {"\x01\x08\t\n\x0b\f\r\x1f\x7f", 9},
	      {"gr\xc3\xbc\xc3\x9f \xe2\x9c\x93 \xf0\x9f\x94\x92", 15},
	      {"\xff\xfe", 2},
	      {"a\0b", 3},
	      {"\xc2\x85", 2}};

TEST_EACH(test_same_as_library, 0, sizeof(owners) / sizeof(owners[0]))
{
	static const char *const resources[] = {"a", "orders/42", "\"quoted\\\"", "na\xc3\xafve/\xe2\x82\xac"};
	struct lease_request lease;
	struct lease_answer answer;

	for (size_t i = 0; i < sizeof(resources) / sizeof(resources[0]); i++) {
		fill(&lease, &answer, resources[i], owners[_i].owner, owners[_i].len);
		check_same(&lease, &answer);
		lease.hold = true;
		check_same(&lease, &answer);
		lease.hold = false;
		lease.wait_ms = 5000;
		answer.waited_ms = 4294967295;
		check_same(&lease, &answer);
		lease.operation = LEASE_EXTEND;
		check_same(&lease, &answer);
	}
}

/* The longest text: each byte of both strings escaped, each number the longest. */
TEST(test_longest_fits)
{
	struct lease_request lease;
	struct lease_answer answer;
	char resource[LEASE_RESOURCE_MAX], owner[LEASE_OWNER_MAX];

	fill(&lease, &answer, "x", "", 0);
	lease.resource_len = LEASE_RESOURCE_MAX;
	lease.owner_len = LEASE_OWNER_MAX;
	memset(resource, '\x01', sizeof(resource));
	memset(owner, '\x02', sizeof(owner));
	lease.resource = resource;
	lease.owner = owner;
	lease.wait_ms = 1;
	answer.fence = UINT64_C(9223372036854775807);
	answer.ttl_ms = answer.validity_ms = answer.drift_ms = answer.waited_ms = UINT32_MAX;
	lease.hold = true;
	check_same(&lease, &answer);
}

/* ---- refusals ---- */

static char *refusal_by_library(const struct lease_answer *answer, const char *detail, const char *name,
				const char *metadata)
{
	const struct lease_holder *holder = &answer->holder;
	const struct redlock_votes *votes = &answer->votes;
	json_t *owner = holder->owner_len > 0 ? json_stringn(holder->owner, holder->owner_len) : NULL;
	json_t *its = json_pack("{s:o*, s:I, s:s*, s:o*, s:o*}", "owner", owner, "fence", (json_int_t)holder->fence,
				"mode", holder->mode == LEASE_SHARED ? "shared" : NULL, "slot",
				holder->mode == LEASE_SLOT ? json_integer(holder->slot) : NULL, "metadata",
				metadata ? json_loads(metadata, 0, NULL) : NULL);
	json_t *members = json_pack("{s:I, s:I, s:{s:i, s:i, s:i, s:i, s:i, s:i}, s:s*, s:o*}", "retry_after_ms",
				    (json_int_t)answer->retry_after_ms, "waited_ms", (json_int_t)answer->waited_ms,
				    "votes", "needed", votes->needed, "granted", votes->granted, "refused",
				    votes->refused, "failed", votes->failed, "quarantined", votes->quarantined,
				    "masters", votes->masters, "resource", name, "holder", holder->known ? its : NULL);
	if (!holder->known)
		json_decref(its);
	json_t *object = problem_new(PROBLEM_LOCKED, detail, members, NULL);
	char *text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return text;
}

static void check_refusal(const struct lease_answer *answer, const char *detail, const char *name, const char *metadata)
{
	char text[LEASE_REFUSAL_MAX + 64], *at = problem_write(PROBLEM_LOCKED, detail, text);
	at += lease_refusal_write(answer, name, name ? strlen(name) : 0, metadata, metadata ? strlen(metadata) : 0, at);
	*at = '\0';
	char *wanted = refusal_by_library(answer, detail, name, metadata);
	ck_assert_str_eq(text, wanted);
	free(wanted);
}

TEST_EACH(test_refusal_same_as_library, 0, sizeof(owners) / sizeof(owners[0]))
{
	static const enum lease_mode modes[] = {LEASE_EXCLUSIVE, LEASE_SHARED, LEASE_SLOT};
	struct lease_request lease;
	struct lease_answer answer;
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		fill(&lease, &answer, "x", owners[_i].owner, owners[_i].len);
		answer.status = LEASE_LOCKED;
		answer.retry_after_ms = 1234;
		answer.votes = (struct redlock_votes){3, 1, 2, 4, 5, 250};
		check_refusal(&answer, NULL, NULL, NULL); /* a key of another program */
		answer.holder.known = true;
		answer.holder.fence = answer.fence;
		answer.holder.mode = modes[i];
		answer.holder.slot = 65535;
		check_refusal(&answer, NULL, "na\xc3\xafve/\"\n", NULL);
		answer.waited_ms = UINT32_MAX;
		check_refusal(&answer, "Try again.", NULL, "{\"a\":[1,\"\\u0001\"]}");
	}
}

TEST(test_longest_refusal_fits)
{
	struct lease_request lease;
	struct lease_answer answer;
	char text[LEASE_REFUSAL_MAX + 1], *at, detail[201] = "", name[LEASE_RESOURCE_MAX], owner[LEASE_OWNER_MAX];
	fill(&lease, &answer, "x", "", 0);
	memset(detail, 'd', sizeof(detail) - 1);
	memset(name, '\x01', sizeof(name));
	answer.status = LEASE_LOCKED;
	answer.retry_after_ms = UINT32_MAX;
	answer.waited_ms = UINT32_MAX;
	memset(&answer.votes, 0xff, sizeof(answer.votes));
	answer.holder.known = true;
	answer.holder.fence = UINT64_MAX;
	answer.holder.mode = LEASE_SLOT;
	answer.holder.slot = UINT16_MAX;
	answer.holder.owner_len = LEASE_OWNER_MAX;
	memset(owner, '\x02', sizeof(owner));
	answer.holder.owner = owner;
	at = problem_write(PROBLEM_LOCKED, detail, text);
	at += lease_refusal_write(&answer, name, sizeof(name), NULL, 0, at);
	ck_assert(at <= text + LEASE_REFUSAL_MAX);
}
