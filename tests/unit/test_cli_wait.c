/* SPDX-License-Identifier: MIT */
/* Waiting for a lock: which server is asked next, when, and with which wait_ms; when the wait is given up. */
#include <check.h>

#include "cli/http/wait.h"
#include "suite.h"

#define MS UINT64_C(1000)
#define T0 (1000000 * MS)

static const struct answer held = {.outcome = OUTCOME_HELD, .retry_after_ms = 60000},
			   nearly = {.outcome = OUTCOME_HELD, .retry_after_ms = 120};
static const struct answer split = {.outcome = OUTCOME_SPLIT}, gone = {.outcome = OUTCOME_UNAVAILABLE},
			   invalid = {.outcome = OUTCOME_INVALID};
static const struct answer untrusted = {.outcome = OUTCOME_UNTRUSTED}, forbidden = {.outcome = OUTCOME_FORBIDDEN};
static const struct answer busy = {.outcome = OUTCOME_UNAVAILABLE, .is_busy = true, .retry_after_ms = 3000};
/* A server that lets a request wait for less than it asks for. */
static const struct answer kept = {.outcome = OUTCOME_HELD, .retry_after_ms = 60000, .place_kept_ms = 2000};
static const struct answer draining = {.outcome = OUTCOME_UNAVAILABLE, .retry_after_ms = 10000, .place_kept_ms = 2000};

/* After an answer at at_ms the next request is sent at next_ms, to `server` and with this wait_ms. */
struct row {
	const struct answer *answer;
	uint32_t random;
	uint64_t at_ms, next_ms, wait_ms;
	size_t server;
};

enum { ROWS_MAX = 4, MINUTE = 60000, FIVE_MINUTES = 300000 };
#define LONGEST UINT32_MAX /* of a pause */
#define GIVEN_UP UINT64_MAX

static const struct {
	const char *name;
	size_t servers;
	uint64_t wait_ms;
	struct row rows[ROWS_MAX]; /* until the first without an answer */
} cases[] = {
	{"the server waits",
	 1,
	 150000,
	 {{&held, 0, 60001, 60001, MINUTE, 0},
	  {&held, 0, 120003, 120003, 29997, 0},
	  {&held, 0, 150001, GIVEN_UP, 0, 0}}},
	{"the server shortens the wait, and keeps the place",
	 1,
	 40000,
	 {{&kept, LONGEST, 25000, 25000, 15000, 0}, {&kept, 0, 40000, GIVEN_UP, 0, 0}}},
	{"the place is asked for before the pause of the server is over",
	 1,
	 150000,
	 {{&draining, LONGEST, 25000, 26000, MINUTE, 0}}},
	{"a server that does not wait", 1, FIVE_MINUTES, {{&held, 0, 10, 510, MINUTE, 0}}},
	{"a split vote",
	 2,
	 FIVE_MINUTES,
	 {{&split, LONGEST, 0, 500, MINUTE, 0}, {&split, LONGEST, 1100, 1300, MINUTE, 0}}},
	{"all servers before a pause",
	 3,
	 FIVE_MINUTES,
	 {{&gone, 0, 0, 0, MINUTE, 1},
	  {&gone, 0, 1, 1, MINUTE, 2},
	  {&gone, 0, 2, 500, MINUTE, 0},
	  {&gone, 0, 500, 501, MINUTE, 1}}},
	{"the server that answered is asked again, and a server whose pause is over",
	 3,
	 FIVE_MINUTES,
	 {{&gone, 0, 0, 0, MINUTE, 1},
	  {&held, 0, 60000, 60000, MINUTE, 1},
	  {&gone, 0, 60001, 60001, MINUTE, 2},
	  {&gone, 0, 60002, 60002, MINUTE, 0}}},
	{"a busy server is not asked, and at a random time afterwards",
	 2,
	 FIVE_MINUTES,
	 {{&busy, 0, 0, 0, MINUTE, 1},
	  {&gone, LONGEST, 0, 1000, MINUTE, 1},
	  {&busy, LONGEST, 1000, 3000, MINUTE, 0},
	  {&busy, LONGEST, 3000, 5500, MINUTE, 1}}},
	{"no wait: each server once", 2, 0, {{&gone, 0, 0, 0, 0, 1}, {&gone, 0, 10000, GIVEN_UP, 0, 0}}},
	{"no wait: held", 2, 0, {{&held, 0, 0, GIVEN_UP, 0, 0}}},
	{"the last try is at the end", 1, 400, {{&held, LONGEST, 0, 400, 0, 0}, {&held, LONGEST, 400, GIVEN_UP, 0, 0}}},
	{"a mistake in the request", 2, FIVE_MINUTES, {{&invalid, 0, 0, GIVEN_UP, 0, 0}}},
	{"not allowed", 2, FIVE_MINUTES, {{&forbidden, 0, 0, GIVEN_UP, 0, 0}}},
	{"a server that is not trusted is not asked again; without another one the wait is given up",
	 2,
	 FIVE_MINUTES,
	 {{&untrusted, 0, 0, 0, MINUTE, 1},
	  {&gone, LONGEST, 0, 1000, MINUTE, 1},
	  {&untrusted, 0, 1000, GIVEN_UP, 0, 0}}},
	{"no wait: not trusted", 2, 0, {{&untrusted, 0, 0, 0, 0, 1}, {&untrusted, 0, 0, GIVEN_UP, 0, 0}}},
};

TEST_EACH(transcripts, 0, sizeof cases / sizeof *cases)
{
	struct wait wait;

	wait_init(&wait, cases[_i].servers, 0, cases[_i].wait_ms, T0);
	ck_assert_uint_eq(wait_ask(&wait, T0), cases[_i].wait_ms < MINUTE ? cases[_i].wait_ms : MINUTE);
	for (size_t i = 0; i < ROWS_MAX && cases[_i].rows[i].answer; i++) {
		const struct row *row = &cases[_i].rows[i];
		uint64_t next_us = wait_next_us(&wait, row->answer, row->random, T0 + row->at_ms * MS);
		uint64_t expected_us = row->next_ms == GIVEN_UP ? 0 : T0 + row->next_ms * MS;
		ck_assert_msg(next_us == expected_us, "%s, row %zu: at %lld ms", cases[_i].name, i,
			      (long long)(next_us - T0) / 1000);
		if (next_us == 0)
			break;
		uint64_t wait_ms = wait_ask(&wait, next_us);
		ck_assert_msg(wait_ms == row->wait_ms && wait.server == row->server,
			      "%s, row %zu: wait_ms %llu at server %zu", cases[_i].name, i, (unsigned long long)wait_ms,
			      wait.server);
	}
}

/* Whatever the servers answer: the wait ends when its time is up, requests do not follow one another without a pause
 * for ever, and no server is asked to wait beyond the end. */
static void check_random_answers(uint32_t seed)
{
	static const struct answer *const answers[] = {&held, &nearly,    &split, &gone,
						       &busy, &untrusted, &kept,  &draining};
	uint32_t state = seed * 2654435761U + 1;
	struct wait wait;
	uint64_t now_us = T0, next_us = T0;
	unsigned asked = 0;

	wait_init(&wait, 1 + (size_t)seed % 4, 0, 20000, T0);
	while (next_us != 0) {
		ck_assert_uint_ge(next_us, now_us);
		ck_assert(next_us == now_us || next_us <= T0 + 20000 * MS);
		now_us = next_us;
		uint64_t wait_ms = wait_ask(&wait, now_us);
		ck_assert_uint_le(now_us + wait_ms * MS, T0 + 20001 * MS);
		ck_assert_uint_lt(asked++, 20000 / 25 * 2);
		state = state * 1664525 + 1013904223;
		const struct answer *answer = answers[(state >> 16) % (sizeof answers / sizeof *answers)];
		if (answer->outcome == OUTCOME_HELD && (state >> 8) % 2 == 0)
			now_us += wait_ms * MS;
		next_us = wait_next_us(&wait, answer, state, now_us);
	}
}

TEST(any_answers)
{
	for (uint32_t seed = 0; seed < 2000; seed++)
		check_random_answers(seed);
}
