/* SPDX-License-Identifier: MIT */
/* The counters of all workers: their memory, their sums, and their page. A reader may see one figure a moment older
 * than another one. No client can create series: the labels come from closed lists and from --masters. */
#include "metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME_OF(kind, name) name
static const char *const metrics_errors[] = {MASTER_ERRORS(NAME_OF)};
static const char *const metrics_commands[] = {MASTER_COMMANDS(NAME_OF)};

const char *quarantine_reason_name(enum quarantine_reason reason)
{
	static const char *const names[] = {"fence-recovery", "replica",          "version",          "redis-cluster",
					    "duplicate",      "maxmemory-policy", "replicas-attached"};
	assert(reason < QUARANTINE_REASON_COUNT);
	return reason < QUARANTINE_RECOVERY ? guard_reason_name((enum guard_reason)reason)
					    : names[reason - QUARANTINE_RECOVERY];
}

static const char *const metrics_operations[METRICS_OPERATIONS] = {[REDLOCK_ACQUIRE] = "acquire",
								   [REDLOCK_EXTEND] = "extend",
								   [REDLOCK_RELEASE] = "release",
								   [REDLOCK_INSPECT] = "inspect",
								   [METRICS_FORCE] = "force"};

static const char *const metrics_outcome_names[METRICS_OUTCOMES] = {[REDLOCK_OK] = "ok",
								    [REDLOCK_LOCKED] = "locked",
								    [REDLOCK_NOT_OWNER] = "not-owner",
								    [REDLOCK_EXPIRED] = "lease-expired",
								    [REDLOCK_NO_QUORUM] = "no-quorum",
								    [REDLOCK_SPLIT] = "split-vote",
								    [REDLOCK_CANCELLED] = "draining",
								    [METRICS_TOO_MANY] = "too-many-requests"};

static const char *const metrics_modes[METRICS_MODES] = {"exclusive", "shared", "slot"};
static const char *const metrics_waits[METRICS_WAITS] = {"granted", "timeout", "gone"};
static const char *const metrics_http[HTTP_COUNTERS] = {"all",      "address",     "error",        "address-rate",
							"key-rate", "key-waiting", "token-checks", "request",
							"answer",   "idle"};
static const char *const metrics_tokens[METRICS_TOKEN_REFUSALS] = {
	"",          "malformed", "too-large", "algorithm", "crit",      "issuer", "audience",
	"no-expiry", "expired",   "not-yet",   "key",       "signature", "no-rule"};
static const char *const metrics_directions[2] = {"forward", "back"};
static const char *metrics_reasons[QUARANTINE_REASON_COUNT]; /* written by metrics_init() only */

/* Written only by metrics_init(), except the labels. */
static struct {
	size_t workers, masters;
	struct metrics *of[METRICS_WORKERS_MAX];
	struct text labels[REDLOCK_MASTERS_MAX]; /* master="ADDRESS"; under metrics_labels */
	uint64_t began_us;                       /* since 1970 */
} metrics_all;

static pthread_rwlock_t metrics_labels = PTHREAD_RWLOCK_INITIALIZER;

/* Written by the main thread alone. */
static struct {
	_Atomic uint64_t successful, time_us, failures;
	_Atomic uint64_t masters_ca_s, masters_cert_s; /* expiry; 0: not given */
} metrics_reloads;

const char *master_error_name(enum master_error error)
{
	assert(error < MASTER_ERROR_COUNT);
	return metrics_errors[error];
}

const char *master_command_name(enum master_command_kind command)
{
	assert(command < MASTER_COMMAND_COUNT);
	return metrics_commands[command];
}

/* ---- the workers' figures ---- */

static struct metrics *worker_new(void)
{
	const size_t line = 64; /* workers share no lines of the cache */
	const size_t size = (sizeof(struct metrics) + line - 1) / line * line;
	struct metrics *metrics = aligned_alloc(line, size);
	if (!metrics)
		memory_exhausted("metrics");
	memset(metrics, 0, size);
	pthread_mutex_init(&metrics->stats.lock, NULL);
	metrics->held.is_long = true;
	for (size_t i = 0; i < METRICS_WAITS; i++)
		metrics->wait[i].is_long = true;
	return metrics;
}

void metrics_init(size_t workers, size_t masters, const char *const addresses[])
{
	assert(metrics_all.workers == 0);
	assert(workers >= 1 && workers <= METRICS_WORKERS_MAX && masters <= REDLOCK_MASTERS_MAX);
	for (size_t w = 0; w < workers; w++)
		metrics_all.of[w] = worker_new();
	for (size_t m = 0; m < masters; m++) {
		text_init(&metrics_all.labels[m]);
		exposition_label(&metrics_all.labels[m], "master", addresses[m]);
	}
	for (enum quarantine_reason reason = 0; reason < QUARANTINE_REASON_COUNT; reason++)
		metrics_reasons[reason] = quarantine_reason_name(reason);
	metrics_all.began_us = clock_wall_us();
	metrics_all.workers = workers;
	metrics_all.masters = masters;
}

void metrics_set_address(size_t i, const char *address)
{
	assert(i < metrics_all.masters);
	pthread_rwlock_wrlock(&metrics_labels);
	metrics_all.labels[i].len = 0;
	exposition_label(&metrics_all.labels[i], "master", address);
	pthread_rwlock_unlock(&metrics_labels);
}

struct metrics *metrics_worker(size_t i)
{
	assert(i < metrics_all.workers);
	return metrics_all.of[i];
}

size_t metrics_workers(void)
{
	return metrics_all.workers;
}

uint64_t metrics_figure(size_t offset, enum metrics_fold fold)
{
	uint64_t figure = fold == METRICS_MIN ? UINT64_MAX : 0;
	assert(offset % sizeof(uint64_t) == 0 && offset < sizeof(struct metrics));
	for (size_t w = 0; w < metrics_all.workers; w++) {
		uint64_t value = metrics_load((const void *)((const char *)metrics_all.of[w] + offset));
		if (fold == METRICS_SUM)
			figure += value;
		else if ((value > figure) == (fold == METRICS_MAX))
			figure = value;
	}
	return figure;
}

uint64_t metrics_outcomes(size_t operation, size_t outcome)
{
	assert(operation < METRICS_OPERATIONS && outcome < METRICS_OUTCOMES);
	return metrics_figure(offsetof(struct metrics, outcomes[operation][outcome]), METRICS_SUM);
}

uint64_t metrics_watchers(void)
{
	return metrics_figure(offsetof(struct metrics, watchers), METRICS_SUM);
}

uint64_t metrics_waiters(void)
{
	return metrics_figure(offsetof(struct metrics, waiters), METRICS_SUM);
}

size_t metrics_voting(void)
{
	assert(metrics_all.workers > 0);
	size_t least = metrics_all.masters;
	for (size_t w = 0; w < metrics_all.workers; w++) {
		size_t voting = 0;
		for (size_t m = 0; m < metrics_all.masters; m++)
			voting += metrics_load(&metrics_all.of[w]->masters[m].up) != 0;
		least = voting < least ? voting : least;
	}
	return least;
}

/* ---- certificates and keys ---- */

void metrics_count_reload(bool successful)
{
	metrics_set(&metrics_reloads.successful, successful);
	if (successful)
		metrics_set(&metrics_reloads.time_us, clock_wall_us());
	else
		metrics_add(&metrics_reloads.failures, 1);
}

void metrics_set_masters_expiry(uint64_t authority_s, uint64_t own_s)
{
	metrics_set(&metrics_reloads.masters_ca_s, authority_s);
	metrics_set(&metrics_reloads.masters_cert_s, own_s);
}

/* ---- metrics with a function of their own ---- */

static void metrics_render_quorum(struct text *page)
{
	size_t masters = metrics_all.masters, voting = metrics_voting(), needed = redlock_majority((uint8_t)masters);
	exposition_number(page, "redlockd_quorum", "gauge",
			  "1 while enough masters may vote, in every worker, for locks to be taken, else 0.",
			  voting >= needed);
	exposition_number(page, "redlockd_masters", "gauge", "Masters that are configured.", masters);
	exposition_number(page, "redlockd_masters_needed", "gauge",
			  "Masters that have to vote for a lock: the majority.", needed);
	exposition_number(page, "redlockd_masters_voting", "gauge",
			  "Masters that may vote, as seen by the worker that sees the fewest.", voting);
}

static void metrics_render_requests(struct text *page)
{
	exposition_head(page, "redlockd_lease_requests_total", "counter",
			"Requests for leases, by operation and outcome.");
	for (size_t op = 0; op < METRICS_OPERATIONS; op++)
		for (size_t outcome = 0; outcome < METRICS_OUTCOMES; outcome++)
			text_printf(page, "redlockd_lease_requests_total{op=\"%s\",outcome=\"%s\"} %" PRIu64 "\n",
				    metrics_operations[op], metrics_outcome_names[outcome],
				    metrics_outcomes(op, outcome));
}

static void metrics_render_oldest(struct text *page)
{
	uint64_t now_us = clock_now_us(), oldest_us = now_us;
	for (size_t w = 0; w < metrics_all.workers; w++) {
		uint64_t since_us = metrics_load(&metrics_all.of[w]->waiting_since_us);
		if (since_us != 0 && since_us < oldest_us)
			oldest_us = since_us;
	}
	exposition_time(page, "redlockd_wait_oldest_seconds", "gauge",
			"The longest time that a request has waited by now; 0 if none waits.", now_us - oldest_us);
}

/* The offset of a figure of masters[m]; `offset`: of the same figure of masters[0]. */
static size_t metrics_of_master(size_t offset, size_t m)
{
	assert(m < REDLOCK_MASTERS_MAX && offset >= offsetof(struct metrics, masters));
	assert(offset < offsetof(struct metrics, masters[1]));
	return offset + m * sizeof(((struct metrics *)NULL)->masters[0]);
}

static void metrics_render_refused(struct text *page)
{
	exposition_head(page, "redlockd_master_command_refused", "gauge",
			"1 for each command that locks need and the master refuses.");
	for (size_t m = 0; m < metrics_all.masters; m++) {
		uint64_t refused = 0;
		for (size_t w = 0; w < metrics_all.workers; w++)
			refused |= metrics_load(&metrics_all.of[w]->masters[m].refused);
		for (unsigned command = 0; command < MASTER_COMMAND_COUNT; command++)
			if (refused >> command & 1)
				text_printf(page, "redlockd_master_command_refused{%s,command=\"%s\"} 1\n",
					    metrics_all.labels[m].bytes, metrics_commands[command]);
	}
}

static void metrics_render_quarantined(struct text *page)
{
	exposition_head(page, "redlockd_master_quarantined", "gauge",
			"1 while the master may not vote though it answers, by reason.");
	for (size_t m = 0; m < metrics_all.masters; m++) {
		size_t at = metrics_of_master(offsetof(struct metrics, masters[0].quarantined), m);
		uint64_t why = metrics_figure(at, METRICS_MAX);
		for (enum quarantine_reason reason = QUARANTINE_NONE + 1; reason < QUARANTINE_REASON_COUNT; reason++)
			text_printf(page, "redlockd_master_quarantined{%s,reason=\"%s\"} %d\n",
				    metrics_all.labels[m].bytes, quarantine_reason_name(reason), why == reason);
	}
}

static void metrics_render_quarantine_ends(struct text *page)
{
	uint64_t now_us = clock_now_us();
	exposition_head(page, "redlockd_master_quarantine_remaining_seconds", "gauge",
			"How long until the master may vote again by time alone; 0 where it is not quarantined, or "
			"where time alone does not end its quarantine.");
	for (size_t m = 0; m < metrics_all.masters; m++) {
		size_t at = metrics_of_master(offsetof(struct metrics, masters[0].quarantine_until_us), m);
		uint64_t until_us = metrics_figure(at, METRICS_MAX);
		text_printf(page, "redlockd_master_quarantine_remaining_seconds{%s} ", metrics_all.labels[m].bytes);
		exposition_seconds(page, until_us > now_us ? until_us - now_us : 0);
		text_append(page, "\n", 1);
	}
}

static void metrics_render_reloads(struct text *page)
{
	exposition_number(page, "redlockd_config_reload_successful", "gauge",
			  "1 if keys, certificates and masters could be read the last time, at the start or on SIGHUP.",
			  metrics_load(&metrics_reloads.successful));
	exposition_time(page, "redlockd_config_reload_timestamp_seconds", "gauge",
			"When keys, certificates and masters were last read successfully, in seconds since 1970.",
			metrics_load(&metrics_reloads.time_us));
	exposition_number(page, "redlockd_config_reload_failures_total", "counter",
			  "How often keys, certificates or masters could not be read on SIGHUP.",
			  metrics_load(&metrics_reloads.failures));
}

static void metrics_render_masters_expiry(struct text *page)
{
	static const char *const name = "redlockd_masters_certificate_expiry_timestamp_seconds";
	uint64_t ca_s = metrics_load(&metrics_reloads.masters_ca_s),
		 cert_s = metrics_load(&metrics_reloads.masters_cert_s);
	if (ca_s == 0 && cert_s == 0)
		return;
	exposition_head(
		page, name, "gauge",
		"When the certificate of this option expires, in seconds since 1970; of authorities the first.");
	if (ca_s != 0)
		text_printf(page, "%s{option=\"masters-ca\"} %" PRIu64 "\n", name, ca_s);
	if (cert_s != 0)
		text_printf(page, "%s{option=\"masters-cert\"} %" PRIu64 "\n", name, cert_s);
}

/* ---- all metrics, in the order of the page ---- */

#define AT(member) offsetof(struct metrics, member)

static const struct family {
	const char *name, *type, *help;
	size_t at; /* in struct metrics; of masters[0] if each master has one */
	enum metrics_fold fold;
	const char *label;         /* NULL: one figure, else those from `first` to before `end` in an array */
	const char *const *values; /* of the label */
	size_t first, end;
	void (*render)(struct text *page); /* NULL: all the above */
} families[] = {
	{.render = metrics_render_quorum},
	{.render = metrics_render_requests},
	{"redlockd_lease_duration_seconds", "histogram", "Time from a request for a lease to its answer.",
	 .at = AT(latency), .label = "op", .values = metrics_operations, .end = METRICS_OPERATIONS},
	{"redlockd_split_retries_total", "counter", "Tries made again after a split vote.", .at = AT(split_retries)},
	{"redlockd_fence_second_rounds_total", "counter", "Rounds of RAISE: the guess for a fence was too low.",
	 .at = AT(fence_rounds)},
	{"redlockd_repairs_total", "counter",
	 "Leases given back to a master that had lost them while a majority extended them.", .at = AT(repairs)},
	{"redlockd_leases_below_full", "gauge", "Leases last extended with fewer votes than there are masters.",
	 .at = AT(leases_below_full)},
	{"redlockd_leases_granted_total", "counter", "New leases.", .at = AT(granted), .label = "mode",
	 .values = metrics_modes, .end = METRICS_MODES},
	{"redlockd_leases_abandoned_total", "counter",
	 "Abandoned grants: leases released because their client disconnected before it got the answer.",
	 .at = AT(abandoned)},
	{"redlockd_operations_in_flight", "gauge", "Operations under way.", .at = AT(in_flight)},
	{"redlockd_operations_queued", "gauge", "Operations that wait for their turn before masters are asked.",
	 .at = AT(queued)},
	{"redlockd_waiters", "gauge", "Requests that wait for a lock (wait_ms).", .at = AT(waiters)},
	{"redlockd_watchers", "gauge", "Requests that watch a lock (GET with wait_ms, or as a stream).",
	 .at = AT(watchers)},
	{"redlockd_waiters_limit", "gauge", "How many requests may wait for locks at a time (--max-waiters).",
	 .at = AT(waiters_limit), .fold = METRICS_MAX},
	{.render = metrics_render_oldest},
	{"redlockd_wait_seconds", "histogram",
	 "Time that requests waited which did not get the lock at once, by the end of the wait.", .at = AT(wait),
	 .label = "result", .values = metrics_waits, .end = METRICS_WAITS},
	{"redlockd_handover_seconds", "histogram", "Time from the first notification of a waiter to its grant.",
	 .at = AT(handover)},
	{"redlockd_hold_seconds", "histogram",
	 "Time that released leases were held, by the clock of a master; unknown with --max-hold-ms 0.",
	 .at = AT(held)},
	{"redlockd_holds", "gauge", "Leases held by an open connection (hold).", .at = AT(holds)},
	{"redlockd_holds_lost_total", "counter", "Leases held by an open connection that were lost, by why.",
	 .at = AT(holds_lost), .label = "code", .values = metrics_outcome_names, .first = REDLOCK_NOT_OWNER,
	 .end = REDLOCK_NO_QUORUM + 1},
	{"redlockd_master_up", "gauge", "1 while every worker has the master's vote, else 0.", .at = AT(masters[0].up),
	 .fold = METRICS_MIN},
	{"redlockd_master_rtt_seconds", "histogram", "Time from a command to the master until its reply.",
	 .at = AT(masters[0].rtt)},
	{"redlockd_master_errors_total", "counter", "Commands to the master that failed, by reason.",
	 .at = AT(masters[0].errors), .label = "reason", .values = metrics_errors, .end = MASTER_ERROR_COUNT},
	{"redlockd_master_commands_in_flight", "gauge", "Commands sent to the master that it has not answered.",
	 .at = AT(masters[0].in_flight)},
	{"redlockd_master_reconnects_total", "counter", "Connections to the master that had to be made again.",
	 .at = AT(masters[0].reconnects)},
	{"redlockd_master_warnings", "gauge", "Settings of the master that endanger locks, as listed under /masters.",
	 .at = AT(masters[0].warnings), .fold = METRICS_MAX},
	{.render = metrics_render_refused},
	{.render = metrics_render_quarantined},
	{"redlockd_master_quarantines_total", "counter", "How often the master was quarantined, by reason.",
	 .at = AT(masters[0].quarantines), .label = "reason", .values = metrics_reasons, .first = QUARANTINE_NONE + 1,
	 .end = QUARANTINE_REASON_COUNT},
	{.render = metrics_render_quarantine_ends},
	{"redlockd_master_clock_jumps_total", "counter", "Jumps of the master's clock, as its answers showed them.",
	 .at = AT(masters[0].clock_jumps), .label = "direction", .values = metrics_directions, .end = 2},
	{"redlockd_late_commands_total", "counter", "Commands that the master refused because their deadline was over.",
	 .at = AT(masters[0].late)},
	{"redlockd_fence_floor_clocked", "gauge",
	 "1 for a day after the order of the master's fences had to rest on clocks.", .at = AT(masters[0].clocked),
	 .fold = METRICS_MAX},
	{"redlockd_draining", "gauge", "1 while the service shuts down: it gives no new leases.", .at = AT(draining),
	 .fold = METRICS_MAX},
	{.render = metrics_render_reloads},
	{.render = metrics_render_masters_expiry},
	{"redlockd_http_connections", "gauge", "Open HTTP connections.", .at = AT(http_connections)},
	{"redlockd_http_connections_limit", "gauge",
	 "How many HTTP connections may be open at a time (--max-connections, rounded up to a multiple of --workers).",
	 .at = AT(http_connections_limit)},
	{"redlockd_http_connections_refused_total", "counter",
	 "Connections refused because too many were open, in all or from one address, or because of an error.",
	 .at = AT(http_counters), .label = "reason", .values = metrics_http, .end = HTTP_REFUSED_ERROR + 1},
	{"redlockd_http_requests_limited_total", "counter", "Requests answered 429, by the bound that they met.",
	 .at = AT(http_counters), .label = "limit", .values = metrics_http, .first = HTTP_LIMIT_ADDRESS_RATE,
	 .end = HTTP_LIMIT_TOKENS + 1},
	{"redlockd_tokens_refused_total", "counter", "Tokens (JWT) of callers that were refused, by reason.",
	 .at = AT(token_refusals), .label = "reason", .values = metrics_tokens, .first = 1,
	 .end = METRICS_TOKEN_REFUSALS},
	{"redlockd_http_timeouts_total", "counter", "Connections ended at a deadline, by what they were late with.",
	 .at = AT(http_counters), .label = "phase", .values = metrics_http, .first = HTTP_TIMEOUT_REQUEST,
	 .end = HTTP_TIMEOUT_IDLE + 1},
};

static void metrics_render_figure(struct text *page, const struct family *family, const char *labels, size_t at)
{
	const struct histogram *histograms[METRICS_WORKERS_MAX];
	if (strcmp(family->type, "histogram") != 0) {
		text_printf(page, labels[0] ? "%s{%s} %" PRIu64 "\n" : "%s%s %" PRIu64 "\n", family->name, labels,
			    metrics_figure(at, family->fold));
		return;
	}
	assert(at + sizeof(struct histogram) <= sizeof(struct metrics));
	for (size_t w = 0; w < metrics_all.workers; w++)
		histograms[w] = (const struct histogram *)(const void *)((const char *)metrics_all.of[w] + at);
	histogram_render(page, family->name, labels, histograms, metrics_all.workers);
}

static void metrics_render_family(struct text *page, const struct family *family)
{
	size_t size = strcmp(family->type, "histogram") == 0 ? sizeof(struct histogram) : sizeof(uint64_t);
	bool of_master = family->at >= AT(masters);
	struct text labels;
	text_init(&labels);
	exposition_head(page, family->name, family->type, family->help);
	for (size_t m = 0; m < (of_master ? metrics_all.masters : 1); m++)
		for (size_t i = family->first; i < (family->label ? family->end : 1); i++) {
			labels.len = 0;
			text_printf(&labels, "%s", of_master ? metrics_all.labels[m].bytes : "");
			if (family->label)
				text_printf(&labels, "%s%s=\"%s\"", of_master ? "," : "", family->label,
					    family->values[i]);
			size_t at = of_master ? metrics_of_master(family->at, m) : family->at;
			metrics_render_figure(page, family, labels.bytes, at + i * size);
		}
	text_fini(&labels);
}

void metrics_render(struct text *page)
{
	assert(metrics_all.workers > 0);
	pthread_rwlock_rdlock(&metrics_labels);
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (families[i].render)
			families[i].render(page);
		else
			metrics_render_family(page, &families[i]);
	pthread_rwlock_unlock(&metrics_labels);
	metrics_render_process(page, metrics_all.began_us);
}
