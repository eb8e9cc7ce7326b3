/* SPDX-License-Identifier: MIT */
/* See redlock_oracle.h. The rules, where Q is the majority of the configured masters:
 *
 * A vote can be: granted, held (by a token), gone, failed, quarantined, or still pending. Answered = granted + held +
 * gone. Unknown = failed + quarantined + pending. The best holder is the token with the most held votes; it "may have"
 * a majority if its votes and the unknown ones make one.
 *
 * acquire  granted >= Q decides: OK while validity is left, else NO_QUORUM. The attempt is lost when filling in
 *          "granted" for all pending ones gives no majority. Then a best holder with Q votes is LOCKED. Wait while
 *          pending ones could give some holder Q votes, or bring the answered ones up to Q. Then answered < Q is
 *          NO_QUORUM; else try again; on the last try LOCKED if the best holder may have a majority, else SPLIT.
 * extend   granted >= Q as above. Held >= Q is NOT_OWNER, gone >= Q is EXPIRED. With none pending: answered < Q is
 *          NO_QUORUM; so is granted + unknown >= Q; held + unknown >= Q is NOT_OWNER; else EXPIRED.
 * release  granted >= Q is OK, then as extend, but granted + unknown >= Q is OK if anything was granted. inspect  a
 * holder with Q votes is held, gone >= Q is free. With none pending: answered < Q is NO_QUORUM, else OK, and held
 *          if anybody holds it anywhere, since gone < Q: nobody could acquire it.
 *
 * Two of these lines have a reason that is easy to lose. A lost acquire does not call it NO_QUORUM while the pending
 * masters could still make a majority of answers: two masters of five down and two callers in contention would
 * otherwise be told that Redis is down, and not try again, by the mere order of the replies. And a pending master is as
 * unknown as a failed one: otherwise a holder that may have a majority is LOCKED or SPLIT, held or free, by that
 * order. */
#include "redlock_oracle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The votes after a part of the sequence: one row for each master. */
struct sheet {
	const struct oracle_attempt *attempt;
	unsigned masters, majority;
	uint64_t now_us;
	bool pending[REDLOCK_MASTERS_MAX];
	struct oracle_event rows[REDLOCK_MASTERS_MAX];
};

uint64_t oracle_deadline_us(const struct redlock_params *params, uint64_t start_us)
{
	uint64_t wait_us = params->master_timeout_us;
	bool leased = params->kind == REDLOCK_ACQUIRE || params->kind == REDLOCK_EXTEND;

	if (leased && params->ttl_us < params->drift_us)
		wait_us = 0;
	else if (leased && params->ttl_us - params->drift_us < wait_us)
		wait_us = params->ttl_us - params->drift_us;
	return start_us + wait_us;
}

static void sheet_fill(struct sheet *sheet, const struct oracle_attempt *attempt, unsigned events)
{
	memset(sheet, 0, sizeof *sheet);
	sheet->attempt = attempt;
	sheet->masters = attempt->params->masters;
	for (sheet->majority = 0; 2 * sheet->majority <= sheet->masters;)
		sheet->majority++;
	sheet->now_us = events > 0 ? attempt->events[events - 1].at_us : attempt->start_us;
	for (unsigned i = 0; i < sheet->masters; i++)
		sheet->pending[i] = true;
	for (unsigned e = 0; e < events; e++) {
		const struct oracle_event *event = &attempt->events[e];

		if (!event->timer) {
			assert(event->master < sheet->masters && sheet->pending[event->master]);
			sheet->rows[event->master] = *event;
			sheet->pending[event->master] = false;
		} else if (event->at_us >= oracle_deadline_us(attempt->params, attempt->start_us)) {
			for (unsigned i = 0; i < sheet->masters; i++) {
				if (sheet->pending[i])
					sheet->rows[i].vote = REDLOCK_VOTE_FAILED;
				sheet->pending[i] = false;
			}
		}
	}
}

static unsigned sheet_count(const struct sheet *sheet, enum redlock_vote vote)
{
	unsigned count = 0;

	for (unsigned i = 0; i < sheet->masters; i++)
		count += !sheet->pending[i] && sheet->rows[i].vote == vote;
	return count;
}

static unsigned sheet_count_pending(const struct sheet *sheet)
{
	unsigned count = 0;

	for (unsigned i = 0; i < sheet->masters; i++)
		count += sheet->pending[i];
	return count;
}

static unsigned sheet_count_holder(const struct sheet *sheet, uint64_t holder)
{
	unsigned count = 0;

	for (unsigned i = 0; i < sheet->masters; i++)
		count += !sheet->pending[i] && sheet->rows[i].vote == REDLOCK_VOTE_HELD &&
			 sheet->rows[i].holder == holder;
	return count;
}

static unsigned sheet_count_best(const struct sheet *sheet)
{
	unsigned best = 0;

	for (unsigned i = 0; i < sheet->masters; i++) {
		unsigned count = 0;

		if (!sheet->pending[i] && sheet->rows[i].vote == REDLOCK_VOTE_HELD)
			count = sheet_count_holder(sheet, sheet->rows[i].holder);
		best = count > best ? count : best;
	}
	return best;
}

/* The votes if all pending masters gave the same one. */
static struct sheet sheet_suppose(const struct sheet *sheet, enum redlock_vote vote, uint64_t holder)
{
	struct sheet other = *sheet;

	for (unsigned i = 0; i < sheet->masters; i++) {
		if (sheet->pending[i])
			other.rows[i] = (struct oracle_event){.master = (uint8_t)i, .vote = vote, .holder = holder};
		other.pending[i] = false;
	}
	return other;
}

static bool sheet_may_be_granted(const struct sheet *sheet)
{
	struct sheet other = sheet_suppose(sheet, REDLOCK_VOTE_GRANTED, 0);

	return sheet_count(&other, REDLOCK_VOTE_GRANTED) >= sheet->majority;
}

/* Whether the pending ones could show a majority of one holder, of one that was seen or of a new one. */
static bool sheet_may_be_held(const struct sheet *sheet)
{
	struct sheet other = sheet_suppose(sheet, REDLOCK_VOTE_HELD, UINT64_C(0xfeedfacecafe));

	if (sheet_count_pending(sheet) == 0)
		return false;
	if (sheet_count_best(&other) >= sheet->majority)
		return true;
	for (unsigned i = 0; i < sheet->masters; i++) {
		if (sheet->pending[i] || sheet->rows[i].vote != REDLOCK_VOTE_HELD)
			continue;
		other = sheet_suppose(sheet, REDLOCK_VOTE_HELD, sheet->rows[i].holder);
		if (sheet_count_best(&other) >= sheet->majority)
			return true;
	}
	return false;
}

static unsigned sheet_count_answered(const struct sheet *sheet)
{
	return sheet_count(sheet, REDLOCK_VOTE_GRANTED) + sheet_count(sheet, REDLOCK_VOTE_HELD) +
	       sheet_count(sheet, REDLOCK_VOTE_GONE);
}

static unsigned sheet_count_down(const struct sheet *sheet)
{
	return sheet_count(sheet, REDLOCK_VOTE_FAILED) + sheet_count(sheet, REDLOCK_VOTE_UNSENT) +
	       sheet_count(sheet, REDLOCK_VOTE_QUARANTINED);
}

/* Too few answered, but the pending ones could make a majority of answers. */
static bool sheet_may_be_answered(const struct sheet *sheet)
{
	struct sheet other = sheet_suppose(sheet, REDLOCK_VOTE_GONE, 0);

	return sheet_count_answered(sheet) < sheet->majority && sheet_count_answered(&other) >= sheet->majority;
}

static bool sheet_may_have_holder(const struct sheet *sheet)
{
	unsigned best = sheet_count_best(sheet);

	return best > 0 && best + sheet_count_down(sheet) + sheet_count_pending(sheet) >= sheet->majority;
}

static int compare_up(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static void decide(struct oracle_verdict *verdict, enum redlock_outcome outcome)
{
	verdict->decided = true;
	verdict->result.outcome = outcome;
}

/* A majority granted: is there any validity left? */
static void judge_validity(const struct sheet *sheet, struct oracle_verdict *verdict)
{
	const struct redlock_params *params = sheet->attempt->params;
	uint64_t ttl_us = params->ttl_us;
	int64_t validity_us;

	for (unsigned i = 0; i < sheet->masters; i++) {
		const struct oracle_event *row = &sheet->rows[i];

		if (!sheet->pending[i] && row->vote == REDLOCK_VOTE_GRANTED && row->ttl_us < ttl_us)
			ttl_us = row->ttl_us;
	}
	validity_us = (int64_t)ttl_us - (int64_t)(sheet->now_us - sheet->attempt->start_us) - (int64_t)params->drift_us;
	decide(verdict, validity_us > 0 ? REDLOCK_OK : REDLOCK_NO_QUORUM);
	verdict->result.ttl_us = ttl_us;
	verdict->result.validity_us = validity_us > 0 ? (uint64_t)validity_us : 0;
}

static void judge_acquire(const struct sheet *sheet, struct oracle_verdict *verdict)
{
	if (sheet_count(sheet, REDLOCK_VOTE_GRANTED) >= sheet->majority)
		judge_validity(sheet, verdict);
	else if (sheet_may_be_granted(sheet))
		return;
	else if (sheet_count_best(sheet) >= sheet->majority)
		decide(verdict, REDLOCK_LOCKED);
	else if (sheet_may_be_held(sheet) || sheet_may_be_answered(sheet))
		return;
	else if (sheet_count_answered(sheet) < sheet->majority)
		decide(verdict, REDLOCK_NO_QUORUM);
	else if (sheet->attempt->attempt < sheet->attempt->params->tries)
		verdict->decided = verdict->retry = true;
	else if (sheet_may_have_holder(sheet))
		decide(verdict, REDLOCK_LOCKED);
	else
		decide(verdict, REDLOCK_SPLIT);
}

/* Extend and release differ only in the meaning of a majority of grants, certain or possible. */
static void judge_lease(const struct sheet *sheet, struct oracle_verdict *verdict)
{
	bool extend = sheet->attempt->params->kind == REDLOCK_EXTEND;
	unsigned granted = sheet_count(sheet, REDLOCK_VOTE_GRANTED), held = sheet_count(sheet, REDLOCK_VOTE_HELD);
	unsigned down = sheet_count_down(sheet);

	if (granted >= sheet->majority && extend)
		judge_validity(sheet, verdict);
	else if (granted >= sheet->majority)
		decide(verdict, REDLOCK_OK);
	else if (held >= sheet->majority)
		decide(verdict, REDLOCK_NOT_OWNER);
	else if (sheet_count(sheet, REDLOCK_VOTE_GONE) >= sheet->majority)
		decide(verdict, REDLOCK_EXPIRED);
	else if (sheet_count_pending(sheet) > 0)
		return;
	else if (sheet_count_answered(sheet) < sheet->majority)
		decide(verdict, REDLOCK_NO_QUORUM);
	else if (extend && granted + down >= sheet->majority)
		decide(verdict, REDLOCK_NO_QUORUM);
	else if (!extend && granted > 0 && granted + down >= sheet->majority)
		decide(verdict, REDLOCK_OK);
	else
		decide(verdict, held > 0 && held + down >= sheet->majority ? REDLOCK_NOT_OWNER : REDLOCK_EXPIRED);
}

static void judge_inspect(const struct sheet *sheet, struct oracle_verdict *verdict)
{
	unsigned best = sheet_count_best(sheet), answered = sheet_count_answered(sheet);

	if (best >= sheet->majority) {
		decide(verdict, REDLOCK_OK);
		verdict->result.held = true;
	} else if (sheet_count(sheet, REDLOCK_VOTE_GONE) >= sheet->majority) {
		decide(verdict, REDLOCK_OK);
	} else if (sheet_count_pending(sheet) > 0) {
		return;
	} else if (answered < sheet->majority) {
		decide(verdict, REDLOCK_NO_QUORUM);
	} else {
		decide(verdict, REDLOCK_OK);
		verdict->result.held = best > 0;
	}
}

static void write_votes(const struct sheet *sheet, struct redlock_votes *votes)
{
	unsigned granted = sheet_count(sheet, REDLOCK_VOTE_GRANTED);

	if (sheet->attempt->params->kind == REDLOCK_INSPECT)
		granted = sheet_count_best(sheet);
	votes->needed = (uint8_t)sheet->majority;
	votes->granted = (uint8_t)granted;
	votes->refused = (uint8_t)(sheet_count_answered(sheet) - granted);
	votes->quarantined = (uint8_t)sheet_count(sheet, REDLOCK_VOTE_QUARANTINED);
	votes->failed = (uint8_t)(sheet_count_down(sheet) - votes->quarantined);
	votes->masters = (uint8_t)sheet->masters;
}

/* When an acquisition may find a majority free: those that hold it, but for as many as would still leave one. */
static uint64_t held_for_us(const struct sheet *sheet)
{
	uint64_t times_us[REDLOCK_MASTERS_MAX];
	unsigned len = 0, blocking = sheet->masters + 1 - sheet->majority;

	for (unsigned i = 0; i < sheet->masters; i++) {
		if (!sheet->pending[i] && sheet->rows[i].vote == REDLOCK_VOTE_HELD)
			times_us[len++] = sheet->rows[i].remaining_us;
	}
	qsort(times_us, len, sizeof times_us[0], compare_up);
	return times_us[len < blocking ? 0 : len - blocking];
}

/* The holders with the most votes, and for how long it is held. */
static void write_holders(const struct sheet *sheet, struct oracle_verdict *verdict)
{
	for (unsigned i = 0; i < sheet->masters; i++) {
		uint64_t holder = sheet->rows[i].holder;
		bool known = sheet->pending[i] || sheet->rows[i].vote != REDLOCK_VOTE_HELD;

		for (unsigned k = 0; k < verdict->holders_len; k++)
			known = known || verdict->holders[k].holder == holder;
		if (known || sheet_count_holder(sheet, holder) < sheet_count_best(sheet))
			continue;
		verdict->holders[verdict->holders_len].holder = holder;
		verdict->holders[verdict->holders_len].remaining_us = held_for_us(sheet);
		verdict->holders_len++;
	}
}

/* LOCKED: when enough of the refusing masters may be free to make a majority with those that granted. */
static uint64_t retry_after_us(const struct sheet *sheet)
{
	uint64_t times_us[REDLOCK_MASTERS_MAX];
	unsigned len = 0, wanted = sheet->majority - sheet_count(sheet, REDLOCK_VOTE_GRANTED);

	for (unsigned i = 0; i < sheet->masters; i++) {
		if (sheet->pending[i] || sheet->rows[i].vote != REDLOCK_VOTE_HELD)
			continue;
		times_us[len++] = sheet->rows[i].remaining_us == REDLOCK_NEVER ? sheet->attempt->params->ttl_us
									       : sheet->rows[i].remaining_us;
	}
	qsort(times_us, len, sizeof times_us[0], compare_up);
	return times_us[wanted < len ? wanted - 1 : len - 1];
}

static uint16_t release_mask(const struct sheet *sheet)
{
	unsigned mask = 0;

	for (unsigned i = 0; i < sheet->masters; i++) {
		enum redlock_vote vote = sheet->rows[i].vote;

		if (sheet->pending[i] || (vote != REDLOCK_VOTE_UNSENT && vote != REDLOCK_VOTE_QUARANTINED))
			mask |= 1u << i;
	}
	return (uint16_t)mask;
}

static void write_result(const struct sheet *sheet, struct oracle_verdict *verdict)
{
	struct redlock_result *result = &verdict->result;
	enum redlock_outcome outcome = result->outcome;

	write_votes(sheet, &result->votes);
	write_holders(sheet, verdict);
	result->tries = sheet->attempt->attempt;
	if (sheet->attempt->params->kind == REDLOCK_ACQUIRE && (verdict->retry || outcome != REDLOCK_OK))
		verdict->release = release_mask(sheet);
	if (verdict->retry)
		return;
	result->has_holder = outcome == REDLOCK_LOCKED || outcome == REDLOCK_NOT_OWNER || result->held;
	if (outcome == REDLOCK_LOCKED)
		result->retry_after_us = retry_after_us(sheet);
	else if (outcome == REDLOCK_SPLIT || outcome == REDLOCK_NO_QUORUM)
		result->retry_after_us = sheet->attempt->params->retry_max_us;
}

void oracle_judge(const struct oracle_attempt *attempt, struct oracle_verdict *verdict)
{
	memset(verdict, 0, sizeof *verdict);
	for (unsigned events = 1; events <= attempt->events_len && !verdict->decided; events++) {
		struct sheet sheet;

		sheet_fill(&sheet, attempt, events);
		switch (attempt->params->kind) {
		case REDLOCK_ACQUIRE: judge_acquire(&sheet, verdict); break;
		case REDLOCK_EXTEND:
		case REDLOCK_RELEASE: judge_lease(&sheet, verdict); break;
		case REDLOCK_INSPECT: judge_inspect(&sheet, verdict); break;
		}
		verdict->after = events;
		if (verdict->decided)
			write_result(&sheet, verdict);
	}
}
