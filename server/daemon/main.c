/* SPDX-License-Identifier: MIT */
/* The program: options, private masters for --dev, listening sockets, workers; then it waits for signals.
 *
 * The main thread owns everything that outlives the workers: options, sockets, metrics. While they run it reads the
 * files of SIGHUP again and watches the loops. Exit status: 0 after SIGTERM or SIGINT, 2 for a mistake in the
 * configuration, 1 for another failure at the start. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include <uv.h>

#include "api/auth/auth.h"
#include "api/calls/calls.h"
#include "api/http/http.h"
#include "daemon.h"
#include "server/base/base.h"
#include "server/config/config.h"
#include "server/metrics/metrics.h"
#include "server/transport/transport.h"

extern char **environ;

enum { EXIT_MISCONFIGURED = 2, MESSAGE_MAX = 1024, QUIET_MS = 1000 };

struct program {
	struct options options;
	struct dev_masters dev;
	struct reload reload;
	struct watchdog watchdog;
	bool had_terminal, hangups_ignored;   /* at the start */
	int (*listeners)[OPTIONS_LISTEN_MAX]; /* per worker */
	struct worker **workers;
};

/* Keys, certificates and passwords are in memory, and some in the environment. So there is no core dump, and no other
 * process of the same user may read them (ptrace, /proc/PID/mem, environ, fd). */
static void keep_secrets(void)
{
	const struct rlimit none = {0, 0};
	prctl(PR_SET_DUMPABLE, 0);
	setrlimit(RLIMIT_CORE, &none);
}

/* Makes failed allocations of libraries end the process, too (server/base/base.h). */
static void guard_memory(void)
{
	json_set_alloc_funcs(memory_alloc, free);
	int failed = uv_replace_allocator(memory_alloc, memory_resize, memory_zeroed, free);
	assert(!failed);
}

static void print_error(const char *message)
{
	log_flush();
	fprintf(stderr, "redlockd: %s\n", message);
}

/* ---- before the workers ---- */

/* Only the main thread receives signals, by sigtimedwait(); a closed connection is an error value, not a signal. */
static void set_up_signals(sigset_t *ret_waited)
{
	sigemptyset(ret_waited);
	sigaddset(ret_waited, SIGTERM);
	sigaddset(ret_waited, SIGINT);
	sigaddset(ret_waited, SIGHUP); /* the terminal was closed, or: read the files again */
	int failed = pthread_sigmask(SIG_BLOCK, ret_waited, NULL);
	assert(!failed);
	signal(SIGPIPE, SIG_IGN);
}

/* Raises the limit to its maximum, since --max-connections is the intended bound. */
static void raise_descriptor_limit(const struct options *options)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	/* two for each MHD daemon of 512 connections (api/http/daemon_pool.c) */
	if (limit.rlim_cur >= options->max_connections + options->max_connections / 256U + 64U + 32U * options->workers)
		return;
	log_begin(LOG_WARN, "few-descriptors");
	log_num("limit", (int64_t)limit.rlim_cur);
	log_num("max_connections", options->max_connections);
	log_end();
}

static void set_up_metrics(const struct options *options)
{
	assert(options->workers > 0 && options->master_count > 0);
	const char *addresses[OPTIONS_MASTERS_MAX];
	for (size_t i = 0; i < options->master_count; i++)
		addresses[i] = options->masters[i].shown;
	metrics_init(options->workers, options->master_count, addresses);
	stats_init(clock_now_us());
}

static void warn_even_master_count(const struct options *options)
{
	if (options->master_count % 2 != 0)
		return;
	log_begin(LOG_WARN, "even-masters");
	log_num("masters", (int64_t)options->master_count);
	log_text("note", "an even number of masters survives no more failures than one master less");
	log_end();
}

static void warn_of_listener(const struct address *address, const char *event, const char *note)
{
	log_begin(LOG_WARN, event);
	log_text("host", address->host);
	if (address->port != 0) /* 0: one that is free; "listening" names it */
		log_num("port", address->port);
	log_text("note", note);
	log_end();
}

/* Rejects an unprotected listener on the network, unless --insecure is given. Returns an exit status, 0 to go on. */
static int check_danger(const struct options *options, bool resolve, char *message, size_t size)
{
	assert(options->listen_count > 0);
	for (size_t i = 0; i < options->listen_count; i++) {
		const struct address *address = &options->listen[i];
		bool local;
		if (!listen_find_local(address, resolve, &local, message, size))
			return EXIT_FAILURE;
		switch (listen_danger(local, address->tls, options->keys[0], options->tls_client_ca[0])) {
		case LISTEN_OPEN:
			if (!options->insecure) {
				snprintf(message, size,
					 "--listen: %s is not a loopback address, and whoever reaches it could take "
					 "and break locks: give --keys, or --tls-cert "
					 "with --tls-client-ca; --insecure starts without",
					 address->host);
				return EXIT_MISCONFIGURED;
			}
			warn_of_listener(address, "listener-open",
					 "--insecure: whoever reaches this address may take and break locks");
			break;
		case LISTEN_READABLE:
			warn_of_listener(address, "keys-in-the-clear",
					 "keys and tokens go over the network without encryption: give --tls-cert");
			break;
		case LISTEN_SAFE: break;
		}
	}
	return EXIT_SUCCESS;
}

/* Two names may lead to one address, which this program then uses itself already. Returns false. */
static bool reject_listener(const struct options *options, size_t failed, char *message, size_t size)
{
	const struct address *list = options->listen;
	size_t len = strlen(message);
	for (size_t i = 0; i < failed; i++)
		if (!list[i].is_unix && !list[failed].is_unix && list[i].port == list[failed].port)
			snprintf(message + len, size - len, ", or leave it out if %s covers it", list[i].shown);
	return false;
}

/* Each worker has a listener of its own for TCP, so that the kernel spreads connections; a Unix socket is one for
 * all. */
static bool open_listeners(struct program *program, char *message, size_t size)
{
	assert(!program->listeners);
	struct options *options = &program->options;
	program->listeners = memory_zeroed(options->workers, sizeof *program->listeners);
	for (size_t i = 0; i < options->listen_count; i++) {
		struct address *address = &options->listen[i];
		/* SO_REUSEPORT lets several workers listen on one port, but also a second redlockd that was started by
		 * mistake. So the port is first opened without it. */
		if (options->workers > 1 && !address->is_unix && address->port != 0) {
			int fd = listen_open(address, false, message, size);
			if (fd < 0)
				return reject_listener(options, i, message, size);
			listen_close(address, fd);
		}
		for (size_t w = 0; w < options->workers; w++) {
			bool shared = w > 0 && address->is_unix;
			int fd = shared ? program->listeners[0][i]
					: listen_open(address, options->workers > 1, message, size);
			if (fd < 0)
				return reject_listener(options, i, message, size);
			program->listeners[w][i] = fd;
			if (!address->is_unix)
				/* port 0: all workers use the port that the first worker got */
				address->port = listen_port(fd);
		}
	}
	return true;
}

static void close_listeners(struct program *program)
{
	const struct options *options = &program->options;
	for (size_t i = 0; program->listeners && i < options->listen_count; i++)
		for (size_t w = 0; w < options->workers; w++)
			if (program->listeners[w][i] > 0 && (w == 0 || !options->listen[i].is_unix))
				listen_close(&options->listen[i], program->listeners[w][i]);
	free(program->listeners);
}

/* ---- workers ---- */

static void drain_workers(struct program *program, uint32_t quiet_ms)
{
	for (size_t i = 0; i < program->options.workers; i++)
		worker_drain(program->workers[i], quiet_ms);
}

/* Starts all workers and waits until they serve. False: they end, since the masters cannot be used together. */
static bool start_workers(struct program *program)
{
	assert(!program->workers);
	const struct options *options = &program->options;
	bool serving = true;
	program->workers = memory_zeroed(options->workers, sizeof *program->workers);
	for (size_t i = 0; i < options->workers; i++)
		program->workers[i] = worker_start(i, options, program->listeners[i], program->reload.tls,
						   program->reload.keys);
	for (size_t i = 0; i < options->workers; i++)
		serving = worker_wait_serving(program->workers[i]) && serving;
	return serving;
}

static void join_workers(struct program *program)
{
	for (size_t i = 0; i < program->options.workers; i++)
		worker_join(program->workers[i]);
	for (size_t i = 0; i < program->options.workers; i++)
		worker_free(program->workers[i]);
	free(program->workers);
}

/* Ends the process after a second Ctrl-C, or at the end of --drain-ms if something cannot be interrupted (a wait for a
 * name server). Leases expire by themselves, private masters end with the program. */
static void end_at_once(int number)
{
	_exit(number == SIGALRM ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void limit_shutdown(const sigset_t *waited, int first, uint32_t drain_ms)
{
	assert(first == SIGTERM || first == SIGINT || first == SIGHUP);
	uint32_t bound_ms = drain_ms > 0 ? drain_ms : 1;
	struct sigaction action = {.sa_handler = end_at_once};
	struct itimerval timer = {
		.it_value = {.tv_sec = bound_ms / 1000, .tv_usec = (suseconds_t)(bound_ms % 1000) * 1000}};
	sigaction(SIGALRM, &action, NULL);
	if (first == SIGINT)
		sigaction(SIGINT, &action, NULL);
	else
		signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN); /* a second SIGTERM changes nothing */
	signal(SIGHUP, SIG_IGN);
	setitimer(ITIMER_REAL, &timer, NULL);
	pthread_sigmask(SIG_UNBLOCK, waited, NULL);
}

static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool ignores_hangups(void)
{
	struct sigaction action;
	return sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* True if SIGHUP means that the terminal was closed and its programs are to end, not that an operator has changed
 * files. The rule is in the manual page (SIGNALS). For a closed terminal the kernel sends it, or the leader of the
 * session, a shell, to its jobs; any other sender means the files. */
static bool is_hangup(const struct program *program, const siginfo_t *info)
{
	assert(info->si_signo == SIGHUP);
	if (program->hangups_ignored)
		return false;
	if (program->options.dev)
		return true;
	bool from_terminal = info->si_code == SI_KERNEL || (info->si_code == SI_USER && info->si_pid == getsid(0));
	return from_terminal && program->had_terminal && !has_terminal();
}

/* SIGTERM: /readyz answers 503 for a while, then the program ends. SIGINT, or the end of the terminal: it ends as soon
 * as nothing is in flight. */
static void wait_for_the_end(struct program *program, const sigset_t *waited)
{
	assert(program->workers);
	uint32_t drain_ms = program->options.drain_ms;
	siginfo_t info;
	int number;
	while ((number = watchdog_wait(&program->watchdog, waited, &info)) == 0 ||
	       (number == SIGHUP && !is_hangup(program, &info))) {
		if (number == 0) {
			reload_issuers(&program->reload, program->workers, program->options.workers);
			continue;
		}
		watchdog_reloading(&program->watchdog);
		reload_again(&program->reload, &program->options, program->workers, program->options.workers);
		watchdog_reloaded(&program->watchdog);
	}
	watchdog_end(&program->watchdog);
	log_begin(LOG_INFO, "draining");
	log_text("signal", number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP");
	log_num("drain_ms", drain_ms);
	log_end();
	log_flush();
	drain_workers(program, number == SIGTERM ? (drain_ms < QUIET_MS ? drain_ms : QUIET_MS) : 0);
	limit_shutdown(waited, number, drain_ms);
}

static int serve(struct program *program, const sigset_t *waited)
{
	assert(program->listeners && waited);
	bool serving = start_workers(program);
	if (serving) {
		show_start(&program->options, program->listeners[0]);
		if (program->options.dev)
			show_first_steps(&program->options, program->reload.tls);
		watchdog_begin(&program->watchdog, program->workers, program->options.workers,
			       program->options.master_count);
		wait_for_the_end(program, waited);
	} else {
		drain_workers(program, 0);
	}
	join_workers(program);
	return serving ? EXIT_SUCCESS : EXIT_MISCONFIGURED;
}

/* Checks and reads all files. Returns an exit status, 0 if all are good. */
static int read_all(struct program *program, bool resolve, char *message, size_t size)
{
	const struct options *options = &program->options;
	int status = check_danger(options, resolve, message, size);
	if (status == EXIT_SUCCESS &&
	    (!transport_tls_load(options, message, size) || !reload_init(&program->reload, options, message, size)))
		status = EXIT_MISCONFIGURED;
	return status;
}

/* --check: returns 0, or 2 with a message. */
static int check(struct program *program)
{
	char message[MESSAGE_MAX];
	log_setup(program->options.log_level, program->options.log_format);
	int status = read_all(program, false, message, sizeof message);
	if (status == EXIT_SUCCESS)
		show_check(&program->options, &program->reload);
	else
		print_error(message);
	reload_fini(&program->reload);
	transport_tls_unload();
	log_fini();
	return status == EXIT_SUCCESS ? EXIT_SUCCESS : EXIT_MISCONFIGURED;
}

static int run_daemon(struct program *program)
{
	char message[MESSAGE_MAX];
	sigset_t waited;
	struct options *options = &program->options;
	log_setup(options->log_level, options->log_format);
	watchdog_init(&program->watchdog);
	program->had_terminal = has_terminal();
	program->hangups_ignored = ignores_hangups();
	int status = read_all(program, true, message, sizeof message);
	if (status != EXIT_SUCCESS) {
		print_error(message);
		return status;
	}
	if (options->dev && !dev_masters_start(&program->dev, options->dev, options, message, sizeof message)) {
		print_error(message);
		return EXIT_FAILURE;
	}
	set_up_signals(&waited);
	raise_descriptor_limit(options);
	set_up_metrics(options);
	warn_even_master_count(options);
	log_flush();
	bool listens = open_listeners(program, message, sizeof message);
	status = listens ? serve(program, &waited) : EXIT_FAILURE;
	close_listeners(program);
	reload_fini(&program->reload);
	transport_tls_unload();
	if (options->dev)
		dev_masters_stop(&program->dev);
	if (listens) {
		log_begin(status ? LOG_ERROR : LOG_INFO, "end");
		log_num("status", status);
		log_end();
	} else {
		print_error(message);
	}
	log_fini();
	return status;
}

int main(int argc, char *argv[])
{
	static struct program program;
	char message[MESSAGE_MAX];
	enum config_action action;
	if (!file_open_standard())
		return EXIT_FAILURE;
	keep_secrets();
	guard_memory();
	/* for the test that compares openapi.yaml with the code */
	if (argc == 2 && strcmp(argv[1], "--help=routes") == 0) {
		calls_print_routes(stdout);
		return EXIT_SUCCESS;
	}
	if (!config_load(argc, argv, environ, &program.options, &action, message, sizeof message)) {
		print_error(message);
		return EXIT_MISCONFIGURED;
	}
	if (action == CONFIG_SHOWN)
		return EXIT_SUCCESS;
	return action == CONFIG_CHECK ? check(&program) : run_daemon(&program);
}
