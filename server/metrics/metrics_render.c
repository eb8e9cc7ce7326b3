/* The page of metrics: leases, masters, the service and the process. Any thread.
 *
 * The labels come from closed lists (and from --masters), so that no client can make up a time series: docs/metrics.md
 * says how many there are. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "metrics_internal.h"
#include "server/base/base.h"
#include "server/redlock/redlock.h"

static const char *const metrics_waits[METRICS_WAITS] = {"granted", "timeout", "gone"};

static const char *const metrics_operations[METRICS_OPERATIONS] = {[REDLOCK_ACQUIRE] = "acquire",
								   [REDLOCK_EXTEND] = "extend",
								   [REDLOCK_RELEASE] = "release",
								   [REDLOCK_INSPECT] = "inspect",
								   [METRICS_FORCE] = "force"};

static const char *const metrics_outcomes[METRICS_OUTCOMES] = {[REDLOCK_OK] = "ok",
							       [REDLOCK_LOCKED] = "locked",
							       [REDLOCK_NOT_OWNER] = "not-owner",
							       [REDLOCK_EXPIRED] = "lease-expired",
							       [REDLOCK_NO_QUORUM] = "no-quorum",
							       [REDLOCK_SPLIT] = "split-vote",
							       [REDLOCK_CANCELLED] = "draining",
							       [METRICS_TOO_MANY] = "too-many-requests"};

/* A gauge without labels. */
static void metrics_render_gauge(struct exposition *page, const char *name, const char *help, uint64_t value)
{
	exposition_head(page, name, "gauge", help);
	text_printf(&page->text, "%s %" PRIu64 "\n", name, value);
}

/* ---- leases ---- */

/* A counter or gauge without labels, summed over the workers. */
static void metrics_render_sum(struct exposition *page, const char *name, const char *type, const char *help,
			       size_t offset)
{
	exposition_head(page, name, type, help);
	text_printf(&page->text, "%s %" PRIu64 "\n", name, metrics_sum_at(offset));
}

static void metrics_render_holds(struct exposition *page)
{
	static const enum redlock_outcome codes[] = {REDLOCK_NOT_OWNER, REDLOCK_EXPIRED, REDLOCK_NO_QUORUM};
	metrics_render_sum(page, "redlockd_holds", "gauge", "Leases held by an open connection (hold).",
			   offsetof(struct metrics, holds));
	exposition_head(page, "redlockd_holds_lost_total", "counter",
			"Leases held by an open connection that were lost, by why.");
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		text_printf(&page->text, "redlockd_holds_lost_total{code=\"%s\"} %" PRIu64 "\n",
			    metrics_outcomes[codes[i]],
			    metrics_sum_at(offsetof(struct metrics, holds_lost) + codes[i] * sizeof(uint64_t)));
}

/* The histogram at an offset of `struct metrics`, over all workers. */
static void metrics_render_histogram(struct exposition *page, const char *name, const char *labels, size_t offset)
{
	const struct histogram *histograms[METRICS_WORKERS_MAX];
	assert(offset + sizeof(struct histogram) <= sizeof(struct metrics));
	assert(metrics_workers() <= METRICS_WORKERS_MAX);
	for (size_t w = 0; w < metrics_workers(); w++)
		histograms[w] = (const struct histogram *)(const void *)((const char *)metrics_worker(w) + offset);
	histogram_render(&page->text, name, labels, histograms, metrics_workers());
}

/* The longest time that a request has waited by now, over all workers. */
static uint64_t metrics_wait_oldest_us(void)
{
	uint64_t now_us = clock_now_us(), oldest_us = now_us;
	for (size_t w = 0; w < metrics_workers(); w++) {
		uint64_t since_us = metrics_load(&metrics_worker(w)->waiting_since_us);
		if (since_us != 0 && since_us < oldest_us)
			oldest_us = since_us;
	}
	return now_us - oldest_us;
}

static void metrics_render_waiters(struct exposition *page)
{
	char seconds[EXPOSITION_SECONDS_MAX];
	metrics_render_sum(page, "redlockd_waiters", "gauge", "Requests that wait for a lock (wait_ms).",
			   offsetof(struct metrics, waiters));
	metrics_render_gauge(page, "redlockd_waiters_limit",
			     "How many requests may wait for locks at a time (--max-waiters).",
			     metrics_most_at(offsetof(struct metrics, waiters_limit)));
	exposition_seconds(seconds, metrics_wait_oldest_us());
	exposition_head(page, "redlockd_wait_oldest_seconds", "gauge",
			"The longest time that a request has waited by now; 0 if none waits.");
	text_printf(&page->text, "redlockd_wait_oldest_seconds %s\n", seconds);
}

static void metrics_render_waits(struct exposition *page)
{
	char labels[64];
	exposition_head(page, "redlockd_wait_seconds", "histogram",
			"Time that requests waited which did not get the lock at once, by the end of the wait.");
	for (size_t i = 0; i < METRICS_WAITS; i++) {
		snprintf(labels, sizeof labels, "result=\"%s\"", metrics_waits[i]);
		metrics_render_histogram(page, "redlockd_wait_seconds", labels,
					 offsetof(struct metrics, wait) + i * sizeof(struct histogram));
	}
	exposition_head(page, "redlockd_handover_seconds", "histogram",
			"Time from the first notification of a waiter to its grant.");
	metrics_render_histogram(page, "redlockd_handover_seconds", "", offsetof(struct metrics, handover));
	exposition_head(page, "redlockd_hold_seconds", "histogram",
			"Time that released leases were held, by the clock of a master; unknown with --max-hold-ms 0.");
	metrics_render_histogram(page, "redlockd_hold_seconds", "", offsetof(struct metrics, held));
}

static void metrics_render_leases(struct exposition *page)
{
	char labels[64];
	exposition_head(page, "redlockd_lease_requests_total", "counter",
			"Requests for leases, by operation and outcome.");
	for (size_t op = 0; op < METRICS_OPERATIONS; op++)
		for (size_t outcome = 0; outcome < METRICS_OUTCOMES; outcome++)
			text_printf(&page->text,
				    "redlockd_lease_requests_total{op=\"%s\",outcome=\"%s\"} %" PRIu64 "\n",
				    metrics_operations[op], metrics_outcomes[outcome],
				    metrics_sum_at(offsetof(struct metrics, outcomes) +
						   (op * METRICS_OUTCOMES + outcome) * sizeof(uint64_t)));

	exposition_head(page, "redlockd_lease_duration_seconds", "histogram",
			"Time from a request for a lease to its answer.");
	for (size_t op = 0; op < METRICS_OPERATIONS; op++) {
		snprintf(labels, sizeof labels, "op=\"%s\"", metrics_operations[op]);
		metrics_render_histogram(page, "redlockd_lease_duration_seconds", labels,
					 offsetof(struct metrics, latency) + op * sizeof(struct histogram));
	}
	metrics_render_sum(page, "redlockd_split_retries_total", "counter", "Tries made again after a split vote.",
			   offsetof(struct metrics, split_retries));
	metrics_render_sum(page, "redlockd_fence_second_rounds_total", "counter",
			   "Rounds of RAISE: the guess for a fence was too low.",
			   offsetof(struct metrics, fence_rounds));
	metrics_render_sum(
		page, "redlockd_leases_abandoned_total", "counter",
		"Abandoned grants: leases released because their client disconnected before it got the answer.",
		offsetof(struct metrics, abandoned));
	metrics_render_sum(page, "redlockd_operations_in_flight", "gauge", "Operations under way.",
			   offsetof(struct metrics, in_flight));
	metrics_render_sum(page, "redlockd_operations_queued", "gauge",
			   "Operations that wait for their turn before masters are asked.",
			   offsetof(struct metrics, queued));
}

/* ---- masters ---- */

static void metrics_render_quorum(struct exposition *page)
{
	size_t masters = metrics_masters(), voting = metrics_voting(), needed = redlock_majority((uint8_t)masters);
	metrics_render_gauge(page, "redlockd_quorum",
			     "1 while enough masters may vote, in every worker, for locks to be taken, else 0.",
			     voting >= needed);
	metrics_render_gauge(page, "redlockd_masters", "Masters that are configured.", masters);
	metrics_render_gauge(page, "redlockd_masters_needed", "Masters that have to vote for a lock: the majority.",
			     needed);
	metrics_render_gauge(page, "redlockd_masters_voting",
			     "Masters that may vote, as seen by the worker that sees the fewest.", voting);
}

/* The offset of a figure of masters[m]; `offset`: of the same one of masters[0]. */
static size_t metrics_of_master(size_t offset, size_t m)
{
	assert(m < METRICS_MASTERS_MAX && offset >= offsetof(struct metrics, masters));
	assert(offset < offsetof(struct metrics, masters[1]));
	return offset + m * sizeof(((struct metrics *)NULL)->masters[0]);
}

/* A counter or gauge of each master: summed over the workers; the largest that any worker has. */
static void metrics_render_master_sum(struct exposition *page, const char *name, const char *type, const char *help,
				      size_t offset)
{
	exposition_head(page, name, type, help);
	for (size_t m = 0; m < metrics_masters(); m++)
		text_printf(&page->text, "%s{%s} %" PRIu64 "\n", name, metrics_master_label(m),
			    metrics_sum_at(metrics_of_master(offset, m)));
}

static void metrics_render_master_most(struct exposition *page, const char *name, const char *help, size_t offset)
{
	exposition_head(page, name, "gauge", help);
	for (size_t m = 0; m < metrics_masters(); m++)
		text_printf(&page->text, "%s{%s} %" PRIu64 "\n", name, metrics_master_label(m),
			    metrics_most_at(metrics_of_master(offset, m)));
}

static void metrics_render_up(struct exposition *page)
{
	exposition_head(page, "redlockd_master_up", "gauge", "1 while every worker has the master's vote, else 0.");
	for (size_t m = 0; m < metrics_masters(); m++) {
		uint64_t up = 1;
		for (size_t w = 0; w < metrics_workers(); w++)
			if (metrics_load(&metrics_worker(w)->masters[m].up) == 0)
				up = 0;
		text_printf(&page->text, "redlockd_master_up{%s} %" PRIu64 "\n", metrics_master_label(m), up);
	}
}

static void metrics_render_rtt(struct exposition *page)
{
	exposition_head(page, "redlockd_master_rtt_seconds", "histogram",
			"Time from a command to the master until its reply.");
	for (size_t m = 0; m < metrics_masters(); m++)
		metrics_render_histogram(page, "redlockd_master_rtt_seconds", metrics_master_label(m),
					 metrics_of_master(offsetof(struct metrics, masters[0].rtt), m));
}

static void metrics_render_errors(struct exposition *page)
{
	exposition_head(page, "redlockd_master_errors_total", "counter",
			"Commands to the master that failed, by reason.");
	for (size_t m = 0; m < metrics_masters(); m++)
		for (enum master_error e = 0; e < MASTER_ERROR_COUNT; e++)
			text_printf(&page->text, "redlockd_master_errors_total{%s,reason=\"%s\"} %" PRIu64 "\n",
				    metrics_master_label(m), master_error_name(e),
				    metrics_sum_at(metrics_of_master(offsetof(struct metrics, masters[0].errors), m) +
						   e * sizeof(uint64_t)));
}

static void metrics_render_masters(struct exposition *page)
{
	metrics_render_up(page);
	metrics_render_rtt(page);
	metrics_render_errors(page);
	metrics_render_master_sum(page, "redlockd_master_commands_in_flight", "gauge",
				  "Commands sent to the master that it has not answered.",
				  offsetof(struct metrics, masters[0].in_flight));
	metrics_render_master_sum(page, "redlockd_master_reconnects_total", "counter",
				  "Connections to the master that had to be made again.",
				  offsetof(struct metrics, masters[0].reconnects));
	metrics_render_master_most(page, "redlockd_master_warnings",
				   "Settings of the master that endanger locks, as listed under /masters.",
				   offsetof(struct metrics, masters[0].warnings));
}

/* ---- the restart guard ---- */

static void metrics_render_quarantine_ends(struct exposition *page)
{
	uint64_t now_us = clock_now_us();
	char seconds[EXPOSITION_SECONDS_MAX];
	exposition_head(page, "redlockd_master_quarantine_remaining_seconds", "gauge",
			"How long until the master may vote again by time alone; 0 where it is not quarantined, or "
			"where time alone does not end its quarantine.");
	for (size_t m = 0; m < metrics_masters(); m++) {
		uint64_t until_us = metrics_most_at(
			metrics_of_master(offsetof(struct metrics, masters[0].quarantine_until_us), m));
		exposition_seconds(seconds, until_us > now_us ? until_us - now_us : 0);
		text_printf(&page->text, "redlockd_master_quarantine_remaining_seconds{%s} %s\n",
			    metrics_master_label(m), seconds);
	}
}

static void metrics_render_refused(struct exposition *page)
{
	exposition_head(page, "redlockd_master_command_refused", "gauge",
			"1 for each command that locks need and the master refuses.");
	for (size_t m = 0; m < metrics_masters(); m++)
		for (unsigned command = 0; command < MASTER_COMMAND_COUNT; command++) {
			bool refused = false;
			for (size_t w = 0; w < metrics_workers(); w++)
				refused = refused ||
					  (metrics_load(&metrics_worker(w)->masters[m].refused) >> command & 1);
			if (refused)
				text_printf(&page->text, "redlockd_master_command_refused{%s,command=\"%s\"} 1\n",
					    metrics_master_label(m), master_command_name(command));
		}
}

static void metrics_render_quarantines(struct exposition *page)
{
	exposition_head(page, "redlockd_master_quarantined", "gauge",
			"1 while the master may not vote though it answers, by reason.");
	for (size_t m = 0; m < metrics_masters(); m++)
		for (enum quarantine_reason reason = QUARANTINE_NONE + 1; reason < QUARANTINE_REASON_COUNT; reason++)
			text_printf(&page->text, "redlockd_master_quarantined{%s,reason=\"%s\"} %d\n",
				    metrics_master_label(m), quarantine_reason_name(reason),
				    metrics_most_at(metrics_of_master(offsetof(struct metrics, masters[0].quarantined),
								      m)) == reason);
	exposition_head(page, "redlockd_master_quarantines_total", "counter",
			"How often the master was quarantined, by reason.");
	for (size_t m = 0; m < metrics_masters(); m++)
		for (enum quarantine_reason reason = QUARANTINE_NONE + 1; reason < QUARANTINE_REASON_COUNT; reason++)
			text_printf(
				&page->text, "redlockd_master_quarantines_total{%s,reason=\"%s\"} %" PRIu64 "\n",
				metrics_master_label(m), quarantine_reason_name(reason),
				metrics_sum_at(metrics_of_master(offsetof(struct metrics, masters[0].quarantines), m) +
					       reason * sizeof(uint64_t)));
}

static void metrics_render_clocks(struct exposition *page)
{
	exposition_head(page, "redlockd_master_clock_jumps_total", "counter",
			"Jumps of the master's clock, as its answers showed them.");
	for (size_t m = 0; m < metrics_masters(); m++)
		for (size_t direction = 0; direction < 2; direction++)
			text_printf(
				&page->text, "redlockd_master_clock_jumps_total{%s,direction=\"%s\"} %" PRIu64 "\n",
				metrics_master_label(m), direction == 0 ? "forward" : "back",
				metrics_sum_at(metrics_of_master(offsetof(struct metrics, masters[0].clock_jumps), m) +
					       direction * sizeof(uint64_t)));
	metrics_render_master_sum(page, "redlockd_late_commands_total", "counter",
				  "Commands that the master refused because their deadline was over.",
				  offsetof(struct metrics, masters[0].late));
	metrics_render_master_most(page, "redlockd_fence_floor_clocked",
				   "1 for a day after the order of the master's fences had to rest on clocks.",
				   offsetof(struct metrics, masters[0].clocked));
}

/* ---- the service ---- */

static void metrics_render_service(struct exposition *page)
{
	struct metrics_reload reload;
	char seconds[EXPOSITION_SECONDS_MAX];
	metrics_reload(&reload);
	metrics_render_gauge(page, "redlockd_draining", "1 while the service shuts down: it gives no new leases.",
			     metrics_most_at(offsetof(struct metrics, draining)));
	metrics_render_gauge(page, "redlockd_config_reload_successful",
			     "1 if keys and certificates could be read the last time, at the start or on SIGHUP.",
			     reload.successful);
	exposition_seconds(seconds, reload.time_us);
	exposition_head(page, "redlockd_config_reload_timestamp_seconds", "gauge",
			"When keys and certificates were last read successfully, in seconds since 1970.");
	text_printf(&page->text, "redlockd_config_reload_timestamp_seconds %s\n", seconds);
	exposition_head(page, "redlockd_config_reload_failures_total", "counter",
			"How often keys or certificates could not be read on SIGHUP.");
	text_printf(&page->text, "redlockd_config_reload_failures_total %" PRIu64 "\n", reload.failures);
}

void metrics_render(struct exposition *page)
{
	assert(metrics_workers() > 0);
	metrics_render_quorum(page);
	metrics_render_leases(page);
	metrics_render_waiters(page);
	metrics_render_waits(page);
	metrics_render_holds(page);
	metrics_render_masters(page);
	metrics_render_refused(page);
	metrics_render_quarantines(page);
	metrics_render_quarantine_ends(page);
	metrics_render_clocks(page);
	metrics_render_service(page);
	metrics_render_process(page);
}
