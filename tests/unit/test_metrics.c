/* SPDX-License-Identifier: MIT */
/* The metrics: the figures of all workers become one, and Prometheus' own tool accepts the page. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "metrics_world.h"
#include "server/base/base.h"
#include "suite.h"

TEST(counters_are_summed_over_workers)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);

	ck_assert_ptr_ne(first, second);
	metrics_add(&first->outcomes[REDLOCK_ACQUIRE][REDLOCK_OK], 3);
	metrics_add(&second->outcomes[REDLOCK_ACQUIRE][REDLOCK_OK], 4);
	metrics_add(&second->outcomes[REDLOCK_RELEASE][REDLOCK_CANCELLED], 1);
	metrics_add(&first->outcomes[REDLOCK_EXTEND][REDLOCK_NOT_OWNER], 2);
	metrics_add(&first->split_retries, 5);
	metrics_add(&second->abandoned, 6);
	metrics_add(&first->in_flight, 7);
	metrics_add(&second->in_flight, 1);
	assert_line("redlockd_lease_requests_total{op=\"acquire\",outcome=\"ok\"} 7");
	assert_line("redlockd_lease_requests_total{op=\"acquire\",outcome=\"locked\"} 0");
	assert_line("redlockd_lease_requests_total{op=\"release\",outcome=\"draining\"} 1");
	assert_line("redlockd_lease_requests_total{op=\"extend\",outcome=\"not-owner\"} 2");
	assert_line("redlockd_lease_requests_total{op=\"inspect\",outcome=\"no-quorum\"} 0");
	assert_line("redlockd_lease_requests_total{op=\"inspect\",outcome=\"split-vote\"} 0");
	assert_line("redlockd_lease_requests_total{op=\"inspect\",outcome=\"lease-expired\"} 0");
	assert_line("redlockd_split_retries_total 5");
	assert_line("redlockd_leases_abandoned_total 6");
	assert_line("redlockd_operations_in_flight 8");
	/* a gauge goes down again */
	metrics_add(&first->in_flight, (uint64_t)-7);
	assert_line("redlockd_operations_in_flight 1");
}

/* The gauge of all workers together bounds --max-waiters. */
TEST(waiters_are_summed_over_workers)
{
	ck_assert_uint_eq(metrics_waiters(), 0);
	metrics_set(&metrics_worker(0)->waiters, 3);
	metrics_set(&metrics_worker(1)->waiters, 4);
	ck_assert_uint_eq(metrics_waiters(), 7);
	assert_line("redlockd_waiters 7");
	assert_line("# TYPE redlockd_waiters gauge");
	metrics_set(&metrics_worker(1)->waiters, 0);
	assert_line("redlockd_waiters 3");
	metrics_add(&metrics_worker(0)->outcomes[REDLOCK_ACQUIRE][METRICS_TOO_MANY], 2);
	assert_line("redlockd_lease_requests_total{op=\"acquire\",outcome=\"too-many-requests\"} 2");
}

TEST(ends_of_waits_are_told_apart)
{
	histogram_observe(&metrics_worker(0)->wait[METRICS_WAIT_GRANTED], 1000);
	histogram_observe(&metrics_worker(1)->wait[METRICS_WAIT_GRANTED], 60000001);
	histogram_observe(&metrics_worker(1)->wait[METRICS_WAIT_TIMEOUT], 2500000);
	histogram_observe(&metrics_worker(0)->wait[METRICS_WAIT_CANCELLED], 10001);
	histogram_observe(&metrics_worker(0)->handover, 700);
	histogram_observe(&metrics_worker(1)->held, UINT64_C(3600000000));
	assert_line("redlockd_wait_seconds_bucket{result=\"granted\",le=\"0.001\"} 1");
	assert_line("redlockd_wait_seconds_bucket{result=\"granted\",le=\"60.0\"} 1");
	assert_line("redlockd_wait_seconds_bucket{result=\"granted\",le=\"300.0\"} 2");
	assert_line("redlockd_wait_seconds_count{result=\"granted\"} 2");
	assert_line("redlockd_wait_seconds_sum{result=\"timeout\"} 2.5");
	assert_line("redlockd_wait_seconds_bucket{result=\"timeout\",le=\"2.0\"} 0");
	assert_line("redlockd_wait_seconds_bucket{result=\"timeout\",le=\"5.0\"} 1");
	assert_line("redlockd_wait_seconds_bucket{result=\"gone\",le=\"0.01\"} 0");
	assert_line("redlockd_wait_seconds_bucket{result=\"gone\",le=\"0.05\"} 1");
	assert_line("redlockd_handover_seconds_bucket{le=\"0.0005\"} 0"); /* a handover is a matter of round trips */
	assert_line("redlockd_handover_seconds_bucket{le=\"0.001\"} 1");
	assert_line("redlockd_handover_seconds_count 1");
	assert_line("redlockd_hold_seconds_bucket{le=\"1800.0\"} 0");
	assert_line("redlockd_hold_seconds_bucket{le=\"7200.0\"} 1");
	assert_line("redlockd_hold_seconds_sum 3600");
	assert_line("# TYPE redlockd_wait_seconds histogram");
	assert_line("# TYPE redlockd_handover_seconds histogram");
	assert_line("# TYPE redlockd_hold_seconds histogram");
}

TEST(masters_are_up_if_all_workers_say_so)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);

	first->masters[0].up = 1;
	second->masters[0].up = 1;
	first->masters[1].up = 1;
	first->masters[0].warnings = 1;
	second->masters[0].warnings = 3;
	metrics_add(&first->masters[2].reconnects, 2);
	metrics_add(&second->masters[2].reconnects, 2);
	metrics_add(&second->masters[2].errors[MASTER_ERROR_OOM], 9);
	metrics_add(&first->masters[0].errors[MASTER_ERROR_TIMEOUT], 1);
	metrics_add(&first->masters[0].errors[MASTER_ERROR_OTHER], 8);
	assert_line("redlockd_master_up{master=\"redis://10.0.0.1:6379\"} 1");
	assert_line("redlockd_master_up{master=\"unix:/tmp/a\\\"b\\\\c\\nd\"} 0");
	assert_line("redlockd_master_up{master=\"redis://[::1]:7\"} 0");
	assert_line("redlockd_master_warnings{master=\"redis://10.0.0.1:6379\"} 3");
	assert_line("redlockd_master_reconnects_total{master=\"redis://[::1]:7\"} 4");
	assert_line("redlockd_master_errors_total{master=\"redis://[::1]:7\",reason=\"oom\"} 9");
	assert_line("redlockd_master_errors_total{master=\"redis://10.0.0.1:6379\",reason=\"timeout\"} 1");
	assert_line("redlockd_master_errors_total{master=\"redis://10.0.0.1:6379\",reason=\"other\"} 8");
}

/* The gauge shows a quarantine if one worker has it; the counter adds up those of all workers. */
TEST(quarantines_are_shown_if_one_worker_has_them)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);

	metrics_set(&second->masters[0].quarantined, QUARANTINE_RECOVERY);
	metrics_set(&first->masters[1].quarantined, QUARANTINE_REPLICA);
	metrics_set(&second->masters[1].quarantined, QUARANTINE_REPLICA);
	metrics_add(&first->masters[0].quarantines[QUARANTINE_RECOVERY], 1);
	metrics_add(&second->masters[0].quarantines[QUARANTINE_RECOVERY], 2);
	metrics_add(&first->masters[2].quarantines[1], 4);
	assert_line("redlockd_master_quarantined{master=\"redis://10.0.0.1:6379\",reason=\"fence-recovery\"} 1");
	assert_line("redlockd_master_quarantined{master=\"redis://10.0.0.1:6379\",reason=\"replica\"} 0");
	assert_line("redlockd_master_quarantined{master=\"unix:/tmp/a\\\"b\\\\c\\nd\",reason=\"replica\"} 1");
	assert_line("redlockd_master_quarantined{master=\"redis://[::1]:7\",reason=\"replica\"} 0");
	assert_line("redlockd_master_quarantines_total{master=\"redis://10.0.0.1:6379\",reason=\"fence-recovery\"} 3");
	assert_line("redlockd_master_quarantines_total{master=\"redis://[::1]:7\",reason=\"no-epoch\"} 4");
	metrics_set(&second->masters[0].quarantined, QUARANTINE_NONE); /* it ends */
	assert_line("redlockd_master_quarantined{master=\"redis://10.0.0.1:6379\",reason=\"fence-recovery\"} 0");
	assert_line("redlockd_master_quarantines_total{master=\"redis://10.0.0.1:6379\",reason=\"fence-recovery\"} 3");
}

TEST(clocks_and_late_commands_are_counted)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);

	metrics_add(&first->masters[0].clock_jumps[0], 1);
	metrics_add(&second->masters[0].clock_jumps[0], 2);
	metrics_add(&second->masters[0].clock_jumps[1], 5);
	metrics_add(&first->masters[2].late, 7);
	metrics_add(&second->masters[2].late, 1);
	metrics_set(&second->masters[1].clocked, 1);
	assert_line("redlockd_master_clock_jumps_total{master=\"redis://10.0.0.1:6379\",direction=\"forward\"} 3");
	assert_line("redlockd_master_clock_jumps_total{master=\"redis://10.0.0.1:6379\",direction=\"back\"} 5");
	assert_line("redlockd_master_clock_jumps_total{master=\"redis://[::1]:7\",direction=\"back\"} 0");
	assert_line("redlockd_late_commands_total{master=\"redis://[::1]:7\"} 8");
	assert_line("redlockd_late_commands_total{master=\"redis://10.0.0.1:6379\"} 0");
	assert_line("redlockd_fence_floor_clocked{master=\"unix:/tmp/a\\\"b\\\\c\\nd\"} 1");
	assert_line("redlockd_fence_floor_clocked{master=\"redis://[::1]:7\"} 0");
}

/* The names in the documentation and in alerts. */
TEST(reasons_of_quarantines_have_their_names)
{
	static const char *const names[] = {"no-epoch",      "restarted",      "bad-epoch",        "clock-forward",
					    "evicted",       "rolled-back",    "not-durable",      "digest",
					    "cluster",       "fence-recovery", "replica",          "version",
					    "redis-cluster", "duplicate",      "maxmemory-policy", "replicas-attached"};
	char line[120];

	ck_assert_uint_eq(sizeof(names) / sizeof(names[0]), QUARANTINE_REASON_COUNT - 1);
	for (enum quarantine_reason reason = 1; reason < QUARANTINE_REASON_COUNT; reason++) {
		ck_assert_str_eq(quarantine_reason_name(reason), names[reason - 1]);
		snprintf(line, sizeof(line), "redlockd_master_quarantined{master=\"redis://[::1]:7\",reason=\"%s\"} 0",
			 names[reason - 1]);
		assert_line(line);
		snprintf(line, sizeof(line),
			 "redlockd_master_quarantines_total{master=\"redis://[::1]:7\",reason=\"%s\"} 0",
			 names[reason - 1]);
		assert_line(line);
	}
}

TEST(every_error_has_a_name_of_its_own)
{
	for (enum master_error a = 0; a < MASTER_ERROR_COUNT; a++)
		for (enum master_error b = 0; b < a; b++)
			ck_assert_str_ne(master_error_name(a), master_error_name(b));
}

/* A time, and the first bucket that has it. */
struct put {
	uint64_t us;
	const char *le;
};

static const struct put short_puts[] = {{0, "0.0001"},    {100, "0.0001"},  {101, "0.0002"},   {300, "0.0003"},
					{500, "0.0005"},  {501, "0.001"},   {1000, "0.001"},   {2000, "0.002"},
					{4999, "0.005"},  {10000, "0.01"},  {20000, "0.02"},   {50000, "0.05"},
					{100000, "0.1"},  {200000, "0.2"},  {500000, "0.5"},   {1000000, "1.0"},
					{1000001, "2.0"}, {5000000, "5.0"}, {5000001, "+Inf"}, {1u << 31, "+Inf"}};

/* For waits and holds, which --max-wait-ms and --max-hold-ms bound. */
static const struct put long_puts[] = {{0, "0.001"},
				       {1000, "0.001"},
				       {1001, "0.01"},
				       {50000, "0.05"},
				       {50001, "0.1"},
				       {500000, "0.5"},
				       {1000000, "1.0"},
				       {1000001, "2.0"},
				       {5000000, "5.0"},
				       {10000000, "10.0"},
				       {20000000, "20.0"},
				       {30000000, "30.0"},
				       {60000000, "60.0"},
				       {60000001, "300.0"},
				       {UINT64_C(1800000000), "1800.0"},
				       {UINT64_C(7200000000), "7200.0"},
				       {UINT64_C(86400000000), "86400.0"},
				       {UINT64_C(86400000001), "+Inf"},
				       {UINT64_C(31536000000000), "+Inf"}};

static void assert_put(const struct put *put, bool is_long)
{
	struct histogram histogram = {.is_long = is_long};
	const struct histogram *one[] = {&histogram};
	struct text text;
	char wanted[64], line[100];

	histogram_observe(&histogram, put->us);
	text_init(&text);
	histogram_render(&text, "h", "", one, 1);
	snprintf(wanted, sizeof(wanted), "h_bucket{le=\"%s\"} 1\n", put->le);
	const char *first = strstr(text.bytes, "} 1\n");
	ck_assert_ptr_nonnull(first);
	size_t start = (size_t)(first - text.bytes);
	while (start > 0 && text.bytes[start - 1] != '\n')
		start--;
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text.bytes + start, "\n") + 1, text.bytes + start);
	ck_assert_str_eq(line, wanted);
	ck_assert_ptr_nonnull(strstr(text.bytes, "h_bucket{le=\"+Inf\"} 1\n"));
	ck_assert_ptr_nonnull(strstr(text.bytes, "h_count 1\n"));
	text_fini(&text);
}

TEST(histograms_put_each_time_where_it_belongs)
{
	for (size_t i = 0; i < sizeof(short_puts) / sizeof(short_puts[0]); i++)
		assert_put(&short_puts[i], false);
	for (size_t i = 0; i < sizeof(long_puts) / sizeof(long_puts[0]); i++)
		assert_put(&long_puts[i], true);
}

TEST(histograms_are_summed_and_their_sum_is_exact)
{
	for (int i = 0; i < 10; i++)
		histogram_observe(&metrics_worker(0)->latency[REDLOCK_EXTEND], 150);
	histogram_observe(&metrics_worker(1)->latency[REDLOCK_EXTEND], 10000001);
	histogram_observe(&metrics_worker(1)->masters[2].rtt, 3000000);
	assert_line("redlockd_lease_duration_seconds_bucket{op=\"extend\",le=\"0.0001\"} 0");
	assert_line("redlockd_lease_duration_seconds_bucket{op=\"extend\",le=\"0.0002\"} 10");
	assert_line("redlockd_lease_duration_seconds_bucket{op=\"extend\",le=\"5.0\"} 10");
	assert_line("redlockd_lease_duration_seconds_bucket{op=\"extend\",le=\"+Inf\"} 11");
	assert_line("redlockd_lease_duration_seconds_sum{op=\"extend\"} 10.001501");
	assert_line("redlockd_lease_duration_seconds_count{op=\"extend\"} 11");
	assert_line("redlockd_lease_duration_seconds_sum{op=\"acquire\"} 0");
	assert_line("redlockd_master_rtt_seconds_sum{master=\"redis://[::1]:7\"} 3");
	assert_line("redlockd_master_rtt_seconds_bucket{master=\"redis://[::1]:7\",le=\"2.0\"} 0");
	assert_line("redlockd_master_rtt_seconds_count{master=\"redis://[::1]:7\"} 1");
}

static void *wait_for_end(void *arg)
{
	pause();
	return arg;
}

TEST(the_process_is_described)
{
	double now = (double)time(NULL), fds = value_of("process_open_fds"),
	       cpu = value_of("process_cpu_seconds_total");
	int more[10];

	ck_assert_double_ge(value_of("process_start_time_seconds"), now - 600);
	ck_assert_double_le(value_of("process_start_time_seconds"), now + 2);
	ck_assert_double_ge(value_of("process_resident_memory_bytes"), 1 << 19);
	ck_assert_double_ge(value_of("process_virtual_memory_bytes"), value_of("process_resident_memory_bytes"));
	pthread_t thread;
	double threads = value_of("process_threads"); /* a sanitizer may have one of its own */
	ck_assert_double_ge(threads, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_end, NULL), 0);
	ck_assert_double_ge(value_of("process_threads"), threads + 1);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	ck_assert_double_ge(value_of("process_max_fds"), fds);
	for (int i = 0; i < 10; i++)
		more[i] = dup(2);
	ck_assert_double_eq(value_of("process_open_fds"), fds + 10);
	for (int i = 0; i < 10; i++)
		close(more[i]);
	for (time_t end = time(NULL) + 60; value_of("process_cpu_seconds_total") <= cpu && time(NULL) < end;)
		; /* uses CPU time, which must show */
	ck_assert_double_gt(value_of("process_cpu_seconds_total"), cpu);
	ck_assert_double_eq(value_of("redlockd_log_dropped_total"), (double)log_dropped());
}

TEST(the_build_is_named)
{
	char *text = render(), version[100];
	size_t count;
	const struct build_library *libraries = build_libraries(&count);

	const char *line = strstr(text, "\nredlockd_build_info{version=\"");
	ck_assert_ptr_nonnull(line);
	for (size_t i = 0; i < count; i++) {
		snprintf(version, sizeof(version), ",%s=\"%s\"", libraries[i].name, libraries[i].version);
		ck_assert_msg(strstr(line, version) != NULL, "no %s", version);
	}
	ck_assert_ptr_null(strstr(line, "unknown\"} 1"));
	free(text);
}

TEST(promtool_has_no_complaint)
{
	char *text = render(), out[4096];
	FILE *tool;
	char path[] = "/tmp/redlockd-metrics-XXXXXX", command[100];
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	snprintf(command, sizeof(command), "promtool check metrics < %s 2>&1", path);
	tool = popen(command, "r");
	ck_assert_ptr_nonnull(tool);
	out[fread(out, 1, sizeof(out) - 1, tool)] = '\0';
	int status = pclose(tool);
	unlink(path);
	ck_assert_msg(status == 0 && out[0] == '\0', "promtool (Debian package prometheus) says: %s", out);
	free(text);
}
